"""Blobs as files: content-addressed, complete or not there, and checked when they are read."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from hashlib import sha256

from holdfast.errors import LogDamaged
from holdfast.stores.disk import Disk

_DIGEST = re.compile(r"[0-9a-f]{64}")


def put(disk: Disk, root: int, data: bytes, name: str = "", *, durable: bool) -> str:
    """Keep bytes under the sha256 of their content, or under a name like that."""
    digest = name or sha256(data).hexdigest()
    outer = disk.make_folder("blobs", root)
    inner = disk.make_folder(digest[:2], outer)
    try:
        if disk.inode_of(digest, inner) is None:
            _write(disk, inner, digest, data, durable)
        if durable:
            # Also when it was there: who put it may have died before it got this far.
            for folder in (inner, outer, root):
                disk.sync_folder(folder)
    finally:
        disk.close(inner)
        disk.close(outer)
    return digest


def _write(disk: Disk, folder: int, digest: str, data: bytes, durable: bool) -> None:
    temp = f".{digest}.{os.urandom(6).hex()}"
    fd = disk.open(temp, folder, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        try:
            disk.write(fd, data)
            if durable:
                disk.sync(fd)
        finally:
            disk.close(fd)
        disk.rename(temp, digest, folder)
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
