"""The streams of a workspace that this process holds, and whether it still does."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from holdfast.errors import LeaseLost, StorageFailed
from holdfast.store import Lease
from holdfast.stores import locks
from holdfast.stores.disk import Disk, Status
from holdfast.stores.handle import Handle
from holdfast.stores.holders import Holder
from holdfast.stores.locks import LOG
from holdfast.stores.workspace import Workspace, failed


class HeldStreams(Workspace):
    """A workspace in which streams are held for writing."""

    def __init__(self, root: Path, *, sync: bool = True, disk: Disk | None = None) -> None:
        super().__init__(root, sync=sync, disk=disk)
        self._holder = Holder(self._disk, lambda: self._root)
        self._begin()

    def _begin(self) -> None:
        """Hold nothing: at first, and in the child of a fork."""
        self._handles: dict[Lease, Handle] = {}
        self._held: dict[str, Handle] = {}

    def _handle(self, lease: Lease) -> Handle:
        handle = self._handles.get(lease)
        if handle is None:
            raise LeaseLost(
                f"{lease.stream}: this lease was given back, or is that of a process which forked"
            )
        return handle

    def _must_be_ours(self, handle: Handle) -> None:
        if handle.pid != os.getpid():
            raise LeaseLost(f"{handle.lease.stream} belongs to process {handle.pid}, which forked")

    def _must_hold(self, handle: Handle) -> Status:
        try:
            found = self._held_log(handle)
        except OSError as error:
            raise failed(f"can't look at the log of {handle.lease.stream}", error) from error
        if found is None:
            raise self._lost(handle)
        return found

    def _is_held(self, handle: Handle) -> bool:
        return self._held_log(handle) is not None

    def _held_log(self, handle: Handle) -> Status | None:
        """The log of a stream as it is now; None if we do not hold it any more."""
        if handle.log >= 0:
            found = self._disk.status(handle.log)
            return found if found.has_name and found.may_be_written else None
        there = self._disk.status_of(f"{handle.way}/{LOG}", self._root)
        return there if self._has(handle, there) else None

    def _has(self, handle: Handle, found: Status | None) -> bool:
        """Whether we still hold a stream, given the log as it was just found there."""
        # In this order: as long as the lock file names us, nobody has moved the log. Its number
        # alone would tell little, for one that is free is given to the next file that is made.
        try:
            claim = locks.claim_on(self._disk, self._root, handle.way)
        except OSError:
            return False
        return (
            claim == handle.taken.claim
            and found is not None
            and found.inode == handle.inode
            and found.may_be_written
        )

    def _lost(self, handle: Handle) -> LeaseLost:
        stream = handle.lease.stream
        with suppress(OSError):
            if self._disk.status_of(f"{handle.way}/{LOG}", self._root) is not None:
                return LeaseLost(
                    f"{stream} was taken over from {handle.lease.owner}, or its log was replaced: "
                    f"this process may write no more of it, and what it did since is settled by "
                    f"the other"
                )
        return LeaseLost(f"{stream}: its folder was removed while it was being driven")

    def _poison(self, handle: Handle, error: OSError) -> None:
        handle.poisoned = error.strerror or str(error)

    def _must_be_sound(self, handle: Handle) -> None:
        self._must_be_ours(handle)
        if handle.poisoned:
            raise StorageFailed(
                f"{handle.lease.stream}: an earlier write failed ({handle.poisoned}), so what is "
                f"on the disk is not known: run the task again to read it anew"
            )
