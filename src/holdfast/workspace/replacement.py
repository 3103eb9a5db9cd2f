"""Replacing files that people read, and may edit while we do.

A page is written aside and exchanged with the one that is there, at once; what came out is looked
at, because somebody may have written to it until then. A text that a person wrote is never lost: it
stays where it is (`leave`), or is kept beside the new one as `NAME.edited-1`.

Nothing here is synced: after a power cut the files are made anew from the log.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Literal

from msgspec import Struct

from holdfast.core.filing import OURS
from holdfast.errors import BadInput, StorageFailed
from holdfast.stores import system
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.folder import failed

Outcome = Literal["same", "made", "replaced", "removed", "edited", "kept aside", "busy"]
"""The outcome for a file. An *edited* file was left alone; of a file *kept aside* the edited
version has another name now."""

DISK = Disk()
_ATTEMPTS = 5
_MOST_BYTES = 1 << 28
"""A longer file is none of ours, and nobody needs to know what it is."""


@contextmanager
def place(disk: Disk, root: Path, *parts: str, make: bool = False) -> Iterator[int]:
    """A folder below `root`, none of whose names may be a symlink."""
    opened = [disk.folder(root)]
    try:
        for part in parts:
            step = disk.make_folder if make else disk.folder
            opened.append(step(part, opened[-1]))
        yield opened[-1]
    finally:
        for fd in opened:
            disk.close(fd)


def make_root(folder: Path) -> None:
    """A folder for such files, for its owner alone if it is made here."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise failed(f"can't make the folder {folder}", error) from error


def replace(
    disk: Disk,
    folder: int,
    name: str,
    data: bytes,
    is_ours: Callable[[bytes], bool],
    *,
    leave: bool = False,
) -> Outcome:
    """Let a file have this content. A file that is not ours is left, or kept aside."""
    for _ in range(_ATTEMPTS):
        before = read(disk, folder, name)
        if before == data:
            return "same"
        if before is not None and leave and not is_ours(before):
            return "edited"
        temporary = _written(disk, folder, data)
        try:
            if before is None:
                disk.link(temporary, name, folder)  # unless somebody made one meanwhile
                return "made"
            return _exchanged(disk, folder, temporary, name, data, is_ours, leave)
        except (FileExistsError, FileNotFoundError):
            continue  # it came or went between the two looks
        finally:
            with suppress(FileNotFoundError):
                disk.unlink(temporary, folder)
    return "busy"


def remove(
    disk: Disk, folder: int, name: str, is_ours: Callable[[bytes], bool], *, leave: bool = False
) -> Outcome | None:
    """Let there be no such file; None if there is none. A file that is not ours is left, or kept
    aside."""
    before = read(disk, folder, name)
    if before is None:
        return None
    if leave and not is_ours(before):
        return "edited"
    temporary = f".{os.urandom(6).hex()}"
    disk.rename(name, temporary, folder)
    try:
        out = read(disk, folder, temporary)
        if out is None or is_ours(out):
            return "removed"
        keep_aside(disk, folder, temporary, name)
        return "kept aside"
    finally:
        disk.unlink(temporary, folder)


def _exchanged(
    disk: Disk,
    folder: int,
    temporary: str,
    name: str,
    data: bytes,
    is_ours: Callable[[bytes], bool],
    leave: bool,
) -> Outcome:
    exchange(temporary, name, folder, disk)
    out = read(disk, folder, temporary)
    if out is None or is_ours(out):
        return "replaced"
    if not leave:
        keep_aside(disk, folder, temporary, name)
        return "kept aside"
    exchange(temporary, name, folder, disk)
    if read(disk, folder, temporary) != data:  # edited again, in the moment it stood there
        keep_aside(disk, folder, temporary, name)
    return "edited"


def keep_aside(disk: Disk, folder: int, from_name: str, name: str) -> str:
    """Give a file, which somebody edited, a name of its own beside the one it had."""
    number = 1
    while True:
        aside = f"{name}.edited-{number}"
        try:
            disk.link(from_name, aside, folder)
        except FileExistsError:
            number += 1
        else:
            return aside


def read(disk: Disk, folder: int, name: str) -> bytes | None:
    """The content of a file; None if it is not there. It refuses anything but a plain file."""
    try:
        fd = disk.open(name, folder, os.O_RDONLY | system.NO_WAIT)
    except FileNotFoundError:
        return None
    try:
        must_be_plain(disk, fd, name)
        return disk.read_piece(fd, 0, _MOST_BYTES)
    finally:
        disk.close(fd)


def must_be_plain(disk: Disk, fd: int, name: str) -> None:
    """Refuse a pipe, a folder or a device that somebody put in the place of a file."""
    if not disk.is_plain(fd):
        raise StorageFailed(
            f"{name} is a folder, a pipe or a device where a file of the workspace should be: "
            f"remove it"
        )


def _written(disk: Disk, folder: int, data: bytes) -> str:
    # `holdfast gc` knows such a name, should we die here.
    temporary = f".{os.urandom(6).hex()}"
    fd = disk.open(temporary, folder, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        disk.write(fd, data)
    except BaseException:
        with suppress(OSError):
            disk.unlink(temporary, folder)
        raise
    finally:
        disk.close(fd)
    return temporary


# A file of somebody's folder, looked at and replaced: at once, durably, and nothing lost.
#
# A writer has seen the file before, and is refused if it is another one by now. Several that edit a
# file at once take turns, by a lock on the folder, so each has the edit of the others. An editor
# knows nothing of that lock. So the file is put there by exchanging names, and what came out is
# looked at again: if it was written meanwhile, the two are exchanged back.


# Putting a file in the place of another, so that what was there is still at hand.
#
# A rename drops what had the name, also what somebody put there a moment ago. Two names that are
# exchanged drop nothing: the code that replaced a file can look at the old one, and decide.


def exchange(new: str, name: str, folder: int, disk: Disk = DISK) -> None:
    """Exchange two names of a folder, at once where the system can; `name` has to be there."""
    if disk.exchange(new, name, folder):
        return
    # In steps: a file that another program puts in place between them is lost to `aside` alone.
    aside = f".{os.urandom(6).hex()}"
    try:
        disk.link(name, aside, folder)  # a file is never missing under its name
    except PermissionError:  # a folder can have one name only
        disk.rename(name, aside, folder)
    disk.rename(new, name, folder)
    disk.rename(aside, new, folder)


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
    """The content that is there now."""
    try:
        found = os.stat(place, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            raise BadInput(f"{place} is no file, but {_kind(found)}: nothing was changed")
        fd = os.open(place, os.O_RDONLY | system.CLOSE_ON_EXEC | system.NO_LINK)
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
    folder = os.open(place.parent, system.FOLDER)
    try:
        system.lock(folder)  # until it is closed
        if look(place).data != seen.data:
            return False
        if wanted.data is None:
            done = _removed(place.name, seen, folder)
        else:
            done = _replaced(place.name, seen, wanted, wanted.data, folder)
        system.sync_all(folder)
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
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.CLOSE_ON_EXEC
    fd = os.open(new, flags, 0o666, dir_fd=folder)
    with open(fd, "wb") as file:
        if mode is not None:
            os.fchmod(fd, mode)
        file.write(data)
        file.flush()
        system.sync_all(fd)


def _bytes_of(name: str, folder: int) -> bytes | None:
    try:
        fd = os.open(name, os.O_RDONLY | system.CLOSE_ON_EXEC | system.NO_LINK, dir_fd=folder)
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
        fd = os.open(Path(name).parent, system.FOLDER)
        try:
            system.sync_all(fd)
        finally:
            os.close(fd)
