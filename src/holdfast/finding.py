"""Which streams match a query, and in which order: the rule that every store keeps.

A store with an index of its own finds a page by it; any other may say

    def find(self, query):
        return finding.find(query, self.facts(query.prefix))

The order is that of creation, the newest first, and a page begins where the one before it ended:
at a place in that order, and not at a count, so what is added or removed meanwhile moves nothing.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from datetime import UTC, datetime
from heapq import nlargest

import msgspec

from holdfast.errors import BadInput
from holdfast.store import Facts, Page, Place, Query

_EQUAL = ("task", "user", "session", "parent")


def find(query: Query, streams: Iterable[tuple[str, Facts | None]]) -> Page:
    """A page, of what is known of all streams."""
    known: list[tuple[str, Facts]] = []
    unknown = []
    for stream, facts in streams:
        if facts is None:
            unknown.append(stream)
        elif matches(query, stream, facts):
            known.append((stream, facts))
    found = in_order(known, query.limit + 1)
    return Page(found[: query.limit], len(found) > query.limit, unknown)


def in_order(streams: Iterable[tuple[str, Facts]], limit: int) -> list[tuple[str, Facts]]:
    """The first of them, in the order of a page."""
    return nlargest(limit, streams, key=lambda each: place_of(*each))


def place_of(stream: str, facts: Facts) -> Place:
    """Where a stream stands in a list."""
    return Place(facts.created_at, stream)


def matches(query: Query, stream: str, facts: Facts) -> bool:
    """Whether a stream is one of those that are asked for, on this page or on a later one.

    >>> matches(Query(user="ada"), "tasks/t", Facts("plan", user="ada"))
    True
    """
    for name in _EQUAL:
        wanted = getattr(query, name)
        if wanted is not None and getattr(facts, name) != wanted:
            return False
    return (
        stream.startswith(query.prefix)
        and (not query.status or facts.status in query.status)
        and (query.beyond is None or place_of(stream, facts) < query.beyond)
        and query.labels.items() <= facts.labels.items()
        and _is_within(facts.created_at, query.created_after, query.created_before)
        and _is_within(facts.updated_at, query.updated_after, query.updated_before)
    )


def _is_within(time: datetime, after: datetime | None, before: datetime | None) -> bool:
    return (after is None or time >= after) and (before is None or time < before)


_PlaceText = msgspec.json.Decoder(tuple[datetime, str])


def cursor_of(place: Place) -> str:
    """A place as a text that can be handed out, and given back to go on from there.

    >>> place = Place(datetime(2026, 1, 1, tzinfo=UTC), "tasks/t-1")
    >>> place_in(cursor_of(place)) == place
    True
    """
    return urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def place_in(cursor: str) -> Place:
    """The place that a cursor stands for."""
    try:
        data = urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
        created_at, stream = _PlaceText.decode(data)
        place = Place(created_at.astimezone(UTC), stream)
        if created_at.tzinfo is not None and stream.isprintable() and cursor_of(place) == cursor:
            return place
    except (AttributeError, binascii.Error, msgspec.MsgspecError, UnicodeError, OverflowError):
        pass
    raise BadInput(
        f"cursor={cursor!a:.60} is none that was given out: take it from the page before, whole"
    )
