"""Which streams match a query, and in which order: the rule that every store keeps.

A store with an index of its own finds a page by it; any other may say

    def find(self, query):
        return finding.find(query, all_streams_with_their_facts)

The order is that of creation, the newest first; in a list of what is due, the longest due comes
first. A page begins where the one before it ended: at a place in that order, and not at a count, so
what is added or removed meanwhile moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from heapq import nlargest
from operator import attrgetter

import msgspec

from holdfast.core.decoding import NONSENSE, Illegible, decoder
from holdfast.core.events import NEVER
from holdfast.errors import BadInput
from holdfast.stores.port import Facts, Page, PagePlace, Query


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
    return page_of(in_order(query, known), query.limit, unknown)


def page_of(
    found: Sequence[tuple[str, Facts]], limit: int | None, unknown: Sequence[str] = ()
) -> Page:
    """A page of those found, which may be more than belong on it."""
    if limit is None:
        return Page(found, False, unknown)
    return Page(found[:limit], len(found) > limit, unknown)


def in_order(query: Query, streams: Iterable[tuple[str, Facts]]) -> list[tuple[str, Facts]]:
    """The tasks that match, in order: one more than belong on the page, if there are so many."""
    if query.due_by is not None:
        found = sorted(streams, key=_due_place)
        return found if query.limit is None else found[: query.limit + 1]
    if query.limit is None:
        return sorted(streams, key=_place, reverse=True)
    return nlargest(query.limit + 1, streams, key=_place)


def place_of(stream: str, facts: Facts) -> PagePlace:
    """Where a stream stands in a list."""
    return PagePlace(facts.created_at, stream)


def _place(each: tuple[str, Facts]) -> tuple[datetime, str]:
    return each[1].created_at, each[0]  # as `place_of`, in half the time


def _due_place(each: tuple[str, Facts]) -> tuple[datetime, str]:
    return each[1].wake_at or NEVER, each[0]


def matcher(query: Query) -> Callable[[str, Facts], bool]:
    """Whether a stream is one of those that are asked for, on this page or on a later one.

    >>> matcher(Query(user="ada"))("tasks/t", Facts("plan", user="ada"))
    True
    """
    checks = list(_checks(query))  # only of what was given: there may be many streams
    prefix, beyond, due_by = query.prefix, query.beyond, query.due_by

    def is_due(stream: str, facts: Facts) -> bool:
        wake_at = facts.wake_at
        if wake_at is None or due_by is None or wake_at > due_by:
            return False
        return beyond is None or (wake_at, stream) > beyond

    def matches(stream: str, facts: Facts) -> bool:
        for check in checks:
            if not check(facts):
                return False
        if due_by is not None:
            return is_due(stream, facts) and stream.startswith(prefix)
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


def cursor_of(place: PagePlace) -> str:
    """A place as a text that can be handed out, and given back to go on from there.

    >>> place = PagePlace(datetime(2026, 1, 1, tzinfo=UTC), "tasks/t-1")
    >>> place_in(cursor_of(place)) == place
    True
    """
    from base64 import urlsafe_b64encode  # slow to import, and not every list has a second page

    return urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def place_in(cursor: str) -> PagePlace:
    """The place that a cursor stands for."""
    from base64 import urlsafe_b64decode

    try:
        data = urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
        created_at, stream = _place_text(data)
        place = PagePlace(created_at.astimezone(UTC), stream)
        if created_at.tzinfo is not None and stream.isprintable() and cursor_of(place) == cursor:
            return place
    except (*NONSENSE, Illegible):
        pass
    raise BadInput(
        f"cursor={cursor!a:.60} is none that was given out: take it from the page before, whole"
    )
