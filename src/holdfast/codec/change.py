"""Whether two values are the same; else the difference, and the way from the one to the other.

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

import functools
import math
import typing
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from operator import attrgetter
from typing import Any
from uuid import UUID

from holdfast.codec import pydantic_types
from holdfast.codec.classes import lost_attributes, names_of
from holdfast.codec.scalars import MAX_DEPTH, TOO_DEEP, Misfit, is_fixed_offset, label, name_of

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


# Whether a value came back as it was: to the type, the time zone and the attributes.
#
# Values of a closed annotation are written as natural JSON and read back at once. `compare` holds
# the two against each other, so that nothing changes in silence.


class Partial(Misfit):
    """An object that has the default of a field in its class, and not in itself: so msgspec makes
    them. Its bytes lack that field, which is the default of that day."""


def complete(value: Any) -> None:
    """Give the objects in a value the fields that they have only by their class."""
    todo = [value]
    while todo:
        this = todo.pop()
        if isinstance(this, dict):
            todo.extend(this.values())
        elif isinstance(this, list | tuple | set | frozenset):
            todo.extend(this)
        elif names := names_of(type(this)):
            todo.extend(getattr(this, name) for name in names)
            if _is_partial(this, names):
                for name in names:
                    object.__setattr__(this, name, getattr(this, name))


def _is_partial(value: Any, names: tuple[str, ...]) -> bool:
    return len(getattr(value, "__dict__", names)) < len(names)


class Changed(Misfit):
    """It came back as another value of the same type."""


# Equal values of one of these types are the same.
_LEAVES = {str, int, bool, float, type(None), bytes, bytearray, date, timedelta, UUID, Decimal}


def compare(before: Any, after: Any, depth: int = 1) -> None:
    """Hold what was written against what comes back, to the type and the time zone.

    Raises `Changed`, or a plain `Misfit` if a type is not what the annotation says.
    """
    kind = type(after)
    if type(before) is not kind and not _may_become(kind, before):
        raise _unlike(before, kind)
    if kind not in _LEAVES:
        if depth > MAX_DEPTH:
            raise Misfit(TOO_DEEP)
        _comparison(typing.cast(Any, kind))(before, after, depth + 1)
    elif before != after:
        raise Changed("it changes{at}")


def _may_become(kind: type, value: Any) -> bool:
    """Whether a value may come back as another type, because the annotation says so."""
    if type(value) is bool:
        return False
    if kind is tuple and getattr(type(value), "holdfast_plain", None) is list:
        return True  # what `gather` returned
    if kind is float and isinstance(value, int):
        return abs(value) < 2**1023 and float(value) == value
    return kind in (str, int, float, list, dict, tuple) and isinstance(value, kind)


def _unlike(value: Any, kind: type) -> Misfit:
    if isinstance(value, float) and not math.isfinite(value):
        return Misfit(f"{value!r}{{at}} is not in JSON; annotate Any to keep it")
    return Misfit(f"expected {name_of(kind)}{{at}}, found {type(value).__name__}")


@functools.lru_cache(maxsize=4096)
def _comparison(kind: Any) -> Callable[[Any, Any, int], None]:
    if issubclass(kind, dict):
        return _compare_dicts
    if issubclass(kind, list | tuple):
        return _compare_sequences
    if issubclass(kind, deque):
        return _compare_queues
    if issubclass(kind, set | frozenset):
        return _compare_sets
    if pydantic_types.is_model(kind):
        return functools.partial(_compare_models, tuple(kind.model_fields))
    if pydantic_types.is_secret(kind):
        return _compare_secrets
    if names := names_of(kind):
        return functools.partial(_compare_objects, names)
    return _compare_moments if kind in (datetime, time) else _compare_others


def _compare_sequences(before: Any, after: Any, depth: int) -> None:
    kinds = set(map(type, after))
    if len(kinds) == 1 and kinds == set(map(type, before)):
        if kinds <= _LEAVES and before == after:
            return
        if names := names_of(type(after[0])):
            return _compare_columns(names, before, after, depth)
    index = -1
    try:
        for old, new in zip(before, after, strict=True):
            index += 1
            compare(old, new, depth)
    except Misfit as misfit:
        raise misfit.under(f"[{index}]") from None


def _compare_columns(names: tuple[str, ...], before: Any, after: Any, depth: int) -> None:
    """Compare objects of one class field by field, so that plain fields are compared in C."""
    if depth > MAX_DEPTH:
        raise Misfit(TOO_DEEP).under("[0]")
    for index, value in enumerate(before):
        if lost_attributes(value, names):
            raise Changed("it loses an attribute{at}").under(f"[{index}]")
        if _is_partial(value, names):
            raise Partial("it is not whole")
    for name in names:
        get = attrgetter(name)
        try:
            _compare_sequences([*map(get, before)], [*map(get, after)], depth + 1)
        except Misfit as misfit:
            index_label = misfit.trail.pop()
            raise misfit.under(f".{name}").under(index_label) from None


def _compare_dicts(before: Any, after: Any, depth: int) -> None:
    if len(before) != len(after):  # a key that its TypedDict does not name
        raise Changed("it loses a key{at}")
    if type(after) is defaultdict and before.default_factory is not after.default_factory:
        raise Changed("its default is lost{at}")
    where = ""
    try:
        for (key, old), (new_key, new) in zip(before.items(), after.items(), strict=True):
            where = ".keys()"
            compare(key, new_key, depth)
            where = label(key)
            compare(old, new, depth)
    except Misfit as misfit:
        raise misfit.under(where) from None


def _compare_queues(before: Any, after: Any, depth: int) -> None:
    if before.maxlen != after.maxlen:
        raise Changed("its length is lost{at}")
    _compare_sequences(list(before), list(after), depth)


def _compare_objects(names: tuple[str, ...], before: Any, after: Any, depth: int) -> None:
    if lost_attributes(before, names):
        raise Changed("it loses an attribute{at}")
    if _is_partial(before, names):
        raise Partial("it is not whole")
    name = ""
    try:
        for name in names:
            compare(getattr(before, name), getattr(after, name), depth)
    except Misfit as misfit:
        raise misfit.under(f".{name}") from None


def _compare_models(names: tuple[str, ...], before: Any, after: Any, depth: int) -> None:
    if pydantic_types.lost_from_model(before):
        raise Changed("it loses an attribute{at}")
    held, came_back = vars(before), vars(after)
    for name in names:
        if name not in held or name not in came_back:
            raise Changed("it loses a field{at}").under(f".{name}")
        try:
            compare(held[name], came_back[name], depth)
        except Misfit as misfit:
            raise misfit.under(f".{name}") from None
    for old, new in zip(
        pydantic_types.state_of(before), pydantic_types.state_of(after), strict=True
    ):
        compare(old, new, depth)


def _compare_secrets(before: Any, after: Any, depth: int) -> None:
    # The log must not get the output of a serializer of the user's.
    if before.get_secret_value():
        raise Changed("it is a secret{at}")


def _compare_sets(before: Any, after: Any, depth: int) -> None:
    if before != after or Counter(map(type, before)) != Counter(map(type, after)):
        raise Changed("it changes{at}")


def _compare_moments(before: Any, after: Any, depth: int) -> None:
    is_plain = before.tzinfo is after.tzinfo and not before.fold
    if before != after or not (is_plain or _same_zone(before, after)):
        raise Changed("its zone or its fold is lost{at}")


def _compare_others(before: Any, after: Any, depth: int) -> None:
    if before != after:
        raise Changed("it changes{at}")


def _same_zone(before: Any, after: Any) -> bool:
    if repr(before) == repr(after):
        return True
    # Pydantic has a class of its own for what is a plain offset.
    is_offset = is_fixed_offset(before.tzinfo) and is_fixed_offset(after.tzinfo)
    return is_offset and before.utcoffset() == after.utcoffset() and before.fold == after.fold
