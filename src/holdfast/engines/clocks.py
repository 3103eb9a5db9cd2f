"""How much time has passed: there are several clocks, and each may be wrong in its own way.

The time of day may be set forward or back at any moment. A clock that nobody sets stands still
while the machine is suspended, or goes on (`CLOCK_BOOTTIME`, which is used here). In a virtual
machine that is paused from outside both stand still, and the time of day is set some time later.
"""

from __future__ import annotations

import time
from datetime import datetime

from holdfast.log import Clock

# On macOS, CLOCK_MONOTONIC is the one that goes on while the machine is suspended.
_RUNNING = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def running_s() -> float:
    """Seconds of a clock that nobody sets, and that goes on while the machine is suspended."""
    return time.clock_gettime(_RUNNING)


class Moment:
    """Now, by every clock, to be asked later how long ago that was."""

    __slots__ = ("_day_s", "_running_s")

    def __init__(self) -> None:
        self._running_s, self._day_s = running_s(), time.time()

    def ago_s(self) -> float:
        """How long ago, by the clock that says the most."""
        return max(running_s() - self._running_s, time.time() - self._day_s)


class Countdown:
    """How long it is until a time of day, for who waits for it in this process.

    A clock that is set back meanwhile makes that no longer: what was left at first is counted by
    the clock that nobody sets. One that is set forward makes it shorter.
    """

    __slots__ = ("_clock", "_ends_s", "until")

    def __init__(self, until: datetime, clock: Clock) -> None:
        self.until = until
        self._clock = clock
        self._ends_s = running_s() + self._by_clock_s()

    def left_s(self) -> float:
        """How much is left; 0 or less if the time has come."""
        return min(self._by_clock_s(), self._ends_s - running_s())

    def _by_clock_s(self) -> float:
        return (self.until - self._clock()).total_seconds()
