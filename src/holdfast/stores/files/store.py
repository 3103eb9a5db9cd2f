"""The file store: a folder that people can read, and that keeps every promise of the port.

    workspace/
      tasks/<safe id>/events.jsonl    the log, one JSON object a line
      tasks/<safe id>/lock            who is writing (see `locks`)
      tasks/<safe id>/inbox/          messages for the writer (see `held`)
      holders/                        the processes that are writing (see `holders`)
      index.jsonl                     what the logs say, for lists (see `catalog`)
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

import errno
import os
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from holdfast.errors import Conflict, StoreError
from holdfast.stores import groups as forks
from holdfast.stores.files import lines, locks
from holdfast.stores.files.catalog import IndexEntry
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.folder import failed, safe_name, way_to
from holdfast.stores.files.held import Descriptors, Mail, Syncing
from holdfast.stores.files.locks import LOG, HeldFile, TakenStream
from holdfast.stores.held import each
from holdfast.stores.port import Facts, Holder, Lease, held_for

_MOMENT_S = 30.0
"""For what is held only while a name is cleared for another stream."""


class Listener(Protocol):
    """Is told the name of each stream that was appended to, or got its name."""

    changed: Container[str]
    """The streams that it knows to have changed: it need not be told again."""

    def hear(self, stream: str) -> None:
        """A stream changed."""


class FileStore(Syncing, Mail):
    """Streams as files under one folder, with one writer for each."""

    listener: Listener | None = None

    def __init__(self, root: Path, *, sync: bool = True, disk: Disk | None = None) -> None:
        super().__init__(root, sync=sync, disk=disk)
        forks.start_anew_in_children(self)

    def _begin(self) -> None:
        super()._begin()
        self._logs: Descriptors[HeldFile] = Descriptors(self._close_log)

    def start_anew(self) -> None:
        inherited = [handle.log for handle in self._logs if handle.log >= 0]
        for fd in inherited:
            self._disk.close(fd)
        self._holder.start_anew()
        self._index.start_anew()
        self._begin()

    # Leases

    def acquire(
        self, streams: Sequence[str], owner: str, lease_s: float
    ) -> Sequence[Lease | StoreError]:
        return each(partial(self._acquire, owner=owner, lease_s=lease_s), streams)

    def _acquire(self, stream: str, owner: str, lease_s: float) -> Lease:
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
            locks.give_back(self._disk, root, way_to(stream), self._holder, taken)
            if isinstance(error, OSError):
                raise failed(f"can't open the log of {stream}", error) from error
            raise
        finally:
            self._disk.close(taken.folder)
        self._handles[handle.lease] = self._held[stream] = handle
        try:
            self._logs.add(handle)
        except BaseException:  # an interrupt, while another log was closed
            self.release([handle.lease])
            raise
        return handle.lease

    def _opened(self, stream: str, taken: TakenStream) -> HeldFile:
        end = lines.end_of(self._disk, stream, taken.log)
        if not end.size and taken.lock.started:
            raise locks.lost(stream)
        if end.size != taken.status.size:
            self._mend_tail(taken, end)
        lease = Lease(stream, taken.lock.owner, taken.lock.turn, end.head)
        return HeldFile(lease, way_to(stream), taken, end.size, end.head)

    def _mend_tail(self, taken: TakenStream, end: lines.LogEnd) -> None:
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

    def holder(self, stream: str) -> Holder | None:
        try:
            with self._folder(stream) as folder:
                held = locks.at_work(self._disk, self._root, folder)
        except OSError:
            return None
        return held_for(held[0].owner, held[1]) if held is not None else None

    def renew(self, lease: Lease) -> None:
        handle = self._handle(lease)
        self._must_be_ours(handle)
        claim = handle.taken.claim
        try:
            if self._holder.silent_s(claim) <= handle.taken.lock.lease_s:
                self._must_seem_held(handle)
                self._holder.renew(claim)
                return
            # Somebody may be taking it over, and has seen how long ago it was renewed.
            with self._nobody_taking(handle), handle.syncing:
                self._must_hold(handle)
                self._holder.renew(claim)
        except FileNotFoundError:
            raise self._lost(handle) from None
        except OSError as error:
            raise failed(f"{lease.stream}: can't renew its lease", error) from error

    def _must_seem_held(self, handle: HeldFile) -> None:
        # So that its log is not closed meanwhile; and who is syncing looks for itself.
        if not handle.syncing.locked():
            with handle.syncing:
                self._must_hold(handle)

    @contextmanager
    def _nobody_taking(self, handle: HeldFile) -> Iterator[None]:
        """Keep others from taking a stream over, after those about to do so."""
        folder = self._disk.folder(handle.way, self._root)
        try:
            self._disk.lock(folder)
            yield
        finally:
            self._disk.close(folder)

    def release(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            handle = self._handles.pop(lease, None)
            if handle is not None:
                self._give_back(handle)

    def _give_back(self, handle: HeldFile) -> None:
        # A branch that was cancelled may have left a sync running in its thread.
        with handle.writing, handle.syncing:
            handle.poisoned = "its lease was given back"
            if handle.pid == os.getpid():
                self._logs.remove(handle)
                self._close_log(handle)
                if self._held.get(handle.lease.stream) is handle:
                    del self._held[handle.lease.stream]
                locks.give_back(self._disk, self._root, handle.way, self._holder, handle.taken)

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
            # A note of a holder that was taken over might be believed: its log may be as long.
            at_once = facts is not None and _is_due_at_once(facts) and self._is_held(handle)
            if at_once:
                size = handle.size + len(data)
                self._note(IndexEntry(lease.stream, size, facts, early=True))
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
            if facts is not None:
                handle.news = handle.appended, facts, handle.size
        if self.listener is not None and lease.stream not in self.listener.changed:
            self.listener.hear(lease.stream)

    def _reopen(self, handle: HeldFile) -> None:
        """Open a log again that was closed to make room for others."""
        disk = self._disk
        try:
            log = disk.open(f"{handle.way}/{LOG}", self._root, os.O_RDWR | os.O_APPEND)
        except (FileNotFoundError, PermissionError):
            raise self._lost(handle) from None
        except OSError as error:
            raise failed(f"can't open the log of {handle.lease.stream}", error) from error
        # If we hold it now, we did when it was opened, and who takes over leaves this file behind.
        found = disk.status(log)
        if not self._has(handle, found) or found.size != handle.size:
            disk.close(log)
            raise self._lost(handle)
        handle.log = log
        self._logs.add(handle)

    def _close_log(self, handle: HeldFile) -> None:
        """Close a log whose locks we have; what was written to it is synced first."""
        log, handle.log = handle.log, -1
        if log < 0:
            return
        try:
            if self._durable and not handle.is_clean():
                self._disk.sync(log)
            handle.clean = handle.appended
        except BaseException as error:
            handle.poisoned = str(error) or type(error).__name__
            if not isinstance(error, OSError):
                raise
        finally:
            self._disk.close(log)

    # Deleting and closing

    def delete(self, lease: Lease) -> None:
        handle = self._handle(lease)
        with handle.syncing:
            self._must_hold(handle)
        self._note(IndexEntry(lease.stream))
        try:
            self._remove(lease.stream)
        except OSError as error:
            raise failed(f"can't delete all of {lease.stream}", error) from error
        finally:
            self.release([lease])

    def _remove(self, stream: str) -> None:
        disk = self._disk
        kind, name = stream.split("/", 1)
        gone = f".deleted-{os.urandom(6).hex()}"
        folder = disk.folder(kind, self._root)
        try:
            disk.rename(safe_name(name), gone, folder)
            disk.sync_folder(folder)
            # A process that waits for the lock with the old folder open finds neither lock nor log
            # in it.
            disk.remove_all(gone, folder)
        finally:
            disk.close(folder)

    def rename(self, lease: Lease, stream: str) -> None:
        handle = self._handle(lease)
        self._must_be_ours(handle)
        self._sync(lease)
        try:
            self._clear_the_way(lease, stream)
            with self._nobody_taking(handle):
                with handle.syncing:
                    self._must_hold(handle)
                self._note(IndexEntry(lease.stream))
                self._move(lease.stream, stream)
                handle.way = way_to(stream)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise Conflict(f"{stream} is there already") from None
            raise failed(f"can't rename {lease.stream} to {stream}", error) from error
        self.release([lease])
        if self.listener is not None:
            self.listener.hear(stream)

    def _move(self, old: str, new: str) -> None:
        disk = self._disk
        (old_kind, old_name), (kind, name) = old.split("/", 1), new.split("/", 1)
        with (
            disk.opened(disk.folder(old_kind, self._root)) as before,
            disk.opened(disk.make_folder(kind, self._root)) as after,
        ):
            disk.move(safe_name(old_name), before, safe_name(name), after)
            if self._durable:
                for folder in (after, before, self._root):
                    disk.sync_folder(folder)

    def _clear_the_way(self, lease: Lease, stream: str) -> None:
        """Remove the folder of a stream that was taken hold of, and never written."""
        try:
            with self._folder(stream):
                pass
        except FileNotFoundError:
            return
        there = self._acquire(stream, lease.owner, _MOMENT_S)
        if self._handle(there).head:
            self.release([there])
            raise Conflict(f"{stream} is there already")
        self.delete(there)

    def _stream_folder(self, stream: str, root: int) -> int:
        kind, name = stream.split("/", 1)
        outer = self._disk.make_folder(kind, root)
        try:
            return self._disk.make_folder(safe_name(name), outer)
        finally:
            self._disk.close(outer)

    def close(self) -> None:
        self.release(list(self._handles))
        self._holder.close()
        self.close_folder()


def _is_due_at_once(facts: Facts) -> bool:
    return facts.wake_at is not None and facts.wake_at <= facts.created_at
