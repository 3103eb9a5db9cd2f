"""The journal: what has to happen for a call to be made once and only once.

Each flow is a generator that yields what it wants done and is told the answer; it has no clock,
disk or event loop. A driver carries the requests out: one for sync code, one for async code, one
inside each remote engine. So the decisions are written here, once.

A flow always goes by the call's record in the log, never by what it remembers: after a crash the
next one finds the same record and takes the same way. For a call of a tool that way is

    no record ──▶ Started (synced) ──▶ body ──▶ Completed (synced)
                     │                  └─raises─▶ AttemptFailed ──▶ wait ──▶ Started …
                     └─ died here: the call is in doubt
                          retry: Started again, with the same key
                          check: ask the outside system by key ──▶ Settled
                          ask:   Doubted, and the task waits for a person ──▶ Settled
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import datetime, timedelta
from shlex import quote
from typing import Any

from msgspec import Raw, Struct
from msgspec.structs import replace

from holdfast.errors import BadInput, CodeChanged, InDoubt, StepFailed, TaskWaiting, Unanswered
from holdfast.events import (
    AnswerRefused,
    AnyEvent,
    AttemptFailed,
    Claimed,
    Completed,
    Doubted,
    Failed,
    Failure,
    QuestionAnswered,
    QuestionAsked,
    QuestionExpired,
    Settled,
    Started,
    TaskCompleted,
    TaskErrored,
    TimerSet,
    Woke,
)
from holdfast.spec import Doubt, Spec
from holdfast.state import Call


class Append(Struct, gc=False):
    """Append an event; with `sync`, answer when it is durable. Answered with the call's record."""

    event: AnyEvent
    sync: bool


class Run(Struct, gc=False):
    """Run the body once. Answered with `Returned` or `Raised`."""

    attempt: int


class Check(Struct):
    """Ask the tool's `check` about the call. Answered with `Returned`, `None` or `Raised`."""


class Sleep(Struct):
    """Wait until a time."""

    until: datetime


class Now(Struct):
    """What time is it?"""


class Park(Struct):
    """The call can't go on in this run: stop the task here. Never answered."""

    waiting: TaskWaiting


class Returned(Struct, gc=False):
    """A body's result: as it goes into the log, and as the task will see it."""

    raw: Raw
    value: Any


class Raised(Struct, gc=False):
    """A body's exception. `final` where trying again would be pointless."""

    failure: Failure
    final: bool = False
    causes: tuple[str, ...] = ()


Request = Append | Run | Check | Sleep | Now | Park
Flow = Generator[Request, Any, Returned | Call]
"""A call's flow ends with what its body returned just now, or with the record of its end."""


class Asked(Struct, gc=False):
    """A call as the code asks for it now."""

    task_id: str
    path: str
    spec: Spec
    args: Raw
    args_hash: str
    key: str

    def __str__(self) -> str:
        return f"{self.spec.name}({_short(self.args)})"


def key_of(task_id: str, path: str, name: str, args_hash: str) -> str:
    """The idempotency key of a tool call: the same for every try of it, and for no other call."""
    return f"{task_id}:{path}:{name}:{args_hash}"


def perform(asked: Asked, record: Call | None) -> Flow:
    """Make a call, or finish one: look it up, write the intent, run the body, record the result.

    Returns what the body returned now, or the record of how the call ended.
    """
    if record is None:
        record = yield Append(_first(asked), asked.spec.is_tool)
        outcome = yield from _attempt(asked, record)
    elif record.status in ("completed", "failed"):
        return record
    elif record.status == "running":
        outcome = yield from _interrupted(asked, record)
    else:
        outcome = record
    while isinstance(outcome, Call) and outcome.status not in ("completed", "failed"):
        outcome = yield from _onwards(asked, outcome)
    return outcome


def _onwards(asked: Asked, record: Call) -> Flow:
    if record.status == "in_doubt":
        yield Park(in_doubt(asked.task_id, record))
    if record.doubt:
        return (yield from _settle(asked, record, "its last attempt may have had its effect"))
    return (yield from _by_retry(asked, record, ""))


def _again(asked: Asked, record: Call) -> Flow:
    number = record.attempts[-1].number + 1
    record = yield Append(Started(path=asked.path, attempt=number), asked.spec.is_tool)
    return (yield from _attempt(asked, record))


def _attempt(asked: Asked, record: Call) -> Flow:
    number = record.attempts[-1].number
    outcome = yield Run(number)
    if isinstance(outcome, Returned):
        yield Append(Completed(path=asked.path, result=outcome.raw), True)
        return outcome
    now = yield Now()
    failures = record.failures + 1
    retry = asked.spec.retry
    last = outcome.final or failures >= retry.attempts
    failed = AttemptFailed(
        path=asked.path,
        attempt=number,
        failure=outcome.failure,
        retry_at=None if last else now + retry.wait(failures, asked.key or asked.path),
        doubt=_may_have_happened(asked.spec, outcome),
    )
    return (yield from _recorded(failed))


def _recorded(event: AnyEvent) -> Generator[Request, Any, Call]:
    record: Call = yield Append(event, True)
    return record


def _may_have_happened(spec: Spec, outcome: Raised) -> bool:
    # An exception says that the tool failed, and mostly that is so; but a reply can be lost.
    # Who gave us a check lets us find out. After a timeout nobody knows. A result that can't be
    # stored is the one case where we do: it happened, and asking again won't help.
    if not spec.is_tool or outcome.final:
        return False
    return outcome.failure.timed_out or spec.in_doubt == "check"


def _interrupted(asked: Asked, record: Call) -> Flow:
    if not asked.spec.is_tool:
        return (yield from _again(asked, record))
    return (yield from _settle(asked, record, "the process died between its intent and its result"))


def _settle(asked: Asked, record: Call, why: str) -> Flow:
    return (yield from _POLICIES[asked.spec.in_doubt](asked, record, why))


def _by_retry(asked: Asked, record: Call, why: str) -> Flow:
    if record.exhausted:
        return (yield from _recorded(Failed(path=asked.path)))
    if record.retry_at is not None:
        yield Sleep(record.retry_at)
    if not record.unmade and asked.spec.is_tool and asked.spec.key_ttl_s is not None:
        # Its last attempt may have had its effect, and the receiver may have forgotten the key.
        now = yield Now()
        if now - record.at > timedelta(seconds=asked.spec.key_ttl_s):
            why = why or "its last attempt failed"
            why += f", and its key is older than the {asked.spec.key_ttl_s:g} s it is kept for"
            return (yield from (_by_check if asked.spec.check else _by_asking)(asked, record, why))
    return (yield from _again(asked, record))


def _by_asking(asked: Asked, record: Call, why: str) -> Flow:
    return (yield from _recorded(Doubted(path=asked.path, why=why)))


def _by_check(asked: Asked, record: Call, why: str) -> Flow:
    failures = 0
    while True:
        answer = yield Check()
        if answer is None:
            verdict = Settled(path=asked.path, verdict="did_not_happen", by="check")
            return (yield from _recorded(verdict))
        if isinstance(answer, Returned):
            verdict = Settled(path=asked.path, verdict="happened", by="check", result=answer.raw)
            return (yield from _recorded(verdict))
        failures += 1
        if answer.final or failures >= max(asked.spec.retry.attempts, 3):
            why += f", and its check failed: {answer.failure.summary()}"
            return (yield from _by_asking(asked, record, why))
        now = yield Now()
        yield Sleep(now + asked.spec.retry.wait(failures, f"check {asked.key}"))


_POLICIES: dict[Doubt, Callable[[Asked, Call, str], Flow]] = {
    "retry": _by_retry,
    "check": _by_check,
    "ask": _by_asking,
}


def conduct(claimed: Claimed) -> Generator[Request, Any, Returned | Raised]:
    """Drive a whole task: say who does, run its function, record how it ended."""
    yield Append(claimed, False)
    outcome = yield Run(0)
    if isinstance(outcome, Returned):
        yield Append(TaskCompleted(result=outcome.raw), True)
        return outcome
    yield Append(TaskErrored(failure=outcome.failure, causes=outcome.causes), True)
    raised: Raised = outcome
    return raised


def sleep(asked: Asked, record: Call | None, seconds: float) -> Flow:
    """Wait for a while that outlives the process: until an absolute time, which is recorded."""
    if record is None:
        now = yield Now()
        until = now + timedelta(seconds=seconds)
        record = yield Append(
            TimerSet(
                path=asked.path,
                name=asked.spec.name,
                args=asked.args,
                args_hash=asked.args_hash,
                until=until,
            ),
            True,
        )
    if record.status == "waiting" and record.until is not None:
        yield Sleep(record.until)
        # Not synced: if it is lost, the time has still come.
        record = yield Append(Woke(path=asked.path), False)
    return record


def ask(
    asked: Asked,
    record: Call | None,
    question: QuestionAsked,
    wait_s: float | None,
    misfit: Callable[[Call], str],
) -> Flow:
    """Put a question to a person, once; go on when it is answered or its time is up.

    `misfit` says what is wrong with an answer, if anything: it was given where the code that asks
    may not have been at hand.
    """
    if record is None:
        if wait_s is not None:
            now = yield Now()
            question = replace(question, until=now + timedelta(seconds=wait_s))
        record = yield Append(question, True)
    if record.status == "completed" and (why := misfit(record)):
        record = yield Append(AnswerRefused(path=asked.path, why=why), True)
    if record.status == "waiting":
        now = yield Now()
        if record.until is None or now < record.until:
            yield Park(unanswered(asked.task_id, record))
        if isinstance(record.default, Raw):
            by = "its default, when its time was up"
            answered = QuestionAnswered(path=asked.path, answer=record.default, by=by)
            return (yield from _recorded(answered))
        return (yield from _recorded(QuestionExpired(path=asked.path)))
    return record


def must_match(asked: Asked, record: Call) -> None:
    """Raise `CodeChanged` unless the record is of the call that the code asks for now."""
    same_kind = (record.kind == "tool") == asked.spec.is_tool
    if record.name == asked.spec.name and record.args_hash == asked.args_hash and same_kind:
        return
    why = ""
    if record.name == asked.spec.name and same_kind:
        why = "The arguments differ: what they are made from must be the same on every run"
    elif record.name == asked.spec.name:
        why = f"It was recorded as a {record.kind}, and is a {asked.spec.kind} now"
    raise CodeChanged(asked.task_id, asked.path, describe(record), f"calls {asked}", why)


def describe(record: Call) -> str:
    """A call as it stands in the log, for messages."""
    if record.kind == "decision":
        return f"the decision {record.name!r}"
    return f"{record.name}({_short(record.args)})"


def unanswered(task_id: str, record: Call) -> Unanswered:
    """The error that tells a person what they are asked."""
    return Unanswered(task_id, record.key, record.why, record.expects, record.until)


def in_doubt(task_id: str, record: Call) -> InDoubt:
    """The error that tells a person what to find out."""
    return InDoubt(task_id, record.path, record.name, record.key, record.why)


def misfit(task_id: str, record: Call, error: Exception) -> BadInput:
    """The error for a result that a person gave, and which is not what the tool returns."""
    return BadInput(
        f"task {task_id!r}, call {record.path}, {record.name}: the result given by "
        f"{record.settled_by} does not fit ({error}). Settle it again: "
        f"holdfast resolve {quote(task_id)} {quote(record.path)} --happened --result JSON"
    )


def step_failed(record: Call) -> StepFailed:
    """The error that a failed call raises in the task, from its record alone."""
    failure = record.failure or Failure("Unknown", "")
    return StepFailed(record.path, record.name, failure, len(record.attempts))


def _first(asked: Asked) -> Started:
    spec = asked.spec
    return Started(
        path=asked.path,
        name=spec.name,
        kind="tool" if spec.is_tool else "step",
        args=asked.args,
        args_hash=asked.args_hash,
        key=asked.key,
    )


def _short(raw: Any, most: int = 200) -> str:
    if not isinstance(raw, Raw):
        return ""
    text = bytes(raw).decode(errors="replace")
    return text if len(text) <= most else f"{text[:most]}… {len(text):,} characters"
