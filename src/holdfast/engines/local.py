"""The sync driver: carries out the journal's requests in the calling thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextvars import copy_context
from datetime import datetime
from functools import partial
from typing import Any, NoReturn, TypeVar

from holdfast.engines.execution import (
    Body,
    Run,
    conclude,
    look_up,
    must_be_open,
    recorded_result,
    task_arguments,
    task_raised,
    task_returned,
)
from holdfast.events import Claimed
from holdfast.journal import (
    Append,
    Asked,
    Check,
    Now,
    Raised,
    Request,
    Returned,
    Sleep,
    conduct,
    perform,
)
from holdfast.journal import Run as RunBody
from holdfast.log import Log
from holdfast.scope import Scope, scope_var
from holdfast.spec import Spec
from holdfast.state import Call

T = TypeVar("T")

_LONGEST_SLEEP_S = 3600.0


def call(scope: Scope, spec: Spec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a call of a running task: from the log if it is there, else for real."""
    run: Run = scope.run
    must_be_open(scope)
    return call_at(run, scope.next_path(), spec, spec.signature.dump(args, kwargs))


def call_at(run: Run, path: str, spec: Spec, data: bytes) -> Any:
    """The call at a path, from its record or for real."""
    if run.stop is not None:
        run.raise_in(path, run.stop)
    asked, record = look_up(run, path, spec, data)
    if record is not None and record.status == "completed":
        return recorded_result(run, spec, record)
    return conclude(run, spec, _perform(run, asked, record, data))


def _perform(run: Run, asked: Asked, record: Call | None, data: bytes) -> Returned | Call:
    body = Body(run, asked, data)
    flow = perform(asked, record)
    return drive(flow, run, asked.path, partial(run_body, body), partial(run_check, body))


def run_task(log: Log, task_id: str, spec: Spec, claimed: Claimed) -> Returned | Raised:
    """Drive a task to its end in this thread."""
    run = Run(log, task_id)

    def body() -> Returned | Raised:
        args, kwargs = task_arguments(run, spec)
        token = scope_var.set(run.root)
        try:
            value = spec.fn(*args, **kwargs)
        except Exception as error:
            return task_raised(run, error)
        finally:
            scope_var.reset(token)
        return task_returned(run, spec, value)

    return drive(conduct(claimed), run, "", body, nothing)


def drive(
    flow: Generator[Request, Any, T],
    run: Run,
    path: str,
    run_once: Callable[[], Returned | Raised],
    check: Callable[[], Returned | Raised | None],
) -> T:
    """Carry out a flow's requests until it ends."""
    answer: Any = None
    strand = scope_var.get()
    log, send = run.log, flow.send
    try:
        while True:
            request = send(answer)
            answer = None
            if isinstance(request, Append):
                run.append(request.event, strand)
                if request.sync:
                    run.sync()
                answer = log.state.calls.get(path)
            elif isinstance(request, RunBody):
                answer = run_once()
            elif isinstance(request, Now):
                answer = log.clock()
            elif isinstance(request, Sleep):
                sleep_until(request.until, log.clock)
            elif isinstance(request, Check):
                answer = check()
            else:
                run.park(path, request.waiting)
    except StopIteration as end:
        ended: T = end.value
        return ended


def run_body(body: Body) -> Returned | Raised:
    """Run a step's function once, inside its own scope."""
    scope = body.scope()
    spec = body.spec
    token = scope_var.set(scope)
    try:
        args, kwargs = body.arguments()
        if spec.timeout_s is None:
            value = spec.fn(*args, **kwargs)
        else:
            value = _with_timeout(spec, partial(spec.fn, *args, **kwargs), scope)
    except Exception as error:
        return body.raised(error, timed_out=scope.closed)
    finally:
        scope_var.reset(token)
    return body.returned(value)


def run_check(body: Body) -> Returned | Raised | None:
    """Ask a tool's `check`. It runs outside the task: what it calls is not journaled."""
    check = body.spec.check
    token = scope_var.set(None)
    try:
        answer = check(body.asked.key) if check else None
    except Exception as error:
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
        # What has begun comes to its end; what has not, does not begin any more.
        pool.shutdown(wait=True, cancel_futures=True)


def _outcome(job: Callable[[], Any]) -> Any:
    try:
        return job()
    except BaseException as error:
        return error


def nothing() -> NoReturn:
    """What a flow that runs or checks nothing is driven with."""
    raise TypeError("this flow has nothing to run or to check")


def sleep_until(until: datetime, clock: Callable[[], datetime]) -> None:
    """Wait for a time. In pieces, because the clock may be set meanwhile."""
    while (left_s := (until - clock()).total_seconds()) > 0:
        time.sleep(min(left_s, _LONGEST_SLEEP_S))


def _with_timeout(spec: Spec, work_to_do: Callable[[], Any], scope: Scope) -> Any:
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
    if not ended.wait(spec.timeout_s):
        scope.closed = True
        raise TimeoutError(f"{spec.name} did not end within {spec.timeout_s:g} s")
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]
