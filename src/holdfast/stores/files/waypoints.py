"""Waypoints in a workspace: `tasks/<safe id>/waypoints/`, a file for each part.

    waypoints/1024.head  1024.calls  …

They are beside the log, and so go with it. Each is written beside its place and renamed into it,
and never synced: one that a crash left torn is found out by whoever reads it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress

from holdfast.stores.files.disk import Disk

WAYPOINTS = "waypoints"


class FileWaypoints:
    """The waypoints of a workspace."""

    def __init__(self, disk: Disk, folder: Callable[[str], AbstractContextManager[int]]) -> None:
        self._disk = disk
        self._folder = folder

    def put(self, stream: str, seq: int, part: str, data: bytes) -> None:
        disk = self._disk
        with suppress(OSError), self._folder(stream) as folder:
            inner = disk.make_folder(WAYPOINTS, folder)
            draft = f".{os.urandom(6).hex()}"
            try:
                fd = disk.open(draft, inner, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
                try:
                    disk.write(fd, data)
                finally:
                    disk.close(fd)
                disk.rename(draft, f"{seq}.{part}", inner)
            except OSError:
                with suppress(OSError):  # a full disk
                    disk.unlink(draft, inner)
            finally:
                disk.close(inner)

    def get(self, stream: str, seqs: Sequence[int], part: str) -> Mapping[int, bytes]:
        found: dict[int, bytes] = {}
        with suppress(OSError), self._folder(stream) as folder:
            inner = self._disk.folder(WAYPOINTS, folder)
            try:
                for seq in seqs:
                    with suppress(OSError):
                        found[seq] = self._read(f"{seq}.{part}", inner)
            finally:
                self._disk.close(inner)
        return found

    def _read(self, name: str, inner: int) -> bytes:
        fd = self._disk.open(name, inner, os.O_RDONLY | os.O_NONBLOCK)
        try:
            return self._disk.read_all(fd) if self._disk.is_plain(fd) else b""
        finally:
            self._disk.close(fd)

    def seqs(self, stream: str) -> Sequence[int]:
        names: Sequence[str] = ()
        with suppress(OSError), self._folder(stream) as folder:
            inner = self._disk.folder(WAYPOINTS, folder)
            try:
                names = self._disk.names(inner)
            finally:
                self._disk.close(inner)
        firsts = {name.partition(".")[0] for name in names}
        return [int(first) for first in firsts if first.isascii() and first.isdigit()]

    def drop(self, stream: str) -> None:
        with suppress(OSError), self._folder(stream) as folder:
            self._disk.remove_all(WAYPOINTS, folder)
