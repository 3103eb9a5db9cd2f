"""The streams of a workspace that this process holds, and whether it still does."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from holdfast.errors import LeaseLost, StorageFailed
from holdfast.stores.files import holders, locks
from holdfast.stores.files.disk import Disk, Status
from holdfast.stores.files.folder import Workspace, failed, way_to
from holdfast.stores.files.holders import Holder
from holdfast.stores.files.locks import LOG, HeldFile
from holdfast.stores.port import Lease, Post, SideKind
from holdfast.stores.system import most_open_files


class HeldStreams(Workspace):
    """A workspace in which streams are held for writing."""

    def __init__(self, root: Path, *, sync: bool = True, disk: Disk | None = None) -> None:
        super().__init__(root, sync=sync, disk=disk)
        self._holder = Holder(self._disk, lambda: self._root)
        self._begin()

    def _begin(self) -> None:
        """Hold nothing: at first, and in the child of a fork."""
        self._handles: dict[Lease, HeldFile] = {}
        self._held: dict[str, HeldFile] = {}

    def _handle(self, lease: Lease) -> HeldFile:
        handle = self._handles.get(lease)
        if handle is None:
            raise LeaseLost(
                f"{lease.stream}: this lease was given back, or is that of a process which forked"
            )
        return handle

    def _must_be_ours(self, handle: HeldFile) -> None:
        if handle.pid != os.getpid():
            raise LeaseLost(f"{handle.lease.stream} belongs to process {handle.pid}, which forked")

    def _must_hold(self, handle: HeldFile) -> Status:
        """The log of a stream as it is now; `LeaseLost` if we do not hold it any more."""
        try:
            if handle.log >= 0:
                found = self._disk.status(handle.log)
                if found.has_name and found.may_be_written:
                    return found
            else:
                there = self._disk.status_of(f"{handle.way}/{LOG}", self._root)
                if there is not None and self._has(handle, there):
                    return there
        except OSError as error:
            raise failed(f"can't look at the log of {handle.lease.stream}", error) from error
        raise self._lost(handle)

    def _is_held(self, handle: HeldFile) -> bool:
        try:
            self._must_hold(handle)
        except LeaseLost:
            return False
        return True

    def _has(self, handle: HeldFile, found: Status | None) -> bool:
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

    def _lost(self, handle: HeldFile) -> LeaseLost:
        stream = handle.lease.stream
        with suppress(OSError):
            if self._disk.status_of(f"{handle.way}/{LOG}", self._root) is not None:
                return LeaseLost(
                    f"{stream} was taken over from {handle.lease.owner}, or its log was replaced: "
                    f"this process may write no more of it, and what it did since is settled by "
                    f"the other"
                )
        return LeaseLost(f"{stream}: its folder was removed while it was being driven")

    def _poison(self, handle: HeldFile, error: OSError) -> None:
        handle.poisoned = error.strerror or str(error)

    def _must_be_sound(self, handle: HeldFile) -> None:
        self._must_be_ours(handle)
        if handle.poisoned:
            raise StorageFailed(
                f"{handle.lease.stream}: an earlier write failed ({handle.poisoned}), so what is "
                f"on the disk is not known: run the task again to read it anew"
            )


# The open logs of a store: a bounded number, however many tasks it holds.
#
# A log is opened when its task is taken hold of and, should its descriptor have been closed since,
# when it is next appended to. One that somebody is using is not closed: who uses it has one of its
# two locks. One with writes that were not synced is synced first, for a failure that nobody was
# told of before the file was closed may be told to nobody after it.


_FEWEST, _MOST = 8, 4096


class OpenLog(Protocol):
    """A log that is open."""

    writing: threading.Lock
    syncing: threading.Lock
    used: bool
    """Set by every use."""

    def is_clean(self) -> bool:
        """Whether everything that was written was synced."""


O = TypeVar("O", bound=OpenLog)  # noqa: E741


def share_of_limit() -> int:
    """A quarter of the files that this process may open: the rest is for what the tasks do."""
    limit = most_open_files()
    return _MOST if limit is None else max(_FEWEST, min(_MOST, limit // 4))


class Descriptors(Generic[O]):
    """The logs that are open, in the order in which they were last found to be in use."""

    def __init__(self, close: Callable[[O], None]) -> None:
        self._close = close
        self._open: dict[O, None] = {}
        self._lock = threading.Lock()
        self._most = share_of_limit()

    def add(self, log: O) -> None:
        """Count a log that was just opened, and close others if there are too many."""
        with self._lock:
            self._open[log] = None
            chosen = self._chosen() if len(self._open) > self._most else []
        for other in chosen:
            self._shut(other)

    def _shut(self, log: O) -> None:
        # Taken by `with`, so that an interrupt can't leave them locked. We hardly wait for them, as
        # both were free; and whoever has taken them since does not wait for us: it would have found
        # our log in use.
        with log.writing, log.syncing:
            self._close(log)
            self.remove(log)

    def remove(self, log: O) -> None:
        """Count a log no more."""
        with self._lock:
            self._open.pop(log, None)

    def __iter__(self) -> Iterator[O]:
        return iter(list(self._open))

    def _chosen(self) -> list[O]:
        """Logs to be closed, of which none is in use: a good many that cost nothing, or one that
        has to be synced first."""
        room = max(1, self._most // 8)
        chosen: list[O] = []
        for log in list(self._open):
            if log.used:  # since it was last looked at: it gets another round
                log.used = False
                del self._open[log]
                self._open[log] = None
            elif log.is_clean() and _is_free(log):
                chosen.append(log)
                if len(chosen) == room:
                    break
        return chosen or next(([log] for log in self._open if _is_free(log)), [])


def _is_free(log: OpenLog) -> bool:
    return not log.writing.locked() and not log.syncing.locked()


# Mail in a workspace: who leaves a message rings, and who holds streams looks where it rang.
#
# So a process that drives thousands of tasks does not look into thousands of folders for nothing.


_LOOK_ANYWAY_S = 10.0
"""How long a message may lie unnoticed whose sender died before it could say so."""


class Mail(HeldStreams):
    """The inboxes of a workspace, for those who hold its streams and those who do not."""

    def _begin(self) -> None:
        super()._begin()
        self._hearing = threading.Lock()

    def put_side(self, stream: str, kind: SideKind, name: str, data: bytes) -> bool:
        is_new = super().put_side(stream, kind, name, data)
        if kind == "derived":
            return is_new
        with suppress(OSError):
            claim = locks.claim_on(self._disk, self._root, way_to(stream))
            if claim is not None:
                holders.ring(self._disk, self._root, claim)
        return is_new

    def get_side(
        self,
        streams: Collection[str],
        kind: SideKind,
        names: Collection[str] | None = None,
        *,
        only_names: bool = False,
    ) -> Sequence[Post]:
        if kind == "derived" or names is not None:
            return super().get_side(streams, kind, names, only_names=only_names)
        self._hear()
        now = time.monotonic()
        unheld: list[str] = []
        looked: list[tuple[HeldFile, int]] = []
        for stream in streams:
            handle = self._held.get(stream)
            if handle is None:
                unheld.append(stream)
            elif handle.rung > handle.looked or now - handle.looked_at > _LOOK_ANYWAY_S:
                looked.append((handle, handle.rung))
        found = super().get_side([*(handle.lease.stream for handle, _ in looked), *unheld], kind)
        full = {post.stream for post in found}
        for handle, rung in looked:
            if handle.lease.stream not in full:  # else it stays to be looked at
                handle.looked, handle.looked_at = rung, now
        return found

    def _hear(self) -> None:
        """Learn for which of our streams there may be mail."""
        with self._hearing:
            try:
                records = set(self._holder.mail())
            except OSError:
                return  # then it is looked for after a while
            if records:
                self._ring(records)

    def _ring(self, records: set[int]) -> None:
        for handle in list(self._held.values()):
            if handle.taken.claim.record in records:
                handle.rung += 1
