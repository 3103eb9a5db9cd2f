"""Which streams match a query, and in which order: the rule that every store keeps.

A store with an index of its own finds a page by it; any other may say

    def find(self, query):
        return finding.find(query, self.facts(query.prefix))

The order is that of creation, the newest first, and a page begins where the one before it ended:
at a place in that order, and not at a count, so what is added or removed meanwhile moves nothing.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from heapq import nlargest
from operator import attrgetter

import msgspec

from holdfast.decoding import NONSENSE, Illegible, decoder
from holdfast.errors import BadInput
from holdfast.store import Facts, Page, Place, Query


def find(query: Query, streams: Iterable[tuple[str, Facts | None]]) -> Page:
    """A page, of what is known of all streams."""
    matches = matcher(query)
    known: list[tuple[str, Facts]] = []
    unknown = []
    for stream, facts in streams:
        if facts is None:
            unknown.append(stream)
        elif matches(stream, facts):
            known.append((stream, facts))
    found = in_order(known, query.limit + 1)
    return Page(found[: query.limit], len(found) > query.limit, unknown)


def in_order(streams: Iterable[tuple[str, Facts]], limit: int) -> list[tuple[str, Facts]]:
    """The first of them, in the order of a page."""
    return nlargest(limit, streams, key=_place)


def place_of(stream: str, facts: Facts) -> Place:
    """Where a stream stands in a list."""
    return Place(facts.created_at, stream)


def _place(each: tuple[str, Facts]) -> tuple[datetime, str]:
    return each[1].created_at, each[0]  # as `place_of`, in half the time


def matcher(query: Query) -> Callable[[str, Facts], bool]:
    """Whether a stream is one of those that are asked for, on this page or on a later one.

    >>> matcher(Query(user="ada"))("tasks/t", Facts("plan", user="ada"))
    True
    """
    checks = list(_checks(query))  # only of what was given: there may be many streams
    prefix, beyond = query.prefix, query.beyond

    def matches(stream: str, facts: Facts) -> bool:
        for check in checks:
            if not check(facts):
                return False
        after = beyond is None or (facts.created_at, stream) < beyond
        return after and stream.startswith(prefix)

    return matches


def _checks(query: Query) -> Iterator[Callable[[Facts], bool]]:
    status, labels = query.status, query.labels.items()
    if status:
        yield lambda facts: facts.status in status
    if labels:
        yield lambda facts: labels <= facts.labels.items()
    for name in ("task", "user", "session", "parent", "origin"):
        if (text := getattr(query, name)) is not None:
            yield partial(_equals, attrgetter(name), text)
    for name in ("created", "updated"):
        after, before = getattr(query, f"{name}_after"), getattr(query, f"{name}_before")
        if after is not None or before is not None:
            yield partial(_is_within, attrgetter(f"{name}_at"), after, before)


def _equals(get: Callable[[Facts], str], text: str, facts: Facts) -> bool:
    return get(facts) == text


def _is_within(
    get: Callable[[Facts], datetime], after: datetime | None, before: datetime | None, facts: Facts
) -> bool:
    time = get(facts)
    return (after is None or time >= after) and (before is None or time < before)


_place_text = decoder(tuple[datetime, str])


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
        created_at, stream = _place_text(data)
        place = Place(created_at.astimezone(UTC), stream)
        if created_at.tzinfo is not None and stream.isprintable() and cursor_of(place) == cursor:
            return place
    except (*NONSENSE, Illegible):
        pass
    raise BadInput(
        f"cursor={cursor!a:.60} is none that was given out: take it from the page before, whole"
    )
