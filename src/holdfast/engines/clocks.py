"""How much time has passed: there are several clocks, and each may be wrong in its own way.

The time of day may be set forward or back at any moment. A clock that nobody sets stands still
while the machine is suspended, or goes on (`CLOCK_BOOTTIME`, which is used here). In a virtual
machine that is paused from outside both stand still, and the time of day is set some time later.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from holdfast.errors import LeaseLost
from holdfast.log.log import Clock, Log

if TYPE_CHECKING:
    from holdfast.engines.run import Run

# On macOS, CLOCK_MONOTONIC is the one that goes on while the machine is suspended.
_RUNNING = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_LONGEST_NAP_S = 60.0
"""Until the clocks are looked at again: one may have been set, or the machine been suspended."""


def running_s() -> float:
    """Seconds of a clock that nobody sets, and that goes on while the machine is suspended."""
    return time.clock_gettime(_RUNNING)


class Moment:
    """Now, by every clock, to be asked later how long ago that was."""

    __slots__ = ("_day_s", "_running_s")

    def __init__(self) -> None:
        self._running_s, self._day_s = running_s(), time.time()

    def is_within(self, seconds: float) -> bool:
        """Whether it is less than so long ago, by the clock that says the most."""
        ends_s, day_ends_s = self.ends(seconds)
        return running_s() < ends_s and time.time() < day_ends_s

    def ends(self, seconds: float) -> tuple[float, float]:
        """When it will be so long ago: by the clock that nobody sets, and by the time of day."""
        return self._running_s + seconds, self._day_s + seconds


@runtime_checkable
class OwnTime(Protocol):
    """A clock with a time of its own, as tests have: `holdfast.testing.Clock`. Code that waits for
    it looks often, and tells it, so that it can go on to the next moment at which something
    happens.
    """

    now: datetime
    """The time. Unlike a call of the clock, reading it is no sign of life."""

    def __call__(self) -> datetime:
        """The time, for an event that happens now."""

    def watch(self, runs: Callable[[], Iterable[Run]]) -> None:
        """Take these runs into account, too."""

    def waits(self, run: Run, path: str, until: datetime) -> AbstractContextManager[None]:
        """A call waits for a time while the context is open."""

    def nap_s(self) -> float:
        """How long to wait, in real seconds, before the next look at this clock."""

    def idle(self, worker: object, until: datetime | None) -> bool:
        """A worker has nothing to do before `until`. Whether the clock went on to some time."""

    def works(self, worker: object) -> None:
        """The worker has something to do, or has ended."""


class Countdown:
    """How long it is until a time of day, for a wait in this process.

    A clock that is set back meanwhile makes that no longer: what was left at first is counted by
    the clock that nobody sets. A clock that is set forward makes it shorter.
    """

    __slots__ = ("_clock", "_ends_s", "_own", "until")

    def __init__(self, until: datetime, clock: Clock) -> None:
        self.until: datetime = until
        self._clock = clock
        self._own = clock if isinstance(clock, OwnTime) else None
        self._ends_s = running_s() + self._by_clock_s()

    def left_s(self) -> float:
        """How much is left; 0 or less if the time has come."""
        if self._own is not None:
            return self._by_clock_s()
        return min(self._by_clock_s(), self._ends_s - running_s())

    def nap_s(self) -> float:
        """How long to wait, in real seconds, before the next look at what is left."""
        if self._own is not None:
            return self._own.nap_s()
        return min(max(self.left_s(), 0.0), _LONGEST_NAP_S)

    def _by_clock_s(self) -> float:
        now = self._clock() if self._own is None else self._own.now
        return (self.until - now).total_seconds()


@contextmanager
def counting_down(run: Run, path: str, until: datetime) -> Iterator[Countdown]:
    """For a call that waits for a time: what is left of it."""
    clock = run.log.clock
    if isinstance(clock, OwnTime):
        with clock.waits(run, path, until):
            yield Countdown(until, clock)
    else:
        yield Countdown(until, clock)


# How long a lease is known to hold: a process can be frozen at any moment, and not know of it.
#
# A lease that was confirmed less than its time ago can't have been taken over. An older one may
# have been, by somebody who went on with the task: its next step was perhaps made meanwhile, and
# its result is in the log. So before a body runs, a driver looks how old the last confirmation is,
# and asks the store if it is too old. Otherwise it costs that look at the clock and no more.
#
# Others judge a lease by the time of day, and this process may be suspended: so we trust the clock
# that shows the most elapsed time. An unneeded check costs one request to the store.


_NEVER_SURE = (-math.inf, -math.inf)


class Tenure:
    """The time for which a log is held, as far as its holder can be sure of it."""

    __slots__ = ("_ends", "_lease_s", "_log")

    def __init__(self, log: Log, lease_s: float, since: Moment) -> None:
        self._log = log
        self._lease_s = lease_s
        self._ends = since.ends(lease_s)

    def is_sure(self) -> bool:
        """Whether nobody can have taken the log over, as far as the clocks can tell."""
        ends_s, day_ends_s = self._ends
        return time.clock_gettime(_RUNNING) < ends_s and time.time() < day_ends_s

    def confirm(self) -> None:
        """Renew the lease, which then holds for its whole time again. `LeaseLost` if it is lost."""
        asked = Moment()  # not when it was answered: we may be frozen in between
        try:
            self._log.store.renew(self._log.lease)
        except LeaseLost as error:
            self._ends = _NEVER_SURE
            self._log.refuse(error)
            raise
        self._ends = asked.ends(self._lease_s)
