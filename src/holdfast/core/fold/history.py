"""The effect of forks and rewinds on the state, and calls that were not made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from holdfast.core import events as e
from holdfast.core.events import AnyEvent
from holdfast.core.fold.waits import place
from holdfast.core.state import FINISHED, Age, Attempt, Call, CallStatus, Reread, State


def branched(state: State) -> None:
    """Begin a life of its own with the past of another task.

    The original's effects are its own: a fork that fails undoes none of them.
    """
    _leave(state)
    state.status = "pending"
    state.epoch, state.claims, state.rewinds = 0, 0, 0
    state.owner = state.engine = state.because = ""
    state.posts = ()
    state.until = None
    state.undoable = state.compensated = False
    state.sessions_to_rewind = {}  # they were the original's, and so is rewinding them


def _leave(state: State) -> None:
    """Close the age that ends here, and whatever spoke of how the task would end."""
    state.ages = (*state.ages, Age(state.name, dict(state.last)))
    state.result, state.failure, state.causes = UNSET, None, ()
    state.parked, state.wake_at, state.in_line = False, None, False
    state.cancelling, state.ending = False, ""
    state.is_held, state.deaths, state.death, state.hindrance = False, {}, None, None


def adopted(state: State, event: e.Adopted) -> None:
    known = state.calls.get(event.path)
    of = (event.of, event.of_path) if event.of else None
    status: CallStatus = "failed" if event.failure is not None else "completed"
    if known is not None:  # a recorded result was edited
        state.calls[event.path] = replace(
            known,
            status=status,
            result=event.result,
            failure=event.failure,
            adopted=event.how,
            settled_by=event.by,
            ended_seq=event.seq,
        )
        return
    state.calls[event.path] = Call(
        event.path,
        event.name,
        event.kind,
        status,
        event.at,
        event.args,
        event.args_hash,
        event.key,
        (Attempt(1, event.at, event.at),) if event.kind in ("step", "tool") else (),
        result=event.result,
        failure=event.failure,
        ended_at=event.at,
        seq=event.seq,
        failed_seq=event.seq if event.failure is not None else 0,
        ended_seq=event.seq,
        child=event.child,
        why=event.why,
        settled_by=event.by,
        undo=event.undo,
        adopted=event.how,
        adopted_of=of,
    )
    state.undoable = state.undoable or event.undo
    if event.kind not in ("approval", "reading"):
        place(state, event.path)


def rewound(state: State, event: e.Rewound, fold: Callable[[Sequence[AnyEvent]], State]) -> None:
    """Become what the events up to `to` come to, and leave what came since.

    `fold` is that of events among which everything counts: see `effective`.
    """
    trail, left_at = state.trail, state.seq
    driver, taken_at = state.driver, state.taken_at
    known: Sequence[AnyEvent] = trail
    if isinstance(trail, Reread) and not trail.is_whole:
        known = [*trail.upto(state.seq)]
    if all(each.seq != event.to for each in known):
        raise LookupError(f"event {event.to} is not among those that were read")
    before = fold(effective([*known, event], event.seq)[:-1])
    for field in State.__struct_fields__:
        setattr(state, field, getattr(before, field))
    state.trail, state.driver, state.taken_at = trail, driver, taken_at
    take_past(state, event, left_at)


def take_past(state: State, event: e.Rewound, left_at: int) -> None:
    """The changes of a rewind to the state that the task is rewound to."""
    is_over = state.status in FINISHED
    result, failure = state.result, state.failure
    _leave(state)
    state.left_at = left_at
    state.driven_since = event.seq
    state.rewinds = event.number
    state.name = f"{state.id}~{event.number}"
    state.epoch, state.claims, state.posts = event.epoch, event.claims, event.posts
    state.effects = event.effects
    state.sessions_to_rewind = event.sessions
    if is_over:
        state.result, state.failure = result, failure
    else:
        state.status = "paused"
        state.because = event.because or f"it was rewound to event {event.to}"
    state.until = None


def effective(events: Sequence[AnyEvent], upto: int) -> list[AnyEvent]:
    """The events that count at the event `upto`, without those that were rewound.

    A fork stays a fork, also where it is rewound to an event before the fork.
    """
    kept: list[AnyEvent] = []
    for event in reversed(events):
        if event.seq <= upto:
            kept.append(event)
            upto = event.to if isinstance(event, e.Rewound) else event.seq - 1
        elif isinstance(event, e.TaskCreated) and kept:
            kept.append(event)
    kept.reverse()
    return kept
