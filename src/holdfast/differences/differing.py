"""What is different between two values: a list of changes that leads from the one to the other.

Values are plain JSON data. A change says where it is, by keys and places; items of lists are
matched first (see `items`), so that what a list gained at the front is one item added. Types count
(`1`, `1.0` and `True` are three values), the order of keys does not.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from holdfast.differences.hunks import Hunk, hunks, is_long, turned
from holdfast.differences.items import canonical, matched
from holdfast.differences.matching import gaps
from holdfast.errors import BadInput
from holdfast.harmless import plain

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
    """For what changed: its place in the older value, if lists it stands in lost or gained items
    ahead of it."""
    hunks: tuple[Hunk, ...] = ()


class Diff(Struct, frozen=True):
    """Everything that is different between two values. False if nothing is.

    It is data: it can be written as JSON and read again.

    >>> made = diff({"plan": ["search"]}, {"plan": ["search", "book"]})
    >>> made.changes
    (Change(where=('plan', 1), what='added', before=UNSET, after='book', was=UNSET, hunks=()),)
    >>> import msgspec
    >>> decode(msgspec.json.encode(made), Diff) == made
    True
    """

    changes: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)


def diff(before: Any, after: Any) -> Diff:
    """What leads from one value to another.

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
    """What leads back.

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
