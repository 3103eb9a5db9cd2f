"""The system that Holdfast runs on: all that differs between Linux, macOS and Windows.

No other module asks which system it is, or uses a call that one of the three lacks; a test holds
that. The tests replace what is here to enforce the rules of another system.

    Linux     fdatasync reaches the disk; flock; folders are opened, and names looked up in them
    macOS     fsync stops at the disk's own cache: F_FULLFSYNC goes on to the disk itself
    Windows   no flock, but msvcrt; no descriptors of folders, so no files store
"""

from __future__ import annotations

import errno
import importlib
import os
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType

from holdfast.errors import BadInput


def _module(name: str) -> ModuleType | None:
    """A module that not every system has."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_fcntl, _msvcrt = _module("fcntl"), _module("msvcrt")
resource: ModuleType | None = _module("resource")
"""`resource` limits what a process may take; None where it can't be limited."""

# Flags of os.open. A system does not need, or can't do, the calls that it does not know: see
# `must_open_folders`.
NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
CLOSE_ON_EXEC: int = getattr(os, "O_CLOEXEC", 0)
NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)
FOLDER: int = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | CLOSE_ON_EXEC


def host_name() -> str:
    """The name of this machine.

    >>> host_name() != ""
    True
    """
    return platform.node() or "localhost"


def user_id() -> int | None:
    """The user of this process; None where files don't say whose they are."""
    get = getattr(os, "getuid", None)
    return None if get is None else int(get())


def must_open_folders(what: str) -> None:
    """Refuse what needs descriptors of folders, on a system that has none."""
    if os.open not in os.supports_dir_fd or _fcntl is None:
        raise BadInput(
            f"{what} can't be kept on {platform.system() or sys.platform}, which can't open a "
            f"folder as a file: use SQLite (sqlite:///agents.db) or PostgreSQL"
        )


# Syncs. A sync that stops at a cache which a power cut empties would break the first promise.

_FULL: int | None = getattr(_fcntl, "F_FULLFSYNC", None)
_UNKNOWN = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOTTY, errno.EOPNOTSUPP})


def sync_all(fd: int) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    if _FULL is not None and _fcntl is not None:
        try:
            _fcntl.fcntl(fd, _FULL)
        except OSError as error:
            if error.errno not in _UNKNOWN:  # a file system that does not know it, such as a share
                raise
        else:
            return
    os.fsync(fd)


sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync) if _FULL is None else sync_all
"""Bring the data of a file to the disk, and as much of what is known of it as is needed. It is the
system's own function where that is enough, because every step waits for it."""


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Bring the names in a folder to the disk. Windows keeps them in a journal of its own."""
    if os.open in os.supports_dir_fd:
        fd = os.open(path, FOLDER)
        try:
            sync_all(fd)
        finally:
            os.close(fd)


def make_private(fd: int) -> None:
    """Leave a file to its owner alone, under any umask. Windows goes by the folder it is in."""
    if chmod := getattr(os, "fchmod", None):
        chmod(fd, 0o600)


# Locks, which are held until their descriptor is closed. `flock` and not `lockf`: a POSIX lock is
# lost when *any* descriptor of the file is closed.

_FAR = 0x7FFFFFFF
"""Windows locks bytes, and keeps others from reading them: so one that no file has."""


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Take a file's lock if it is free. Where there are no shared locks, it is not shared."""
    try:
        if _fcntl is not None:
            _fcntl.flock(fd, (_fcntl.LOCK_SH if shared else _fcntl.LOCK_EX) | _fcntl.LOCK_NB)
        elif _msvcrt is not None:
            _locked_far(fd, _msvcrt.LK_NBLCK)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK):
            return False
        raise
    return True


def lock(fd: int) -> None:
    """Wait for a file's lock, and take it."""
    if _fcntl is not None:
        _fcntl.flock(fd, _fcntl.LOCK_EX)
        return
    while not _waited_for(fd):
        pass


def _waited_for(fd: int) -> bool:
    if _msvcrt is None:
        return True
    with suppress(OSError):  # after ten seconds it gives up
        _locked_far(fd, _msvcrt.LK_LOCK)
        return True
    return False


def unlock(fd: int) -> None:
    """Free a lock before its descriptor is closed."""
    if _fcntl is not None:
        _fcntl.flock(fd, _fcntl.LOCK_UN)
    elif _msvcrt is not None:
        _locked_far(fd, _msvcrt.LK_UNLCK)


def _locked_far(fd: int, how: int) -> None:
    if _msvcrt is not None:
        before = os.lseek(fd, 0, os.SEEK_CUR)
        try:
            os.lseek(fd, _FAR, os.SEEK_SET)
            _msvcrt.locking(fd, how, 1)
        finally:
            os.lseek(fd, before, os.SEEK_SET)


def most_open_files() -> int | None:
    """How many files this process may open; None for as many as it likes, or where nobody says."""
    if resource is None:
        return None
    limit: int = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit == resource.RLIM_INFINITY else limit
