"""Holding a replay against what it replays: what its code said, in the order of the recorded log.

Branches of a task may run in another order each time, and a replay is given its answers beforehand.
So the events that the code made are put where the recorded ones stand, each by what it says and
where in the code; one that the log does not have comes after the call that the code had made last.
The state at any event is then the fold of both up to there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.checkpoints import carried
from holdfast.events import (
    NEVER,
    Adopted,
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
from holdfast.replays.script import Script, is_inside, place_in
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
    places = _placed(script, answers, made)
    unsaid = set(_unsaid(script, answers, newest))
    lists = [newest.lists[event.digest] for event in made if isinstance(event, ListGrew)]
    before = fold(event for event in script.events if event.seq <= script.life.start)
    pairs: list[tuple[AnyEvent | None, Sequence[AnyEvent]]] = [
        (None, [*lists, *places.more.get(script.life.start, ())])
    ]
    for event in script.during():
        part = script.parts[event.seq]
        here: list[AnyEvent] = []
        if event.seq in answers.released or part == "apart":
            here = [event]
        elif part == "given":
            here = [event] if event.seq not in unsaid else []
        elif event.seq in places.said:
            here = [replace(places.said[event.seq], seq=event.seq, at=event.at)]
        after = [
            replace(each, seq=event.seq, at=event.at) for each in places.more.get(event.seq, ())
        ]
        pairs.append((event, [*here, *after]))
    return Retraced(before, pairs)


def _unsaid(script: Script, answers: Recorded, newest: State) -> Iterator[int]:
    """What was given beforehand, but is for the code to say: a file that it writes, for one."""
    for event in script.during():
        mark = getattr(event, "mark", "")
        is_ours = mark and not getattr(event, "by", "") and script.parts[event.seq] == "given"
        if is_ours and mark not in answers.said and not is_inside(mark, newest.calls):
            yield event.seq


class _Places:
    """Where the events that a replay made belong, among the recorded ones."""

    def __init__(self, script: Script, answers: Recorded) -> None:
        self.said: dict[int, AnyEvent] = {}
        """In the place of a recorded one."""
        self.more: dict[int, list[AnyEvent]] = {}
        """After a recorded one: the log has nothing like them."""
        self._slots: dict[tuple[Any, ...], list[int]] = {}
        self._ends: dict[str, int] = {}
        for event in script.during():
            part = script.parts[event.seq]
            if part == "said" or (part == "held" and event.seq not in answers.released):
                self._slots.setdefault(_known_by(event), []).append(event.seq)
                self._ends[place_in(event)] = event.seq
        self._given = {place_in(e) for e in script.during() if e.seq in answers.released}
        self._life = script.life
        self._newest = script.life.start
        self._waiting: list[AnyEvent] = []

    def put(self, event: AnyEvent) -> None:
        """Find the place of an event, or let it wait for the next one that has a place."""
        if isinstance(event, (*_APART, ListGrew)) or place_in(event) in self._given:
            return
        slot = self._slot(event)
        if slot is None:
            self._waiting.append(event)
            return
        self.before(slot)
        self.said[slot] = event

    def before(self, seq: int) -> None:
        """What waits was made before the recorded event `seq`, and after all that came so far."""
        self._newest = min(max(self._newest, seq - 1), self._life.last)
        if self._waiting:
            self.more.setdefault(self._newest, []).extend(self._waiting)
            self._waiting = []

    def _slot(self, event: AnyEvent) -> int | None:
        if isinstance(event, Adopted):
            return self._ends.get(event.path)
        slots = self._slots.get(_known_by(event))
        return slots.pop(0) if slots else None


def _placed(script: Script, answers: Recorded, made: Sequence[AnyEvent]) -> _Places:
    """Each event that the code made: in the place of a recorded one, or after one."""
    places = _Places(script, answers)
    passed = iter(answers.passed)
    following = next(passed, None)
    for event in made:
        while following is not None and following.said < event.seq:
            places.before(following.began)
            following = next(passed, None)
        places.put(event)
    while following is not None:
        places.before(following.began)
        following = next(passed, None)
    places.before(script.life.last + 1)
    return places


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


def wanted_tags(newest: State, script: Script, stubbed: Sequence[str]) -> list[Tag]:
    """The snapshots of a life that a replay has to come to: around each call, and at its end.

    What was made inside of a call that a stub answers is not made again.
    """
    life = script.life
    found = [tag for tag in tags(newest) if life.start < tag.seq <= life.last]
    found = [tag for tag in found if not any(tag.path.startswith(f"{p}.") for p in stubbed)]
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
