"""A diff for people: a line for each change, and of long texts the lines around it.

The lines are plain text in which nothing acts on a terminal; whoever prints them may colour them by
their markers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct

from holdfast.core.words import cut, plain
from holdfast.history.differences.differing import Change, Diff, Hunk, place

Marker = Literal["+", "~", "-", "@", " "]

_MOST_LINES = 20


class DiffLine(Struct, frozen=True):
    """One line. `inside` a text that changed, or about a change as a whole.

    >>> print(DiffLine("+", 'plan[2]  "book the room"'))
    + plan[2]  "book the room"
    """

    marker: Marker
    text: str
    inside: bool = False

    def __str__(self) -> str:
        return f"{'    ' if self.inside else ''}{self.marker} {self.text}".rstrip()


def describe(made: Diff, *, most: int | None = 100) -> list[DiffLine]:
    """A diff as lines: `+` for what was added, `~` for what changed, `-` for what was removed.

    A value is cut after so many characters; with `most=None` nothing is cut.

    >>> from holdfast.history.differences.differing import diff
    >>> before = {"plan": ["search"], "price": 120, "text": "Dear Ada,\\nsee you in Oslo.\\n"}
    >>> after = {"plan": ["search", "book"], "text": "Dear Ada,\\nsee you in Bergen.\\n"}
    >>> for line in describe(diff(before, after)):
    ...     print(line)
    + plan[1]  "book"
    - price  120
    ~ text
        @ line 2
          Dear Ada,
        - see you in Oslo.
        + see you in Bergen.
    """
    return [line for change in made.changes for line in _lines(change, most)]


def _lines(change: Change, most: int | None) -> Iterator[DiffLine]:
    where = place(change.where)
    if change.what == "added":
        yield DiffLine("+", f"{where}  {_short(change.after, most)}")
    elif change.what == "removed":
        yield DiffLine("-", f"{where}  {_short(change.before, most)}")
    elif not change.hunks:
        both = f"{_short(change.before, most)} -> {_short(change.after, most)}"
        yield DiffLine("~", f"{where}  {both}")
    else:
        yield DiffLine("~", where)
        for hunk in change.hunks:
            by_words = hunk.by == "words"
            yield from _words(hunk, len(change.before), most) if by_words else _text(hunk, most)


def _text(hunk: Hunk, most: int | None) -> Iterator[DiffLine]:
    yield DiffLine("@", f"line {hunk.line}", inside=True)
    yield from _marked(" ", hunk.ahead, most)
    # Where only the ends of lines differ, these have to be seen.
    is_end = hunk.removed.rstrip("\n") == hunk.added.rstrip("\n")
    yield from _marked("-", hunk.removed, most, with_ends=is_end)
    yield from _marked("+", hunk.added, most, with_ends=is_end)
    yield from _marked(" ", hunk.behind, most)


def _marked(
    marker: Marker, text: str, most: int | None, *, with_ends: bool = False
) -> Iterator[DiffLine]:
    lines = text.split("\n")
    lines = [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    if not with_ends:
        lines = [line.removesuffix("\n") for line in lines]
    kept = lines if most is None else lines[:_MOST_LINES]
    for line in kept:
        yield DiffLine(marker, _cut(plain(line), most), inside=True)
    if left := len(lines) - len(kept):
        yield DiffLine(marker, f"… {left:,} more lines", inside=True)


def _words(hunk: Hunk, length: int, most: int | None) -> Iterator[DiffLine]:
    end = hunk.at + len(hunk.removed) + len(hunk.behind)
    ahead = ("…" if hunk.at > len(hunk.ahead) else "") + plain(hunk.ahead)
    behind = plain(hunk.behind) + ("…" if end < length else "")
    yield DiffLine("@", f"line {hunk.line}", inside=True)
    yield DiffLine("-", f"{ahead}{_cut(plain(hunk.removed), most)}{behind}", inside=True)
    yield DiffLine("+", f"{ahead}{_cut(plain(hunk.added), most)}{behind}", inside=True)


def _short(value: Any, most: int | None) -> str:
    return _cut(plain(msgspec.json.encode(value).decode()), most)


def _cut(text: str, most: int | None) -> str:
    return text if most is None else cut(text, most)
