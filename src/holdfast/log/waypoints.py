"""Waypoints: states that are stored along a log, so that any state of it is had soon.

After every 1,024th event of a stream there may be one, number n = seq / 1024. Stored whole, they
would grow with the square of the log. So waypoint n holds what changed since waypoint n - 16^k,
where 16^k is the greatest power of 16 that divides n: number 53 goes on from 52, 51, 50, 49, 48,
32, 16 and nothing. A state is put together of at most 15 for each digit of n.

    head    what changed of the state; of calls and long lists only the keys, and where each stands
    calls   the calls that changed since waypoint n - 1, whatever n is: so each is stored once
    lists   the long lists that did

A place is a number: that of the waypoint, and which of its records. Large arguments and results are
not stored again: what stands for them says which event of the log holds them. A list names the
results that its items share with calls, as its event does.

They are made of the log, and say which: with the sum of the line that they stand after, that of the
one they go on from, and those of the records they name. Each part is sealed with the sum it
belongs to. A waypoint that does not fit is not used. A reader of a log without them has to fold it,
and leaves them for the next.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from typing import Any, Generic, TypeVar, get_args, get_origin

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.structs import FieldInfo, fields, replace

from holdfast.core.decoding import Illegible, decoder
from holdfast.core.events import ListGrew
from holdfast.core.state import Call, State

EVERY = 1024
BASE = 16
FORMAT = 1

LARGE_BYTES = 256
"""Values that are longer are read back from the log."""
ELSEWHERE = b'{"$at":'
"""How what stands for such a value begins: its event and the field. A value that looks like that
stands in it as a text, with the event 0."""

RECORDS: dict[str, type] = {"calls": Call, "lists": ListGrew}
"""The dicts of a state whose values are stored apart, and made when they are looked at."""
_VALUES = {"calls": ("args", "result"), "lists": ("items",)}

_SHIFT = 24
MOST_RECORDS = 1 << _SHIFT
_SEAL_BYTES = 16
_QUICKLY = 1
"""Records are packed, which makes a sixth of them, and heads, which makes half."""

T = TypeVar("T")

Large = Mapping[int, tuple[int, str, Raw]]
"""Where large values stand in the log, by their identity: the event and its field."""


class Grown(Struct, Generic[T], omit_defaults=True):
    """A list: how much of it is left, and what came after that."""

    keep: int = 0
    add: list[T] = []


class ChangedDict(Struct, Generic[T], omit_defaults=True):
    """A dict: what went, and what was set after that."""

    anew: bool = False
    drop: list[str] = []
    put: dict[str, T] = {}


class Placed(Struct, omit_defaults=True):
    """A dict of records: the same, with the places of what was set."""

    anew: bool = False
    drop: list[str] = []
    keys: list[str] = []
    places: list[int] = []


_FIELDS = [known for known in fields(State) if known.name != "trail"]
"""The fields that a waypoint keeps. The events of a state are in the log."""


def _kind(known: FieldInfo) -> str:
    """How a field of a state changes: lists and dicts grow, anything else is another one."""
    if known.name in RECORDS:
        return "records"
    if known.name == "posts":
        return "list"
    origin = get_origin(known.type)
    return {list: "list", dict: "dict", set: "set"}.get(origin, "plain")


def _named(kind: str) -> dict[str, FieldInfo]:
    return {known.name: known for known in _FIELDS if _kind(known) == kind}


PLAIN, LISTS, DICTS, SETS = _named("plain"), _named("list"), _named("dict"), _named("set")
DEFAULTS: dict[str, Any] = {name: known.default for name, known in PLAIN.items()}


def _optional(of: Any) -> Any:
    return of | UnsetType


@cache  # and not at import, of which they would take a fortieth part
def plain_kind() -> Any:
    """Holds the fields that are other ones than before; those that are what they are at first are
    `reset`."""
    of = [(name, _optional(known.type), UNSET) for name, known in PLAIN.items()]
    return msgspec.defstruct("Plain", of, omit_defaults=True)


def _part(name: str, known: FieldInfo) -> tuple[str, Any, Any]:
    kind = _kind(known)
    of: Any = {
        "list": lambda: Grown[get_args(known.type)[0]],  # type: ignore[misc]
        "dict": lambda: ChangedDict[get_args(known.type)[1]],  # type: ignore[misc]
        "set": lambda: ChangedDict[None],
        "records": lambda: Placed,
    }[kind]()  # type: ignore[no-untyped-call]
    return name, _optional(of), UNSET


class _Head(Struct, omit_defaults=True, kw_only=True):
    format: int = FORMAT
    seq: int
    total: str
    base: int
    base_total: str
    totals: dict[str, str]
    """The sum at each waypoint since the one it goes on from, by number."""
    open: ChangedDict[None] | UnsetType = UNSET
    """The calls that have not ended."""
    reset: list[str]


@cache
def head_kind() -> Any:
    """Holds a head."""
    of = [_part(known.name, known) for known in _FIELDS if _kind(known) != "plain"]
    return msgspec.defstruct(
        "Head",
        [("plain", plain_kind()), *of],
        bases=(_Head,),
        omit_defaults=True,
        kw_only=True,
    )


_encode = msgspec.json.Encoder().encode
_split = decoder(list[Raw])
_decode_record: dict[str, Any] = {name: decoder(kind) for name, kind in RECORDS.items()}


def base_of(number: int) -> int:
    """The waypoint that one goes on from; 0 for the beginning of the log.

    >>> base_of(53), base_of(48), base_of(16), base_of(256)
    (52, 32, 0, 0)
    """
    return number - int(BASE ** level_of(number))


def level_of(number: int) -> int:
    """How often it can be divided by 16.

    >>> level_of(53), level_of(48), level_of(512)
    (0, 1, 2)
    """
    level = 0
    while number % BASE == 0:
        number //= BASE
        level += 1
    return level


def way_to(number: int) -> list[int]:
    """The waypoints that a state is put together of, in order.

    >>> way_to(53)
    [16, 32, 48, 49, 50, 51, 52, 53]
    """
    way: list[int] = []
    while number:
        way.append(number)
        number = base_of(number)
    return way[::-1]


def place_of(number: int, index: int) -> int:
    """Where a record stands: which one of a waypoint."""
    return (number << _SHIFT) + index


def place_in(place: int) -> tuple[int, int]:
    """The waypoint and the index that a place stands for.

    >>> place_in(place_of(53, 7))
    (53, 7)
    """
    return place >> _SHIFT, place & (MOST_RECORDS - 1)


# Parts


def sealed(total: bytes, part: str, data: bytes) -> bytes:
    """A part as it is stored: with what shows that it is whole, and where it belongs."""
    return _seal(total, part, data) + data


def unsealed(total: bytes, part: str, stored: bytes) -> bytes | None:
    """The sealed value; None if it was changed, or belongs elsewhere.

    >>> stored = sealed(b"0123456789abcdef", "calls", b"[]")
    >>> unsealed(b"0123456789abcdef", "calls", stored), unsealed(b"0" * 16, "calls", stored)
    (b'[]', None)
    """
    seal, data = stored[:_SEAL_BYTES], stored[_SEAL_BYTES:]
    return data if seal == _seal(total, part, data) else None


def _seal(total: bytes, part: str, data: bytes) -> bytes:
    return sha256(b"%b %b %b" % (total, part.encode(), data)).digest()[:_SEAL_BYTES]


def encode_head(head: Any) -> bytes:
    """A head as it is stored: it names its own sum, which is what it is sealed with."""
    total = head.total.encode()
    return bytes(total + sealed(total, "head", zlib.compress(_encode(head), _QUICKLY)))


def decode_head(stored: bytes, seq: int) -> Any:
    """The head that was stored after an event; None if it is none, or one of another format."""
    total = stored[:16]
    data = unsealed(total, "head", stored[16:])
    if data is None:
        return None
    try:
        is_packed = data[:1] != b"{"  # older ones are not
        head = decoder(head_kind())(zlib.decompress(data) if is_packed else data)
    except (Illegible, zlib.error):
        return None
    is_it = head.format == FORMAT and head.seq == seq and head.total.encode() == total
    return head if is_it else None


# Records


def encode_records(name: str, values: Sequence[Any], large: Large, *, sure: bool) -> bytes:
    """Calls or lists, without what is large: be `sure` that all is known that is, or looks like a
    reference, and nothing has to be looked at where there is none."""
    if sure and not large:
        return zlib.compress(_encode(values), _QUICKLY)
    return zlib.compress(
        _encode([_without_large(name, value, large) for value in values]), _QUICKLY
    )


def _without_large(name: str, record: Any, large: Large) -> Any:
    changes: dict[str, Raw] = {}
    for each in _VALUES[name]:
        value = getattr(record, each)
        if not isinstance(value, Raw):
            continue
        if known := large.get(id(value)):
            changes[each] = _reference(known[0], known[1])
        elif bytes(value).startswith(ELSEWHERE):
            changes[each] = _reference(0, bytes(value).decode())
    return replace(record, **changes) if changes else record


def _reference(seq: int, text: str) -> Raw:
    return Raw(_encode(_Reference((seq, text))))


def split_records(data: bytes) -> list[Raw]:
    """Records, not yet made."""
    return _split(zlib.decompress(data))


def decode_record(name: str, data: Raw) -> Any:
    """A call or a list, perhaps with references to the log."""
    return _decode_record[name](data)


class _Reference(Struct):
    at: tuple[int, str] = field(name="$at")


_decode_reference = decoder(_Reference)


def elsewhere(name: str, record: Any) -> dict[str, tuple[int, str]]:
    """Which values of a record stand elsewhere: the event and its field, or 0 and the value."""
    found: dict[str, tuple[int, str]] = {}
    for each in _VALUES[name]:
        value = getattr(record, each)
        if isinstance(value, Raw) and bytes(value).startswith(ELSEWHERE):
            found[each] = _decode_reference(value).at
    return found


# Putting a state together


class StateParts:
    """A state while it is put together of heads: its records are places still."""

    def __init__(self) -> None:
        self.state: State = State()
        self.places: dict[str, dict[str, int]] = {name: {} for name in RECORDS}
        self.totals: dict[int, bytes] = {}
        self.open: dict[str, None] = {}

    def go_on(self, head: Any) -> None:
        """The state after the next head on the way."""
        state = self.state
        for name in PLAIN:
            value = getattr(head.plain, name)
            if value is not UNSET:
                setattr(state, name, value)
        for name in head.reset:
            setattr(state, name, DEFAULTS[name])
        for name in LISTS:
            if (grown := getattr(head, name)) is not UNSET:
                setattr(state, name, _grow(getattr(state, name), grown))
        for name in DICTS:
            if (changed := getattr(head, name)) is not UNSET:
                _set(getattr(state, name), changed, changed.put)
        for name in SETS:
            if (changed := getattr(head, name)) is not UNSET:
                now = set() if changed.anew else getattr(state, name).difference(changed.drop)
                setattr(state, name, now.union(changed.put))
        for name in RECORDS:
            if (placed := getattr(head, name)) is not UNSET:
                _set(self.places[name], placed, zip(placed.keys, placed.places, strict=True))
        self.totals |= {int(number): total.encode() for number, total in head.totals.items()}
        if head.open is not UNSET:
            _set(self.open, head.open, head.open.put)


def _grow(now: Any, grown: Any) -> Any:
    if isinstance(now, tuple):
        return (*now[: grown.keep], *grown.add)
    if grown.keep < len(now):  # another list: who knows this one knows it as it is
        return [*now[: grown.keep], *grown.add]
    now.extend(grown.add)
    return now


def _set(known: dict[str, Any], changed: Any, put: Any) -> None:
    if changed.anew:
        known.clear()
    for key in changed.drop:
        known.pop(key, None)
    known.update(put)
