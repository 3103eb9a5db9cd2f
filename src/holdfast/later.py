"""Dicts of a state that know what was changed in them, and those whose values are made later.

A state that is read back from waypoints has tens of thousands of calls, and whoever asked for it
looks at a few. So its calls are had by their place in what was stored, and made when they are first
looked at. To whoever uses it, such a dict is a dict.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from typing import Any, TypeVar

V = TypeVar("V")

_NOTHING: Any = object()


class Changes:
    """Which keys of a dict were set and removed, in that order, since somebody last looked."""

    __slots__ = ("anew", "dropped", "put")

    def __init__(self) -> None:
        self.put: dict[str, None] = {}
        self.dropped: dict[str, None] = {}
        self.anew = False
        """Whether nothing is left of what it was before."""

    def drop(self, key: str) -> None:
        """The key is there no more, and what comes under it again comes at the end."""
        self.put.pop(key, None)
        self.dropped[key] = None

    def add(self, newer: Changes) -> None:
        """Take in what was changed after these.

        >>> first, second = Changes(), Changes()
        >>> first.put = {"a": None, "b": None}
        >>> second.drop("a")
        >>> first.add(second)
        >>> list(first.put), list(first.dropped)
        (['b'], ['a'])
        """
        if newer.anew:
            self.put, self.dropped, self.anew = dict(newer.put), dict(newer.dropped), True
            return
        for key in newer.dropped:
            self.drop(key)
        self.put.update(newer.put)


class Tracked(dict[str, V]):
    """A dict that notes its changes.

    >>> known = Tracked({"a": 1})
    >>> known["b"] = 2
    >>> known.pop("a")
    1
    >>> changes = known.taken()
    >>> list(changes.put), list(changes.dropped)
    (['b'], ['a'])
    """

    __slots__ = ("changes",)

    def __init__(self, given: Mapping[str, V] | None = None) -> None:
        super().__init__(given or {})
        self.changes = Changes()

    def taken(self) -> Changes:
        """What was changed since this was last asked."""
        found, self.changes = self.changes, Changes()
        return found

    def __setitem__(self, key: str, value: V) -> None:
        self.changes.put[key] = None
        dict.__setitem__(self, key, value)

    def __delitem__(self, key: str) -> None:
        dict.__delitem__(self, key)
        self.changes.drop(key)

    def pop(self, key: str, default: Any = _NOTHING) -> Any:
        if key not in self and default is not _NOTHING:
            return default
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, V]:
        key = next(reversed(self))
        return key, self.pop(key)

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *given: Any, **named: Any) -> None:
        for key, value in dict(*given, **named).items():
            self[key] = value

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self

    def clear(self) -> None:
        for key in list(self):
            del self[key]


Load = Callable[[Sequence[int]], Sequence[V]]
"""Makes the values that stand at places."""


class Later(Tracked[V]):
    """A dict whose values are made when they are looked at: until then it holds their places.

    >>> squares = Later({"two": 2, "three": 3}, lambda places: [f"{n * n}" for n in places])
    >>> squares["three"], len(squares), list(squares), dict(squares)
    ('9', 2, ['two', 'three'], {'two': '4', 'three': '9'})
    """

    __slots__ = ("_load", "_open")

    def __init__(self, places: Mapping[str, int], load: Load[V], open: Sequence[str] = ()) -> None:
        super().__init__()
        dict.update(self, places)
        self._load = load
        self._open = open
        """The keys of those that somebody said are worth a look."""

    def unended(self) -> Iterator[V]:
        """The values that were made already, and those under the keys that are worth a look."""
        yield from [value for value in dict.values(self) if type(value) is not int]
        for key in self._open:
            if type(dict.get(self, key)) is int:
                yield self[key]

    def __getitem__(self, key: str) -> V:
        value: Any = dict.__getitem__(self, key)
        if type(value) is int:
            (value,) = self._load([value])
            dict.__setitem__(self, key, value)
        return value  # type: ignore[no-any-return]

    def get(self, key: str, default: Any = None) -> Any:
        value = dict.get(self, key, default)
        return self[key] if type(value) is int and key in self else value

    # Who asks for all of them gets them made at once.

    def values(self) -> ValuesView[V]:  # type: ignore[override]
        return dict.values(self._made())

    def items(self) -> ItemsView[str, V]:  # type: ignore[override]
        return dict.items(self._made())

    def _made(self) -> dict[str, V]:
        left: list[Any] = [(key, place) for key, place in dict.items(self) if type(place) is int]
        if left:
            values = self._load([place for _, place in left])
            for (key, _), value in zip(left, values, strict=True):
                dict.__setitem__(self, key, value)
        return self

    def copy(self) -> Later[V]:
        """Another one, without making any value."""
        found: Later[V] = Later({}, self._load, self._open)
        dict.update(found, dict.items(self))
        return found

    # Being there, this keeps `dict(later)` and `{**later}` from taking places for values.
    def __iter__(self) -> Iterator[str]:
        return dict.__iter__(self)

    def __eq__(self, other: object) -> bool:
        return dict(self.items()) == (dict(other.items()) if isinstance(other, Later) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __or__(self, other: Any) -> Any:
        return dict(self.items()) | other

    def __ror__(self, other: Any) -> Any:
        return other | dict(self.items())

    def __repr__(self) -> str:
        return repr(dict(self.items()))
