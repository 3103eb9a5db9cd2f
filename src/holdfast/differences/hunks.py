"""Where two long texts differ: by lines, or by words where a line is long.

A hunk is one place: what stood there, what stands there now, and a little of what is around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from holdfast.differences.matching import common, gaps

LONG = 80
"""A text with more characters than this, or of several lines, is compared inside."""

_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_AROUND = {"lines": 2, "words": 9}  # gaps and marks are words too


class Hunk(Struct, frozen=True, omit_defaults=True):
    """One place at which two texts differ.

    `at` and `to` are where it begins in the one and in the other, in characters; `line` is the line
    of the first, counted from 1.

    >>> [hunk] = hunks("one\\ntwo\\nthree\\n", "one\\n2\\nthree\\n")
    >>> hunk.line, hunk.removed, hunk.added, hunk.ahead
    (2, 'two\\n', '2\\n', 'one\\n')
    """

    at: int
    to: int
    line: int
    by: Literal["lines", "words"]
    removed: str = ""
    added: str = ""
    ahead: str = ""
    """What stands ahead of it, in both."""
    behind: str = ""


def is_long(text: str) -> bool:
    """Whether a text is worth a look inside.

    >>> is_long("book the room"), is_long("one\\ntwo")
    (False, True)
    """
    return len(text) > LONG or "\n" in text


def hunks(before: str, after: str) -> tuple[Hunk, ...]:
    """Every place at which two texts differ, in order.

    >>> text = "The room costs 120 a night, and has a desk and a window to the sea"
    >>> [(h.removed, h.added) for h in hunks(text, text.replace("120", "95"))]
    [('120', '95')]
    """
    if "\n" not in before and "\n" not in after:
        return tuple(_hunks(before, after, "words"))
    return tuple(finer for hunk in _hunks(before, after, "lines") for finer in _finer(hunk))


def turned(hunk: Hunk) -> Hunk:
    """The same place, looked at from the other text. Its line stays that of the first."""
    return replace(hunk, at=hunk.to, to=hunk.at, removed=hunk.added, added=hunk.removed)


def _hunks(before: str, after: str, by: Literal["lines", "words"]) -> Iterator[Hunk]:
    pattern = _LINES if by == "lines" else _WORDS
    olds, news = pattern.findall(before), pattern.findall(after)
    starts, new_starts = _starts(olds), _starts(news)
    found = list(gaps(common(olds, news), len(olds), len(news)))
    shown = line = counted = 0
    for number, (i, i_end, j, j_end) in enumerate(found):
        following = found[number + 1][0] if number + 1 < len(found) else len(olds)
        ahead = max(i - _AROUND[by], shown)  # nothing is shown behind the one and ahead of the next
        shown = min(i_end + _AROUND[by], following)
        line += before.count("\n", counted, starts[i])
        counted = starts[i]
        yield Hunk(
            starts[i],
            new_starts[j],
            line + 1,
            by,
            before[starts[i] : starts[i_end]],
            after[new_starts[j] : new_starts[j_end]],
            before[starts[ahead] : starts[i]],
            before[starts[i_end] : starts[shown]],
        )


def _starts(pieces: list[str]) -> list[int]:
    """Where each piece of a text begins, and where the last one ends."""
    return list(accumulate(map(len, pieces), initial=0))


def _finer(hunk: Hunk) -> Iterator[Hunk]:
    """A long line that became another, by its words: a paragraph is often one line."""
    old, new = hunk.removed, hunk.added
    is_one_each = "\n" not in old[:-1] and "\n" not in new[:-1]
    if not is_one_each or min(len(old), len(new)) <= LONG:
        yield hunk
        return
    for inner in _hunks(old, new, "words"):
        yield replace(inner, at=hunk.at + inner.at, to=hunk.to + inner.to, line=hunk.line)
