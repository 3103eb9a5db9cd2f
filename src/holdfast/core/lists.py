"""Long lists are stored once: a value names them, and the log holds what was new.

An agent hands its whole conversation to a step on every turn. Written out each time, 2,000 turns
would cost 2,000 times the conversation; so a long list inside a value is taken out, and what is
left names it by its length and by a digest of its items:

    {"$lists":[[["messages"],2000,"9f86d081884c7d659a2feaa0c55ad015"]],"value":{"messages":null}}

The items themselves are in `ListGrew` events, each of which goes on from an earlier list. Whether
a list is long is a matter of the list alone, so that the hash of arguments is one of the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct

from holdfast.core.decoding import NONSENSE, Illegible, decode, decoder, shown
from holdfast.core.events import ListGrew

LISTED = b'{"$lists":'
"""How a value begins whose long lists were taken out."""

BLOB = b'{"$blob":'
"""How a reference to a blob begins. A value that looks like a reference is put in a blob."""

REFERENCES = (BLOB, LISTED)

FEWEST_ITEMS = 8
FEWEST_BYTES = 1024
"""How much they have to come to as JSON: a hundred small numbers are not worth it."""

FEWEST_COPIED = 256
"""How long the result of a call has to be for an item to refer to it."""

_DEEPEST = 6
_CARRIED = 16

_split_object = decoder(dict[str, Raw])
_split_array = decoder(list[Raw])
_encode = msgspec.json.Encoder().encode
_sorted = msgspec.json.Encoder(order="deterministic").encode

Lists = Mapping[str, ListGrew]
Copied = tuple[tuple[tuple[str | int, ...], str, int], ...]
Found = tuple[tuple[str | int, ...], bytes]
"""Where a list stands in a value, and its JSON."""


class ListPlace(Struct, frozen=True, array_like=True, order=True):
    """Where in a value a list stood, and which one."""

    path: tuple[str | int, ...]
    length: int
    digest: str


class BlobRef(Struct):
    """The placeholder in a line for a value that is kept beside it."""

    digest: str = msgspec.field(name="$blob")
    size_bytes: int


class Listed(Struct, frozen=True):
    """A value without its long lists."""

    places: tuple[ListPlace, ...] = msgspec.field(name="$lists")
    value: Raw


form_of: Final = decoder(Listed)
"""A value that begins like one without its lists, as what it says."""


class Sum:
    """The digest of a list that grows: the same whatever the order of the keys in its items.

    >>> Sum().add(b'[{"a":1,"b":2}]').add(b"[3]").digest() == digest_of(b'[{"b":2,"a":1},3]')
    True
    """

    __slots__ = ("_hash",)

    def __init__(self) -> None:
        self._hash = sha256()

    def add(self, items: bytes) -> Sum:
        """Go on with the items of a JSON array."""
        plain = _sorted(decode(items)) if b"{" in items else items
        self._hash.update(plain[1:-1] + b"," if len(plain) > 2 else b"")
        return self

    def copy(self) -> Sum:
        """Another one that goes on from here."""
        other = Sum()
        other._hash = self._hash.copy()
        return other

    def digest(self) -> str:
        """The digest of all items so far: 32 hex digits."""
        return self._hash.hexdigest()[:32]


def digest_of(items: bytes) -> str:
    """The digest of a JSON array."""
    return Sum().add(items).digest()


class Version:
    """A list at one length: how it is named, and the JSON of what it has beyond `base`."""

    __slots__ = ("base", "digest", "items", "length")

    def __init__(self, digest: str, length: int, base: Version | None, items: bytes) -> None:
        self.digest: str = digest
        self.length: int = length
        self.base = base
        self.items: bytes = items

    def is_stored(self) -> None:
        """It can be had from the log now, and need not be remembered."""
        self.base, self.items = None, b""


def version_of(items: bytes, length: int, stored: Lists) -> tuple[Version, Sum]:
    """A JSON array as a list: going on from the longest one in the log that it begins with."""
    lengths = sorted({each.length for each in stored.values() if each.length <= length})
    parts = _split_array(items) if lengths else []
    total, base, done = Sum(), None, 0
    for length_then in lengths:
        total.add(_encode(parts[done:length_then]))
        done = length_then
        if (digest := total.digest()) in stored:
            base = Version(digest, length_then, None, b"")
    total.add(_encode(parts[done:]) if done else items)
    new = _encode(parts[base.length :]) if base is not None else items
    return Version(total.digest(), length, base, new[1:-1]), total


def is_long(length: int, items: bytes) -> bool:
    """Whether a list is worth being stored by itself; one that is stays so when it grows."""
    return length >= FEWEST_ITEMS and len(items) - length - 1 >= FEWEST_BYTES  # without its commas


def without_lists(data: bytes, deepest: int = _DEEPEST) -> tuple[bytes, list[Found]]:
    """A JSON value with null where its long lists were, and these with their places.

    >>> long = b"[%b]" % b",".join(b'"%0128d"' % n for n in range(8))
    >>> left, lists = without_lists(b'{"a":1,"b":%b}' % long)
    >>> left, [(path, items == long) for path, items in lists]
    (b'{"a":1,"b":null}', [(('b',), True)])
    """
    if len(data) < FEWEST_BYTES or b"[" not in data:
        return data, []
    if data[:1] == b"[":
        items = _split_array(data)
        if is_long(len(items), data):
            return b"null", [((), data)]
        return _inside(data, enumerate(items), items, deepest)
    if data[:1] == b"{":
        fields = _split_object(data)
        return _inside(data, fields.items(), fields, deepest)
    return data, []


def _inside(data: bytes, entries: Any, whole: Any, deepest: int) -> tuple[bytes, list[Found]]:
    found: list[Found] = []
    if deepest:
        for key, raw in list(entries):
            left, lists = without_lists(bytes(raw), deepest - 1)
            if lists:
                whole[key] = Raw(left)
                found += [((key, *path), items) for path, items in lists]
    return (_encode(whole), found) if found else (data, [])


def listed(value: bytes, places: Sequence[ListPlace]) -> bytes:
    """The bytes of a value that names its lists."""
    return _encode(Listed(tuple(sorted(places)), Raw(value)))


def count_of(items: bytes) -> int:
    """How many items a JSON array has."""
    return len(_split_array(items))


def value_of(data: bytes) -> bytes:
    """The rest of a value that names its lists: null in their places."""
    return bytes(form_of(data).value)


def for_hashing(data: bytes) -> bytes:
    """Arguments as they are hashed: with long lists by their digests, as a fast way knows them.

    >>> for_hashing(b'{"n":1}')
    b'{"n":1}'
    """
    known: tuple[ListPlace, ...] = ()
    if data.startswith(LISTED):
        form = form_of(data)
        known, data = form.places, bytes(form.value)
    left, lists = without_lists(data, deepest=1)
    places = [ListPlace(p, count_of(d), digest_of(d)) for p, d in lists]
    return listed(left, [*known, *places]) if known or places else data


def whole(
    data: bytes, array_of: Callable[[ListPlace], bytes], fetch: Callable[[Raw], bytes]
) -> bytes:
    """The value again, with its lists where they were."""
    try:
        form = form_of(data)
        value = fetch(form.value)
        for place in form.places:
            value = _put(value, place.path, array_of(place))
    except (*NONSENSE, Illegible) as error:
        why = f"a value names its lists in a way that makes no sense: {shown(error)}"
        raise Illegible(why) from None
    return value


def in_short(data: bytes) -> bytes:
    """A value for people: where a long list stood, how many items it has.

    >>> in_short(b'{"$lists":[[["chat"],2000,"9f"]],"value":{"chat":null}}').decode()
    '{"chat":"… 2,000 items"}'
    """

    def items(place: ListPlace) -> bytes:
        return _encode(f"… {place.length:,} items")

    return whole(data, items, bytes) if data.startswith(LISTED) else data


def _put(value: bytes, path: tuple[str | int, ...], piece: bytes) -> bytes:
    if not path:
        return piece
    entries: Any = _split_object(value) if isinstance(path[0], str) else _split_array(value)
    entries[path[0]] = Raw(_put(bytes(entries[path[0]]), path[1:], piece))
    return _encode(entries)


def pieces(lists: Lists, digest: str) -> Iterator[ListGrew] | None:
    """The events that a list grew by, the oldest first; None if some are not known."""
    grown: list[ListGrew] = []
    while digest:
        event = lists.get(digest)
        if event is None or event.items is UNSET:
            return None
        if grown and event.length >= grown[-1].length:  # or else there may be no end to it
            return None
        grown.append(event)
        digest = event.base or ""
    return reversed(grown)


def without_results(items: bytes, recent: Mapping[bytes, tuple[str, int]]) -> tuple[bytes, Copied]:
    """Items with null for what is the result of a recent call, and where those stood.

    >>> hello = b'"%b"' % (b"hello " * 50)
    >>> without_results(b'[{"role":"user","text":%b}]' % hello, {hello: ("17", 52)})
    (b'[{"role":"user","text":null}]', (((0, 'text'), '17', 52),))
    """
    if not recent:
        return items, ()
    entries = _split_array(items)
    copied = _take(list(enumerate(entries)), entries, recent, _DEEPEST)
    return (_encode(entries), tuple(copied)) if copied else (items, ())


def _take(pairs: Any, entries: Any, recent: Any, deepest: int) -> list[Any]:
    copied = []
    for key, raw in pairs:
        data = bytes(raw)
        if len(data) < FEWEST_COPIED:
            continue
        if found := recent.get(data):
            entries[key] = Raw(b"null")
            copied.append(((key,), *found))
        elif deepest and data[:1] in (b"{", b"["):
            inner: Any = _split_object(data) if data[:1] == b"{" else _split_array(data)
            pairs = list(inner.items() if isinstance(inner, dict) else enumerate(inner))
            if below := _take(pairs, inner, recent, deepest - 1):
                entries[key] = Raw(_encode(inner))
                copied += [((key, *path), *found) for path, *found in below]
    return copied


def with_results(items: bytes, copied: Copied, result_of: Callable[[str, int], bytes]) -> bytes:
    """The items again. `result_of` is given the path of a call and the event of its result."""
    for path, call, seq in copied:
        items = _put(items, path, result_of(call, seq))
    return items


def newest(lists: Lists) -> tuple[tuple[str, int], ...]:
    """The facts about lists that a reader needs who begins here instead of at the start."""
    return tuple((each.digest, each.length) for each in list(lists.values())[-_CARRIED:])
