"""Who is alive: one file for each store object that holds tasks, however many it holds.

    workspace/holders/<host>-<process>-<random>

The file is locked for as long as its process lives; the system frees it when the process dies. It
has a record for each task that is held, 64 characters in a line:

    ticket       renewed           stream           revoked      mail
    000000000017 1763263536.123456 5f2b0c9d1e7a4483 000000000000 -

A **ticket** is one tenure of one task, and is never given twice; zeros say that nobody has the
record now. The task's `lock` file names file, record and ticket (see `locks`). The holder writes
the first three columns, everybody else only the last two: who takes a task over from a holder that
hangs writes its ticket into *revoked*, and who leaves a message for it marks *mail*. The first
line is about the holder itself; its mark says that there is one further down.

So to hold ten thousand tasks takes one open file, to renew a lease one small write without a look
at any name, and to see whether one still has it one small read.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256

from msgspec import Struct

from holdfast.stores.disk import Disk

HOLDERS = "holders"

RECORD_BYTES = 64
_RENEWED, _STREAM, _REVOKED, _MAIL = 13, 31, 48, 61
_NOBODY = b"%012d" % 0

_KEPT_S = 30 * 24 * 3600.0
"""How long the file of a process that died is kept while its tasks are not taken up again."""


class Claim(Struct, frozen=True):
    """A ticket, and where it is written down."""

    file: str
    record: int
    ticket: int


class Seen(Struct, frozen=True):
    """What can be told of a claim."""

    is_held: bool
    """Whether its ticket stands in its record."""
    is_alive: bool
    """Whether the process is there that made it."""
    renewed_at: float


class Holder:
    """This store object, as a holder of tasks. Its file is made when the first one is claimed."""

    def __init__(self, disk: Disk, root: Callable[[], int]) -> None:
        self._disk = disk
        self._root = root
        self._fds: list[int] = []
        """The newest is ours. The others were removed by somebody, and what we held with them; a
        thread that is about to look into one has to find it as it was."""
        self.start_anew()

    def start_anew(self) -> None:
        """In a process that was forked: let the parent's file be."""
        # Closing is not unlocking: it stays locked as long as the parent has it open.
        for fd in self._fds:
            self._disk.close(fd)
        self._fds = []
        self._file: tuple[str, int] = ("", -1)
        self._lock = threading.Lock()
        self._spare: list[int] = []
        self._records = self._tickets = 0

    def claim(self, stream: str) -> Claim:
        """Write down that this store holds a stream, from now on."""
        with self._lock:
            name, fd = self._file
            if fd < 0 or not self._disk.has_name(fd):
                name, fd = self._make_file()
            self._tickets += 1
            if self._spare:
                record = self._spare.pop()
            else:
                self._records += 1
                record = self._records
            line = b"%012d %017.6f %s %s -" % (self._tickets, time.time(), _key(stream), _NOBODY)
            line = line.ljust(RECORD_BYTES - 1) + b"\n"
            self._disk.overwrite(fd, line, record * RECORD_BYTES)
            return Claim(name, record, self._tickets)

    def renew(self, claim: Claim) -> None:
        """Say that the holder is alive."""
        self._write(claim, _RENEWED, b"%017.6f" % time.time())

    def has(self, claim: Claim) -> bool:
        """Whether a claim of ours still stands: nobody took the stream over."""
        name, fd = self._file
        if name != claim.file:
            return False
        offset = claim.record * RECORD_BYTES + _REVOKED
        revoked = self._disk.read_piece(fd, offset, len(_NOBODY))
        return revoked != b"%012d" % claim.ticket and self._disk.has_name(fd)

    def drop(self, claim: Claim) -> None:
        """Hold a stream no more."""
        with self._lock, suppress(OSError):  # then it looks held, until its lease runs out
            if self._write(claim, 0, _NOBODY):
                self._spare.append(claim.record)

    def mail(self) -> list[int]:
        """The records for which a message was left since we last asked."""
        _, fd = self._file
        if fd < 0 or self._disk.read_piece(fd, _MAIL, 1) != b"+":
            return []
        # The first line before the others: who marks a record afterwards marks it anew.
        self._disk.overwrite(fd, b"-", _MAIL)
        marks = self._disk.read_all(fd)[_MAIL::RECORD_BYTES]
        found = [record for record, mark in enumerate(marks) if record and mark == ord("+")]
        for record in found:
            self._disk.overwrite(fd, b"-", record * RECORD_BYTES + _MAIL)
        return found

    def close(self) -> None:
        """Be gone, holding nothing any more."""
        with self._lock:
            (name, fd), self._file = self._file, ("", -1)
            if fd >= 0:
                with suppress(OSError), _folder(self._disk, self._root()) as folder:
                    self._disk.unlink(name, folder)
            fds, self._fds = self._fds, []
            for fd in fds:
                self._disk.close(fd)

    def _write(self, claim: Claim, column: int, data: bytes) -> bool:
        name, fd = self._file
        if name != claim.file:
            return False
        self._disk.overwrite(fd, data, claim.record * RECORD_BYTES + column)
        return True

    def _make_file(self) -> tuple[str, int]:
        disk = self._disk
        folder = disk.make_folder(HOLDERS, self._root())
        try:
            _sweep(disk, folder)
            host = re.sub(r"[^A-Za-z0-9]+", "-", os.uname().nodename)[:40]
            while True:
                name = f"{host}-{os.getpid()}-{os.urandom(6).hex()}"
                fd = disk.open(name, folder, os.O_RDWR | os.O_CREAT | os.O_EXCL)
                if disk.try_lock(fd) and disk.has_name(fd):
                    break
                disk.close(fd)  # somebody took it for a leftover, and removes it
        finally:
            disk.close(folder)
        about = b"tasks held by process %d, a line each" % os.getpid()
        disk.overwrite(fd, about.ljust(_MAIL) + b"- \n", 0)
        self._fds.append(fd)
        self._file = (name, fd)
        self._spare, self._records = [], 0
        return self._file


# What is done to the files of others


def look(disk: Disk, root: int, claim: Claim) -> Seen | None:
    """What can be told of a claim, without disturbing anybody; None if its file is gone."""
    try:
        with _opened(disk, root, claim.file, os.O_RDONLY) as fd:
            is_alive = not disk.try_lock(fd, shared=True)  # which keeps no other from looking
            record = disk.read_piece(fd, claim.record * RECORD_BYTES, RECORD_BYTES)
    except FileNotFoundError:
        return None
    is_held = record[: len(_NOBODY)] == b"%012d" % claim.ticket
    return Seen(is_held, is_alive, _time_in(record[_RENEWED : _STREAM - 1]))


def settle(disk: Disk, root: int, claim: Claim) -> None:
    """Write down that a holder which died holds a stream no more."""
    with suppress(OSError), _opened(disk, root, claim.file) as fd:
        disk.overwrite(fd, _NOBODY, claim.record * RECORD_BYTES)


def ring(disk: Disk, root: int, claim: Claim) -> None:
    """Tell a holder that there is a message for what it holds by a claim."""
    with suppress(OSError), _opened(disk, root, claim.file) as fd:
        disk.overwrite(fd, b"+", claim.record * RECORD_BYTES + _MAIL)
        disk.overwrite(fd, b"+", _MAIL)


def revoke(disk: Disk, root: int, claim: Claim) -> bool:
    """End a claim: its holder is acknowledged nothing more. False if others are at it just now."""
    # One at a time: a record is used again, and a slow hand must not wipe out what was written
    # after it had looked.
    with suppress(FileNotFoundError), _folder(disk, root) as folder:
        if not disk.try_lock(folder):
            return False
        seen = look(disk, root, claim)
        if seen is not None and seen.is_held:
            with _opened(disk, root, claim.file) as fd:
                _revoke(disk, fd, claim.record, claim.ticket)
    return True


def revoke_all(disk: Disk, root: int, stream: str) -> bool:
    """End whatever claim there is to a stream. False if others are at it just now."""
    with suppress(FileNotFoundError), _folder(disk, root) as folder:
        if not disk.try_lock(folder):
            return False
        for name in disk.names(folder):
            with suppress(FileNotFoundError), _opened(disk, root, name) as fd:
                for record, line in enumerate(_records(disk, fd)):
                    if line[_STREAM : _REVOKED - 1] == _key(stream) and _is_held(line):
                        _revoke(disk, fd, record, int(line[: len(_NOBODY)]))
    return True


def _revoke(disk: Disk, fd: int, record: int, ticket: int) -> None:
    disk.overwrite(fd, b"%012d" % ticket, record * RECORD_BYTES + _REVOKED)


def _sweep(disk: Disk, folder: int) -> None:
    """Remove what processes left that died, once nobody needs it any more."""
    for name in disk.names(folder):
        with suppress(OSError):
            fd = disk.open(name, folder, os.O_RDWR | os.O_NONBLOCK)
            try:
                if disk.try_lock(fd) and (
                    not any(map(_is_held, _records(disk, fd)))
                    or time.time() - disk.touched_at(fd) > _KEPT_S
                ):
                    disk.unlink(name, folder)
            finally:
                disk.close(fd)


def _records(disk: Disk, fd: int) -> list[bytes]:
    data = disk.read_all(fd)
    return [data[at : at + RECORD_BYTES] for at in range(0, len(data), RECORD_BYTES)]


def _is_held(record: bytes) -> bool:
    return record[:1].isdigit() and record[: len(_NOBODY)] != _NOBODY


def _key(stream: str) -> bytes:
    return sha256(stream.encode()).hexdigest()[: _REVOKED - _STREAM - 1].encode()


def _time_in(data: bytes) -> float:
    try:
        return float(data)
    except ValueError:
        return 0.0


@contextmanager
def _folder(disk: Disk, root: int) -> Iterator[int]:
    folder = disk.folder(HOLDERS, root)
    try:
        yield folder
    finally:
        disk.close(folder)


@contextmanager
def _opened(disk: Disk, root: int, name: str, flags: int = os.O_RDWR) -> Iterator[int]:
    if "/" in name:
        raise FileNotFoundError(name)  # as a lock file says that somebody made up
    with _folder(disk, root) as folder:
        fd = disk.open(name, folder, flags | os.O_NONBLOCK)
    try:
        yield fd
    finally:
        disk.close(fd)
