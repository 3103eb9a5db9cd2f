"""The difference between two values: a list of changes that leads from one to the other.

Values are plain JSON data. A change says where it is, by keys and places; items of lists are
matched first (see `items`), so that what a list gained at the front is one item added. Types count
(`1`, `1.0` and `True` are three values), the order of keys does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from holdfast.core.words import cut, plain
from holdfast.errors import BadInput
from holdfast.history.matching import canonical, common, gaps, matched

# Where two long texts differ: by lines, or by words where a line is long.
#
# A hunk is one place: the old text, the new text, and a little of the text around it.


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
    """The text ahead of it, in both."""
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


What = Literal["added", "changed", "removed"]
Where = tuple[str | int, ...]


class Change(Struct, frozen=True, omit_defaults=True):
    """One thing that is different.

    `where` is a place in the newer value; for what was removed, in the older one. `before` and
    `after` are UNSET where there is none. Of a long text `hunks` say where it differs.
    """

    where: Where
    what: What
    before: Any = UNSET
    after: Any = UNSET
    was: Where | UnsetType = UNSET
    """For a changed value: its place in the older value, if its lists lost or gained items ahead of
    it."""
    hunks: tuple[Hunk, ...] = ()


class Diff(Struct, frozen=True):
    """Everything that is different between two values. False if nothing is.

    It is data: it can be written as JSON and read again.

    >>> made = diff({"plan": ["search"]}, {"plan": ["search", "book"]})
    >>> made.changes
    (Change(where=('plan', 1), what='added', before=UNSET, after='book', was=UNSET, hunks=()),)
    >>> import msgspec
    >>> from holdfast.core.decoding import decode
    >>> decode(msgspec.json.encode(made), Diff) == made
    True
    """

    changes: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)


def diff(before: Any, after: Any) -> Diff:
    """The changes that lead from one value to another.

    >>> for change in diff({"price": 120, "desk": True}, {"price": 95}).changes:
    ...     print(change.what, change.where, change.before, change.after)
    changed ('price',) 120 95
    removed ('desk',) True UNSET
    >>> bool(diff([1, {"a": None}], [1, {"a": None}]))
    False
    """
    found = _Finding()
    try:
        found.between(before, after, (), ())
    except RecursionError:
        raise BadInput("diff(): a value is nested too deep to be compared") from None
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise BadInput(f"diff() takes plain JSON data: {error}") from None
    return Diff(tuple(found.changes))


def inverse(made: Diff) -> Diff:
    """The changes that lead back.

    >>> back = inverse(diff(["search", "pay"], ["pay"]))
    >>> back.changes[0].what, back.changes[0].where, back.changes[0].after
    ('added', (0,), 'search')
    """
    return Diff(tuple(map(_turned, made.changes)))


def _turned(change: Change) -> Change:
    if change.what == "added":
        return Change(change.where, "removed", before=change.after)
    if change.what == "removed":
        return Change(change.where, "added", after=change.before)
    return Change(
        change.where if change.was is UNSET else change.was,
        "changed",
        change.after,
        change.before,
        UNSET if change.was is UNSET else change.where,
        tuple(map(turned, change.hunks)),
    )


class _Finding:
    """The changes found so far."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def between(self, before: Any, after: Any, was: Where, where: Where) -> None:
        """Find what is different at a place: `was` in the older value, `where` in the newer."""
        if before is after:
            return
        if type(before) is not type(after):
            self._changed(before, after, was, where)
        elif isinstance(after, dict):
            self._dicts(before, after, was, where)
        elif isinstance(after, list):
            self._lists(before, after, was, where)
        elif before != after or (isinstance(after, float) and repr(before) != repr(after)):
            self._changed(before, after, was, where)  # 0.0 and -0.0 are equal, and differ

    def _changed(self, before: Any, after: Any, was: Where, where: Where) -> None:
        inside: tuple[Hunk, ...] = ()
        if type(before) is type(after) is str and (is_long(before) or is_long(after)):
            inside = hunks(before, after)
        moved = UNSET if was == where else was
        self.changes.append(Change(where, "changed", before, after, moved, inside))

    def _dicts(
        self, before: dict[str, Any], after: dict[str, Any], was: Where, where: Where
    ) -> None:
        for key, value in before.items():
            if key in after:
                self.between(value, after[key], (*was, key), (*where, key))
            else:
                self.changes.append(Change((*was, key), "removed", before=value))
        for key, value in after.items():
            if key not in before:
                self.changes.append(Change((*where, key), "added", after=value))

    def _lists(self, before: list[Any], after: list[Any], was: Where, where: Where) -> None:
        if same(before, after):  # mostly so, and much faster than to match them
            return
        pairs = matched(before, after)
        for i, i_end, j, j_end in gaps(pairs, len(before), len(after)):
            for n in range(i, i_end):
                self.changes.append(Change((*was, n), "removed", before=before[n]))
            for n in range(j, j_end):
                self.changes.append(Change((*where, n), "added", after=after[n]))
        for i, j in pairs:
            self.between(before[i], after[j], (*was, i), (*where, j))


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same, types and all.

    >>> same({"a": 1, "b": 2}, {"b": 2, "a": 1}), same(1, True)
    (True, False)
    """
    return one is other or canonical(one) == canonical(other)


def place(where: Where) -> str:
    """A place as people write it.

    >>> place(("calls", "6", "output", "rooms", 0)), place(("calls", "6.1")), place(())
    ('calls.6.output.rooms[0]', 'calls["6.1"]', '(the whole)')
    """
    text = ""
    for key in where:
        if isinstance(key, int):
            text += f"[{key}]"
        elif key and all(c.isalnum() or c in "_-?~@" for c in key):
            text += f".{key}" if text else key
        else:
            text += f"[{plain(canonical(key).decode())}]"
    return text or "(the whole)"


# A diff, applied: the value that it leads to.
#
# Places in the older value (of what was removed) and in the newer one (of all else) are two trees,
# walked side by side: which items of a list were removed and which added says where each of the
# others is on either side.


class _Node(Struct):
    """A place, the change there if there is one, and the places in it."""

    change: Change | None = None
    inside: dict[Any, _Node] = {}

    @property
    def is_added(self) -> bool:
        return self.change is not None and self.change.what == "added"

    def put(self, change: Change) -> None:
        node = self
        for key in change.where:
            node = node.inside.setdefault(key, _Node())
        node.change = change


_NOTHING = _Node()


def apply(made: Diff, before: Any) -> Any:
    """The newer value, from the older one and their diff. `BadInput` for any other value.

    The two values share the parts that did not change, so only read them.

    >>> from holdfast.history.differences import diff
    >>> made = diff({"plan": ["search", "book"]}, {"plan": ["book", "pay"]})
    >>> apply(made, {"plan": ["search", "book"]})
    {'plan': ['book', 'pay']}
    >>> apply(made, {"plan": ["dance", "book"]})
    Traceback (most recent call last):
    holdfast.errors.BadInput: the diff does not fit: at plan[0] it was made of "search", and here
    is "dance". Apply it to the value it was made of
    """
    olds, news = _Node(), _Node()
    for change in made.changes:
        (olds if change.what == "removed" else news).put(change)
    return _applied(before, olds, news, ())


def _applied(value: Any, olds: _Node, news: _Node, where: Where) -> Any:
    if news.change is not None:
        _must_be(value, news.change.before, where)
        return news.change.after
    if not olds.inside and not news.inside:
        return value
    if type(value) is dict:
        return _in_dict(value, olds, news, where)
    if type(value) is list:
        return _in_list(value, olds, news, where)
    raise _misfit(where, "a value with others in it", value)


def _in_dict(value: dict[str, Any], olds: _Node, news: _Node, where: Where) -> dict[str, Any]:
    made = dict(value)
    for key in {**olds.inside, **news.inside}:
        at: Where = (*where, key)
        old, new = olds.inside.get(key, _NOTHING), news.inside.get(key, _NOTHING)
        if new.change is not None and new.is_added:
            if key in value:
                raise _misfit(at, "nothing", value[key])
            made[key] = new.change.after
        elif key not in value:
            raise _misfit(at, "a value", UNSET)
        elif old.change is not None:
            _must_be(value[key], old.change.before, at)
            del made[key]
        else:
            made[key] = _applied(value[key], old, new, at)
    return made


def _in_list(value: list[Any], olds: _Node, news: _Node, where: Where) -> list[Any]:
    gone = {i: node.change for i, node in olds.inside.items() if node.change is not None}
    added = {j: node.change for j, node in news.inside.items() if node.change and node.is_added}
    total = len(value) - len(gone) + len(added)
    for inside, most in ((olds.inside, len(value)), (news.inside, total)):
        for key in inside:
            if type(key) is not int or not 0 <= key < most:
                raise _misfit((*where, key), "a value", UNSET)
    for i, change in gone.items():
        _must_be(value[i], change.before, (*where, i))
    kept = (i for i in range(len(value)) if i not in gone)
    made = []
    for j in range(total):
        if j in added:
            made.append(added[j].after)
            continue
        i = next(kept)
        old, new = olds.inside.get(i, _NOTHING), news.inside.get(j, _NOTHING)
        made.append(_applied(value[i], old, new, (*where, j)))
    return made


def _must_be(value: Any, before: Any, where: Where) -> None:
    if before is UNSET or not same(value, before):
        raise _misfit(where, _short(before), value)


def _misfit(where: Where, expected: str, found: Any) -> BadInput:
    return BadInput(
        f"the diff does not fit: at {place(where)} it was made of {expected}, and here is "
        f"{_short(found)}. Apply it to the value it was made of"
    )


def _short(value: Any) -> str:
    return "nothing" if value is UNSET else cut(plain(canonical(value).decode()), 60)


# A diff for people: a line for each change, and of long texts the lines around it.
#
# The lines are plain text in which nothing acts on a terminal. A printer may colour them by their
# markers.


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
    """A diff as lines: `+` for added, `~` for changed, `-` for removed values.

    A value is cut after so many characters; with `most=None` nothing is cut.

    >>> from holdfast.history.differences import diff
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
        yield DiffLine("+", f"{where}  {_in_short(change.after, most)}")
    elif change.what == "removed":
        yield DiffLine("-", f"{where}  {_in_short(change.before, most)}")
    elif not change.hunks:
        both = f"{_in_short(change.before, most)} -> {_in_short(change.after, most)}"
        yield DiffLine("~", f"{where}  {both}")
    else:
        yield DiffLine("~", where)
        for hunk in change.hunks:
            by_words = hunk.by == "words"
            yield from _words(hunk, len(change.before), most) if by_words else _text(hunk, most)


def _text(hunk: Hunk, most: int | None) -> Iterator[DiffLine]:
    yield DiffLine("@", f"line {hunk.line}", inside=True)
    yield from _marked(" ", hunk.ahead, most)
    # If only the line endings differ, show them.
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


def _in_short(value: Any, most: int | None) -> str:
    return _cut(plain(msgspec.json.encode(value).decode()), most)


def _cut(text: str, most: int | None) -> str:
    return text if most is None else cut(text, most)
