"""Making logs durable: each by itself, or many by one call that syncs the whole disk.

Unsynced writes mean that the log is open: a log is synced before it is closed. So
what is done here is done with the lock `syncing` of a handle, under which no log is closed.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TypeVar

from holdfast.errors import LeaseLost, StoreError
from holdfast.stores.files import locks
from holdfast.stores.files.catalog import IndexEntry
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.folder import failed
from holdfast.stores.files.held import HeldStreams
from holdfast.stores.files.locks import HeldFile
from holdfast.stores.port import Lease

# Syncing many files at once: one call that makes the whole disk durable, where it can be trusted.
#
# Two hundred tasks on one loop have two hundred logs to sync. One `syncfs` does that in the time
# of a few `fdatasync`; but it also writes whatever else is waiting to be written to that disk. So
# it is used for many files only, and one that took long is not followed by another for a while:
# then each file is synced for itself, in a few threads.
#
# **When it may be believed.** An error that befell any file of the disk is told to one caller of
# `syncfs`, once; so calls of a store come one after the other, and after a failed one it is never
# used again: each file is then asked for itself, and tells its own errors. Linux does so since
# 5.8. It is used on the kinds of disk on which power was cut to see that it does what it says.


_KINDS = {"ext4", "xfs"}
_FEWEST = 4
_THREADS = 8
_SLOW_S, _SLOW_S_A_FILE = 0.05, 0.001
_PAUSES = 20
"""How many times as long as a slow call took it is done without: so little time is lost to it."""

T = TypeVar("T")


class WholeDisk:
    """The disk that a workspace is on."""

    def __init__(self, disk: Disk, root: Callable[[], int]) -> None:
        self._disk = disk
        self._root = root
        self.turn = threading.Lock()
        """Held from before what is to be synced is looked at until it was said to be durable."""
        self._can: bool | None = None
        self._not_before = 0.0

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
            self._not_before = ended + _PAUSES * (ended - began)
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

    >>> _kind("36 35 98:0 / /mnt rw,noatime shared:1 - ext4 /dev/root rw", "98:0")
    'ext4'
    """
    fields = mount.split()
    if len(fields) < 3 or fields[2] != number or "-" not in fields:
        return ""
    return fields[fields.index("-") + 1]


class Syncing(HeldStreams):
    """A workspace whose held streams can be synced."""

    def _begin(self) -> None:
        super()._begin()
        self._whole = WholeDisk(self._disk, lambda: self._root)

    def _sync(self, lease: Lease) -> None:
        handle = self._handles.get(lease) or self._handle(lease)
        mine = handle.appended
        with handle.syncing:
            if handle.synced >= mine:
                return  # somebody else's sync began after our write
            if handle.poisoned or handle.pid != os.getpid():
                self._must_be_sound(handle)
            upto = handle.appended
            try:
                if self._durable and handle.clean < upto:
                    self._disk.sync(handle.log)
                if handle.new:
                    self._sync_names(handle)
            except OSError as error:
                # The kernel may have dropped the dirty pages and would report success next time.
                self._poison(handle, error)
                if not self._is_held(handle):  # who took it over may have deleted it since
                    raise self._lost(handle) from error
                raise failed(f"{lease.stream}: can't sync", error) from error
            self._is_durable(handle, upto)

    def _is_durable(self, handle: HeldFile, upto: int) -> None:
        """Acknowledge what is on the disk, if it is still ours to say so."""
        handle.clean = upto
        handle.used = True
        log = self._must_hold(handle)
        handle.synced = upto
        if handle.news is not None:
            self._tell_news(handle, log.written_ns)

    def _tell_news(self, handle: HeldFile, written_ns: int) -> None:
        # Not before: a crash may leave a log that has its new length, and zeros for its new lines,
        # and the index would be believed.
        news = handle.news
        if news is not None and news[0] <= handle.synced:
            entry = IndexEntry(handle.lease.stream, news[2], news[1], written_ns=written_ns)
            # While we hold the stream an older entry is believed: so a full disk is tried again.
            if self._note(entry) and handle.news is news:
                handle.news = None

    def sync(self, leases: Sequence[Lease]) -> Sequence[StoreError | None]:
        if len(leases) == 1:  # as for each step of a sync task: no detour
            try:
                self._sync(leases[0])
            except StoreError as error:
                return (error,)
            return (None,)
        outcomes: dict[Lease, StoreError] = {}
        left = leases
        if self._durable and self._whole.is_worth_it(len(leases)):
            left = self._sync_whole_disk(leases)

        def sync(lease: Lease) -> None:
            try:
                self._sync(lease)
            except StoreError as error:
                outcomes[lease] = error

        in_threads(sync, left)
        return [outcomes.get(lease) for lease in leases]

    def _sync_whole_disk(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Sync many logs at once; returns those that are still to be synced, or to be refused."""
        with self._whole.turn, ExitStack() as syncing:  # one at a time: many locks are held in it
            return self._sync_held(leases, syncing)

    def _sync_held(self, leases: Sequence[Lease], syncing: ExitStack) -> Sequence[Lease]:
        handles = [found for lease in leases if (found := self._handles.get(lease))]
        for handle in handles:
            syncing.enter_context(handle.syncing)
        device = self._whole.device()
        written = [(h, h.appended) for h in handles if _is_sound_and_on(h, device)]
        if not self._whole.sync(len(written)):
            return leases
        done = set()
        for handle, upto in written:
            with suppress(OSError, LeaseLost):  # which `_sync` then raises
                if handle.new:
                    self._names_are_synced(handle)
                self._is_durable(handle, upto)
                done.add(handle.lease)
        return [lease for lease in leases if lease not in done]

    def _sync_names(self, handle: HeldFile) -> None:
        """What is only to be done once: the names on the way to the log are made durable."""
        disk, root = self._disk, self._root
        if self._durable:
            kind, name = handle.way.split("/")
            with ExitStack() as opened:
                outer = disk.folder(kind, root)
                opened.callback(disk.close, outer)
                folder = disk.folder(name, outer)
                opened.callback(disk.close, folder)
                for fd in (folder, outer, root):
                    disk.sync_folder(fd)
        self._names_are_synced(handle)

    def _names_are_synced(self, handle: HeldFile) -> None:
        handle.new = False
        if not handle.taken.lock.started and handle.head:
            try:
                locks.say_started(self._disk, self._root, handle.way, handle.taken)
            except OSError as error:
                self._poison(handle, error)
                raise


def _is_sound_and_on(handle: HeldFile, device: int) -> bool:
    """Whether a log can be synced with its disk: another may be mounted on a folder of ours."""
    return handle.inode[0] == device and not handle.poisoned and handle.pid == os.getpid()
