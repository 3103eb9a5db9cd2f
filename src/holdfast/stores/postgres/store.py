"""The PostgreSQL store: `postgresql://user@host/database`, for tasks that many machines drive.

The design of the database is told at the top of `sql/postgres/schema.sql`. Everything is in its
schema `holdfast`, which is made on first use.

**Appends go in groups** (see `groups`): one statement, over a connection of its own, holds what
all tasks of the process have to write. Everything else is a statement over a pool. **A process
shows that it is alive** over one more connection (see `presence`), which needs a session of its
own. All others may lead to a proxy that gives each transaction another session (see
`DatabaseAddress`).

**Failure.** When a connection is lost in the middle of an append, nobody knows whether it was
written, so every lease that had lines in it is spoiled. The holder of a new one reads what is
there.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Any

import msgspec
import psycopg
from psycopg import errors

from holdfast.core.words import without_password
from holdfast.errors import Conflict, StorageFailed, StoreError
from holdfast.stores.database import PAGE, DatabaseStore
from holdfast.stores.files.blobs import say_mended
from holdfast.stores.groups import Groups, start_anew_in_children
from holdfast.stores.held import Held, HeldLines, Leases, busy, each, taken_over
from holdfast.stores.port import BLOB_AGE_S, Blob, Facts, Lease, Post, Query
from holdfast.stores.postgres.database import (
    SQL,
    Connections,
    OwnConnection,
    address_of,
    connect,
    failed,
    prepare,
)
from holdfast.stores.postgres.presence import Connection, Presence
from holdfast.stores.postgres.rows import (
    by_stream,
    find_statement,
    statement_of,
    told_as,
)
from holdfast.stores.queries import facts_in, unpacked

_LINES, _MOST_LINES = 200, 4000
"""How many lines of a log are asked for at first, and at most: long ones fill the memory."""
_PAGE_BYTES = 1 << 20
_NO_END = 1 << 62
_TRIES = 5
_KEPT_S = 20.0
"""How long a lease that could not be released is kept for those who had it."""
_HEARD_S = 0.2
"""How long a notification takes, and more."""


class PostgresStore(DatabaseStore):
    """Streams as rows of a PostgreSQL database."""

    def __init__(self, url: str, *, sync: bool = True) -> None:
        self._address = address_of(url)
        self.url: str = without_password(self._address.url)
        self._durable = sync
        self._closed = False
        self._parents: list[Any] = []
        prepare(url, sync)
        self._start()
        start_anew_in_children(self)

    def _start(self) -> None:
        self._leases = Leases()
        self._unreleased: dict[str, tuple[int, int, float]] = {}
        """Leases that were given back while the database was away: id, epoch, and since when.
        Their task is mostly taken up here again, so they are kept for a moment."""
        self._groups: Groups[HeldLines] = Groups(self._commit)
        self._pool = Connections(self._address, self._durable)
        self._own = OwnConnection(self._address, self._durable)
        self._pinging = OwnConnection(self._address, self._durable)
        self._presence = Presence(partial(connect, self._address.session_url, self._durable), SQL)

    def start_anew(self) -> None:
        """Forget every connection, lock and lease: after a fork they are the parent's."""
        # Kept, because to close them would be to touch them.
        self._parents.append((self._pool, self._own, self._pinging, self._presence, self._groups))
        self._start()

    # Leases

    def acquire(
        self, streams: Sequence[str], owner: str, lease_s: float
    ) -> Sequence[Lease | StoreError]:
        taken = self._take(list(set(streams)), owner, lease_s)

        def lease_of(stream: str) -> Lease:
            while stream not in taken:  # somebody has it, or it was asked for twice
                for holder, its_lease_s, silent_s in self._ask("holder", stream=stream):
                    raise busy(stream, holder, silent_s, its_lease_s)
                taken.update(self._take([stream], owner, lease_s))  # it was given back in between
            return taken.pop(stream)

        return each(lease_of, streams)

    def _take(self, streams: list[str], owner: str, lease_s: float) -> dict[str, Lease]:
        """Take those leases that can be had."""
        self._release_late(streams)
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

    def release(self, leases: Sequence[Lease]) -> None:
        dropped = [held for lease in leases if (held := self._leases.drop(lease)) is not None]
        if dropped:
            self._groups.settle()
            ids, epochs = [held.id for held in dropped], [held.lease.epoch for held in dropped]
            try:
                self._ask("release", ids=ids, epochs=epochs)
            except StoreError:  # then it is done as soon as the database is back
                at = time.monotonic()
                for held in dropped:
                    self._unreleased[held.lease.stream] = (held.id, held.lease.epoch, at)

    def _release_late(self, streams: Collection[str]) -> None:
        """Release what could not be released when it should have been."""
        late = {name: self._unreleased[name] for name in streams if name in self._unreleased}
        if late:
            ids, epochs = [held[0] for held in late.values()], [held[1] for held in late.values()]
            self._ask("release", ids=ids, epochs=epochs)
            for name in late:
                self._unreleased.pop(name, None)

    def _number(self) -> int:
        self._must_be_open()
        try:
            return self._presence.number
        except psycopg.Error as error:
            raise failed(f"can't reach {self.url}", error) from error

    def _who_asks(self) -> int:
        return self._number()

    def ping(self) -> None:
        """Return if the server answers, and takes writes, else raise why not. One caller at a time.

        Over a connection of its own: one of the pool would be waited for, and the pool takes its
        time to find out that the server is back.
        """
        self._must_be_open()
        try:
            with self._pinging.use() as conn:
                ((is_standby, is_read_only),) = conn.execute(
                    "select pg_is_in_recovery(), current_setting('transaction_read_only')::bool"
                ).fetchall()
        except psycopg.Error as error:
            raise failed(f"can't reach {self.url}", error) from error
        if is_standby:
            raise StorageFailed(
                f"{self.url} takes no writes: the server is a standby. Connect to the primary"
            )
        if is_read_only:
            raise StorageFailed(f"{self.url} takes no writes: its transactions are read-only")

    def wait_for_news(self, timeout_s: float, *, lines: bool = False) -> bool:
        """Wait until facts have changed or a message was left somewhere, by whomever.

        With `lines`, also until anything was appended: the writer is asked to tell of that,
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

    def _commit(self, jobs: Sequence[HeldLines]) -> None:
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

    def _append(self, appends: list[tuple[Held, list[HeldLines]]]) -> set[int]:
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

    def _refuse(self, jobs: list[HeldLines]) -> None:
        with self._connection() as conn:
            row = conn.execute(SQL["now_at"], {"id": jobs[0].held.id}).fetchone()
        epoch, head = row or (None, 0)
        for job in jobs:
            job.fail(job.refusal(epoch, head))

    # Asking

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        self._must_be_open()
        with self._pool.use() as conn:
            yield conn

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

    def _do(self, query: str, /, **given: Any) -> int:
        return len(self._look(query, **given))

    # Reading

    def _read_on(self, stream: str, after_seq: int) -> Iterator[bytes]:
        seq, known = after_seq, self._look("stream", stream=stream)
        for id, head in known:
            page = _LINES
            while rows := self._ask("read_on", id=id, after=seq, page=page):
                yield from (unpacked(bytes(line)) for _, _, line in rows)
                seq, page = rows[-1][1], _next_page(rows)
            self._must_be_all(stream, id, head, seq)

    def _read_back(self, stream: str, after_seq: int) -> Iterator[bytes]:
        for id, head in self._look("stream", stream=stream):
            before, page = _NO_END, _LINES
            while rows := self._ask("tail_on", id=id, after=after_seq, before=before, page=page):
                if before == _NO_END:
                    self._must_be_all(stream, id, head, rows[0][1])
                yield from (unpacked(bytes(line)) for _, _, line in rows)
                before, page = rows[-1][1], _next_page(rows)
            if before == _NO_END:
                self._must_be_all(stream, id, head, after_seq)

    # Facts

    def remember(self, stream: str, facts: Facts, seq: int) -> None:
        told = msgspec.json.encode(told_as(facts)).decode()
        self._look("remember", stream=stream, facts=told, seq=seq)

    def _find(self, query: Query) -> Sequence[tuple[str, Facts | None]]:
        if self._unreleased:
            old = time.monotonic() - _KEPT_S
            self._release_late([name for name, (*_, at) in self._unreleased.items() if at < old])
        statement = find_statement(query)
        # Never prepared: the plan is made for the values, of which one may have ten thousand rows
        # and another three.
        rows = self._fetched(*statement, prepare=False) if statement is not None else []
        return [(name, facts_in(columns)) for name, *columns in rows]

    def _facts(self, columns: Sequence[Any]) -> Facts | None:
        return facts_in(columns)

    def _kept(self, time: datetime | None) -> datetime | None:
        return time

    def _listed(self, numbers: list[int]) -> list[int]:
        return numbers

    # Inboxes

    def _post(self, stream: str, name: str, data: bytes) -> bool:
        return bool(self._ask("post", stream=stream, name=name, data=data))

    def _messages(self, streams: Collection[str]) -> Sequence[Post]:
        return [Post(*row) for row in self._ask("inbox", streams=list(streams))]

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
        self._sync(lease)
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
        # A line that can be read is durable: uncommitted lines can't be read.
        if not (
            self._ask("young_blob", **given, young_s=BLOB_AGE_S)
            or self._ask("make_blob_young", **given)
        ):
            ((was_wrong,),) = self._ask("put_blob", **given, data=data)
            if was_wrong and not name:  # under a given name others may have put other bytes
                say_mended(digest)
        return digest

    def _blob(self, name: str) -> bytes | None:
        rows = self._ask("get_blob", digest=bytes.fromhex(name))
        return bytes(rows[0][0]) if rows else None

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
        self.release(self._leases.all())
        self._groups.close()
        self._closed = True
        self._presence.close()
        self._own.close()
        self._pinging.close()
        self._pool.close()


def _next_page(rows: Sequence[Any]) -> int:
    """How many lines to ask for after these: more than before while they are short."""
    size = sum(len(line) for _, _, line in rows)
    return min(4 * len(rows), _MOST_LINES) if size < _PAGE_BYTES and len(rows) > 1 else _LINES
