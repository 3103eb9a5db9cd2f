"""Which items of two lists belong together, so that they can be compared one by one.

Items that say who they are (`id`, `path` or `name`) are matched by that. Others are matched where
they are the same; of what is left between those, an item and the one that stands in its place.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.differences.matching import Pair, common, ends, gaps, in_order

KEYS = ("id", "path", "name")
"""By which of its fields an item is known, if every item has one of its own."""

_MOST_COMPARED = 400
_ALIKE = 0.3


def canonical(value: Any) -> bytes:
    """A value as bytes that are the same for the same value only, whatever the order of keys.

    >>> canonical({"b": 1.0, "a": True})
    b'{"a":true,"b":1.0}'
    """
    return msgspec.json.encode(value, order="deterministic")


def matched(before: list[Any], after: list[Any]) -> list[Pair]:
    """The places of the items that belong together, in order on both sides.

    >>> matched([{"id": 1}, {"id": 2, "at": 7}], [{"id": 0}, {"id": 2, "at": 9}])
    [(1, 1)]
    >>> matched(["a", "b", "c"], ["z", "a", "x", "c"])
    [(0, 1), (1, 2), (2, 3)]
    """
    if not before or not after:
        return []
    for key in KEYS:
        olds, news = _names(before, key), _names(after, key)
        if olds.keys() & news.keys():
            return in_order(olds, news)
    pairs = common([*map(canonical, before)], [*map(canonical, after)])
    return _with_changed(pairs, before, after)


def _names(items: list[Any], key: str) -> dict[str | int, None]:
    """What the items are called, in order. Nothing if one has no name, or not for itself."""
    found: dict[str | int, None] = {}
    for item in items:
        name = item.get(key) if type(item) is dict else None
        if not isinstance(name, (str, int)) or isinstance(name, bool) or name in found:
            return {}
        found[name] = None
    return found


def _with_changed(pairs: list[Pair], before: list[Any], after: list[Any]) -> list[Pair]:
    """The pairs, and between each two of them those of items that changed."""
    found = list(pairs)
    for i, i_end, j, j_end in gaps(pairs, len(before), len(after)):
        changed = _in_place(before[i:i_end], after[j:j_end])
        found += ((i + m, j + n) for m, n in changed)
    return sorted(found)


def _in_place(olds: list[Any], news: list[Any]) -> list[Pair]:
    """Which of the newer items stand in the place of which older ones."""
    if len(olds) == len(news) or len(olds) * len(news) > _MOST_COMPARED:
        return [(n, n) for n in range(min(len(olds), len(news)))]
    # Some came or went as well. Of all ways to match them in order, the one with most in common.
    best = [[(0.0, 0)] * (len(news) + 1) for _ in range(len(olds) + 1)]
    for i in range(len(olds) - 1, -1, -1):
        for j in range(len(news) - 1, -1, -1):
            share = _alike(olds[i], news[j])
            both = (share + best[i + 1][j + 1][0] if share >= _ALIKE else -1.0, 0)
            best[i][j] = max(both, (best[i + 1][j][0], -1), (best[i][j + 1][0], -2))
    found = []
    i = j = 0
    while i < len(olds) and j < len(news):
        step = best[i][j][1]
        if step == 0:
            found.append((i, j))
        i, j = i + (step != -2), j + (step != -1)
    return found


def _alike(one: Any, other: Any) -> float:
    """How much two items have in common, from 0 to 1."""
    if type(one) is not type(other):
        return 0.0
    if isinstance(one, dict):
        shared = sum(1 for key, value in one.items() if key in other and other[key] == value)
        return shared / max(len(one), len(other), 1)
    if isinstance(one, (list, str)):
        head, tail = ends(one, other)
        return (head + tail) / max(len(one), len(other), 1)
    return 0.0
