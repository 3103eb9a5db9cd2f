"""The lock file of a stream says who may write: how it is taken, given back, and taken over.

A file called `lock` beside the log says who holds the stream: by which claim in which file of a
holder (see `holders`), which the system unlocks when its process dies. A process that hangs keeps
it, so one that was silent for longer than its lease is replaced. Its log is **closed to it**: the
file's own permission to be written is taken away, which its writer looks at before it says that
anything is durable. Then the log is copied to a fresh inode, so that whatever the old holder still
writes goes to a file that nobody reads. That needs no word from the old holder, nor that anybody
knows who it was. A log that is found closed was not yet copied by a process that died doing so.

All of this happens under a lock on the stream's folder: two that want to take over do so one
after the other, and the second finds a holder that is alive. The log is made (empty) together with
the lock, so there is never a holder that could make one later.

A lock file is written in place by the holder it names, who may be slow, and by whoever finds that
nobody holds it. A process that takes over from a holder that may be alive puts a new file in its
place.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.decoding import Illegible, decoder
from holdfast.errors import LogDamaged, TaskBusy
from holdfast.stores.files import holders
from holdfast.stores.files.disk import Disk, Status
from holdfast.stores.files.holders import HolderClaim, HoldingStore
from holdfast.stores.port import Facts, Lease
from holdfast.stores.system import NO_WAIT

LOG, LOCK = "events.jsonl", "lock"

_APPENDING = os.O_RDWR | os.O_APPEND


class Lock(Struct, frozen=True, omit_defaults=True):
    """The content of a `lock` file, for those who find it."""

    owner: str = ""
    lease_s: float = 30.0
    claim: HolderClaim | None = None
    """By which the owner holds the stream; None if nobody does."""
    turn: int = 0
    """Counts the holders."""
    started: bool = False
    """Whether events were ever recorded: if so, a log that is empty or gone is a loss."""
    size: int | None = None
    """How long the log was when it was taken hold of. The facts in the index about a longer one are
    from its holder, who writes down every change."""
    epoch: int = 0
    """What `turn` was called when the lease was an `flock` on this file itself. A process of that
    time finds none here, and moves the log away from under its holder rather than share it."""
    moving: bool = False
    """Of that time: the log is still on the inode of the holder before."""

    @property
    def is_old(self) -> bool:
        """Whether it is of that time."""
        return self.epoch > 0


class TakenStream(Struct):
    """A stream taken hold of: its folder and its log, opened, and what its lock file says."""

    folder: int
    log: int
    status: Status
    """Of the log."""
    lock: Lock
    claim: HolderClaim


class StreamFolder(Struct, frozen=True):
    """A stream's folder, being taken hold of."""

    disk: Disk
    root: int
    stream: str
    folder: int


def take(
    disk: Disk,
    root: int,
    stream: str,
    open_folder: Callable[[], int],
    holder: HoldingStore,
    owner: str,
    lease_s: float,
) -> TakenStream:
    """Take hold of a stream, or `TaskBusy`. `open_folder` opens its folder, making it if needed."""
    opened: list[int] = []
    claim: HolderClaim | None = None
    try:
        opened.append(folder := open_folder())
        place = StreamFolder(disk, root, stream, folder)
        if not disk.try_lock(folder):
            raise TaskBusy(f"{stream} is being taken hold of by another process at this moment")
        opened.append(fd := disk.open(LOCK, folder, os.O_RDWR | os.O_CREAT))
        data, before = _read(disk, fd)
        log = -1
        if before is None and (log := _new_log(disk, folder)) >= 0:
            opened.append(log)
        may_be_alive = log < 0 and _may_be_alive(place, fd, before)
        claim = holder.claim()
        turn = max(before.turn, before.epoch) + 1 if before else 1
        mine = Lock(owner, lease_s, claim, turn, before is not None and before.started)
        if may_be_alive:
            mine = replace(mine, size=_close_to_its_holder(disk, folder))
            _replace(disk, folder, mine)
        if log < 0:
            opened.append(log := _open_log(place, mine))
        status = disk.status(log)
        if not may_be_alive:
            mine = replace(mine, size=status.size)
            _write(disk, fd, mine, data)
        disk.unlock(folder)
    except BaseException:
        if claim is not None:
            holder.drop(claim)
        for fd in opened:
            disk.close(fd)
        raise
    disk.close(fd)
    return TakenStream(folder, log, status, mine, claim)


def _may_be_alive(place: StreamFolder, fd: int, before: Lock | None) -> bool:
    """Whether somebody may still write who is no holder any more; `TaskBusy` if there is one."""
    disk = place.disk
    if before is None:
        return True  # somebody removed or spoiled the lock file of whom we can't tell
    if before.is_old:
        if disk.try_lock(fd):
            return before.moving
        _must_be_silent(place.stream, before, disk.touched_at(fd))
        return True
    if before.claim is None:
        return False
    seen = holders.look(disk, place.root, before.claim)
    if seen is None:
        return True  # its file was removed: perhaps from under it
    if not seen.is_held:
        return False
    if not seen.is_alive:
        holders.settle(disk, place.root, before.claim)
        return False
    _must_be_silent(place.stream, before, seen.renewed_at)
    return True


def _must_be_silent(stream: str, lock: Lock, renewed_at: float) -> None:
    silent_s = time.time() - renewed_at
    if silent_s <= lock.lease_s:
        raise TaskBusy(
            f"{stream} is being driven by {lock.owner or 'another process'}, alive "
            f"{silent_s:.0f} s ago. Wait for it to end; if it hangs, its lease of "
            f"{lock.lease_s:g} s runs out and this can be tried again"
        )


def _close_to_its_holder(disk: Disk, folder: int) -> int:
    """Let nobody be acknowledged anything more; returns how long the log is by then."""
    try:
        log = disk.open(LOG, folder, os.O_RDONLY)
    except FileNotFoundError:
        return 0  # who held it made it: without one, there is nothing that could still be written
    try:
        # From here on the old holder is acknowledged nothing more: what it had acknowledged is in
        # the log, and so it is in the copy that is made next.
        disk.forbid_writing(log)
        closed = disk.status(log)
        if closed.may_be_written:
            raise OSError(errno.ENOTSUP, "this filesystem does not keep a file's permissions")
        return closed.size
    finally:
        disk.close(log)


def _new_log(disk: Disk, folder: int) -> int:
    """The log of a stream that is new; -1 if there is one."""
    try:
        return disk.open(LOG, folder, _APPENDING | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        return -1


def _open_log(place: StreamFolder, lock: Lock) -> int:
    disk, folder = place.disk, place.folder
    with suppress(PermissionError):
        try:
            log = disk.open(LOG, folder, _APPENDING)
        except FileNotFoundError:
            if lock.started:
                raise lost(place.stream) from None
            return _new_log(disk, folder)
        if disk.status(log).may_be_written:
            return log
        disk.close(log)  # it is closed, and the superuser may open it all the same
    _move_to_fresh_inode(disk, folder)
    return disk.open(LOG, folder, _APPENDING)


def _move_to_fresh_inode(disk: Disk, folder: int) -> None:
    old = disk.open(LOG, folder, os.O_RDONLY)
    name = f"{LOG}.{os.urandom(6).hex()}"
    new = disk.open(name, folder, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        disk.write(new, disk.read_all(old))
        disk.sync(new)
    finally:
        disk.close(old)
        disk.close(new)
    disk.rename(name, LOG, folder)
    disk.sync_folder(folder)


def lost(stream: str) -> LogDamaged:
    """The error for a log that held events, and holds none any more."""
    return LogDamaged(stream, 1, "events were recorded here, and the log is empty or gone")


def was_started(data: bytes) -> bool:
    """Whether a lock file says that events were recorded in its stream."""
    lock = _parsed(data)
    return lock is not None and lock.started


def at_work(disk: Disk, root: int, folder: int) -> tuple[Lock, float] | None:
    """The lock of the holder of a stream, as far as can be told without disturbing it, and for how
    many seconds its lease is good."""
    fd = disk.open(LOCK, folder, os.O_RDONLY | NO_WAIT)
    try:
        _, lock = _read(disk, fd)
        if lock is None:
            return None
        if lock.is_old:
            is_held, renewed_at = not disk.try_lock(fd, shared=True), disk.touched_at(fd)
        elif lock.claim is not None and (seen := holders.look(disk, root, lock.claim)):
            is_held, renewed_at = seen.is_held and seen.is_alive, seen.renewed_at
        else:
            return None
        left_s = lock.lease_s - (time.time() - renewed_at)
        return (lock, left_s) if is_held and left_s >= 0 else None
    finally:
        disk.close(fd)


# The changes to the lock file of a stream that is held, by the way to its folder. Nothing is
# written to a file that does not name our own claim, wherever the way leads.


def claim_on(disk: Disk, root: int, way: str) -> HolderClaim | None:
    """By which claim a stream is held, if it is."""
    fd = disk.open(f"{way}/{LOCK}", root, os.O_RDONLY | NO_WAIT)
    try:
        _, lock = _read(disk, fd)
    finally:
        disk.close(fd)
    return lock.claim if lock is not None else None


def say_started(disk: Disk, root: int, way: str, taken: TakenStream) -> None:
    """Say that events were recorded."""
    taken.lock = replace(taken.lock, started=True)
    _rewrite(disk, root, way, taken.claim, taken.lock)


def give_back(disk: Disk, root: int, way: str, holder: HoldingStore, taken: TakenStream) -> None:
    """Say that nobody holds a stream any more."""
    # First in the lock file: as long as the claim stands, nobody else writes that in place.
    nobody = Lock(turn=taken.lock.turn, started=taken.lock.started)
    with suppress(OSError):
        _rewrite(disk, root, way, taken.claim, nobody)
    holder.drop(taken.claim)


def _rewrite(disk: Disk, root: int, way: str, claim: HolderClaim, lock: Lock) -> None:
    fd = disk.open(f"{way}/{LOCK}", root, os.O_RDWR | NO_WAIT)
    try:
        data, found = _read(disk, fd)
        if found is not None and found.claim == claim:
            # Should it be replaced at this moment, this goes to a file without a name.
            _write(disk, fd, lock, data)
    finally:
        disk.close(fd)


def _replace(disk: Disk, folder: int, lock: Lock) -> None:
    name = f"{LOCK}.{os.urandom(6).hex()}"
    fd = disk.open(name, folder, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        _write(disk, fd, lock)
    finally:
        disk.close(fd)
    disk.rename(name, LOCK, folder)


def _write(disk: Disk, fd: int, lock: Lock, over: bytes = b"") -> None:
    # In one write, and filled up instead of cut: who finds it free may write it before we could.
    disk.overwrite(fd, _encode(lock).ljust(len(over)))


def _read(disk: Disk, fd: int) -> tuple[bytes, Lock | None]:
    """The words of a lock file; None if it makes no sense."""
    data = disk.peek(fd, _MOST_BYTES)
    lock = _parsed(data)
    if lock is None and data:  # somebody may be writing it at this moment
        data = disk.peek(fd, _MOST_BYTES)
        lock = _parsed(data)
    return data, lock


def _parsed(data: bytes) -> Lock | None:
    try:
        lock = _decode(data)
    except Illegible:
        return None
    return lock if lock.turn or lock.is_old else None


_MOST_BYTES = 1 << 13
_encode = msgspec.json.Encoder().encode
_decode = decoder(Lock)


# One stream held for writing, as its store knows it.


class HeldFile:
    """One stream held for writing. Its log is open while `log` is not negative."""

    __slots__ = (
        "appended", "clean", "head", "inode", "lease", "log", "looked", "looked_at", "new",
        "news", "pid", "poisoned", "rung", "size", "synced", "syncing", "taken", "used", "way",
        "writing",
    )  # fmt: skip

    def __init__(self, lease: Lease, way: str, taken: TakenStream, size: int, head: int) -> None:
        self.lease: Lease = lease
        self.way: str = way
        """To its folder, from the workspace."""
        self.taken: TakenStream = taken
        self.log: int = taken.log
        self.inode: tuple[int, int] = taken.status.inode
        self.new: bool = True
        self.pid: int = os.getpid()
        self.head: int = head
        self.size: int = size
        self.appended: int = 0
        self.clean: int = 0
        """How many of the appends are on the disk, whether they were acknowledged or not."""
        self.synced: int = 0
        self.news: tuple[int, Facts, int] | None = None
        """The facts for the index once this append is durable, and the length of the log."""
        self.poisoned: str = ""
        self.used: bool = True
        self.writing: threading.Lock = threading.Lock()
        self.syncing: threading.Lock = threading.Lock()
        self.rung: int = 1
        """How often there may have been mail."""
        self.looked: int = 0
        """Which of these times it was looked for, and when."""
        self.looked_at: float = 0.0

    def is_clean(self) -> bool:
        """Whether everything that was written was synced, or never will be."""
        return self.clean == self.appended or bool(self.poisoned)
