"""How values are kept: in a line of the log, in a blob, or by naming lists that the log has.

A small value is in the event itself. A value too large for a line goes to a blob first, and
the event holds a reference. Long lists are taken out and stored once (see `lists`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Literal, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct

from holdfast.codec.tags import readable_json
from holdfast.core.decoding import MOST_LEVELS, Illegible, damage_in, decode, decoder, is_too_deep
from holdfast.core.events import ListGrew
from holdfast.core.lists import (
    BLOB,
    LISTED,
    REFERENCES,
    BlobRef,
    ListPlace,
    Lists,
    form_of,
    pieces,
    whole,
)
from holdfast.errors import ArchiveDamaged, LogDamaged, TooLarge, Unserializable

INLINE_BYTES = 64 * 1024
MAX_VALUE_BYTES = 64 * 1024 * 1024


class Blobs(Protocol):
    """The part of a store that this needs."""

    def put_blob(self, data: bytes) -> str:
        """Keep bytes, durably, under the digest that is returned."""

    def get_blob(self, name: str) -> bytes:
        """The bytes again."""


_TAG = re.compile(rb'"\$(?!blob|lists)')

PARTS = "$parts"
"""How an artifact names the blob that lists its parts."""


class Part(msgspec.Struct, frozen=True):
    """One piece of an artifact: a blob that holds nothing but content."""

    digest: str = msgspec.field(name="$part")
    size_bytes: int


class Parts(msgspec.Struct, frozen=True):
    """The contents of the blob that an artifact names."""

    parts: list[Part]


_blob_ref = decoder(BlobRef)


def stow(store: Blobs, value: bytes, max_value_bytes: int = MAX_VALUE_BYTES) -> Raw:
    """A value as it goes into an event: itself, or a reference to a blob that holds it."""
    size = len(value)
    if is_too_deep(value):
        raise Unserializable(
            f"a value is nested more than {MOST_LEVELS} deep, and could not be read again "
            f"everywhere: flatten it, or pass it as a text"
        )
    if size <= INLINE_BYTES and not value.startswith(REFERENCES):
        return Raw(value)
    if size > max_value_bytes:
        raise TooLarge(
            f"a value of {size:,} bytes is above the limit of {max_value_bytes:,}: keep "
            f"it in a file and pass its name, or raise Holdfast(max_value_bytes=…)"
        )
    return Raw(msgspec.json.encode(BlobRef(store.put_blob(value), size)))


def fetch(store: Blobs, value: Raw, lists: Lists, all_lists: Callable[[], Lists]) -> bytes:
    """The bytes of a value in an event, whole again.

    `lists` are those of the state; `all_lists` reads the log for those from before a checkpoint.
    """
    data = bytes(value)
    if not data.startswith(REFERENCES):
        return data
    if data.startswith(BLOB):
        return store.get_blob(_blob_ref(data).digest)

    def array_of(place: ListPlace) -> bytes:
        grown = pieces(lists, place.digest) or pieces(all_lists(), place.digest)
        if grown is None:
            raise Illegible(f"a value names a list that is not in its log ({place.digest:.80})")
        return b"[%b]" % b",".join(items_of(store, each) for each in grown)

    return whole(data, array_of, lambda raw: fetch(store, raw, lists, all_lists))


class Reader:
    """Values as plain data, for reading many: the items of lists that grew are shared.

    They are as people read them, without tags, unless it is told to leave the `tags` in.
    """

    def __init__(
        self,
        store: Blobs,
        stream: str,
        lists: Lists,
        all_lists: Callable[[], Lists],
        *,
        tags: bool = False,
    ) -> None:
        self._shown: Callable[[bytes], bytes] = bytes if tags else readable_json
        self._store = store
        self._stream = stream
        self._lists = lists
        self._all_lists = all_lists
        self._known: dict[str, list[Any]] = {}

    def plain(self, value: Raw) -> Any:
        """A value as plain JSON data. It may share parts with others, so it is for reading."""
        with damage_in(self._stream):
            return self._plain(value)

    def _plain(self, value: Raw) -> Any:
        data = bytes(value)
        if not data.startswith(LISTED):
            return decode(self._shown(fetch(self._store, value, {}, dict)))
        if _TAG.search(data, len(LISTED)):  # a place may be inside of a tag
            return decode(self._shown(self._whole(value)))
        form = form_of(data)
        found = self._plain(form.value)
        for place in form.places:
            items = list(self._items(place.digest))
            if not place.path:
                return items
            holder = found
            for key in place.path[:-1]:
                holder = holder[key]
            holder[place.path[-1]] = items
        return found

    def _whole(self, value: Raw) -> bytes:
        return fetch(self._store, value, self._lists, self._all_lists)

    def _items(self, digest: str) -> list[Any]:
        grown: list[ListGrew] = []
        while digest and digest not in self._known:
            event = self._grown(digest)
            if grown and event.length >= grown[-1].length:  # or else there may be no end to it
                raise Illegible(f"a list of {event.length:,} items comes before a shorter one")
            grown.append(event)
            digest = event.base or ""
        items = self._known.get(digest, [])
        for event in reversed(grown):
            new = decode(self._shown(b"[%b]" % items_of(self._store, event)))
            items = self._known[event.digest] = items + new
        return items

    def _grown(self, digest: str) -> ListGrew:
        event = self._lists.get(digest)
        if event is None or event.items is UNSET:
            self._lists = self._all_lists()
            event = self._lists.get(digest)
        if event is None:
            raise Illegible(f"a value names a list that is not in its log ({digest:.80})")
        return event


def items_of(store: Blobs, grown: ListGrew) -> bytes:
    """The items that a list grew by: JSON without the brackets around it."""
    raw = grown.items if isinstance(grown.items, Raw) else Raw(b"[]")
    return fetch(store, raw, {}, dict)[1:-1]


def raws_in(event: Struct) -> Iterator[Raw]:
    """The values that stand in an event."""
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if isinstance(value, Raw):
            yield value
        elif isinstance(value, Struct):
            yield from raws_in(value)


def lists_in(value: Raw) -> list[str]:
    """The digests of the long lists that a value in an event names."""
    data = bytes(value)
    with suppress(Illegible):
        return [place.digest for place in form_of(data).places] if data.startswith(LISTED) else []
    return []  # which `blobs_in` tells


def blobs_in(value: Raw) -> Iterator[str]:
    """The digests of the blobs that a value in an event names. A senseless one is reported."""
    data = bytes(value)
    try:
        if data.startswith(BLOB):
            yield _blob_ref(data).digest
        elif data.startswith(LISTED):
            yield from blobs_in(form_of(data).value)
    except Illegible:
        yield data.decode(errors="replace")


# Which blobs are named: found in raw bytes, so that no name is ever overlooked.
#
#     {"$blob":"<64 hex>", …}     a value that is kept in a blob, and may itself name others
#     {"$parts":"<64 hex>", …}    an artifact: a blob that names its parts
#     {"$part":"<64 hex>", …}     a part of one, which is content and nothing else
#     {"$type":"Artifact","of":{"digest":"<64 hex>", …     an artifact in a value that has tags
#
# They are looked for in the bytes, wherever they stand and however deep. A text of a user that
# looks like one (it stands in a JSON string, with its quotes escaped) counts too, if there is such
# a blob: that keeps a blob alive that nobody needs, and does no harm. If there is none, nothing is
# missing.


_REFERENCE = re.compile(rb'(\\*)(?:"\$*)?\$(blob|parts?)(\\*)"\s*:\s*\\*"([0-9a-f]{64})')

_TAGGED = re.compile(
    rb'\$type\\*"\s*:\s*\\*"Artifact\\*"\s*,\s*\\*"of\\*"\s*:\s*\{\s*'
    rb'\\*"digest\\*"\s*:\s*\\*"([0-9a-f]{64})'
)

GetBlob = Callable[[str], bytes]


class Reference(Struct, frozen=True, array_like=True):
    """A name of a blob."""

    digest: str
    kind: Literal["blob", "parts", "part"]
    is_sure: bool
    """Whether it is one, and does not only look like it."""

    @property
    def names_more(self) -> bool:
        """Whether the blob may name others in turn."""
        return self.kind != "part"


def references(data: bytes) -> Iterator[Reference]:
    """The blobs that bytes name.

    >>> list(references(b'{"args":{"$part":"%s","size_bytes":9}}' % (b"0" * 64)))
    [Reference(digest='0000...', kind='part', is_sure=True)]
    """
    for before, kind, after, digest in _REFERENCE.findall(data):
        yield Reference(digest.decode(), kind.decode(), not before and not after)
    for digest in _TAGGED.findall(data):  # a class of a user's may have the same name
        yield Reference(digest.decode(), "parts", False)


def may_name(data: bytes) -> bool:
    """Whether there is anything to look for. Quick, and right if it says no.

    >>> may_name(b'{"a":1}')
    False
    """
    return b"$blob" in data or b"$part" in data or b'"Artifact' in data


def blob_of(reference: Reference, get_blob: GetBlob) -> bytes | None:
    """The blob that is named; None if there is none, and it was not sure that there is one."""
    try:
        return get_blob(reference.digest)
    except (LogDamaged, ArchiveDamaged):
        if reference.is_sure:
            raise
        return None


class Naming:
    """Follows references to the end. Each blob is read once, however many name it."""

    def __init__(self, get_blob: GetBlob) -> None:
        self._get_blob = get_blob
        self._in_blob: dict[str, list[Reference]] = {}

    def named_by(self, pieces: Iterable[bytes]) -> set[str]:
        """The blobs that are named by pieces of data, and by the blobs among them."""
        found: set[str] = set()
        followed: set[str] = set()
        waiting = [reference for data in pieces for reference in references(data)]
        while waiting:
            reference = waiting.pop()
            found.add(reference.digest)
            if reference.names_more and reference.digest not in followed:
                followed.add(reference.digest)
                waiting += self._names_in(reference)
        return found

    def _names_in(self, reference: Reference) -> list[Reference]:
        if reference.digest not in self._in_blob:
            blob = blob_of(reference, self._get_blob)
            if blob is None:
                return []
            self._in_blob[reference.digest] = list(references(blob))
        return self._in_blob[reference.digest]
