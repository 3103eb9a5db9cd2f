"""Making logs durable: each by itself, or many by one call that syncs the whole disk.

Unsynced writes mean that the log is open: who closes one syncs it first (see `descriptors`). So
what is done here is done with the lock `syncing` of a handle, under which no log is closed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from holdfast.errors import LeaseLost, StoreError
from holdfast.store import Lease
from holdfast.stores import locks
from holdfast.stores.files_held import HeldStreams
from holdfast.stores.handle import Handle
from holdfast.stores.index import Entry
from holdfast.stores.together import WholeDisk, in_threads
from holdfast.stores.workspace import failed


class Syncing(HeldStreams):
    """A workspace whose held streams can be synced."""

    def _begin(self) -> None:
        super()._begin()
        self._whole = WholeDisk(self._disk, lambda: self._root)

    def sync(self, lease: Lease) -> None:
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

    def _is_durable(self, handle: Handle, upto: int) -> None:
        """Acknowledge what is on the disk, if it is still ours to say so."""
        handle.clean = upto
        handle.used = True
        log = self._must_hold(handle)
        handle.synced = upto
        self._tell_news(handle, log.written_ns)

    def _tell_news(self, handle: Handle, written_ns: int) -> None:
        # Not before: a crash may leave a log that has its new length, and zeros for its new lines,
        # and the index would be believed.
        news = handle.news
        if news is not None and news[0] <= handle.synced:
            entry = Entry(handle.lease.stream, news[2], news[1], written_ns=written_ns)
            # While we hold the stream an older entry is believed: so a full disk is tried again.
            if self._note(entry) and handle.news is news:
                handle.news = None

    def sync_many(self, leases: Sequence[Lease]) -> Sequence[StoreError | None]:
        outcomes: dict[Lease, StoreError] = {}
        left = leases
        if self._durable and self._whole.is_worth_it(len(leases)):
            left = self._sync_whole_disk(leases)

        def sync(lease: Lease) -> None:
            try:
                self.sync(lease)
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
            with suppress(OSError, LeaseLost):  # which `sync` then raises
                if handle.new:
                    self._names_are_synced(handle)
                self._is_durable(handle, upto)
                done.add(handle.lease)
        return [lease for lease in leases if lease not in done]

    def _sync_names(self, handle: Handle) -> None:
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

    def _names_are_synced(self, handle: Handle) -> None:
        handle.new = False
        if not handle.taken.lock.started and handle.head:
            try:
                locks.say_started(self._disk, self._root, handle.way, handle.taken)
            except OSError as error:
                self._poison(handle, error)
                raise


def _is_sound_and_on(handle: Handle, device: int) -> bool:
    """Whether a log can be synced with its disk: another may be mounted on a folder of ours."""
    return handle.inode[0] == device and not handle.poisoned and handle.pid == os.getpid()
