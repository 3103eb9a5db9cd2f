"""The sync driver: carries out the journal's requests in the calling thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from datetime import datetime
from typing import Any

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
from holdfast.errors import Undecodable, Unserializable
from holdfast.events import Claimed
from holdfast.fold import Call
from holdfast.journal import (
    Append,
    Check,
    Now,
    Park,
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

_LONGEST_SLEEP_S = 3600.0


def call(scope: Scope, spec: Spec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a call of a running task: from the log if it is there, else for real."""
    run: Run = scope.run
    if run.stop is not None:
        raise run.stop
    must_be_open(scope)
    return call_at(run, scope.next_path(), spec, spec.signature.dump(args, kwargs))


def call_at(run: Run, path: str, spec: Spec, data: bytes) -> Any:
    """The call at a path. Nothing but names and encoded values goes in, so any process that has
    the code can make it (see `execute`)."""
    asked, record = look_up(run, path, spec, data)
    if record is not None and record.status == "completed":
        return recorded_result(run, spec, record)
    body = _body(run, asked, data)
    flow = perform(asked, record)
    return conclude(run, spec, drive(flow, run, path, lambda _: run_body(body), body))


def execute(log: Log, task_id: str, path: str, spec: Spec, args: bytes) -> Call:
    """Make one call of a task and return its record: the unit of work of a remote engine.

    Idempotent: a call that is recorded is not made again, however often it is delivered.
    """
    run = Run(log, task_id)
    asked, record = look_up(run, path, spec, args)
    body = _body(run, asked, args)
    drive(perform(asked, record), run, path, lambda _: run_body(body), body)
    return log.state.calls[path]


def _body(run: Run, asked: Any, data: bytes) -> Body:
    try:
        return Body(run, asked, data)
    except Undecodable as error:
        raise Unserializable(f"{asked.spec.name} (step {asked.path}): {error}") from None


def run_task(log: Log, task_id: str, spec: Spec, claimed: Claimed) -> Returned | Raised:
    """Drive a task to its end in this thread."""
    run = Run(log, task_id)

    def body(_: int) -> Returned | Raised:
        args, kwargs = task_arguments(run, spec)
        token = scope_var.set(run.root)
        try:
            value = spec.fn(*args, **kwargs)
        except Exception as error:
            if run.stop is not None:  # the function turned the signal into an error of its own
                raise run.stop from error
            return task_raised(run, error)
        finally:
            scope_var.reset(token)
        if run.stop is not None:  # the function caught the signal and went on
            raise run.stop
        return task_returned(run, spec, value)

    outcome: Returned | Raised = drive(conduct(claimed), run, "", body, None)
    return outcome


def drive(
    flow: Any,
    run: Run,
    path: str,
    run_once: Callable[[int], Returned | Raised],
    body: Body | None,
) -> Any:
    """Carry out a flow's requests until it ends."""
    answer: Any = None
    try:
        while True:
            request: Request = flow.send(answer)
            kind = type(request)
            if kind is Append:
                run.append(request)
                if request.sync:
                    run.sync()
                answer = run.log.state.calls.get(path)
            elif kind is RunBody:
                answer = run_once(request.attempt)
            elif kind is Now:
                answer = run.log.clock()
            elif kind is Sleep:
                answer = sleep_until(request.until, run.log.clock)
            elif kind is Check and body is not None:
                answer = run_check(body)
            elif kind is Park:
                run.park(request.waiting)
            else:
                raise TypeError(f"no driver knows the request {request!r}")
    except StopIteration as end:
        return end.value


def run_body(body: Body) -> Returned | Raised:
    """Run a step's function once, inside its own scope."""
    scope = body.scope()
    spec = body.spec
    token = scope_var.set(scope)
    try:
        if spec.timeout_s is None:
            value = spec.fn(*body.args, **body.kwargs)
        else:
            value = _with_timeout(spec, body, scope)
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


def sleep_until(until: datetime, clock: Callable[[], datetime]) -> None:
    """Wait for a time. In pieces, because the clock may be set meanwhile."""
    while (left_s := (until - clock()).total_seconds()) > 0:
        time.sleep(min(left_s, _LONGEST_SLEEP_S))


def _with_timeout(spec: Spec, body: Body, scope: Scope) -> Any:
    # Python can't stop a thread: the attempt is given up, not ended. Its scope is closed, so it
    # journals nothing more; what it still does outside is why the call counts as in doubt.
    context = copy_context()
    ended = threading.Event()
    outcome: list[Any] = [None, None]

    def work() -> None:
        try:
            outcome[0] = context.run(spec.fn, *body.args, **body.kwargs)
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
