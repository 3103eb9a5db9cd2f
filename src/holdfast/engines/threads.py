"""Work that an event loop leaves to threads, apart from the threads that users' code leaves it to.

asyncio has one small pool for everybody. If the store had to wait there behind a user's
`to_thread`, or a waiting `result()`, tasks would hold each other up, or for ever.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import cache, partial
from threading import Thread
from typing import Any, TypeVar

from holdfast.engines.run import Run
from holdfast.errors import Signal, Stop, Suspend

T = TypeVar("T")

_STORE_THREADS = 16
_POLL_S = 0.005


@cache
def _store_pool() -> Executor:
    return ThreadPoolExecutor(_STORE_THREADS, thread_name_prefix="holdfast store")


def off_loop(work: Callable[..., T], *args: Any, pool: Executor | None = None) -> asyncio.Future[T]:
    """Do a short piece of work, such as a sync, in a thread. A future, and no asyncio task: that
    would count as a branch of the task that runs here."""
    call = partial(copy_context().run, work, *args)
    return asyncio.get_running_loop().run_in_executor(pool or _store_pool(), call)


async def in_own_thread(work: Callable[..., T], *args: Any) -> T:
    """Do work that may take long, such as a whole task, in a thread of its own."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    call = partial(copy_context().run, work, *args)

    def settle(value: Any, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)

    def run() -> None:
        try:
            outcome: tuple[Any, BaseException | None] = (call(), None)
        except BaseException as error:
            outcome = (None, error)
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, *outcome)

    thread = Thread(target=run, name="holdfast task", daemon=True)
    thread.start()
    try:
        return await done
    finally:
        # Who was cancelled waits for what can not be.
        while thread.is_alive():  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)


# An event loop in a thread of its own, for those who have none.


class LoopThread:
    """A loop that runs until it is closed."""

    def __init__(self, name: str = "holdfast loop") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call_soon(self, work: Callable[[], Any]) -> None:
        """Do something on the loop, soon."""
        self._loop.call_soon_threadsafe(work)

    def close(self) -> None:
        """End the loop; nothing runs on it any more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


# How a run on an event loop hears, from other threads, that it has to stop.


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
