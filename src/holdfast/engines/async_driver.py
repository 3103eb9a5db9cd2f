"""The async driver: carries out the journal's requests on the event loop.

The store is synchronous, so a sync happens off the loop; a plain append takes microseconds and
stays on it. A sync step called from an async task runs in the loop's thread, as any function does:
make it async, or call it with `asyncio.to_thread`.
"""

from __future__ import annotations

import asyncio
import inspect
import types
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import Context, copy_context
from datetime import datetime
from functools import partial
from typing import Any, NoReturn, Protocol, TypeVar, cast

from holdfast.codec import Given
from holdfast.core.events import Claimed
from holdfast.core.journal import (
    Append,
    Asked,
    Await,
    Check,
    DriveChild,
    Flow,
    Look,
    Now,
    Park,
    Raised,
    Request,
    Returned,
    RunBody,
    Sleep,
    Stopped,
    conduct,
    perform,
)
from holdfast.core.scope import Scope, running, scope_var
from holdfast.core.spec import Spec, is_async
from holdfast.core.state import Call
from holdfast.engines import limits
from holdfast.engines import sync_driver as local
from holdfast.engines.clocks import counting_down
from holdfast.engines.execution import (
    Body,
    altered,
    awaiting_child,
    conclude,
    family_of,
    look_up,
    must_be_open,
    sleeping,
    stopped,
    taken_again,
    task_arguments,
    task_raised,
    task_returned,
    to_append,
)
from holdfast.engines.loops import (
    Alarm,
    Lines,
    UnderWay,
    branch_asyncio_tasks,
    land,
    nap,
    off_loop,
    park,
    stop,
)
from holdfast.engines.run import Run, begun_here, beyond
from holdfast.errors import (
    HoldfastError,
    LeaseLost,
    Stop,
    TaskBusy,
    TaskWaiting,
    Unserializable,
)

T = TypeVar("T")

_POLL_S = 0.005


def call(
    scope: Scope, spec: Spec, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Coroutine[Any, Any, Any]:
    """Make a call of a running task. It gets its path now, not when it is awaited: the order in
    which calls are written is the same on every run, the order in which they run is not."""
    run: Run = scope.run
    if run.has_given_up:
        must_be_open(scope)
    _must_be_one_strand(scope)
    path = scope.next_path()
    try:
        data, given = spec.signature.take(args, kwargs, run.log.growing)
    except Unserializable as refused:
        take = partial(spec.signature.take, args, kwargs, run.log.growing)
        data, given = taken_again(run, path, refused, take)
    made: Any = call_at(run, path, spec, data, given)
    made.__qualname__ = spec.name  # as Python calls it, if nobody awaits it
    run.unawaited[path] = (spec.name, weakref.ref(made))
    return cast("Coroutine[Any, Any, Any]", made)


def _must_be_one_strand(scope: Scope) -> None:
    """Halt if two asyncio tasks count their calls in one scope: in whatever order they run.

    Inside an async task each gets a scope of its own. In a sync one nobody sees to that.
    """
    try:
        strand = asyncio.current_task()
    except RuntimeError:  # no loop runs yet: the coroutine is made here and run elsewhere
        return
    owner = scope.owner
    if owner is strand:
        return
    if owner is None or owner.get_loop() is not asyncio.get_running_loop():
        scope.owner = strand  # also of a loop that has ended: one asyncio.run after the other
        return
    scope.run.halt(
        HoldfastError(
            f"task {scope.run.task_id!r}: two asyncio tasks make calls in the same strand, so a "
            f"replay could mix them up. Make the task async, or use gather() of holdfast"
        )
    )


async def call_at(run: Run, path: str, spec: Spec, data: bytes, given: Given | None = None) -> Any:
    """The call at a path, from its record or for real; `given` as for a sync one."""
    run.unawaited.pop(path, None)
    if run.stop is not None and run.is_stopped(path):
        await stop(run, path)
    branch_asyncio_tasks()
    if run.log.state.fork is not None:
        data, given = altered(run, path, spec, data), None
    asked, record = look_up(run, path, spec, data)
    asked.given = given
    return conclude(run, spec, await run.driver.amake(run, asked, record, data), path)


async def perform_here(run: Run, asked: Asked, record: Call | None, data: bytes) -> Returned | Call:
    """Make a call on this loop, unless its record answers it: then without waiting, so that a
    replay runs in the order the code is written."""
    if record is not None and record.status == "completed":
        return record
    with UnderWay(run, asked.path):
        body = Body(run, asked, asked.spec, data, asked.given)
        if asked.given is None:
            body.must_fit()
        if asked.spec.limit is not None:
            limits.weigh(body)
        once, check = partial(run_body, body), partial(run_check, body)
        try:
            return await drive(perform(asked, record), run, asked.path, once, check)
        finally:
            if asked.path in run.admitted:
                await off_loop(limits.give_back, run, asked.path)


async def run_task(
    run: Run, spec: Spec, claimed: Claimed, lines: Lines
) -> Returned | Raised | Stopped:
    """Drive an async task to its end on this loop."""
    alarm = Alarm(run)
    run.loop.lines, run.loop.loop = lines, asyncio.get_running_loop()
    run.tick()
    flow = conduct(claimed, run.log.state, spec.undo_when, synced=run.patience_s is not None)
    return await drive(flow, run, "", partial(run_function, run, spec, alarm), nothing)


async def run_function(run: Run, spec: Spec, alarm: Alarm) -> Returned | Raised | Stopped:
    """Run a task's function from its top."""
    run.begin(spec)
    run.root.is_async = True
    branch_asyncio_tasks()
    args, kwargs = task_arguments(run, spec)
    token = scope_var.set(run.root)
    running[run] = begun_here(run)
    alarm.may_cancel = True
    try:
        value = await spec.fn(*args, **kwargs)
    except Stop as signal:
        return stopped(signal)
    except asyncio.CancelledError as error:
        if alarm.cancels and isinstance(run.stop, Stop):
            return stopped(run.stop)
        if alarm.left_with is not None:
            raise alarm.left_with from None
        if run.patience_s is None or alarm.main.cancelling():
            raise
        return task_raised(run, error)  # nobody cancelled it: that was its own doing
    except SystemExit as error:
        if run.patience_s is None:
            raise  # the program may end; in a worker there are others
        return task_raised(run, error)
    except BaseExceptionGroup as group:
        if run.stop is None and not isinstance(group, Exception):
            raise
        return task_raised(run, group)
    except BaseException as error:
        if not run.is_failure(error):
            raise
        return task_raised(run, error)
    finally:
        alarm.end()
        running.pop(run, None)
        scope_var.reset(token)
        if run.has_streamed or run.working:
            await _let_end(run)
        if run.loop.branches:
            await _end_branches(run.loop.branches)
    return task_returned(run, spec, value)


async def drive(
    flow: Generator[Request, Any, T],
    run: Run,
    path: str,
    run_once: Callable[[], Awaitable[Any]],
    check: Callable[[], Awaitable[Returned | Raised | None]],
) -> T:
    """Carry out a flow's requests until it ends."""
    answer: Any = None
    strand = scope_var.get()
    send, may_act = flow.send, run.driver.writes and path not in run.beyond
    try:
        while True:
            request = send(answer)
            if isinstance(request, RunBody):
                answer = await run_once()
            elif isinstance(request, Append) and may_act:
                if (synced := append(request, run, path, strand)) is not None:
                    await synced
                answer = run.log.state.calls.get(path)
            else:
                answer = await run.driver.acarry_out(request, run, path, strand, check)
    except StopIteration as end:
        ended: T = end.value
        return ended


async def must_hold(run: Run) -> None:
    """Halt if another may drive the task by now: see `Run.must_hold`."""
    tenure = run.log.tenure
    while tenure is not None and not tenure.is_sure():
        try:
            await off_loop(tenure.confirm)
        except HoldfastError as error:
            run.halt(error)


def append(
    request: Append, run: Run, path: str, strand: Scope | None
) -> Coroutine[Any, Any, None] | None:
    """Append an event for a flow; what to await until it is durable, if the flow has to."""
    run.append(to_append(request, path) if request.while_waiting else request.event, strand)
    if request.sync or run.log.state.deaths:  # then the next driver sees where this one was
        return _synced(run)
    return None


async def _synced(run: Run) -> None:
    try:
        if run.loop.loop is asyncio.get_running_loop() and run.loop.lines is not None:
            await run.loop.lines.sync(run.log)
        else:  # of a sync task, or of a single call: nobody else waits here
            await off_loop(run.log.sync)
    except HoldfastError as error:
        run.halt(error)


async def carry_out(
    request: Request,
    run: Run,
    path: str,
    strand: Scope | None,
    check: Callable[[], Awaitable[Returned | Raised | None]],
) -> Any:
    """Do what a flow asks for, apart from running a body."""
    if not run.may_act(path) and not isinstance(request, Look):
        await park(run, path, beyond(run, path))
    if isinstance(request, Append):
        if (synced := append(request, run, path, strand)) is not None:
            await synced
        return run.log.state.calls.get(path)
    if isinstance(request, Look | Now):
        return local.carry_out(request, run, path, strand, local.nothing)
    if isinstance(request, Sleep):
        if request.park and run.is_too_long(request.until, path):
            await park(run, path, sleeping(run, request.until, request.why))
        return await _sleep_until(run, path, request.until)
    if isinstance(request, Check):
        return await check()
    if isinstance(request, Park):
        return await park(run, path, request.waiting)
    if isinstance(request, DriveChild):
        return await _drive_child(run, path, request.id)
    if isinstance(request, Await):
        return await _await(run, path, request.waiting)
    return await off_loop(local.carry_out, request, run, path, strand, local.nothing)


async def _await(run: Run, path: str, waiting: TaskWaiting) -> None:
    while (wait_s := local.awaited_s(run, path, waiting)) > 0:
        await nap(run, wait_s)
        if run.is_stopped(path):
            await stop(run, path)


async def _drive_child(run: Run, path: str, id: str) -> None:
    if not run.is_patient(path):
        return await park(run, path, awaiting_child(run, id))
    mark = run.loop.in_flight[path] = asyncio.get_running_loop().create_future()
    try:
        await family_of(run).adrive(id)
    except TaskWaiting as waiting:
        run.must_go_on(path)
        await park(run, path, waiting)
    except (TaskBusy, LeaseLost):  # it is driven elsewhere: look again soon
        await nap(run, local.POLL_S)
        run.must_go_on(path)
    except HoldfastError as error:
        run.halt(error, path)
    finally:
        land(run, path, mark)


async def _sleep_until(run: Run, path: str, until: datetime) -> None:
    with counting_down(run, path, until) as countdown:
        while True:
            if run.is_stopped(path):
                await stop(run, path)
            if countdown.left_s() <= 0:
                return
            await nap(run, countdown.nap_s())


async def run_body(body: Body) -> Returned | Raised:
    """Run a step's coroutine once, inside its own scope."""
    scope, spec = body.scope(), body.spec
    token = scope_var.set(scope)
    limit = None if spec.timeout_s is None else asyncio.timeout(spec.timeout_s)
    try:
        args, kwargs = body.arguments()
        tenure = body.run.log.tenure
        if tenure is not None and not tenure.is_sure():
            await must_hold(body.run)
        context = copy_context()
        if limit is None:
            value = await in_context(context, context.run(spec.fn, *args, **kwargs))
        else:
            async with limit:
                value = await in_context(context, context.run(spec.fn, *args, **kwargs))
    except BaseException as error:
        if not is_failure(body.run, error):
            raise
        if limit is None or not limit.expired():
            return body.raised(error)
        # It does not matter what the body made of being cancelled.
        scope.close()
        return body.raised(local.late(spec), timed_out=True)
    finally:
        scope_var.reset(token)
    return body.returned(value)


@types.coroutine
def in_context(context: Context, work: Awaitable[T]) -> Generator[Any, None, T]:
    """Await something in a context of its own, without an asyncio task of its own.

    The task does not see a context variable that a body sets: on a replay it would be missed.
    """
    is_coroutine = inspect.iscoroutine(work)
    steps: Any = work if is_coroutine else work.__await__()
    error: BaseException | None = None
    while True:
        try:
            if error is not None:
                waits_for = context.run(steps.throw, error)
            elif is_coroutine:
                waits_for = context.run(steps.send, None)
            else:
                waits_for = context.run(next, steps)
        except StopIteration as end:
            ended: T = end.value
            return ended
        error = None
        try:
            yield waits_for
        except BaseException as thrown:
            error = thrown


def is_failure(run: Run, error: BaseException) -> bool:
    """Whether code failed by itself. A cancelled task does not fail."""
    this = asyncio.current_task()
    is_cancelled = this is not None and this.cancelling() > 0
    return run.is_failure(error) and (isinstance(error, Exception) or not is_cancelled)


async def operate(
    run: Run,
    path: str,
    spec: Spec,
    data: bytes,
    flow_of: Callable[[Asked, Call | None], Flow],
    end: Callable[[Run, Any], Any],
) -> Any:
    """Carry out a flow that has no body of its own, such as a sleep or a question."""
    run.unawaited.pop(path, None)
    if run.is_stopped(path):
        await stop(run, path)
    branch_asyncio_tasks()
    asked, record = look_up(run, path, spec, data)
    record = await run.driver.arepeat(run, path, record)
    return end(run, await drive(flow_of(asked, record), run, path, nothing, nothing))


async def run_check(body: Body) -> Returned | Raised | None:
    """Ask a tool's `check`, which may be sync (then in a thread) or async."""
    check = body.spec.check
    if check is None or not is_async(check):
        return await off_loop(local.run_check, body)
    await must_hold(body.run)
    token = scope_var.set(None)
    try:
        answer = await check(body.asked.key)
    except BaseException as error:
        if not is_failure(body.run, error):
            raise
        return body.raised(error)
    finally:
        scope_var.reset(token)
    return body.checked(answer)


async def nothing() -> NoReturn:
    """The arguments for a flow that runs or checks nothing."""
    local.nothing()


async def _let_end(run: Run) -> None:
    """Wait for what can't be cancelled: steps in threads, and streams that run to their end."""
    for _ in range(3):  # a reader that has just left is noticed by the loop in its next turns
        await asyncio.sleep(0)
    while run.working or run.loop.draining:  # noqa: ASYNC110 - threads end them
        await asyncio.sleep(_POLL_S)


async def _end_branches(branches: set[asyncio.Task[Any]]) -> None:
    """End what the body left running: nothing of a task outlives it."""
    left = [branch for branch in branches if not branch.done()]
    for branch in left:
        branch.cancel()
    await asyncio.gather(*left, return_exceptions=True)


# Branches: asyncio tasks with paths that were given beforehand.


class BatchOfCalls(Protocol):
    """The requests of `each` to its batch: see `holdfast.api.branches`."""

    run: Run
    spec: Spec
    meter: Any

    def note(self, outcome: Any) -> None: ...
    def end(self) -> Any: ...
    def stop_if_doomed(self) -> None: ...


async def gather(strands: Sequence[Scope], branches: Iterable[Awaitable[Any]]) -> list[Any]:
    """Run coroutines side by side, each in its strand; what each returned or raised."""
    branch_asyncio_tasks()
    tasks = [_start(strand, branch) for strand, branch in zip(strands, branches, strict=True)]
    return await asyncio.gather(*tasks, return_exceptions=True)


async def each(batch: BatchOfCalls, calls: Iterator[tuple[str, bytes]], workers: int) -> Any:
    """Make the calls of a batch, so many at a time."""
    running: set[asyncio.Future[Any]] = set()
    has_threads = not batch.spec.is_async and batch.run.driver.has_threads
    pool = ThreadPoolExecutor(workers) if has_threads else None
    try:
        for path, data in calls:
            running.add(asyncio.ensure_future(_call(batch, path, data, pool)))
            if len(running) >= workers:
                running = await _take(batch, running)
        while running:
            running = await _take(batch, running)
    except Exception:
        # The items that are under way run to their end, and may have something to say first.
        await asyncio.gather(*running, return_exceptions=True)
        batch.stop_if_doomed()
        raise
    finally:
        batch.meter.end()
        for left in running:
            left.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if pool is not None:
            pool.shutdown(wait=False)
    return batch.end()


async def _take(batch: BatchOfCalls, running: set[asyncio.Future[Any]]) -> set[asyncio.Future[Any]]:
    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        batch.note(task.exception() or task.result())
    return running


async def _call(batch: BatchOfCalls, path: str, data: bytes, pool: Executor | None) -> Any:
    if pool is None:
        return await call_at(batch.run, path, batch.spec, data)
    return await off_loop(local.call_at, batch.run, path, batch.spec, data, pool=pool)


def _start(strand: Scope, branch: Awaitable[Any]) -> asyncio.Task[Any]:
    context = copy_context()
    context.run(scope_var.set, strand)
    return asyncio.get_running_loop().create_task(_awaited(branch), context=context)


async def _awaited(branch: Awaitable[Any]) -> Any:
    return await branch
