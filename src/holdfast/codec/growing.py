"""Lists that grow, remembered so that handing one over again costs what is new in it.

Encoding, hashing and copying a conversation of 2,000 messages takes longer than making a step
durable. So the lists that were handed over last are remembered, as private copies: one that begins
with the items of a remembered one is compared with it, which is quick, and only the rest of it
goes through the codec.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from holdfast.core.events import ListGrew
from holdfast.core.lists import (
    FEWEST_ITEMS,
    ListPlace,
    Lists,
    Sum,
    Version,
    is_long,
    listed,
    version_of,
)

_REMEMBERED = 8

_LEAVES = frozenset({str, int, float, bool, type(None)})
_NUMBERS = frozenset({int, float, bool})


class ListShape(Protocol):
    """The part of the shape of a list that is needed here."""

    def settle(self, value: Any) -> tuple[bytes, Any]:
        """The value as JSON, and as it comes back."""

    def load(self, data: bytes) -> Any:
        """The value of some JSON."""


class KnownList:
    """A list that was handed over: its version, and its items as nobody else has them."""

    __slots__ = ("_copy", "_data", "_items", "_numbers", "shape", "sum", "version")

    def __init__(
        self, shape: ListShape, version: Version, sum: Sum, items: list[Any], data: bytes | None
    ) -> None:
        self.shape: ListShape = shape
        self.version: Version = version
        self.sum: Sum = sum
        self._items = items
        self._data = data
        """All of it as JSON, until it has grown; for good, if its items can't be compared."""
        self._copy: Callable[[Any], Any] | None = None
        self._numbers: list[tuple[int, tuple[Any, ...], type]] | None = None
        """Where numbers stand, and of which type: 1, 1.0 and True are equal. None: not known."""

    def begins(self, value: list[Any]) -> bool:
        """Whether a list begins with the items of this one, exactly."""
        length = len(self._items)
        head = value if len(value) == length else value[:length]
        try:
            if not self._is_exact(head):
                return self.shape.settle(head)[0] == self._data  # the slow way knows every type
            return head == self._items and all(
                type(_at(head[index], path)) is kind for index, path, kind in self._numbers or ()
            )
        except Exception:  # what does not fit is told when it is written
            return False

    def _is_exact(self, given: list[Any]) -> bool:
        """Whether equal items are the same: so that comparing them is enough."""
        return self._numbers is not None or self._look(0, given, [])

    def _look(self, start: int, given: list[Any], numbers: list[Any]) -> bool:
        """Find out how the items from `start` on are compared and copied; False if only the codec
        knows. `given` are those that they were made of."""
        copy, items = self._copy, self._items
        for index in range(start, len(items)):
            found: list[tuple[tuple[Any, ...], type]] = []
            way = _way(items[index], (), found)
            if way is None:
                return False
            copy = way if copy in (None, way) else _copied
            numbers += [(index, path, kind) for path, kind in found]
            if index - start < len(given):
                items[index] = _sharing(items[index], given[index - start], way, found)
        self._numbers, self._copy = numbers, copy
        return True

    def grown(self, data: bytes, items: list[Any], given: list[Any]) -> KnownList:
        """This list with more items at its end; `given` are those that they were made of."""
        total = self.sum.copy().add(data)
        length = self.version.length + len(items)
        version = Version(total.digest(), length, self.version, data[1:-1])
        known = KnownList(self.shape, version, total, self._items + items, None)
        if self._is_exact([]):
            known._copy = self._copy
            known._look(len(self._items), given, list(self._numbers or ()))
        if known._numbers is None:
            known._data = self.shape.settle(known._items)[0]
        return known

    def copies(self) -> list[Any]:
        """The items for somebody who may change them at will."""
        if self._data is not None:
            value: list[Any] = self.shape.load(self._data)
            return value
        if self._copy is _itself or self._copy is None:
            return self._items[:]
        return list(map(self._copy, self._items))


class Listing(bytes):
    """A value that names lists, with what is remembered of them by the place where they stand."""

    known: Mapping[tuple[str, ...], KnownList]


class Growing:
    """The lists that a task handed over last."""

    def __init__(self, stored: Callable[[], Lists]) -> None:
        self._stored = stored
        self._known: list[KnownList] = []
        self._lock = threading.Lock()

    def find(self, value: Any, shape: ListShape) -> KnownList | None:
        """The entry of a list, once there is one; None for one that is not long."""
        if type(value) is not list or len(value) < FEWEST_ITEMS:
            return None
        with self._lock:
            return self._found(value, shape)

    def _found(self, value: Any, shape: ListShape) -> KnownList | None:
        for known in self._known:
            may_begin = known.shape is shape and known.version.length <= len(value)
            if may_begin and known.begins(value):
                return self._remember(self._more(known, value), known)
        return self._remember(self._first(value, shape))

    def _remember(
        self, known: KnownList | None, instead_of: KnownList | None = None
    ) -> KnownList | None:
        if known is not None:
            if instead_of is not None:
                self._known.remove(instead_of)
            self._known.insert(0, known)
            del self._known[_REMEMBERED:]
        return known

    def recall(
        self, digest: str, shape: ListShape, lists: Lists, items_of: Callable[[ListGrew], bytes]
    ) -> list[Any] | None:
        """A list that the log has, made of a remembered one it goes on from; None if none is."""
        with self._lock:
            return self._recalled(digest, shape, lists, items_of)

    def _recalled(
        self, digest: str, shape: ListShape, lists: Lists, items_of: Callable[[ListGrew], bytes]
    ) -> list[Any] | None:
        grown: list[ListGrew] = []
        while not (found := self._named(digest, shape)):
            event = lists.get(digest)
            if event is None or not event.base:
                return None
            if grown and event.length >= grown[-1].length:  # there may be no end to it
                return None
            grown.append(event)
            digest = event.base
        known = found
        for event in reversed(grown):
            data = b"[%b]" % items_of(event)
            known = known.grown(data, shape.load(data), [])
            known.version.is_stored()
        self._remember(known, found)
        return known.copies()

    def _named(self, digest: str, shape: ListShape) -> KnownList | None:
        for known in self._known:
            if known.version.digest == digest and known.shape is shape:
                return known
        return None

    def _more(self, known: KnownList, value: list[Any]) -> KnownList | None:
        new = value[known.version.length :]
        if not new:
            return known
        data, items = known.shape.settle(new)
        return known.grown(data, items, new) if _is_array(data, items) else None

    def _first(self, value: list[Any], shape: ListShape) -> KnownList | None:
        data, items = shape.settle(value)
        if not is_long(len(value), data) or not _is_array(data, items):
            return None
        version, total = version_of(data, len(items), self._stored())
        return KnownList(shape, version, total, items, data)


def naming(value: bytes, known: Mapping[tuple[str, ...], KnownList]) -> Listing:
    """A value that names lists, given what is known of them."""
    versions = [(path, each.version) for path, each in known.items()]
    named = Listing(listed(value, [ListPlace(path, v.length, v.digest) for path, v in versions]))
    named.known = known
    return named


def _is_array(data: bytes, items: Any) -> bool:
    return data[:1] == b"[" and type(items) is list


def _at(item: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        item = getattr(item, key.name) if type(key) is _Field else item[key]
    return item


class _Field(Struct, frozen=True):
    name: str


def _itself(item: Any) -> Any:
    return item


def _copied(item: Any) -> Any:
    kind = type(item)
    if kind is dict:
        return {key: _copied(value) for key, value in item.items()}
    if kind is list:
        return [_copied(value) for value in item]
    return item


def _sharing(item: Any, given: Any, way: Callable[[Any], Any], numbers: list[Any]) -> Any:
    """The item, with the very texts of what it was made of: these are compared at a glance."""
    found: list[tuple[tuple[Any, ...], type]] = []
    is_same = _way(given, (), found) is way and found == numbers and given == item
    return way(given) if is_same else item


def _way(
    item: Any, path: tuple[Any, ...], numbers: list[tuple[tuple[Any, ...], type]]
) -> Callable[[Any], Any] | None:
    """How an item is copied; None if equal ones may differ, or only the codec can tell."""
    kind = type(item)
    if kind in _LEAVES:
        if kind in _NUMBERS:
            numbers.append((path, kind))
            return _itself if kind is not float or item else None  # 0.0 and -0.0
        return _itself
    if kind is dict:
        ways = {
            _way(value, (*path, key), numbers) if type(key) is str else None
            for key, value in item.items()
        }
        return None if None in ways else dict.copy if ways <= {_itself} else _copied
    if kind is list:
        ways = {_way(value, (*path, index), numbers) for index, value in enumerate(item)}
        return None if None in ways else _copied
    if isinstance(item, Struct) and _is_plain(kind):
        ways = {
            _way(getattr(item, name), (*path, _Field(name)), numbers)
            for name in item.__struct_fields__
        }
        return _itself if ways <= {_itself} else None
    return None


def _is_plain(kind: type[Struct]) -> bool:
    """Whether structs of a class can't change, and are equal only if all they hold is."""
    config = kind.__struct_config__
    return config.frozen and config.eq and kind.__eq__ is Struct.__eq__
