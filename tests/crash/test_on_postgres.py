"""PostgreSQL may notice late that a process was killed, and the crash harness waits for that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from holdfast.errors import TaskBusy
from holdfast.log.store_calls import acquire_one, sync_one
from holdfast.stores import open_store
from tests.crash.on_postgres import beside, database_of, drop_all, opened
from tests.crash.test_everywhere import ROOT
from tests.stores.postgres_server import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]

STREAM = "tasks/held"
HOLD = f"""
import sys
from pathlib import Path
from holdfast.log.store_calls import acquire_one
from tests.crash.on_postgres import opened

acquire_one(opened(sys.argv[1], Path(sys.argv[2])), "{STREAM}", "the first", 30.0)
print("held", flush=True)
sys.stdin.read()
"""


def backends(url: str, database: str) -> list[int]:
    """The processes of the server that serve somebody who is connected to a database."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "select pid from pg_stat_activity"
            " where datname = %s and backend_type = 'client backend'",
            [database],
        )
        return [pid for (pid,) in found]


def test_it_goes_on_when_the_killed_process_counts_as_dead(postgres_url: str) -> None:
    folder = Path("late", "try")
    name = database_of(folder)
    command = [sys.executable, "-c", HOLD, postgres_url, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdin=-1, stdout=-1, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        asleep = backends(postgres_url, name)
        for pid in asleep:
            os.kill(pid, signal.SIGSTOP)
        holder.kill()

    def wake() -> None:
        while asleep:
            os.kill(asleep.pop(), signal.SIGCONT)
        time.sleep(0.01)

    try:
        assert asleep
        with closing(open_store(beside(postgres_url, name))) as hasty, pytest.raises(TaskBusy):
            acquire_one(hasty, STREAM, "the second", 30.0)
        with closing(opened(postgres_url, folder, pause=wake)) as store:
            assert asleep == []
            assert acquire_one(store, STREAM, "the second", 30.0).owner == "the second"
    finally:
        wake()


def test_each_harness_on_a_server_has_databases_of_its_own(postgres_url: str) -> None:
    one, two = Path("one", "calm"), Path("two", "calm")
    for folder in (one, two):
        with closing(opened(postgres_url, folder)) as store:
            lease = acquire_one(store, STREAM, "a task", 30.0)
            assert lease.head == 0
            store.append(lease, 0, [b"a line"])
            sync_one(store, lease)
    drop_all(postgres_url, one.parent)
    with psycopg.connect(postgres_url) as connection:
        found = [name for (name,) in connection.execute("select datname from pg_database")]
    assert database_of(one) not in found and database_of(two) in found
