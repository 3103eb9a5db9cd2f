"""Holding a replay against what it replays: what its code said, in the order of the recorded log.

Branches of a task may run in another order each time, and a replay is given its answers beforehand.
So the events that the code made are put where the recorded ones stand, each by what it says and
where in the code; one that the log does not have comes after the call that the code had made last.
The state at any event is then the fold of both up to there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.checkpoints import carried
from holdfast.events import (
    NEVER,
    AnyEvent,
    CancelRequested,
    Checkpointed,
    Claimed,
    Compensating,
    ListGrew,
    Parked,
    TaskCompleted,
    TaskContinued,
    TaskErrored,
    TaskStopped,
)
from holdfast.fold import advance, fold
from holdfast.history import Place
from holdfast.replays.recorded import Recorded
from holdfast.replays.script import Script, place_in
from holdfast.snapshots import Snapshot, Tag, tags
from holdfast.state import State
from holdfast.store import Store
from holdfast.values import stow
from holdfast.views import TaskView

_APART = (Claimed, Parked, TaskContinued, CancelRequested)
_ONCE = (TaskCompleted, TaskErrored, TaskStopped, Compensating)


class Retraced(Struct, frozen=True):
    """A replayed life, event by event beside the recorded one."""

    before: State
    """What was known where it began."""
    pairs: Sequence[tuple[AnyEvent | None, Sequence[AnyEvent]]]
    """Each recorded event, and what the replay has in its place."""


def retraced(
    script: Script, answers: Recorded, made: Sequence[AnyEvent], newest: State
) -> Retraced:
    """Put what a replay `made` beside what was recorded. `newest` is what it came to."""
    said, more = _placed(script, answers, made)
    lists = [newest.lists[event.digest] for event in made if isinstance(event, ListGrew)]
    before = fold(event for event in script.events if event.seq <= script.life.start)
    pairs: list[tuple[AnyEvent | None, Sequence[AnyEvent]]] = [
        (None, [*lists, *more.get(script.life.start, ())])
    ]
    for event in script.during():
        part = script.parts[event.seq]
        here: list[AnyEvent] = []
        if part in ("given", "apart") or event.seq in answers.released:
            here = [event]
        elif event.seq in said:
            here = [replace(said[event.seq], seq=event.seq, at=event.at)]
        after = [replace(each, seq=event.seq, at=event.at) for each in more.get(event.seq, ())]
        pairs.append((event, [*here, *after]))
    return Retraced(before, pairs)


def _placed(
    script: Script, answers: Recorded, made: Sequence[AnyEvent]
) -> tuple[dict[int, AnyEvent], dict[int, list[AnyEvent]]]:
    """Each event that the code made: in the place of a recorded one, or after one."""
    slots = {
        _known_by(event): event.seq
        for event in script.during()
        if script.parts[event.seq] == "said"
    }
    given = {place_in(e): e for e in script.during() if e.seq in answers.released}
    said: dict[int, AnyEvent] = {}
    more: dict[int, list[AnyEvent]] = {}
    passed = iter(answers.passed)
    following = next(passed, None)
    last = script.life.start
    for event in made:
        while following is not None and following.said < event.seq:
            last = min(max(last, following.ended), script.life.last)
            following = next(passed, None)
        if isinstance(event, (*_APART, ListGrew)) or place_in(event) in given:
            continue
        slot = slots.pop(_known_by(event), None)
        if slot is None:
            more.setdefault(last, []).append(event)
        else:
            said[slot] = event
            last = max(last, slot)
    return said, more


def _known_by(event: AnyEvent) -> tuple[Any, ...]:
    """What an event is known by, in the log and in a replay."""
    if isinstance(event, Checkpointed):
        return (Checkpointed, event.number)
    if isinstance(event, _ONCE):
        return (type(event),)
    return (type(event), place_in(event))


class Compared(Struct, frozen=True):
    """How many snapshots were compared, and which of them differ."""

    count: int
    differing: tuple[Tag, ...]


def compared(
    store: Store, aside: Store, found: Retraced, wanted: Sequence[Tag], *, always: bool = False
) -> Compared:
    """Compare the snapshots of a life and of its replay, byte for byte.

    They are the fold of their events. So while those are the same, so are the snapshots, and need
    not be made; `always` makes them all the same.
    """
    recorded, replayed = fold((), found.before), fold((), found.before)
    due = iter(wanted)
    tag = next(due, None)
    differing: list[Tag] = []
    count, is_same = 0, not always
    for event, others in found.pairs:
        if event is not None:
            advance(recorded, event)
        for other in others:
            _advance(replayed, other, aside)
        is_same = is_same and _are_same(event, others, recorded, replayed, (store, aside))
        while tag is not None and event is not None and tag.seq <= event.seq:
            count += 1
            if not is_same and _content(store, recorded) != _content(aside, replayed):
                differing.append(tag)
            tag = next(due, None)
    return Compared(count, tuple(differing))


def wanted_tags(newest: State, script: Script) -> list[Tag]:
    """The snapshots of a life that a replay has to come to: around each call, and at its end."""
    life = script.life
    found = [tag for tag in tags(newest) if life.start < tag.seq <= life.last]
    if life.how in ("returned", "raised") and life.end is not None:
        end = Tag(life.last, "", newest.task, "after", life.end.at, newest.status)
        found = [*(tag for tag in found if tag.seq < life.last), end]
    return found


def _advance(state: State, event: AnyEvent, store: Store) -> None:
    if isinstance(event, Checkpointed) and event.carried is not None:
        # Made of what the replay knew when it came by, which is more than what had happened.
        event = replace(event, carried=carried(state, lambda value: stow(store, value)))
    advance(state, event)


def _are_same(
    event: AnyEvent | None,
    others: Sequence[AnyEvent],
    recorded: State,
    replayed: State,
    stores: tuple[Store, Store],
) -> bool:
    visible = (
        [other for other in others if not isinstance(other, ListGrew)] if event is None else others
    )
    if event is None or not visible:
        return not visible and event is None
    if len(others) != 1:
        return False
    (other,) = others
    if other is event:
        return True
    if isinstance(event, Checkpointed):
        views = (TaskView(s, state) for s, state in zip(stores, (recorded, replayed), strict=True))
        first, second = (view.checkpoint for view in views)
        return bool(first == second)
    return _bare(event) == _bare(other)


def _bare(event: AnyEvent) -> AnyEvent:
    bare = replace(event, seq=0, at=NEVER)
    if isinstance(bare, TaskErrored):  # where it was raised is not what it says
        bare = replace(bare, failure=replace(bare.failure, traceback=""))
    return bare


def _content(store: Store, state: State) -> bytes:
    return Snapshot(store, state, Place(state.seq)).to_json()
