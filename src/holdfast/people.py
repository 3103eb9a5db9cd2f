"""What people say to tasks: answers to their questions, and how calls in doubt ended.

What a question expects is in the log as the name of a type. For JSON's own types that is enough
to check an answer anywhere; for a class of the user's it is checked when the task goes on, by the
code that asked.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from msgspec import Raw

from holdfast.codec import shape_of, shape_of_value
from holdfast.errors import AlreadyAnswered, BadInput, CodeMissing, Undecodable, Unserializable
from holdfast.spec import registry
from holdfast.state import FINISHED, UNDO, Call, State, scope_of

_PLAIN: dict[str, Any] = {
    "str": str,
    "bool": bool,
    "int": int,
    "float": float,
    "list[str]": list[str],
    "list[int]": list[int],
}


def open_question(state: State, id: str | None) -> Call:
    """The question of that id, or the only one that is open."""
    asked = [call for call in state.calls.values() if call.kind in ("question", "approval")]
    if not asked:
        raise BadInput(f"task {state.id!r} has asked nothing")
    waiting = [call for call in asked if call.status == "waiting"]
    if id is None:
        if len(waiting) == 1:
            return _of_unfinished(state, waiting[0])
        if not waiting:
            raise AlreadyAnswered(f"task {state.id!r} waits for no answer: {_ended(asked[-1])}")
        ids = ", ".join(repr(call.key) for call in waiting)
        raise BadInput(f"task {state.id!r} asks {len(waiting)} questions: say which one: {ids}")
    found = [call for call in asked if id in (call.key, call.path)]
    if not found:
        ids = ", ".join(repr(call.key) for call in waiting) or "none"
        raise BadInput(f"task {state.id!r} has asked no question {id!r}. Open: {ids}")
    still = [call for call in found if call.status == "waiting"]
    if len(still) > 1:
        paths = ", ".join(repr(call.path) for call in still)
        raise BadInput(
            f"task {state.id!r} asks {len(still)} questions {id!r}: say which by {paths}"
        )
    if not still:
        raise AlreadyAnswered(f"task {state.id!r}, question {id!r}: {_ended(found[-1])}")
    return _of_unfinished(state, still[0])


def _of_unfinished(state: State, call: Call) -> Call:
    ended = "being cancelled" if state.cancelling else state.status
    is_undoing = call.approves.startswith(f"{UNDO}.")
    if state.status in FINISHED or (state.cancelling and not is_undoing):
        raise BadInput(f"task {state.id!r} is {ended}: it waits for no answer any more")
    return call


def checked_answer(call: Call, answer: Any) -> bytes:
    """The answer as it goes into the log, or `Unserializable` that says what was expected."""
    if call.expects in _PLAIN:
        return shape_of(_PLAIN[call.expects]).settle(answer)[0]
    if isinstance(answer, tuple):
        answer = list(answer)  # as the type that is asked for would write it
    try:
        return shape_of_value(answer).settle(answer)[0]
    except (BadInput, Unserializable):
        return shape_of(Any).settle(answer)[0]


def _ended(call: Call) -> str:
    if call.status == "failed":
        return f"its time was up at {call.until}"
    answer = bytes(call.result).decode() if isinstance(call.result, Raw) else "null"
    short = answer if len(answer) <= 200 else answer[:200] + "…"
    return f"it was answered with {short} by {call.settled_by} at {call.ended_at}"


def may_be_settled(state: State, call: Call) -> bool:
    """Whether a person may say how a call ended: it is in doubt, or a person said so before and
    nothing was made from that yet (so that a slip can be mended)."""
    if call.kind != "tool" or state.status in FINISHED:
        return False
    if call.status == "completed":
        by_hand = call.settled_by not in ("", "check")
        return by_hand and state.last.get(scope_of(call.path)) == call.path
    return call.status in ("in_doubt", "running") or (call.doubt and call.status != "failed")


def result_given(name: str, result: Any) -> bytes:
    """The result of a tool as a person gave it, checked against its type if its code is here."""
    try:
        returns = registry.call(name).signature.returns
    except CodeMissing:
        return shape_of(Any).dump(result)
    try:
        return returns.settle(result)[0]
    except Unserializable:
        # A person has no objects, only their JSON: take it as it would stand in the log.
        with suppress(Undecodable):
            return returns.settle(returns.load(shape_of(Any).dump(result)))[0]
        raise
