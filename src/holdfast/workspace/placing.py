"""A file of somebody's folder, looked at and replaced: at once, durably, and nothing lost.

Who replaces a file has seen it before, and is refused if it is another one by now. So of several
that edit a file at once each has the edit of the others: among themselves they take turns, by a
lock on the folder. An editor knows nothing of that lock. So the file is put there by exchanging
names, and what came out is looked at again: if it was written meanwhile, the two are exchanged
back.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from msgspec import Struct

from holdfast.core.filing import OURS
from holdfast.errors import BadInput

# Putting a file in the place of another, so that what was there is still at hand.
#
# A rename drops what had the name, also what somebody put there a moment ago. Two names that are
# exchanged drop nothing: whoever replaced a file can look at what it was, and decide.


_EXCHANGE = 2
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


def exchange(new: str, name: str, folder: int) -> None:
    """Exchange two names of a folder, at once where the system can; `name` has to be there."""
    if not _exchanged(new, name, folder):
        aside = f"{new}-old"
        os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
        os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.rename(aside, new, src_dir_fd=folder, dst_dir_fd=folder)


def _exchanged(new: str, name: str, folder: int) -> bool:
    call = _renameat2()
    if call is None:
        return False
    if call(folder, os.fsencode(new), folder, os.fsencode(name), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), name)


@cache
def _renameat2() -> Any:
    """The system call that Python has no name for; None where there is none."""
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def set_aside(old: str, name: str, folder: int) -> str:
    """Give a file or folder the first free name `name.edited-<n>`; returns that."""
    for number in count(1):
        aside = f"{name}.edited-{number}"
        try:
            os.stat(aside, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(old, aside, src_dir_fd=folder, dst_dir_fd=folder)
            return aside
    raise OSError(errno.EEXIST, "there is no end of edited files", name)


class SeenFile(Struct, frozen=True):
    """A file as it was: its bytes and its permissions; None if there was none."""

    data: bytes | None = None
    mode: int | None = None


def placed(path: str | Path, root: str | Path | None) -> Path:
    """Where a file really is. With a `root` it has to be in there, symlinks and all."""
    if not str(path) or "\0" in str(path):
        raise BadInput(f"{str(path)!r:.60} is no path")
    given = Path(path)
    if root is None:
        return Path(os.path.realpath(given))
    top = Path(os.path.realpath(root))
    found = Path(os.path.realpath(top / given))
    if not found.is_relative_to(top) or found == top:
        raise BadInput(f"{path} is outside of {root}: it leads to {found}. Nothing was changed")
    return found


def look(place: Path) -> SeenFile:
    """What is there now."""
    try:
        found = os.stat(place, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            raise BadInput(f"{place} is no file, but {_kind(found)}: nothing was changed")
        fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return SeenFile()
    except OSError as error:
        raise BadInput(f"{place} can't be read: {error}") from None
    with open(fd, "rb") as file:
        return SeenFile(file.read(), stat.S_IMODE(found.st_mode))


def _kind(found: os.stat_result) -> str:
    if stat.S_ISDIR(found.st_mode):
        return "a folder"
    return "a symlink" if stat.S_ISLNK(found.st_mode) else "something else"


def put(place: Path, seen: SeenFile, wanted: SeenFile) -> bool:
    """Put something in the place of what was seen; False, and nothing changed, if something else
    is there by now. `wanted` may be nothing at all."""
    folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # until it is closed
        if look(place).data != seen.data:
            return False
        if wanted.data is None:
            done = _removed(place.name, seen, folder)
        else:
            done = _replaced(place.name, seen, wanted, wanted.data, folder)
        os.fsync(folder)
        return done
    finally:
        os.close(folder)


def _replaced(name: str, seen: SeenFile, wanted: SeenFile, data: bytes, folder: int) -> bool:
    new = f"{OURS}{os.urandom(8).hex()}"
    try:
        _write(new, data, wanted.mode, folder)
        if seen.data is None:
            with suppress(FileExistsError):
                os.link(new, name, src_dir_fd=folder, dst_dir_fd=folder)
                return True
            return False
        try:
            exchange(new, name, folder)
        except FileNotFoundError:
            return False
        if _bytes_of(new, folder) == seen.data:
            return True
        exchange(new, name, folder)
        if _bytes_of(new, folder) != data:  # and once more, in the very moment
            set_aside(new, name, folder)
        return False
    finally:
        with suppress(FileNotFoundError):
            os.unlink(new, dir_fd=folder)


def _removed(name: str, seen: SeenFile, folder: int) -> bool:
    aside = f"{OURS}{os.urandom(8).hex()}"
    try:
        os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
    except FileNotFoundError:
        return seen.data is None
    is_same = _bytes_of(aside, folder) == seen.data
    if is_same:
        os.unlink(aside, dir_fd=folder)
        return True
    try:
        os.link(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:  # there is another one again, and this one is somebody's, too
        set_aside(aside, name, folder)
    else:
        os.unlink(aside, dir_fd=folder)
    return False


def _write(new: str, data: bytes, mode: int | None, folder: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    fd = os.open(new, flags, 0o666, dir_fd=folder)
    with open(fd, "wb") as file:
        if mode is not None:
            os.fchmod(fd, mode)
        file.write(data)
        file.flush()
        os.fsync(fd)


def _bytes_of(name: str, folder: int) -> bytes | None:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:
        return None
    with open(fd, "rb") as file:
        return file.read()


def missing_folders(place: Path) -> tuple[str, ...]:
    """A folder and those around it that are not there, the outermost first."""
    missing: list[str] = []
    while not place.is_dir():
        if place.exists() or place.is_symlink():
            raise BadInput(f"{place} is in the way: it is no folder")
        missing.append(str(place))
        place = place.parent
    return tuple(reversed(missing))


def make_folders(place: Path) -> None:
    """Make a folder and those around it, durably."""
    for name in missing_folders(place):
        with suppress(FileExistsError):
            Path(name).mkdir()
        fd = os.open(Path(name).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
