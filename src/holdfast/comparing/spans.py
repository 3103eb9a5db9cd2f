"""Spans of time, and how long they are together."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

Span = tuple[datetime, datetime]


def joined(spans: Iterable[Span]) -> list[Span]:
    """The time that is in any of the spans, as spans that don't touch.

    >>> noon, hour = datetime(2024, 5, 1, 12), timedelta(hours=1)
    >>> [end.hour for _, end in joined([(noon, noon + hour), (noon, noon + 2 * hour)])]
    [14]
    """
    found: list[Span] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def without(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """The time that is in the spans, and in none of the others.

    >>> noon, hour = datetime(2024, 5, 1, 12), timedelta(hours=1)
    >>> left = without([(noon, noon + 3 * hour)], [(noon + hour, noon + 2 * hour)])
    >>> [(begin.hour, end.hour) for begin, end in left]
    [(12, 13), (14, 15)]
    """
    gone = joined(others)
    found: list[Span] = []
    at = 0
    for begin, end in joined(spans):
        while at < len(gone) and gone[at][1] <= begin:
            at += 1
        for from_, to in gone[at:]:
            if from_ >= end:
                break
            found.append((begin, from_))
            begin = max(begin, to)
        found.append((begin, end))
    return joined(found)


def seconds(spans: Iterable[Span]) -> float:
    """How long the spans are together.

    >>> noon = datetime(2024, 5, 1, 12)
    >>> seconds([(noon, noon + timedelta(minutes=1))] * 2)
    60.0
    """
    return sum((end - begin for begin, end in joined(spans)), timedelta()).total_seconds()
