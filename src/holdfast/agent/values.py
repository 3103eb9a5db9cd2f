"""Values under keys: a small durable key-value store, with its history.

`hf.values("prices")` is one namespace. A version that `put` returned is on disk, in every store,
and each earlier value stays in the log: `as_of` and `history` show it. Values may expire. Use it
for what programs share and no task owns: settings, cursors, caches.

Inside a task each call happens once: what it did or found is in the log of the task, and a replay
sees that. In an async task the calls are awaited.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, cast

from msgspec import Raw, Struct

from holdfast.agent.flow import Flow, drive, once
from holdfast.agent.memories import call_key, must_write
from holdfast.api.async_forms import AsyncForm, away
from holdfast.codec import Shape, shape_of
from holdfast.core.events import NEVER
from holdfast.core.memories import KeptValue
from holdfast.core.scope import Scope, inside, scope_var
from holdfast.engines.holder import Holding
from holdfast.errors import BadInput
from holdfast.log.namespaces import Namespace, OtherVersion, checked_key, namespace_of

__all__ = ["Value", "Values", "open_values", "values"]

V = TypeVar("V")
S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


class Value(Struct, frozen=True):
    """A value under a key, and which one of them it is."""

    key: str
    value: Any = None
    version: int = 0
    """To be given to `put(expected=…)`. Versions of a namespace only grow."""
    at: datetime = NEVER
    expires_at: datetime | None = None
    deleted: bool = False
    """In a history: from here on there was nothing under the key."""


class _Found(Struct, frozen=True):
    """The record of a value that a task read, in its log."""

    key: str
    value: Raw
    version: int
    at: datetime
    expires_at: datetime | None = None


def _async_form(method: Callable[Concatenate[S, P], R]) -> AsyncForm[S, P, R]:
    """The async form: in an async task the method is one already; elsewhere a thread does it."""

    @functools.wraps(method)
    async def form(*args: Any, **kwargs: Any) -> R:
        scope = scope_var.get()
        if scope is None or not scope.is_async:
            return await away(method, *args, **kwargs)
        return await cast("Coroutine[Any, Any, R]", method(*args, **kwargs))

    form.__name__ = f"a{method.__name__}"
    form.__qualname__ = f"Values.a{method.__name__}"
    form.__doc__ = f"`{method.__name__}` for async code."
    return cast("AsyncForm[S, P, R]", form)


class Values(Generic[V]):
    """The values of a namespace. Made by `hf.values(…)`; in a task by `values(…)`.

    >>> from holdfast import Holdfast
    >>> with Holdfast("memory://") as hf:
    ...     prices = hf.values("prices")
    ...     version = prices.put("oslo/room", 120)
    ...     _ = prices.put("oslo/room", 130, expected=version)
    ...     prices.get("oslo/room"), prices.keys("oslo/"), prices.as_of(version).get("oslo/room")
    (130, ['oslo/room'], 120)
    """

    def __init__(self, namespace: Namespace, shape: Shape, *, is_past: bool = False) -> None:
        self.plain = namespace
        """The same values as bytes, for code that does its own encoding. No call is journaled."""
        self._shape = shape
        self._is_past = is_past

    def __repr__(self) -> str:
        return f"Values({self.name!r})"

    @property
    def name(self) -> str:
        """The name of the namespace."""
        return self.plain.name

    # Reading

    def get(self, key: str, default: V | None = None) -> V | None:
        """The value under a key; `default` if there is none, or it has expired."""
        return drive(self._get(checked_key(key), default))

    def _get(self, key: str, default: V | None) -> Flow[V | None]:
        found = yield lambda: self._find([key])
        return self._value(found[0]).value if found else default

    def entry(self, key: str) -> Value | None:
        """The value under a key with its version and its times; None if there is none."""
        return drive(self._entry(checked_key(key)))

    def _entry(self, key: str) -> Flow[Value | None]:
        found = yield lambda: self._find([key])
        return self._value(found[0]) if found else None

    def get_many(self, keys: Iterable[str]) -> dict[str, V]:
        """The values under these keys, those that are there, all as of one moment."""
        return drive(self._get_many([checked_key(key) for key in keys]))

    def _get_many(self, keys: list[str]) -> Flow[dict[str, V]]:
        found = yield lambda: self._find(keys)
        return {each.key: self._value(each).value for each in found}

    def entries(self, prefix: str = "") -> list[Value]:
        """Everything under keys that begin with `prefix`, by key.

        >>> from holdfast import Holdfast
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.values("n").put_many({"a/1": 1, "b/1": 2, "a/2": 3})
        ...     [(each.key, each.value) for each in hf.values("n").entries("a/")]
        [('a/1', 1), ('a/2', 3)]
        """
        return drive(self._entries(_checked_prefix(prefix)))

    def _entries(self, prefix: str) -> Flow[list[Value]]:
        found = yield lambda: self._read("entries", lambda: self.plain.find_all(prefix))
        return [self._value(each) for each in found]

    def keys(self, prefix: str = "") -> list[str]:
        """The keys that begin with `prefix`, in order."""
        _checked_prefix(prefix)
        scope = scope_var.get()

        def work(key: str, path: str) -> list[str]:
            must_write(scope, path)
            return [each.key for each in self.plain.find_all(prefix)]

        return once("keys", work, list[str])

    def _find(self, keys: Sequence[str]) -> list[_Found]:
        return self._read("get", lambda: list(self.plain.find(keys).values()))

    def _read(self, name: str, read: Callable[[], list[KeptValue]]) -> list[_Found]:
        scope = scope_var.get()

        def work(key: str, path: str) -> list[_Found]:
            must_write(scope, path)
            return [
                _Found(
                    each.key, Raw(self.plain.bytes_of(each)), each.version, each.at, each.expires_at
                )
                for each in read()
            ]

        return once(name, work, list[_Found])

    def _value(self, found: _Found) -> Value:
        loaded = self._shape.load(bytes(found.value))
        return Value(found.key, loaded, found.version, found.at, found.expires_at)

    # Writing

    def put(
        self,
        key: str,
        value: V,
        *,
        lifetime_s: float | None = None,
        expected: int | None = None,
    ) -> int:
        """Put a value under a key, durably, and return its version.

        It expires after `lifetime_s` seconds, if given. With `expected` it is put only if that is
        the version there (0: if there is none), and `Conflict` is raised otherwise: this is
        compare and set.

        >>> from holdfast import Conflict, Holdfast
        >>> with Holdfast("memory://") as hf:
        ...     leader = hf.values("leader")
        ...     _ = leader.put("name", "ada", expected=0)
        ...     try:
        ...         leader.put("name", "bob", expected=0)
        ...     except Conflict:
        ...         leader.get("name")
        'ada'
        """
        if expected is not None and (type(expected) is not int or expected < 0):
            raise BadInput(f"put(): expected={expected!a:.60} must be a version, or 0 for none")
        return self._put({key: value}, lifetime_s, expected)

    def put_many(self, values: Mapping[str, V], *, lifetime_s: float | None = None) -> int:
        """Put values under their keys, durably; returns the version of the last of them.

        They are put all at once, up to 256 KB together; more are put in several parts.
        """
        return self._put(values, lifetime_s, None)

    def _put(self, values: Mapping[str, V], lifetime_s: float | None, expected: int | None) -> int:
        self._must_be_now("put()")
        lifetime = checked_lifetime("put()", lifetime_s)
        dumped = {checked_key(key): self._shape.dump(value) for key, value in values.items()}
        scope = scope_var.get()

        def work(key: str, path: str) -> int | str:
            source = _source(scope, key, path)
            try:
                return self.plain.put(dumped, lifetime, expected=expected, source=source)
            except OtherVersion as error:  # a replay has to see that, too
                return str(error)

        return drive(_put_once(work))

    def delete(self, *keys: str) -> int:
        """Delete what is there under these keys, durably; returns how many there were.

        The log still has it, as it has everything; `drop` deletes that too.
        """
        self._must_be_now("delete()")
        wanted = [checked_key(key) for key in keys]
        scope = scope_var.get()

        def work(key: str, path: str) -> int:
            return len(self.plain.delete(wanted, source=_source(scope, key, path)))

        return once("delete", work, int)

    def drop(self) -> None:
        """Delete the whole namespace with its history, for good. Not for the inside of tasks."""
        self._must_be_now("drop()")
        if scope_var.get() is not None:
            raise BadInput("drop() is for the outside of tasks: in a task, delete(…) the keys")
        self.plain.drop()

    # Looking back

    def as_of(self, when: datetime | int) -> Values[V]:
        """The namespace as it was at a time, or when a version was the newest: for reading.

        >>> from holdfast import Holdfast
        >>> with Holdfast("memory://") as hf:
        ...     version = hf.values("n").put("a", 1)
        ...     _ = hf.values("n").delete("a")
        ...     hf.values("n").get("a"), hf.values("n").as_of(version).get("a")
        (None, 1)
        """
        if isinstance(when, bool) or not isinstance(when, datetime | int):
            raise BadInput(f"as_of(): {when!a:.60} must be a time or a version")
        if isinstance(when, datetime) and when.tzinfo is None:
            raise BadInput(f"as_of(): {when!a:.60} has no time zone: give one, such as UTC")
        at = when.astimezone(UTC) if isinstance(when, datetime) else when
        return Values(self.plain.as_of(at), self._shape, is_past=True)

    def history(self, key: str) -> list[Value]:
        """Every value that was ever put under a key, oldest first, and every deletion.

        >>> from holdfast import Holdfast
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.values("n").put("a", 1), hf.values("n").delete("a")
        ...     [(each.value, each.deleted) for each in hf.values("n").history("a")]
        [(1, False), (None, True)]
        """
        found = []
        for event, kept in self.plain.history(checked_key(key)):
            if kept is None:
                found.append(Value(key, None, event.seq, event.at, deleted=True))
            else:
                loaded = self._shape.load(self.plain.bytes_of(kept))
                found.append(Value(key, loaded, kept.version, kept.at, kept.expires_at))
        return found

    def _must_be_now(self, what: str) -> None:
        if self._is_past:
            raise BadInput(f"{what}: values as of an earlier time are for reading")

    aget: Final = _async_form(get)
    aentry: Final = _async_form(entry)
    aget_many: Final = _async_form(get_many)
    aentries: Final = _async_form(entries)
    akeys: Final = _async_form(keys)
    aput: Final = _async_form(put)
    aput_many: Final = _async_form(put_many)
    adelete: Final = _async_form(delete)


def _put_once(work: Callable[[str, str], int | str]) -> Flow[int]:
    version = yield lambda: once("put", work, int | str)
    if isinstance(version, str):
        raise OtherVersion(version)
    return cast("int", version)


def open_values(held: Holding, name: str, of: Any = Any) -> Values[Any]:
    """The values of a namespace of a store: see `Holdfast.values`."""
    namespace = namespace_of(
        held.store, name, held.owner, held.clock, held.redact, held.max_value_bytes
    )
    return Values(namespace, shape_of(of))


def values(name: str, of: Any = Any) -> Values[Any]:
    """The values of a namespace, from inside of a task. Elsewhere it is `hf.values(…)`.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def reads_price() -> int:
    ...     return values("prices").get("room")
    >>> with Holdfast("memory://") as hf:
    ...     _ = hf.values("prices").put("room", 120)
    ...     hf.run(reads_price)
    120
    """
    log = inside("values()").run.log
    namespace = namespace_of(
        log.store, name, log.lease.owner, log.clock, log.redact, log.max_value_bytes
    )
    return Values(namespace, shape_of(of))


def checked_lifetime(what: str, lifetime_s: Any) -> float | None:
    """A lifetime in seconds, if it is one: up to a hundred years."""
    if lifetime_s is None:
        return None
    is_number = isinstance(lifetime_s, int | float) and not isinstance(lifetime_s, bool)
    if not is_number or not 0 < lifetime_s <= 3.2e9:
        raise BadInput(f"{what}: lifetime_s={lifetime_s!a:.60} must be a number of seconds above 0")
    return float(lifetime_s)


def _checked_prefix(prefix: Any) -> str:
    return checked_key(prefix) if prefix else ""


def _source(scope: Scope | None, key: str, path: str) -> dict[str, str] | None:
    """Which call of which task changes values; None outside of any."""
    if scope is None:
        return None
    must_write(scope, path)
    return {"call": call_key(scope, key), "task": scope.run.task_id, "step": path}
