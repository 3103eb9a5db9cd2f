"""Who may write: the lock file of a stream, how it is taken, given back, and taken over.

A file called `lock` beside the log says who holds the stream: by which claim in which file of a
holder (see `holders`), which the system unlocks when its process dies. A process that hangs keeps
it, so a holder that was silent for longer than its lease is replaced: its claim is revoked, which
it looks at before it says that anything is durable. The new holder also puts the log on a fresh
inode, so that whatever the old one still writes goes to a file that nobody reads. The log is made
(empty) together with the lock, so there is never a holder that could make one later.

All of this happens under a lock on the stream's folder: two that want to take over do so one
after the other, and the second finds a holder that is alive.

A lock file is written in place by the holder it names, who may be slow, and by whoever finds that
nobody holds it. Who takes over from a holder that may be alive puts a new file in its place.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import LogDamaged, TaskBusy
from holdfast.stores import holders
from holdfast.stores.disk import Disk
from holdfast.stores.holders import Claim, Holder

LOG, LOCK = "events.jsonl", "lock"


class Lock(Struct, frozen=True, omit_defaults=True):
    """What stands in a `lock` file, for those who find it."""

    owner: str = ""
    lease_s: float = 30.0
    claim: Claim | None = None
    """By which the owner holds the stream; None if nobody does."""
    turn: int = 0
    """Counts the holders."""
    started: bool = False
    """Whether events were ever recorded: if so, a log that is empty or gone is a loss."""
    moving: bool = False
    """Whether its log is still on the inode of the holder before it: see `take`."""
    epoch: int = 0
    """The same as `turn`, as it was written when the lease was an `flock` on this file itself. A
    process of that time finds none here, and so moves the log away from under the holder."""

    @property
    def is_old(self) -> bool:
        """Whether it is of that time."""
        return self.epoch > 0


class Taken(Struct):
    """A stream taken hold of: its folder and its log, opened, and what its lock file says."""

    folder: int
    log: int
    lock: Lock
    claim: Claim


class _Way(Struct, frozen=True):
    """How a stream may be taken."""

    moves: bool = False
    """Somebody may have the log open who is not, or can't be told to write no more."""
    replaces: bool = False
    """Somebody may still write the lock file."""


_TAKEOVER = _Way(moves=True, replaces=True)


def take(
    disk: Disk,
    root: int,
    stream: str,
    open_folder: Callable[[], int],
    holder: Holder,
    owner: str,
    lease_s: float,
) -> Taken:
    """Take hold of a stream, or `TaskBusy`. `open_folder` opens its folder, making it if needed."""
    opened: list[int] = []
    claim: Claim | None = None
    try:
        opened.append(folder := open_folder())
        if not disk.try_lock(folder):
            raise _taken_this_moment(stream)
        opened.append(fd := _open_lock(disk, folder))
        before = _read(disk, fd)
        way = _way_to_take(disk, root, stream, folder, fd, before)
        claim = holder.claim(stream)
        turn = max(before.turn, before.epoch) + 1 if before else 1
        mine = Lock(owner, lease_s, claim, turn, before is not None and before.started)
        if way.replaces:
            opened.append(fd := _replace(disk, folder, replace(mine, moving=True)))
        if way.moves:
            _move_log_to_fresh_inode(disk, folder)
        opened.append(log := _open_log(disk, stream, folder, mine))
        _write(disk, fd, mine)
        disk.unlock(folder)
    except BaseException:
        if claim is not None:
            holder.drop(claim)
        for fd in opened:
            disk.close(fd)
        raise
    for fd in opened[1:-1]:
        disk.close(fd)
    return Taken(folder, log, mine, claim)


def _way_to_take(
    disk: Disk, root: int, stream: str, folder: int, fd: int, before: Lock | None
) -> _Way:
    if before is None:
        if disk.inode_of(LOG, folder) is None:
            return _Way()  # it is new
        # Somebody removed or spoiled the lock file of whom we can't tell.
        if not holders.revoke_all(disk, root, stream):
            raise _taken_this_moment(stream)
        return _TAKEOVER
    if before.is_old:
        return _way_from_old(disk, stream, fd, before)
    claim = before.claim
    if claim is None:
        return _Way(before.moving)
    seen = holders.look(disk, root, claim)
    if seen is None:
        return _TAKEOVER  # its file was removed, perhaps from under it: which it looks at too
    if not seen.is_held:
        return _Way(before.moving)
    if not seen.is_alive:
        holders.settle(disk, root, claim)
        return _Way(before.moving)
    _must_be_silent(stream, before, seen.renewed_at)
    if not holders.revoke(disk, root, claim):
        raise _taken_this_moment(stream)
    # From here on the old holder is acknowledged nothing more: what it had acknowledged is in the
    # log, and so it is in the copy that is made next.
    return _TAKEOVER


def _way_from_old(disk: Disk, stream: str, fd: int, before: Lock) -> _Way:
    """For a lock file that its holder keeps locked: it is acknowledged nothing once it is renamed
    over."""
    if disk.try_lock(fd):
        return _Way(before.moving)
    _must_be_silent(stream, before, disk.touched_at(fd))
    return _TAKEOVER


def _must_be_silent(stream: str, lock: Lock, renewed_at: float) -> None:
    silent_s = time.time() - renewed_at
    if silent_s <= lock.lease_s:
        raise TaskBusy(
            f"{stream} is being driven by {lock.owner or 'another process'}, alive "
            f"{silent_s:.0f} s ago. Wait for it to end; if it hangs, its lease of "
            f"{lock.lease_s:g} s runs out and this can be tried again"
        )


def _taken_this_moment(stream: str) -> TaskBusy:
    return TaskBusy(f"{stream} is being taken hold of by another process at this moment")


def _replace(disk: Disk, folder: int, lock: Lock) -> int:
    name = f"{LOCK}.{os.urandom(6).hex()}"
    fd = disk.open(name, folder, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        _write(disk, fd, lock)
        disk.rename(name, LOCK, folder)
    except BaseException:
        disk.close(fd)
        raise
    return fd


def _move_log_to_fresh_inode(disk: Disk, folder: int) -> None:
    try:
        old = disk.open(LOG, folder, os.O_RDONLY)
    except FileNotFoundError:
        return  # a holder made its log: without one, there is nothing it could still write
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


def _open_log(disk: Disk, stream: str, folder: int, lock: Lock) -> int:
    flags = os.O_RDWR | os.O_APPEND
    try:
        return disk.open(LOG, folder, flags)
    except FileNotFoundError:
        if lock.started:
            raise lost(stream) from None
        return disk.open(LOG, folder, flags | os.O_CREAT | os.O_EXCL)


def lost(stream: str) -> LogDamaged:
    """The error for a log that held events, and holds none any more."""
    return LogDamaged(stream, 1, "events were recorded here, and the log is empty or gone")


def was_started(data: bytes) -> bool:
    """Whether a lock file says that events were recorded in its stream."""
    lock = _parsed(data)
    return lock is not None and lock.started


def at_work(disk: Disk, root: int, folder: int) -> str | None:
    """Who holds a stream, as far as can be told without disturbing them."""
    fd = disk.open(LOCK, folder, os.O_RDONLY | os.O_NONBLOCK)
    try:
        lock = _read(disk, fd)
        if lock is None:
            return None
        if lock.is_old:
            is_alive, renewed_at = not disk.try_lock(fd, shared=True), disk.touched_at(fd)
        elif lock.claim is not None and (seen := holders.look(disk, root, lock.claim)):
            is_alive, renewed_at = seen.is_held and seen.is_alive, seen.renewed_at
        else:
            return None
        return lock.owner if is_alive and time.time() - renewed_at <= lock.lease_s else None
    finally:
        disk.close(fd)


def claim_on(disk: Disk, folder: int) -> Claim | None:
    """By which claim a stream is held, if it is."""
    fd = disk.open(LOCK, folder, os.O_RDONLY | os.O_NONBLOCK)
    try:
        lock = _read(disk, fd)
        return lock.claim if lock is not None else None
    finally:
        disk.close(fd)


def say_started(disk: Disk, folder: int, taken: Taken) -> None:
    """Say that events were recorded."""
    taken.lock = replace(taken.lock, started=True)
    _rewrite(disk, folder, taken.claim, taken.lock)


def give_back(
    disk: Disk, open_folder: Callable[[], AbstractContextManager[int]], holder: Holder, taken: Taken
) -> None:
    """Say that nobody holds a stream any more."""
    # First in the lock file: as long as the claim stands, nobody else writes that in place.
    nobody = Lock(turn=taken.lock.turn, started=taken.lock.started)
    with suppress(OSError), open_folder() as folder:
        _rewrite(disk, folder, taken.claim, nobody)
    holder.drop(taken.claim)


def _rewrite(disk: Disk, folder: int, claim: Claim, lock: Lock) -> None:
    fd = disk.open(LOCK, folder, os.O_RDWR | os.O_NONBLOCK)
    try:
        found = _read(disk, fd)
        if found is not None and found.claim == claim:
            # Should it be replaced at this moment, this goes to a file without a name.
            _write(disk, fd, lock)
    finally:
        disk.close(fd)


def _open_lock(disk: Disk, folder: int) -> int:
    try:
        return disk.open(LOCK, folder, os.O_RDWR)
    except FileNotFoundError:
        return disk.open(LOCK, folder, os.O_RDWR | os.O_CREAT | os.O_EXCL)


def _read(disk: Disk, fd: int) -> Lock | None:
    """What a lock file says; None if it makes no sense."""
    # Looked at twice if need be: somebody may be writing it at this moment.
    return _parsed(disk.read_all(fd)) or _parsed(disk.read_all(fd))


def _write(disk: Disk, fd: int, lock: Lock) -> None:
    # In one write, and filled up instead of cut: who finds it free may write it before we could.
    disk.overwrite(fd, _encode(lock).ljust(disk.size(fd)))


def _parsed(data: bytes) -> Lock | None:
    try:
        lock = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return lock if lock.turn or lock.is_old else None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Lock).decode
