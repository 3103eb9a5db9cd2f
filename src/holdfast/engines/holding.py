"""Holding tasks: a log open for writing, with a lease that is kept alive while it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.engines.heartbeat import Heartbeat
from holdfast.errors import Halt, Suspend
from holdfast.log import Clock, Log, open_log
from holdfast.store import Store


class Holding:
    """The tasks that this process holds of one store."""

    def __init__(
        self, store: Store, owner: str, lease_s: float, clock: Clock, max_value_bytes: int
    ) -> None:
        self.store = store
        self.owner = owner
        self.lease_s = lease_s
        self.clock = clock
        self._max_value_bytes = max_value_bytes
        self._heartbeat = Heartbeat(store, lease_s)

    @contextmanager
    def hold(self, task_id: str) -> Iterator[Log]:
        """A task's log, held until the block ends. Signals leave it as the errors they carry."""
        log = open_log(self.store, task_id, self.owner, self.lease_s, self.clock)
        log.max_value_bytes = self._max_value_bytes
        self._heartbeat.add(log)
        try:
            yield log
        except Suspend as signal:
            raise signal.waiting from None
        except Halt as signal:
            raise signal.error from signal.__cause__
        finally:
            self._heartbeat.remove(log)
            log.close()

    def close(self) -> None:
        """Let go of everything."""
        self._heartbeat.close()
