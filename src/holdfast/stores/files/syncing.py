"""Making many logs durable at once: by one call that syncs the whole disk, or in threads."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from holdfast.stores.files.disk import Disk

# Syncing many files at once: one call that makes the whole disk durable, where it can be trusted.
#
# Two hundred tasks on one loop have two hundred logs to sync. One `syncfs` does that in the time
# of a few `fdatasync`; but it also writes whatever else is waiting to be written to that disk. So
# it is used for many files only, and one that took long is not followed by another for a while:
# then each file is synced for itself, in a few threads. The first slow one may have written what
# has lain there for long, so the while is short; it doubles as long as slow ones follow each other.
#
# **When it may be believed.** An error that befell any file of the disk is told to one caller of
# `syncfs`, once; so calls of a store come one after the other, and after a failed one it is never
# used again: each file is then asked for itself, and tells its own errors. Linux does so since
# 5.8. It is used on the kinds of disk on which power was cut to see that it does what it says.


_KINDS = {"ext4", "xfs"}
_FEWEST = 4
_THREADS = 8
_SLOW_S, _SLOW_S_A_FILE = 0.05, 0.001
_MOST_PAUSES = 16
"""How many times as long as a slow call took it is done without, at most: so little time is lost
to a disk that others keep busy."""

T = TypeVar("T")


class WholeDisk:
    """The disk that a workspace is on."""

    def __init__(self, disk: Disk, root: Callable[[], int]) -> None:
        self._disk = disk
        self._root = root
        self.turn: threading.Lock = threading.Lock()
        """Held from before what is to be synced is looked at until it was said to be durable."""
        self._can: bool | None = None
        self._not_before = 0.0
        self._pauses = 1

    def is_worth_it(self, files: int) -> bool:
        """Whether to sync all of the disk for so many files."""
        if files < _FEWEST or time.monotonic() < self._not_before:
            return False
        if self._can is None:
            self._can = _can_be_believed(self.device())
        return self._can

    def device(self) -> int:
        """Its number, by which the files that are on it can be told from others."""
        return self._disk.device(self._root())

    def sync(self, files: int) -> bool:
        """Make everything durable that was written, to so many files and to whatever others.

        False if that failed: then each file has to be asked.
        """
        began = time.monotonic()
        try:
            self._disk.sync_all(self._root())
        except OSError:
            self._can = False
        ended = time.monotonic()
        if ended - began > max(_SLOW_S, files * _SLOW_S_A_FILE):
            self._not_before = ended + self._pauses * (ended - began)
            self._pauses = min(2 * self._pauses, _MOST_PAUSES)
        else:
            self._pauses = 1
        return self._can is not False


def in_threads(work: Callable[[T], object], items: Sequence[T]) -> None:
    """Do a few things at once that wait for the disk. The threads are new: a fork loses none."""
    if len(items) < _FEWEST:
        for item in items:
            work(item)
        return
    from concurrent.futures import ThreadPoolExecutor  # slow to import, and rarely needed

    with ThreadPoolExecutor(min(_THREADS, len(items)), "holdfast syncs") as pool:
        list(pool.map(work, items))


def _can_be_believed(device: int) -> bool:
    if platform.system() != "Linux" or _version(platform.release()) < (5, 8):
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo") as mounts:
            return any(_kind(line, number) in _KINDS for line in mounts)
    except OSError:
        return False


def _version(release: str) -> tuple[int, int]:
    """
    >>> _version("5.15.0-91-generic"), _version("6.1-rc3")
    ((5, 15), (6, 1))
    """
    major, _, rest = release.partition(".")
    minor = "".join(c if c.isdigit() else " " for c in rest).split(" ")[0]
    return int(major) if major.isdigit() else 0, int(minor or 0)


def _kind(mount: str, number: str) -> str:
    """The kind of the disk with a number, by a line of the list of mounts; empty if not that one.

    >>> mount = "36 35 98:0 / /mnt rw,noatime shared:1 - ext4 /dev/root rw"
    >>> _kind(mount, "98:0"), _kind(mount, "98:1"), _kind("", "98:0")
    ('ext4', '', '')
    """
    fields = mount.split()
    if len(fields) < 3 or fields[2] != number or "-" not in fields:
        return ""
    return fields[fields.index("-") + 1]
