"""The one writer of the SQLite store in a process: it commits in groups (see `groups`).

Each transaction holds what all tasks of the process have to write. Between processes the
database's own lock decides, and a process that finds it taken tries again until it gets it, so
that nobody ever sees "database is locked". (A process that is stopped in the middle of a
transaction, by SIGSTOP or a debugger, keeps all others from writing until it goes on or dies. No
lease helps against that.)

Nobody knows what a failed transaction left on the disk, so every lease with lines in it is spoiled,
and the connection is made anew. After each commit, and before it says that anything is durable, the
writer looks whether the file still has its name: what goes to a file that was deleted or replaced
is lost.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Generic, TypeVar

from holdfast.core.decoding import Illegible, decode
from holdfast.errors import StoreError
from holdfast.stores.groups import GroupedWrite, Groups
from holdfast.stores.held import HeldLines
from holdfast.stores.queries import queries
from holdfast.stores.sqlite.database import connect, failed, patiently
from holdfast.stores.sqlite.rows import columns_of

SQL = queries("sqlite")

T = TypeVar("T")


class Write(GroupedWrite, Generic[T]):
    """A job that is a function of the connection. It may refuse before it changes anything."""

    __slots__ = ("result", "write")

    def __init__(self, write: Callable[[sqlite3.Connection], T]) -> None:
        super().__init__()
        self.write: Callable[[sqlite3.Connection], T] = write
        self.result: T


class Writer(Groups[HeldLines | Write[Any]]):
    """A connection, and what is to be written over it."""

    def __init__(self, path: Path, durable: bool) -> None:
        super().__init__(self._commit_all)
        self._path = path
        self._durable = durable
        self._conn: sqlite3.Connection | None = None
        self._inode = 0
        self._closed = False
        self._group: Sequence[GroupedWrite] = ()
        self._committed: list[object] = []
        """Holds something from when the group was committed until it was said to be durable."""

    def write(self, write: Callable[[sqlite3.Connection], T]) -> T:
        """Have something written now, and durably."""
        job = Write(write)
        self.do(job)
        return job.result

    def close(self) -> None:
        """Write what is left, and let the connection go."""
        super().close()
        self._closed = True
        self._drop()

    def _commit_all(self, jobs: Sequence[HeldLines | Write[Any]]) -> None:
        try:
            self._acknowledge()  # what was committed, if an interrupt came before that
            self._write_all([job for job in jobs if not job.done])
        except Exception as error:
            for job in jobs:
                if not job.done:
                    job.fail(failed(f"can't write to {self._path}", error))
                    job.done = True
            self._committed.clear()
            self._drop()
        except BaseException:
            with suppress(sqlite3.Error):  # it would hide the interrupt, and is met again
                self._roll_back()  # now, as other processes wait for it
            raise
        if self._closed:  # what was asked for before that is written, over a connection of its own
            self._drop()

    def _write_all(self, jobs: Sequence[HeldLines | Write[Any]]) -> None:
        if not jobs:
            return
        conn = self._begun()
        for are_plain, some in groupby(jobs, _is_plain):
            some_jobs = list(some)
            if not (are_plain and _append_all(conn, some_jobs)):
                for job in some_jobs:
                    _do_or_fail(conn, job)
        self._group = jobs
        # No interrupt comes between the commit and the note of it: both are one call of C.
        self._committed.extend(map(conn.execute, ("commit",)))
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Say of the group that it is durable, once it was committed."""
        if self._committed:
            self._must_have_its_name()
            for job in self._group:
                job.done = True
            self._committed.clear()

    def _begun(self) -> sqlite3.Connection:
        if self._conn is None:
            self._inode = os.stat(self._path).st_ino
            self._conn = connect(self._path, self._durable)
        conn = self._conn
        self._roll_back()  # if an interrupt kept us from it
        patiently(lambda: conn.execute("begin immediate"))
        return conn

    def _roll_back(self) -> None:
        if self._conn is not None:
            self._conn.rollback()

    def _must_have_its_name(self) -> None:
        if os.stat(self._path).st_ino != self._inode:
            raise FileNotFoundError("it was replaced while it was in use")

    def _drop(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            with suppress(sqlite3.Error):
                conn.close()


def _is_plain(job: HeldLines | Write[Any]) -> bool:
    """Whether a job adds lines, and nothing else."""
    return isinstance(job, HeldLines) and job.facts is None and job.held.trouble is None


def _append_all(conn: sqlite3.Connection, jobs: Sequence[Any]) -> bool:
    """Add the lines of many jobs in two statements, or those of none if one is to be refused."""
    if len(jobs) == 1:
        return False
    conn.execute("savepoint together")
    moved = conn.executemany(SQL["move_head"], [_guard(job) for job in jobs]).rowcount
    if moved == len(jobs):
        conn.executemany(SQL["add_line"], chain.from_iterable(_rows(job) for job in jobs))
    else:
        conn.execute("rollback to together")
    conn.execute("release together")
    return moved == len(jobs)


def _do_or_fail(conn: sqlite3.Connection, job: HeldLines | Write[Any]) -> None:
    try:
        if isinstance(job, HeldLines):
            _append(conn, job)
        else:
            job.error = None  # of a try that was interrupted
            job.result = job.write(conn)
    except StoreError as error:
        job.fail(error)


def _append(conn: sqlite3.Connection, job: HeldLines) -> None:
    held = job.held
    held.must_be_sound()
    given = _guard(job)
    if job.facts is None:
        moved = conn.execute(SQL["move_head"], given).rowcount
    else:
        moved = tell(conn, "move_head_and_tell", given | columns_of(job.facts))
    if not moved:
        epoch, head = conn.execute(SQL["now_at"], given).fetchone() or (None, 0)
        raise job.refusal(epoch, head)
    conn.executemany(SQL["add_line"], _rows(job))


def _guard(job: HeldLines) -> dict[str, Any]:
    held = job.held
    return {"id": held.id, "epoch": held.lease.epoch, "seq": job.seq, "count": len(job.lines)}


def _rows(job: HeldLines) -> Iterator[tuple[int, bytes]]:
    return enumerate(job.lines, (job.held.id << 32) + job.seq + 1)


def tell(conn: sqlite3.Connection, query: str, given: dict[str, Any]) -> int:
    """Change the facts in the row of a stream, and its labels with them; 0 if it was refused."""
    before = conn.execute(SQL["labels_of"], given).fetchone()
    changed = conn.execute(SQL[query], given).rowcount
    after = (given.get("labels"), given.get("created_at"))
    if changed and before != after:  # rare: they come with the first event
        for change, (labels, created_at) in (("drop_label", before), ("add_label", after)):
            pairs = _labels_in(labels).items()
            rows = [(name, value, created_at, given["id"]) for name, value in pairs]
            conn.executemany(SQL[change], rows)
    return changed


def _labels_in(column: str | None) -> dict[str, str]:
    try:
        return decode(column or "{}", dict[str, str])
    except Illegible:  # it is a copy of what the log says
        return {}
