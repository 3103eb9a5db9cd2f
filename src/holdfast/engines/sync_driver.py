"""The sync driver: carries out the journal's requests in the calling thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextvars import copy_context
from datetime import datetime
from functools import partial
from typing import Any, NoReturn, TypeVar

from holdfast.codec import Given
from holdfast.core.events import Claimed
from holdfast.core.journal import (
    Admit,
    Append,
    Asked,
    Await,
    CancelChildren,
    Check,
    DriveChild,
    Flow,
    Leave,
    Look,
    LookAtChild,
    MayStart,
    Now,
    Park,
    Raised,
    Request,
    Returned,
    RunBody,
    Sleep,
    StartChild,
    Stopped,
    conduct,
    perform,
)
from holdfast.core.scope import Scope, running, scope_var
from holdfast.core.spec import Spec
from holdfast.core.state import Call
from holdfast.engines.clocks import counting_down
from holdfast.engines.execution import (
    Body,
    altered,
    awaiting_child,
    cancel_children,
    conclude,
    create_child,
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
from holdfast.engines.run import Run, begun_here, beyond
from holdfast.errors import (
    HoldfastError,
    LeaseLost,
    Stop,
    StoreError,
    TaskBusy,
    TaskWaiting,
    Unserializable,
)

T = TypeVar("T")
FlowOf = Callable[[Asked, Call | None], Flow]

POLL_S = 0.1
"""How often a task that waits in this process looks at its child, or for its message."""


def call(scope: Scope, spec: Spec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a call of a running task: from the log if it is there, else for real."""
    run: Run = scope.run
    if run.has_given_up:
        must_be_open(scope)
    try:
        data, given = spec.signature.take(args, kwargs, run.log.growing)
    except Unserializable as refused:
        take = partial(spec.signature.take, args, kwargs, run.log.growing)
        data, given = taken_again(run, scope.coming_path(), refused, take)
    return call_at(run, scope.next_path(), spec, data, given)


def call_at(run: Run, path: str, spec: Spec, data: bytes, given: Given | None = None) -> Any:
    """The call at a path, from its record or for real.

    The arguments are decoded from `data`, unless those that were `given` are the same.
    """
    if run.stop is not None:
        run.must_go_on(path)
    if run.log.state.fork is not None:
        data, given = altered(run, path, spec, data), None
    asked, record = look_up(run, path, spec, data)
    asked.given = given
    outcome = run.driver.make(run, asked, record, data)
    if type(outcome) is Returned and spec.answer is None:
        return outcome.value
    return conclude(run, spec, outcome, path)


def perform_here(run: Run, asked: Asked, record: Call | None, data: bytes) -> Returned | Call:
    """Make a call in this thread, unless its record answers it."""
    if record is not None and record.status == "completed":
        return record
    body = Body(run, asked, asked.spec, data, asked.given)
    if asked.given is None:
        body.must_fit()
    if asked.spec.limit is not None:
        _limits().weigh(body)
    once, check = partial(run_body, body), partial(run_check, body)
    run.working.add(asked.path)
    try:
        return drive(perform(asked, record), run, asked.path, once, check)
    finally:
        run.working.discard(asked.path)
        if asked.path in run.admitted:
            _limits().give_back(run, asked.path)


def operate(run: Run, path: str, spec: Spec, data: bytes, flow_of: FlowOf) -> Any:
    """Carry out a flow that has no body of its own, such as a sleep or a question."""
    run.must_go_on(path)
    asked, record = look_up(run, path, spec, data)
    record = run.driver.repeat(run, path, record)
    return drive(flow_of(asked, record), run, path, nothing, nothing)


def run_task(run: Run, spec: Spec, claimed: Claimed) -> Returned | Raised | Stopped:
    """Drive a task to its end in this thread."""
    run.tick()
    flow = conduct(claimed, run.log.state, spec.undo_when, synced=run.patience_s is not None)
    return drive(flow, run, "", partial(run_function, run, spec), nothing)


def run_function(run: Run, spec: Spec) -> Returned | Raised | Stopped:
    """Run a task's function from its top."""
    run.begin(spec)
    args, kwargs = task_arguments(run, spec)
    token = scope_var.set(run.root)
    running[run] = begun_here(run)
    try:
        # Its changes to the context stay there: a task that is recorded sets nothing either.
        value = copy_context().run(spec.fn, *args, **kwargs)
        close_streams(run)
    except Stop as signal:
        return stopped(signal)
    except Exception as error:
        close_streams(run)
        return task_raised(run, error)
    except SystemExit as error:
        if run.patience_s is None:
            raise  # the program may end; in a worker there are others
        return task_raised(run, error)
    except BaseException as error:
        if not run.is_failure(error):
            raise
        return task_raised(run, error)
    finally:
        running.pop(run, None)
        scope_var.reset(token)
    return task_returned(run, spec, value)


def close_streams(run: Run) -> None:
    """Let the streams that somebody still has run to their end, and be recorded."""
    for stream in list(run.streams):
        stream.close()


def drive(
    flow: Generator[Request, Any, T],
    run: Run,
    path: str,
    run_once: Callable[[], Any],
    check: Callable[[], Returned | Raised | None],
) -> T:
    """Carry out a flow's requests until it ends."""
    answer: Any = None
    strand = scope_var.get()
    send, may_act = flow.send, run.driver.writes and path not in run.beyond
    try:
        while True:
            request = send(answer)
            if isinstance(request, RunBody):
                answer = run_once()
            elif isinstance(request, Append) and may_act:
                answer = append(request, run, path, strand)
            else:
                answer = run.driver.carry_out(request, run, path, strand, check)
    except StopIteration as end:
        ended: T = end.value
        return ended


def carry_out(
    request: Request,
    run: Run,
    path: str,
    strand: Scope | None,
    check: Callable[[], Returned | Raised | None],
) -> Any:
    """Do what a flow asks for, apart from running a body."""
    if isinstance(request, Look):
        return run.log.state.calls.get(request.path)
    if not run.may_act(path):
        run.park(path, beyond(run, path))
    if isinstance(request, Append):
        return append(request, run, path, strand)
    if isinstance(request, Now):
        return run.log.clock()
    if isinstance(request, Sleep):
        if request.park and run.is_too_long(request.until, path):
            run.park(path, sleeping(run, request.until, request.why))
        return sleep_until(run, path, request.until)
    if isinstance(request, Check):
        return check()
    if isinstance(request, Park):
        run.park(path, request.waiting)
    if isinstance(request, Await):
        return _await(run, path, request.waiting)
    return _carry_out_for_many(request, run, path)


def append(request: Append, run: Run, path: str, strand: Scope | None) -> Any:
    """Append an event for a flow; the record of the call after it."""
    log, event = run.log, request.event
    try:
        log.append(to_append(request, path) if request.while_waiting else event, strand)
        if request.sync or run.log.state.deaths:  # then the next driver sees where this one was
            log.sync()
    except HoldfastError as error:
        run.halt(error)
    return log.state.calls.get(path)


def _carry_out_for_many(request: Request, run: Run, path: str) -> Any:
    if isinstance(request, LookAtChild | MayStart):
        try:
            if isinstance(request, LookAtChild):
                return family_of(run).outcome(request.id)
            return family_of(run).must_be_free(request.id, run.task_id)
        except StoreError as error:  # the function is not to know, and to go another way
            run.halt(error, path)
    if isinstance(request, StartChild):
        return create_child(run, request)
    if isinstance(request, DriveChild):
        if not run.is_patient(path):
            run.park(path, awaiting_child(run, request.id))
        return _drive_child(run, path, request.id)
    if isinstance(request, CancelChildren):
        return cancel_children(run)
    if isinstance(request, Admit | Leave):
        return _limits().answer(run, request)
    raise TypeError(f"a flow asks for {request!r}, which its driver sees to")


def _limits() -> Any:
    from holdfast.engines import limits  # most functions have none

    return limits


def _await(run: Run, path: str, waiting: TaskWaiting) -> None:
    """Wait for a call to end, or for its time to be up: here, or by parking the task."""
    while (wait_s := awaited_s(run, path, waiting)) > 0:
        run.wait(wait_s)
        run.must_go_on(path)


def awaited_s(run: Run, path: str, waiting: TaskWaiting) -> float:
    """How long to wait before looking at a call again; 0 if it has ended or its time is up.

    Parks the call if the task does not wait in this process.
    """
    if run.log.state.calls[path].status != "waiting":
        return 0.0
    left_s = POLL_S
    if waiting.until is not None:
        left_s = (waiting.until - run.log.clock()).total_seconds()
    if left_s > 0 and not run.is_patient(path):
        run.park(path, waiting)
    return min(left_s, POLL_S)


def _drive_child(run: Run, path: str, id: str) -> None:
    try:
        family_of(run).drive(id)
    except TaskWaiting as waiting:
        run.must_go_on(path)
        run.park(path, waiting)
    except (TaskBusy, LeaseLost):  # it is driven elsewhere: look again soon
        run.wait(POLL_S)
        run.must_go_on(path)
    except HoldfastError as error:
        run.halt(error, path)


def run_body(body: Body) -> Returned | Raised:
    """Run a step's function once, inside its own scope."""
    scope = body.scope()
    spec = body.spec
    token = scope_var.set(scope)
    try:
        args, kwargs = body.arguments()
        tenure = body.run.log.tenure
        if tenure is not None and not tenure.is_sure():
            body.run.must_hold()
        # A copy, so that a variable which the body sets is not seen by the task on the first run
        # and missed on a replay.
        if spec.timeout_s is None:
            value = copy_context().run(spec.fn, *args, **kwargs)
        else:
            value = with_timeout(spec, partial(spec.fn, *args, **kwargs), scope, spec.timeout_s)
    except BaseException as error:
        if not body.run.is_failure(error):
            raise
        return body.raised(error, timed_out=scope.closed)
    finally:
        scope_var.reset(token)
    return body.returned(value)


def run_check(body: Body) -> Returned | Raised | None:
    """Ask a tool's `check`. It runs outside the task: what it calls is not journaled."""
    check = body.spec.check
    body.run.must_hold()
    token = scope_var.set(None)
    try:
        answer = check(body.asked.key) if check else None
    except BaseException as error:
        if not body.run.is_failure(error):
            raise
        return body.raised(error)
    finally:
        scope_var.reset(token)
    return body.checked(answer)


def side_by_side(work: Iterator[Callable[[], Any]], workers: int) -> Iterator[Any]:
    """Do work in threads, so much at a time; yields, in order, what each returned or raised."""
    from collections import deque
    from concurrent.futures import Future, ThreadPoolExecutor

    waiting: deque[Future[Any]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="holdfast branch")
    try:
        for job in work:
            waiting.append(pool.submit(_outcome, job))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        # A call that has begun runs to its end; what has not, does not begin any more.
        pool.shutdown(wait=True, cancel_futures=True)


def _outcome(job: Callable[[], Any]) -> Any:
    try:
        return job()
    except BaseException as error:
        return error


def late(spec: Spec) -> TimeoutError:
    """The error for an attempt that was given up."""
    return TimeoutError(f"{spec.name} did not end within {spec.timeout_s:g} s")


def nothing() -> NoReturn:
    """The arguments for a flow that runs or checks nothing."""
    raise TypeError("this flow has nothing to run or to check")


def sleep_until(run: Run, path: str, until: datetime) -> None:
    """Wait for a time, or for the task to be told something."""
    run.must_go_on(path)
    with counting_down(run, path, until) as countdown:
        while countdown.left_s() > 0:
            run.wait(countdown.nap_s())
            run.must_go_on(path)


def with_timeout(spec: Spec, work_to_do: Callable[[], Any], scope: Scope, seconds: float) -> Any:
    """Do work in a thread, and wait for it no longer than that."""
    # Python can't stop a thread: the attempt is given up, not ended. Its scope is closed, so it
    # journals nothing more; what it still does outside is why the call counts as in doubt.
    context = copy_context()
    ended = threading.Event()
    outcome: list[Any] = [None, None]

    def work() -> None:
        try:
            outcome[0] = context.run(work_to_do)
        except BaseException as error:
            outcome[1] = error
        ended.set()

    threading.Thread(target=work, name=f"holdfast {spec.name}", daemon=True).start()
    if not ended.wait(seconds):
        scope.close()
        raise late(spec)
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]
