"""The events that a replay's code made, put in the order of the recorded log.

Branches of a task may run in another order each time, and a replay is given its answers beforehand.
So each event that the code made takes the place of the recorded one with the same content and place
in the code. An event that the log lacks comes before the code's next call.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.events import (
    NEVER,
    Adopted,
    AnyEvent,
    AttemptFailed,
    CancelRequested,
    Checkpointed,
    Claimed,
    Compensating,
    Completed,
    Doubted,
    DriverDied,
    Failed,
    Hindered,
    ListGrew,
    Moved,
    Observed,
    Parked,
    Queued,
    SetAside,
    Settled,
    Started,
    Stepped,
    TaskCompleted,
    TaskContinued,
    TaskErrored,
    TaskStopped,
)
from holdfast.core.fold import advance, fold
from holdfast.core.fold.task import carried
from holdfast.core.state import State, scope_of
from holdfast.history.known import Known
from holdfast.history.replay.recorded import Passed, Recorded, Script, around, is_inside, place_in
from holdfast.history.snapshots import Snapshot, Tag, shown_call, tags
from holdfast.log.places import PastPlace
from holdfast.log.values import stow
from holdfast.stores.port import Store

# Whether the code says something between the same two of its calls as it did.
#
# Only what one strand of the code does has an order: branches run beside each other, and may come
# in another one each time.


class Order:
    """The calls of each strand, in the order in which the code reached them."""

    def __init__(self, script: Script, passed: Sequence[Passed]) -> None:
        self._claims = [event.seq for event in script.during() if isinstance(event, Claimed)]
        self._strands: dict[str, _Strand] = {}
        known: set[str] = set()
        for number, each in enumerate(passed, 1):
            if each.began and each.path not in known:  # what was stopped is driven once more
                known.add(each.path)
                strand = self._strands.setdefault(scope_of(each.path), _Strand())
                strand.numbers.append(number)
                strand.began.append(each.began)

    def is_moved(self, place: str, calls: int, seq: int) -> bool:
        """Whether the code makes the event recorded at `seq` elsewhere now: after `calls` calls."""
        before, after = self._around(place, calls)
        if before > seq:
            return True
        # An event that was added to the code while nobody drove the task comes late in the log.
        return 0 < after < seq and not any(after < claim < seq for claim in self._claims)

    def following(self, place: str, calls: int) -> int:
        """The recorded event that follows a place: that of the next call; 0 if none."""
        return self._around(place, calls)[1]

    def _around(self, place: str, calls: int) -> tuple[int, int]:
        """By which events the calls of its strand before and after a place began; 0 for none."""
        strand = self._strands.get(scope_of(place))
        if strand is None:
            return 0, 0
        done = bisect_right(strand.numbers, calls)
        began = (0, *strand.began[max(done - 1, 0) : done + 1], 0)
        return (began[1], began[2]) if done else (0, began[1])


class _Strand(Struct):
    numbers: list[int] = []
    """The number of each call, among all that the code reached."""
    began: list[int] = []
    """The recorded event by which it began."""


def is_cut_off(place: str, branches: Collection[str]) -> bool:
    """Whether a place is in a cancelled branch.

    >>> is_cut_off("fetch~2.1", {"fetch~2"}), is_cut_off("fetch~1.1", {"fetch~2"})
    (True, False)
    """
    return any(scope in branches for scope in (*around(place), ""))


_APART = (
    *(Claimed, Parked, DriverDied, SetAside, Hindered, Queued),
    *(TaskContinued, CancelRequested, Moved),
)
_ONCE = (TaskCompleted, TaskErrored, TaskStopped, Compensating)


class Retraced(Struct, frozen=True):
    """A replayed life, event by event beside the recorded one."""

    before: State
    """The state where it began."""
    pairs: Sequence[tuple[AnyEvent | None, Sequence[AnyEvent]]]
    """Each recorded event, with the replay's events in its place."""


def retraced(
    script: Script, answers: Recorded, made: Sequence[AnyEvent], newest: State
) -> Retraced:
    """Put the events that a replay `made` beside the recorded ones. `newest` is its last state."""
    order = Order(script, answers.passed)
    places = _placed(script, answers, made, order)
    unsaid = set(_unsaid(script, answers, newest))
    for event, following in _moved(script, answers, order):
        unsaid.add(event.seq)
        places.more.setdefault(max(following - 1, script.life.start), []).append(event)
    lists = [newest.lists[event.digest] for event in made if isinstance(event, ListGrew)]
    before = fold(event for event in script.events if event.seq <= script.life.start)
    pairs: list[tuple[AnyEvent | None, Sequence[AnyEvent]]] = [
        (None, [*lists, *places.more.get(script.life.start, ())])
    ]
    for event in script.during():
        part = script.parts[event.seq]
        here: list[AnyEvent] = []
        is_taken = event.seq in answers.released or part == "apart"
        if is_taken or is_cut_off(place_in(event), answers.cut_off):
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
    """Events given beforehand that the code did not make or read: a file that it writes, for
    one."""
    for event in script.during():
        place = _given_at(script, event)
        if place and place not in answers.said and not is_inside(place, newest.calls):
            yield event.seq


def _moved(script: Script, answers: Recorded, order: Order) -> Iterator[tuple[AnyEvent, int]]:
    """Events given beforehand that the code makes elsewhere, each with the event that follows
    it."""
    for event in script.during():
        calls = answers.said.get(place := _given_at(script, event))
        if calls is not None and order.is_moved(place, calls, event.seq):
            yield event, order.following(place, calls) or script.life.last + 1


def _given_at(script: Script, event: AnyEvent) -> str:
    """The place of an event that was given beforehand but is the code's own; '' for others."""
    is_ours = script.parts[event.seq] == "given" and not getattr(event, "by", "")
    if is_ours and isinstance(event, Observed):
        return event.path
    return str(getattr(event, "mark", "")) if is_ours else ""


class _Places:
    """Where the events that a replay made belong, among the recorded ones."""

    def __init__(self, script: Script, answers: Recorded, order: Order) -> None:
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
        self._newest: dict[str, int] = {}
        self._waiting: list[AnyEvent] = []
        self._order = order

    def put(self, event: AnyEvent, calls: int) -> None:
        """Find the place of an event, or let it wait for the next one that has a place. The code
        made it after that number of `calls`."""
        if isinstance(event, (*_APART, ListGrew)) or place_in(event) in self._given:
            return
        slot = self._slot(event)
        place = place_in(event)
        if slot is None or (place and self._order.is_moved(place, calls, slot)):
            self._waiting.append(event)
            return
        self.before(slot, scope_of(place_in(event)))
        self.said[slot] = event

    def before(self, seq: int, scope: str) -> None:
        """Place the waiting events of a strand before its recorded event `seq`."""
        self._newest[scope] = max(self._newest.get(scope, self._life.start), seq - 1)
        self._settle([e for e in self._waiting if _are_of_one(scope_of(place_in(e)), scope)])

    def end(self) -> None:
        """Place the events that still wait before the end, if the log has an end."""
        if self._life.how in ("returned", "raised"):
            self._newest[""] = self._life.last
            self._settle(self._waiting)

    def _settle(self, events: Sequence[AnyEvent]) -> None:
        for event in events:
            scope = scope_of(place_in(event))
            known = (at for of, at in self._newest.items() if _are_of_one(of, scope))
            self.more.setdefault(min(max(known), self._life.last), []).append(event)
        self._waiting = [event for event in self._waiting if event not in events]

    def _slot(self, event: AnyEvent) -> int | None:
        if isinstance(event, Adopted):
            return self._ends.get(event.path)
        slots = self._slots.get(_known_by(event))
        return slots.pop(0) if slots else None


def _placed(script: Script, answers: Recorded, made: Sequence[AnyEvent], order: Order) -> _Places:
    """Each event that the code made: in the place of a recorded one, or after one."""
    places = _Places(script, answers, order)
    passed, calls = answers.passed, 0
    for event in made:
        while calls < len(passed) and passed[calls].said < event.seq:
            _pass(places, passed[calls])
            calls += 1
        places.put(event, calls)
    for each in passed[calls:]:
        _pass(places, each)
    places.end()
    return places


def _pass(places: _Places, passed: Passed) -> None:
    if passed.began:
        places.before(passed.began, scope_of(passed.path))


def _are_of_one(scope: str, other: str) -> bool:
    """Whether events of two scopes have an order: one scope is around the other."""
    return all(here == there for here, there in zip(_split(scope), _split(other), strict=False))


def _split(scope: str) -> list[str]:
    return scope.split(".") if scope else []


def _known_by(event: AnyEvent) -> tuple[Any, ...]:
    """The key that identifies an event in the log and in a replay."""
    if isinstance(event, Checkpointed):
        return (Checkpointed, event.number)
    if isinstance(event, _ONCE):
        return (type(event),)
    return (type(event), place_in(event))


# Holding a replay against what it replays: what both knew before and after each call.


MOST_DIFFERING = 100
"""The most differing snapshots that are reported."""

_OF_A_CALL = (Started, Stepped, AttemptFailed, Completed, Failed, Settled, Doubted, Adopted)


class Compared(Struct, frozen=True):
    """How many snapshots were compared, and which of them differ."""

    count: int
    differing: tuple[Tag, ...]


def compared(
    store: Store, aside: Store, found: Retraced, wanted: Sequence[Tag], *, always: bool = False
) -> Compared:
    """Compare the snapshots of a life and of its replay, byte for byte.

    They are the fold of their events. While the events are the same, so are the snapshots, and need
    not be made; `always` makes them anyway. After `MOST_DIFFERING` it compares no more.
    """
    both = _Both(found.before, store, aside)
    due = iter(wanted)
    tag = next(due, None)
    differing: list[Tag] = []
    count = 0
    for event, others in found.pairs:
        both.advance(event, others)
        while tag is not None and event is not None and tag.seq <= event.seq:
            count += 1
            is_open = len(differing) < MOST_DIFFERING and (always or not both.is_same)
            if is_open and both.differ():
                differing.append(tag)
            tag = next(due, None)
    return Compared(count, tuple(differing))


class _Both:
    """The states of the log and of the replay, side by side."""

    def __init__(self, before: State, store: Store, aside: Store) -> None:
        self._recorded, self._replayed = fold((), before), fold((), before)
        self._stores = (store, aside)
        self._is_other = False
        self._other_calls: set[str] = set()

    @property
    def is_same(self) -> bool:
        """Whether they are known to be the same."""
        return not self._is_other and not self._other_calls

    def advance(self, event: AnyEvent | None, others: Sequence[AnyEvent]) -> None:
        """Take a recorded event, and the replay's events in its place."""
        if event is not None:
            advance(self._recorded, event)
        for other in others:
            _advance(self._replayed, other, self._stores[1])
        if len(others) == 1 and others[0] is event:
            return
        together = [event, *others] if event is not None else list(others)
        for each in together:
            if isinstance(each, _OF_A_CALL):
                self._look_at(each.path)
        rest = [
            [each for each in side if not isinstance(each, (*_OF_A_CALL, ListGrew))]
            for side in ([event] if event is not None else [], others)
        ]
        self._is_other = self._is_other or not self._are_same(*rest)

    def _look_at(self, path: str) -> None:
        """Compare one call by what is known of it, not by the events that led there."""
        views = self._views()
        calls = [view.state.calls.get(path) for view in views]
        shown = [
            None if call is None else shown_call(view, call)
            for view, call in zip(views, calls, strict=True)
        ]
        if shown[0] == shown[1]:
            self._other_calls.discard(path)
        else:
            self._other_calls.add(path)

    def _are_same(self, recorded: Sequence[AnyEvent], replayed: Sequence[AnyEvent]) -> bool:
        if len(recorded) != len(replayed):
            return False
        if any(isinstance(each, Checkpointed) for each in recorded):
            first, second = (view.checkpoint for view in self._views())
            return bool(first == second)
        return [_bare(each) for each in recorded] == [_bare(each) for each in replayed]

    def differ(self) -> bool:
        """Whether their snapshots differ, byte for byte."""
        states = (self._recorded, self._replayed)
        first, second = (
            Snapshot(store, state, PastPlace(state.seq)).to_json()
            for store, state in zip(self._stores, states, strict=True)
        )
        return first != second

    def _views(self) -> tuple[Known, Known]:
        store, aside = self._stores
        return Known(store, self._recorded), Known(aside, self._replayed)


def wanted_tags(newest: State, script: Script, stubbed: set[str]) -> list[Tag]:
    """The snapshots of a life that a replay has to reach: around each call, and at its end.

    Calls made inside a stubbed call are not made again.
    """
    life = script.life
    found = [tag for tag in tags(newest) if life.start < tag.seq <= life.last]
    found = [tag for tag in found if stubbed.isdisjoint(around(tag.path))]
    if life.how in ("returned", "raised") and life.end is not None:
        end = Tag(life.last, "", newest.task, "after", life.end.at, newest.status)
        found = [*(tag for tag in found if tag.seq < life.last), end]
    return found


def _advance(state: State, event: AnyEvent, store: Store) -> None:
    if isinstance(event, Checkpointed) and event.carried is not None:
        # The replay made it from all it knew there, which is more than had happened by then.
        event = replace(event, carried=carried(state, lambda value: stow(store, value)))
    advance(state, event)


def _bare(event: AnyEvent) -> AnyEvent:
    bare = replace(event, seq=0, at=NEVER)
    if isinstance(bare, TaskErrored):  # where it was raised is not what it says
        bare = replace(bare, failure=replace(bare.failure, traceback=""))
    return bare
