"""The waypoints that a state leaves behind while events are folded into it: see `waypoints`.

The code that folds a log tells its trail of each event. The dicts of the state note their
changes, and after every 1,024th event a waypoint is made of that, which takes as long as there are
changes, not as long as the state is large. The caller puts it into the store, when the line is
there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct
from msgspec.structs import replace

from holdfast.core import events as e
from holdfast.core.events import AnyEvent, Rewound
from holdfast.core.fold import advance
from holdfast.core.state import KeyChanges, State, Tracked
from holdfast.errors import HoldfastError
from holdfast.log import chain
from holdfast.log.parts import PARTS
from holdfast.log.waypoints import (
    DEFAULTS,
    DICTS,
    ELSEWHERE,
    EVERY,
    LARGE_BYTES,
    LISTS,
    MOST_RECORDS,
    PLAIN,
    RECORDS,
    SETS,
    ChangedDict,
    Grown,
    Placed,
    StateParts,
    encode_head,
    encode_records,
    head_kind,
    level_of,
    place_of,
    plain_kind,
    sealed,
    way_to,
)

if TYPE_CHECKING:
    from holdfast.stores.port import Store

_LARGE: dict[type, tuple[str, ...]] = {
    e.Started: ("args",),
    e.TimerSet: ("args",),
    e.QuestionAsked: ("args",),
    e.ChildStarted: ("args",),
    e.Completed: ("result",),
    e.Stepped: ("args", "result"),
    e.Settled: ("result",),
    e.ChildEnded: ("result",),
    e.QuestionAnswered: ("answer",),
    e.MessageSent: ("value",),
    e.Decided: ("choice",),
    e.Observed: ("value",),
    e.Derived: ("value",),
    e.ListGrew: ("items",),
}
"""The fields that may hold what a call or a list of the state holds, and may be large."""


_RECENT = 256
"""A writer looks for what a list shares with no more results than that."""


class Waypoint(Struct, frozen=True):
    """A waypoint as it is to be stored: its parts, by name."""

    seq: int
    parts: Mapping[str, bytes]


class _Before:
    """The state as it was at an earlier waypoint, as far as it takes to tell what changed since."""

    def __init__(self, seq: int, total: bytes, state: State) -> None:
        self.seq = seq
        self.total = total
        self.plain = {name: getattr(state, name) for name in PLAIN}
        # A list is only ever added to, or replaced: what was in it is in it still.
        self.lists = {name: (getattr(state, name), len(getattr(state, name))) for name in LISTS}
        self.sets = {name: frozenset(getattr(state, name)) for name in SETS}
        self.changes = {name: KeyChanges() for name in (*DICTS, *RECORDS, "open")}


class Trail:
    """Follows a state from the beginning of its log, or from a waypoint."""

    def __init__(self, state: State, every: int = EVERY) -> None:
        self._every = every
        self._large: dict[int, tuple[int, str, Raw]] = {}
        self._grown: dict[str, e.ListGrew] = {}
        """The lists since the last waypoint that share results with calls, as they were written."""
        self._results: dict[int, None] = {}
        """The last events that have a `result`, from which a list may be read back."""
        self._places: dict[str, dict[str, int]] = {name: {} for name in RECORDS}
        self._totals: dict[int, bytes] = {}
        self._open: Tracked[None] = Tracked()
        self._levels: list[_Before] = []
        """By level: the last waypoint of that level or a higher one, and what changed since."""
        self.made: list[Waypoint] = []
        """The waypoints to store, once the log is there."""
        self._is_whole = True
        """Whether it was told of every event."""
        self._track(state)

    def _track(self, state: State) -> None:
        for name in (*DICTS, *RECORDS):
            if not isinstance(getattr(state, name), Tracked):
                setattr(state, name, Tracked(getattr(state, name)))

    def came_by(self, number: int, head: Any, parts: StateParts) -> None:
        """A waypoint was read, on the way to the one from which to go on."""
        changes = {name: KeyChanges() for name in (*DICTS, *RECORDS, "open")}
        for name, its in changes.items():
            changed = getattr(head, name)
            if isinstance(changed, ChangedDict | Placed):
                its.anew = changed.anew
                its.dropped = dict.fromkeys(changed.drop)
                its.put = dict.fromkeys(
                    changed.put if isinstance(changed, ChangedDict) else changed.keys
                )
        self._reached(number, head.total.encode(), parts.state, changes)

    def go_on(self, state: State, parts: StateParts) -> None:
        """Follow the state that was put together of what it came by."""
        self._places = {name: dict(places) for name, places in parts.places.items()}
        self._totals = dict(parts.totals)
        self._open = Tracked(parts.open)
        self._is_whole = False
        self._track(state)

    def passed(self, state: State, event: AnyEvent, seq: int, total: bytes) -> None:
        """An event was folded into the state: the line `seq`, which has that sum."""
        for name in _LARGE.get(type(event), ()):
            value = getattr(event, name)
            if isinstance(value, Raw):
                data = bytes(value)
                if len(data) > LARGE_BYTES or data.startswith(ELSEWHERE):
                    self._large[id(value)] = (seq, name, value)
        if isinstance(event, e.ListGrew):
            if event.copied and all(at in self._results for _, _, at in event.copied):
                self._grown[event.digest] = event
        elif isinstance(getattr(event, "result", None), Raw):
            self._results[seq] = None
            if len(self._results) > _RECENT:
                del self._results[next(iter(self._results))]
        if seq % self._every == 0:
            self._make(state, seq, total)

    def _make(self, state: State, seq: int, total: bytes) -> None:
        number = seq // self._every
        changes = {name: _changes_of(state, name) for name in (*DICTS, *RECORDS)}
        parts = {}
        for name in RECORDS:
            values, its = getattr(state, name), changes[name]
            if its.put:
                changed = [self._as_written(values[key]) for key in its.put]
                records = encode_records(name, changed, self._large, sure=self._is_whole)
                parts[name] = sealed(total, name, records)
            self._place(name, number, its)
        self._grown.clear()
        changes["open"] = self._note_open(state, changes["calls"])
        self._totals[number] = total
        level = level_of(number)
        self._add(changes)
        before = self._levels[level] if level < len(self._levels) else None
        parts["head"] = encode_head(self._head(state, seq, total, before))
        self.made.append(Waypoint(seq, parts))
        self._reset(level, seq, total, state)

    def _as_written(self, record: Any) -> Any:
        """A record, without the results that stand in the log already if it is a list."""
        event = self._grown.get(record.digest) if isinstance(record, e.ListGrew) else None
        if event is None or event.seq != record.seq or not isinstance(record.items, Raw):
            return record
        return replace(record, items=event.items, copied=event.copied)

    def _reached(
        self, number: int, total: bytes, state: State, changes: Mapping[str, KeyChanges]
    ) -> None:
        self._add(changes)
        self._reset(level_of(number), number * self._every, total, state)

    def _add(self, changes: Mapping[str, KeyChanges]) -> None:
        for before in self._levels:
            for name, its in changes.items():
                before.changes[name].add(its)

    def _reset(self, level: int, seq: int, total: bytes, state: State) -> None:
        new = [_Before(seq, total, state) for _ in range(level + 1)]
        self._levels[: level + 1] = new

    def _place(self, name: str, number: int, changes: KeyChanges) -> None:
        places = self._places[name]
        if changes.anew:
            places.clear()
        for key in changes.dropped:
            places.pop(key, None)
        if len(changes.put) >= MOST_RECORDS:
            raise ValueError("too many records for one waypoint")
        first = place_of(number, 0)
        places.update(zip(changes.put, range(first, first + len(changes.put)), strict=True))

    def _note_open(self, state: State, changes: KeyChanges) -> KeyChanges:
        """Keep in mind which calls have not ended; returns what changed of that."""
        if changes.anew:
            self._open.clear()
        for path in changes.dropped:
            self._open.pop(path, None)
        calls, known = state.calls, self._open
        now = {path for path in changes.put if calls[path].status not in ("completed", "failed")}
        for path in known.keys() & (changes.put.keys() - now):
            del known[path]
        for path in changes.put:
            if path in now and path not in known:
                known[path] = None
        return self._open.taken()

    def _head(self, state: State, seq: int, total: bytes, before: _Before | None) -> Any:
        first = _Before(0, chain.ROOT, State())
        since = before or first
        plain, reset = _plain(state, since)
        found: dict[str, Any] = {}
        for name in LISTS:
            found[name] = _grown(getattr(state, name), *since.lists[name])
        for name in SETS:
            now, then = getattr(state, name), since.sets[name]
            if len(now) != len(then) or now != then:
                found[name] = ChangedDict(drop=[*(then - now)], put=dict.fromkeys(now - then))
        for name in (*DICTS, "open"):
            values = self._open if name == "open" else getattr(state, name)
            its = before.changes[name] if before else _all_of(values)
            put = {key: values[key] for key in its.put}
            found[name] = ChangedDict(its.anew, [*its.dropped], put)
        for name in RECORDS:
            its = before.changes[name] if before else _all_of(getattr(state, name))
            places = self._places[name]
            at = [places[key] for key in its.put]
            found[name] = Placed(its.anew, [*its.dropped], [*its.put], at)
        numbers = range(since.seq // self._every + 1, seq // self._every + 1)
        return head_kind()(
            seq=seq,
            total=total.decode(),
            base=since.seq,
            base_total=since.total.decode(),
            totals={str(number): self._totals[number].decode() for number in numbers},
            reset=reset,
            plain=plain,
            **{name: part for name, part in found.items() if _says_something(part)},
        )


def _says_something(part: Any) -> bool:
    if isinstance(part, Grown):
        return True
    keys = part.put if isinstance(part, ChangedDict) else part.keys
    return bool(part.anew or part.drop or keys)


def _plain(state: State, before: _Before) -> tuple[Any, list[str]]:
    changed, reset = {}, []
    for name in PLAIN:
        now, then = getattr(state, name), before.plain[name]
        if now is then or (not isinstance(now, Raw) and now == then):
            continue
        if not isinstance(now, Raw) and now == DEFAULTS[name]:
            reset.append(name)
        else:
            changed[name] = now
    return plain_kind()(**changed), reset


def _grown(now: Any, then: Any, length: int) -> Any:
    if now is not then:  # it was replaced, by one that may begin in the same way
        same = 0
        for new, old in zip(now, then[:length], strict=False):
            if new is not old and (isinstance(new, Raw) or new != old):
                break
            same += 1
        length = same
    return Grown(length, list(now[length:]))


def _changes_of(state: State, name: str) -> KeyChanges:
    """The changes of a dict since the last waypoint. A replaced dict is all new."""
    values = getattr(state, name)
    if isinstance(values, Tracked):
        return values.taken()
    setattr(state, name, Tracked(values))
    return _all_of(values)


def _all_of(values: Mapping[str, Any]) -> KeyChanges:
    changes = KeyChanges()
    changes.put, changes.anew = dict.fromkeys(values), True
    return changes


# How the writer of a log leaves waypoints as it goes.
#
# Never in the way of the log itself: an append only keeps its event in mind. Where a waypoint is
# due, the events since the last one are folded once more, into a state that notes what changes in
# it. A waypoint that can't be made or stored is left out, and the next reader makes it up (see
# `states`). A writer that goes on with a log begins at the newest waypoint there is; where there is
# none near, it leaves none.


class Waypoints:
    """The waypoints in a store: derived bytes beside a log, by an event's number and a part."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, stream: str, seq: int, part: str, data: bytes) -> None:
        """Keep a part of the waypoint after an event, in place of the one there was."""
        self._store.put_side(stream, "derived", f"{seq}.{part}", data)

    def get(self, stream: str, seqs: Sequence[int], part: str) -> dict[int, bytes]:
        """One part of each of these waypoints, as far as they are there."""
        names = [f"{seq}.{part}" for seq in seqs]
        found = self._store.get_side([stream], "derived", names)
        return {int(row.name.partition(".")[0]): row.data for row in found}

    def seqs(self, stream: str) -> list[int]:
        """The events after which there is a waypoint, in no order."""
        found = self._store.get_side([stream], "derived", only_names=True)
        names = (row.name.partition(".") for row in found)
        return list({int(seq) for seq, _, part in names if part != PARTS})


def put_all(kept: Waypoints, stream: str, made: list[Waypoint]) -> None:
    """Store waypoints; one that can't be stored is not missed."""
    with suppress(HoldfastError, OSError):
        for waypoint in made:
            for part, data in waypoint.parts.items():
                kept.put(stream, waypoint.seq, part, data)
    made.clear()


Reach = Callable[[int], "tuple[State, Trail] | None"]
"""Reads the state after a line from the store, and the trail that goes on from there."""


class WaypointWriter:
    """Leaves the waypoints of one log, as long as nothing goes wrong with them."""

    def __init__(self, store: Store, stream: str, every: int = EVERY) -> None:
        self._stream = stream
        self.every = every
        self._kept = Waypoints(store)
        self._state: State | None = None
        """What the events came to that are in waypoints. Most logs are too short to have one."""
        self._trail: Trail | None = None
        self._is_off = False
        """Whether it leaves no more."""
        self.events: list[AnyEvent] = []
        """The lines written since the last waypoint."""
        self._reach: Callable[[], tuple[State, Trail] | None] | None = None
        self._known: set[int] = set()
        self.is_due: bool = False
        """Whether some are made that are not stored."""

    def go_on(self, seq: int, reach: Reach) -> None:
        """Go on from a line that stands in the log already. What it led to is read when the next
        waypoint is due, which most tasks that are resumed never come to."""
        self._reach = partial(reach, seq)

    def catch_up(self, state: State, total: bytes) -> None:
        """Make the waypoint after the newest event, which has that sum and led to that state."""
        events, self.events = self.events, []
        self.is_due = True
        if self._is_off:
            return
        try:
            if self._trail is None or self._state is None:
                reached = self._reach() if self._reach is not None else _from_nothing(self.every)
                if reached is None:
                    self._is_off = True
                    return
                self._state, self._trail = reached
            mine, trail = self._state, self._trail
            for event in events:
                # The numbers of a fork go on from its past, and a rewind makes a state of old
                # ones: a reader of such a log does without.
                if event.seq != mine.seq + 1 or isinstance(event, Rewound):
                    self._leave_off()
                    return
                advance(mine, event)
                if event.seq == state.seq:
                    _share(mine, state)
                trail.passed(mine, event, event.seq, total)
        except Exception:  # it is of no matter what: the log goes on without
            self._leave_off()

    def put(self) -> None:
        """Store what was left since: the lines are there now."""
        trail, kept = self._trail, self._kept
        self.is_due = False
        if trail is None:
            return
        try:
            for waypoint in list(trail.made):
                number = waypoint.seq // self.every
                if not self._can_go_on(number):
                    self._leave_off()
                    return
                put_all(kept, self._stream, [waypoint])
                self._known.add(number)
            trail.made.clear()
        except Exception:  # as above
            self._leave_off()

    def _leave_off(self) -> None:
        self._is_off, self._state, self._trail = True, None, None

    def _can_go_on(self, number: int) -> bool:
        """Whether the waypoints are there that this one goes on from."""
        before = set(way_to(number)[:-1])
        if not before <= self._known:
            seqs = self._kept.seqs(self._stream)
            self._known |= {seq // self.every for seq in seqs}
        return before <= self._known


def _from_nothing(every: int) -> tuple[State, Trail]:
    state = State()
    return state, Trail(state, every)


def _share(mine: State, theirs: State) -> None:
    """Hold the records of an equal state that changed, instead of a second copy of them."""
    for name in RECORDS:
        known, others = getattr(mine, name), getattr(theirs, name)
        for key in getattr(known, "changes", KeyChanges()).put:
            dict.__setitem__(known, key, others[key])
