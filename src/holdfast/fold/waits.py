"""What a task waits for: times, people, other tasks, and messages from outside."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from holdfast import events as e
from holdfast.events import Failure
from holdfast.later import Later
from holdfast.state import Call, State, scope_of


def timer_set(state: State, event: e.TimerSet) -> None:
    state.calls[event.path] = Call(
        event.path,
        event.name,
        "sleep",
        "waiting",
        event.at,
        event.args,
        event.args_hash,
        until=event.until,
        seq=event.seq,
    )
    place(state, event.path)


def woke(state: State, event: e.Woke) -> None:
    call = state.calls[event.path]
    state.calls[event.path] = replace(call, status="completed", ended_at=event.at)


def question_asked(state: State, event: e.QuestionAsked) -> None:
    state.calls[event.path] = Call(
        event.path,
        "approve" if event.call else "ask",
        "approval" if event.call else "question",
        "waiting",
        event.at,
        event.args,
        args_hash=event.args_hash,
        key=event.id,
        why=event.question,
        until=event.until,
        default=event.default,
        expects=event.expects,
        seq=event.seq,
        approves=event.call,
    )
    if not event.call:
        place(state, event.path)
    waits(state)


def question_answered(state: State, event: e.QuestionAnswered) -> None:
    ended = {"result": event.answer, "settled_by": event.by, "ended_seq": event.seq}
    _end_question(state, event, status="completed", **ended)
    took(state, event.post)


def answer_refused(state: State, event: e.AnswerRefused) -> None:
    call = state.calls[event.path]
    nothing = {"result": UNSET, "settled_by": "", "ended_at": None, "ended_seq": 0}
    state.calls[event.path] = replace(call, status="waiting", refused=event.why, **nothing)
    waits(state)


def question_expired(state: State, event: e.QuestionExpired) -> None:
    failure = Failure("NoAnswer", f"nobody answered by {state.calls[event.path].until}")
    _end_question(state, event, status="failed", failure=failure, failed_seq=event.seq)


def _end_question(
    state: State, event: e.QuestionAnswered | e.QuestionExpired, **changes: Any
) -> None:
    state.calls[event.path] = replace(state.calls[event.path], ended_at=event.at, **changes)
    heard(state)


def waits(state: State) -> None:
    if state.status != "paused":
        state.status = "awaiting_user"


def heard(state: State) -> None:
    # Whoever drives the task on now finds something to do, even if it waits for others still.
    state.parked = False
    if state.status == "awaiting_user" and not waits_for_a_person(state):
        state.status = "in_progress"


def waits_for_a_person(state: State) -> bool:
    return any(
        call.status == "in_doubt"
        or (call.status == "waiting" and call.kind in ("question", "approval"))
        for call in perhaps_open(state.calls)
    )


def perhaps_open(calls: dict[str, Call]) -> Iterable[Call]:
    """Those calls that may not have ended, and maybe others."""
    # Of a state that was read back, most calls are not made yet: see `later`.
    return calls.unended() if isinstance(calls, Later) else calls.values()


def took(state: State, post: str) -> None:
    if post:
        state.posts = (*state.posts, post)


def child_started(state: State, event: e.ChildStarted) -> None:
    state.calls[event.path] = Call(
        event.path,
        event.name,
        "child",
        "running",
        event.at,
        event.args,
        event.args_hash,
        seq=event.seq,
        child=event.id,
        on_cancel=event.on_cancel,
    )
    place(state, event.path)


def child_made(state: State, event: e.ChildMade) -> None:
    call = unended(state, event.path)
    state.calls[event.path] = replace(call, status="waiting")


def child_ended(state: State, event: e.ChildEnded) -> None:
    call = unended(state, event.path)
    failed = event.failure is not None
    state.calls[event.path] = replace(
        call,
        status="failed" if failed else "completed",
        result=event.result,
        failure=event.failure,
        ended_at=event.at,
        failed_seq=event.seq if failed else 0,
        ended_seq=event.seq,
    )
    state.parked = False
    took(state, event.post)


def place(state: State, path: str) -> None:
    scope = scope_of(path)
    state.last[scope] = path
    while scope and scope not in state.inner:
        state.inner.add(scope)
        scope = scope_of(scope)


def unended(state: State, path: str) -> Call:
    call = state.calls[path]
    if call.status in ("completed", "failed"):
        raise LookupError(f"call {path} has ended already")
    return call
