"""Who may write: the lock file of a stream, how it is taken, kept, and taken over.

The lease is the lock on a file called `lock`, which the system frees when its holder dies. A
process that hangs keeps it, so a holder that was silent for longer than its lease is replaced: a
new lock file takes the place of its own, which then has no name any more, and that is how it
knows. The new holder also puts the log on a fresh inode, so that whatever the old one still writes
goes to a file that nobody reads. The log is made (empty) together with the lock, so there is
never a holder that could make one later.

All of this happens under a lock on the stream's folder: two that want to take over do so one
after the other, and the second finds a holder that is alive.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec
from msgspec import Struct

from holdfast.errors import LogDamaged, TaskBusy
from holdfast.stores.disk import Disk

LOG, LOCK = "events.jsonl", "lock"


class Holder(Struct, omit_defaults=True):
    """What stands in a `lock` file, for those who find it."""

    owner: str = ""
    epoch: int = 0
    lease_s: float = 30.0
    host: str = ""
    pid: int = 0
    started: bool = False
    """Whether events were ever recorded: if so, a log that is empty or gone is a loss."""
    moving: bool = False
    """Whether its log is still on the inode of the holder before it: see `_take_lock`."""


class Taken(Struct):
    """A stream's folder, lock and log, opened for writing."""

    folder: int
    lock: int
    log: int
    holder: Holder


def take(
    disk: Disk, stream: str, open_folder: Callable[[], int], owner: str, lease_s: float
) -> Taken:
    """Take hold of a stream, or `TaskBusy`. `open_folder` opens its folder, making it if needed."""
    opened: list[int] = []
    try:
        opened.append(open_folder())
        folder = opened[0]
        if not disk.try_lock(folder):
            raise TaskBusy(f"{stream} is being taken hold of by another process at this moment")
        lock, before = _take_lock(disk, stream, folder, owner, lease_s, opened)
        log = _open_log(disk, stream, folder, before)
        opened.append(log)
        holder = Holder(owner, before.epoch + 1, lease_s, _host(), os.getpid(), before.started)
        write_holder(disk, lock, holder)
        disk.unlock(folder)
    except BaseException:
        for fd in opened:
            disk.close(fd)
        raise
    return Taken(folder, lock, log, holder)


def _take_lock(
    disk: Disk, stream: str, folder: int, owner: str, lease_s: float, opened: list[int]
) -> tuple[int, Holder]:
    lock = disk.open(LOCK, folder, os.O_RDWR | os.O_CREAT)
    opened.append(lock)
    before = _holder(disk.read_all(lock))
    if disk.try_lock(lock):
        if before.moving or not before.epoch:
            # Who took over before us died half-way, or the lock file is new though the log may
            # not be: somebody may have the log open whom no lock file knows of.
            _move_log_to_fresh_inode(disk, folder)
        return lock, before
    silent_s = time.time() - disk.touched_at(lock)
    if silent_s <= before.lease_s:
        raise TaskBusy(
            f"{stream} is being driven by {before.owner or 'another process'}, alive "
            f"{silent_s:.0f} s ago. Wait for it to end; if it hangs, its lease of "
            f"{before.lease_s:g} s runs out and this can be tried again"
        )
    name = f"{LOCK}.{os.urandom(6).hex()}"
    fresh = disk.open(name, folder, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    opened.append(fresh)
    disk.try_lock(fresh)
    taker = Holder(owner, before.epoch + 1, lease_s, started=before.started, moving=True)
    write_holder(disk, fresh, taker)
    # From here on the old holder is acknowledged nothing more: what it had acknowledged is in the
    # log, and so it is in the copy.
    disk.rename(name, LOCK, folder)
    _move_log_to_fresh_inode(disk, folder)
    return fresh, before


def _move_log_to_fresh_inode(disk: Disk, folder: int) -> None:
    try:
        old = disk.open(LOG, folder, os.O_RDONLY)
    except FileNotFoundError:
        return  # a holder has its log open: without one, there is nothing it could still write
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


def _open_log(disk: Disk, stream: str, folder: int, before: Holder) -> int:
    flags = os.O_RDWR | os.O_APPEND
    try:
        return disk.open(LOG, folder, flags)
    except FileNotFoundError:
        if before.started:
            raise lost(stream) from None
        return disk.open(LOG, folder, flags | os.O_CREAT | os.O_EXCL)


def lost(stream: str) -> LogDamaged:
    """The error for a log that held events, and holds none any more."""
    return LogDamaged(stream, 1, "events were recorded here, and the log is empty or gone")


def was_started(data: bytes) -> bool:
    """Whether a lock file says that events were recorded in its stream."""
    return _holder(data).started


def at_work(disk: Disk, lock: int) -> str | None:
    """Who holds a lock, as far as can be told without taking it."""
    holder = _holder(disk.read_all(lock))
    if not holder.owner or time.time() - disk.touched_at(lock) > holder.lease_s:
        return None
    if holder.host == _host() and not _is_alive(holder.pid):
        return None
    return holder.owner


def write_holder(disk: Disk, lock: int, holder: Holder) -> None:
    """Say who holds a lock."""
    data = msgspec.json.encode(holder)
    disk.overwrite(lock, data)
    disk.truncate(lock, len(data))


def give_back(disk: Disk, taken: Taken) -> None:
    """Say that nobody holds a lock any more, and let it go."""
    if disk.has_name(taken.lock):
        nobody = Holder(epoch=taken.holder.epoch, started=taken.holder.started)
        with suppress(OSError):
            write_holder(disk, taken.lock, nobody)
    with suppress(OSError):
        disk.unlock(taken.lock)  # a child that was forked meanwhile has it open too
    for fd in (taken.log, taken.lock, taken.folder):
        disk.close(fd)


def _holder(data: bytes) -> Holder:
    # Written in place by its holder, so a reader may find it empty or half-way.
    try:
        return msgspec.json.decode(data, type=Holder)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Holder()


def _host() -> str:
    return os.uname().nodename


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:  # one that was killed stays listed until its parent has taken notice
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return True
