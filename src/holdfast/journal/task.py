"""The flow of a whole task, and which of its calls are undone when it ends badly."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from typing import Any

from holdfast.events import (
    Claimed,
    Compensating,
    Failure,
    TaskCompleted,
    TaskErrored,
    TaskStopped,
)
from holdfast.journal.requests import (
    Append,
    CancelChildren,
    Raised,
    Request,
    Returned,
    Run,
    Stopped,
    Undo,
)
from holdfast.state import UNDO, Call, State

Outcome = Returned | Raised | Stopped


def conduct(
    claimed: Claimed, state: State, undo_when: Collection[str]
) -> Generator[Request, Any, Outcome]:
    """Drive a whole task: say who does, run its function, record how it ended.

    `state` is that of the log, and is kept current by the appends. That the task is being undone
    is recorded first: after a crash its function, which might not fail again, runs no more.
    """
    yield Append(claimed, False)
    outcome: Outcome
    if state.ending:
        outcome = _ending(state)
    elif state.cancelling:
        outcome = Stopped(state.because)
    else:
        outcome = yield Run(0)
    if isinstance(outcome, Returned):
        yield Append(TaskCompleted(result=outcome.raw), True)
        return outcome
    ending = "cancelled" if isinstance(outcome, Stopped) else "failed"
    if ending == "cancelled" and not state.ending:
        yield CancelChildren()  # what they did came later, and is undone first
    if not state.ending and ending in undo_when and state.undoable:
        yield Append(_compensating(outcome), True)
    if state.ending:
        yield Undo()
    if isinstance(outcome, Raised):
        yield Append(TaskErrored(failure=outcome.failure, causes=outcome.causes), True)
    else:
        yield Append(TaskStopped(because=state.because), True)
    return outcome


def _ending(state: State) -> Raised | Stopped:
    if state.ending == "cancelled":
        return Stopped(state.because)
    return Raised(state.failure or Failure("Unknown", ""), causes=state.causes)


def _compensating(outcome: Raised | Stopped) -> Compensating:
    if isinstance(outcome, Stopped):
        return Compensating(ending="cancelled")
    return Compensating(ending="failed", failure=outcome.failure, causes=outcome.causes)


def undo_path(path: str) -> str:
    """The path of the call that undoes another.

    >>> undo_path("6.2")
    'undo.6/2'
    """
    return f"{UNDO}.{path.replace('.', '/')}"


def to_settle(state: State) -> Sequence[Call]:
    """The calls that may have happened, and would have to be undone then."""
    return [call for call in _own(state) if call.undo and is_open(call)]


def is_open(call: Call) -> bool:
    """Whether nobody knows yet if a call happened."""
    return call.status in ("running", "in_doubt") or (call.status == "backing_off" and call.doubt)


def _own(state: State) -> Iterator[Call]:
    """The calls that a task made itself: what a fork shares is its original's to undo."""
    shared = state.fork.seq if state.fork is not None else 0
    return (call for call in state.calls.values() if call.seq > shared)


def to_undo(state: State) -> Sequence[Call]:
    """The calls that happened and can be undone: the one that ended last comes first."""
    done = [call for call in _own(state) if call.undo and call.status == "completed"]
    return sorted(done, key=lambda call: call.ended_seq, reverse=True)
