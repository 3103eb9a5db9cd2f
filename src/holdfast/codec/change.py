"""The difference between two plain values, and the way from the one to the other.

A change is JSON data, so that it can be stored: `null` where nothing changed, else a list that
begins with what kind of change it is.

    ["=", value]                    replaced
    ["{", {key: change}, [key]]     entries of a dict set or changed, and entries removed
    ["[", cut, {index: change}, keep, [item]]
                                    a list: so many items gone from its beginning, then items
                                    changed in place, then so many kept, then new ones

The last is what agents do to their messages: the oldest go, new ones come. So a growing list costs
its new items, and a window that moves over a list does too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Change = list[Any] | None

_LONGEST_CUT = 64
"""How far a list may have moved on between two checkpoints to be recognised."""


def change_between(old: Any, new: Any) -> Change:
    """The change that makes `new` of `old`; None if they are the same.

    >>> change_between({"n": 1, "log": ["a"]}, {"n": 2, "log": ["a", "b"]})
    ['{', {'n': ['=', 2], 'log': ['[', 0, {}, 1, ['b']]}, []]
    >>> change_between([1, 2], [1, 2]) is None
    True
    """
    if type(old) is not type(new):
        return ["=", new]
    if isinstance(new, dict):
        return _dicts(old, new)
    if isinstance(new, list):
        return _lists(old, new)
    same = old == new and (not isinstance(new, float) or repr(old) == repr(new))  # 0.0 and -0.0
    return None if same else ["=", new]


def _dicts(old: dict[str, Any], new: dict[str, Any]) -> Change:
    set_ = {}
    for key, value in new.items():
        change = change_between(old[key], value) if key in old else ["=", value]
        if change is not None:
            set_[key] = change
    gone = [key for key in old if key not in new]
    if not set_ and not gone:
        # The order of keys is part of the value.
        return None if list(old) == list(new) else ["=", new]
    kept = [key for key in old if key in new] + [key for key in new if key not in old]
    return ["{", set_, gone] if kept == list(new) else ["=", new]


def _lists(old: list[Any], new: list[Any]) -> Change:
    cut = _cut(old, new)
    changed: dict[str, Any] = {}
    keep = min(len(old) - cut, len(new))
    for index in range(keep):
        before, after = old[cut + index], new[index]
        if before is not after and (change := change_between(before, after)) is not None:
            changed[str(index)] = change
    added = new[keep:]
    if not cut and not changed and not added and keep == len(old):
        return None
    return ["[", cut, changed, keep, added]


def _cut(old: list[Any], new: list[Any]) -> int:
    """How many items went from the beginning of `old`, judging by where its next one is now."""
    if not old or not new or old[0] == new[0]:
        return 0
    for cut in range(1, min(len(old), _LONGEST_CUT)):
        if old[cut] == new[0]:
            return cut
    return 0


def patched(value: Any, change: Change) -> Any:
    """The value after a change. Lists and dicts are changed in place: the caller owns them.

    >>> patched({"log": ["a"]}, ["{", {"log": ["[", 0, {}, 1, ["b"]]}, []])
    {'log': ['a', 'b']}
    """
    if change is None:
        return value
    if change[0] == "=":
        return change[1]
    if change[0] == "{":
        for key in change[2]:
            del value[key]
        for key, inner in change[1].items():
            value[key] = patched(value.get(key), inner)
        return value
    _, cut, changed, keep, added = change
    del value[:cut]
    del value[keep:]
    for index, inner in changed.items():
        value[int(index)] = patched(value[int(index)], inner)
    value.extend(added)
    return value


def patched_state(value: Any, changes: Iterable[Change]) -> Any:
    """The value after many changes."""
    for change in changes:
        value = patched(value, change)
    return value
