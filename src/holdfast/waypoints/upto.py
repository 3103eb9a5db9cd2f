"""The state of a log after any of its events, by the nearest waypoint before it.

Waypoints are read as what they are, something that somebody left: whatever is missing, damaged or
of another log is not used, and then an older one is, or the log from its beginning. The lines after
it are folded as always, each checked against the one before. Waypoints that are missing on that way
are left for whoever comes next.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from holdfast import chain
from holdfast.decoding import decode, decoder
from holdfast.errors import BadInput, HoldfastError, LogDamaged, StoreError
from holdfast.events import Rewound
from holdfast.later import Later
from holdfast.reading import advance_checked, read_on, read_state
from holdfast.state import Call, State
from holdfast.waypoints.encoding import (
    EVERY,
    RECORDS,
    Parts,
    base_of,
    decode_head,
    decode_record,
    elsewhere,
    place_in,
    split_records,
    unsealed,
    way_to,
)
from holdfast.waypoints.trail import Trail, Waypoint

if TYPE_CHECKING:
    from holdfast.store import Store, Waypoints

_MANY = 32
"""From so many lines on, the log is read once from the first of them to the last."""

_MOST_HEADS = 32
_remembered: WeakKeyDictionary[Store, OrderedDict[tuple[str, int], Any]] = WeakKeyDictionary()
_lock = Lock()

_fields = decoder(dict[str, Raw])


def waypoints_of(store: object) -> Waypoints | None:
    """Where a store keeps waypoints, if it does."""
    made: Callable[[], Waypoints | None] | None = getattr(store, "waypoints", None)
    return made() if made is not None else None


def put_all(kept: Waypoints, stream: str, made: list[Waypoint]) -> None:
    """Store waypoints; one that can't be stored is not missed."""
    with suppress(HoldfastError, OSError):
        for waypoint in made:
            for part, data in waypoint.parts.items():
                kept.put(stream, waypoint.seq, part, data)
    made.clear()


def state_upto(store: Store, stream: str, seq: int, every: int = EVERY) -> tuple[State, bytes]:
    """The state after the line `seq` of a stream, and the sum of that line.

    >>> from holdfast import Holdfast, note, task
    >>> @task
    ... def noted_upto() -> None:
    ...     note("first")
    ...     note("second")
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(noted_upto, id="t-1")
    ...     state, _ = state_upto(hf.store, "tasks/t-1", 3)
    >>> [note.text for note in state.notes], state.seq
    (['first'], 3)
    """
    kept = waypoints_of(store)
    number = seq // every
    there = _there(kept, stream, every, number)
    for nearest in sorted(there, reverse=True):
        way = way_to(nearest)
        if kept is None or not there.issuperset(way):
            continue
        found = _by_waypoint(store, kept, stream, way, every, trailing=number > nearest)
        if found is not None:
            state, trail, total = found
            try:
                return _gone_on(store, stream, state, nearest * every, total, seq, trail, kept)
            except _NotThere:
                _forget(store, stream)
                continue
    state = State()
    trail = Trail(state, every) if kept is not None else None
    return _gone_on(store, stream, state, 0, chain.ROOT, seq, trail, kept)


def find_call(store: Store, stream: str, path: str, every: int = EVERY) -> Call | None:
    """The record of a call at the end of a log, without the rest of the state; None where the
    waypoints alone don't tell, or there is no such call."""
    kept, last = waypoints_of(store), next(store.tail(stream), None)
    if kept is None or last is None:
        return None
    number = decode(last, _Placed).seq // every
    way = way_to(number)
    if not number or not _there(kept, stream, every, number).issuperset(way):
        return None
    heads = _heads_of(store, kept, stream, [each * every for each in way])
    if not _fit(heads, way, every) or _is_spoken_of(store, stream, path, heads[-1]):
        return None
    parts = Parts()
    for head in heads:
        parts.totals |= {int(n): total.encode() for n, total in head.totals.items()}
    for head in reversed(heads):
        placed = head.calls
        if placed is not UNSET and path in placed.keys:
            parts.places["calls"] = {path: placed.places[placed.keys.index(path)]}
            records = Records(store, kept, stream, every, number, parts)
            call: Call = records.load("calls", list(parts.places["calls"].values()))[0]
            return call
        if placed is not UNSET and (placed.anew or path in placed.drop):
            return None
    return None


def _is_spoken_of(store: Store, stream: str, path: str, head: Any) -> bool:
    """Whether a call may have changed after a waypoint; also if that is of another log."""
    lines = store.read(stream, head.seq - 1)
    if chain.sum_of(next(lines, b"")) != head.total.encode():
        _forget(store, stream)
        return True
    named = b'"path":%b' % msgspec.json.encode(path)
    return any(named in line or line.startswith(_OF_ALL) for line in lines)


_OF_ALL = tuple(
    b'{"type":"%b"' % name
    for name in (b"checkpointed", b"compensating", b"rewound", b"task_created", b"task_retried")
)
"""How events begin that may change calls which they don't name."""


class _Placed(Struct):
    seq: int


class _NotThere(Exception):
    """The line that a waypoint stands after is another one."""


def _there(kept: Waypoints | None, stream: str, every: int, most: int) -> set[int]:
    if kept is None or not most:
        return set()
    try:
        seqs = kept.seqs(stream)
    except StoreError:
        return set()
    return {seq // every for seq in seqs if seq % every == 0 and 0 < seq <= most * every}


def _by_waypoint(
    store: Store, kept: Waypoints, stream: str, way: list[int], every: int, *, trailing: bool
) -> tuple[State, Trail | None, bytes] | None:
    """The state at a waypoint, and who goes on from there; None if it can't be had."""
    heads = _heads_of(store, kept, stream, [number * every for number in way])
    if not _fit(heads, way, every):
        return None
    parts = Parts()
    trail = Trail(State(), every) if trailing else None
    for number, head in zip(way, heads, strict=True):
        parts.go_on(head)
        if trail is not None:
            trail.came_by(number, head, parts)
    state = parts.state
    records = Records(store, kept, stream, every, way[-1], parts)
    for name in RECORDS:
        open = tuple(parts.open) if name == "calls" else ()
        setattr(state, name, Later(parts.places[name], partial(records.load, name), open))
    if trail is not None:
        trail.go_on(state, parts)
    return state, trail, heads[-1].total.encode()


def _heads_of(store: Store, kept: Waypoints, stream: str, seqs: list[int]) -> list[Any]:
    """The heads of waypoints; None for one that can't be had.

    The newest are remembered: who opens one state mostly opens another, and the ways to both have
    most of their heads in common. That they are of this log shows when its lines are read.
    """
    with _lock:
        known = _remembered.setdefault(store, OrderedDict())
        found = dict(_known_of(known, stream, seqs))
    missing = [seq for seq in seqs if seq not in found]
    try:
        stored = kept.get(stream, missing, "head") if missing else {}
    except StoreError:
        return [None]
    read = {seq: decode_head(stored.get(seq, b""), seq) for seq in missing}
    with _lock:
        _remember(known, stream, {seq: found.get(seq) or read.get(seq) for seq in seqs})
    return [found.get(seq) or read[seq] for seq in seqs]


def _known_of(known: dict[tuple[str, int], Any], stream: str, seqs: list[int]) -> Iterator[Any]:
    return ((seq, known[stream, seq]) for seq in seqs if (stream, seq) in known)


def _remember(known: OrderedDict[tuple[str, int], Any], stream: str, heads: dict[int, Any]) -> None:
    for seq, head in heads.items():
        if head is not None:
            known[stream, seq] = head
            known.move_to_end((stream, seq))
    while len(known) > _MOST_HEADS:
        known.popitem(last=False)


def _forget(store: Store, stream: str) -> None:
    with _lock:
        known = _remembered.get(store, OrderedDict())
        for key in list(filter(lambda key: key[0] == stream, known)):
            del known[key]


def _fit(heads: list[Any], way: list[int], every: int) -> bool:
    if not all(heads):
        return False
    before = chain.ROOT.decode()
    for number, head in zip(way, heads, strict=True):
        if head.base != base_of(number) * every or head.base_total != before:
            return False
        before = head.total
    return True


def _gone_on(
    store: Store,
    stream: str,
    state: State,
    at: int,
    total: bytes,
    seq: int,
    trail: Trail | None,
    kept: Waypoints | None,
) -> tuple[State, bytes]:
    """Fold the lines after `at`, up to `seq`."""
    events = read_on(store, stream, at, total)
    is_there = at == 0
    try:
        while at < seq:
            event, total, _ = next(events, (None, total, b""))
            is_there = True
            if event is None:
                raise BadInput(f"{stream} has {at} events: there is no event {seq}")
            if isinstance(event, Rewound):
                return read_state(store, stream, seq), _sum_of(store, stream, seq)
            advance_checked(state, event, stream)
            at += 1
            if trail is not None and kept is not None:
                try:
                    trail.passed(state, event, at, total)
                except Exception:  # it is of no matter what: reading goes on without
                    trail = None
                else:
                    put_all(kept, stream, trail.made)
    except LogDamaged as error:
        if not is_there and error.seq == at:
            raise _NotThere from None
        raise
    if not is_there:
        _must_stand(store, stream, at, total)
    return state, total


def _sum_of(store: Store, stream: str, seq: int) -> bytes:
    return chain.sum_of(next(iter(store.read(stream, seq - 1)), b""))


def _must_stand(store: Store, stream: str, seq: int, total: bytes) -> None:
    if _sum_of(store, stream, seq) != total:
        raise _NotThere


class Records:
    """Makes the calls and lists of a state that was read back, when somebody looks at them."""

    def __init__(
        self,
        store: Store,
        kept: Waypoints,
        stream: str,
        every: int,
        number: int,
        parts: Parts,
    ) -> None:
        self._store = store
        self._kept = kept
        self._stream = stream
        self._every = every
        self._totals, self._places = parts.totals, parts.places
        self._number = number
        self._split: dict[tuple[str, int], list[Raw]] = {}
        self._folded: State | None = None

    def load(self, name: str, places: Sequence[int]) -> list[Any]:
        """The records at these places, whole."""
        numbers = {place_in(place)[0] for place in places}
        missing = sorted(number for number in numbers if (name, number) not in self._split)
        self._fetch(name, missing)
        if any((name, number) not in self._split for number in numbers):
            return self._from_log(name, places)
        found = []
        for place in places:
            number, index = place_in(place)
            found.append(decode_record(name, self._split[name, number][index]))
        return self._with_values(name, found)

    def _fetch(self, name: str, numbers: list[int]) -> None:
        if not numbers:
            return
        with suppress(StoreError, zlib.error):
            stored = self._kept.get(self._stream, [n * self._every for n in numbers], name)
            for number in numbers:
                data = stored.get(number * self._every, b"")
                records = unsealed(self._totals[number], name, data)
                if records is not None:
                    self._split[name, number] = split_records(records)

    def _from_log(self, name: str, places: Sequence[int]) -> list[Any]:
        """The same, where a waypoint was deleted meanwhile: by folding the log."""
        if self._folded is None:
            at, state = self._number * self._every, State()
            self._folded, _ = _gone_on(
                self._store, self._stream, state, 0, chain.ROOT, at, None, None
            )
        keys = {place: key for key, place in self._places[name].items()}
        values = getattr(self._folded, name)
        return [values[keys[place]] for place in places]

    def _with_values(self, name: str, records: list[Any]) -> list[Any]:
        """Records with the large values that stand in the log."""
        wanted = [elsewhere(name, record) for record in records]
        seqs = sorted({seq for fields in wanted for seq, _ in fields.values() if seq})
        lines = {seq: _fields(line) for seq, line in self._lines(seqs)}

        def value(seq: int, text: str) -> Raw:
            return lines[seq][text] if seq else Raw(text.encode())

        return [
            replace(record, **{each: value(*at) for each, at in fields.items()})
            if fields
            else record
            for record, fields in zip(records, wanted, strict=True)
        ]

    def _lines(self, seqs: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        if len(seqs) < _MANY:
            for seq in seqs:
                yield from self._between(seq, seq, (seq,))
        else:
            yield from self._between(seqs[0], seqs[-1], set(seqs))

    def _between(self, first: int, last: int, wanted: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """The lines that are wanted, checked against the ones before them."""
        lines = iter(self._store.read(self._stream, max(first - 2, 0)))
        seq = max(first - 2, 0)
        before = chain.ROOT
        for line in lines:
            seq += 1
            if seq >= first:
                if seq in wanted:
                    if chain.check(before, line) is None:
                        what = "its sum does not fit its bytes and the event before it"
                        raise LogDamaged(self._stream, seq, what)
                    yield seq, line
                if seq >= last:
                    return
            before = chain.sum_of(line)
        raise LogDamaged(self._stream, seq + 1, "it is gone")


def whole(state: State) -> State:
    """The state with every call and list made: for who hands it to something that knows only dicts.

    >>> whole(State()) == State()
    True
    """
    return replace(state, **{name: dict(getattr(state, name).items()) for name in RECORDS})
