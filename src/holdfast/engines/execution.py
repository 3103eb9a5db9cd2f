"""What every driver needs: a run of a task, and how a call begins, runs and ends.

The drivers (`local` for sync code, `aio` for async code) differ in how they wait. Everything that
does not wait is here, once.
"""

from __future__ import annotations

import traceback
from typing import Any, NoReturn

from msgspec import UNSET, Raw

from holdfast.codec import args_hash
from holdfast.errors import (
    CodeChanged,
    Halt,
    HoldfastError,
    Signal,
    Suspend,
    TaskWaiting,
    Undecodable,
    Unserializable,
    step_failures,
)
from holdfast.events import AnyEvent, Failure
from holdfast.fold import Call
from holdfast.journal import (
    Asked,
    Raised,
    Returned,
    describe,
    key_of,
    must_match,
    step_failed,
)
from holdfast.log import Log
from holdfast.scope import Scope, scope_var
from holdfast.spec import Happened, IdempotencyKey, Spec


class Run:
    """A task while it is being driven: its log, and whether it must stop."""

    def __init__(self, log: Log, task_id: str) -> None:
        self.log = log
        self.task_id = task_id
        self.stop: Signal | None = None
        self.root = Scope(self, "")
        self.in_flight: dict[str, Any] = {}
        self.branches: set[Any] = set()
        self.parallel = 0

    def halt(self, error: HoldfastError) -> NoReturn:
        """Stop the task's function here and at every later call: the run can't go on.

        It sticks because a function may catch the signal, or have other branches.
        """
        self.stop = Halt(error)
        raise self.stop

    def park(self, waiting: TaskWaiting) -> NoReturn:
        """Stop the task's function until what it waits for has come.

        One of several branches stops alone: the others work on, and who joins them stops the run.
        """
        signal = Suspend(waiting)
        if not self.parallel:
            self.stop = signal
        raise signal

    def append(self, event: AnyEvent) -> None:
        """Append; what the store refuses halts the run."""
        try:
            self.log.append(event)
        except HoldfastError as error:
            self.halt(error)

    def sync(self) -> None:
        """Sync; what the store refuses halts the run."""
        try:
            self.log.sync()
        except HoldfastError as error:
            self.halt(error)


class Body:
    """One call about to be made: what is asked for, and the decoded arguments to run it with."""

    __slots__ = ("args", "asked", "kwargs", "run", "spec")

    def __init__(self, run: Run, asked: Asked, data: bytes) -> None:
        self.run = run
        self.asked = asked
        self.spec = asked.spec
        # The body gets what the codec made of the arguments: a step that changes a list it was
        # given would otherwise change its caller's on the first run but not on a replay.
        try:
            self.args, self.kwargs = self.spec.signature.load(data)
        except Undecodable as error:
            raise Unserializable(f"{self.spec.name} (step {asked.path}): {error}") from None
        for name in self.spec.signature.injected:
            self.kwargs[name] = IdempotencyKey(asked.key)

    def scope(self) -> Scope:
        """The scope for the calls that the body makes."""
        record = self.run.log.state.calls[self.asked.path]
        scope = Scope(self.run, self.asked.path, call=record, parent=scope_var.get())
        scope.is_async = self.spec.is_async
        return scope

    def returned(self, value: Any) -> Returned | Raised:
        """What became of a value that the body returned."""
        try:
            raw, settled = self.spec.signature.returns.settle(value)
            return Returned(self.run.log.stow(raw), settled)
        except Unserializable as error:
            named = type(error)(f"{self.spec.name} (step {self.asked.path}) returned: {error}")
            return Raised(failure_of(named), final=True)
        except HoldfastError as error:
            self.run.halt(error)

    def raised(self, error: Exception, *, timed_out: bool = False) -> Raised:
        """What became of an exception that left the body."""
        final = isinstance(error, self.spec.retry.unless) and not timed_out
        return Raised(failure_of(error, timed_out=timed_out), final)

    def checked(self, answer: Any) -> Returned | Raised | None:
        """What a tool's `check` said."""
        if answer is None:
            return None
        if isinstance(answer, Happened):
            return self.returned(answer.result)
        found = TypeError(f"a check returns Happened(result) or None, not {answer!r:.100}")
        return Raised(failure_of(found), final=True)


def must_be_open(scope: Scope) -> None:
    """Stop a strand that was given up: a timed-out attempt that goes on in its thread."""
    if scope.is_closed():
        raise Halt(HoldfastError(f"the attempt at step {scope.path} was given up: it timed out"))


def look_up(run: Run, path: str, spec: Spec, data: bytes) -> tuple[Asked, Call | None]:
    """The call as asked for, and its record. Halts where the two don't match."""
    digest = args_hash(data)
    key = key_of(run.task_id, path, spec.name, digest) if spec.kind == "tool" else ""
    record = run.log.state.calls.get(path)
    if record is not None:
        asked = Asked(run.task_id, path, spec, Raw(data), digest, key)
        try:
            must_match(asked, record)
        except CodeChanged as error:
            run.halt(error)
        return asked, record
    try:
        return Asked(run.task_id, path, spec, run.log.stow(data), digest, key), None
    except Unserializable as error:
        raise type(error)(f"{spec.name} (step {path}) was called with: {error}") from None
    except HoldfastError as error:
        run.halt(error)


def conclude(run: Run, spec: Spec, outcome: Returned | Call) -> Any:
    """What the task gets: the result, or `StepFailed`; the same for a live and a recorded call."""
    if type(outcome) is Returned:
        return outcome.value
    if not isinstance(outcome, Call):
        raise TypeError(f"a flow ended with {outcome!r}")
    if outcome.status == "failed":
        raise step_failed(outcome)
    return recorded_result(run, spec, outcome)


def recorded_result(run: Run, spec: Spec, record: Call) -> Any:
    """The result in a record, by the type that the code gives it today."""
    raw = record.result if isinstance(record.result, Raw) else Raw(b"null")
    try:
        return spec.signature.returns.load(run.log.fetch(raw))
    except Undecodable as error:
        asked = f"expects a result it does not fit ({error})"
        run.halt(CodeChanged(run.task_id, record.path, f"a result of {describe(record)}", asked))
    except HoldfastError as error:
        run.halt(error)


def must_have_made_every_call(run: Run) -> None:
    """Halt if the body ended before it made the calls that the log holds."""
    last = run.log.state.last.get("")
    if last is None or int(last) <= run.root.calls:
        return
    path = str(run.root.calls + 1)
    record = run.log.state.calls[path]
    asked = "ends without making that call"
    run.halt(CodeChanged(run.task_id, path, describe(record), asked))


def task_arguments(run: Run, spec: Spec) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments the task was started with."""
    args = run.log.state.args
    try:
        return spec.signature.load(run.log.fetch(args) if args is not UNSET else b"{}")
    except Undecodable as error:
        run.halt(CodeChanged(run.task_id, "0", "arguments", f"can't take them ({error})"))


def task_returned(run: Run, spec: Spec, value: Any) -> Returned | Raised:
    """What became of the value that a task's function returned."""
    must_have_made_every_call(run)
    try:
        raw, settled = spec.signature.returns.settle(value)
        return Returned(run.log.stow(raw), settled)
    except Unserializable as error:
        return Raised(failure_of(type(error)(f"{spec.name} returned: {error}")))


def task_raised(run: Run, error: Exception) -> Raised:
    """What became of an exception that left a task's function."""
    must_have_made_every_call(run)
    causes = tuple(dict.fromkeys(failed.path for failed in step_failures(error)))
    return Raised(failure_of(error), causes=causes)


def failure_of(error: BaseException, *, timed_out: bool = False) -> Failure:
    """An exception as a fact that can be written down."""
    kind = type(error)
    try:
        message = str(error)
    except Exception as broken:
        message = f"(its message can't be shown: {type(broken).__name__})"
    lines = traceback.format_exception(error)
    return Failure(
        kind.__qualname__,
        _encodable(message),
        _encodable("".join(lines)),
        kind.__module__,
        timed_out,
    )


def _encodable(text: str) -> str:
    # Lone surrogates can't be written as UTF-8, and a failure must always be recordable.
    return text.encode("utf-8", "backslashreplace").decode()
