"""The parts that tasks on an event loop share: threads, the store asked together, and how they
stop.

A loop leaves what blocks to threads of our own, apart from those that users' code leaves it to.
asyncio has one small pool for everybody. If the store had to wait there behind a user's
`to_thread`, or a waiting `result()`, tasks would hold each other up, or for ever.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from functools import cache, partial
from threading import Thread
from typing import Any, Generic, NoReturn, TypeVar

from holdfast.core.scope import Scope, scope_var
from holdfast.core.state import scope_of
from holdfast.engines.holder import Ending, Holding, Wanted, sync_together
from holdfast.engines.run import Run
from holdfast.errors import Halt, Signal, Stop, Suspend, TaskWaiting
from holdfast.log.log import Log

T = TypeVar("T")

_STORE_THREADS, _CALL_THREADS = 16, 32
_POLL_S = 0.005


@cache
def _store_pool() -> Executor:
    return ThreadPoolExecutor(_STORE_THREADS, thread_name_prefix="holdfast store")


@cache
def call_pool() -> Executor:
    """Threads for what callers ask of a store. Running tasks write their logs by others, so that
    no caller holds up a task."""
    return ThreadPoolExecutor(_CALL_THREADS, thread_name_prefix="holdfast call")


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
        # A cancelled waiter waits for what can not be cancelled.
        while thread.is_alive():  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)


# An event loop in a thread of its own, for those who have none.


class LoopThread:
    """A loop that runs until it is closed."""

    def __init__(self, name: str = "holdfast loop") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

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
        self.may_cancel: bool = False
        self.cancels: int = 0
        self.left_with: Signal | None = None
        self._run = run
        self._loop = asyncio.get_running_loop()
        self._naps: set[asyncio.Future[None]] = set()
        run.on_interrupt = self._ring
        run.loop.alarm = self

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
            for branch in list(self._run.loop.branches):
                branch.cancel()

    def leave_soon(self, signal: Signal) -> None:
        """A strand of the function has stopped: if the others don't hear of it, leave them too. A
        task that waits for an asyncio.Event that this one would have set, say, waits for ever."""
        if isinstance(signal, Suspend):
            self._loop.call_later(_HEARD_S, self._leave, signal)

    def _leave(self, signal: Signal) -> None:
        # Also if it may go on by now: the strand that stopped does not.
        if not self.may_cancel or self.cancels:
            return
        if self._run.loop.in_flight:  # they run to their end first
            self.leave_soon(signal)
        else:
            self.left_with = signal
            self._run.loop.cut_off.add("")
            self.cancels += 1
            self.main.cancel()

    def end(self) -> None:
        """The task's function has ended. Its runner was not cancelled, only the function was."""
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
    if run.loop.alarm is not None:
        await run.loop.alarm.nap(seconds)
    else:  # one call alone, made for a remote engine
        await asyncio.sleep(min(seconds, 1.0))


# The requests of the many tasks of one event loop to the store, made together.
#
# The store blocks, so it is asked in threads. If each task went to a thread of its own, a step
# would cost two changes of threads, and the disk as many syncs as there are tasks. So tasks that
# take hold of a log, wait for a sync or let go stand in line here, and one thread does it for all
# of them at once. A task that comes meanwhile is in the next group, together with those that this
# one has just woken.


R = TypeVar("R")


class WaitingLine(Generic[T, R]):
    """A line of those who want the same thing done, and a function that does it for many.

    The function is called in a thread. It returns, for each in order, the result or an exception.
    """

    def __init__(
        self, do: Callable[[Sequence[T]], Sequence[R | BaseException]], most_groups: int = 1
    ) -> None:
        self._do = do
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._groups = 0
        self._most_groups = most_groups
        self._is_called = False

    def wait(self, wanted: T) -> asyncio.Future[R]:
        """Stand in line; done when it is done."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((wanted, future))
        self._go_on(loop)
        return future

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._waiting and not self._is_called and self._groups < self._most_groups:
            self._is_called = True
            # Not at once: the tasks that are about to run may want the same.
            loop.call_soon(self._start)

    def _start(self) -> None:
        self._is_called = False
        self._groups += 1
        group, self._waiting = self._waiting, []
        try:
            done = off_loop(self._do, [wanted for wanted, _ in group])
        except RuntimeError as error:  # the interpreter is ending, and starts no more threads
            done = asyncio.get_running_loop().create_future()
            done.set_exception(error)
        done.add_done_callback(partial(self._tell, [future for _, future in group]))

    def _tell(
        self,
        futures: list[asyncio.Future[R]],
        done: asyncio.Future[Sequence[R | BaseException]],
    ) -> None:
        failed = done.exception()
        outcomes = [failed] * len(futures) if failed is not None else done.result()
        for future, outcome in zip(futures, outcomes, strict=True):
            if future.done():
                continue  # it was cancelled meanwhile
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        self._groups -= 1
        self._go_on(done.get_loop())


class Lines:
    """Where the tasks of one loop wait for one store."""

    def __init__(self, holding: Holding) -> None:
        # Reading a long log takes a while, for which the others need not wait.
        self.take: WaitingLine[Wanted, Log] = WaitingLine(holding.take_many, most_groups=4)
        self.release: WaitingLine[Ending, None] = WaitingLine(holding.release_many, most_groups=4)
        self._sync: WaitingLine[Log, None] = WaitingLine(sync_together)

    def sync(self, log: Log) -> asyncio.Future[None]:
        """Done when everything appended to a log so far is durable.

        The thread that syncs it also writes it. A loop that wrote for itself would release the
        interpreter at each write, and wait for it again behind that thread.
        """
        return self._sync.wait(log)


def lines_of(holding: Holding) -> Lines:
    """Where the tasks of the running loop wait for a store."""
    loop = asyncio.get_running_loop()
    lines = holding.of_loop.get(loop)
    if lines is None:
        lines = holding.of_loop[loop] = Lines(holding)
    return lines


class HeldLog:
    """A task's log, held until the block ends. Signals leave it as the errors they carry."""

    def __init__(self, holding: Holding, task_id: str, begin: Callable[[Log], None]) -> None:
        self.lines: Lines = lines_of(holding)
        self._wanted = (task_id, begin)
        self._log: Log

    async def __aenter__(self) -> Log:
        taking = self.lines.take.wait(self._wanted)
        try:
            self._log = await asyncio.shield(taking)
        except asyncio.CancelledError:
            await asyncio.wait([taking])
            if taking.exception() is None:
                await self.lines.release.wait((taking.result(), None))
            raise
        return self._log

    async def __aexit__(self, kind: Any, error: BaseException | None, *_: Any) -> None:
        waiting = error.waiting if isinstance(error, Suspend) else None
        await self.lines.release.wait((self._log, waiting))
        if waiting is not None:
            raise waiting from None
        if isinstance(error, Halt):
            raise error.error from error.__cause__


# How the strands of an async task come to a stop together.
#
# A strand that has to stop lets the calls run to their end that others are making, and raises then.
# A strand that does not hear of that, because it waits for plain asyncio, is left.


_QUIET_S = 0.02


async def park(run: Run, path: str, waiting: TaskWaiting) -> None:
    """Let the other branches work on until all of them wait for something too; then stop.

    Returns if the task was told something meanwhile: it may be what the call waits for.
    """
    _give_up(run, path)
    told = run.log.messages
    run.log.waits.append(waiting.until)
    while True:
        # Others may be about to make their first call, or their next one.
        await asyncio.sleep(_QUIET_S)
        if not run.loop.in_flight:
            break
        await asyncio.wait(list(run.loop.in_flight.values()))
    if run.log.messages != told and run.stop is None:
        run.log.waits.remove(waiting.until)
        return
    run.stop = run.stop or Suspend(waiting)
    _raise_in(run, path, run.stop)


async def stop(run: Run, path: str) -> NoReturn:
    """Stop this strand, but let the calls that other branches are making run to their end: raising
    at once would make a `TaskGroup` cancel them, and leave them in doubt."""
    _give_up(run, path)
    while isinstance(run.stop, Suspend) and run.loop.in_flight:
        await asyncio.wait(list(run.loop.in_flight.values()))
    told = Suspend(TaskWaiting(run.task_id, "told to stop"))
    _raise_in(run, path, run.stop or told)


def _raise_in(run: Run, path: str, signal: Signal) -> NoReturn:
    if run.loop.alarm is not None:
        run.loop.alarm.leave_soon(signal)
    run.raise_in(path, signal)


def _give_up(run: Run, path: str) -> None:
    # This call, and those it was made in, won't end in this run: nobody needs to wait for them.
    while path:
        if path in run.loop.in_flight:
            land(run, path, run.loop.in_flight[path])
        path = scope_of(path)


def land(run: Run, path: str, mark: asyncio.Future[None]) -> None:
    """A call under way has come to its end, or nobody needs to wait for it."""
    if run.loop.in_flight.get(path) is mark:
        del run.loop.in_flight[path]
    if not mark.done():
        mark.set_result(None)


class UnderWay:
    """A call is under way: others that have to stop let it run to its end first.

    No `@contextmanager`: every call of an async task goes through here.
    """

    __slots__ = ("_mark", "_path", "_run")

    def __init__(self, run: Run, path: str) -> None:
        self._run = run
        self._path = path

    def __enter__(self) -> None:
        mark = asyncio.get_running_loop().create_future()
        self._mark = self._run.loop.in_flight[self._path] = mark

    def __exit__(self, *_: object) -> None:
        land(self._run, self._path, self._mark)


# How an asyncio task that is made inside a scope gets a scope of its own.
#
# See `holdfast.core.scope` for why. It is done by a task factory on the running loop, because that
# is the one place that learns of every asyncio task as it is made, and before it runs.


def branch_asyncio_tasks() -> None:
    """See to it that each asyncio task made inside a scope gets a scope of its own."""
    loop = asyncio.get_running_loop()
    factory = loop.get_task_factory()
    if not isinstance(factory, _Branching):
        loop.set_task_factory(_Branching(factory))


class _Branching:
    """A task factory that branches the scope, on top of whichever factory was there."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner or _plain_task

    def __call__(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Any,
        *,
        context: Context | None = None,
        **options: Any,
    ) -> Any:
        context = context if context is not None else copy_context()
        scope = context.get(scope_var)
        if scope is not None:
            scope.run.begins_to_await(coro)
        if scope is not None and scope.fresh:
            scope.fresh = False
        elif scope is not None:
            name = getattr(coro, "__name__", type(coro).__name__)
            scope = scope.branch(name)
            context.run(scope_var.set, scope)
        made = self._inner(loop, coro, context=context, **options)
        if scope is not None:
            scope.run.loop.branches.add(made)
            made.add_done_callback(partial(_ended, scope))
        return made


def _ended(scope: Scope, branch: asyncio.Task[Any]) -> None:
    scope.run.loop.branches.discard(branch)
    if branch.cancelled():
        scope.run.loop.cut_off.add(scope.path)
    elif isinstance(getattr(branch, "_exception", None), Signal):
        branch.exception()  # asyncio would say that nobody asked for it, and nobody has to


def _plain_task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
    return asyncio.Task(coro, loop=loop, **options)
