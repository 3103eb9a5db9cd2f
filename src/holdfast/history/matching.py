"""Which items of two lists are the same ones: pairs of places, in order on both sides.

The longest common subsequence (Myers' algorithm), so that one item put in at the front is one item
more, and not a list of which everything changed. Its work is bounded: lists that differ in
thousands of places are matched by the items that each has exactly once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import msgspec

Pair = tuple[int, int]

_MOST_EDITS = 500
_MOST_STEPS = 1_000_000


def common(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[Pair]:
    """The pairs of places of a common subsequence: the longest, unless the lists differ a lot.

    >>> common("abcd", "xabd")
    [(0, 1), (1, 2), (3, 3)]
    """
    head, tail = ends(before, after)
    olds = range(head, len(before) - tail)
    news = range(head, len(after) - tail)
    # An item that only one side has is in no pair; without such items most lists are almost equal.
    on_both = {before[i] for i in olds} & {after[j] for j in news}
    olds_kept = [i for i in olds if before[i] in on_both]
    news_kept = [j for j in news if after[j] in on_both]
    inner = _common([before[i] for i in olds_kept], [after[j] for j in news_kept])
    found = [(i, i) for i in range(head)]
    found += ((olds_kept[i], news_kept[j]) for i, j in inner)
    found += ((len(before) - n, len(after) - n) for n in range(tail, 0, -1))
    return found


def in_order(before: Iterable[Hashable], after: Iterable[Hashable]) -> list[Pair]:
    """The same for items that each side has once at the most: in any number, without a bound.

    >>> in_order("abcd", "dabx")
    [(0, 1), (1, 2)]
    """
    places = {item: j for j, item in enumerate(after)}
    pairs = [(i, places[item]) for i, item in enumerate(before) if item in places]
    return _increasing(pairs)


def gaps(pairs: Iterable[Pair], before: int, after: int) -> Iterator[tuple[int, int, int, int]]:
    """The gaps between the pairs, in lists of these lengths: from where to where, on either side.

    >>> list(gaps(common("abcd", "xabd"), 4, 4))
    [(0, 0, 0, 1), (2, 3, 3, 3)]
    """
    from_i = from_j = 0
    for i, j in chain(pairs, [(before, after)]):
        if from_i < i or from_j < j:
            yield from_i, i, from_j, j
        from_i, from_j = i + 1, j + 1


def ends(before: Sequence[Hashable], after: Sequence[Hashable]) -> Pair:
    """How many items at the beginning, and then at the end, are the same.

    >>> ends("abxd", "abyyd")
    (2, 1)
    """
    least = min(len(before), len(after))
    head = 0
    while head < least and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < least - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    return head, tail


def _common(before: list[Hashable], after: list[Hashable]) -> list[Pair]:
    if not before or not after:
        return []
    trail = _trail(before, after)
    return _by_the_rare(before, after) if trail is None else _back(trail, before, after)


def _trail(before: list[Hashable], after: list[Hashable]) -> list[dict[int, int]] | None:
    """How far each number of edits leads on each diagonal; None if it took too long to know.

    A diagonal `k` is where `i - j == k`. One more edit leads to a neighbour of it, and from there
    as far as the items are the same.
    """
    furthest = {1: 0}
    trail: list[dict[int, int]] = []
    steps = 0
    for edits in range(min(len(before) + len(after), _MOST_EDITS) + 1):
        trail.append(furthest.copy())
        for k in range(-edits, edits + 1, 2):
            i = _before_edit(furthest, k, edits)[1]
            j = i - k
            start = i
            while i < len(before) and j < len(after) and before[i] == after[j]:
                i, j = i + 1, j + 1
            furthest[k] = i
            steps += 1 + i - start
            if i >= len(before) and j >= len(after):
                return trail
        if steps > _MOST_STEPS:
            return None
    return None


def _before_edit(furthest: dict[int, int], k: int, edits: int) -> Pair:
    """The diagonal from which `k` is reached by one edit, and the `i` at which it is reached."""
    if k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1]):
        return k + 1, furthest[k + 1]
    return k - 1, furthest[k - 1] + 1


def _back(trail: list[dict[int, int]], before: list[Hashable], after: list[Hashable]) -> list[Pair]:
    found: list[Pair] = []
    i, j = len(before), len(after)
    for edits in range(len(trail) - 1, -1, -1):
        k = i - j
        came_from, start = _before_edit(trail[edits], k, edits)
        while i > start and j > 0:
            i, j = i - 1, j - 1
            found.append((i, j))
        if edits:
            i = trail[edits][came_from]
            j = i - came_from
    return found[::-1]


def _by_the_rare(before: list[Hashable], after: list[Hashable]) -> list[Pair]:
    """Pairs of the items that each side has once, and of equal ones next to those."""
    olds, news = Counter(before), Counter(after)
    rare = {item for item, times in olds.items() if times == news[item] == 1}
    places = {item: j for j, item in enumerate(after) if item in rare}
    anchors = _increasing([(i, places[item]) for i, item in enumerate(before) if item in rare])
    found: list[Pair] = []
    from_i = from_j = 0
    for i, j in [*anchors, (len(before), len(after))]:
        head, tail = ends(before[from_i:i], after[from_j:j])
        found += ((from_i + n, from_j + n) for n in range(head))
        found += ((i - n, j - n) for n in range(tail, 0, -1))
        if i < len(before):
            found.append((i, j))
        from_i, from_j = i + 1, j + 1
    return found


def _increasing(pairs: list[Pair]) -> list[Pair]:
    """The longest run of pairs in which both places increase. The first places already do."""
    ends: list[int] = []  # by length: the least second place that a chain so long ends with
    last: list[int] = []  # and which pair that is
    chained: list[int] = []
    for number, (_, place) in enumerate(pairs):
        length = bisect_left(ends, place)
        chained.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [place]
        last[length : length + 1] = [number]
    found = []
    at = last[-1] if last else -1
    while at >= 0:
        found.append(pairs[at])
        at = chained[at]
    return found[::-1]


# Which items of two lists belong together, so that they can be compared one by one.
#
# Items that say who they are (`id`, `path` or `name`) are matched by that. Others are matched
# where they are the same; between those, an item is matched with the one in its place.


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
    """The names of the items, in order. Empty if one has no name, or shares it."""
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
    """Which newer items take the place of which older ones."""
    if len(olds) == len(news) or len(olds) * len(news) > _MOST_COMPARED:
        return [(n, n) for n in range(min(len(olds), len(news)))]
    # Some were added or removed as well. Take the match in order that has most in common.
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
