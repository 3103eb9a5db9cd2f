"""A disk that writes down what is done to it, and disks that are broken on purpose.

What is written down are the operations that a crash may undo: names made and removed, bytes
written and cut, and the syncs after which it can't undo them any more. Files and folders are
numbered as they are made. Locks, reads and times are no part of it.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from msgspec import Struct

from holdfast.stores.files.disk import Disk

BUGS = ("no fsync", "no fsync before rename", "no fsync of the folder")
"""What a store may forget, each of which loses something."""


class Made(Struct, tag=True):
    """A name was made, of a new file or folder."""

    folder: int
    name: str
    node: int
    is_folder: bool


class Wrote(Struct, tag=True):
    """Bytes were written."""

    node: int
    offset: int
    data: bytes


class Cut(Struct, tag=True):
    """A file was cut."""

    node: int
    size: int


class Renamed(Struct, tag=True):
    """A name took the place of another, at once."""

    folder: int
    old: str
    new: str


class Linked(Struct, tag=True):
    """A file got a second name."""

    folder: int
    old: str
    new: str


class Removed(Struct, tag=True):
    """A name was removed, of a file or of an empty folder."""

    folder: int
    name: str


class Synced(Struct, tag=True):
    """A file's bytes, or a folder's names, are on the disk."""

    node: int


class SyncedAll(Struct, tag=True):
    """Everything is on the disk."""


class Closed(Struct, tag=True):
    """The permission to write a file was taken away."""

    node: int


class Said(Struct, tag=True):
    """Something was acknowledged (see `promises`)."""

    mark: list[str | int]


Operation = Made | Wrote | Cut | Renamed | Linked | Removed | Closed | Synced | SyncedAll | Said

ROOT = 0
"""The number of the outermost folder."""


class Broken(Disk):
    """A disk that forgets some of its syncs."""

    def __init__(self, bug: str = "") -> None:
        assert bug in ("", *BUGS), bug
        self.bug = bug
        self._drafts: set[int] = set()

    def open(self, name: str, parent: int, flags: int) -> int:
        fd = super().open(name, parent, flags)
        # A draft is what is made under a name of chance, and renamed or linked to its own later.
        if flags & os.O_EXCL and name != "events.jsonl":
            self._drafts.add(fd)
        return fd

    def close(self, fd: int) -> None:
        self._drafts.discard(fd)
        super().close(fd)

    def forgets(self, fd: int) -> bool:
        """Whether this sync of a file is one that it forgets."""
        is_draft = self.bug == "no fsync before rename" and fd in self._drafts
        return self.bug == "no fsync" or is_draft

    def sync(self, fd: int) -> None:
        if not self.forgets(fd):
            super().sync(fd)

    def sync_folder(self, fd: int) -> None:
        if self.bug not in ("no fsync", "no fsync of the folder"):
            super().sync_folder(fd)


class Recorder(Broken):
    """A disk under one folder that writes down what is done to it."""

    def __init__(self, root: Path, bug: str = "") -> None:
        super().__init__(bug)
        self.operations: list[Operation] = []
        self._root = root
        self._names: dict[int, dict[str, int]] = {ROOT: {}}
        self._nodes: dict[int, int] = {}
        self._count = ROOT
        self._lock = threading.RLock()

    def say(self, mark: list[str | int]) -> None:
        """Write down that something was acknowledged."""
        with self._lock:
            self.operations.append(Said(mark))

    def _place(self, way: str, parent: int) -> tuple[int, str]:
        """The folder that a way from another ends in, and the last name of it."""
        *folders, name = way.split("/")
        node = self._nodes[parent]
        for folder in folders:
            node = self._names[node][folder]
        return node, name

    def _new(self, folder: int, name: str, is_folder: bool) -> int:
        self._count = node = self._count + 1
        self._names[folder][name] = node
        if is_folder:
            self._names[node] = {}
        self.operations.append(Made(folder, name, node, is_folder))
        return node

    def folder(self, name: str | os.PathLike[str], parent: int | None = None) -> int:
        with self._lock:
            fd = super().folder(name, parent)
            if parent is not None:
                folder, last = self._place(os.fspath(name), parent)
                self._nodes[fd] = self._names[folder][last]
            elif Path(name) == self._root or self._root in Path(name).parents:
                node = ROOT
                for part in Path(name).relative_to(self._root).parts:
                    node = self._names[node][part]
                self._nodes[fd] = node
            return fd

    def make_folder(self, name: str, parent: int) -> int:
        with self._lock:
            folder, last = self._place(name, parent)
            if last not in self._names[folder]:
                self._new(folder, last, is_folder=True)
            return super().make_folder(name, parent)

    def open(self, name: str, parent: int, flags: int) -> int:
        assert not flags & os.O_TRUNC, "a file is never emptied by opening it"
        with self._lock:
            fd = super().open(name, parent, flags)
            folder, last = self._place(name, parent)
            node = self._names[folder].get(last)
            self._nodes[fd] = node if node is not None else self._new(folder, last, False)
            return fd

    def write_some(self, fd: int, data: bytes) -> int:
        with self._lock:
            done = super().write_some(fd, data)
            end = os.lseek(fd, 0, os.SEEK_CUR)  # behind what was written, also where it is appended
            self.operations.append(Wrote(self._nodes[fd], end - done, bytes(data[:done])))
            return done

    def overwrite(self, fd: int, data: bytes, *offset: int) -> None:
        with self._lock:
            super().overwrite(fd, data, *offset)
            self.operations.append(Wrote(self._nodes[fd], sum(offset), bytes(data)))

    def truncate(self, fd: int, size: int) -> None:
        with self._lock:
            super().truncate(fd, size)
            self.operations.append(Cut(self._nodes[fd], size))

    def sync(self, fd: int) -> None:
        with self._lock:
            super().sync(fd)
            if not self.forgets(fd):
                self.operations.append(Synced(self._nodes[fd]))

    def sync_folder(self, fd: int) -> None:
        with self._lock:
            super().sync_folder(fd)
            if self.bug not in ("no fsync", "no fsync of the folder"):
                self.operations.append(Synced(self._nodes[fd]))

    def sync_all(self, fd: int) -> None:
        with self._lock:
            if self.bug != "no fsync":
                self._disks_own("sync_all")(fd)
                self.operations.append(SyncedAll())

    def forbid_writing(self, fd: int) -> None:
        with self._lock:
            self._disks_own("forbid_writing")(fd)
            self.operations.append(Closed(self._nodes[fd]))

    def _disks_own(self, method: str) -> Any:
        return getattr(super(), method)  # not every disk has it

    def rename(self, old: str, new: str, parent: int) -> None:
        with self._lock:
            super().rename(old, new, parent)
            folder, old, new = self._both(old, new, parent)
            self._names[folder][new] = self._names[folder].pop(old)
            self.operations.append(Renamed(folder, old, new))

    def move(self, old: str, parent: int, new: str, new_parent: int) -> None:
        # Only a copy that is complete is moved, and tests/upkeep/test_copying.py kills that.
        raise AssertionError("a move from folder to folder is not modelled")

    def link(self, old: str, new: str, parent: int) -> None:
        with self._lock:
            super().link(old, new, parent)
            folder, old, new = self._both(old, new, parent)
            self._names[folder][new] = self._names[folder][old]
            self.operations.append(Linked(folder, old, new))

    def _both(self, old: str, new: str, parent: int) -> tuple[int, str, str]:
        (folder, old), (other, new) = self._place(old, parent), self._place(new, parent)
        assert folder == other, "nothing is moved from one folder to another"
        return folder, old, new

    def unlink(self, name: str, parent: int) -> None:
        with self._lock:
            super().unlink(name, parent)
            self._forget(name, parent)

    def remove_folder(self, name: str, parent: int) -> None:
        with self._lock:
            super().remove_folder(name, parent)
            self._forget(name, parent)

    def _forget(self, name: str, parent: int) -> None:
        folder, last = self._place(name, parent)
        del self._names[folder][last]
        self.operations.append(Removed(folder, last))

    def close(self, fd: int) -> None:
        with self._lock:
            self._nodes.pop(fd, None)
            super().close(fd)


READS = frozenset(
    {
        *("read_piece", "read_all", "read_file", "size", "size_of", "mark_of", "names", "inode_of"),
        *("is_folder", "is_plain", "has_name", "touched_at", "touch", "try_lock", "lock", "unlock"),
        *("peek", "status", "status_of", "is_there", "device", "size_and_time_of"),
        *("write", "remove_all", "opened"),  # made of others
        "exchange",  # of readable files, which are made anew from the log
    }
)
"""What need not be written down. A new method of `Disk` belongs here, or into `Recorder`."""
