"""The async driver: carries out the journal's requests on the event loop.

The store is synchronous, so a sync happens off the loop; a plain append takes microseconds and
stays on it. A sync step called from an async task runs in the loop's thread, as any function does:
make it async, or call it with `asyncio.to_thread`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from datetime import datetime
from functools import partial
from typing import Any, NoReturn, TypeVar

from holdfast.engines import local
from holdfast.engines.alarm import Alarm, nap
from holdfast.engines.branching import branch_asyncio_tasks
from holdfast.engines.clocks import Countdown
from holdfast.engines.execution import (
    Body,
    awaiting_child,
    beyond,
    conclude,
    family_of,
    must_be_open,
    sleeping,
    stopped,
    task_arguments,
    task_raised,
    task_returned,
    to_append,
)
from holdfast.engines.landing import land, park, stop, under_way
from holdfast.engines.lookup import altered, look_up
from holdfast.engines.run import Run
from holdfast.engines.threads import off_loop
from holdfast.engines.together import Lines
from holdfast.errors import (
    HoldfastError,
    LeaseLost,
    Stop,
    TaskBusy,
    TaskWaiting,
)
from holdfast.events import Claimed
from holdfast.journal import (
    Append,
    Asked,
    Check,
    DriveChild,
    Flow,
    Look,
    Now,
    Park,
    Raised,
    Request,
    Returned,
    Sleep,
    Stopped,
    conduct,
    perform,
)
from holdfast.journal import Run as RunBody
from holdfast.scope import Scope, scope_var
from holdfast.spec import Spec, is_async
from holdfast.state import Call

T = TypeVar("T")

_POLL_S = 0.005


def call(
    scope: Scope, spec: Spec, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Coroutine[Any, Any, Any]:
    """Make a call of a running task. It gets its path now, not when it is awaited: the order in
    which calls are written is the same on every run, the order in which they run is not."""
    must_be_open(scope)
    _must_be_one_strand(scope)
    path = scope.next_path()
    data = spec.signature.dump_call(args, kwargs, scope.run.log.growing)
    return call_at(scope.run, path, spec, data)


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


async def call_at(run: Run, path: str, spec: Spec, data: bytes) -> Any:
    """The call at a path, from its record or for real."""
    if run.is_stopped(path):
        await stop(run, path)
    branch_asyncio_tasks()
    data = altered(run, path, spec, data)
    asked, record = look_up(run, path, spec, data)
    return conclude(run, spec, await run.driver.amake(run, asked, record, data), path)


async def perform_here(run: Run, asked: Asked, record: Call | None, data: bytes) -> Returned | Call:
    """Make a call on this loop."""
    with under_way(run, asked.path):
        body = Body(run, asked, data)
        once, check = partial(run_body, body), partial(run_check, body)
        return await drive(perform(asked, record), run, asked.path, once, check)


async def run_task(
    run: Run, spec: Spec, claimed: Claimed, lines: Lines
) -> Returned | Raised | Stopped:
    """Drive an async task to its end on this loop."""
    alarm = Alarm(run)
    run.lines, run.loop = lines, asyncio.get_running_loop()
    run.tick()
    flow = conduct(claimed, run.log.state, spec.undo_when)
    return await drive(flow, run, "", partial(run_function, run, spec, alarm), nothing)


async def run_function(run: Run, spec: Spec, alarm: Alarm) -> Returned | Raised | Stopped:
    """Run a task's function from its top."""
    run.begin(spec)
    run.root.is_async = True
    branch_asyncio_tasks()
    args, kwargs = task_arguments(run, spec)
    token = scope_var.set(run.root)
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
        scope_var.reset(token)
        if run.has_streamed or run.working:
            await _let_end(run)
        if run.branches:
            await _end_branches(run.branches)
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
    send, may_act = flow.send, run.may_act(path)
    try:
        while True:
            request = send(answer)
            if isinstance(request, RunBody):
                answer = await run_once()
            elif isinstance(request, Append) and may_act:
                answer = await append(request, run, path, strand)
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


async def append(request: Append, run: Run, path: str, strand: Scope | None) -> Any:
    """Append an event for a flow, and wait until it is durable; the record of the call after it."""
    run.append(to_append(request, path) if request.while_waiting else request.event, strand)
    if request.sync:
        try:
            if run.loop is asyncio.get_running_loop():
                await run.lines.sync(run.log)
            else:  # of a sync task, or of a single call: nobody else waits here
                await off_loop(run.log.sync)
        except HoldfastError as error:
            run.halt(error)
    return run.log.state.calls.get(path)


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
        return await append(request, run, path, strand)
    if isinstance(request, Look | Now):
        return local.carry_out(request, run, path, strand, local.nothing)
    if isinstance(request, Sleep):
        if request.park and run.is_too_long(request.until, path):
            await park(run, path, sleeping(run, request.until))
        return await _sleep_until(run, path, request.until)
    if isinstance(request, Check):
        return await check()
    if isinstance(request, Park):
        return await park(run, path, request.waiting)
    if isinstance(request, DriveChild):
        return await _drive_child(run, path, request.id)
    return await off_loop(local.carry_out, request, run, path, strand, local.nothing)


async def _drive_child(run: Run, path: str, id: str) -> None:
    if not run.is_patient(path):
        return await park(run, path, awaiting_child(run, id))
    mark = run.in_flight[path] = asyncio.get_running_loop().create_future()
    try:
        await family_of(run).adrive(id)
    except TaskWaiting as waiting:
        run.must_go_on(path)
        await park(run, path, waiting)
    except (TaskBusy, LeaseLost):  # it is driven elsewhere: look again soon
        await nap(run, local.CHILD_POLL_S)
        run.must_go_on(path)
    except HoldfastError as error:
        run.halt(error, path)
    finally:
        land(run, path, mark)


async def _sleep_until(run: Run, path: str, until: datetime) -> None:
    countdown = Countdown(until, run.log.clock)
    while True:
        if run.is_stopped(path):
            await stop(run, path)
        left_s = countdown.left_s()
        if left_s <= 0:
            return
        await nap(run, min(left_s, local.LONGEST_SLEEP_S))


async def run_body(body: Body) -> Returned | Raised:
    """Run a step's coroutine once, inside its own scope."""
    scope, spec = body.scope(), body.spec
    token = scope_var.set(scope)
    limit = None if spec.timeout_s is None else asyncio.timeout(spec.timeout_s)
    try:
        args, kwargs = body.arguments()
        await must_hold(body.run)
        if limit is None:
            value = await spec.fn(*args, **kwargs)
        else:
            async with limit:
                value = await spec.fn(*args, **kwargs)
    except BaseException as error:
        if not is_failure(body.run, error):
            raise
        if limit is None or not limit.expired():
            return body.raised(error)
        # Whatever the body made of being cancelled.
        scope.closed = True
        return body.raised(local.late(spec), timed_out=True)
    finally:
        scope_var.reset(token)
    return body.returned(value)


def is_failure(run: Run, error: BaseException) -> bool:
    """Whether code failed by itself. Whom somebody cancels does not fail."""
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
    """What a flow that runs or checks nothing is driven with."""
    local.nothing()


async def _let_end(run: Run) -> None:
    """Wait for what can't be cancelled: steps in threads, and streams that run to their end."""
    for _ in range(3):  # a reader that has just left is noticed by the loop in its next turns
        await asyncio.sleep(0)
    while run.working or run.draining:  # noqa: ASYNC110 - threads end them
        await asyncio.sleep(_POLL_S)


async def _end_branches(branches: set[asyncio.Task[Any]]) -> None:
    """End what the body left running: nothing of a task outlives it."""
    left = [branch for branch in branches if not branch.done()]
    for branch in left:
        branch.cancel()
    await asyncio.gather(*left, return_exceptions=True)
