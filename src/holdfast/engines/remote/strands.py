"""Strands: code that waits for an engine without a thread, each in a greenlet.

A sync function can't be suspended half-way by Python itself; a greenlet can. All strands of a task
run in one thread, one at a time, and change over only where they wait, so they run in the same
order each time. An async function runs in a strand too, on a `BodyLoop`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import Context, copy_context
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar, TypeVarTuple

from greenlet import GreenletExit, getcurrent, greenlet

from holdfast.engines.remote.carrier import Carrier, Pending, Timer, Until
from holdfast.errors import Signal


class Strand:
    """One strand: what it does, what it waits for, and what came of it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._greenlet = greenlet(self._run)
        self._greenlet.gr_context = copy_context()
        self.waits: tuple[Pending, ...] = ()
        self.value: Any = None
        self.error: BaseException | None = None

    def _run(self) -> None:
        try:
            self.value = self._work()
        except BaseException as error:
            self.error = error

    def done(self) -> bool:
        """Whether it has ended."""
        return bool(self._greenlet.dead)

    def result(self) -> Any:
        """Its result or error."""
        if self.error is not None:
            raise self.error
        return self.value

    def is_ready(self) -> bool:
        """Whether it can go on: it has not begun, or something that it waits for has come."""
        return not self.waits or any(pending.done() for pending in self.waits)

    def go_on(self) -> None:
        """Run it until it waits again, or to its end."""
        self._greenlet.parent = getcurrent()
        self._greenlet.switch()

    def is_run_by(self, it: greenlet) -> bool:
        """Whether a greenlet is that of this strand."""
        return self._greenlet is it

    def leave(self) -> None:
        """End it where it waits: what it does there will be done elsewhere."""
        while not self.done():  # somebody may catch it, and wait for something else
            self._greenlet.parent = getcurrent()
            self._greenlet.throw(GreenletExit())


class Strands:
    """The strands of one task."""

    def __init__(self) -> None:
        self._strands: list[Strand] = []
        self.are_left: bool = False

    def begin(self, work: Callable[[], Any]) -> Strand:
        """A new strand. It runs when those before it wait."""
        strand = Strand(work)
        self._strands.append(strand)
        return strand

    def run(self) -> None:
        """Run the strands until each of them waits for something that has not come."""
        loop = _leave_loop()
        try:
            # Always the eldest first, whatever has happened so far.
            while strand := next((s for s in self._strands if s.is_ready()), None):
                strand.go_on()
                if strand.done():
                    self._strands.remove(strand)
        finally:
            _enter_loop(*loop)

    def pendings(self) -> list[Pending]:
        """The things that the strands wait for."""
        return [pending for strand in self._strands for pending in strand.waits]

    def wait(self, *pendings: Pending) -> None:
        """Called in a strand: go on when one of these is done."""
        if self.are_left:
            raise GreenletExit
        strand = self._current()
        if strand is None:
            raise RuntimeError("this is no strand of the task")
        if any(pending.done() for pending in pendings):
            return
        strand.waits = pendings
        loop = _leave_loop()
        try:
            getcurrent().parent.switch()
        finally:
            _enter_loop(*loop)
            strand.waits = ()

    def are_here(self) -> bool:
        """Whether the code that runs is one of them: it may be in a thread of its own."""
        return self.are_left or self._current() is not None

    def _current(self) -> Strand | None:
        this = getcurrent()
        return next((strand for strand in self._strands if strand.is_run_by(this)), None)

    def side_by_side(self, work: Iterator[Callable[[], Any]], workers: int) -> Iterator[Any]:
        """Do work in strands, so much at a time; yields, in order, what each returned or raised."""
        waiting: list[Strand] = []
        for job in work:
            waiting.append(self.begin(job))
            running = [s for s in waiting if not s.done()]
            if len(running) >= workers:
                self.wait(*running)
            while waiting and waiting[0].done():
                yield _outcome(waiting.pop(0))
        for strand in waiting:
            self.wait(strand)
            yield _outcome(strand)

    def leave(self) -> None:
        """End every strand where it waits."""
        self.are_left = True
        loop = _leave_loop()
        try:
            while self._strands:
                self._strands.pop().leave()
        finally:
            _enter_loop(*loop)


def _outcome(strand: Strand) -> Any:
    return strand.error if strand.error is not None else strand.value


# Which loop runs, and which of its tasks, is known to asyncio by thread, and not by greenlet.


def _leave_loop() -> tuple[Any, Any]:
    loop = asyncio._get_running_loop()
    task = asyncio.current_task(loop) if loop is not None else None
    if loop is not None and task is not None:
        asyncio.tasks._leave_task(loop, task)
    asyncio._set_running_loop(None)
    return loop, task


def _enter_loop(loop: Any, task: Any) -> None:
    asyncio._set_running_loop(loop)
    if task is not None:
        asyncio.tasks._enter_task(loop, task)


# An asyncio loop for the function of a task: it runs what is ready in the order it became so, and
# waits for nothing but what the engine says. So plain `asyncio` code (`gather`, `TaskGroup`,
# `Event`) runs in the same order each time.


_logger = logging.getLogger("holdfast")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _Future(asyncio.Future[Any]):
    """A future that has the same place in a set each time. `asyncio.wait` returns sets, and a
    `TaskGroup` cancels the tasks of one: by their addresses they came in any order."""

    def __init__(self, *, loop: Any) -> None:
        self._number = loop.next_number()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return int(self._number)


class _Ring(_Future):
    """Waits for a timer of plain asyncio."""


class _Timer(asyncio.TimerHandle):
    """A timer of plain asyncio, and that of the engine which rings it."""

    ring: _Ring | None = None
    timer: Timer | None = None


class _Task(asyncio.Task[Any]):
    """The same for a task."""

    def __init__(self, coro: Any, *, loop: Any, **options: Any) -> None:
        self._number = loop.next_number()
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return int(self._number)


def _ordered_task(loop: BodyLoop, coro: Any, **options: Any) -> _Task:
    return _Task(coro, loop=loop, **options)


class BodyLoop(asyncio.AbstractEventLoop):
    """The loop of one task. It has no sockets, pipes or processes."""

    def __init__(self, carrier: Carrier, strands: Strands) -> None:
        self._carrier = carrier
        self._strands = strands
        self._ready: deque[asyncio.Handle] = deque()
        self._waits: list[tuple[Pending, asyncio.Future[None]]] = []
        self._numbers = count()
        self._factory: Any = _ordered_task
        self.keep: Callable[[], None] = lambda: None
        """Makes durable what the function has said: called before the engine is asked for more."""
        self.is_to_end: Callable[[], bool] = lambda: False
        self.end: Callable[[], None] | None = None
        """Called when that is so, and the function waits for nothing that would tell it."""
        self.left_with: Callable[[], Signal | None] = lambda: None
        """The signal that the function is to be left with, if it waits for nothing that would tell
        it."""

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its end, in a strand."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            task = self.create_task(main)
            while True:
                self._run_ready()
                if task.done():
                    return task.result()
                self._wait()
        except (GreenletExit, Signal):
            self._leave()
            raise
        finally:
            asyncio._set_running_loop(outer)

    def _run_ready(self) -> None:
        while self._ready:
            handle = self._ready.popleft()
            if not handle.cancelled():
                # They are in the task that raised them as well, for its waiters; this process
                # does not end by them.
                with suppress(SystemExit, KeyboardInterrupt):
                    handle._run()

    def _leave(self) -> None:
        """End what runs here: it goes on elsewhere."""
        for task in asyncio.all_tasks(self):
            task.cancel()
        self._run_ready()

    def _wait(self) -> None:
        self._waits = [(p, future) for p, future in self._waits if not future.done()]
        hears = any(not isinstance(future, _Ring) for _, future in self._waits)
        if not hears and self.end is not None and self.is_to_end():
            self.end()
        elif not hears and (signal := self.left_with()) is not None:
            # An asyncio.Event, say, which a branch would have set that has stopped.
            raise signal
        news = Until(lambda: bool(self._ready) or (not hears and self._is_news()))
        self._strands.wait(*(pending for pending, _ in self._waits), news)
        for pending, future in self._waits:
            if pending.done() and not future.done():
                future.set_result(None)

    def _is_news(self) -> bool:
        return self.is_to_end() or self.left_with() is not None

    def until(self, *pendings: Pending) -> asyncio.Future[None]:
        """A future that is done when one of these is."""
        future: asyncio.Future[None] = self.create_future()
        self._waits.extend((pending, future) for pending in pendings)
        return future

    # What asyncio asks of a loop

    def time(self) -> float:
        return self._carrier.now().timestamp()

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self.keep()
        handle: Any = _Timer(self.time() + delay, callback, args, self, context)
        handle.timer = timer = self._carrier.sleep(self._carrier.now() + timedelta(seconds=delay))
        handle.ring = ring = _Ring(loop=self)
        handle._scheduled = True  # so that we hear if it is cancelled
        self._waits.append((timer, ring))
        ring.add_done_callback(lambda _: self._ready.append(handle))
        timed: asyncio.TimerHandle = handle
        return timed

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_later(max(when - self.time(), 0), callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if isinstance(handle, _Timer) and handle.ring is not None and handle.timer is not None:
            handle.ring.cancel()
            if not self._strands.are_left:  # else it is only forgotten here, and goes on elsewhere
                handle.timer.give_up()

    def next_number(self) -> int:
        """Counts the tasks and futures of this loop."""
        return next(self._numbers)

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> Any:
        return self._factory(self, coro, **options)

    def set_task_factory(self, factory: Any) -> None:
        self._factory = factory or _ordered_task

    def get_task_factory(self) -> Any:
        return self._factory

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        # At once, and here: in which order threads run to their end is not the same each time.
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        is_signal = isinstance(context.get("exception"), Signal)
        if not self._strands.are_left and not is_signal:
            _logger.error(
                "in a task: %s", context.get("message"), exc_info=context.get("exception")
            )

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    async def shutdown_asyncgens(self) -> None:
        pass


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(self: BodyLoop, *args: Any, **options: Any) -> Any:
        raise NotImplementedError(
            f"the function of a task has no connections, processes or signals on a remote engine "
            f"(asyncio's {name}): do that in a step"
        )

    return refuse


for _name in (
    "add_reader",
    "add_signal_handler",
    "connect_read_pipe",
    "connect_write_pipe",
    "create_connection",
    "create_datagram_endpoint",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "getaddrinfo",
    "sock_connect",
    "subprocess_exec",
    "subprocess_shell",
):
    setattr(BodyLoop, _name, _refusing(_name))
