"""What every driver needs: how a call begins, runs and ends.

The drivers (`local` for sync code, `aio` for async code) differ in how they wait. Everything that
does not wait is here, once, and in `lookup`, where a call is looked up in the log.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from msgspec import UNSET, Raw

from holdfast.codec import Shape, naming
from holdfast.engines.failures import failure_of, retry_after_s
from holdfast.engines.lookup import must_have_made_every_call
from holdfast.engines.run import Family, Run
from holdfast.errors import (
    BadInput,
    CodeChanged,
    HoldfastError,
    Stop,
    Suspend,
    TaskWaiting,
    Undecodable,
    Unserializable,
    failed_paths,
)
from holdfast.events import AnyEvent, Event, Failure
from holdfast.journal import (
    Append,
    Asked,
    Raised,
    Returned,
    StartChild,
    Stopped,
    describe,
    misfit,
    step_failed,
)
from holdfast.log import Appended
from holdfast.scope import Scope, given_up, scope_var
from holdfast.spec import Happened, IdempotencyKey, Spec
from holdfast.state import Call, State

_LOOK_AFTER_CHILDREN = timedelta(minutes=10)


class Body:
    """One call about to be made: what is asked for, and the arguments to run it with."""

    __slots__ = ("_arguments", "asked", "data", "run", "spec")

    def __init__(self, run: Run, asked: Asked, data: bytes, *, is_whole: bool = True) -> None:
        self.run = run
        self.asked = asked
        self.spec = asked.spec
        self.data = data
        # Decoded before anything is written, so that arguments that don't fit leave no trace.
        self._arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        if is_whole:
            self._arguments = self._decoded()

    def _decoded(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            args, kwargs = self.spec.signature.load(self.data)
        except Undecodable as error:
            raise Unserializable(f"{self.spec.name} (step {self.asked.path}): {error}") from None
        for name in self.spec.signature.injected:
            kwargs[name] = IdempotencyKey(self.asked.key)
        return args, kwargs

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What to call the function with: a copy for each attempt, which it may change at will.

        A step that changes a list it was given would otherwise change its caller's on the first
        run but not on a replay, and that of its own next attempt unless a crash came between.
        """
        given, self._arguments = self._arguments, None
        return given or self._decoded()

    def scope(self) -> Scope:
        """The scope for the calls that the body makes."""
        record = self.run.log.state.calls[self.asked.path]
        return Scope(
            self.run, self.asked.path, record, scope_var.get(), is_async=self.spec.is_async
        )

    def returned(self, value: Any) -> Returned | Raised:
        """What became of a value that the body returned."""
        self.must_not_be_doomed()
        try:
            raw, settled = settle(self.run, self.spec.signature.returns, value)
            return Returned(self.run.log.stow(raw), settled)
        except Unserializable as error:
            named = type(error)(f"{self.spec.name} (step {self.asked.path}) returned: {error}")
            return Raised(self._failure(named), final=True)
        except HoldfastError as error:
            self.run.halt(error)

    def raised(self, error: BaseException, *, timed_out: bool = False) -> Raised:
        """What became of an exception that left the body."""
        self.must_not_be_doomed()
        if isinstance(error, TaskWaiting):  # of a task that the body runs: this one waits with it
            self.run.park(self.asked.path, error)
        final = isinstance(error, self.spec.retry.unless) and not timed_out
        failure = self._failure(error, timed_out)
        return Raised(failure, final, retry_after_s=retry_after_s(error))

    def _failure(self, error: BaseException, timed_out: bool = False) -> Failure:
        redact, hidden = self.run.log.redact, self.asked.hidden
        return failure_of(error, redact, timed_out=timed_out, also=hidden)

    def must_not_be_doomed(self) -> None:
        """Raise the signal that stopped a call of the body, if the body caught it."""
        if signal := self.run.doomed.get(self.asked.path):
            self.run.raise_in(self.asked.path, signal)

    def checked(self, answer: Any) -> Returned | Raised | None:
        """What a tool's `check` said."""
        if answer is None:
            return None
        if isinstance(answer, Happened):
            return self.returned(answer.result)
        found = TypeError(f"a check returns Happened(result) or None, not {answer!r:.100}")
        return Raised(self._failure(found), final=True)


def must_be_open(scope: Scope) -> None:
    """Stop a strand that was given up."""
    if scope.is_closed():
        raise given_up(scope)


def settle(run: Run, shape: Shape, value: Any) -> tuple[bytes, Any]:
    """A result as JSON, with its long lists named, and as a replay will see it."""
    known = run.log.growing.find(value, shape)
    if known is None:
        return shape.settle(value)
    return naming(b"null", {(): known}), known.copies()


def conclude(run: Run, spec: Spec, outcome: Returned | Call, path: str = "") -> Any:
    """What the task gets: the result, or `StepFailed`; the same for a live and a recorded call."""
    if type(outcome) is Returned:
        if spec.answer is not None:
            return spec.answer(run.log.state.calls[path], outcome.value)
        return outcome.value
    if not isinstance(outcome, Call):
        raise TypeError(f"a flow ended with {outcome!r}")
    if outcome.status == "failed":
        raise step_failed(outcome)
    return recorded_result(run, spec, outcome)


def recorded_result(run: Run, spec: Spec, record: Call) -> Any:
    """The result in a record, by the type that the code gives it today."""
    raw = record.result if isinstance(record.result, Raw) else Raw(b"null")
    shape = spec.signature.returns
    try:
        known = run.log.recall(raw, shape)
        value = shape.load(run.log.fetch(raw)) if known is None else known
        return value if spec.answer is None else spec.answer(record, value)
    except Undecodable as error:
        if record.settled_by not in ("", "check"):
            run.halt(misfit(run.task_id, record, error), record.path)
        asked = f"expects a result it does not fit ({error})"
        changed = CodeChanged(run.task_id, record.path, f"a result of {describe(record)}", asked)
        run.halt(changed, record.path)
    except HoldfastError as error:
        run.halt(error)


def task_arguments(run: Run, spec: Spec) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments the task was started with."""
    stored = run.log.state.args
    try:
        args, kwargs = spec.signature.load(run.log.fetch(stored) if stored is not UNSET else b"{}")
        _parameters(spec.fn).bind(*args, **kwargs)
    except (Undecodable, TypeError) as error:
        started = f"{spec.name}({bytes(stored).decode() if isinstance(stored, Raw) else ''})"
        run.halt(CodeChanged(run.task_id, "0", started, f"can't be called so ({error})"))
    return args, kwargs


@cache
def _parameters(fn: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(fn)


def task_returned(run: Run, spec: Spec, value: Any) -> Returned | Raised | Stopped:
    """What became of the value that a task's function returned."""
    if isinstance(run.stop, Stop):
        return stopped(run.stop)
    if run.stop is not None:  # the function caught the signal and went on
        raise run.stop
    must_have_made_every_call(run)
    try:
        raw, settled = settle(run, spec.signature.returns, value)
        return Returned(run.log.stow(raw), settled)
    except Unserializable as error:
        named = type(error)(f"{spec.name} returned: {error}")
        return Raised(failure_of(named, run.log.redact))


def stopped(signal: Stop) -> Raised | Stopped:
    """What became of a task's function that was stopped for good."""
    return Stopped(str(signal)) if signal.failure is None else Raised(signal.failure)


def task_raised(run: Run, error: BaseException) -> Raised | Stopped:
    """What became of an exception that left a task's function."""
    if isinstance(run.stop, Stop):
        return stopped(run.stop)
    if run.stop is not None:  # the function turned the signal into an error of its own
        raise run.stop from error
    if isinstance(error, TaskWaiting):  # of a task that this one runs: it waits with it
        raise Suspend(error)
    must_have_made_every_call(run, error)
    causes = tuple(dict.fromkeys(failed_paths(error)))
    return Raised(failure_of(error, run.log.redact), causes=causes)


def to_append(request: Append, path: str) -> Appended:
    """The event that a flow wants appended, on its condition."""
    event = request.event
    if not request.while_waiting:
        return event

    def if_it_waits(state: State) -> AnyEvent | None:
        if state.calls[path].status != "waiting":
            return None
        return event if isinstance(event, Event) else event(state)

    return if_it_waits


def family_of(run: Run) -> Family:
    """Who looks after the tasks that this one starts."""
    if run.family is None:
        raise run.halted(HoldfastError(f"task {run.task_id!r}: no tasks can be started from here"))
    return run.family


def create_child(run: Run, request: StartChild) -> None:
    """Make the log of a child."""
    try:
        family_of(run).create(request.id, request.name, request.args, run.log.state, request.path)
    except BadInput:
        raise  # the caller's mistake, and nothing was written
    except HoldfastError as error:
        run.halt(error)


def cancel_children(run: Run) -> None:
    """Ask the children that are to end with their parent to end."""
    run.begin_to_end()
    for call in list(run.log.state.calls.values()):
        if is_open_child(call) and call.on_cancel == "cancel":
            with suppress(HoldfastError):  # it has ended, or is gone
                family_of(run).cancel(call.child, wait=run.patience_s is None)
            if family_of(run).outcome(call.child) is None:
                raise Suspend(awaiting_child(run, call.child))


def is_open_child(call: Call) -> bool:
    """Whether a call started a task that may not have ended."""
    return call.kind == "child" and call.status in ("running", "waiting")


def sleeping(run: Run, until: datetime) -> TaskWaiting:
    """Why a task is let go of that has nothing to do for a while."""
    return TaskWaiting(run.task_id, f"task {run.task_id!r} sleeps until {until}", until)


def awaiting_child(run: Run, child: str) -> TaskWaiting:
    """Why a task is let go of whose child is driven by somebody else."""
    # Who drove the child tells its parent when it has ended, unless it dies just then.
    until = run.log.clock() + _LOOK_AFTER_CHILDREN
    return TaskWaiting(run.task_id, f"task {run.task_id!r} waits for its child {child!r}", until)


def beyond(run: Run, path: str) -> TaskWaiting:
    """Why a rehearsal ends."""
    return TaskWaiting(run.task_id, f"task {run.task_id!r}: the log ends before call {path}")
