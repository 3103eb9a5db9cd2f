"""The disk: every system call of the file store, in one small object.

It exists so that what the store does to a disk can be read, recorded and made to fail in one
place. Files are opened relative to a folder's descriptor and never through a symlink; folders are
0700 and files 0600 under any umask.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from functools import cache

_FILE = os.O_CLOEXEC | os.O_NOFOLLOW
_READ_BYTES = 1 << 20

_sync_data = getattr(os, "fdatasync", os.fsync)  # not every system has the cheaper one


class Disk:
    """Plain files and folders, by descriptor."""

    def folder(self, name: str | os.PathLike[str], parent: int | None = None) -> int:
        """A descriptor of an existing folder. The outermost one may be reached by a symlink."""
        follow = 0 if parent is None else os.O_NOFOLLOW
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | follow, dir_fd=parent)

    def make_folder(self, name: str, parent: int) -> int:
        """A descriptor of a folder, made if it is not there."""
        try:
            os.mkdir(name, 0o700, dir_fd=parent)
        except FileExistsError:
            return self.folder(name, parent)
        fd = self.folder(name, parent)
        os.fchmod(fd, 0o700)
        return fd

    def open(self, name: str, parent: int, flags: int) -> int:
        """A descriptor of a file; with O_CREAT it is made for its owner alone."""
        fd = os.open(name, flags | _FILE, 0o600, dir_fd=parent)
        if flags & os.O_CREAT:
            os.fchmod(fd, 0o600)
        return fd

    def write(self, fd: int, data: bytes) -> None:
        """Write all of `data`; short writes are carried on."""
        done = os.write(fd, data)
        while done < len(data):
            done += os.write(fd, data[done:])

    def overwrite(self, fd: int, data: bytes) -> None:
        """Write at the beginning of a file, where the descriptor may stand elsewhere."""
        os.pwrite(fd, data, 0)

    def read_piece(self, fd: int, offset: int, most_bytes: int) -> bytes:
        """A part of a file; all of it unless the file ends there."""
        data = os.pread(fd, most_bytes, offset)
        while 0 < len(data) < most_bytes and (
            more := os.pread(fd, most_bytes - len(data), offset + len(data))
        ):
            data += more
        return data

    def size(self, fd: int) -> int:
        """How long the file is."""
        return os.fstat(fd).st_size

    def size_of(self, name: str, parent: int) -> int:
        """How long a file is that is not open; -1 if it is not there."""
        try:
            return os.stat(name, dir_fd=parent, follow_symlinks=False).st_size
        except OSError:
            return -1

    def is_there(self, way: str, parent: int) -> bool:
        """Whether there is something at the end of a way. It is not opened."""
        try:
            os.stat(way, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError:
            pass  # who goes that way is told
        return True

    def read_all(self, fd: int, offset: int = 0) -> bytes:
        """The whole file, or what follows after `offset`."""
        parts: list[bytes] = []
        while part := os.pread(fd, _READ_BYTES, offset):
            parts.append(part)
            offset += len(part)
        return b"".join(parts)

    def read_file(self, parts: Sequence[str], root: int, most_bytes: int | None = None) -> bytes:
        """A file by its way from `root`, no part of which may be a symlink."""
        opened = [root]
        try:
            for part in parts[:-1]:
                opened.append(self.folder(part, opened[-1]))
            opened.append(self.open(parts[-1], opened[-1], os.O_RDONLY | os.O_NONBLOCK))
            if most_bytes is not None:
                return os.pread(opened[-1], most_bytes, 0)
            return self.read_all(opened[-1])
        finally:
            for fd in opened[1:]:
                self.close(fd)

    def truncate(self, fd: int, size: int) -> None:
        """Cut the file."""
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """Return when the file's bytes are on the disk."""
        _sync_data(fd)

    def sync_folder(self, fd: int) -> None:
        """Return when the names made in the folder are on the disk."""
        os.fsync(fd)

    def sync_all(self, fd: int) -> None:
        """Return when everything written to the disk that holds a file or folder is on it."""
        _sync_all()(fd)

    def device(self, fd: int) -> int:
        """Which disk a file or folder is on."""
        return os.fstat(fd).st_dev

    def rename(self, old: str, new: str, parent: int) -> None:
        """Replace `new` by `old`, at once."""
        os.rename(old, new, src_dir_fd=parent, dst_dir_fd=parent)

    def link(self, old: str, new: str, parent: int) -> None:
        """Give a file a second name, if nobody has that name."""
        os.link(old, new, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)

    def unlink(self, name: str, parent: int) -> None:
        """Remove a file."""
        os.unlink(name, dir_fd=parent)

    def names(self, fd: int) -> Sequence[str]:
        """What a folder holds."""
        return os.listdir(fd)

    def try_lock(self, fd: int) -> bool:
        """Take the file's lock if it is free. It is held until the descriptor is closed.

        `flock` and not `lockf`: a POSIX lock is lost when *any* descriptor of the file is closed.
        """
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
                return False
            raise
        return True

    def unlock(self, fd: int) -> None:
        """Free a lock before its descriptor is closed."""
        fcntl.flock(fd, fcntl.LOCK_UN)

    def inode_of(self, name: str, parent: int) -> tuple[int, int] | None:
        """Which file a name is of now; None if it is gone."""
        try:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def has_name(self, fd: int) -> bool:
        """Whether the file still has a name: it has none once another took its place."""
        return os.fstat(fd).st_nlink > 0

    def touched_at(self, fd: int) -> float:
        """When the file was last written or touched, in seconds since 1970."""
        return os.fstat(fd).st_mtime

    def touch(self, fd: int) -> None:
        """Say that the file is in use."""
        os.utime(fd)

    def close(self, fd: int) -> None:
        """Let a descriptor go."""
        os.close(fd)


@cache
def _sync_all() -> Callable[[int], None]:
    import ctypes  # Python has no call of its own for it

    libc = ctypes.CDLL(None, use_errno=True)

    def sync_all(fd: int) -> None:
        if libc.syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return sync_all
