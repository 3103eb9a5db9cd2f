"""Leases that are kept alive while something long is done under them."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

from holdfast.errors import StoreError, TaskBusy
from holdfast.store import Lease, Store

PATIENCE_S, _MOMENT_S = 10.0, 0.005


class Keeping:
    """A thread that renews leases. One that is lost says so when it is next used."""

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self._kept: dict[Lease, Store] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="holdfast leases", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        self._thread.join()

    def take(self, store: Store, stream: str, owner: str) -> Lease:
        """Take a lease, and keep it."""
        return self.keep(store, store.acquire(stream, owner, self.lease_s))

    def take_in_turn(self, store: Store, stream: str, owner: str) -> Lease:
        """The same, of a log that others hold for moments only: when they have given it back."""
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.take(store, stream, owner)
            except TaskBusy:
                if time.monotonic() > give_up_at:
                    raise
            time.sleep(_MOMENT_S)

    def keep(self, store: Store, lease: Lease) -> Lease:
        """Keep a lease that was taken."""
        self._kept[lease] = store
        return lease

    def forget(self, lease: Lease) -> None:
        """Keep a lease no more."""
        self._kept.pop(lease, None)

    def release(self, lease: Lease) -> None:
        """Give a lease back."""
        store = self._kept.pop(lease, None)
        if store is not None:
            store.release(lease)

    def _renew(self) -> None:
        while not self._closing.wait(self.lease_s / 3):
            for lease, store in list(self._kept.items()):
                with suppress(StoreError, OSError):
                    store.renew(lease)
