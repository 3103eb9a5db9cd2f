"""Where in a task's past a step stands.

A place is an event: `before` a call is the event that its beginning followed, `after` it the one
that ended it. Forks, rewinds, snapshots and replays all start from such a place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from holdfast.core.events import Fork, Rewound
from holdfast.core.fold.waits import perhaps_open
from holdfast.core.state import UNDO, Call, State, scope_of
from holdfast.errors import BadInput
from holdfast.log.reading import fork_of, stream_of
from holdfast.log.states import find_call, load_sound

if TYPE_CHECKING:
    from holdfast.stores.port import Store

When = Literal["before", "after"]


class PastPlace(Struct, frozen=True):
    """A place in a task's past: the event it is after, and the call that it was found by."""

    seq: int
    path: str = ""
    when: Literal["", "before", "after"] = ""

    def __str__(self) -> str:
        return f"{self.when} step {self.path}" if self.path else f"after event {self.seq}"


def left_at(fork: Fork) -> PastPlace:
    """Where a fork leaves its original."""
    return PastPlace(fork.seq, fork.path, fork.when)  # type: ignore[arg-type]


def rewound_to(event: Rewound) -> PastPlace:
    """The place that a task was rewound to."""
    return PastPlace(event.to, event.path, event.when)  # type: ignore[arg-type]


def newest_rewind(state: State) -> Rewound | None:
    """The last rewind of a task, in its own life."""
    base = state.fork.seq if state.fork is not None else 0
    found = (e for e in reversed(state.trail) if isinstance(e, Rewound) and e.seq > base)
    return next(found, None)


def place_in(
    store: Store, task_id: str, step: str | int | None, when: When | None, seq: int | None
) -> PastPlace:
    """The place that somebody names, had without the whole state where the log is long."""
    stream = stream_of(task_id)
    if step is not None and seq is None and fork_of(store, stream) is None:
        call = find_call(store, stream, str(step))
        if call is not None:
            return place_of(State(id=task_id, calls={call.path: call}), step, when, None)
    return place_of(load_sound(store, task_id), step, when, seq)


def place_of(state: State, step: str | int | None, when: When | None, seq: int | None) -> PastPlace:
    """The place that somebody names: a step, by its path, or an event, by its number.

    `state` is the newest one of the task.
    """
    if step is None and seq is None:
        raise BadInput(f"task {state.id!r}: say where: a step or an event (seq=…)")
    if step is not None and seq is not None:
        raise BadInput(f"task {state.id!r}: say either a step or an event (seq=…), not both")
    if step is None:
        return PastPlace(_checked_seq(state, seq))
    if when not in (None, "before", "after"):
        raise BadInput(f"task {state.id!r}: {when!a:.40} must be 'before' or 'after'")
    call = _call_of(state, step)
    when = when or "before"
    if when == "before":
        return PastPlace(_begun(state, call) - 1, call.path, when)
    ended = ended_at_seq(call)
    if not ended:
        raise BadInput(
            f"task {state.id!r}: step {call.path}, {call.name}, has not ended ({call.status}), so "
            f"there is nothing after it: take the place before it"
        )
    return PastPlace(ended, call.path, when)


def _checked_seq(state: State, seq: object) -> int:
    if type(seq) is not int or not 1 <= seq <= state.seq:
        raise BadInput(
            f"task {state.id!r} has the events 1 to {state.seq}, so there is none {seq!a:.40}"
        )
    return seq


def _call_of(state: State, step: str | int) -> Call:
    path = str(step)
    call = state.calls.get(path)
    if call is not None:
        return call
    steps = [path for path in state.calls if _is_in_body(path)]
    known = ", ".join(steps[:8]) + (f", … {steps[-1]}" if len(steps) > 8 else "")
    raise BadInput(
        f"task {state.id!r} has made no step {path!a:.60}. "
        + (f"Its steps are {known}" if steps else "It has made none yet")
    )


def _is_in_body(path: str) -> bool:
    """Whether the task's own function made that call, also after a checkpoint."""
    scope = scope_of(path)
    return not scope or (scope.startswith("@") and "." not in scope)


def _begun(state: State, call: Call) -> int:
    """The event that a call began with. Notes and decisions beside the steps have none."""
    if call.seq:
        return call.seq
    raise BadInput(
        f"task {state.id!r}: {call.path} is a {call.kind}, and no place to stop at: take the step "
        f"before it or after it, or its event"
    )


def ended_at_seq(call: Call) -> int:
    """The event that a call ended with; 0 if it has not."""
    if call.status not in ("completed", "failed"):
        return 0
    return max(call.ended_seq, call.failed_seq) or call.seq


def open_calls(state: State) -> list[Call]:
    """The calls that were begun and have not ended."""
    return [c for c in perhaps_open(state.calls) if c.status not in ("completed", "failed")]


def must_be_still(state: State, place: PastPlace, what: str) -> None:
    """Refuse a place at which the task was in the middle of something."""
    if state.ending or any(scope_of(call.path) == UNDO for call in open_calls(state)):
        raise BadInput(
            f"task {state.id!r}: {place} it was undoing what it had done, and can't be {what} "
            f"there: take a place before that"
        )
    unfinished = open_calls(state)
    if not unfinished:
        return
    shown = ", ".join(f"{c.path} {c.name} ({c.status})" for c in unfinished[:4])
    if any(
        c.status == "in_doubt" or (c.kind == "tool" and c.status == "running") for c in unfinished
    ):
        why = "nobody knows whether it happened: settle it first (holdfast resolve), or take the "
        why += "place before it"
    else:
        why = "take the place before the first of them, or after the last"
    raise BadInput(
        f"task {state.id!r}: {place} it was in the middle of {shown}, and can't be {what} there: "
        f"{why}"
    )
