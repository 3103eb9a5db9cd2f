"""Where in a task's past a step stands, and what the task knew there.

A place is an event: `before` a call is the event that its beginning followed, `after` it the one
that ended it. Forks, rewinds, snapshots and replays all start from such a place.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from holdfast import chain
from holdfast.decoding import Illegible, decode
from holdfast.errors import BadInput, LogDamaged, TaskNotFound
from holdfast.events import Fork, Rewound
from holdfast.fold.waits import perhaps_open
from holdfast.kinds import kind_of
from holdfast.reading import (
    advance_checked,
    base_of,
    fork_of,
    own_lines,
    read_events,
    read_state,
    stream_of,
)
from holdfast.state import UNDO, Call, State, scope_of
from holdfast.waypoints.upto import find_call, state_upto

if TYPE_CHECKING:
    from holdfast.store import Store

When = Literal["before", "after"]


class Place(Struct, frozen=True):
    """A place in a task's past: the event it is after, and the call that it was found by."""

    seq: int
    path: str = ""
    when: Literal["", "before", "after"] = ""

    def __str__(self) -> str:
        return f"{self.when} step {self.path}" if self.path else f"after event {self.seq}"


def state_at(store: Store, task_id: str, seq: int) -> State:
    """What a task knew after an event. Had by the nearest waypoint, so it does not know the events
    that it was made of, and makes its calls when somebody looks at them."""
    return _state_at(store, stream_of(task_id), seq)[0]


def past_at(store: Store, task_id: str, seq: int) -> tuple[State, str]:
    """The same, and the sum of that event."""
    state, total = _state_at(store, stream_of(task_id), seq)
    return state, total.decode()


def _state_at(store: Store, stream: str, seq: int) -> tuple[State, bytes]:
    fork = fork_of(store, stream)
    if fork is None:
        return state_upto(store, stream, seq)
    past, total = _state_at(store, kind_of(stream).stream(fork.of), min(seq, fork.seq))
    if seq <= fork.seq:
        return past, total
    for event, _, _ in own_lines(store, stream, fork.seq, seq):
        if isinstance(event, Rewound):
            past = read_state(store, stream, seq)
            break
        advance_checked(past, event, stream)
    return past, _sum_at(store, stream, seq - fork.seq)


def _sum_at(store: Store, stream: str, line: int) -> bytes:
    return chain.sum_of(next(store.read(stream, line - 1), b""))


def left_at(fork: Fork) -> Place:
    """Where a fork leaves its original."""
    return Place(fork.seq, fork.path, fork.when)  # type: ignore[arg-type]


def put_back_to(event: Rewound) -> Place:
    """The place that a task was put back to."""
    return Place(event.to, event.path, event.when)  # type: ignore[arg-type]


def newest_rewind(state: State) -> Rewound | None:
    """The last time that a task was put back, in its own life."""
    base = state.fork.seq if state.fork is not None else 0
    found = (e for e in reversed(state.trail) if isinstance(e, Rewound) and e.seq > base)
    return next(found, None)


def place_in(
    store: Store, task_id: str, step: str | int | None, when: When | None, seq: int | None
) -> Place:
    """The place that somebody names, had without the whole state where the log is long."""
    stream = stream_of(task_id)
    if step is not None and seq is None and fork_of(store, stream) is None:
        call = find_call(store, stream, str(step))
        if call is not None:
            return place_of(State(id=task_id, calls={call.path: call}), step, when, None)
    return place_of(known_state(store, task_id), step, when, seq)


def known_state(store: Store, task_id: str) -> State:
    """Everything a task knows, had by the nearest waypoint as `state_at` does.

    Of a log that is damaged, what it came to before the damage: that can still be looked at.
    """
    stream = stream_of(task_id)
    try:
        last = next(store.tail(stream), None)
        if last is None:
            raise TaskNotFound(f"no task {task_id!r} in {store.url}")
        own = decode(last, _Placed).seq
        return state_at(store, task_id, own + base_of(store, stream))
    except Illegible:
        return _before_damage(store, task_id)
    except LogDamaged as error:
        if error.stream != stream or error.seq < 2:
            raise
        return _before_damage(store, task_id)


class _Placed(Struct):
    seq: int


def _before_damage(store: Store, task_id: str) -> State:
    stream, state = stream_of(task_id), State()
    with suppress(LogDamaged):
        for event in read_events(store, stream):
            advance_checked(state, event, stream)
    if not state.seq:
        raise LogDamaged(stream, 1, "nothing of it can be read")
    return state


def newest_state(store: Store, task_id: str) -> State:
    """Everything a task knows, with the events that it was made of."""
    state = read_state(store, stream_of(task_id))
    if state.seq == 0:
        raise TaskNotFound(f"no task {task_id!r} in {store.url}")
    return state


def place_of(state: State, step: str | int | None, when: When | None, seq: int | None) -> Place:
    """The place that somebody names: a step, by its path, or an event, by its number.

    `state` is the newest one of the task.
    """
    if (step is None) == (seq is None):
        raise BadInput(f"task {state.id!r}: say either a step or an event (seq=…), not both")
    if step is None:
        return Place(_checked_seq(state, seq))
    if when not in (None, "before", "after"):
        raise BadInput(f"task {state.id!r}: {when!a:.40} must be 'before' or 'after'")
    call = _call_of(state, step)
    when = when or "before"
    if when == "before":
        return Place(_begun(state, call) - 1, call.path, when)
    ended = ended_at_seq(call)
    if not ended:
        raise BadInput(
            f"task {state.id!r}: step {call.path}, {call.name}, has not ended ({call.status}), so "
            f"there is nothing after it: take the place before it"
        )
    return Place(ended, call.path, when)


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
    """The event that a call began with. What stands beside the steps has none of its own."""
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


def must_be_still(state: State, place: Place, what: str) -> None:
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
