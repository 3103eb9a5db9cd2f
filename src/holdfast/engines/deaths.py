"""The work of a driver after the death of the one before it, and the record of its own troubles.

`holdfast.core.crashes` decides; here it is written down. And one rule is kept that needs to know
what else this process does: two tasks that may have ended their drivers are not driven by one
process at the same time. So the innocent one of them is not blamed for the other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from holdfast.core.crashes import death_of_driver, is_suspect, set_aside
from holdfast.core.events import Hindered
from holdfast.core.state import FINISHED, HALTED, State
from holdfast.engines.holder import Holding
from holdfast.errors import TaskReleased
from holdfast.log.log import Log

_ALONE_S = 30.0
"""How long a suspect is driven without another one beside it: a long step must not hold them up."""


def record_death(log: Log, holding: Holding) -> None:
    """Record that the last driver of a task died, if it did, and set the task aside if that was
    once too often."""
    log.append(lambda state: death_of_driver(state, holding.process))
    if log.append(lambda state: set_aside(state, holding.max_crashes)):
        log.sync()


def record_hindrance(log: Log, error: str, why: str, by: str) -> bool:
    """Record why a task could not go on; False if that is known, or it is not to go on anyway."""

    def hindered(state: State) -> Hindered | None:
        if state.status in FINISHED or state.status in HALTED:
            return None
        known = state.hindrance
        if known is not None and (known.error, known.why) == (error, why):
            return None
        return Hindered(error=error, why=why, by=by)

    return log.append(hindered)


def must_be_alone(state: State, others: Iterable[tuple[Log, float]]) -> None:
    """Refuse a suspect while another one is driven here. `others` are the logs in hand here, and
    since when."""
    if is_suspect(state) and is_one_driven(others):
        raise TaskReleased(
            state.id,
            f"task {state.id!r} waits for its turn: its drivers died, and so did those of "
            f"another task that is driven here now",
        )


def is_one_driven(logs: Iterable[tuple[Log, float]]) -> bool:
    """Whether a suspect is among the logs in hand, and has not been for so long that others need
    not wait for it."""
    young = time.monotonic() - _ALONE_S
    return any(since > young and is_suspect(log.state) for log, since in logs)


class Suspects:
    """The tasks that this process drives and that may have ended their drivers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._alone: dict[Log, float] = {}

    def must_be_free(self, state: State) -> None:
        """Refuse a suspect while another one is driven here."""
        with self._lock:
            must_be_alone(state, self._alone.items())

    @contextmanager
    def watched(self, log: Log) -> Iterator[None]:
        """While a task is driven: it is known if it is a suspect."""
        if not is_suspect(log.state):
            yield
            return
        with self._lock:
            self._alone[log] = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                del self._alone[log]
