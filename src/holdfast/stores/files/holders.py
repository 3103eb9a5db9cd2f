"""Which holders are alive: one file for each store object that holds tasks, however many it holds.

    workspace/holders/<host>-<process>-<random>

The file is locked for as long as its process lives; the system frees it when the process dies. It
has a record for each task that is held, 32 characters with the newline:

    000000000017 1763263536.12345 -

First the **ticket**: one tenure of one task, and never given twice; zeros say that nobody has the
record now. Then when the lease was last renewed. The last column is written by others: who leaves
a message for the task marks it with `+`, and then the first line of the file, which is about the
holder itself and says whether to look further down. The task's `lock` file names file, record and
ticket (see `locks`).

So to hold ten thousand tasks takes one open file, to renew a lease one small write without a look
at any name, and to hear of mail for any of them one small read.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache

from msgspec import Struct

from holdfast.stores.files.disk import Disk
from holdfast.stores.system import NO_WAIT, host_name

HOLDERS = "holders"

RECORD_BYTES = 32
_RENEWED, _MAIL = 13, 30
_NOBODY = b"%012d" % 0

_KEPT_S = 30 * 24 * 3600.0
"""How long the file of a process that died is kept while its tasks are not taken up again."""


class HolderClaim(Struct, frozen=True):
    """A ticket, and where it is written down."""

    file: str
    record: int
    ticket: int


class HolderSeen(Struct, frozen=True):
    """What can be told of a claim."""

    is_held: bool
    """Whether its ticket stands in its record."""
    is_alive: bool
    """Whether the process is there that made it."""
    renewed_at: float


class HoldingStore:
    """This store object, as a holder of tasks. Its file is made when the first one is claimed."""

    def __init__(self, disk: Disk, root: Callable[[], int]) -> None:
        self._disk = disk
        self._root = root
        self._file, self._fd = "", -1
        self.start_anew()

    def start_anew(self) -> None:
        """In a process that was forked: let the parent's file be."""
        if self._fd >= 0:
            # Closing is not unlocking: it stays locked as long as the parent has it open.
            self._disk.close(self._fd)
        self._file, self._fd = "", -1
        self._lock = threading.Lock()
        self._spare: list[int] = []
        self._records = self._tickets = 0

    def claim(self) -> HolderClaim:
        """Write down that this store holds one stream more, from now on."""
        with self._lock:
            if self._fd < 0 or not self._disk.has_name(self._fd):
                self._make_file()
            self._tickets += 1
            if self._spare:
                record = self._spare.pop()
            else:
                self._records += 1
                record = self._records
            line = b"%012d %016.5f -\n" % (self._tickets, time.time())
            self._disk.overwrite(self._fd, line, record * RECORD_BYTES)
            return HolderClaim(self._file, record, self._tickets)

    def renew(self, claim: HolderClaim) -> None:
        """Say that the holder is alive."""
        with self._lock:
            self._write(claim, _RENEWED, b"%016.5f" % time.time())

    def silent_s(self, claim: HolderClaim) -> float:
        """How long others would say that the holder has been silent."""
        with self._lock:
            if claim.file != self._file:
                return math.inf
            at = claim.record * RECORD_BYTES + _RENEWED
            return time.time() - _time_in(self._disk.peek(self._fd, _MAIL - _RENEWED, at))

    def drop(self, claim: HolderClaim) -> None:
        """Hold a stream no more."""
        with self._lock, suppress(OSError):  # else it looks held until its lease runs out
            self._write(claim, 0, _NOBODY)
            if claim.file == self._file:
                self._spare.append(claim.record)

    def mail(self) -> list[int]:
        """The records for which a message was left since we last asked."""
        with self._lock:
            fd = self._fd
            if fd < 0 or self._disk.peek(fd, 1, _MAIL) != b"+":
                return []
            # The first line before the others: who marks a record afterwards marks it anew.
            self._disk.overwrite(fd, b"-", _MAIL)
            marks = self._disk.read_all(fd)[_MAIL::RECORD_BYTES]
            found = _marked(marks)
            for record in found:
                self._disk.overwrite(fd, b"-", record * RECORD_BYTES + _MAIL)
            return found

    def close(self) -> None:
        """Be gone, holding nothing any more."""
        with self._lock:
            if self._fd >= 0:
                with suppress(OSError), _folder(self._disk, self._root()) as folder:
                    self._disk.unlink(self._file, folder)
                self._disk.close(self._fd)
                self._file, self._fd = "", -1

    def _write(self, claim: HolderClaim, column: int, data: bytes) -> None:
        if claim.file == self._file:  # else somebody removed that file, and we made another
            self._disk.overwrite(self._fd, data, claim.record * RECORD_BYTES + column)

    def _make_file(self) -> None:
        disk = self._disk
        if self._fd >= 0:
            disk.close(self._fd)
            self._file, self._fd = "", -1
        with disk.opened(disk.make_folder(HOLDERS, self._root())) as folder:
            _sweep(disk, folder)
            host = re.sub(r"[^A-Za-z0-9]+", "-", host_name())[:40]
            while not self._is_made(folder, f"{host}-{os.getpid()}-{os.urandom(6).hex()}"):
                pass  # somebody took it for a leftover, and removes it
        self._spare, self._records = [], 0

    def _is_made(self, folder: int, name: str) -> bool:
        disk = self._disk
        fd = disk.open(name, folder, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            if not (disk.try_lock(fd) and disk.has_name(fd)):
                return False
            disk.overwrite(fd, (b"held by process %d" % os.getpid()).ljust(_MAIL) + b"-\n")
            self._file, self._fd = name, fd
            return True
        finally:
            if self._fd != fd:
                disk.close(fd)


# Our changes to the files of others


def look(disk: Disk, root: int, claim: HolderClaim) -> HolderSeen | None:
    """What can be told of a claim, without disturbing anybody; None if its file is gone."""
    try:
        with _opened(disk, root, claim.file, os.O_RDONLY) as fd:
            is_alive = not disk.try_lock(fd, shared=True)  # which keeps no other from looking
            record = disk.peek(fd, RECORD_BYTES, claim.record * RECORD_BYTES)
    except FileNotFoundError:
        return None
    is_held = record[: len(_NOBODY)] == b"%012d" % claim.ticket
    return HolderSeen(is_held, is_alive, _time_in(record[_RENEWED:_MAIL]))


def settle(disk: Disk, root: int, claim: HolderClaim) -> None:
    """Write down that a holder which died holds a stream no more."""
    with suppress(OSError), _opened(disk, root, claim.file, os.O_RDWR) as fd:
        disk.overwrite(fd, _NOBODY, claim.record * RECORD_BYTES)


def ring(disk: Disk, root: int, claim: HolderClaim) -> None:
    """Tell a holder that there is a message for what it holds by a claim."""
    with suppress(OSError), _opened(disk, root, claim.file, os.O_RDWR) as fd:
        disk.overwrite(fd, b"+", claim.record * RECORD_BYTES + _MAIL)
        disk.overwrite(fd, b"+", _MAIL)


def _sweep(disk: Disk, folder: int) -> None:
    """Remove what processes left that died, once nobody needs it any more."""
    for name in disk.names(folder):
        with suppress(OSError):
            fd = disk.open(name, folder, os.O_RDONLY | NO_WAIT)
            try:
                # Locked only if it can go: whoever looks meanwhile for the holder of a task that is
                # in it would take our lock for that of a holder that is alive.
                if _can_go(disk, fd) and disk.try_lock(fd) and _can_go(disk, fd):
                    disk.unlink(name, folder)
            finally:
                disk.close(fd)


def _can_go(disk: Disk, fd: int) -> bool:
    """Whether nobody needs a holder's file any more, should its process be dead."""
    is_old = time.time() - disk.touched_at(fd) > _KEPT_S
    return is_old or not _holds_any(disk.read_all(fd))


def _holds_any(data: bytes) -> bool:
    records = range(RECORD_BYTES, len(data), RECORD_BYTES)
    return any(data[at : at + len(_NOBODY)] != _NOBODY for at in records)


def _marked(marks: bytes) -> list[int]:
    return [record for record, mark in enumerate(marks) if record and mark == ord("+")]


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
def _opened(disk: Disk, root: int, name: str, flags: int) -> Iterator[int]:
    if "/" in name:
        raise FileNotFoundError(name)  # as a lock file says that somebody made up
    with _folder(disk, root) as folder:
        fd = disk.open(name, folder, flags | NO_WAIT)
    try:
        yield fd
    finally:
        disk.close(fd)


# Whether a process of this machine is alive, told by what it wrote down about itself.
#
# A number is not enough: after a restart of the machine another process has it, and so may have
# one of today. So a process is named by the boot of the machine, its namespace, its number and the
# time it was started at.


_UNTOLD = "?"


def this_process() -> str:
    """A name for this process that no other has."""
    pid = os.getpid()
    return f"{_boot()} {_namespace()} {pid} {_started(pid)}"


def may_be_alive(process: str) -> bool:
    """Whether the process of that name may be alive: False only if it certainly is not."""
    try:
        boot, namespace, pid, started = process.split(" ")
        if boot != _boot():
            return False
        if namespace != _namespace():
            return True  # in another container: its number means nothing here
        return _started(int(pid)) in (started, _UNTOLD)
    except ValueError:
        return True


def _started(pid: int) -> str:
    """When a process was started, in ticks; empty if there is none."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return _UNTOLD
    # A killed process stays listed until its parent has taken notice.
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


@cache
def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as boot:
            return boot.read().strip()
    except OSError:
        return _UNTOLD


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return _UNTOLD
