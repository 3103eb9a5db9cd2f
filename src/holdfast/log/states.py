"""States: what the events of a log come to, now or after any of them. `load` is the way to one.

The newest state is the fold of the whole log, read once. An earlier one is had by the nearest
waypoint before it. Waypoints are read as what they are, something that somebody left: a waypoint
that is missing, damaged or of another log is not used, and then an older one is, or the log from
its beginning. The lines after it are folded as always, each checked against the one before.
Waypoints that are missing on that way are left for the next reader.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from holdfast.core import conversation
from holdfast.core import memories as remembering
from holdfast.core.conversation import Conversation
from holdfast.core.decoding import NONSENSE, Illegible, decode, decoder
from holdfast.core.events import (
    AnyEvent,
    ListGrew,
    MemoryBegan,
    Pinned,
    Rewound,
    SessionBegan,
    Summarized,
)
from holdfast.core.facts import Facts, facts_of, facts_of_session
from holdfast.core.kinds import MEMORY, SESSION, kind_of
from holdfast.core.lists import with_results
from holdfast.core.memories import Memories
from holdfast.core.state import Call, Later, State
from holdfast.errors import BadInput, LogDamaged, StoreError
from holdfast.log import chain
from holdfast.log.reading import (
    Readable,
    advance_checked,
    base_of,
    fork_of,
    new_state,
    no_task,
    own_lines,
    read_events,
    read_on,
    read_state,
    senseless,
    stream_of,
)
from holdfast.log.trail import Trail, Waypoints, put_all
from holdfast.log.waypoints import (
    EVERY,
    RECORDS,
    StateParts,
    decode_head,
    decode_record,
    elsewhere,
    place_in,
    split_records,
    unsealed,
    way_to,
)
from holdfast.log.waypoints import base_of as base_of_waypoint

if TYPE_CHECKING:
    from holdfast.stores.port import Store


_MANY = 32
"""From so many lines on, the log is read once from the first of them to the last."""

_MOST_HEADS = 32
_remembered: WeakKeyDictionary[Store, OrderedDict[tuple[str, int], Any]] = WeakKeyDictionary()
_lock = Lock()

_fields = decoder(dict[str, Raw])


def load(store: Store, id: str, at: int | None = None, *, missing_ok: bool = False) -> State:
    """Everything a task knows, or knew after the event `at`; `TaskNotFound` if there is no such
    task, or, with `missing_ok`, a state of `seq` 0.

    The state as of an event is had by the nearest waypoint: it does not know the events that it
    was made of, and makes its calls when somebody looks at them.

    >>> from holdfast import Holdfast, note, task
    >>> @task
    ... def noted_twice() -> None:
    ...     note("first")
    ...     note("second")
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(noted_twice, id="t-1")
    ...     then, now = load(hf.store, "t-1", 3), load(hf.store, "t-1")
    >>> [note.text for note in then.notes], [note.text for note in now.notes], then.seq
    (['first'], ['first', 'second'], 3)
    """
    stream = stream_of(id)
    state = read_state(store, stream) if at is None else _state_at(store, stream, at)
    if not state.seq and not missing_ok:
        raise no_task(store, id)
    return state


def load_newest(store: Store, id: str) -> State:
    """Everything a task knows, by the nearest waypoint: for readers of long logs.

    Like every state that is had by a waypoint, it makes its calls when somebody looks at them, so
    its store has to stay open. The lines before the waypoint are not read: `verify` checks them.
    """
    stream = stream_of(id)
    state = _newest(store, stream)
    if not state.seq:
        raise no_task(store, id)
    return state


def _newest(store: Store, stream: str) -> State:
    last = next(store.read(stream, backwards=True), None)
    if last is None:
        return State()
    with suppress(Illegible, BadInput):  # the last line says no number, or not its own
        if (seq := decode(last, _Placed).seq) > 0:
            return _state_at(store, stream, seq + base_of(store, stream))
    return read_state(store, stream)  # which says what is wrong, and where


def load_sound(store: Store, id: str) -> State:
    """The same; of a damaged log, what it came to before the damage: that can still be looked
    at."""
    stream = stream_of(id)
    try:
        return load_newest(store, id)
    except LogDamaged as error:
        if error.stream != stream or error.seq < 2:
            raise
        return _before_damage(store, stream)


def _before_damage(store: Store, stream: str) -> State:
    state = new_state(store, stream)
    with suppress(LogDamaged):
        for event in read_events(store, stream):
            advance_checked(state, event, stream)
    if not state.seq:
        raise LogDamaged(stream, 1, "nothing of it can be read")
    return state


def sum_at(store: Store, id: str, seq: int) -> str:
    """The sum of an event of a task, wherever that stands: a fork shares those of its original."""
    stream = stream_of(id)
    while (fork := fork_of(store, stream)) is not None and seq <= fork.seq:
        stream = kind_of(stream).stream(fork.of)
    total = _sum_of(store, stream, seq - (fork.seq if fork is not None else 0))
    if not total:  # the task was deleted since the caller read it
        raise no_task(store, id)
    return total.decode()


def _state_at(store: Store, stream: str, seq: int) -> State:
    fork = fork_of(store, stream)
    if fork is None:
        return state_upto(store, stream, seq)
    past = _state_at(store, kind_of(stream).stream(fork.of), min(seq, fork.seq))
    if seq <= fork.seq:
        return past
    for event, _, _ in own_lines(store, stream, fork.seq, seq):
        if isinstance(event, Rewound):
            return read_state(store, stream, seq)
        advance_checked(past, event, stream)
    return past


# Logs of any kind: of a task, a session or a memory.


Folded = State | Conversation | Memories


def empty(store: Readable, stream: str) -> Folded:
    """The state of a log before its first event."""
    kind = kind_of(stream)
    if kind is SESSION:
        return Conversation()
    return Memories() if kind is MEMORY else new_state(store, stream)


def follow(state: Folded, event: AnyEvent, stream: str) -> None:
    """Change a state, which the caller alone owns, by an event. An event that makes no sense there
    is damage to the log."""
    try:
        _advance(state, event, stream)
    except (*NONSENSE, Illegible) as error:
        raise senseless(stream, event, error) from error


def _advance(state: Folded, event: AnyEvent, stream: str) -> None:
    if isinstance(state, Conversation):
        if problem := _misfit(state, event):
            raise LogDamaged(SESSION.stream(state.id), event.seq, problem)
        conversation.advance(state, event)
    elif isinstance(state, Memories):
        if isinstance(event, MemoryBegan) and state.seq:
            what = "it begins the memory a second time"
            raise LogDamaged(MEMORY.stream(state.id), event.seq, what)
        remembering.advance(state, event)
    else:
        advance_checked(state, event, stream)


def load_any(store: Readable, stream: str) -> Folded:
    """The state of a log, each event checked; of `seq` 0 if there is none."""
    state = empty(store, stream)
    for event in read_events(store, stream):
        follow(state, event, stream)
    return state


def lines_of(state: Folded) -> int:
    """How many lines its own log has: that of a fork is without the events that it shares."""
    fork = None if isinstance(state, Memories) else state.fork
    return state.seq - (fork.seq if fork is not None else 0)


def facts_in(state: Folded) -> Facts:
    """The facts of a log after its newest event."""
    if isinstance(state, Conversation):
        return facts_of_session(state)
    if isinstance(state, Memories):
        return Facts(status="open", created_at=state.created_at, updated_at=state.updated_at)
    return facts_of(state)


def status_in(state: Folded) -> str:
    """The status of a task or of a session; a memory has none."""
    return "" if isinstance(state, Memories) else state.status


def _misfit(state: Conversation, event: AnyEvent) -> str:
    match event:
        case SessionBegan(fork=None) if state.seq:
            return "it begins the session a second time"
        case Pinned(number=number) | Summarized(upto=number) if number > state.messages:
            return f"it is about message {number}, and there are {state.messages}"
    return ""


def read_facts(store: Store, stream: str) -> Facts | None:
    """The facts of a log, read from it, which the store then remembers; None if there is none."""
    state = load_any(store, stream)
    if state.seq == 0:
        return None
    facts = facts_in(state)
    store.remember(stream, facts, lines_of(state))
    return facts


# The state after an event, by the nearest waypoint.


def state_upto(store: Store, stream: str, seq: int, every: int = EVERY) -> State:
    """The state after the line `seq` of a stream that shares its past with no other."""
    kept = Waypoints(store)
    number = seq // every
    there = _there(kept, stream, every, number)
    for nearest in sorted(there, reverse=True):
        way = way_to(nearest)
        if not there.issuperset(way):
            continue
        found = _by_waypoint(store, kept, stream, way, every, trailing=number > nearest)
        if found is not None:
            state, trail, total = found
            try:
                return _gone_on(store, stream, state, nearest * every, total, seq, trail, kept)
            except _NotThere:
                _forget(store, stream)
                continue
    state = new_state(store, stream)
    trail = Trail(state, every)
    return _gone_on(store, stream, state, 0, chain.ROOT, seq, trail, kept)


def reach(store: Store, stream: str, seq: int, every: int = EVERY) -> tuple[State, Trail] | None:
    """The state after the line `seq`, and the trail that goes on from there: for who writes on.
    None where no waypoint is near, or none can be left."""
    kept, number = Waypoints(store), seq // every
    there = _there(kept, stream, every, number)
    for nearest in range(number, max(number - _NEAR, -1), -1):
        way, found = way_to(nearest), None
        if there.issuperset(way):
            found = _by_waypoint(store, kept, stream, way, every, trailing=True) if way else None
            state, trail, total = found or (State(), None, chain.ROOT)
            if found is None and nearest:
                continue
            trail = trail or Trail(state, every)
            after = _gone_on(store, stream, state, nearest * every, total, seq, trail, kept)
            return (state, trail) if after is state else None
    return None


_NEAR = 3
"""So many waypoints may be missing for a writer that leaves the next ones."""


def find_call(store: Store, stream: str, path: str, every: int = EVERY) -> Call | None:
    """The record of a call at the end of a log, without the rest of the state; None where the
    waypoints alone don't tell, or there is no such call."""
    kept, last = Waypoints(store), next(store.read(stream, backwards=True), None)
    if last is None:
        return None
    number = decode(last, _Placed).seq // every
    way = way_to(number)
    if not number or not _there(kept, stream, every, number).issuperset(way):
        return None
    heads = _heads_of(store, kept, stream, [each * every for each in way])
    if not _fit(heads, way, every) or _is_spoken_of(store, stream, path, heads[-1]):
        return None
    parts = StateParts()
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


def _there(kept: Waypoints, stream: str, every: int, most: int) -> set[int]:
    if not most:
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
    parts = StateParts()
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
        if head.base != base_of_waypoint(number) * every or head.base_total != before:
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
) -> State:
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
                return read_state(store, stream, seq)
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
    return state


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
        parts: StateParts,
    ) -> None:
        self._store = store
        self._kept = kept
        self._stream = stream
        self._every = every
        self._totals, self._places = parts.totals, parts.places
        self._number = number
        self._split: dict[tuple[str, int], list[Raw]] = {}
        self._lists: dict[int, list[ListGrew]] = {}
        """By waypoint: its lists, whole. They are asked for one by one, and each may take two
        lines of the log; these stand together."""
        self._folded: State | None = None

    def load(self, name: str, places: Sequence[int]) -> list[Any]:
        """The records at these places, whole."""
        numbers = {place_in(place)[0] for place in places}
        missing = sorted(number for number in numbers if (name, number) not in self._split)
        self._fetch(name, missing)
        if any((name, number) not in self._split for number in numbers):
            return self._from_log(name, places)
        if name == "lists":
            return [self._lists_of(number)[index] for number, index in map(place_in, places)]
        found = []
        for place in places:
            number, index = place_in(place)
            found.append(decode_record(name, self._split[name, number][index]))
        return self._with_values(name, found)

    def _lists_of(self, number: int) -> list[ListGrew]:
        if number not in self._lists:
            split = self._split["lists", number]
            found = [decode_record("lists", each) for each in split]
            self._lists[number] = self._with_values("lists", found)
        return self._lists[number]

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
            self._folded = _gone_on(self._store, self._stream, state, 0, chain.ROOT, at, None, None)
        keys = {place: key for key, place in self._places[name].items()}
        values = getattr(self._folded, name)
        return [values[keys[place]] for place in places]

    def _with_values(self, name: str, records: list[Any]) -> list[Any]:
        """Records with the large values that stand in the log."""
        wanted = [elsewhere(name, record) for record in records]
        seqs = {seq for fields in wanted for seq, _ in fields.values() if seq}
        if name == "lists":
            seqs |= {seq for record in records for _, _, seq in record.copied}
        lines = {seq: _fields(line) for seq, line in self._lines(sorted(seqs))}

        def value(seq: int, text: str) -> Raw:
            return lines[seq][text] if seq else Raw(text.encode())

        found = [
            replace(record, **{each: value(*at) for each, at in fields.items()})
            if fields
            else record
            for record, fields in zip(records, wanted, strict=True)
        ]
        if name != "lists":
            return found

        def result_of(path: str, seq: int) -> bytes:
            return bytes(lines[seq]["result"])

        return [
            replace(
                each, items=Raw(with_results(bytes(each.items), each.copied, result_of)), copied=()
            )
            if each.copied
            else each
            for each in found
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
    """The state with every call and list made: for code that knows only dicts.

    >>> whole(State()) == State()
    True
    """
    return replace(state, **{name: dict(getattr(state, name).items()) for name in RECORDS})
