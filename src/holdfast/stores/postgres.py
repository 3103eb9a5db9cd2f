"""The PostgreSQL store: `postgresql://user@host/database`, for tasks that many machines drive.

The design of the database is told at the top of `sql/postgres/schema.sql`. Everything is in its
schema `holdfast`, which is made on first use.

**Appends go in groups** (see `groups`): one statement, over a connection of its own, holds what
all tasks of the process have to write. Everything else is a statement over a pool. **A process
shows that it is alive** over one more connection (see `presence`), so there must be no proxy in
between that hands a connection to somebody else after each transaction.

**Failure.** When a connection is lost in the middle of an append, nobody knows whether it was
written, so every lease that had lines in it is spoiled. Who takes a new one reads what is there.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import sha256
from typing import Any

import msgspec
import psycopg
from psycopg import errors
from psycopg_pool import ConnectionPool

from holdfast.errors import BadInput, Conflict, LogDamaged, StoreError
from holdfast.store import BLOB_AGE_S, Blob, Facts, Lease, Page, Post, Query
from holdfast.stores.blobs import say_mended
from holdfast.stores.forks import start_anew_in_children
from holdfast.stores.groups import Groups
from holdfast.stores.held import Append, Held, Leases, busy, each, taken_over
from holdfast.stores.leftovers import NothingLeft
from holdfast.stores.packed import unpacked
from holdfast.stores.postgres_appends import by_stream, statement_of, told_as
from holdfast.stores.postgres_database import (
    SQL,
    OwnConnection,
    connect,
    failed,
    open_pool,
    prepare,
    without_password,
)
from holdfast.stores.postgres_find import PAGE, bounds, find_statement
from holdfast.stores.postgres_texts import PostgresTexts
from holdfast.stores.presence import Connection, Presence
from holdfast.stores.rows import GONE, facts_in
from holdfast.stores.sql_waypoints import SqlWaypoints

_POOL_SIZE = 8
_LINES = 200
_NO_END = 1 << 62
_TRIES = 5
_HEARD_S = 0.2
"""How long a notification takes, and more."""


class PostgresStore(NothingLeft):
    """Streams as rows of a PostgreSQL database."""

    def __init__(self, url: str, *, sync: bool = True) -> None:
        self.url = without_password(url)
        self._full_url = url
        self._durable = sync
        self._closed = False
        self._parents: list[Any] = []
        prepare(url, sync)
        self._start()
        start_anew_in_children(self)

    def _start(self) -> None:
        self._leases = Leases()
        self._groups: Groups[Append] = Groups(self._commit)
        self._pool: ConnectionPool[Connection] | None = None
        self._opening = threading.Lock()
        self._own = OwnConnection(self._full_url, self._durable)
        self._presence = Presence(lambda: connect(self._full_url, self._durable), SQL)

    def start_anew(self) -> None:
        """Forget every connection, lock and lease: after a fork they are the parent's."""
        # Kept, because to close them would be to touch them.
        self._parents.append((self._pool, self._own, self._presence, self._groups))
        self._start()

    # Leases

    def acquire(self, stream: str, owner: str, lease_s: float) -> Lease:
        taken = self._take([stream], owner, lease_s)
        while not taken:
            for holder, its_lease_s, silent_s in self._ask("holder", stream=stream):
                raise busy(stream, holder, silent_s, its_lease_s)
            taken = self._take([stream], owner, lease_s)  # it was given back in between
        return taken[stream]

    def acquire_many(
        self, streams: Sequence[str], owner: str, lease_s: float
    ) -> Sequence[Lease | StoreError]:
        taken = self._take(list(set(streams)), owner, lease_s)

        def lease_of(stream: str) -> Lease:
            # Of one that was not taken, or is asked for twice, `acquire` says who has it.
            return taken.pop(stream, None) or self.acquire(stream, owner, lease_s)

        return each(lease_of, streams)

    def _take(self, streams: list[str], owner: str, lease_s: float) -> dict[str, Lease]:
        """Take those leases that can be had."""
        given = {"owner": owner, "lease_s": lease_s, "process": self._number()}
        return {
            name: self._leases.add(Lease(name, owner, epoch, head), id, head)
            for name, id, epoch, head in self._ask("take", streams=streams, **given)
        }

    def holder(self, stream: str) -> str | None:
        rows = self._ask("holder", stream=stream)
        return rows[0][0] if rows else None

    def renew(self, lease: Lease) -> None:
        held = self._leases.of(lease)
        held.must_be_sound()
        if not self._ask("renew", id=held.id, epoch=lease.epoch, process=self._number()):
            held.spoil(taken_over(lease))
            held.must_be_sound()

    def release(self, lease: Lease) -> None:
        self.release_many([lease])

    def release_many(self, leases: Sequence[Lease]) -> None:
        dropped = [held for lease in leases if (held := self._leases.drop(lease)) is not None]
        if dropped:
            self._groups.settle()
            ids, epochs = [held.id for held in dropped], [held.lease.epoch for held in dropped]
            with suppress(StoreError):  # then they run out by themselves
                self._ask("release", ids=ids, epochs=epochs)

    def _number(self) -> int:
        self._must_be_open()
        try:
            return self._presence.number
        except psycopg.Error as error:
            raise failed(f"can't reach {self.url}", error) from error

    def wait_for_news(self, timeout_s: float, *, lines: bool = False) -> bool:
        """Wait until facts have changed or a message was left somewhere, by whomever.

        With `lines`, also until anything was appended: whoever appends is asked to tell of that,
        as it costs something. False if nothing was heard of in that time.
        """
        self._number()
        if lines and self._presence.must_ask():
            is_first = not self._presence.is_asked()
            self._ask("ask_for_lines")
            if is_first:  # until it was heard, some may be appended without a word
                timeout_s = min(timeout_s, _HEARD_S)
        return self._presence.wait_for_news(timeout_s)

    # Appending

    def append(
        self,
        lease: Lease,
        expected_seq: int,
        lines: Sequence[bytes],
        facts: Facts | None = None,
    ) -> None:
        self._leases.of(lease).append(expected_seq, lines, facts, self._groups.add)

    def sync(self, lease: Lease) -> None:
        held = self._leases.of(lease)
        if held.newest is not None:
            self._groups.wait(held.newest)
        held.must_be_sound()

    def sync_many(self, leases: Sequence[Lease]) -> Sequence[StoreError | None]:
        return each(self.sync, leases)  # the first commits for all

    def _commit(self, jobs: Sequence[Append]) -> None:
        """Write many appends in one statement."""
        try:
            appends = list(by_stream(jobs))
            moved = self._append(appends) if appends else set()
            for held, its_jobs in appends:
                if held.id not in moved:
                    self._refuse(its_jobs)
        except Exception as error:
            for job in jobs:
                job.fail(failed(f"can't write to {self.url}", error))
        except BaseException:
            for job in jobs:
                job.fail(failed(f"can't write to {self.url}", InterruptedError("interrupted")))
                job.done = True
            raise
        for job in jobs:
            job.done = True

    def _append(self, appends: list[tuple[Held, list[Append]]]) -> set[int]:
        """Append to many streams at once; returns the ids of those that let it happen."""
        self._must_be_open()
        query, given = statement_of(appends, tell=self._presence.is_asked())
        for left in reversed(range(_TRIES)):
            try:
                with self._own.use() as conn:
                    return {row[0] for row in conn.execute(SQL[query], given).fetchall()}
            except (errors.DeadlockDetected, errors.SerializationFailure):
                if not left:
                    raise
        raise AssertionError("unreachable")

    def _refuse(self, jobs: list[Append]) -> None:
        with self._connection() as conn:
            row = conn.execute(SQL["now_at"], {"id": jobs[0].held.id}).fetchone()
        epoch, head = row or (None, 0)
        for job in jobs:
            job.fail(job.refusal(epoch, head))

    # Asking

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        self._must_be_open()
        with (self._pool or self._opened_pool()).connection() as conn:
            yield conn

    def _opened_pool(self) -> ConnectionPool[Connection]:
        with self._opening:
            if self._pool is None:
                self._pool = open_pool(self._full_url, self._durable, _POOL_SIZE)
            return self._pool

    def _must_be_open(self) -> None:
        if self._closed:
            raise BadInput(f"the store {self.url} was closed: open it again")

    def _ask(self, query: str, /, **given: Any) -> list[Any]:
        """All rows of a query; of one that returns none, an empty list."""
        return self._fetched(SQL[query], given)

    def _fetched(
        self, statement: str, given: dict[str, Any], *, prepare: bool | None = None
    ) -> list[Any]:
        try:
            with self._connection() as conn, conn.cursor(binary=True) as cursor:
                cursor.execute(statement, given, prepare=prepare)
                return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise failed(f"can't reach {self.url}", error) from error

    def _look(self, query: str, /, **given: Any) -> list[Any]:
        """The same, with what this process appended itself."""
        self._groups.settle()
        return self._ask(query, **given)

    # Reading

    def read(self, stream: str, after_seq: int = 0) -> Iterator[bytes]:
        seq, known = after_seq, self._look("length", stream=stream)
        for id, head in known:
            while rows := self._ask("read_on", id=id, after=seq, page=_LINES):
                yield from (unpacked(bytes(line)) for _, _, line in rows)
                seq = rows[-1][1]
            self._must_be_all(stream, id, head, seq)

    def tail(self, stream: str) -> Iterator[bytes]:
        for id, head in self._look("length", stream=stream):
            before = _NO_END
            while rows := self._ask("tail_on", id=id, before=before, page=_LINES):
                if before == _NO_END:
                    self._must_be_all(stream, id, head, rows[0][1])
                yield from (unpacked(bytes(line)) for _, _, line in rows)
                before = rows[-1][1]
            if before == _NO_END:
                self._must_be_all(stream, id, head, 0)

    def _must_be_all(self, stream: str, id: int, head: int, found: int) -> None:
        """Raise `LogDamaged` if lines are missing at the end of a stream that is still there."""
        if found < head and any(row[0] == id for row in self._look("length", stream=stream)):
            raise LogDamaged(stream, found + 1, GONE)

    def streams(self, prefix: str) -> Iterator[str]:
        for (name,) in self._pages("names", prefix):
            yield name

    def _pages(self, query: str, prefix: str) -> Iterator[Any]:
        """The rows of a query that goes by name, page by page."""
        after = ""
        while rows := self._look(query, after=after, **bounds(prefix)):
            yield from (row for row in rows if row[0].startswith(prefix))
            after = rows[-1][0]

    # Facts

    def facts(self, prefix: str) -> Iterator[tuple[str, Facts | None]]:
        for name, *columns in self._pages("facts", prefix):
            yield name, facts_in(columns)

    def remember(self, stream: str, facts: Facts, seq: int) -> None:
        told = msgspec.json.encode(told_as(facts)).decode()
        self._look("remember", stream=stream, facts=told, seq=seq)

    def find(self, query: Query) -> Page:
        # First what is unknown: what becomes known in between is then found twice, and not missed.
        unknown = [name for name, _ in self._unknown(query.prefix)]
        statement = find_statement(query)
        # Never prepared: the plan is made for the values, of which one may have ten thousand rows
        # and another three.
        rows = self._fetched(*statement, prepare=False) if statement is not None else []
        found = [(name, facts) for name, *columns in rows if (facts := facts_in(columns))]
        return Page(found[: query.limit], len(found) > query.limit, unknown)

    def due(self, prefix: str, now: datetime) -> Iterator[tuple[str, Facts | None]]:
        within = bounds(prefix)
        after: dict[str, Any] = {"now": now, "after_at": None, "after_id": 0}
        while rows := self._look("due", **after, **within):
            for name, *columns, wakes_at, id in rows:
                after |= {"after_at": wakes_at, "after_id": id}
                if name.startswith(prefix):
                    yield name, facts_in(columns)
        yield from self._unknown(prefix)

    def _unknown(self, prefix: str) -> Iterator[tuple[str, None]]:
        """The streams whose log has to be read before anything can be said."""
        after_id = 0
        while rows := self._look("unknown", after_id=after_id, **bounds(prefix)):
            yield from ((name, None) for name, _ in rows if name.startswith(prefix))
            after_id = rows[-1][1]

    def text_index(self) -> PostgresTexts:
        return PostgresTexts(self._look)

    def waypoints(self) -> SqlWaypoints:
        return SqlWaypoints(self._look, self._look, list)

    # Inboxes

    def post(self, stream: str, name: str, data: bytes) -> bool:
        return bool(self._ask("post", stream=stream, name=name, data=data))

    def inbox(self, streams: Collection[str]) -> Sequence[Post]:
        if not streams:
            return []
        return [Post(*row) for row in self._ask("inbox", streams=list(streams))]

    def unpost(self, stream: str, name: str) -> None:
        self._ask("unpost", stream=stream, name=name)

    def delete(self, lease: Lease) -> None:
        held = self._leases.of(lease)
        self._groups.settle()
        held.must_be_sound()
        if not self._ask("delete", id=held.id, epoch=lease.epoch):
            held.spoil(taken_over(lease))
            held.must_be_sound()
        self._leases.drop(lease)

    def rename(self, lease: Lease, stream: str) -> None:
        held = self._leases.of(lease)
        self.sync(lease)
        self._ask("clear_name", name=stream)
        try:
            with self._connection() as conn:
                given = {"id": held.id, "epoch": lease.epoch, "name": stream}
                renamed = conn.execute(SQL["rename"], given).fetchall()
        except errors.UniqueViolation:
            for holder, its_lease_s, silent_s in self._ask("holder", stream=stream):
                raise busy(stream, holder, silent_s, its_lease_s) from None
            raise Conflict(f"{stream} is there already") from None
        except psycopg.Error as error:
            raise failed(f"can't reach {self.url}", error) from error
        if not renamed:
            held.spoil(taken_over(lease))
            held.must_be_sound()
        self._leases.drop(lease)

    # Blobs

    def put_blob(self, data: bytes, name: str = "") -> str:
        total = sha256(data)
        digest = name or total.hexdigest()
        given = {"digest": bytes.fromhex(digest), "sum": total.digest()}
        # One that can be read is durable: what is not committed can't be read.
        if not (
            self._ask("young_blob", **given, young_s=BLOB_AGE_S)
            or self._ask("make_blob_young", **given)
        ):
            ((was_wrong,),) = self._ask("put_blob", **given, data=data)
            if was_wrong and not name:  # under a given name others may have put other bytes
                say_mended(digest)
        return digest

    def get_blob(self, name: str, *, checked: bool = True) -> bytes:
        with suppress(ValueError):
            for (data,) in self._ask("get_blob", digest=bytes.fromhex(name)):
                if checked and sha256(data).hexdigest() != name:
                    what = "the blob's bytes do not fit its name"
                    raise LogDamaged(f"blobs/{name}", 0, what)
                return bytes(data)
        raise LogDamaged(f"blobs/{name:.80}", 0, "the blob is gone")

    def blobs(self) -> Iterator[Blob]:
        after = b""
        while rows := self._ask("blobs", after=after, page=PAGE):
            yield from (Blob(digest.hex(), size, max(age, 0.0)) for digest, size, age in rows)
            after = rows[-1][0]

    def delete_blob(self, digest: str, older_than_s: float) -> bool:
        with suppress(ValueError):
            given = {"digest": bytes.fromhex(digest), "older_s": older_than_s}
            return bool(self._ask("delete_blob", **given))
        return False

    def close(self) -> None:
        if self._closed:
            return
        for lease in self._leases.all():
            self.release(lease)
        self._groups.close()
        self._closed = True
        self._presence.close()
        self._own.close()
        if self._pool is not None:
            self._pool.close()
