"""What is asked of tasks from outside: answer, settle, pause, go on, cancel.

Each finds its way into the log, at once if nobody holds the task, else by way of whoever does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import UNSET, Raw

from holdfast.engines.elsewhere import CANCEL, driven_by
from holdfast.engines.execution import is_open_child
from holdfast.engines.holding import Holding
from holdfast.engines.mail import Message
from holdfast.errors import (
    AlreadyAnswered,
    BadInput,
    HoldfastError,
    TaskBusy,
    TaskCancelled,
    TaskNotFound,
)
from holdfast.events import (
    CancelRequested,
    ChildEnded,
    Failure,
    PauseRequested,
    QuestionAnswered,
    Settled,
    TaskContinued,
    TaskStopped,
)
from holdfast.history import known_state
from holdfast.journal import Raised, Returned
from holdfast.people import checked_answer, may_be_settled, open_question, result_given
from holdfast.reading import first_event, read_state, stream_of
from holdfast.state import FINISHED, State
from holdfast.store import Store
from holdfast.words import checked_id, must_be_texts

Stow = Callable[[bytes], Raw]


def answer(holding: Holding, id: str, given: Any, question: str | None, by: str) -> None:
    """Answer a question of a task."""
    must_be_texts("answer", by=by)
    before = known_state(holding.store, checked_id(id))
    path = open_question(before, question).path
    # One for each time it is asked: an answer that does not fit is asked for again.
    name = _next_name(f"answer-{path}", before)

    def make(state: State, stow: Stow) -> QuestionAnswered:
        call = open_question(state, path)
        if call.until is not None and holding.clock() >= call.until:
            raise AlreadyAnswered(
                f"task {id!r}, question {call.key!r}: its time was up at {call.until}"
            )
        raw = stow(checked_answer(call, given))
        return QuestionAnswered(path=call.path, answer=raw, by=by or holding.owner)

    if not holding.tell(id, name, make):
        open_question(read_state(holding.store, stream_of(id)), path)  # says what came first
        raise AlreadyAnswered(
            f"task {id!r}, question {before.calls[path].key!r}: it was answered a moment ago"
        )


def _next_name(what: str, state: State) -> str:
    """A name for a message that nobody else gives to another one like it."""
    return f"{what}-{1 + sum(post.rpartition('-')[0] == what for post in state.posts)}"


def resolve(
    holding: Holding, id: str, path: str, happened: bool, result: Any, because: str, by: str
) -> None:
    """Settle a call in doubt by hand."""
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
            result=stow(result_given(call.name, result)) if happened else UNSET,
            because=because,
        )

    state = read_state(holding.store, stream_of(id))
    if not holding.tell(id, _next_name(f"resolve-{path}", state), make):
        raise BadInput(f"task {id!r}, call {path}: somebody settled it a moment ago")


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
    """Let a paused task go on, driven by whoever looks for work."""

    def make(state: State, stow: Stow) -> Message:
        if state.status != "paused":
            raise BadInput(f"task {id!r} is not paused: it is {state.status}")
        return TaskContinued(by=by or holding.owner)

    _tell(holding, id, f"continue-{os.urandom(6).hex()}", make, "", by)


def cancel(holding: Holding, id: str, because: str, by: str, *, wait: bool = True) -> str:
    """Ask a task to end at its next step; returns its status then.

    One that nobody drives ends at once, unless there is something to do first: then whoever
    drives it next ends it.
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
    state = read_state(holding.store, stream_of(id))
    if not driven_by(state) or not (state.cancelling or state.ending):
        # One that was retried may have been told so before, and failed all the same.
        again = CANCEL in state.posts
        name = _next_name(CANCEL, state) if again else CANCEL
        _tell(holding, id, name, make, because, by, wait=wait)
    return read_state(holding.store, stream_of(id)).status


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
        raise TaskNotFound(f"no task {id!r} in {store.url}")


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
