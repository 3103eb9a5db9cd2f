"""The file store: a folder that people can read, and that keeps every promise of the port.

    workspace/
      tasks/<safe id>/events.jsonl    the log, one JSON object a line
      tasks/<safe id>/lock            who is writing (see `locks`)
      tasks/<safe id>/inbox/          messages for who is writing (see `inbox`)
      index.jsonl                     what the logs say, for lists (see `index`)
      blobs/ab/abcdef…                content-addressed, for what is too large for a line

**Durable** means `fdatasync` of the log and, when its name is new, `fsync` of each folder up to
the workspace. After each sync, and before it says that anything is durable, a writer looks whether
it still is the writer; looking before the write instead would acknowledge an event that the one
who took over never saw.

**A torn tail** (a last line without its newline) is what a crash leaves of an append that was
never acknowledged: the next writer moves it aside. Anything else that is off is damage, which is
reported and never repaired by guessing.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from holdfast.errors import Conflict, LeaseLost, StorageFailed, StoreError
from holdfast.store import Facts, Lease
from holdfast.stores import lines, locks
from holdfast.stores.disk import Disk
from holdfast.stores.held import each
from holdfast.stores.index import UNKNOWN
from holdfast.stores.locks import LOCK, LOG, Taken
from holdfast.stores.together import WholeDisk, in_threads
from holdfast.stores.workspace import Workspace, failed, safe_name


class Handle:
    """One stream held open for writing."""

    __slots__ = (
        "appended", "head", "lease", "new", "on_whole_disk", "pid", "poisoned", "size", "synced",
        "syncing", "taken", "writing",
    )  # fmt: skip

    def __init__(self, lease: Lease, taken: Taken, size: int, head: int) -> None:
        self.lease = lease
        self.taken = taken
        self.new = True
        self.pid = os.getpid()
        self.head = head
        self.size = size
        self.appended = 0
        self.synced = 0
        self.poisoned = ""
        self.on_whole_disk: bool | None = None
        self.writing = threading.Lock()
        self.syncing = threading.Lock()


class FileStore(Workspace):
    """Streams as files under one folder, with one writer for each."""

    def __init__(self, root: Path, *, sync: bool = True, disk: Disk | None = None) -> None:
        super().__init__(root, sync=sync, disk=disk)
        self._handles: dict[Lease, Handle] = {}
        self._whole = WholeDisk(self._disk, self._root)

    # Leases

    def acquire(self, stream: str, owner: str, lease_s: float) -> Lease:
        root = self._root
        try:
            taken = locks.take(
                self._disk, stream, lambda: self._stream_folder(stream, root), owner, lease_s
            )
        except OSError as error:
            raise failed(f"can't take hold of {stream}", error) from error
        try:
            handle = self._opened(stream, taken)
        except BaseException as error:
            locks.give_back(self._disk, taken)
            if isinstance(error, OSError):
                raise failed(f"can't open the log of {stream}", error) from error
            raise
        self._handles[handle.lease] = handle
        return handle.lease

    def _opened(self, stream: str, taken: Taken) -> Handle:
        end = lines.end_of(self._disk, stream, taken.log)
        if not end.size and taken.holder.started:
            raise locks.lost(stream)
        if end.size != self._disk.size(taken.log):
            self._mend_tail(taken, end)
        lease = Lease(stream, taken.holder.owner, taken.holder.epoch, end.head)
        return Handle(lease, taken, end.size, end.head)

    def _mend_tail(self, taken: Taken, end: lines.End) -> None:
        disk = self._disk
        if not end.tail:
            disk.write(taken.log, b"\n")
        else:
            aside = f"{LOG}.torn-{end.size}-{os.urandom(3).hex()}"
            kept = disk.open(aside, taken.folder, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            disk.write(kept, end.tail)
            disk.sync(kept)
            disk.close(kept)
            disk.sync_folder(taken.folder)
            disk.truncate(taken.log, end.size)
        disk.sync(taken.log)

    def holder(self, stream: str) -> str | None:
        try:
            with self._folder(stream) as folder:
                lock = self._disk.open(LOCK, folder, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            return locks.at_work(self._disk, lock)
        finally:
            self._disk.close(lock)

    def renew(self, lease: Lease) -> None:
        handle = self._handle(lease)
        self._must_be_ours(handle)
        self._must_hold(handle)
        self._disk.touch(handle.taken.lock)

    def release(self, lease: Lease) -> None:
        handle = self._handles.pop(lease, None)
        if handle is None:
            return
        # A branch that was cancelled may have left a sync running in its thread.
        with handle.writing, handle.syncing:
            handle.poisoned = "its lease was given back"
            if handle.pid == os.getpid():
                locks.give_back(self._disk, handle.taken)

    def acquire_many(
        self, streams: Sequence[str], owner: str, lease_s: float
    ) -> Sequence[Lease | StoreError]:
        return each(partial(self.acquire, owner=owner, lease_s=lease_s), streams)

    def release_many(self, leases: Sequence[Lease]) -> None:
        each(self.release, leases)

    def _handle(self, lease: Lease) -> Handle:
        handle = self._handles.get(lease)
        if handle is None:
            raise LeaseLost(f"{lease.stream}: this lease was given back")
        return handle

    def _must_be_ours(self, handle: Handle) -> None:
        if handle.pid != os.getpid():
            raise LeaseLost(f"{handle.lease.stream} belongs to process {handle.pid}, which forked")

    def _must_hold(self, handle: Handle) -> None:
        disk, taken = self._disk, handle.taken
        if disk.has_name(taken.lock) and disk.has_name(taken.log):
            return
        stream = handle.lease.stream
        if disk.inode_of(LOCK, taken.folder) is None or disk.inode_of(LOG, taken.folder) is None:
            raise LeaseLost(f"{stream}: its folder was removed while it was being driven")
        raise LeaseLost(
            f"{stream} was taken over from {handle.lease.owner}, or its log was replaced: this "
            f"process may write no more of it, and what it did since is settled by the other"
        )

    # Appending

    def append(
        self,
        lease: Lease,
        expected_seq: int,
        lines: Sequence[bytes],
        facts: Facts | None = None,
    ) -> None:
        handle = self._handles.get(lease) or self._handle(lease)
        with handle.writing:
            if handle.poisoned or handle.pid != os.getpid():
                self._must_be_sound(handle)
            if handle.head != expected_seq:
                raise Conflict(
                    f"{lease.stream} is at event {handle.head}, the writer thought {expected_seq}"
                )
            data = b"\n".join((*lines, b""))
            at_once = facts is not None and _is_due_at_once(facts)
            if at_once:
                self._note(lease.stream, facts, UNKNOWN)
            try:
                self._disk.write(handle.taken.log, data)
            except OSError as error:
                self._poison(handle, error)
                # A full disk leaves part of a line, which the next writer would cut off.
                with suppress(OSError):
                    self._disk.truncate(handle.taken.log, handle.size)
                raise failed(f"{lease.stream}: can't write", error) from error
            handle.size += len(data)
            handle.head += len(lines)
            handle.appended += 1
            if facts is not None and not at_once:
                self._note(lease.stream, facts, handle.size)

    def sync(self, lease: Lease) -> None:
        handle = self._handles.get(lease) or self._handle(lease)
        mine = handle.appended
        with handle.syncing:
            if handle.synced >= mine:
                return  # somebody else's sync began after our write
            if handle.poisoned or handle.pid != os.getpid():
                self._must_be_sound(handle)
            upto = handle.appended
            try:
                if self._durable:
                    self._disk.sync(handle.taken.log)
                if handle.new:
                    self._sync_names(handle)
            except OSError as error:
                # The kernel may have dropped the dirty pages and would report success next time.
                self._poison(handle, error)
                raise failed(f"{lease.stream}: can't sync", error) from error
            self._must_hold(handle)
            handle.synced = upto

    def sync_many(self, leases: Sequence[Lease]) -> Sequence[StoreError | None]:
        outcomes: dict[Lease, StoreError] = {}
        left = leases
        if self._durable and self._whole.is_worth_it(len(leases)):
            left = self._sync_whole_disk(leases)

        def sync(lease: Lease) -> None:
            try:
                self.sync(lease)
            except StoreError as error:
                outcomes[lease] = error

        in_threads(sync, left)
        return [outcomes.get(lease) for lease in leases]

    def _sync_whole_disk(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Sync many logs at once; returns those that are still to be synced, or to be refused."""
        whole = self._whole
        with whole.turn, ExitStack() as syncing:  # one turn at a time: many locks are held in it
            handles = [self._handles[lease] for lease in leases if lease in self._handles]
            for handle in handles:
                syncing.enter_context(handle.syncing)
            written = [(h, h.appended) for h in handles if self._is_on_whole_disk(h)]
            if not whole.sync(len(written)):
                return leases
            done = set()
            for handle, upto in written:
                with suppress(OSError, LeaseLost):  # which `sync` then raises
                    if handle.new:
                        self._names_are_synced(handle)
                    self._must_hold(handle)
                    handle.synced = upto
                    done.add(handle.lease)
            return [lease for lease in leases if lease not in done]

    def _is_on_whole_disk(self, handle: Handle) -> bool:
        if handle.on_whole_disk is None:
            handle.on_whole_disk = self._whole.holds(handle.taken.log)
        return handle.on_whole_disk and not handle.poisoned and handle.pid == os.getpid()

    def _sync_names(self, handle: Handle) -> None:
        """What is only to be done once: the names on the way to the log are made durable."""
        disk, taken = self._disk, handle.taken
        if self._durable:
            disk.sync_folder(taken.folder)
            kind = disk.folder(handle.lease.stream.split("/", 1)[0], self._root)
            disk.sync_folder(kind)
            disk.close(kind)
            disk.sync_folder(self._root)
        self._names_are_synced(handle)

    def _names_are_synced(self, handle: Handle) -> None:
        disk, taken = self._disk, handle.taken
        handle.new = False
        if not taken.holder.started and handle.head and disk.has_name(taken.lock):
            taken.holder.started = True
            locks.write_holder(disk, taken.lock, taken.holder)

    def _poison(self, handle: Handle, error: OSError) -> None:
        handle.poisoned = error.strerror or str(error)

    def _must_be_sound(self, handle: Handle) -> None:
        self._must_be_ours(handle)
        if handle.poisoned:
            raise StorageFailed(
                f"{handle.lease.stream}: an earlier write failed ({handle.poisoned}), so what is "
                f"on the disk is not known: run the task again to read it anew"
            )

    # Facts

    def delete(self, lease: Lease) -> None:
        handle = self._handle(lease)
        self._must_hold(handle)
        self._note(lease.stream, None, UNKNOWN)
        kind, name = lease.stream.split("/", 1)
        gone = f".deleted-{os.urandom(6).hex()}"
        folder = self._disk.folder(kind, self._root)
        try:
            self._disk.rename(safe_name(name), gone, folder)
            self._disk.sync_folder(folder)
        finally:
            self._disk.close(folder)
        # Who waits for the lock with the old folder open finds neither lock nor log in it.
        shutil.rmtree(self.root / kind / gone)
        self.release(lease)

    def _stream_folder(self, stream: str, root: int) -> int:
        kind, name = stream.split("/", 1)
        outer = self._disk.make_folder(kind, root)
        try:
            return self._disk.make_folder(safe_name(name), outer)
        finally:
            self._disk.close(outer)

    def close(self) -> None:
        for lease in list(self._handles):
            self.release(lease)
        self.close_folder()


def _is_due_at_once(facts: Facts) -> bool:
    return facts.wake_at is not None and facts.wake_at <= facts.created_at
