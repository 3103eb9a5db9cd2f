"""`Clock`: the time of a test, which passes when you say so, or whenever everything waits.

A clock knows who waits for it. With `skips=True` it goes on by itself, to the next moment at which
something happens, once every task that is driven with it waits: each of them sleeps, or backs off,
and no step or tool of theirs runs. So that a task which was just woken has come to its next call,
nothing may have happened for a moment of real time, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.errors import BadInput

if TYPE_CHECKING:
    from holdfast.engines.run import Run

_START = datetime(2026, 1, 1, tzinfo=UTC)
_LOOK_S, _CALM_S = 0.005, 0.02
"""In real seconds: how often what waits looks at the clock, and how long nothing has happened
before the clock skips."""


class Clock:
    """A clock for tests: `Holdfast(url, clock=clock)`.

    It starts at `start` and stands still until you `advance` it or set `clock.now`. With `skips` it
    goes on by itself whenever everything waits: a sleep of a day ends at once. With `tick_s` every
    event is that much later than the one before.

    >>> from holdfast import Holdfast, now, sleep, task
    >>> @task
    ... def wait_a_day() -> str:
    ...     began = now()
    ...     sleep(86_400)
    ...     return str(now() - began)
    >>> with Holdfast("memory://", clock=Clock(skips=True)) as hf:
    ...     hf.run(wait_a_day)
    '1 day, 0:00:00'
    """

    def __init__(
        self, start: datetime = _START, *, skips: bool = False, tick_s: float = 0.0
    ) -> None:
        if start.tzinfo is None:
            raise BadInput(f"Clock({start!r}): the time needs a zone, such as datetime.UTC")
        self.skips = skips
        """Whether it goes on by itself whenever everything waits."""
        self._now = start
        self._tick = timedelta(seconds=tick_s)
        self._lock = threading.Lock()
        self._lively_s = time.monotonic()
        self._watched: list[Callable[[], Iterable[Run]]] = []
        self._waiting: dict[object, tuple[Run, str, datetime]] = {}
        self._idle: dict[object, datetime | None] = {}

    def __call__(self) -> datetime:
        """The time, for an event that happens now."""
        with self._lock:
            self._lively_s = time.monotonic()
            self._now += self._tick
            return self._now

    @property
    def now(self) -> datetime:
        """The time. Set it to go to any other, also back."""
        return self._now

    @now.setter
    def now(self, at: datetime) -> None:
        with self._lock:
            self._set(at)
        self._tell()

    def advance(self, seconds: float | timedelta) -> datetime:
        """Let time pass, and return what time it is then. A negative number sets the clock back.

        >>> clock = Clock()
        >>> str(clock.advance(3600))
        '2026-01-01 01:00:00+00:00'
        """
        by = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
        with self._lock:
            self._set(self._now + by)
        self._tell()
        return self._now

    # The calls of drivers and workers: see `holdfast.engines.clocks.OwnTime`.

    def watch(self, runs: Callable[[], Iterable[Run]]) -> None:
        """Skip no time while one of these runs has something to do."""
        with self._lock:
            self._watched.append(runs)

    @contextmanager
    def waits(self, run: Run, path: str, until: datetime) -> Iterator[None]:
        """A call waits for a time while the context is open."""
        key = object()
        with self._lock:
            self._lively_s = time.monotonic()
            self._waiting[key] = (run, path, until)
        try:
            yield
        finally:
            with self._lock:
                self._lively_s = time.monotonic()
                del self._waiting[key]

    def nap_s(self) -> float:
        """How long to wait, in real seconds, before the next look at this clock."""
        if self.skips:
            self._skip(calm_s=_CALM_S)
        return _LOOK_S

    def idle(self, worker: object, until: datetime | None) -> bool:
        """A worker has nothing to do before `until`. Whether the clock went on to some time."""
        with self._lock:
            self._idle[worker] = until
            is_alone = not any(runs() for runs in self._watched)
        return self.skips and is_alone and self._skip(calm_s=0)

    def works(self, worker: object) -> None:
        """The worker has something to do, or has ended."""
        with self._lock:
            self._idle.pop(worker, None)

    def _skip(self, calm_s: float) -> bool:
        with self._lock:
            if time.monotonic() - self._lively_s < calm_s:
                return False
            runs = [run for watched in self._watched for run in watched()]
            moments = [until for _, _, until in self._waiting.values()]
            if any(at <= self._now for at in moments) or not all(map(self._is_waiting, runs)):
                return False
            later = self._next(runs, moments)
            if later is None:
                return False
            self._set(later)
        self._tell()
        return True

    def _next(self, runs: list[Run], moments: list[datetime]) -> datetime | None:
        """The next moment at which something is to happen."""
        idle = [at for at in self._idle.values() if at is not None]
        ends = [at for run in runs if (at := run.log.state.until) is not None]
        return min((at for at in (*moments, *idle, *ends) if at > self._now), default=None)

    def _is_waiting(self, run: Run) -> bool:
        """Whether nothing of a run goes on: its calls wait, or are made by those that do."""
        waiting = [path for other, path, _ in self._waiting.values() if other is run]
        if run.loop.draining or not (waiting or run.inner):
            return False
        calls = run.log.state.calls
        return all(
            any(path == at or path.startswith(f"{at}.") for path in waiting)
            or ((call := calls.get(at)) is not None and call.kind == "child")
            for at in [*run.working, *run.loop.in_flight]
        )

    def _set(self, at: datetime) -> None:
        self._now = at
        self._lively_s = time.monotonic()

    def _tell(self) -> None:
        """The deadlines of tasks may have passed."""
        for runs in list(self._watched):
            for run in runs():
                run.tick()
