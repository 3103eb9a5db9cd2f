"""The fold of waits: for times, people, other tasks, and messages from outside."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec import UNSET, Raw
from msgspec.structs import replace

from holdfast.core import events as e
from holdfast.core.events import Failure
from holdfast.core.state import Call, Fact, Later, State, read_key, scope_of


def timer_set(state: State, event: e.TimerSet) -> None:
    state.calls[event.path] = Call(
        event.path,
        event.name,
        "limit" if event.call else "sleep",
        "waiting",
        event.since or event.at,
        event.args,
        event.args_hash,
        until=event.until,
        seq=event.seq,
        approves=event.call,
    )
    if not event.call:
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
        schema=event.schema,
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
    # The next driver finds something to do, even if the task still waits for others.
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


# Messages. The order of the log alone says which call takes which message: the fold pairs them when
# the later one of the two comes, so nothing else has to be recorded and a replay pairs them alike.


def message_awaited(state: State, event: e.MessageAwaited) -> None:
    state.calls[event.path] = Call(
        event.path,
        "receive",
        "message",
        "waiting",
        event.at,
        args_hash=event.args_hash,
        key=event.name,
        until=event.until,
        default=event.default,
        expects=event.expects,
        seq=event.seq,
    )
    place(state, event.path)
    _take_mail(state, event.path, event.at)


def message_sent(state: State, event: e.MessageSent) -> None:
    state.mail = (*state.mail, e.Unread(event.seq, event.name, event.value))
    took(state, event.post)
    waiting = [c for c in perhaps_open(state.calls) if awaits(c, event.name)]
    if waiting:
        _take_mail(state, min(waiting, key=lambda call: call.seq).path, event.at)


def message_refused(state: State, event: e.MessageRefused) -> None:
    call = state.calls[event.path]
    nothing = {"result": UNSET, "ended_at": None, "ended_seq": 0}
    state.calls[event.path] = replace(call, status="waiting", refused=event.why, **nothing)
    _take_mail(state, event.path, event.at)


def message_expired(state: State, event: e.MessageExpired) -> None:
    call = unended(state, event.path)
    if isinstance(call.default, Raw):
        ended = replace(call, status="completed", result=call.default, ended_seq=event.seq)
    else:
        failure = Failure("NoMessage", f"no message {call.key!r} came by {call.until}")
        ended = replace(call, status="failed", failure=failure, failed_seq=event.seq)
    state.calls[event.path] = replace(ended, ended_at=event.at)


def _take_mail(state: State, path: str, at: datetime) -> None:
    """Let a call take the oldest message that it waits for, if there is one."""
    call = state.calls[path]
    found = next((mail for mail in state.mail if mail.name == call.key), None)
    if found is None:
        return
    state.mail = tuple(mail for mail in state.mail if mail is not found)
    # It ended by the event that brought the message, which may be older than the call: an engine
    # that runs the function again lets it see the message once it has been told of that event.
    state.calls[path] = replace(
        call, status="completed", result=found.value, ended_at=at, ended_seq=found.seq
    )
    state.parked = False


def taker_of(state: State, seq: int) -> str:
    """The path of the call that took the message of an event; '' if none has."""
    taken = (c for c in state.calls.values() if c.kind == "message" and c.ended_seq == seq)
    return next((call.path for call in taken), "")


def awaits(call: Call, name: str) -> bool:
    """Whether a call waits for a message of that name."""
    return call.kind == "message" and call.status == "waiting" and call.key == name


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


# Readings of the outside world, and which of them may be out of date.
#
# A read may answer for the same read made later, so the state knows the newest of each kind, and
# what speaks against it: a tool that changes what was read, from its intent until it has ended;
# and a clock that was set back, by which no age can be told. A read has to have *begun* after all
# that.
#
# Nothing is forgotten when a tool begins. While one is under way no read of its kind is reused,
# and its end makes those untrue that began before it: so those from before it, and those made
# meanwhile.


def begun(state: State, event: e.Started) -> None:
    """A read begins, or a tool that makes reads untrue."""
    call = replace(state.calls[event.path], invalidates=event.invalidates)
    if event.external:
        call = replace(call, reads=(event.name,), as_of=event.at)
    state.calls[event.path] = call
    _made_inside(state, call)
    writes(state, call)


def begun_again(state: State, call: Call, at: datetime) -> None:
    """It is tried again. A read counts from now, unless its body finds something in the log that
    an earlier attempt saw."""
    inside = f"{call.path}."
    if call.reads and not any(path.startswith(inside) for path in state.calls):
        state.calls[call.path] = replace(call, as_of=at)
    writes(state, call)


def saw(state: State, call: Call) -> None:
    """A read has ended: it may answer for others, unless there is a younger one.

    A call that was begun before the last checkpoint may not: it may have been read from a log that
    begins there, where nobody knows what came in between.
    """
    if state.checkpoints and not call.path.startswith(f"@{state.checkpoints}."):
        return
    key = read_key(call.name, call.args_hash)
    known = state.calls.get(state.reads.get(key, ""))
    if known is None or not _is_older(call, known):
        state.reads[key] = call.path


def _is_older(call: Call, other: Call) -> bool:
    return call.as_of is not None and other.as_of is not None and call.as_of < other.as_of


def reused(state: State, event: e.Reused) -> None:
    seen = state.calls[event.of]
    call = state.calls[event.path] = Call(
        event.path,
        event.name,
        "step",
        "completed",
        event.at,
        seen.args,
        event.args_hash,
        result=seen.result,
        ended_at=event.at,
        seq=event.seq,
        ended_seq=event.seq,
        reads=seen.reads,
        as_of=seen.as_of,
        of=event.of,
    )
    place(state, event.path)
    _made_inside(state, call)


def _made_inside(state: State, inner: Call) -> None:
    # A read may be made of others: then it is as old as the oldest of them, and what makes one of
    # them untrue makes it untrue.
    path = inner.path
    while inner.reads and (path := scope_of(path)):
        outer = state.calls.get(path)
        if outer is not None and outer.reads:
            names = tuple(dict.fromkeys((*outer.reads, *inner.reads)))
            as_of = inner.as_of if _is_older(inner, outer) else outer.as_of
            state.calls[path] = replace(outer, reads=names, as_of=as_of)


def writes(state: State, call: Call) -> None:
    """A tool is about to have its effect, or may have had it."""
    if call.invalidates:
        state.writers[call.path] = call.invalidates


def wrote(state: State, call: Call, seq: int) -> None:
    """A tool has ended, one way or the other. A failed one may have had its effect all the same."""
    state.writers.pop(call.path, None)
    for name in call.invalidates:
        state.invalidated[name] = seq


def clock_set_back(state: State, seq: int) -> None:
    """By this clock what was read before would seem younger than it is, also what is under way."""
    state.reads = {}
    state.invalidated[""] = seq


def derived(state: State, event: e.Derived) -> None:
    path, name, at = event.path, event.name, event.at
    state.calls[path] = Call(
        path, name, "fact", "completed", at, result=event.value, ended_at=at, as_of=event.as_of
    )
    state.facts.append(Fact(path, name, at, event.value, event.as_of, event.sources))
