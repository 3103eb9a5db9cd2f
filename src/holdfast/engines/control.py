"""Requests to tasks from outside: answer, settle, pause, go on, cancel.

Each finds its way into the log: at once if nobody holds the task, else through its holder.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from typing import Any

from msgspec import UNSET, Raw

from holdfast.codec import shape_of, shape_of_value, unchecked
from holdfast.core.events import (
    CancelRequested,
    ChildEnded,
    Failure,
    MessageSent,
    PauseRequested,
    QuestionAnswered,
    Settled,
    TaskContinued,
    TaskRetried,
    TaskStopped,
)
from holdfast.core.fold.waits import awaits, perhaps_open
from holdfast.core.journal import Raised, Returned
from holdfast.core.spec import registry
from holdfast.core.state import FINISHED, HALTED, UNDO, Call, State, scope_of
from holdfast.core.words import checked_id, must_be_texts
from holdfast.engines.execution import is_open_child
from holdfast.engines.holder import Holding
from holdfast.engines.mail import Message
from holdfast.engines.routing import CANCEL, driven_by
from holdfast.errors import (
    AlreadyAnswered,
    BadInput,
    HoldfastError,
    HoldsSecret,
    TaskBusy,
    TaskCancelled,
    Unserializable,
)
from holdfast.log.reading import first_event, no_task, stream_of
from holdfast.log.states import load, load_sound
from holdfast.stores.port import Store

# The messages of people to tasks: answers to their questions, and how calls in doubt ended.
#
# The log has the expected answer of a question as the name of a type. For JSON's own types that is
# enough to check an answer anywhere; for a class of the user's it is checked when the task goes on,
# by the code that asked.


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


def checked_answer(id: str, call: Call, answer: Any) -> bytes:
    """The answer as it goes into the log, or `Unserializable` that says what was expected."""
    if call.expects not in _PLAIN:
        return _plain_data(answer)
    try:
        return shape_of(_PLAIN[call.expects]).settle(answer)[0]
    except Unserializable as error:
        what = "message" if call.kind == "message" else "question"
        raise Unserializable(
            f"task {id!r}, {what} {call.key!r}: expected {call.expects}, got {answer!r:.200}"
        ) from error


def _plain_data(value: Any) -> bytes:
    """A value as the type that the code expects would write it, where nobody knows that type."""
    if isinstance(value, tuple):
        value = list(value)
    try:
        return shape_of_value(value).settle(value)[0]
    except (BadInput, Unserializable):
        return shape_of(Any).settle(value)[0]


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


def result_given(call: Call, result: Any, is_sure: bool) -> bytes:
    """The result of a tool as a person gave it, checked against its type if its code is here."""
    spec = None if is_sure else registry.surely(call.name)
    if spec is None:
        return unchecked(result)
    try:
        return spec.signature.returns.given(result)  # a person has no objects, only their JSON
    except HoldsSecret:
        raise
    except Unserializable as error:
        raise Unserializable(
            f"call {call.path}, {call.name}: the result is not what {spec.where} returns: {error}. "
            f"If another function made the call, settle it unchecked"
        ) from None


Stow = Callable[[bytes], Raw]


def answer(holding: Holding, id: str, given: Any, question: str | None, by: str) -> None:
    """Answer a question of a task."""
    must_be_texts("answer", by=by)
    before = load_sound(holding.store, checked_id(id))
    path = open_question(before, question).path
    # One for each time it is asked: an answer that does not fit is asked for again.
    name = next_name(f"answer-{path}", before)

    def make(state: State, stow: Stow) -> QuestionAnswered:
        call = open_question(state, path)
        if call.until is not None and holding.clock() >= call.until:
            raise AlreadyAnswered(
                f"task {id!r}, question {call.key!r}: its time was up at {call.until}"
            )
        raw = stow(checked_answer(id, call, given))
        return QuestionAnswered(path=call.path, answer=raw, by=by or holding.owner)

    if not holding.tell(id, name, make):
        open_question(load(holding.store, id, missing_ok=True), path)  # says what came first
        raise AlreadyAnswered(
            f"task {id!r}, question {before.calls[path].key!r}: it was answered a moment ago"
        )


def next_name(what: str, state: State) -> str:
    """A name for a message that nobody else gives to another one like it."""
    return f"{what}-{1 + sum(post.rpartition('-')[0] == what for post in state.posts)}"


def resolve(
    holding: Holding,
    id: str,
    path: str,
    happened: bool,
    result: Any,
    because: str,
    by: str,
    is_sure: bool = False,
) -> None:
    """Settle a call in doubt by hand. A person who is sure gives the result unchecked."""
    must_be_there(holding.store, id)
    must_be_texts("resolve", because=because, by=by)
    if not happened and result is not None:
        raise BadInput("a call that did not happen has no result")

    def make(state: State, stow: Stow) -> Settled:
        call = state.calls.get(path)
        if call is None:
            raise BadInput(f"task {id!r} has made no call {path}: see `holdfast doubt`")
        if not may_be_settled(state, call):
            raise BadInput(
                f"task {id!r}, call {path}, {call.name}, is not in doubt: it is {call.status}"
            )
        return Settled(
            path=path,
            verdict="happened" if happened else "did_not_happen",
            by=by or f"hand, {holding.owner}",
            result=stow(result_given(call, result, is_sure)) if happened else UNSET,
            because=because,
        )

    state = load(holding.store, id, missing_ok=True)
    if not holding.tell(id, next_name(f"resolve-{path}", state), make):
        raise BadInput(f"task {id!r}, call {path}: somebody settled it a moment ago")


_LONGEST_NAME = 200


def message_name(name: Any) -> str:
    """The name of a message, checked."""
    must_be_texts("a message", name=name)
    if not 1 <= len(name) <= _LONGEST_NAME:
        raise BadInput(f"a message: name={name!r:.60} must have 1 to {_LONGEST_NAME} characters")
    return str(name)


def send(holding: Holding, id: str, name: str, value: Any, key: str, by: str) -> bool:
    """Send a message to a task; False if one was sent before under the same key."""
    message_name(name)
    must_be_texts("send", by=by, key=key)
    must_be_there(holding.store, id)
    # By the key, so that a sender that does not know whether it has sent may send again.
    digest = sha256(f"{name}\0{key}".encode()).hexdigest()[:24] if key else os.urandom(12).hex()
    post = f"message-{digest}"

    def make(state: State, stow: Stow) -> MessageSent:
        if post in state.posts:  # also of one that has ended: a sender that died may send again
            raise _SentBefore
        _must_be_unfinished(state)
        waiting = [c for c in perhaps_open(state.calls) if awaits(c, name)]
        data = checked_answer(id, waiting[0], value) if waiting else _plain_data(value)
        return MessageSent(name=name, value=stow(data), by=by or holding.owner, post=post)

    try:
        return holding.tell(id, post, make, wait=False)
    except _SentBefore:
        return False


class _SentBefore(Exception):
    """The message is in the log already."""


def reopen(holding: Holding, id: str, by: str) -> None:
    """Open a failed task again, and leave the driving to a worker."""
    must_be_texts("retry", by=by)
    must_be_there(holding.store, id)
    if load(holding.store, id).status in HALTED:
        return unpause(holding, id, by)
    with holding.hold(id) as log:
        state = log.state
        if state.status != "failed":
            raise BadInput(f"task {id!r} is {state.status}: only what failed is retried")
        must_not_be_undone(state)
        if driven_by(state):
            raise BadInput(
                f"task {id!r} is driven by {state.driver}: retry it with that engine "
                f"(--engine {state.driver}), which is then told"
            )
        log.append(TaskRetried(by=by or holding.owner))
        log.sync()


def must_not_be_undone(state: State) -> None:
    """Raise `BadInput` if what a task did was undone: then there is nothing to go on from."""
    if state.compensated:
        raise BadInput(
            f"task {state.id!r}: what it did was undone, so it can't go on from there: "
            f"start a new one under another id"
        )


def pause(holding: Holding, id: str, because: str, by: str) -> None:
    """Stop a task at its next step, and keep it so."""

    def make(state: State, stow: Stow) -> Message:
        if state.status == "paused":
            raise BadInput(f"task {id!r} is paused already")
        if state.cancelling or state.ending:
            raise BadInput(f"task {id!r} is being cancelled, and can't be paused any more")
        return PauseRequested(by=by or holding.owner, because=because)

    _tell(holding, id, f"pause-{os.urandom(6).hex()}", make, because, by)


def unpause(holding: Holding, id: str, by: str) -> None:
    """Let a paused task go on, driven by a worker."""

    def make(state: State, stow: Stow) -> Message:
        if state.status not in HALTED:
            raise BadInput(f"task {id!r} is not paused: it is {state.status}")
        return TaskContinued(by=by or holding.owner)

    _tell(holding, id, f"continue-{os.urandom(6).hex()}", make, "", by)


def cancel(holding: Holding, id: str, because: str, by: str, *, wait: bool = True) -> str:
    """Ask a task to end at its next step; returns its status then.

    A task that nobody drives ends at once, unless there is something to do first: then its next
    driver ends it.
    """

    def make(state: State, stow: Stow) -> Message:
        return CancelRequested(by=by or holding.owner, because=because)

    must_be_there(holding.store, id)
    with suppress(TaskBusy):
        with holding.hold(id) as log:
            _must_be_unfinished(log.state)
            is_ours = not driven_by(log.state)
            if is_ours:
                if not log.state.cancelling and not log.state.ending:
                    log.append(make(log.state, log.stow))
                if not _has_to_be_driven(log.state):
                    log.append(TaskStopped(because=because))
                log.sync()
        if is_ours:
            tell_parent(holding, log.state)
            return log.state.status
    state = load(holding.store, id, missing_ok=True)
    if not driven_by(state) or not (state.cancelling or state.ending):
        # A retried task may have been told so before, and failed all the same.
        again = CANCEL in state.posts
        name = next_name(CANCEL, state) if again else CANCEL
        _tell(holding, id, name, make, because, by, wait=wait)
    return load(holding.store, id, missing_ok=True).status


def tell_parent(holding: Holding, state: State) -> None:
    """Let the parent of a task that has ended go on at once. It would look by itself, later."""
    outcome = end_of(state)
    if not state.parent or outcome is None:
        return

    def make(parent: State, stow: Stow) -> ChildEnded:
        for call in parent.calls.values():  # it may have been started again, under the same id
            if call.child == state.id and is_open_child(call):
                if isinstance(outcome, Returned):
                    return ChildEnded(path=call.path, result=outcome.raw)
                return ChildEnded(path=call.path, failure=outcome.failure)
        raise BadInput("it knows already")

    with suppress(HoldfastError):
        must_be_there(holding.store, state.parent)
        holding.tell(state.parent, f"child-{state.id}-{state.seq}", make, wait=False)


def end_of(state: State) -> Returned | Raised | None:
    """How a task ended, for its parent; None if it has not."""
    if state.status == "completed":
        return Returned(Raw(b"null") if state.result is UNSET else state.result, None)
    if state.status == "failed":
        return Raised(state.failure or Failure("Unknown", ""))
    if state.status == "cancelled":
        return Raised(Failure("TaskCancelled", str(TaskCancelled(state.id, state.because))))
    return None


def must_be_there(store: Store, id: str) -> None:
    """Raise `TaskNotFound` unless there is such a task: taking hold of it would make its folder."""
    if first_event(store, stream_of(checked_id(id))) is None:
        raise no_task(store, id)


def _has_to_be_driven(state: State) -> bool:
    if state.undoable or state.ending:
        return True
    return any(is_open_child(call) for call in state.calls.values())


def _tell(
    holding: Holding,
    id: str,
    name: str,
    make: Callable[[State, Stow], Message],
    because: str,
    by: str,
    *,
    wait: bool = True,
) -> None:
    must_be_texts(name.partition("-")[0], because=because, by=by)
    must_be_there(holding.store, id)

    def made(state: State, stow: Stow) -> Message:
        _must_be_unfinished(state)
        return make(state, stow)

    holding.tell(id, name, made, wait=wait)


def _must_be_unfinished(state: State) -> None:
    if state.status in FINISHED:
        raise BadInput(f"task {state.id!r} is {state.status}: it has ended")
