"""A diff, applied: the value that it leads to.

Places in the older value (of what was removed) and in the newer one (of all else) are two trees,
walked side by side: which items of a list were removed and which added says where each of the
others stands on either side.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct

from holdfast.differences.differing import Change, Diff, Where, place, same
from holdfast.differences.items import canonical
from holdfast.errors import BadInput
from holdfast.harmless import cut, plain


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

    What did not change is not copied: the two share it, so it is for reading.

    >>> from holdfast.differences.differing import diff
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
