"""How values are kept: in a line of the log, in a blob, or by naming lists that the log has.

What is small stands in the event itself. What is too large for a line goes to a blob first, and
the event holds a reference. Long lists are taken out and stored once (see `lists`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct

from holdfast.decoding import MOST_LEVELS, Illegible, damage_in, decode, decoder, is_too_deep
from holdfast.errors import TooLarge, Unserializable
from holdfast.events import ListGrew
from holdfast.lists import (
    BLOB,
    LISTED,
    REFERENCES,
    BlobRef,
    Lists,
    Place,
    form_of,
    pieces,
    whole,
)

INLINE_BYTES = 64 * 1024
MAX_VALUE_BYTES = 64 * 1024 * 1024


class Blobs(Protocol):
    """What is needed of a store."""

    def put_blob(self, data: bytes) -> str:
        """Keep bytes, durably, under the digest that is returned."""

    def get_blob(self, digest: str) -> bytes:
        """The bytes again."""


PARTS = "$parts"
"""How an artifact names the blob that lists its parts."""


class Part(msgspec.Struct, frozen=True):
    """One piece of an artifact: a blob that holds nothing but content."""

    digest: str = msgspec.field(name="$part")
    size_bytes: int


class Parts(msgspec.Struct, frozen=True):
    """What is in the blob that an artifact names."""

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

    def array_of(place: Place) -> bytes:
        grown = pieces(lists, place.digest) or pieces(all_lists(), place.digest)
        if grown is None:
            raise Illegible(f"a value names a list that is not in its log ({place.digest:.80})")
        return b"[%b]" % b",".join(items_of(store, each) for each in grown)

    return whole(data, array_of, lambda raw: fetch(store, raw, lists, all_lists))


class Reader:
    """Values as plain data, for who looks at many: the items of lists that grew are shared."""

    def __init__(
        self, store: Blobs, stream: str, lists: Lists, all_lists: Callable[[], Lists]
    ) -> None:
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
            return decode(fetch(self._store, value, {}, dict))
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
            new = decode(b"[%b]" % items_of(self._store, event))
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


def blobs_in(value: Raw) -> Iterator[str]:
    """The digests of the blobs that a value in an event names. One that makes no sense is told."""
    data = bytes(value)
    try:
        if data.startswith(BLOB):
            yield _blob_ref(data).digest
        elif data.startswith(LISTED):
            yield from blobs_in(form_of(data).value)
    except Illegible:
        yield data.decode(errors="replace")
