"""The logs that a worker holds for the tasks it drives on a remote engine.

A task has one writer, and a remote engine has many things done for it at once: its function goes
on, three of its calls are made. All of them are done in one process, and share one log here, which
is held while any of them is at work and for a moment longer. Then it is let go of: a task that
waits costs nothing, and whoever is told to go on with it takes hold of it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from holdfast.engines.elsewhere import Taken, driven_by, must_not_be_taken
from holdfast.engines.holding import Holding
from holdfast.errors import StoreError, TaskBusy
from holdfast.events import FORMAT, Claimed, Parked
from holdfast.log import Log
from holdfast.state import State

_logger = logging.getLogger("holdfast")

LINGER_S = 1.0
_TICK_S = 0.2
_BUSY_S, _POLL_S = 1.0, 0.02


class _Held:
    """A log, and who is at work on it."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.users = 0
        self.idle_since = time.monotonic()


class Hub:
    """The logs that this process holds, by task."""

    def __init__(self, holding: Holding, engine: str, linger_s: float = LINGER_S) -> None:
        self.holding = holding
        self.engine = engine
        self._linger_s = linger_s
        self._held: dict[str, _Held] = {}
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._tidy, name="holdfast hub", daemon=True)
        self._thread.start()

    @contextmanager
    def hold(self, task_id: str, since: int | None = None) -> Iterator[Log]:
        """The log of a task, held at least until the block ends, by a run of it that began with the
        event `since`. `Taken` if the task was taken from that run."""
        held = self._enter(task_id, since)
        try:
            yield held.log
        finally:
            with self._lock:
                held.users -= 1
                held.idle_since = time.monotonic()
                is_away = driven_by(held.log.state) != self.engine
                if is_away and not held.users and self._held.get(task_id) is held:
                    # It has ended, or was moved: who waited for that may want to open it at once.
                    self._let_go(task_id)

    def holds(self, task_id: str) -> bool:
        """Whether a log is held now: then `hold` does not have to wait for anything."""
        with self._lock:
            return task_id in self._held

    def take(self, task_id: str, since: int) -> None:
        """Take hold of a log for a moment, for who could not wait for that in `hold`."""
        with self.hold(task_id, since):
            pass

    def _enter(self, task_id: str, since: int | None) -> _Held:
        give_up_at = time.monotonic() + _BUSY_S
        while True:
            with self._lock:
                held = self._held.get(task_id)
                if held is not None and held.log.is_broken and not held.users:
                    self._let_go(task_id)
                    held = None
                try:
                    held = held or self._take(task_id, since)
                    self._must_be_ours(held.log.state, since)
                    held.users += 1
                    return held
                except Taken:
                    raise
                except TaskBusy:
                    if time.monotonic() > give_up_at:
                        raise
            # Who held it last may just be letting go of it.
            time.sleep(_POLL_S)

    def _must_be_ours(self, state: State, since: int | None) -> None:
        if since is None:
            # Of a run that nobody knows here: it is an older one if the task is elsewhere now.
            is_away = state.driver != self.engine and state.taken_at == state.driven_since
            since = 0 if is_away else state.seq
        must_not_be_taken(state, self.engine, since)

    def _take(self, task_id: str, since: int | None) -> _Held:
        holding = self.holding
        log = holding.open(task_id)
        try:
            self._must_be_ours(log.state, since)
        except Taken:
            holding.let_go(log)
            raise
        held = self._held[task_id] = _Held(log)
        if driven_by(log.state) == self.engine:  # who only looks at one that has left says nothing
            epoch = max(log.lease.epoch, log.state.epoch + 1)
            claimed = Claimed(format=FORMAT, epoch=epoch, owner=holding.owner, engine=self.engine)
            log.append(claimed)
        return held

    def _let_go(self, task_id: str) -> None:
        held = self._held.pop(task_id)
        with suppress(StoreError, OSError):  # who goes on with it reads what there is
            if driven_by(held.log.state) == self.engine:
                held.log.append(Parked(why=f"it waits on {self.engine}"))
        with suppress(StoreError, OSError):
            self.holding.let_go(held.log)

    def _tidy(self) -> None:
        while not self._closing.wait(_TICK_S):
            try:
                self._let_go_of_idle(time.monotonic() - self._linger_s)
            except Exception:  # what is not let go of would be held for ever, and by nobody
                _logger.exception("a log could not be let go of; it is tried again")

    def _let_go_of_idle(self, since: float) -> None:
        def is_idle(task_id: str) -> bool:
            held = self._held[task_id]
            return not held.users and held.idle_since <= since

        with self._lock:
            for task_id in list(filter(is_idle, self._held)):
                self._let_go(task_id)

    def close(self) -> None:
        """Let go of everything that nobody is at work on."""
        self._closing.set()
        self._thread.join()
        self._let_go_of_idle(time.monotonic())
