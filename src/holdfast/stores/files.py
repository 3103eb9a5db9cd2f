"""The file store: a folder that people can read, and that keeps every promise of the port.

    workspace/
      tasks/<safe id>/events.jsonl    the log, one JSON object a line
      tasks/<safe id>/lock            who is writing; its lock and its inode are the lease
      blobs/ab/abcdef…                content-addressed, for what is too large for a line

**Durable** means `fdatasync` of the log and, when its name is new, `fsync` of each folder up to
the workspace. **One writer** means the lock on `lock`, which the system frees when a process dies.
A process that hangs keeps its lock, so a stale one is taken over by *replacing* the file: the
holder's lock file has no name any more, and it knows. It looks after each sync and before it says
that anything is durable; looking before the write instead would acknowledge an event that the new
holder never saw. The new holder then moves the log to a fresh inode, so that whatever the old one
still writes goes to a file that nobody reads.

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
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast import chain
from holdfast.errors import Conflict, LeaseLost, LogDamaged, StorageFailed, TaskBusy
from holdfast.store import Lease
from holdfast.stores.disk import Disk

LOG, LOCK = "events.jsonl", "lock"

_LONGEST_TAIL_BYTES = 1 << 20
"""An append is one event or a few, far smaller than this; a longer tail is no torn append."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
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


class Holder(Struct):
    """What stands in a `lock` file, for those who find it taken."""

    owner: str = "an unknown process"
    epoch: int = 0
    lease_s: float = 30.0


class Named(Struct):
    """The first line of every log says whose it is."""

    id: str


class Handle:
    """One stream held open for writing."""

    __slots__ = (
        "appended", "fd", "folder", "head", "lease", "lock", "new", "pid", "poisoned", "size",
        "synced", "syncing", "writing",
    )  # fmt: skip

    def __init__(self, lease: Lease, folder: int, lock: int) -> None:
        self.lease = lease
        self.folder = folder
        self.lock = lock
        self.fd = -1
        self.new = True
        self.pid = os.getpid()
        self.head = 0
        self.size = 0
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
        self._root = self._open_root()

    def _open_root(self) -> int:
        try:
            # Not only the last: a parent made by us is as private as the workspace.
            missing = [p for p in (self.root, *self.root.parents) if not p.exists()]
            for folder in reversed(missing):
                with suppress(FileExistsError):
                    os.mkdir(folder, 0o700)
                    os.chmod(folder, 0o700)
            return self._disk.folder(self.root)
        except OSError as error:
            raise _failed(f"can't open the workspace {self.root}", error) from error

    # Leases

    def acquire(self, stream: str, owner: str, lease_s: float) -> Lease:
        opened: list[int] = []
        try:
            handle = self._acquire(stream, owner, lease_s, opened)
            self._open_log(handle, opened)
        except BaseException as error:
            for fd in opened:
                self._disk.close(fd)
            if isinstance(error, OSError):
                raise _failed(f"can't take hold of {stream}", error) from error
            raise
        self._handles[handle.lease] = handle
        return handle.lease

    def _acquire(self, stream: str, owner: str, lease_s: float, opened: list[int]) -> Handle:
        disk = self._disk
        folder = self._make_stream_folder(stream)
        opened.append(folder)
        while True:
            lock = disk.open(LOCK, folder, os.O_RDWR | os.O_CREAT)
            opened.append(lock)
            holder = _holder(disk.read_all(lock))
            if not disk.try_lock(lock):
                _must_be_silent(stream, holder, time.time() - disk.touched_at(lock))
                lock = self._take_over(folder, Lease(stream, owner, holder.epoch + 1), lease_s)
                opened.append(lock)
                disk.close(opened.pop(-2))
                break
            if disk.inode(lock) == disk.inode_of(LOCK, folder):
                break
            disk.close(opened.pop())  # replaced between our opening and our locking it
        lease = Lease(stream, owner, _holder(disk.read_all(lock)).epoch + 1)
        self._write_holder(lock, lease, lease_s)
        return Handle(lease, folder, lock)

    def _take_over(self, folder: int, lease: Lease, lease_s: float) -> int:
        """Put a lock file of ours in the place of one whose holder hangs."""
        disk = self._disk
        name = f"{LOCK}.{os.urandom(6).hex()}"
        lock = disk.open(name, folder, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            disk.try_lock(lock)
            self._write_holder(lock, lease, lease_s)
            # From here on the old holder is acknowledged nothing more: what it had acknowledged
            # is in the file, and so it is in the copy.
            disk.rename(name, LOCK, folder)
            self._move_log_to_fresh_inode(folder)
        except BaseException:
            disk.close(lock)
            raise
        return lock

    def _move_log_to_fresh_inode(self, folder: int) -> None:
        disk = self._disk
        try:
            old = disk.open(LOG, folder, os.O_RDONLY)
        except FileNotFoundError:
            return
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

    def _write_holder(self, lock: int, lease: Lease, lease_s: float) -> None:
        self._disk.truncate(lock, 0)
        self._disk.write(lock, msgspec.json.encode(Holder(lease.owner, lease.epoch, lease_s)))

    def renew(self, lease: Lease) -> None:
        handle = self._handle(lease)
        self._must_hold(handle)
        self._disk.touch(handle.lock)

    def release(self, lease: Lease) -> None:
        handle = self._handles.pop(lease, None)
        if handle is None:
            return
        # A branch that was cancelled may have left a sync running in its thread.
        with handle.writing, handle.syncing:
            handle.poisoned = "its lease was given back"
            for fd in (handle.fd, handle.lock, handle.folder):
                if fd >= 0:
                    self._disk.close(fd)

    def _handle(self, lease: Lease) -> Handle:
        handle = self._handles.get(lease)
        if handle is None:
            raise LeaseLost(f"{lease.stream}: this lease was given back")
        return handle

    def _must_hold(self, handle: Handle) -> None:
        if not self._disk.has_name(handle.lock):
            raise LeaseLost(
                f"{handle.lease.stream} was taken over from {handle.lease.owner}: "
                f"this process may write no more of it"
            )

    # Appending

    def append(self, lease: Lease, expected_seq: int, lines: Sequence[bytes]) -> None:
        handle = self._handle(lease)
        with handle.writing:
            self._must_be_sound(handle)
            if handle.head != expected_seq:
                raise Conflict(
                    f"{lease.stream} is at event {handle.head}, the writer thought {expected_seq}"
                )
            data = b"\n".join((*lines, b""))
            try:
                if handle.fd < 0:
                    handle.fd = self._create_log(handle)
                self._disk.write(handle.fd, data)
            except OSError as error:
                self._poison(handle, error)
                self._undo_write(handle)
                raise _failed(f"{lease.stream}: can't write", error) from error
            handle.size += len(data)
            handle.head += len(lines)
            handle.appended += 1

    def _create_log(self, handle: Handle) -> int:
        return self._disk.open(LOG, handle.folder, os.O_RDWR | os.O_APPEND | os.O_CREAT)

    def _undo_write(self, handle: Handle) -> None:
        # A full disk leaves part of a line. The next writer would cut it off; do it now if we can.
        if handle.fd >= 0:
            with suppress(OSError):
                self._disk.truncate(handle.fd, handle.size)

    def sync(self, lease: Lease) -> None:
        handle = self._handle(lease)
        mine = handle.appended
        with handle.syncing:
            if handle.synced >= mine:
                return  # somebody else's sync began after our write
            self._must_be_sound(handle)
            upto = handle.appended
            try:
                self._sync(handle)
            except OSError as error:
                # The kernel may have dropped the dirty pages and would report success next time.
                self._poison(handle, error)
                raise _failed(f"{lease.stream}: can't sync", error) from error
            self._must_hold(handle)
            handle.synced = upto

    def _sync(self, handle: Handle) -> None:
        if not self._durable or handle.fd < 0:
            return
        self._disk.sync(handle.fd)
        if handle.new:
            self._disk.sync_folder(handle.folder)
            kind = self._disk.folder(_kind(handle.lease.stream), self._root)
            self._disk.sync_folder(kind)
            self._disk.close(kind)
            self._disk.sync_folder(self._root)
            handle.new = False

    def _poison(self, handle: Handle, error: OSError) -> None:
        handle.poisoned = error.strerror or str(error)

    def _must_be_sound(self, handle: Handle) -> None:
        if handle.pid != os.getpid():
            raise LeaseLost(f"{handle.lease.stream} belongs to process {handle.pid}, which forked")
        if handle.poisoned:
            raise StorageFailed(
                f"{handle.lease.stream}: an earlier write failed ({handle.poisoned}), so what is "
                f"on the disk is not known: run the task again to read it anew"
            )

    # Opening and reading

    def _open_log(self, handle: Handle, opened: list[int]) -> None:
        try:
            handle.fd = self._disk.open(LOG, handle.folder, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            return
        opened.append(handle.fd)
        self._must_hold(handle)  # else a second taker may be moving the log at this moment
        data = self._disk.read_all(handle.fd)
        whole = _whole(handle.lease.stream, data)
        if len(whole) != len(data):
            self._mend_tail(handle, data, whole)
        handle.size = len(whole)
        handle.head = whole.count(b"\n")

    def _mend_tail(self, handle: Handle, data: bytes, whole: bytes) -> None:
        disk = self._disk
        if len(whole) > len(data):
            disk.write(handle.fd, b"\n")
        else:
            aside = f"{LOG}.torn-{len(whole)}-{os.urandom(3).hex()}"
            kept = disk.open(aside, handle.folder, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            disk.write(kept, data[len(whole) :])
            disk.sync(kept)
            disk.close(kept)
            disk.sync_folder(handle.folder)
            disk.truncate(handle.fd, len(whole))
        disk.sync(handle.fd)

    def read(self, stream: str, after_seq: int = 0) -> Iterator[bytes]:
        kind, name = stream.split("/", 1)
        try:
            data = self._read((kind, safe_name(name), LOG))
        except FileNotFoundError:
            data = b""
        except OSError as error:
            raise _failed(f"can't read {stream}", error) from error
        lines = _whole(stream, data).split(b"\n")
        lines.pop()
        return iter(lines[after_seq:])

    def _read(self, parts: Sequence[str], most_bytes: int | None = None) -> bytes:
        """A file by its way from the root, no part of which may be a symlink."""
        disk = self._disk
        opened = [self._root]
        try:
            for part in parts[:-1]:
                opened.append(disk.folder(part, opened[-1]))
            opened.append(disk.open(parts[-1], opened[-1], os.O_RDONLY | os.O_NONBLOCK))
            if most_bytes is not None:
                return disk.read(opened[-1], 0, most_bytes)
            return disk.read_all(opened[-1])
        finally:
            for fd in opened[1:]:
                disk.close(fd)

    def streams(self, prefix: str) -> Iterator[str]:
        kind = _kind(prefix)
        try:
            folder = self._disk.folder(kind, self._root)
        except FileNotFoundError:
            return
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
            first = self._read((kind, name, LOG), _LONGEST_TAIL_BYTES).partition(b"\n")[0]
            return msgspec.json.decode(first, type=Named).id
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None

    def delete(self, lease: Lease) -> None:
        handle = self._handle(lease)
        self._must_hold(handle)
        kind, name = lease.stream.split("/", 1)
        gone = f".deleted-{os.urandom(6).hex()}"
        folder = self._disk.folder(kind, self._root)
        try:
            self._disk.rename(safe_name(name), gone, folder)
            self._disk.sync_folder(folder)
        finally:
            self._disk.close(folder)
        self.release(lease)
        shutil.rmtree(self.root / kind / gone)

    def _make_stream_folder(self, stream: str) -> int:
        kind, name = stream.split("/", 1)
        outer = self._disk.make_folder(kind, self._root)
        try:
            return self._disk.make_folder(safe_name(name), outer)
        finally:
            self._disk.close(outer)

    # Blobs

    def put_blob(self, data: bytes) -> str:
        digest = sha256(data).hexdigest()
        try:
            self._put_blob(digest, data)
        except OSError as error:
            raise _failed(f"can't write a value of {len(data):,} bytes", error) from error
        return digest

    def _put_blob(self, digest: str, data: bytes) -> None:
        disk = self._disk
        outer = disk.make_folder("blobs", self._root)
        inner = disk.make_folder(digest[:2], outer)
        temp = f".{digest}.{os.urandom(6).hex()}"
        try:
            if disk.inode_of(digest, inner) is None:
                fd = disk.open(temp, inner, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
                try:
                    disk.write(fd, data)
                    if self._durable:
                        disk.sync(fd)
                finally:
                    disk.close(fd)
                disk.rename(temp, digest, inner)
            if self._durable:
                # Also when it was there: who put it may have died before it got this far.
                for folder in (inner, outer, self._root):
                    disk.sync_folder(folder)
        except OSError:
            with suppress(OSError):
                disk.unlink(temp, inner)
            raise
        finally:
            disk.close(inner)
            disk.close(outer)

    def get_blob(self, digest: str) -> bytes:
        if not _DIGEST.fullmatch(digest):
            raise LogDamaged(f"blobs/{digest:.80}", 0, "that is no name of a blob")
        try:
            data = self._read(("blobs", digest[:2], digest))
        except OSError as error:
            raise LogDamaged(f"blobs/{digest}", 0, f"the blob can't be read ({error})") from error
        if sha256(data).hexdigest() != digest:
            raise LogDamaged(f"blobs/{digest}", 0, "the blob's bytes do not fit its name")
        return data

    def close(self) -> None:
        for lease in list(self._handles):
            self.release(lease)
        if self._root >= 0:
            self._disk.close(self._root)
            self._root = -1


def _kind(stream: str) -> str:
    return stream.split("/", 1)[0]


def _holder(data: bytes) -> Holder:
    # Written in place by its holder, so a reader may find it empty or half-way.
    try:
        return msgspec.json.decode(data, type=Holder)
    except msgspec.MsgspecError:
        return Holder()


def _must_be_silent(stream: str, holder: Holder, silent_s: float) -> None:
    if silent_s <= holder.lease_s:
        raise TaskBusy(
            f"{stream} is being driven by {holder.owner}, alive {silent_s:.0f} s ago. Wait for it "
            f"to end; if it hangs, its lease of {holder.lease_s:g} s runs out and this can be "
            f"tried again"
        )


def _whole(stream: str, data: bytes) -> bytes:
    """The log without its torn tail, or with the newline that a whole last line lacks."""
    end = data.rfind(b"\n") + 1
    tail = data[end:]
    if not tail:
        return data
    start = data.rfind(b"\n", 0, end - 1) + 1 if end else 0
    before = chain.sum_of(data[start : end - 1]) if end else chain.ROOT
    if chain.check(before, tail) is not None:
        return data + b"\n"
    if chain.check(before, tail[:-1]) is not None:
        seq = data.count(b"\n") + 1
        raise LogDamaged(stream, seq, "the newline that ends it was overwritten")
    if len(tail) > _LONGEST_TAIL_BYTES:
        what = f"{len(tail):,} bytes without a newline are more than a torn append leaves"
        raise LogDamaged(stream, data.count(b"\n") + 1, what)
    return data[:end]


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
