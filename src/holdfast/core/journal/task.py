"""The flow of a whole task, and which of its calls are undone when it ends badly."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from typing import Any

from holdfast.core.events import (
    AnyEvent,
    Claimed,
    Compensating,
    Failure,
    TaskCompleted,
    TaskErrored,
    TaskStopped,
)
from holdfast.core.journal.requests import (
    Append,
    CancelChildren,
    Raised,
    Request,
    Returned,
    RunBody,
    Stopped,
    Undo,
)
from holdfast.core.state import FINISHED, UNDO, Call, State

Outcome = Returned | Raised | Stopped


def conduct(
    claimed: Claimed | None,
    state: State,
    undo_when: Collection[str],
    begun: State | None = None,
    *,
    synced: bool = False,
) -> Generator[Request, Any, Outcome]:
    """Drive a whole task: say who does, run its function, record how it ended.

    `state` is that of the log, and is kept current by the appends. That the task is being undone
    is recorded first: after a crash its function, which might not fail again, runs no more.

    With `synced` the claim is durable before the function runs: if that ends the process, the
    next driver finds the claim, and counts.

    A remote engine has it driven from `begun` each time, however far the log has come since: what
    is there is not written again.
    """
    is_again, begun = begun is not None, begun or state
    if claimed is not None:
        yield Append(claimed, synced)
    outcome: Outcome
    if begun.ending:
        outcome = _ending(begun)
    elif begun.cancelling:
        outcome = Stopped(state.because)
    else:
        outcome = yield RunBody(0)
    if isinstance(outcome, Returned):
        yield Append(_end(TaskCompleted(result=outcome.raw), is_again), True)
        return outcome
    ending = "cancelled" if isinstance(outcome, Stopped) else "failed"
    if ending == "cancelled" and not begun.ending:
        yield CancelChildren()  # what they did came later, and is undone first
    if not _is_undone(state) and ending in undo_when and state.undoable:
        yield Append(_compensating(outcome), True)
    if _is_undone(state):
        yield Undo()
    if isinstance(outcome, Raised):
        errored = TaskErrored(failure=outcome.failure, causes=outcome.causes)
        yield Append(_end(errored, is_again), True)
    else:
        yield Append(_end(TaskStopped(because=state.because), is_again), True)
    return outcome


def _end(end: AnyEvent, is_again: bool) -> AnyEvent | Callable[[State], AnyEvent | None]:
    """How a task ends: said once, also if its function runs again after that."""
    return (lambda state: None if state.status in FINISHED else end) if is_again else end


def _is_undone(state: State) -> bool:
    return bool(state.ending) or state.compensated


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
