"""The parts that every driver needs: how a call begins, runs and ends.

The drivers (`sync_driver`, `async_driver`) differ in how they wait. Everything that does not wait
is here, once.
"""

from __future__ import annotations

import inspect
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct

from holdfast.codec import Given, Shape, is_complete, naming, without_veto
from holdfast.codec.redact import Redact
from holdfast.core.decoding import decode
from holdfast.core.events import AnyEvent, Event, Failure
from holdfast.core.journal import (
    Append,
    Asked,
    Raised,
    Returned,
    StartChild,
    Stopped,
    describe,
    key_of,
    misfit,
    must_match,
    step_failed,
)
from holdfast.core.limits import BUSY_S
from holdfast.core.lists import REFERENCES
from holdfast.core.scope import Scope, given_up, scope_var
from holdfast.core.spec import Happened, IdempotencyKey, Spec
from holdfast.core.state import UNDO, Call, State
from holdfast.engines.run import Family, Run
from holdfast.errors import (
    BadInput,
    CodeChanged,
    Halt,
    HoldfastError,
    NotDurable,
    ReplyLost,
    Stop,
    StorageFailed,
    Suspend,
    TaskWaiting,
    Undecodable,
    Unserializable,
    failed_paths,
)
from holdfast.log.log import Appended

T = TypeVar("T")

# Exceptions as facts that can be written down.


def failure_of(
    error: BaseException, redact: Redact, *, timed_out: bool = False, also: Iterable[str] = ()
) -> Failure:
    """An exception as a fact that can be written down, without the secrets in it.

    The task sees the recorded value, on the first run as well. `also` are texts that are secret
    just here.
    """
    kind = type(error)
    try:
        message = str(error)
    except Exception as broken:
        message = f"(its message can't be shown: {type(broken).__name__})"
    found = Failure(
        str(kind.__qualname__),
        _encodable(message),
        _encodable("".join(traceback.format_exception(error))),
        str(kind.__module__),
        timed_out,
    )
    return redact.failure(found, also)


def retry_after_s(error: BaseException) -> float:
    """How long the one who raised asks to wait before another attempt; 0 if it doesn't."""
    try:
        asked = getattr(error, "retry_after_s", None)
    except Exception:  # an exception of somebody's own, and no reason to lose it
        return 0.0
    if not isinstance(asked, int | float) or isinstance(asked, bool):
        return 0.0
    return float(min(asked, 1e9)) if asked > 0 else 0.0


def refused_s(error: BaseException) -> float:
    """How long a provider refuses everybody, if it said that there are too many requests; 0 if it
    did not. The errors of clients are told apart by what they carry."""
    try:
        response = getattr(error, "response", None)
        places = (error, response)
        names = ("status", "status_code", "code")
        said = [getattr(place, name, None) for place in places for name in names]
        get = getattr(getattr(response, "headers", None), "get", None)
        after = get("retry-after") if callable(get) else None
    except Exception:  # an exception of somebody's own, and no reason to lose it
        return 0.0
    wait_s = retry_after_s(error)
    if not wait_s and isinstance(after, str) and after.strip().isdecimal():
        wait_s = float(after)
    return (wait_s or BUSY_S) if 429 in said else wait_s


def _encodable(text: str) -> str:
    # Lone surrogates can't be written as UTF-8, and a failure must always be recordable.
    return text.encode("utf-8", "backslashreplace").decode()


# A call as the code asks for it, beside what the log holds of it.
#
# Code that asks for something else than it once did can't go on with the log: everything that
# finds that out halts the task and changes nothing.


def must_hold_no_call(run: Run, path: str, what: str) -> None:
    """Halt if the log holds a call where the code now makes branches."""
    must_have_restored(run, path, f"makes branches with {what}")
    record = run.log.state.calls.get(path)
    if record is not None:
        run.halt(CodeChanged(run.task_id, path, describe(record), f"makes branches with {what}"))


def must_have_restored(run: Run, path: str, asked: str) -> None:
    """Halt if the log goes on from a checkpoint, and the code does not."""
    if run.checkpoints_passed and not run.root.path and not path.startswith(UNDO):
        recorded = f"checkpoint {run.checkpoints_passed}"
        run.halt(CodeChanged(run.task_id, path or "0", recorded, f"{asked} before restore()"))


def must_have_made_every_call(run: Run, error: BaseException | None = None) -> None:
    """Halt if the body ended before it made the calls that the log holds."""
    must_have_restored(run, "", "ends")
    made = run.root.calls
    state = run.log.state
    # After a checkpoint only what came after it counts.
    root = f"{run.root.path}." if run.root.path else ""
    last = state.last.get(run.root.path, "")
    if not root and not state.inner and (not last or int(last) <= made):
        return
    missing = [
        (int(number), path)
        for path in state.calls
        if path.startswith(root)
        and (number := path[len(root) :].split(".")[0]).isdigit()
        and int(number) > made
    ]
    if not missing:
        return
    record = state.calls[min(missing)[1]]
    asked = "ends without that call"
    if error is not None:
        asked = f"raises {failure_of(error, run.log.redact).summary()} before it"
    run.stop = Halt(CodeChanged(run.task_id, record.path, describe(record), asked))
    raise run.stop from error


def older_code(state: State, spec: Spec) -> CodeChanged:
    """The error for code that is older than what it is to go on with."""
    version = max(state.version, state.checkpoint_version)
    recorded, asked = f"a task of version {version}", f"is version {spec.version} of {spec.name}"
    return CodeChanged(state.id, "0", recorded, asked)


def look_up(run: Run, path: str, spec: Spec, data: bytes) -> tuple[Asked, Call | None]:
    """The call as asked for, and its record. Halts where the two don't match."""
    state = run.log.state
    if state.checkpoints and run.checkpoints_passed:
        must_have_restored(run, path, f"calls {spec.name}")
    redact, shown = run.log.redact, data
    hidden: tuple[str, ...] = ()
    if not redact.shows_all(spec.signature, spec.redact):
        shown, hidden = redact.arguments(spec.signature, spec.redact, data)
    record = state.calls.get(path)
    if record is not None and record.args == Raw(shown):
        digest = record.args_hash  # the same bytes: on a replay nothing need be hashed
    else:
        digest = spec.signature.digest(shown)
    key = key_of(run.task_id, path, spec.name, digest, state.rewinds) if spec.is_tool else ""
    if run.answers is not None:
        record = answered(run, path, spec, shown, digest, record)
    if record is not None:
        if record.args_hash != digest and record.name == spec.name:
            shown, digest = as_recorded(run, spec, record, data)
        # The key in the log is the one that went out, whatever the task is called today.
        asked = Asked(run.task_id, path, spec, Raw(shown), digest, record.key or key, hidden)
        try:
            must_match(asked, record)
        except CodeChanged as error:
            run.halt(error, path)
        return asked, record
    if path in state.inner:
        run.halt(CodeChanged(run.task_id, path, "branches", f"calls {spec.name}"), path)
    try:
        stowed = run.log.stow(shown)
        ttl_s = _lifetime(spec, data, shown) if spec.ttl_s else 0
        return Asked(run.task_id, path, spec, stowed, digest, key, hidden, ttl_s), None
    except Unserializable as error:
        raise type(error)(f"{spec.name} (step {path}) was called with: {error}") from None
    except HoldfastError as error:
        run.halt(error)


def taken_again(run: Run, path: str, refused: Unserializable, take: Callable[[], T]) -> T:
    """The arguments of a recorded call, which were let in when it was made: what a validator makes
    of them may have changed since, with the clock. Those of another call are `refused`."""
    if path not in run.log.state.calls:
        raise refused
    with without_veto():
        return take()


def seen_before(run: Run, path: str) -> Call | None:
    """The record of something that the task read, such as the time; None if it has not yet."""
    if run.answers is not None:
        run.answers.seen(path)
    return run.log.state.calls.get(path)


def altered(run: Run, path: str, spec: Spec, data: bytes) -> bytes:
    """The arguments of a call, with those that are others in this fork."""
    fork = run.log.state.fork
    if fork is None or spec.name not in fork.arguments:
        return data
    record = run.log.state.calls.get(path)
    if record is not None and record.seq <= fork.seq:
        return data
    given = decode(data, dict[str, Raw])
    return msgspec.json.encode(given | fork.arguments[spec.name])


def answered(
    run: Run, path: str, spec: Spec, shown: bytes, digest: str, record: Call | None
) -> Call | None:
    """The record of a call, also of one that need not be made: somebody knows its outcome."""
    if run.answers is None:
        return record
    try:
        asked = Asked(run.task_id, path, spec, Raw(shown), digest, "")
        run.answers.passing(asked)
        if record is not None and record.status in ("completed", "failed"):
            return record
        asked.args = run.log.stow(shown)
        adopted = run.answers.find(asked, run.log)
    except HoldfastError as error:
        run.halt(error, path)
    return record if adopted is None else _adopt(run, path, adopted)


def _adopt(run: Run, path: str, events: Sequence[AnyEvent]) -> Call:
    for event in events:
        run.append(event)
    return run.log.state.calls[path]


def _lifetime(spec: Spec, data: bytes, shown: bytes) -> float:
    """For how long another read of the same name and hash may answer for this one.

    Where an argument was left out of the log, or only its place is written, two reads with other
    arguments look the same there: one user's account must not answer for another's.
    """
    return spec.ttl_s if shown == data and is_complete(data) else 0


def as_recorded(run: Run, spec: Spec, record: Call, data: bytes) -> tuple[bytes, str]:
    """The arguments without those that the record leaves out, and their hash.

    The names that are hidden may have changed since the call was made, and an older version may
    have written the same arguments in other words.
    """
    recorded = run.log.fetch(record.args) if isinstance(record.args, Raw) else b"{}"
    left_out = spec.signature.left_out(recorded)
    shown, _ = spec.signature.without(data, left_out.__contains__)
    digest = spec.signature.digest(shown if left_out else data)
    if digest != record.args_hash and spec.signature.is_same(recorded, digest):
        return shown, record.args_hash
    return shown, digest


_LOOK_AFTER_CHILDREN = timedelta(minutes=10)


class Body(Struct):
    """One call about to be made: what is asked for, and the arguments to run it with."""

    run: Run
    asked: Asked
    spec: Spec
    data: bytes
    given: Given | None = None
    """The arguments of the first attempt; None if it has to be decoded."""

    def must_fit(self) -> None:
        """Raise `Unserializable` for arguments that can't be decoded. Before anything is written,
        so that they leave no trace."""
        if self.given is None:
            self.given = self.decoded()

    def decoded(self) -> Given:
        """The arguments, decoded anew."""
        try:
            args, kwargs = self.spec.signature.load(self.data)
        except Undecodable as error:
            raise Unserializable(f"{self.spec.name} (step {self.asked.path}): {error}") from None
        for name in self.spec.signature.injected:
            kwargs[name] = IdempotencyKey(self.asked.key)
        return args, kwargs

    def arguments(self) -> Given:
        """The arguments for the function: a copy for each attempt, which it may change at will.

        A step that changes a list it was given would otherwise change its caller's on the first
        run but not on a replay, and that of its own next attempt unless a crash came between.
        """
        given, self.given = self.given, None
        return given or self.decoded()

    def scope(self) -> Scope:
        """The scope for the calls that the body makes."""
        record = self.run.log.state.calls[self.asked.path]
        return Scope(
            self.run, self.asked.path, record, scope_var.get(), is_async=self.spec.is_async
        )

    def returned(self, value: Any) -> Returned | Raised:
        """The outcome of a body that returned a value."""
        if self.run.doomed:
            self.must_not_be_doomed()
        try:
            shape = self.spec.signature.returns
            if type(value) is list:
                raw, settled = settle(self.run, shape, value)
            else:
                raw, settled = shape.settle(value)
            return Returned(self.run.log.stow(raw), settled)
        except Unserializable as error:
            named = type(error)(f"{self.spec.name} (step {self.asked.path}) returned: {error}")
            return Raised(self._failure(named), final=True)
        except HoldfastError as error:
            self.run.halt(error)

    def raised(self, error: BaseException, *, timed_out: bool = False) -> Raised:
        """The outcome of a body that raised."""
        self.must_not_be_doomed()
        must_not_be_the_store(self.run, error, self.asked.path)
        if isinstance(error, TaskWaiting):  # of a task that the body runs: this one waits with it
            self.run.park(self.asked.path, error)
        timed_out = timed_out or isinstance(error, ReplyLost)
        final = isinstance(error, self.spec.retry.unless) and not timed_out
        failure = self._failure(error, timed_out)
        refused = refused_s(error) if self.spec.limit is not None else 0.0
        return Raised(failure, final, retry_after_s=retry_after_s(error), refused_s=refused)

    def _failure(self, error: BaseException, timed_out: bool = False) -> Failure:
        redact, hidden = self.run.log.redact, self.asked.hidden
        return failure_of(error, redact, timed_out=timed_out, also=hidden)

    def must_not_be_doomed(self) -> None:
        """Raise the signal that stopped a call of the body, if the body caught it."""
        if signal := self.run.doomed.get(self.asked.path):
            self.run.raise_in(self.asked.path, signal)

    def checked(self, answer: Any) -> Returned | Raised | None:
        """The answer of a tool's `check`."""
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
    known = run.log.growing.find(value, shape) if type(value) is list else None
    if known is None:
        return shape.settle(value)
    return naming(b"null", {(): known}), known.copies()


def conclude(run: Run, spec: Spec, outcome: Returned | Call, path: str = "") -> Any:
    """The value for the task: the result, or `StepFailed`; the same for a live and a recorded
    call."""
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
        data = bytes(raw)
        known = None
        if data.startswith(REFERENCES):  # else it is the value itself
            known = run.log.recall(raw, shape)
            data = run.log.fetch(raw) if known is None else data
        value = shape.load(data) if known is None else known
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
    """The outcome of a task's function that returned a value."""
    if isinstance(run.stop, Stop):
        return stopped(run.stop)
    if run.stop is not None:  # the function caught the signal and went on
        raise run.stop
    must_have_made_every_call(run)
    try:
        warn_of_unawaited(run, spec)
    except NotDurable as error:  # as the user wants it to be
        return Raised(failure_of(error, run.log.redact))
    try:
        raw, settled = settle(run, spec.signature.returns, value)
        return Returned(run.log.stow(raw), settled)
    except Unserializable as error:
        named = type(error)(f"{spec.name} returned: {error}")
        return Raised(failure_of(named, run.log.redact))


def warn_of_unawaited(run: Run, spec: Spec) -> None:
    """Say which calls were made and never awaited, so that they did not run."""
    for path, (name, _) in run.unawaited.items():
        todo = f"write `await {name}(…)`"
        if not spec.is_async:
            todo = f"{spec.name} is sync, and {name} is async: make the task `async def` too"
        warnings.warn(
            f"task {run.task_id!r}: {name} (step {path}) was called and never awaited, so it did "
            f"not run: {todo}",
            NotDurable,
            stacklevel=2,
        )
    run.unawaited.clear()


def stopped(signal: Stop) -> Raised | Stopped:
    """The outcome of a task's function that was stopped for good."""
    return Stopped(str(signal)) if signal.failure is None else Raised(signal.failure)


def task_raised(run: Run, error: BaseException) -> Raised | Stopped:
    """The outcome of a task's function that raised."""
    if isinstance(run.stop, Stop):
        return stopped(run.stop)
    if run.stop is not None:  # the function turned the signal into an error of its own
        raise run.stop from error
    if isinstance(error, TaskWaiting):  # of a task that this one runs: it waits with it
        raise Suspend(error)
    must_not_be_the_store(run, error)
    must_have_made_every_call(run, error)
    if run.spec is not None:
        with suppress(NotDurable):  # the task fails as it is
            warn_of_unawaited(run, run.spec)
    causes = tuple(dict.fromkeys(failed_paths(error)))
    return Raised(failure_of(error, run.log.redact), causes=causes)


def must_not_be_the_store(run: Run, error: BaseException, path: str = "") -> None:
    """Halt if an exception says that the store failed: that is no failure of the code which asked
    it for something, and the task goes on when the store is back."""
    if isinstance(error, StorageFailed):
        run.halt(error, path)
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            must_not_be_the_store(run, each, path)


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
    """The part that looks after the tasks that this one starts."""
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


def sleeping(run: Run, until: datetime, why: str = "") -> TaskWaiting:
    """Why a task that has nothing to do for a while is released."""
    text = f"task {run.task_id!r} {why or 'sleeps'} until {until}"
    return TaskWaiting(run.task_id, text, until)


def awaiting_child(run: Run, child: str) -> TaskWaiting:
    """Why a task whose child is driven by somebody else is released."""
    # The driver of the child tells its parent when it has ended, unless it dies just then.
    until = run.log.clock() + _LOOK_AFTER_CHILDREN
    return TaskWaiting(run.task_id, f"task {run.task_id!r} waits for its child {child!r}", until)
