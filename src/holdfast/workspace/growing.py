"""A file that only grows with a log: `progress.log`, `tool_log.jsonl`.

What is there is compared with what belongs there, and only the rest is written. So a line that a
crash tore is completed, and whoever goes on from another process writes nothing twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress

from holdfast.stores.disk import Disk
from holdfast.workspace import replacing
from holdfast.workspace.footers import PAGE_FORMAT
from holdfast.workspace.replacing import Outcome

Signature = tuple[tuple[int, int], int, float]
"""Which file it is, how long, and when it was last written."""


class Growing:
    """One such file, as far as it is known to be right."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk = disk
        self._name = name
        self._seen: Signature | None = None
        self.size = 0

    def begin(self) -> None:
        """Nothing is known of it."""
        self.size, self._seen = 0, None

    def is_as_it_was(self, folder: int) -> bool:
        """Whether nobody has written to it since we looked."""
        return self._signature(folder) == self._seen

    def grow(self, folder: int, data: bytes, *, is_all: bool) -> Outcome | None:
        """Let it have this next. None if something else is there; `is_all` if it has to end so."""
        disk = self._disk
        try:
            fd = disk.open(self._name, folder, _APPEND | (os.O_CREAT if data else 0))
        except FileNotFoundError:
            return "same" if not self.size else None
        try:
            replacing.must_be_plain(disk, fd, self._name)
            there = disk.read_piece(fd, self.size, len(data))
            if not data.startswith(there):
                return None
            if rest := data[len(there) :]:
                if disk.size(fd) != self.size + len(there):  # it was cut
                    return None
                disk.write(fd, rest)
            elif is_all and disk.size(fd) > self.size + len(data):
                return None
            was_there, self.size = self.size, self.size + len(data)
            self._seen = self._signature(folder)
            return "same" if not rest else "replaced" if was_there or there else "made"
        finally:
            disk.close(fd)

    def rewrite(self, folder: int, data: bytes) -> Outcome:
        """Put all of it in place. What somebody else wrote there is kept aside."""
        if not data:
            return self._remove(folder)
        outcome = replacing.replace(self._disk, folder, self._name, data, self._is_ours(data))
        self.size, self._seen = len(data), self._signature(folder)
        return outcome

    def _remove(self, folder: int) -> Outcome:
        self.begin()
        with suppress(FileNotFoundError):
            replacing.keep_aside(self._disk, folder, self._name, self._name)
            self._disk.unlink(self._name, folder)
            return "kept aside"
        return "same"

    def _is_ours(self, data: bytes) -> Callable[[bytes], bool]:
        def is_ours(before: bytes) -> bool:
            said = _FORMAT.match(before)
            return data.startswith(before) or (said is not None and int(said[1]) != PAGE_FORMAT)

        return is_ours

    def _signature(self, folder: int) -> Signature | None:
        found = self._disk.status_of(self._name, folder)
        about = self._disk.size_and_time_of(self._name, folder)
        return (found.inode, *about) if found is not None and about is not None else None


_FORMAT = re.compile(rb'(?:# holdfast |\{"format":)(\d{1,9})[:,]')
"""How such a file begins."""

_APPEND = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK
