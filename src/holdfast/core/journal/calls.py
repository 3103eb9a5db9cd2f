"""The flow of a call of a step or a tool."""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from msgspec import UNSET, Raw
from msgspec.structs import replace

from holdfast.core.events import (
    AnyEvent,
    AttemptFailed,
    Completed,
    Doubted,
    Failed,
    Failure,
    QuestionAsked,
    Reused,
    Settled,
    Started,
    TimerSet,
    Woke,
)
from holdfast.core.journal.requests import (
    Admit,
    Append,
    Asked,
    Check,
    Flow,
    Leave,
    Look,
    Now,
    Park,
    Raised,
    Request,
    Returned,
    RunBody,
    Sleep,
    in_doubt,
    shown,
    unanswered,
)
from holdfast.core.limits import SUFFIX
from holdfast.core.spec import Doubt, Spec
from holdfast.core.state import Call, State, read_key
from holdfast.errors import TaskWaiting

# Whether an earlier read of the outside world may answer for one that is asked for now.


def reuse(asked: Asked) -> Generator[Request, Any, Call | None]:
    """Answer a read by an earlier one, if one will do; the record of that, or None.

    The log records the reuse, so a replay needs no clock. The record is not synced:
    it says nothing that the log did not hold before, and what follows from it can't be durable
    without it. Whether one will do is found out in the same moment: a tool in another branch may
    begin or end just now.
    """
    now = yield Now()
    record: Call | None = yield Append(partial(_reused, asked, now), False)
    return record


def _reused(asked: Asked, now: datetime, state: State) -> Reused | None:
    name, digest = asked.spec.name, asked.args_hash
    seen = state.calls.get(state.reads.get(read_key(name, digest), ""))
    if seen is None or not is_usable(seen, state, asked.ttl_s, now):
        return None
    return Reused(path=asked.path, name=name, args_hash=digest, of=seen.path)


def is_usable(seen: Call, state: State, ttl_s: float, now: datetime) -> bool:
    """Whether what a read saw may still be used: it is young enough, and nothing speaks against it.

    Its age counts from when it began: the value may be of any moment since then, and this is the
    oldest. A clock that stands before what the log has seen was set back, and tells no age.
    """
    if seen.as_of is None or now < state.updated_at:
        return False
    if (now - seen.as_of).total_seconds() > ttl_s:
        return False
    if any(state.invalidated.get(name, 0) > seen.seq for name in ("", *seen.reads)):
        return False
    return not any(name in names for names in state.writers.values() for name in seen.reads)


_MOST_SHOWN = 4000
"""How much of the arguments a person is shown who is to approve them; the log has them all."""

_LONGEST_ASKED_S = 3600.0
"""How long an exception can make the next attempt wait: somebody else's clock may be wrong."""


def perform(asked: Asked, record: Call | None) -> Flow:
    """Make a call, or finish one: look it up, write the intent, run the body, record the result.

    Returns what the body returned now, or the record of how the call ended.
    """
    if record is None:
        if asked.ttl_s and (seen := (yield from reuse(asked))):
            return seen
        if asked.spec.approve and (refused := (yield from _approval(asked))):
            return refused
        spec = asked.spec
        if spec.limit is not None:
            yield from _admitted(asked)
        begun = Started(
            path=asked.path,
            name=spec.name,
            kind="tool" if spec.is_tool else "step",
            args=asked.args,
            args_hash=asked.args_hash,
            key=asked.key,
            undo=spec.undo is not None,
            external=spec.kind == "external",
            invalidates=spec.invalidates,
        )
        record = yield Append(begun, spec.is_tool)
    elif record.status == "running":  # in a process that died
        record = yield from _interrupted(asked, record)
    while record.status not in ("completed", "failed"):
        if record.status != "running":
            record = yield from _onwards(asked, record)
            continue
        outcome = yield RunBody(record.attempts[-1].number)
        if asked.spec.limit is not None:
            yield Leave(asked, outcome)
        if isinstance(outcome, Returned):
            yield Append(Completed(path=asked.path, result=outcome.raw), True)
            return outcome
        record = yield from _attempt_failed(asked, record, outcome)
    return record


def _admitted(asked: Asked) -> Generator[Request, Any, None]:
    """Go on when the limit of a call lets it be made.

    The wait is recorded beside the call, so it outlives the process and keeps no worker. It comes
    before the intent: a crash while the call waits leaves nothing in doubt.
    """
    limit = asked.spec.limit.limit if asked.spec.limit is not None else None
    name, path = limit.name if limit is not None else "", f"{asked.path}{SUFFIX}"
    record: Call | None = yield Look(path)
    since = until = None
    while True:
        if record is not None and record.status == "waiting" and record.until is not None:
            since, until = record.at, record.until
            yield Sleep(until, why=f"waits for the limit {name!r}, to call {asked.spec.name}")
            # Not synced: if it is lost, the time has still come.
            yield Append(Woke(path=path), False)
        again_at: datetime | None = yield Admit(asked, since, until)
        if again_at is None:
            return
        nothing = Raw(b"{}")
        now = yield Now()
        since = since or now
        waits = TimerSet(
            path=path, name=name, args=nothing, args_hash="", until=again_at, call=asked.path,
            since=since,
        )  # fmt: skip
        yield Append(waits, False)
        record = yield Look(path)


def settle(asked: Asked, record: Call) -> Flow:
    """Find out whether a call in doubt happened, so that it can be undone; don't make it if not.

    Where the policy is to retry, making it again with its key is the way to find out.
    """
    if asked.spec.in_doubt == "retry":
        return (yield from perform(asked, record))
    if record.status != "in_doubt":
        record = yield from _settle(asked, record, "the task ended while it was being made")
    while record.status == "in_doubt":
        record = yield from _told(record, in_doubt(asked.task_id, record))
    return record


def _told(record: Call, waiting: TaskWaiting) -> Generator[Request, Any, Call]:
    """Stop until the task is told something; the record after that."""
    yield Park(waiting)
    after: Call = yield Look(record.path)
    return after


def _approval(asked: Asked) -> Generator[Request, Any, Call | None]:
    """Ask whether this very call may be made; a record of its failure if it may not."""
    path = approval_path(asked)
    record: Call | None = yield Look(path)
    if record is None:
        question = QuestionAsked(
            path=path,
            call=asked.path,
            id=f"approve-{asked.path}",
            question=f"May it call {asked.spec.name}({shown(asked.args, _MOST_SHOWN)})?",
            args=asked.args,
            args_hash=asked.args_hash,
            expects="bool",
        )
        yield Append(question, True)
        record = yield Look(path)
    if record is None:
        raise LookupError(f"no record of the question {path} that was just asked")
    while record.status == "waiting":
        record = yield from _told(record, unanswered(asked.task_id, record))
    if isinstance(record.result, Raw) and bytes(record.result) == b"true":
        return None
    return not_approved(asked, record)


def approval_path(asked: Asked) -> str:
    """Where it is asked whether a call may be made."""
    return f"{asked.path}!{asked.args_hash[:12]}"


def not_approved(asked: Asked, answered: Call) -> Call:
    """The record of a call that somebody did not allow: the log has his answer, and no more."""
    failure = Failure("NotApproved", f"{answered.settled_by} did not approve it")
    name = asked.spec.name
    return replace(answered, path=asked.path, name=name, status="failed", failure=failure)


Onwards = Generator[Request, Any, Call]


def _onwards(asked: Asked, record: Call) -> Onwards:
    if record.status == "in_doubt":
        return (yield from _told(record, in_doubt(asked.task_id, record)))
    if record.doubt:
        return (yield from _settle(asked, record, "its last attempt may have had its effect"))
    return (yield from _by_retry(asked, record, ""))


def _again(asked: Asked, record: Call) -> Onwards:
    """Begin another attempt; the record of it."""
    if asked.spec.limit is not None:
        yield from _admitted(asked)
    number = record.attempts[-1].number + 1
    begun: Call = yield Append(Started(path=asked.path, attempt=number), asked.spec.is_tool)
    return begun


def _attempt_failed(asked: Asked, record: Call, outcome: Raised) -> Onwards:
    now = yield Now()
    failures = record.failures + 1
    retry = asked.spec.retry
    # A reader has seen the parts: another attempt would yield them once more.
    last = outcome.final or failures >= retry.attempts or outcome.parts is not UNSET
    at_least = timedelta(seconds=min(outcome.retry_after_s, _LONGEST_ASKED_S))
    failed = AttemptFailed(
        path=asked.path,
        attempt=record.attempts[-1].number,
        failure=outcome.failure,
        retry_at=None
        if last
        else now + max(retry.wait(failures, asked.key or asked.path), at_least),
        doubt=_may_have_happened(asked.spec, outcome),
        parts=outcome.parts,
    )
    return (yield from recorded(failed))


def recorded(event: AnyEvent) -> Generator[Request, Any, Call]:
    """Append what has to be durable before the flow goes on; the record after it."""
    record: Call = yield Append(event, True)
    return record


def _may_have_happened(spec: Spec, outcome: Raised) -> bool:
    # An exception says that the tool failed, and mostly that is so; but a reply can be lost.
    # With a check we can find out. After a timeout nobody knows. A result that can't be
    # stored is the one case where we do: it happened, and asking again won't help.
    if not spec.is_tool or outcome.final:
        return False
    return outcome.failure.timed_out or spec.in_doubt == "check"


def _interrupted(asked: Asked, record: Call) -> Onwards:
    if not asked.spec.is_tool:
        return (yield from _again(asked, record))
    return (yield from _settle(asked, record, "the process died between its intent and its result"))


def _settle(asked: Asked, record: Call, why: str) -> Onwards:
    return (yield from _POLICIES[asked.spec.in_doubt](asked, record, why))


def _by_retry(asked: Asked, record: Call, why: str) -> Onwards:
    if record.exhausted:
        return (yield from recorded(Failed(path=asked.path)))
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


def _by_asking(asked: Asked, record: Call, why: str) -> Onwards:
    return (yield from recorded(Doubted(path=asked.path, why=why)))


def _by_check(asked: Asked, record: Call, why: str) -> Onwards:
    failures = 0
    while True:
        answer = yield Check()
        if answer is None:
            verdict = Settled(path=asked.path, verdict="did_not_happen", by="check")
            return (yield from recorded(verdict))
        if isinstance(answer, Returned):
            verdict = Settled(path=asked.path, verdict="happened", by="check", result=answer.raw)
            return (yield from recorded(verdict))
        failures += 1
        if answer.final or failures >= max(asked.spec.retry.attempts, 3):
            why += f", and its check failed: {answer.failure.summary()}"
            return (yield from _by_asking(asked, record, why))
        now = yield Now()
        yield Sleep(now + asked.spec.retry.wait(failures, f"check {asked.key}"), park=False)


_POLICIES: dict[Doubt, Callable[[Asked, Call, str], Onwards]] = {
    "retry": _by_retry,
    "check": _by_check,
    "ask": _by_asking,
}
