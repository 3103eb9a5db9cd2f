"""The streams of a workspace that this process holds: whether it still does, and whether what was
appended to them is on the disk. Only of a stream that is still held is that acknowledged."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from holdfast.errors import LeaseLost, StorageFailed, StoreError
from holdfast.stores.files import holders, locks
from holdfast.stores.files.catalog import IndexEntry
from holdfast.stores.files.disk import Disk, Status
from holdfast.stores.files.folder import Workspace, failed, way_to
from holdfast.stores.files.holders import HoldingStore
from holdfast.stores.files.locks import LOG, HeldFile
from holdfast.stores.files.syncing import WholeDisk, in_threads
from holdfast.stores.port import Lease, Post, SideKind
from holdfast.stores.system import most_open_files


class HeldStreams(Workspace):
    """A workspace in which streams are held for writing."""

    def __init__(self, root: Path, *, sync: bool = True, disk: Disk | None = None) -> None:
        super().__init__(root, sync=sync, disk=disk)
        self._holder = HoldingStore(self._disk, lambda: self._root)
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


class Syncing(HeldStreams):
    """A workspace whose held streams can be synced: each by itself, or many with the whole disk.

    Unsynced writes mean that the log is open: a log is synced before it is closed. So what is done
    here is done with the lock `syncing` of a handle, under which no log is closed.
    """

    def _begin(self) -> None:
        super()._begin()
        self._whole = WholeDisk(self._disk, lambda: self._root)

    def _sync(self, lease: Lease) -> None:
        handle = self._handles.get(lease) or self._handle(lease)
        mine = handle.appended
        with handle.syncing:
            if handle.synced >= mine:
                return  # somebody else's sync began after our write
            if handle.poisoned or handle.pid != os.getpid():
                self._must_be_sound(handle)
            upto = handle.appended
            try:
                if self._durable and handle.clean < upto:
                    self._disk.sync(handle.log)
                if handle.new:
                    self._sync_names(handle)
            except OSError as error:
                # The kernel may have dropped the dirty pages and would report success next time.
                self._poison(handle, error)
                if not self._is_held(handle):  # who took it over may have deleted it since
                    raise self._lost(handle) from error
                raise failed(f"{lease.stream}: can't sync", error) from error
            self._is_durable(handle, upto)

    def _is_durable(self, handle: HeldFile, upto: int) -> None:
        """Acknowledge what is on the disk, if it is still ours to say so."""
        handle.clean = upto
        handle.used = True
        log = self._must_hold(handle)
        handle.synced = upto
        if handle.news is not None:
            self._tell_news(handle, log.written_ns)

    def _tell_news(self, handle: HeldFile, written_ns: int) -> None:
        # Not before: a crash may leave a log that has its new length, and zeros for its new lines,
        # and the index would be believed.
        news = handle.news
        if news is not None and news[0] <= handle.synced:
            entry = IndexEntry(handle.lease.stream, news[2], news[1], written_ns=written_ns)
            # While we hold the stream an older entry is believed: so a full disk is tried again.
            if self._note(entry) and handle.news is news:
                handle.news = None

    def sync(self, leases: Sequence[Lease]) -> Sequence[StoreError | None]:
        if len(leases) == 1:  # as for each step of a sync task: no detour
            try:
                self._sync(leases[0])
            except StoreError as error:
                return (error,)
            return (None,)
        outcomes: dict[Lease, StoreError] = {}
        left = leases
        if self._durable and self._whole.is_worth_it(len(leases)):
            left = self._sync_whole_disk(leases)

        def sync(lease: Lease) -> None:
            try:
                self._sync(lease)
            except StoreError as error:
                outcomes[lease] = error

        if self._durable:
            in_threads(sync, left)
        else:  # nothing waits for the disk, so threads would only cost
            for lease in left:
                sync(lease)
        return [outcomes.get(lease) for lease in leases]

    def _sync_whole_disk(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Sync many logs at once; returns those that are still to be synced, or to be refused."""
        with self._whole.turn, ExitStack() as syncing:  # one at a time: many locks are held in it
            return self._sync_held(leases, syncing)

    def _sync_held(self, leases: Sequence[Lease], syncing: ExitStack) -> Sequence[Lease]:
        handles = [found for lease in leases if (found := self._handles.get(lease))]
        for handle in handles:
            syncing.enter_context(handle.syncing)
        device = self._whole.device()
        written = [(h, h.appended) for h in handles if _is_sound_and_on(h, device)]
        if not self._whole.sync(len(written)):
            return leases
        done = set()
        for handle, upto in written:
            with suppress(OSError, LeaseLost):  # which `_sync` then raises
                if handle.new:
                    self._names_are_synced(handle)
                self._is_durable(handle, upto)
                done.add(handle.lease)
        return [lease for lease in leases if lease not in done]

    def _sync_names(self, handle: HeldFile) -> None:
        """The work that is only to be done once: the names on the way to the log are made
        durable."""
        disk, root = self._disk, self._root
        if self._durable:
            kind, name = handle.way.split("/")
            with ExitStack() as opened:
                outer = disk.folder(kind, root)
                opened.callback(disk.close, outer)
                folder = disk.folder(name, outer)
                opened.callback(disk.close, folder)
                for fd in (folder, outer, root):
                    disk.sync_folder(fd)
        self._names_are_synced(handle)

    def _names_are_synced(self, handle: HeldFile) -> None:
        handle.new = False
        if not handle.taken.lock.started and handle.head:
            try:
                locks.say_started(self._disk, self._root, handle.way, handle.taken)
            except OSError as error:
                self._poison(handle, error)
                raise


def _is_sound_and_on(handle: HeldFile, device: int) -> bool:
    """Whether a log can be synced with its disk: another may be mounted on a folder of ours."""
    return handle.inode[0] == device and not handle.poisoned and handle.pid == os.getpid()


# The open logs of a store: a bounded number, however many tasks it holds.
#
# A log is opened when its task is taken hold of and, should its descriptor have been closed since,
# when it is next appended to. A log in use is not closed: its user has one of its
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
        # both were free; and a process that took them since does not wait for us: it would have
        # found our log in use.
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
