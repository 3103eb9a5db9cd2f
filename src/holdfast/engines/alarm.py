"""How a run on an event loop hears, from other threads, that it has to stop."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from holdfast.engines.run import Run
from holdfast.errors import Signal, Stop, Suspend

_HEARD_S = 0.05
"""How long it takes, at most, until all who wait for a strand have heard that it has stopped."""


class Alarm:
    """Wakes what waits on the loop when the task is told to stop, from whichever thread.

    A task that is to end for good also has its running async steps cancelled.
    """

    def __init__(self, run: Run) -> None:
        self.main: asyncio.Task[Any] = asyncio.current_task()  # type: ignore[assignment]
        self.may_cancel = False
        self.cancels = 0
        self.left_with: Signal | None = None
        self._run = run
        self._loop = asyncio.get_running_loop()
        self._naps: set[asyncio.Future[None]] = set()
        run.on_interrupt = self._ring
        run.alarm = self

    def _ring(self, signal: Signal) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self.wake, signal)

    def wake(self, signal: Signal) -> None:
        """Wake what waits, and end what runs if the task is to end for good. On the loop."""
        for nap in self._naps:
            if not nap.done():
                nap.set_result(None)
        if isinstance(signal, Stop) and self.may_cancel:
            self.cancels += 1
            self.main.cancel()
            for branch in list(self._run.branches):
                branch.cancel()

    def leave_soon(self, signal: Signal) -> None:
        """A strand of the function has stopped: if the others don't hear of it, leave them too. Who
        waits for an asyncio.Event that this one would have set, say, waits for ever."""
        if isinstance(signal, Suspend):
            self._loop.call_later(_HEARD_S, self._leave, signal)

    def _leave(self, signal: Signal) -> None:
        # Also if it may go on by now: the strand that stopped does not.
        if not self.may_cancel or self.cancels:
            return
        if self._run.in_flight:  # they come to their end first
            self.leave_soon(signal)
        else:
            self.left_with = signal
            self.cancels += 1
            self.main.cancel()

    def end(self) -> None:
        """The task's function has ended. Who runs it was not cancelled, only the function was."""
        self.may_cancel = False
        for _ in range(self.cancels):
            self.main.uncancel()

    async def nap(self, seconds: float) -> None:
        """Sleep, or until something is to be heard. Not by `wait_for`, which makes a branch."""
        waiter = self._loop.create_future()
        timer = self._loop.call_later(seconds, _set, waiter)
        self._naps.add(waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._naps.discard(waiter)


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def nap(run: Run, seconds: float) -> None:
    """Sleep, or until the run is told to stop."""
    if isinstance(run.alarm, Alarm):
        await run.alarm.nap(seconds)
    else:  # one call alone, made for a remote engine
        await asyncio.sleep(min(seconds, 1.0))
