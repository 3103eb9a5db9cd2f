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

import errno
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.errors import BadInput, Conflict, LeaseLost, StorageFailed
from holdfast.store import Facts, Lease, Post
from holdfast.stores import blobs, inbox, lines, locks
from holdfast.stores.disk import Disk
from holdfast.stores.index import UNKNOWN, Index
from holdfast.stores.locks import LOCK, LOG, Taken

_LOOK_ANEW_S = 15.0
"""How long an entry of the index may be out of date until those who look for work know."""

_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")


def safe_name(name: str) -> str:
    """A file name for any text: itself where it is plain, else a readable part and a hash.

    >>> safe_name("trip-42"), safe_name("../Trip 42")
    ('trip-42', 'Trip_42~2c9cb20c77bd60bd')
    """
    if _PLAIN.fullmatch(name):
        return name
    readable = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:60]
    return f"{readable}~{sha256(name.encode()).hexdigest()[:16]}"


class Named(Struct):
    """The first line of every log says whose it is."""

    id: str


class Handle:
    """One stream held open for writing."""

    __slots__ = (
        "appended", "head", "lease", "new", "pid", "poisoned", "size", "synced", "syncing",
        "taken", "writing",
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
        self.writing = threading.Lock()
        self.syncing = threading.Lock()


class FileStore:
    """Streams as files under one folder."""

    def __init__(self, root: Path, *, sync: bool = True, disk: Disk | None = None) -> None:
        self.root = root
        self.url = str(root)
        self._disk = disk or Disk()
        self._durable = sync
        self._handles: dict[Lease, Handle] = {}
        self._root_fd = self._open_root()
        self._index = Index(self._disk, self._root_fd)
        self._looked_at: float | None = None

    def _open_root(self) -> int:
        try:
            # Not only the last: a parent made by us is as private as the workspace.
            missing = [p for p in (self.root, *self.root.parents) if not p.exists()]
            for folder in reversed(missing):
                with suppress(FileExistsError):
                    os.mkdir(folder, 0o700)
                    os.chmod(folder, 0o700)
                    self._sync_name_of(folder)
            return self._disk.folder(self.root)
        except OSError as error:
            raise _failed(f"can't open the workspace {self.root}", error) from error

    def _sync_name_of(self, folder: Path) -> None:
        if self._durable:
            parent = self._disk.folder(folder.parent)
            self._disk.sync_folder(parent)
            self._disk.close(parent)

    @property
    def _root(self) -> int:
        if self._root_fd < 0:
            raise BadInput(f"the store {self.url} was closed: open it again")
        return self._root_fd

    # Leases

    def acquire(self, stream: str, owner: str, lease_s: float) -> Lease:
        root = self._root
        try:
            taken = locks.take(
                self._disk, stream, lambda: self._stream_folder(stream, root), owner, lease_s
            )
        except OSError as error:
            raise _failed(f"can't take hold of {stream}", error) from error
        try:
            handle = self._opened(stream, taken)
        except BaseException as error:
            locks.give_back(self._disk, taken)
            if isinstance(error, OSError):
                raise _failed(f"can't open the log of {stream}", error) from error
            raise
        self._handles[handle.lease] = handle
        return handle.lease

    def _opened(self, stream: str, taken: Taken) -> Handle:
        end = lines.end_of(self._disk, stream, taken.log)
        if not end.size and taken.holder.started:
            raise locks.lost(stream)
        if end.size != self._disk.size(taken.log):
            self._mend_tail(taken, end)
        lease = Lease(stream, taken.holder.owner, taken.holder.epoch)
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

    @contextmanager
    def _folder(self, stream: str) -> Iterator[int]:
        """The folder of a stream that is there."""
        kind, name = stream.split("/", 1)
        outer = self._disk.folder(kind, self._root)
        try:
            folder = self._disk.folder(safe_name(name), outer)
        finally:
            self._disk.close(outer)
        try:
            yield folder
        finally:
            self._disk.close(folder)

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
                raise _failed(f"{lease.stream}: can't write", error) from error
            handle.size += len(data)
            handle.head += len(lines)
            handle.appended += 1
            if facts is not None and not at_once:
                self._note(lease.stream, facts, handle.size)

    def _note(self, stream: str, facts: Facts | None, size: int) -> None:
        with suppress(OSError):  # a copy, which is looked at with that in mind
            self._index.note(stream, facts, size)

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
                raise _failed(f"{lease.stream}: can't sync", error) from error
            self._must_hold(handle)
            handle.synced = upto

    def _sync_names(self, handle: Handle) -> None:
        """What is only to be done once: the names on the way to the log are made durable."""
        disk, taken = self._disk, handle.taken
        if self._durable:
            disk.sync_folder(taken.folder)
            kind = disk.folder(handle.lease.stream.split("/", 1)[0], self._root)
            disk.sync_folder(kind)
            disk.close(kind)
            disk.sync_folder(self._root)
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

    # Reading

    def read(self, stream: str, after_seq: int = 0) -> Iterator[bytes]:
        if after_seq > 0 and (found := self._read_end(stream, after_seq)) is not None:
            return iter(found)
        return self._read_all(stream, after_seq)

    def _read_all(self, stream: str, after_seq: int) -> Iterator[bytes]:
        number = 0
        for line in self._lines(stream, lines.forwards):
            number += 1
            if number > after_seq:
                yield line
        if not number:
            kind, name = stream.split("/", 1)
            self._must_never_have_started(stream, (kind, safe_name(name)))

    def _read_end(self, stream: str, after_seq: int) -> list[bytes] | None:
        """The lines after an event, from the end of the log; None if they do not say which is
        which."""
        found: list[bytes] = []
        for line in self.tail(stream):
            seq = lines.seq_of(line)
            if not seq:
                return None
            if seq <= after_seq:
                break
            found.append(line)
        return found[::-1]

    def tail(self, stream: str) -> Iterator[bytes]:
        return self._lines(stream, lines.backwards)

    def _lines(
        self, stream: str, reading: Callable[[Disk, str, int], Iterator[bytes]]
    ) -> Iterator[bytes]:
        disk = self._disk
        try:
            with self._folder(stream) as folder:
                fd = disk.open(LOG, folder, os.O_RDONLY | os.O_NONBLOCK)
            try:
                yield from reading(disk, stream, fd)
            finally:
                disk.close(fd)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _failed(f"can't read {stream}", error) from error

    def _must_never_have_started(self, stream: str, way: tuple[str, str]) -> None:
        with suppress(OSError):
            if locks.was_started(self._disk.read_file((*way, LOCK), self._root)):
                raise locks.lost(stream)

    def streams(self, prefix: str) -> Iterator[str]:
        kind = prefix.split("/", 1)[0]
        try:
            folder = self._disk.folder(kind, self._root)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _failed(f"can't list {kind}", error) from error
        try:
            names = sorted(self._disk.names(folder))
        finally:
            self._disk.close(folder)
        for name in names:
            found = name if _PLAIN.fullmatch(name) else self._name_in(kind, name)
            if found is not None and f"{kind}/{found}".startswith(prefix):
                yield f"{kind}/{found}"

    def _name_in(self, kind: str, name: str) -> str | None:
        try:
            start = self._disk.read_file((kind, name, LOG), self._root, lines.LONGEST_TAIL_BYTES)
            return msgspec.json.decode(start.partition(b"\n")[0], type=Named).id
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None

    # Facts

    def facts(self, prefix: str) -> Iterator[tuple[str, Facts | None]]:
        kind = prefix.split("/", 1)[0]
        known = self._index.entries()
        try:
            folder = self._disk.folder(kind, self._root)
        except FileNotFoundError:
            return
        try:
            for stream in self.streams(prefix):
                entry = known.get(stream)
                name = safe_name(stream.split("/", 1)[1])
                if entry is None or entry.size != self._disk.size_of(f"{name}/{LOG}", folder):
                    yield stream, None
                else:
                    yield stream, entry.facts
        finally:
            self._disk.close(folder)

    def remember(self, stream: str, facts: Facts, seq: int) -> None:
        try:
            with self._folder(stream) as folder:
                size = self._disk.size_of(LOG, folder)
        except OSError:
            return
        if lines.seq_of(next(self.tail(stream), b"")) == seq:
            self._note(stream, facts, size)

    def due(self, prefix: str, now: datetime) -> Iterator[tuple[str, Facts | None]]:
        if self._looked_at is None or time.monotonic() - self._looked_at > _LOOK_ANEW_S:
            self._looked_at = time.monotonic()
            for stream, facts in self.facts(prefix):
                if facts is None or (facts.wake_at is not None and facts.wake_at <= now):
                    yield stream, facts
            return
        for stream, entry in self._index.entries().items():
            found = entry.facts
            if stream.startswith(prefix) and found and found.wake_at and found.wake_at <= now:
                yield stream, found

    # Inboxes

    def post(self, stream: str, name: str, data: bytes) -> bool:
        try:
            with self._folder(stream) as folder:
                return inbox.post(self._disk, folder, name, data, durable=self._durable)
        except OSError as error:
            raise _failed(f"can't leave a message for {stream}", error) from error

    def inbox(self, streams: Collection[str]) -> Sequence[Post]:
        found: list[Post] = []
        for stream in streams:
            with suppress(FileNotFoundError), self._folder(stream) as folder:
                found += inbox.messages(self._disk, stream, folder)
        return found

    def unpost(self, stream: str, name: str) -> None:
        with suppress(FileNotFoundError), self._folder(stream) as folder:
            inbox.remove(self._disk, folder, name)

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

    # Blobs

    def put_blob(self, data: bytes) -> str:
        try:
            return blobs.put(self._disk, self._root, data, durable=self._durable)
        except OSError as error:
            raise _failed(f"can't write a value of {len(data):,} bytes", error) from error

    def get_blob(self, digest: str) -> bytes:
        return blobs.get(self._disk, self._root, digest)

    def close(self) -> None:
        for lease in list(self._handles):
            self.release(lease)
        self._index.close()
        if self._root_fd >= 0:
            self._disk.close(self._root_fd)
            self._root_fd = -1


def _is_due_at_once(facts: Facts) -> bool:
    return facts.wake_at is not None and facts.wake_at <= facts.created_at


def _failed(what: str, error: OSError) -> StorageFailed:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "The disk is full: free some space, then run the task again; it goes on from here"
    elif error.errno in (errno.ELOOP, errno.ENOTDIR):
        advice = "A symlink or a file is where a folder of the workspace should be: remove it"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        advice = "Check who owns the folder and whether it can be written"
    elif error.errno in (errno.EMFILE, errno.ENFILE):
        advice = "Too many files are open: raise the limit (ulimit -n)"
    else:
        advice = "What was acknowledged before is safe"
    return StorageFailed(f"{what}: {error.strerror or error}. {advice}")
