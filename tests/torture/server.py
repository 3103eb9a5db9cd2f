"""A PostgreSQL server that crashes, and sessions that are ended, in the middle of appends."""

from __future__ import annotations

import atexit
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random

import psycopg
from msgspec import Struct

from holdfast.errors import StoreError
from holdfast.stores.postgres.store import PostgresStore
from tests.stores.postgres_server import PostgresServer
from tests.torture.hand import Hand
from tests.torture.process import Process, Tell, at_work, is_clear
from tests.torture.promises import Promises, broken

STREAMS = [f"tasks/{number}" for number in range(4)]

_TERMINATE = """
select pg_terminate_backend(pid) from pg_stat_activity
where application_name = 'holdfast' and pid <> pg_backend_pid()
"""


class Blow(Struct):
    """What a blow to the server left."""

    acknowledged: int
    broken: list[str]


@cache
def running() -> PostgresServer:
    """A server that syncs what it commits; the same for all, until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
    atexit.register(shutil.rmtree, folder)
    server = PostgresServer(folder, durable=True)
    server.start()
    atexit.register(server.stop, signal.SIGQUIT)
    return server


def crashes(seed: str) -> Iterator[Blow]:
    """Stop the server at once, as by `pg_ctl stop -m immediate`, and start it again."""
    chance, number, server = Random(seed), 0, running()
    url, promises = server.new_database(), Promises()
    while True:
        before = promises.count
        name = f"writer {number}"
        work = at_work(lambda: PostgresStore(url), name, f"{seed} {number}", STREAMS, 3)
        writer = Process(work)
        enough = chance.randint(1, 60)
        writer.hear_until(lambda: len(writer.marks) >= enough)  # noqa: B023
        time.sleep(chance.random() * 0.01)
        server.stop(signal.SIGQUIT)
        server.start()
        # It may have been between two statements: then it has noticed nothing, and goes on.
        plenty = len(writer.marks) + 100
        writer.hear_until(lambda: len(writer.marks) >= plenty)  # noqa: B023
        writer.kill()
        found = _unclear([writer.last_words])
        found += _after(url, writer, promises)
        yield Blow(promises.count - before, found)
        number += 1


def terminations(seed: str) -> Iterator[Blow]:
    """End every session of a writer, which takes hold anew and goes on."""
    chance, number, server = Random(seed), 0, running()
    url, promises = server.new_database(), Promises()
    while True:
        before = promises.count
        stubborn = f"{seed} {number}"
        writer = Process(lambda tell: _go_on_for_ever(url, stubborn, tell))  # noqa: B023
        for _ in range(3):
            enough = len(writer.marks) + chance.randint(10, 40)
            writer.hear_until(lambda: len(writer.marks) >= enough)  # noqa: B023
            time.sleep(chance.random() * 0.01)
            with psycopg.connect(server.url("postgres"), autocommit=True) as conn:
                conn.execute(_TERMINATE)
        writer.hear_until(lambda: writer.marks[-1][0] == "append")  # noqa: B023
        writer.kill()
        found = _unclear([str(mark[1]) for mark in writer.marks if mark[0] == "failed"])
        if writer.last_words:
            found.append(f"the writer could not go on: {writer.last_words}")
        found += _after(url, writer, promises)
        yield Blow(promises.count - before, found)
        number += 1


def _unclear(words: list[str]) -> list[str]:
    return [f"it was not told what failed: {said}" for said in words if not is_clear(said)]


def _after(url: str, writer: Process, promises: Promises) -> list[str]:
    for mark in writer.marks:
        promises.hear(mark)
    store = PostgresStore(url)
    try:
        return broken(store, promises)
    finally:
        store.close()


def _go_on_for_ever(url: str, seed: str, tell: Tell) -> None:
    store = PostgresStore(url)
    hand = Hand(store, f"stubborn {seed}", Random(seed), tell, 0.5)
    while True:
        try:
            hand.act(STREAMS)
        except StoreError as error:
            tell(["failed", f"{type(error).__name__}: {error}"])
            for stream in list(hand.held):
                store.release([hand.held.pop(stream).lease])
