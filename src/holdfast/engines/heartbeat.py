"""The heartbeat: says of every lease that is held that its holder is alive."""

from __future__ import annotations

import threading

from holdfast.errors import StoreError
from holdfast.store import Lease, Store


class Heartbeat:
    """Renews leases from one thread, which runs while there are any."""

    def __init__(self, store: Store, lease_s: float) -> None:
        self._store = store
        self._every_s = lease_s / 3
        self._leases: set[Lease] = set()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, lease: Lease) -> None:
        """Keep a lease alive from now on."""
        with self._lock:
            self._leases.add(lease)
            if self._thread is None:
                self._wake.clear()
                self._thread = threading.Thread(
                    target=self._beat, name="holdfast heartbeat", daemon=True
                )
                self._thread.start()

    def remove(self, lease: Lease) -> None:
        """Let a lease be."""
        with self._lock:
            self._leases.discard(lease)

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._leases.clear()
        self._wake.set()
        if thread is not None:
            thread.join()

    def _beat(self) -> None:
        while not self._wake.wait(self._every_s):
            with self._lock:
                leases = list(self._leases)
            for lease in leases:
                try:
                    self._store.renew(lease)
                except (StoreError, OSError):
                    self.remove(lease)  # its next append will say so where it matters
