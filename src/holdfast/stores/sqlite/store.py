"""The SQLite store: `sqlite:///trips.db`, for many tasks on one machine.

The design of the database is told at the top of `sql/sqlite/schema.sql`. It is in WAL mode, where
readers and the writer do not wait for each other, and with `synchronous=FULL`, without which a
power cut takes acknowledged commits along. A process has one connection to write (see
`sqlite_writer`); its readers have connections of their own, and read in pieces.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from holdfast.errors import Conflict, StoreError, TooLarge
from holdfast.stores.database import PAGE, DatabaseStore
from holdfast.stores.files import holders as alive
from holdfast.stores.files.blobs import say_mended
from holdfast.stores.groups import start_anew_in_children
from holdfast.stores.held import Leases, busy, each, taken_over
from holdfast.stores.port import BLOB_AGE_S, Blob, Facts, Holder, Lease, Post, Query, held_for
from holdfast.stores.sqlite.database import connect, failed, patiently, prepare, size_of
from holdfast.stores.sqlite.rows import columns_of, facts_in, find_statement, micros_of
from holdfast.stores.sqlite.writer import SQL, Writer, tell

_LARGEST_BYTES = 1_000_000_000
_PAGE_BYTES = 1 << 20
_IDLE_READERS = 8
"""How many connections are kept for the next who reads. Each has a cache of up to 2 MB."""

T = TypeVar("T")


class SqliteStore(DatabaseStore):
    """Streams as rows of one SQLite database."""

    def __init__(self, path: Path, *, sync: bool = True) -> None:
        self.path: Path = path.absolute()  # the process may go elsewhere
        self.url: str = f"sqlite:///{path}"
        self._durable = sync
        self._closed = False
        self._parents: list[Any] = []
        prepare(self.path, sync)
        self._start()
        start_anew_in_children(self)

    def _start(self) -> None:
        self._leases = Leases()
        self._groups: Writer = Writer(self.path, self._durable)
        self._readers: list[sqlite3.Connection] = []
        self._process = alive.this_process()

    def start_anew(self) -> None:
        """Forget every connection, lock and lease: after a fork they are the parent's."""
        # Kept, because to close them would be to touch them.
        self._parents.append((self._groups, self._readers))
        self._start()

    # Leases

    def acquire(
        self, streams: Sequence[str], owner: str, lease_s: float
    ) -> Sequence[Lease | StoreError]:
        def take(conn: sqlite3.Connection) -> list[tuple[int, int, int] | StoreError]:
            return each(partial(self._take, conn, owner=owner, lease_s=lease_s), streams)

        outcomes: list[Lease | StoreError] = []
        for stream, taken in zip(streams, self._write(take), strict=True):
            if isinstance(taken, StoreError):
                outcomes.append(taken)
            else:
                id, epoch, head = taken
                outcomes.append(self._leases.add(Lease(stream, owner, epoch, head), id, head))
        return outcomes

    def _take(
        self, conn: sqlite3.Connection, stream: str, owner: str, lease_s: float
    ) -> tuple[int, int, int]:
        now = time.time()
        given = {"stream": stream, "owner": owner, "lease_s": lease_s, "now": now}
        given["process"] = self._process
        row = conn.execute(SQL["holder"], given).fetchone()
        if row is None:
            return int(conn.execute(SQL["make"], given).lastrowid or 0), 1, 0
        id, epoch, head, *holder = row
        if _is_at_work(holder, now):
            its_owner, _, its_lease_s, expires_at = holder
            raise busy(stream, its_owner, now + its_lease_s - expires_at, its_lease_s)
        conn.execute(SQL["take"], {**given, "id": id})
        return id, epoch + 1, head

    def holder(self, stream: str) -> Holder | None:
        for row in self._look("holder", stream=stream):
            if _is_at_work(row[3:], now := time.time()):
                return held_for(row[3], row[6] - now)
        return None

    def renew(self, lease: Lease) -> None:
        held = self._leases.of(lease)
        held.must_be_sound()
        given = {"id": held.id, "epoch": lease.epoch, "now": time.time()}
        if not self._write(lambda conn: conn.execute(SQL["renew"], given).rowcount):
            held.spoil(taken_over(lease))
            held.must_be_sound()

    def release(self, leases: Sequence[Lease]) -> None:
        dropped = [held for lease in leases if (held := self._leases.drop(lease)) is not None]
        given = [{"id": held.id, "epoch": held.lease.epoch} for held in dropped]
        if given:
            # Earlier appends are in line before this, so they are written as well. If they
            # can't be, that is for `sync` to say, and the leases run out by themselves.
            with suppress(StoreError):
                self._write(lambda conn: conn.executemany(SQL["release"], given).rowcount)

    # Asking

    def _write(self, write: Callable[[sqlite3.Connection], T]) -> T:
        """Have something written now, and durably. It may refuse before it changes anything."""
        self._must_be_open()
        return self._groups.write(write)

    def _do(self, query: str, /, **given: Any) -> int:
        return self._write(lambda conn: conn.execute(SQL[query], given).rowcount)

    # Reading

    def _read_on(self, stream: str, after_seq: int) -> Iterator[bytes]:
        for id, head in self._look("stream", stream=stream):
            after, upto = (id << 32) + after_seq, (id << 32) + head
            while found := self._piece("read", after=after, upto=upto):
                yield from (line for _, line in found)
                after = found[-1][0]
            self._must_be_all(stream, id, head, after - (id << 32))

    def _read_back(self, stream: str, after_seq: int) -> Iterator[bytes]:
        for id, head in self._look("stream", stream=stream):
            upto, first = (id << 32) + head, (id << 32) + after_seq + 1
            before = upto + 1
            while found := self._piece("tail", before=before, first=first):
                if before > upto and found[0][0] != upto:
                    self._must_be_all(stream, id, head, found[0][0] - (id << 32))
                yield from (line for _, line in found)
                before = found[-1][0]
            if before > upto:
                self._must_be_all(stream, id, head, after_seq)

    def _piece(self, name: str, **bounds: int) -> list[tuple[int, bytes]]:
        """Some lines of a log: not too many of them, nor too much."""
        with self._reader() as conn:
            cursor = patiently(lambda: conn.execute(SQL[name], bounds))
            found: list[tuple[int, bytes]] = []
            size = 0
            for row in cursor:
                found.append(row)
                size += len(row[1])
                if size > _PAGE_BYTES or len(found) == PAGE:
                    break
            cursor.close()
            return found

    def _look(self, name: str, /, **given: Any) -> list[Any]:
        """All rows of a query, and of what this process wrote itself."""
        self._groups.settle()
        with self._reader() as conn:
            return patiently(lambda: conn.execute(SQL[name], given).fetchall())

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
        if len(self._readers) < _IDLE_READERS:
            self._readers.append(conn)
        else:
            conn.close()
        if self._closed:  # meanwhile: who closed it may not have seen this one
            self._close_readers()

    def _close_readers(self) -> None:
        with suppress(IndexError):
            while True:
                self._readers.pop().close()

    # Facts

    def remember(self, stream: str, facts: Facts, seq: int) -> None:
        given = {"seq": seq, **columns_of(facts)}

        def remember(conn: sqlite3.Connection) -> None:
            for id, _ in conn.execute(SQL["stream"], {"stream": stream}).fetchall():
                tell(conn, "remember", {"id": id, **given})

        self._write(remember)

    def _find(self, query: Query) -> Sequence[tuple[str, Facts | None]]:
        with self._reader() as conn:

            def count(statement: str, given: dict[str, Any]) -> int:
                return int(conn.execute(statement, given).fetchone()[0])

            statement, given = patiently(lambda: find_statement(query, count))
            rows = patiently(lambda: conn.execute(statement, given).fetchall())
        return [(name, facts_in(columns)) for name, *columns, _ in rows]

    def _facts(self, columns: Sequence[Any]) -> Facts | None:
        return facts_in(columns)

    def _kept(self, time: datetime | None) -> int:
        return -(1 << 62) if time is None else micros_of(time)

    def _listed(self, numbers: list[int]) -> str:
        return msgspec.json.encode(numbers).decode()

    # Inboxes

    def _post(self, stream: str, name: str, data: bytes) -> bool:
        given = {"stream": stream, "name": name, "data": data}
        return self._write(lambda conn: conn.execute(SQL["post"], given).rowcount) == 1

    def _messages(self, streams: Collection[str]) -> Sequence[Post]:
        found: list[tuple[int, Post]] = []
        for (stream,) in self._look("addressees"):
            if stream in streams:
                rows = self._look("inbox", stream=stream)
                found += [(id, Post(stream, name, data)) for id, name, data in rows]
        return [post for _, post in sorted(found, key=lambda pair: pair[0])]

    def delete(self, lease: Lease) -> None:
        held = self._leases.of(lease)
        held.must_be_sound()
        given = {"id": held.id, "epoch": lease.epoch, "stream": lease.stream}
        lines = {"after": held.id << 32, "upto": (held.id + 1) << 32}

        def delete(conn: sqlite3.Connection) -> None:
            if not tell(conn, "delete_stream", given):
                raise taken_over(lease)
            conn.execute(SQL["delete_lines"], lines)
            conn.execute(SQL["delete_posts"], given)
            _drop_old_index(conn, held.id)
            conn.execute(SQL["delete_waypoints"], given)

        self._write(delete)
        self._leases.drop(lease)

    def rename(self, lease: Lease, stream: str) -> None:
        held = self._leases.of(lease)
        self._sync(lease)
        given = {"id": held.id, "epoch": lease.epoch, "name": stream}

        def rename(conn: sqlite3.Connection) -> None:
            there = conn.execute(SQL["holder"], {"stream": stream}).fetchone()
            if there is not None:
                id, epoch, head, owner, _, lease_s, expires_at = there
                if head:
                    raise Conflict(f"{stream} is there already")
                if _is_at_work(there[3:], now := time.time()):
                    raise busy(stream, owner, now + lease_s - expires_at, lease_s)
                conn.execute(SQL["delete_stream"], {"id": id, "epoch": epoch})
            if not conn.execute(SQL["rename"], given).rowcount:
                raise taken_over(lease)

        self._write(rename)
        self._leases.drop(lease)

    # Blobs

    def put_blob(self, data: bytes, name: str = "") -> str:
        if len(data) > _LARGEST_BYTES:
            raise TooLarge(f"{len(data):,} bytes are more than SQLite keeps in one piece")
        digest = name or sha256(data).hexdigest()
        given = {"digest": digest, "data": data}
        # A line that can be read is durable: uncommitted lines can't be read.
        if self._look("young_blob", **given, after=time.time() - BLOB_AGE_S):
            return digest

        def put(conn: sqlite3.Connection) -> bool:
            was_wrong = bool(conn.execute(SQL["mend_blob"], given).rowcount)
            conn.execute(SQL["put_blob"], given)
            conn.execute(SQL["make_blob_young"], {"digest": digest, "now": time.time()})
            return was_wrong

        if self._write(put) and not name:  # under a given name others may have put other bytes
            say_mended(digest)
        return digest

    def _blob(self, name: str) -> bytes | None:
        rows = self._look("get_blob", digest=name)
        return bytes(rows[0][0]) if rows else None

    def blobs(self) -> Iterator[Blob]:
        after, now = "", time.time()
        while rows := self._look("blobs", after=after, page=PAGE):
            yield from (Blob(digest, size, max(now - put, 0.0)) for digest, size, put in rows)
            after = rows[-1][0]

    def delete_blob(self, digest: str, older_than_s: float) -> bool:
        def delete(conn: sqlite3.Connection) -> bool:
            given = {"digest": digest, "upto": time.time() - older_than_s}
            if not conn.execute(SQL["delete_blob_age"], given).rowcount:
                return False
            return bool(conn.execute(SQL["delete_blob"], {"digest": digest}).rowcount)

        return self._write(delete)

    def compact(self) -> int:
        """Give the space of what was deleted back to the disk; returns how much that was.

        Without it the space is used for what comes next. It takes as much again while it works,
        and keeps others from writing.
        """
        self._must_be_open()
        self._groups.settle()
        before = size_of(self.path)
        with self._reader() as conn:
            patiently(lambda: conn.execute("vacuum"))
            patiently(lambda: conn.execute("pragma wal_checkpoint(truncate)").fetchall())
        return max(before - size_of(self.path), 0)

    def close(self) -> None:
        if self._closed:
            return
        self.release(self._leases.all())
        self._closed = True
        self._groups.close()
        self._close_readers()


def _is_at_work(holder: Sequence[Any], now: float) -> bool:
    owner, process, lease_s, expires_at = holder
    if not isinstance(owner, str) or not isinstance(process, str):
        return False  # nobody holds it, or somebody spoiled the row
    if not isinstance(lease_s, int | float) or not isinstance(expires_at, int | float):
        return False
    return expires_at > now and alive.may_be_alive(process)


def _drop_old_index(conn: sqlite3.Connection, id: int) -> None:
    """Delete the words of a stream from the index that older versions made."""
    was_indexed = conn.execute(SQL["delete_index"], {"id": id}).rowcount
    if was_indexed and conn.execute(SQL["has_texts"]).fetchone():
        conn.execute(SQL["delete_texts"], {"after": id << 32, "upto": (id + 1) << 32})
