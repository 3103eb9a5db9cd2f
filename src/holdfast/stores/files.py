"""The file store: a folder that people can read, and that keeps every promise of the port.

    workspace/
      tasks/<safe id>/events.jsonl    the log, one JSON object a line
      tasks/<safe id>/lock            who is writing (see `locks`)
      tasks/<safe id>/inbox/          messages for who is writing (see `inbox`)
      holders/                        the processes that are writing (see `holders`)
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
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.errors import Conflict, LeaseLost, StorageFailed
from holdfast.store import Facts, Lease, Post
from holdfast.stores import forks, holders, lines, locks
from holdfast.stores.descriptors import Descriptors
from holdfast.stores.disk import Disk
from holdfast.stores.holders import Holder
from holdfast.stores.index import UNKNOWN
from holdfast.stores.locks import LOG, Taken
from holdfast.stores.workspace import Workspace, failed, safe_name

_LOOK_ANYWAY_S = 10.0
"""How long a message may lie unnoticed whose sender died before it could say so."""


class Handle:
    """One stream held for writing. Its log is open while `log` is not negative."""

    __slots__ = (
        "appended", "clean", "head", "inode", "lease", "log", "looked", "looked_at", "new", "pid",
        "poisoned", "rung", "size", "synced", "syncing", "taken", "used", "writing",
    )  # fmt: skip

    def __init__(self, lease: Lease, taken: Taken, size: int, head: int) -> None:
        self.lease = lease
        self.taken = taken
        self.log = taken.log
        self.inode = (0, 0)
        self.new = True
        self.pid = os.getpid()
        self.head = head
        self.size = size
        self.appended = 0
        self.clean = 0
        """How many of the appends are on the disk, whether they were acknowledged or not."""
        self.synced = 0
        self.poisoned = ""
        self.used = True
        self.writing = threading.Lock()
        self.syncing = threading.Lock()
        self.rung, self.looked, self.looked_at = 1, 0, 0.0
        """How often there may have been mail, and which of these times it was looked for."""

    def is_clean(self) -> bool:
        """Whether everything that was written was synced, or never will be."""
        return self.clean == self.appended or bool(self.poisoned)


class FileStore(Workspace):
    """Streams as files under one folder, with one writer for each."""

    def __init__(self, root: Path, *, sync: bool = True, disk: Disk | None = None) -> None:
        super().__init__(root, sync=sync, disk=disk)
        self._holder = Holder(self._disk, lambda: self._root)
        self._begin()
        forks.start_anew_in_children(self)

    def _begin(self) -> None:
        self._handles: dict[Lease, Handle] = {}
        self._held: dict[str, Handle] = {}
        self._logs: Descriptors[Handle] = Descriptors(self._close_log)
        self._hearing = threading.Lock()

    def start_anew(self) -> None:
        inherited = [handle.log for handle in self._logs if handle.log >= 0]
        for fd in inherited:
            self._disk.close(fd)
        self._holder.start_anew()
        self._index.start_anew()
        self._begin()

    # Leases

    def acquire(self, stream: str, owner: str, lease_s: float) -> Lease:
        root = self._root
        try:
            taken = locks.take(
                self._disk,
                root,
                stream,
                lambda: self._stream_folder(stream, root),
                self._holder,
                owner,
                lease_s,
            )
        except OSError as error:
            raise failed(f"can't take hold of {stream}", error) from error
        try:
            handle = self._opened(stream, taken)
        except BaseException as error:
            self._disk.close(taken.log)
            locks.give_back(self._disk, lambda: self._folder(stream), self._holder, taken)
            if isinstance(error, OSError):
                raise failed(f"can't open the log of {stream}", error) from error
            raise
        finally:
            self._disk.close(taken.folder)
        self._handles[handle.lease] = self._held[stream] = handle
        self._logs.add(handle)
        return handle.lease

    def _opened(self, stream: str, taken: Taken) -> Handle:
        end = lines.end_of(self._disk, stream, taken.log)
        if not end.size and taken.lock.started:
            raise locks.lost(stream)
        if end.size != self._disk.size(taken.log):
            self._mend_tail(taken, end)
        lease = Lease(stream, taken.lock.owner, taken.lock.turn)
        handle = Handle(lease, taken, end.size, end.head)
        handle.inode = self._disk.inode(taken.log)
        return handle

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
                return locks.at_work(self._disk, self._root, folder)
        except OSError:
            return None

    def renew(self, lease: Lease) -> None:
        handle = self._handle(lease)
        self._must_be_ours(handle)
        with handle.syncing:  # so that its log is not closed meanwhile
            self._must_hold(handle)
        self._holder.renew(handle.taken.claim)

    def release(self, lease: Lease) -> None:
        handle = self._handles.pop(lease, None)
        if handle is None:
            return
        # A branch that was cancelled may have left a sync running in its thread.
        with handle.writing, handle.syncing:
            handle.poisoned = "its lease was given back"
            if handle.pid == os.getpid():
                self._logs.remove(handle)
                self._close_log(handle)
                stream = lease.stream
                if self._held.get(stream) is handle:
                    del self._held[stream]
                locks.give_back(
                    self._disk, lambda: self._folder(stream), self._holder, handle.taken
                )

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

    def _must_hold(self, handle: Handle) -> None:
        if self._holder.has(handle.taken.claim) and self._has_log(handle):
            return
        raise self._lost(handle)

    def _has_log(self, handle: Handle) -> bool:
        """Whether the log that we write is the one that others read."""
        if handle.log >= 0:
            return self._disk.has_name(handle.log)
        try:
            with self._folder(handle.lease.stream) as folder:
                return self._disk.inode_of(LOG, folder) == handle.inode
        except OSError:
            return False

    def _lost(self, handle: Handle) -> LeaseLost:
        stream = handle.lease.stream
        try:
            with self._folder(stream) as folder:
                is_gone = self._disk.inode_of(LOG, folder) is None
        except OSError:
            is_gone = True
        if is_gone:
            return LeaseLost(f"{stream}: its folder was removed while it was being driven")
        return LeaseLost(
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
            if handle.log < 0:
                self._reopen(handle)
            handle.used = True
            data = b"\n".join((*lines, b""))
            at_once = facts is not None and _is_due_at_once(facts)
            if at_once:
                self._note(lease.stream, facts, UNKNOWN)
            try:
                self._disk.write(handle.log, data)
            except OSError as error:
                self._poison(handle, error)
                # A full disk leaves part of a line, which the next writer would cut off.
                with suppress(OSError):
                    self._disk.truncate(handle.log, handle.size)
                raise failed(f"{lease.stream}: can't write", error) from error
            handle.size += len(data)
            handle.head += len(lines)
            handle.appended += 1
            if facts is not None and not at_once:
                self._note(lease.stream, facts, handle.size)

    def _reopen(self, handle: Handle) -> None:
        """Open a log again that was closed to make room for others."""
        disk, stream = self._disk, handle.lease.stream
        try:
            with self._folder(stream) as folder:
                log = disk.open(LOG, folder, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            raise self._lost(handle) from None
        except OSError as error:
            raise failed(f"can't open the log of {stream}", error) from error
        # In this order: if we still hold the stream, then we did when the log was opened, and who
        # takes over from now on leaves this file behind. Its number alone tells little, for a
        # number that is free is given to the next file; its length tells of other hands.
        same = disk.inode(log) == handle.inode and disk.size(log) == handle.size
        if not (same and self._holder.has(handle.taken.claim)):
            disk.close(log)
            raise self._lost(handle)
        handle.log = log
        self._logs.add(handle)

    def _close_log(self, handle: Handle) -> None:
        """Close a log whose locks we have; what was written to it is synced first."""
        log, handle.log = handle.log, -1
        if log < 0:
            return
        try:
            if self._durable and not handle.is_clean():
                self._disk.sync(log)
        except OSError as error:
            self._poison(handle, error)
        finally:
            handle.clean = handle.appended
            self._disk.close(log)

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
                if self._durable and handle.clean < upto:
                    self._disk.sync(handle.log)
                if handle.new:
                    self._sync_names(handle)
            except OSError as error:
                # The kernel may have dropped the dirty pages and would report success next time.
                self._poison(handle, error)
                raise failed(f"{lease.stream}: can't sync", error) from error
            handle.clean = upto
            handle.used = True
            self._must_hold(handle)
            handle.synced = upto

    def _sync_names(self, handle: Handle) -> None:
        """What is only to be done once: the names on the way to the log are made durable."""
        disk, stream = self._disk, handle.lease.stream
        with self._folder(stream) as folder:
            if self._durable:
                disk.sync_folder(folder)
                kind = disk.folder(stream.split("/", 1)[0], self._root)
                disk.sync_folder(kind)
                disk.close(kind)
                disk.sync_folder(self._root)
            handle.new = False
            if not handle.taken.lock.started and handle.head:
                locks.say_started(disk, folder, handle.taken)

    def _poison(self, handle: Handle, error: OSError) -> None:
        handle.poisoned = error.strerror or str(error)

    def _must_be_sound(self, handle: Handle) -> None:
        self._must_be_ours(handle)
        if handle.poisoned:
            raise StorageFailed(
                f"{handle.lease.stream}: an earlier write failed ({handle.poisoned}), so what is "
                f"on the disk is not known: run the task again to read it anew"
            )

    # Mail

    def post(self, stream: str, name: str, data: bytes) -> bool:
        is_new = super().post(stream, name, data)
        with suppress(OSError), self._folder(stream) as folder:
            claim = locks.claim_on(self._disk, folder)
            if claim is not None:
                holders.ring(self._disk, self._root, claim)
        return is_new

    def inbox(self, streams: Collection[str]) -> Sequence[Post]:
        self._hear()
        now = time.monotonic()
        unheld: list[str] = []
        looked: list[tuple[Handle, int]] = []
        for stream in streams:
            handle = self._held.get(stream)
            if handle is None:
                unheld.append(stream)
            elif handle.rung > handle.looked or now - handle.looked_at > _LOOK_ANYWAY_S:
                looked.append((handle, handle.rung))
        found = super().inbox([*(handle.lease.stream for handle, _ in looked), *unheld])
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
                for handle in list(self._held.values()):
                    if handle.taken.claim.record in records:
                        handle.rung += 1

    # Deleting and closing

    def delete(self, lease: Lease) -> None:
        handle = self._handle(lease)
        with handle.syncing:
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
        self._holder.close()
        self.close_folder()


def _is_due_at_once(facts: Facts) -> bool:
    return facts.wake_at is not None and facts.wake_at <= facts.created_at
