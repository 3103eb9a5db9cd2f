"""Rewinding: a task goes back to a place in its past, with its conversation and its files.

Nothing is deleted. One event says to where. Later events are no part of the task's past any more,
until somebody rewinds that event. Effects outside stay: they are listed, and those that have an
undo can be undone along with the rewind.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from holdfast.codec.secret import provider
from holdfast.core.events import Effects, Rewound
from holdfast.core.journal.task import is_open, undo_path
from holdfast.core.state import Call, State
from holdfast.core.words import checked_id, must_be_texts
from holdfast.engines.here import HERE
from holdfast.engines.holder import Holding
from holdfast.engines.local.tasks import Driving
from holdfast.engines.origins import (
    effect_name,
    is_undone,
    pasts_left,
    rewind_sessions,
    said_by,
    sessions_of,
    undone_in,
)
from holdfast.engines.routing import must_be_here
from holdfast.engines.run import Run
from holdfast.engines.undo import undo_all
from holdfast.errors import BadInput, TaskBusy
from holdfast.log.log import Log
from holdfast.log.places import (
    PastPlace,
    When,
    must_be_still,
    open_calls,
    place_of,
)
from holdfast.log.reading import read_events, session_stream
from holdfast.log.states import load
from holdfast.stores.port import Store


class Effect(Struct, frozen=True):
    """An effect outside that the task made after the place it was rewound to."""

    path: str
    name: str
    kind: str
    status: str
    key: str
    undo: str
    """`none`: it has no undo. `possible`: it can be undone. `undone`, `failed`: it was, or not."""
    child: str = ""


UNDO_WORDS = {
    "none": "has none",
    "possible": "left",
    "undone": "undone",
    "failed": "could not be undone",
}
"""The states of an effect's undo, in words."""


class WantedRewind(Struct, frozen=True, kw_only=True):
    """To where, and how."""

    to: str | int | None = None
    when: When | None = None
    seq: int | None = None
    undo: bool = False
    effects: Effects = "reuse"
    by: str = ""
    because: str = ""


def rewind(driving: Driving, id: str, wanted: WantedRewind) -> tuple[Effect, ...]:
    """Rewind a task; returns its effects outside since then."""
    holding = driving.holding
    if wanted.effects not in ("live", "reuse", "stub"):
        raise BadInput(f"rewind(effects={wanted.effects!a:.40}) must be 'live', 'reuse' or 'stub'")
    must_be_texts(f"rewind({id!r})", by=wanted.by, because=wanted.because)
    must_be_here(load(holding.store, checked_id(id)), "rewound")
    try:
        with holding.hold(id) as log:
            log.state = load(holding.store, id)
            place = place_of(log.state, wanted.to, wanted.when, wanted.seq)
            past = load(holding.store, id, place.seq)
            must_be_still(past, place, "rewound")
            _must_be_settled(log.state, past, wanted)
            _must_stand(holding.store, log.state, past, place)
            if wanted.undo:
                _undo(driving, log, past)
            effects = tuple(effects_since(log.state, past))
            state = log.state
            log.append(
                Rewound(
                    to=place.seq,
                    number=state.rewinds + 1,
                    epoch=state.epoch,
                    claims=state.claims,
                    posts=state.posts,
                    path=place.path,
                    when=place.when,
                    by=wanted.by or holding.owner,
                    because=wanted.because,
                    effects=wanted.effects,
                    sessions=_cuts(holding, state, past),
                )
            )
            log.sync()
            rewind_sessions(holding, log.state)
    except TaskBusy as error:
        raise TaskBusy(
            f"{error} A task that runs can't be rewound: pause it first "
            f"(hf.pause({id!r}), holdfast pause)"
        ) from None
    return effects


def _must_be_settled(state: State, past: State, wanted: WantedRewind) -> None:
    """Refuse to drop a call that is in doubt: it would be made again. With `undo`, calls that have
    an undo are settled first."""
    if wanted.effects != "reuse":
        return
    for call in open_calls(state):
        is_left = call.kind == "tool" and is_open(call) and call.path not in past.calls
        if is_left and not (wanted.undo and call.undo):
            raise BadInput(
                f"task {state.id!r}: nobody knows whether step {call.path}, {call.name}, happened, "
                f"and it would be done again: settle it first (holdfast resolve {state.id} "
                f"{call.path}), or say effects='live' to have it called anew"
            )


def _must_stand(store: Store, state: State, past: State, place: PastPlace) -> None:
    """Refuse a past with an effect that has been undone since: the task would go on as if the
    effect still existed."""
    undone = undone_in([*pasts_left(store, state), state])
    for call in past.calls.values() if undone else ():
        if effect_name(call) in undone and not is_undone(past, call):
            raise BadInput(
                f"task {state.id!r}: {place} it had done step {call.path}, {call.name}, which was "
                f"undone since, and would go on as if that stood: take a place before that step"
            )


def effects_since(state: State, past: State) -> Iterator[Effect]:
    """The effects outside that a task made after that past, the newest first."""
    for call in reversed(list(state.calls.values())):
        if call.path in past.calls or call.kind not in ("tool", "child"):
            continue
        if call.path.startswith("undo.") or not _is_its_own(state, call):
            continue
        yield Effect(
            call.path,
            call.name,
            call.kind,
            call.status,
            call.key,
            _undo_of(state, call),
            call.child,
        )


def _is_its_own(state: State, call: Call) -> bool:
    """Whether the task made the call, perhaps before it was rewound, and not its original."""
    if call.adopted:
        return call.adopted_of is not None and call.adopted_of[0] == state.id
    return state.fork is None or call.seq > state.fork.seq


def _undo_of(state: State, call: Call) -> str:
    undone = state.calls.get(undo_path(call.path))
    if undone is not None:
        return "undone" if undone.status == "completed" else "failed"
    return "possible" if call.undo else "none"


def _undo(driving: Driving, log: Log, past: State) -> None:
    """Undo the effects since then that have an undo, the last first."""
    from holdfast.engines.local.tasks import Children

    run = Run(log, log.state.id, HERE, family=Children(driving))
    token = provider.set(driving.holding.secrets)
    try:
        undo_all(run, lambda call: call.path not in past.calls)
    finally:
        provider.reset(token)
        log.attended = None
    log.sync()


def _cuts(holding: Holding, state: State, past: State) -> dict[str, int]:
    """The sessions of a task that have gone on since, and their seqs then."""
    cuts: dict[str, int] = {}
    for session in sessions_of(holding.store, state):
        # A session that had not begun yet is rewound to its beginning.
        seq = max((event.seq for event, _ in said_by(holding.store, session, past)), default=1)
        *_, newest = read_events(holding.store, session_stream(session))
        if newest.seq > seq:
            cuts[session] = seq
    return cuts
