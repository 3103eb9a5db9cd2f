"""The SQLite store: `sqlite:///trips.db`, for many tasks on one machine.

The design of the database is told at the top of `sql/sqlite/schema.sql`. It is in WAL mode, where
readers and the writer do not wait for each other, and with `synchronous=FULL`, without which a
power cut takes acknowledged commits along.

**One writer.** A process writes over one connection, in groups (see `groups`): each transaction
holds what all of its tasks have to write. Between processes the database's own lock decides, and
a process that finds it taken tries again until it gets it, so that nobody ever sees "database is
locked". **Readers** have connections of their own, and read in pieces.

**Failure.** What a failed transaction left on the disk is not known, so every lease that had
lines in it is spoiled, and the connection is made anew.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.errors import BadInput, LogDamaged, StoreError, TooLarge
from holdfast.events import NEVER
from holdfast.store import Facts, Lease, Post
from holdfast.stores import alive
from holdfast.stores.forks import start_anew_in_children
from holdfast.stores.groups import Groups, Job
from holdfast.stores.held import Append, Leases, busy, taken_over
from holdfast.stores.queries import queries
from holdfast.stores.rows import beyond, columns_of, facts_in
from holdfast.stores.sqlite_file import connect, failed, patiently, prepare

_LARGEST_BYTES = 1_000_000_000
_PAGE, _PAGE_BYTES = 500, 1 << 20
_MICROSECOND = timedelta(microseconds=1)

_SQL = queries("sqlite")

T = TypeVar("T")


class Write(Job, Generic[T]):
    """A job that is a function of the connection. It may refuse before it changes anything."""

    __slots__ = ("result", "write")

    def __init__(self, write: Callable[[sqlite3.Connection], T]) -> None:
        super().__init__()
        self.write = write
        self.result: T


class SqliteStore:
    """Streams as rows of one SQLite database."""

    def __init__(self, path: Path, *, sync: bool = True) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        self._durable = sync
        self._closed = False
        self._parents: list[Any] = []
        prepare(path, sync)
        self._start()
        start_anew_in_children(self)

    def _start(self) -> None:
        self._leases = Leases()
        self._groups: Groups[Append | Write[Any]] = Groups(self._commit)
        self._writer: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []
        self._process = alive.this_process()

    def start_anew(self) -> None:
        """Forget every connection, lock and lease: after a fork they are the parent's."""
        # Kept, because to close them would be to touch them.
        self._parents.append((self._writer, self._readers, self._groups))
        self._start()

    # Leases

    def acquire(self, stream: str, owner: str, lease_s: float) -> Lease:
        given = {"stream": stream, "owner": owner, "process": self._process, "lease_s": lease_s}

        def take(conn: sqlite3.Connection) -> tuple[int, int, int]:
            now = time.time()
            row = conn.execute(_SQL["holder"], given).fetchone()
            if row is not None and _is_at_work(row[3:], now):
                owner, _, lease_s, expires_at = row[3:]
                raise busy(stream, owner, now + lease_s - expires_at, lease_s)
            conn.execute(_SQL["make"], given)
            conn.execute(_SQL["take"], {**given, "now": now})
            taken: tuple[int, int, int] = conn.execute(_SQL["holder"], given).fetchone()[:3]
            return taken

        id, epoch, head = self._write(take)
        return self._leases.add(Lease(stream, owner, epoch), id, head)

    def holder(self, stream: str) -> str | None:
        for row in self._all("holder", stream=stream):
            if _is_at_work(row[3:], time.time()):
                return str(row[3])
        return None

    def renew(self, lease: Lease) -> None:
        held = self._leases.of(lease)
        held.must_be_sound()
        given = {"id": held.id, "epoch": lease.epoch, "now": time.time()}
        if not self._write(lambda conn: conn.execute(_SQL["renew"], given).rowcount):
            held.spoil(taken_over(lease))
            held.must_be_sound()

    def release(self, lease: Lease) -> None:
        held = self._leases.drop(lease)
        if held is not None:
            given = {"id": held.id, "epoch": lease.epoch}
            # What was appended stands in line before this, so it is written as well.
            self._write(lambda conn: conn.execute(_SQL["release"], given).rowcount)

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

    def _write(self, write: Callable[[sqlite3.Connection], T]) -> T:
        """Have something written now, and durably."""
        self._must_be_open()
        job = Write(write)
        self._groups.do(job)
        return job.result

    def _commit(self, jobs: Sequence[Append | Write[Any]]) -> None:
        """Write many jobs in one transaction."""
        conn = None
        try:
            conn = self._begun()
            for job in jobs:
                try:
                    _do(conn, job)
                except StoreError as error:
                    job.fail(error)
            conn.execute("commit")
        except Exception as error:
            self._drop_writer()
            for job in jobs:
                job.fail(failed(f"can't write to {self.path}", error))
        except BaseException:
            if conn is None or conn.in_transaction:
                self._drop_writer()  # nothing was written: whoever waits tries again
                raise
            _mark_done(jobs)
            raise
        _mark_done(jobs)

    def _begun(self) -> sqlite3.Connection:
        if self._writer is None:
            self._writer = connect(self.path, self._durable)
        writer = self._writer
        patiently(lambda: writer.execute("begin immediate"))
        return writer

    def _drop_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(sqlite3.Error):
                writer.close()

    # Reading

    def read(self, stream: str, after_seq: int = 0) -> Iterator[bytes]:
        for id, head in self._all("find", stream=stream):
            after, upto = (id << 32) + after_seq, (id << 32) + head
            while found := self._piece("read", after=after, upto=upto):
                yield from (line for _, line in found)
                after = found[-1][0]

    def tail(self, stream: str) -> Iterator[bytes]:
        for id, head in self._all("find", stream=stream):
            before, first = (id << 32) + head + 1, (id << 32) + 1
            while found := self._piece("tail", before=before, first=first):
                yield from (line for _, line in found)
                before = found[-1][0]

    def _piece(self, name: str, **bounds: int) -> list[tuple[int, bytes]]:
        """Some lines of a log: not too many of them, nor too much."""
        with self._reader() as conn:
            cursor = patiently(lambda: conn.execute(_SQL[name], bounds))
            found: list[tuple[int, bytes]] = []
            size = 0
            for row in cursor:
                found.append(row)
                size += len(row[1])
                if size > _PAGE_BYTES or len(found) == _PAGE:
                    break
            cursor.close()
            return found

    def streams(self, prefix: str) -> Iterator[str]:
        for (name,) in self._pages("names", prefix):
            yield name

    def _pages(self, name: str, prefix: str) -> Iterator[Any]:
        """The rows of a query that goes by name, page by page."""
        after = ""
        while rows := self._all(name, after=after, **_bounds(prefix)):
            yield from (row for row in rows if row[0].startswith(prefix))
            after = rows[-1][0]

    def _all(self, name: str, **given: Any) -> list[Any]:
        """All rows of a query, and of what this process wrote itself."""
        self._groups.settle()
        with self._reader() as conn:
            return patiently(lambda: conn.execute(_SQL[name], given).fetchall())

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        self._must_be_open()
        try:
            conn = self._readers.pop()
        except IndexError:
            conn = connect(self.path, self._durable)
        try:
            yield conn
        except BaseException as error:
            conn.close()
            if isinstance(error, sqlite3.Error):
                raise failed(f"can't read {self.path}", error) from error
            raise
        self._readers.append(conn)

    def _must_be_open(self) -> None:
        if self._closed:
            raise BadInput(f"the store {self.url} was closed: open it again")

    # Facts

    def facts(self, prefix: str) -> Iterator[tuple[str, Facts | None]]:
        for name, *columns in self._pages("facts", prefix):
            yield name, _facts(columns)

    def remember(self, stream: str, facts: Facts, seq: int) -> None:
        given = {"stream": stream, "seq": seq, **_columns(facts)}
        self._write(lambda conn: conn.execute(_SQL["remember"], given).rowcount)

    def due(self, prefix: str, now: datetime) -> Iterator[tuple[str, Facts | None]]:
        bounds = _bounds(prefix)
        after: dict[str, Any] = {"now": _micros(now), "after_at": -(1 << 62), "after_id": 0}
        while rows := self._all("due", **after, **bounds):
            for name, *columns, id in rows:
                after |= {"after_at": columns[-1], "after_id": id}
                if name.startswith(prefix):
                    yield name, _facts(columns)
        after = {"after_id": 0}
        while rows := self._all("unknown", **after, **bounds):
            yield from ((name, None) for name, _ in rows if name.startswith(prefix))
            after["after_id"] = rows[-1][1]

    # Inboxes

    def post(self, stream: str, name: str, data: bytes) -> bool:
        given = {"stream": stream, "name": name, "data": data}
        return self._write(lambda conn: conn.execute(_SQL["post"], given).rowcount) == 1

    def inbox(self, streams: Collection[str]) -> Sequence[Post]:
        found: list[tuple[int, Post]] = []
        for (stream,) in self._all("addressees"):
            if stream in streams:
                rows = self._all("inbox", stream=stream)
                found += [(id, Post(stream, name, data)) for id, name, data in rows]
        return [post for _, post in sorted(found, key=lambda pair: pair[0])]

    def unpost(self, stream: str, name: str) -> None:
        given = {"stream": stream, "name": name}
        self._write(lambda conn: conn.execute(_SQL["unpost"], given).rowcount)

    def delete(self, lease: Lease) -> None:
        held = self._leases.of(lease)
        held.must_be_sound()
        given = {"id": held.id, "epoch": lease.epoch, "stream": lease.stream}
        lines = {"after": held.id << 32, "upto": (held.id + 1) << 32}

        def delete(conn: sqlite3.Connection) -> None:
            if not conn.execute(_SQL["delete_stream"], given).rowcount:
                raise taken_over(lease)
            conn.execute(_SQL["delete_lines"], lines)
            conn.execute(_SQL["delete_posts"], given)

        self._write(delete)
        self._leases.drop(lease)

    # Blobs

    def put_blob(self, data: bytes) -> str:
        if len(data) > _LARGEST_BYTES:
            raise TooLarge(f"{len(data):,} bytes are more than SQLite keeps in one piece")
        digest = sha256(data).hexdigest()
        given = {"digest": digest, "data": data}
        # One that can be read is durable: what is not committed can't be read.
        if not self._all("has_blob", digest=digest):
            self._write(lambda conn: conn.execute(_SQL["put_blob"], given).rowcount)
        return digest

    def get_blob(self, digest: str) -> bytes:
        rows = self._all("get_blob", digest=digest)
        if not rows:
            raise LogDamaged(f"blobs/{digest:.80}", 0, "the blob is gone")
        data = bytes(rows[0][0])
        if sha256(data).hexdigest() != digest:
            raise LogDamaged(f"blobs/{digest}", 0, "the blob's bytes do not fit its name")
        return data

    def close(self) -> None:
        if self._closed:
            return
        for lease in self._leases.all():
            with suppress(StoreError):
                self.release(lease)
        self._groups.close()
        self._closed = True
        self._drop_writer()
        while self._readers:
            self._readers.pop().close()


def _do(conn: sqlite3.Connection, job: Append | Write[Any]) -> None:
    if isinstance(job, Append):
        _append(conn, job)
    else:
        job.error = None  # of a try that was interrupted
        job.result = job.write(conn)


def _append(conn: sqlite3.Connection, job: Append) -> None:
    held = job.held
    held.must_be_sound()
    move, given = "move_head", {"id": held.id, "epoch": held.lease.epoch, "seq": job.seq}
    given["count"] = len(job.lines)
    if job.facts is not None:
        move, given = "move_head_and_tell", given | _columns(job.facts)
    if not conn.execute(_SQL[move], given).rowcount:
        epoch, head = conn.execute(_SQL["now_at"], given).fetchone() or (None, 0)
        raise job.refusal(epoch, head)
    conn.executemany(_SQL["add_line"], enumerate(job.lines, (held.id << 32) + job.seq + 1))


def _mark_done(jobs: Sequence[Job]) -> None:
    for job in jobs:
        job.done = True


def _is_at_work(holder: Sequence[Any], now: float) -> bool:
    owner, process, _, expires_at = holder
    return owner is not None and expires_at > now and alive.may_be_alive(process)


def _bounds(prefix: str) -> dict[str, Any]:
    return {"prefix": prefix, "beyond": beyond(prefix), "page": _PAGE}


def _columns(facts: Facts) -> dict[str, Any]:
    """Facts as SQLite takes them: times as numbers, labels as text."""
    found = columns_of(facts)
    for name in ("created_at", "updated_at", "wake_at"):
        found[name] = None if found[name] is None else _micros(found[name])
    if found["labels"] is not None:
        found["labels"] = msgspec.json.encode(found["labels"]).decode()
    return found


def _facts(columns: Sequence[Any]) -> Facts | None:
    *first, labels, parent, created_at, updated_at, wake_at = columns
    if first[0] is None:
        return None
    times = (_time(created_at), _time(updated_at), None if wake_at is None else _time(wake_at))
    return facts_in([*first, msgspec.json.decode(labels or "{}"), parent, *times])


def _micros(time: datetime) -> int:
    return (time - NEVER) // _MICROSECOND


def _time(micros: int) -> datetime:
    return NEVER + micros * _MICROSECOND
