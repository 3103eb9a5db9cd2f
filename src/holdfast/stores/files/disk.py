"""The disk: every system call of the file store, in one small object.

It exists so that what the store does to a disk can be read, recorded and made to fail in one
place. Files are opened relative to a folder's descriptor and never through a symlink; folders are
0700 and files 0600 under any umask.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

from holdfast.stores import system

_FILE = system.CLOSE_ON_EXEC | system.NO_LINK
_READ_BYTES = 1 << 22
_ATTEMPTS = 20

_sync_data = system.sync_data


class Status(NamedTuple):
    """The facts of the system about a file."""

    inode: tuple[int, int]
    size: int
    has_name: bool
    may_be_written: bool
    """Whether its owner has left the permission, which those who have it open keep in any case."""
    written_ns: int
    """When it was last written or touched, in nanoseconds since 1970."""


class Disk:
    """Plain files and folders, by descriptor."""

    def folder(self, name: str | os.PathLike[str], parent: int | None = None) -> int:
        """A descriptor of an existing folder. The outermost one may be reached by a symlink."""
        if parent is None:
            system.must_open_folders("a folder of files")
            return os.open(name, system.FOLDER)
        return os.open(name, system.FOLDER | system.NO_LINK, dir_fd=parent)

    def make_folder(self, name: str, parent: int) -> int:
        """A descriptor of a folder, made if it is not there."""
        try:
            return self.folder(name, parent)
        except FileNotFoundError:
            pass
        try:
            os.mkdir(name, 0o700, dir_fd=parent)
        except FileExistsError:
            return self.folder(name, parent)
        return self._for_its_owner(self.folder(name, parent), 0o700)

    def open(self, name: str, parent: int, flags: int) -> int:
        """A descriptor of a file; with O_CREAT it is made for its owner alone."""
        fd = os.open(name, flags | _FILE, 0o600, dir_fd=parent)
        return self._for_its_owner(fd, 0o600) if flags & os.O_CREAT else fd

    def _for_its_owner(self, fd: int, mode: int) -> int:
        try:
            os.fchmod(fd, mode)
        except BaseException:
            self.close(fd)
            raise
        return fd

    @contextmanager
    def opened(self, fd: int) -> Iterator[int]:
        """A descriptor, until the block ends."""
        try:
            yield fd
        finally:
            self.close(fd)

    def write(self, fd: int, data: bytes) -> None:
        """Write all of `data`; short writes are carried on."""
        done = self.write_some(fd, data)
        while done < len(data):
            done += self.write_some(fd, data[done:])

    def write_some(self, fd: int, data: bytes) -> int:
        """Write as much of `data` as the system takes at once; returns how much that was."""
        return os.write(fd, data)

    def overwrite(self, fd: int, data: bytes, offset: int = 0) -> None:
        """Write a few bytes at a place in a file, all of them at once."""
        os.pwrite(fd, data, offset)

    def read_piece(self, fd: int, offset: int, most_bytes: int) -> bytes:
        """A part of a file; all of it unless the file ends there."""
        data = os.pread(fd, most_bytes, offset)
        while 0 < len(data) < most_bytes and (
            more := os.pread(fd, most_bytes - len(data), offset + len(data))
        ):
            data += more
        return data

    def peek(self, fd: int, most_bytes: int, offset: int = 0) -> bytes:
        """A part of a small file, in one read."""
        return os.pread(fd, most_bytes, offset)

    def size(self, fd: int) -> int:
        """How long the file is."""
        return os.fstat(fd).st_size

    def size_of(self, name: str, parent: int) -> int:
        """How long a file is that is not open; -1 if it is not there."""
        try:
            return os.stat(name, dir_fd=parent, follow_symlinks=False).st_size
        except OSError:
            return -1

    def mark_of(self, name: str, parent: int) -> tuple[int, int]:
        """How long a file is that is not open, and when it was last written; (-1, 0) if it is not
        there. Asked of every log for a list: so it is no `Status`, which takes twice the time."""
        try:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except OSError:
            return -1, 0
        return found.st_size, found.st_mtime_ns

    def is_there(self, way: str, parent: int) -> bool:
        """Whether there is something at the end of a way. It is not opened."""
        try:
            os.stat(way, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError:
            pass  # who goes that way is told
        return True

    def size_and_time_of(self, name: str, parent: int) -> tuple[int, float] | None:
        """How long a file is that is not open, and when it was last written or touched."""
        try:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return (found.st_size, found.st_mtime) if stat.S_ISREG(found.st_mode) else None

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
            opened.append(self.open(parts[-1], opened[-1], os.O_RDONLY | system.NO_WAIT))
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
        system.sync_all(fd)

    def sync_all(self, fd: int) -> None:
        """Return when everything written to the disk that holds a file or folder is on it."""
        _sync_all()(fd)

    def device(self, fd: int) -> int:
        """Which disk a file or folder is on."""
        return os.fstat(fd).st_dev

    def rename(self, old: str, new: str, parent: int) -> None:
        """Replace `new` by `old`, at once."""
        os.rename(old, new, src_dir_fd=parent, dst_dir_fd=parent)

    def move(self, old: str, parent: int, new: str, new_parent: int) -> None:
        """Give a file or folder another name in another folder, at once."""
        os.rename(old, new, src_dir_fd=parent, dst_dir_fd=new_parent)

    def exchange(self, one: str, other: str, parent: int) -> bool:
        """Give two files each other's names, at once; False where the system can't do that."""
        return _exchange()(os.fsencode(one), os.fsencode(other), parent)

    def link(self, old: str, new: str, parent: int) -> None:
        """Give a file a second name, if nobody has that name."""
        os.link(old, new, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)

    def unlink(self, name: str, parent: int) -> None:
        """Remove a file."""
        os.unlink(name, dir_fd=parent)

    def remove_folder(self, name: str, parent: int) -> None:
        """Remove a folder, which has to be empty."""
        os.rmdir(name, dir_fd=parent)

    def remove_all(self, name: str, parent: int) -> None:
        """Remove a folder and what is in it. No symlink is followed: it is removed itself."""
        folder = self.folder(name, parent)
        try:
            for _ in range(_ATTEMPTS):
                self._empty(folder)
                try:
                    return self.remove_folder(name, parent)
                except OSError as error:
                    # A process that had it open may have made one more file in it.
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
            self.remove_folder(name, parent)
        finally:
            self.close(folder)

    def _empty(self, folder: int) -> None:
        for inner in self.names(folder):
            try:
                if self.is_folder(inner, folder):
                    self.remove_all(inner, folder)
                else:
                    self.unlink(inner, folder)
            except FileNotFoundError:
                pass  # who made it has removed it

    def names(self, fd: int) -> Sequence[str]:
        """The names in a folder."""
        return os.listdir(fd)

    def try_lock(self, fd: int, *, shared: bool = False) -> bool:
        """Take the file's lock if it is free. It is held until the descriptor is closed.

        A shared one is free as long as all who have it share it.
        """
        return system.try_lock(fd, shared=shared)

    def lock(self, fd: int) -> None:
        """Wait for the file's lock, and take it."""
        system.lock(fd)

    def unlock(self, fd: int) -> None:
        """Free a lock before its descriptor is closed."""
        system.unlock(fd)

    def status(self, fd: int) -> Status:
        """The facts about an open file."""
        return _status(os.fstat(fd))

    def status_of(self, name: str, parent: int) -> Status | None:
        """What is known of the file of that name; None if there is none."""
        try:
            return _status(os.stat(name, dir_fd=parent, follow_symlinks=False))
        except FileNotFoundError:
            return None

    def forbid_writing(self, fd: int) -> None:
        """Take away the permission to write a file. A process that has it open can look at that,
        and for everybody it is so from one moment to the next."""
        os.fchmod(fd, 0o400)

    def inode_of(self, name: str, parent: int) -> tuple[int, int] | None:
        """Which file a name is of now; None if it is gone."""
        try:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def is_folder(self, name: str, parent: int) -> bool:
        """Whether a name is of a folder, and not of a symlink to one."""
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)

    def is_plain(self, fd: int) -> bool:
        """Whether it is a file, and not a pipe or a device that somebody put there."""
        return stat.S_ISREG(os.fstat(fd).st_mode)

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


def _status(found: os.stat_result) -> Status:
    return Status(
        (found.st_dev, found.st_ino),
        found.st_size,
        found.st_nlink > 0,
        bool(found.st_mode & stat.S_IWUSR),
        found.st_mtime_ns,
    )


@cache
def _sync_all() -> Callable[[int], None]:
    import ctypes  # Python has no call of its own for it

    libc = ctypes.CDLL(None, use_errno=True)

    def sync_all(fd: int) -> None:
        if libc.syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return sync_all


_EXCHANGE = 2
_CAN_NOT = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


@cache
def _exchange() -> Callable[[bytes, bytes, int], bool]:
    import ctypes  # as above

    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)

    def exchange(one: bytes, other: bytes, parent: int) -> bool:
        if renameat2 is None:
            return False
        if renameat2(parent, one, parent, other, _EXCHANGE) == 0:
            return True
        number = ctypes.get_errno()
        if number in _CAN_NOT:  # an old kernel, or a file system that has no such thing
            return False
        raise OSError(number, os.strerror(number))

    return exchange
