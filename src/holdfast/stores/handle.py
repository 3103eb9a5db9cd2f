"""One stream held for writing, as its store knows it."""

from __future__ import annotations

import os
import threading

from holdfast.store import Facts, Lease
from holdfast.stores.locks import Taken


class Handle:
    """One stream held for writing. Its log is open while `log` is not negative."""

    __slots__ = (
        "appended", "clean", "head", "inode", "lease", "log", "looked", "looked_at", "new",
        "news", "pid", "poisoned", "rung", "size", "synced", "syncing", "taken", "used", "way",
        "writing",
    )  # fmt: skip

    def __init__(self, lease: Lease, way: str, taken: Taken, size: int, head: int) -> None:
        self.lease = lease
        self.way = way
        """To its folder, from the workspace."""
        self.taken = taken
        self.log = taken.log
        self.inode = taken.status.inode
        self.new = True
        self.pid = os.getpid()
        self.head = head
        self.size = size
        self.appended = 0
        self.clean = 0
        """How many of the appends are on the disk, whether they were acknowledged or not."""
        self.synced = 0
        self.news: tuple[int, Facts, int] | None = None
        """What the index is to be told once this append is durable, and how long the log is."""
        self.poisoned = ""
        self.used = True
        self.writing = threading.Lock()
        self.syncing = threading.Lock()
        self.rung, self.looked, self.looked_at = 1, 0, 0.0
        """How often there may have been mail, and which of these times it was looked for."""

    def is_clean(self) -> bool:
        """Whether everything that was written was synced, or never will be."""
        return self.clean == self.appended or bool(self.poisoned)
