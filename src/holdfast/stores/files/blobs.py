"""Blobs as files: content-addressed, complete or not there, and checked when they are read.

The time of a blob's file is that of its last put. A deleter looks at the blob under a lock on
the folder, and who puts one sets it under the same lock: so a blob that is just being put again is
either seen to be young, or is gone before the put looks for it, and written anew.

A put believes no file because of its name: it compares the bytes, and replaces a file that holds
others. Whatever named the damaged blob is whole again by that.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Literal

from holdfast.errors import LogDamaged
from holdfast.stores.files.disk import Disk
from holdfast.stores.port import Blob
from holdfast.stores.system import NO_WAIT

_DIGEST = re.compile(r"[0-9a-f]{64}")
_PIECE_BYTES = 1 << 20


def put(disk: Disk, root: int, data: bytes, name: str = "", *, durable: bool) -> str:
    """Keep bytes under the sha256 of their content, or under a name like that."""
    digest = name or sha256(data).hexdigest()
    with (
        disk.opened(disk.make_folder("blobs", root)) as outer,
        disk.opened(disk.make_folder(digest[:2], outer)) as inner,
    ):
        found = _made_young(disk, inner, digest, data)
        if found != "whole":
            _write(disk, inner, digest, data, durable)
        if found == "wrong" and not name:  # under a given name others may have put other bytes
            say_mended(digest)
        if durable:
            # Also when it was there: who put it may have died before it got this far.
            for folder in (inner, outer, root):
                disk.sync_folder(folder)
    return digest


@contextmanager
def _locked(disk: Disk, folder: int) -> Iterator[None]:
    disk.lock(folder)
    try:
        yield
    finally:
        disk.unlock(folder)


def _made_young(
    disk: Disk, folder: int, digest: str, data: bytes
) -> Literal["gone", "wrong", "whole"]:
    """Say that a blob was put just now, if it is there; and whether it holds the right bytes."""
    with _locked(disk, folder):
        try:
            fd = disk.open(digest, folder, os.O_RDONLY | NO_WAIT)
        except FileNotFoundError:
            return "gone"
        except OSError:
            return "wrong"  # a symlink, or a file that nobody may read
        try:
            disk.touch(fd)
        except BaseException:
            disk.close(fd)
            raise
    try:
        return "whole" if _holds(disk, fd, data) else "wrong"
    except OSError:
        return "wrong"  # a folder, a pipe, or a bad sector
    finally:
        disk.close(fd)


def _holds(disk: Disk, fd: int, data: bytes) -> bool:
    if disk.size(fd) != len(data):
        return False
    view = memoryview(data)
    pieces = range(0, len(data), _PIECE_BYTES)
    return all(
        disk.read_piece(fd, at, _PIECE_BYTES) == view[at : at + _PIECE_BYTES] for at in pieces
    )


def say_mended(digest: str) -> None:
    """Say that a blob was damaged, and is whole again: its disk may not be sound."""
    import logging  # only if there is something to say

    logging.getLogger("holdfast").warning(
        "the blob %s was damaged, and is whole again: the same value was just written anew. "
        "Check the rest of the store: `holdfast doctor`",
        digest,
    )


def _write(disk: Disk, folder: int, digest: str, data: bytes, durable: bool) -> None:
    temp = f".{digest}.{os.urandom(6).hex()}"
    fd = disk.open(temp, folder, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        try:
            disk.write(fd, data)
            if durable:
                disk.sync(fd)
            with _locked(disk, folder):
                disk.touch(fd)
                disk.rename(temp, digest, folder)
        finally:
            disk.close(fd)
    except OSError:
        with suppress(OSError):
            disk.unlink(temp, folder)
        raise


def get(disk: Disk, root: int, digest: str, *, checked: bool = True) -> bytes:
    """The bytes of a blob, or `LogDamaged`."""
    if not _DIGEST.fullmatch(digest):
        raise LogDamaged(f"blobs/{digest:.80}", 0, "that is no name of a blob")
    try:
        data = disk.read_file(("blobs", digest[:2], digest), root)
    except OSError as error:
        raise LogDamaged(f"blobs/{digest}", 0, f"the blob can't be read ({error})") from error
    if checked and sha256(data).hexdigest() != digest:
        raise LogDamaged(f"blobs/{digest}", 0, "the blob's bytes do not fit its name")
    return data


def listed(disk: Disk, root: int) -> Iterator[Blob]:
    """Every blob that is there."""
    now = time.time()
    with suppress(FileNotFoundError), _opened(disk, "blobs", root) as outer:
        for part in disk.names(outer):
            # Not a folder, or gone meanwhile.
            with suppress(NotADirectoryError, FileNotFoundError), _opened(disk, part, outer) as fd:
                for name in disk.names(fd):
                    found = disk.size_and_time_of(name, fd)
                    if found is not None and _DIGEST.fullmatch(name) and name[:2] == part:
                        yield Blob(name, found[0], max(now - found[1], 0.0))


def delete(disk: Disk, root: int, digest: str, older_than_s: float) -> bool:
    """Remove a blob that was last put longer ago than that."""
    if not _DIGEST.fullmatch(digest):
        return False
    try:
        with (
            _opened(disk, "blobs", root) as outer,
            _opened(disk, digest[:2], outer) as inner,
            _locked(disk, inner),
        ):
            found = disk.size_and_time_of(digest, inner)
            if found is None or max(time.time() - found[1], 0.0) < older_than_s:
                return False
            disk.unlink(digest, inner)
            return True
    except FileNotFoundError:
        return False


@contextmanager
def _opened(disk: Disk, name: str, parent: int) -> Iterator[int]:
    fd = disk.folder(name, parent)
    try:
        yield fd
    finally:
        disk.close(fd)
