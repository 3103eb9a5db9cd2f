"""Replacing files that people read, and may edit while we do.

A page is written aside and exchanged with the one that is there, at once; what came out is looked
at, because somebody may have written to it until then. What a person wrote is never lost: it stays
where it is (`leave`), or is kept beside the new one as `NAME.edited-1`.

Nothing here is synced: after a power cut the files are made anew from the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from holdfast.errors import StorageFailed
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.folder import failed

Outcome = Literal["same", "made", "replaced", "removed", "edited", "kept aside", "busy"]
"""What became of a file. One that is *edited* was left alone; of one that is *kept aside* the
edited version has another name now."""

_ATTEMPTS = 5
_MOST_BYTES = 1 << 28
"""What is longer is none of ours, and what it is need not be known."""


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
    """Let a file have this content. What is there and is not ours is left, or kept aside."""
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
    """Let there be no such file; None if there is none. What is not ours is left, or kept aside."""
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
    _swap(disk, folder, temporary, name)
    out = read(disk, folder, temporary)
    if out is None or is_ours(out):
        return "replaced"
    if not leave:
        keep_aside(disk, folder, temporary, name)
        return "kept aside"
    _swap(disk, folder, temporary, name)
    if read(disk, folder, temporary) != data:  # edited again, in the moment it stood there
        keep_aside(disk, folder, temporary, name)
    return "edited"


def _swap(disk: Disk, folder: int, one: str, other: str) -> None:
    if disk.exchange(one, other, folder):
        return
    # Two steps: a file that another program puts in place between them is lost to `aside` alone.
    aside = f".{os.urandom(6).hex()}"
    disk.link(other, aside, folder)
    disk.rename(one, other, folder)
    disk.rename(aside, one, folder)


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
    """The content of a file; None if it is not there. What is no plain file is refused."""
    try:
        fd = disk.open(name, folder, os.O_RDONLY | os.O_NONBLOCK)
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
