"""Values under keys: the log of one namespace, and what is found in it.

A namespace is a memory whose events put and delete values (`core.memories`), in the stream
`memories/values/<name>`. Many processes may write to it: each change takes the lease for a moment,
as for a session (`ledger`). Everything here is about bytes; `agent.values` gives them types.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from msgspec import UNSET, Raw
from msgspec.structs import replace

from holdfast.codec.redact import DEFAULT, Redact
from holdfast.core.decoding import damage_in
from holdfast.core.events import FORMAT, MemoryBegan, ValueChange, ValuesChanged
from holdfast.core.memories import KeptValue, Memories, advance, kept_value
from holdfast.core.words import checked_id, must_be_texts
from holdfast.errors import BadInput, Conflict
from holdfast.log.ledger import Ledger
from holdfast.log.reading import memory_stream, read_events
from holdfast.log.states import facts_in
from holdfast.log.values import MAX_VALUE_BYTES, fetch, stow

if TYPE_CHECKING:
    from holdfast.stores.port import Store

PREFIX = "values/"
"""How the ids of memories begin that are namespaces."""
LONGEST_KEY_BYTES = 1024
_MOST_OPEN = 256
_MOST_IN_EVENT_BYTES = 256 * 1024

_open: WeakKeyDictionary[Store, OrderedDict[str, Namespace]] = WeakKeyDictionary()
_lock = threading.Lock()


def namespace_of(
    store: Store,
    name: str,
    owner: str,
    clock: Callable[[], datetime],
    redact: Redact = DEFAULT,
    max_value_bytes: int = MAX_VALUE_BYTES,
) -> Namespace:
    """The namespace of that name: the same one for all who ask in this process."""
    must_be_texts("values()", namespace=name)
    checked_id(f"{PREFIX}{name}" if name else "")
    with _lock:
        known = _open.setdefault(store, OrderedDict())
        found = known.get(name)
        if found is None:
            found = known[name] = Namespace(store, name, owner, clock, redact, max_value_bytes)
            if len(known) > _MOST_OPEN:
                known.popitem(last=False)
        known.move_to_end(name)
        return found


class Namespace:
    """The values of a namespace as bytes of JSON, as far as its log was read."""

    def __init__(
        self,
        store: Store,
        name: str,
        owner: str,
        clock: Callable[[], datetime],
        redact: Redact = DEFAULT,
        max_value_bytes: int = MAX_VALUE_BYTES,
    ) -> None:
        self.name = name
        self.store = store
        self.stream: str = memory_stream(f"{PREFIX}{name}")
        self.clock = clock
        self._owner, self._redact, self._max_value_bytes = owner, redact, max_value_bytes
        self._ledger = Ledger(
            store, self.stream, owner, clock,
            new=Memories, advance=advance, facts=facts_in, redact=redact,
        )  # fmt: skip

    # Reading

    def find(self, keys: Sequence[str]) -> dict[str, KeptValue]:
        """The values under these keys that have not expired."""
        now = self.clock()

        def look(state: Memories) -> dict[str, KeptValue]:
            found = ((key, state.values.get(key)) for key in keys)
            return {key: kept for key, kept in found if kept is not None and kept.lives(now)}

        return self._ledger.look(look)

    def find_all(self, prefix: str = "") -> list[KeptValue]:
        """The values under keys that begin with `prefix`, by key."""
        now = self.clock()

        def look(state: Memories) -> list[KeptValue]:
            values = state.values.items()
            return [kept for key, kept in values if key.startswith(prefix) and kept.lives(now)]

        return sorted(self._ledger.look(look), key=lambda kept: kept.key)

    def bytes_of(self, kept: KeptValue) -> bytes:
        """The bytes of a value."""
        with damage_in(self.stream):
            return fetch(self.store, kept.value, {}, dict)

    def history(self, key: str) -> Iterator[tuple[ValuesChanged, KeptValue | None]]:
        """Every event that changed a key, oldest first, with what it put there."""
        for event in read_events(self.store, self.stream):
            if isinstance(event, ValuesChanged):
                for change in event.changes:
                    if change.key == key:
                        yield event, kept_value(event, change)

    def as_of(self, when: datetime | int) -> Namespace:
        """The namespace as it was at a time, or after the event of a number."""
        upto = when if isinstance(when, int) else None
        then = when if isinstance(when, datetime) else None
        events = []
        for event in read_events(self.store, self.stream, upto):
            if then is not None and event.at > then:
                break
            events.append(event)
        at = then or (events[-1].at if events else self.clock())
        found = Namespace(
            self.store, self.name, self._owner, lambda: at, self._redact, self._max_value_bytes
        )
        found._ledger.keep(events)
        return found

    # Writing

    def put(
        self,
        values: Mapping[str, bytes],
        lifetime_s: float | None = None,
        *,
        expected: int | None = None,
        source: Mapping[str, str] | None = None,
    ) -> int:
        """Put values under their keys, durably; returns the version of the last of them.

        With `expected` (of one key) only if that is the version there; 0 for none. `source` says
        which call of a task does it: the same call does it once.
        """
        expires_at = None
        if lifetime_s is not None:
            expires_at = self.clock() + timedelta(seconds=lifetime_s)
        changes = [
            ValueChange(key, self._stowed(value), expires_at) for key, value in values.items()
        ]
        version = 0
        for number, part in enumerate(parts_of(changes)):
            version = self._change(part, expected, _numbered(source, number))
        return version

    def delete(self, keys: Sequence[str], *, source: Mapping[str, str] | None = None) -> list[str]:
        """Delete what is there under these keys, durably; returns the keys that were there."""
        done, parts = self._deleted_before(source) if source else ([], 0)
        found = list(self.find(keys))
        for number, part in enumerate(parts_of([ValueChange(key) for key in found]), parts):
            self._change(part, None, _numbered(source, number))
        return done + found

    def _deleted_before(self, source: Mapping[str, str]) -> tuple[list[str], int]:
        """The keys that the same call deleted before a crash, and in how many events."""
        calls, seqs = self._ledger.refresh().calls, set[int]()
        while (call := _numbered(source, len(seqs))["call"]) in calls:
            seqs.add(calls[call])
        if not seqs:
            return [], 0
        events = read_events(self.store, self.stream, max(seqs))
        made = [e for e in events if e.seq in seqs and isinstance(e, ValuesChanged)]
        return [change.key for event in made for change in event.changes], len(seqs)

    def drop(self) -> None:
        """Delete the namespace with all its history, for good."""
        self._ledger.delete()

    def _stowed(self, value: bytes) -> Raw:
        self._redact.must_be_free(value)
        return stow(self.store, value, self._max_value_bytes)

    def _change(
        self, changes: list[ValueChange], expected: int | None, source: Mapping[str, str]
    ) -> int:
        event = replace(ValuesChanged(changes=tuple(changes)), **source)
        made = 0

        def make(state: Memories) -> ValuesChanged | None:
            nonlocal made
            if event.call and event.call in state.calls:
                made = state.calls[event.call]
                return None
            if expected is not None:
                self._must_be(state, changes[0].key, expected)
            made = state.seq + 1
            return event

        self._begin()
        self._ledger.write(make)
        return made

    def _must_be(self, state: Memories, key: str, expected: int) -> None:
        kept = state.values.get(key)
        found = kept.version if kept is not None and kept.lives(self.clock()) else 0
        if found != expected:
            wanted = f"version {expected}" if expected else "nothing"
            there = f"version {found}" if found else "nothing"
            raise OtherVersion(
                f"values {self.name!r}, key {key!a:.200}: {wanted} was expected, and {there} is "
                f"there. Nothing was written: read what is there, and write again"
            )

    def _begin(self) -> None:
        if not self._ledger.state.seq:
            began = MemoryBegan(format=FORMAT, id=f"{PREFIX}{self.name}")
            self._ledger.write(lambda state: None if state.seq else began)


class OtherVersion(Conflict):
    """Another version of a value is there than was expected."""


def checked_key(key: object) -> str:
    """The key, if a value can have it."""
    must_be_texts("values", key=key)
    if not isinstance(key, str) or not key or len(key.encode()) > LONGEST_KEY_BYTES:
        raise BadInput(f"values: key={key!a:.60} must be a text of 1 to {LONGEST_KEY_BYTES} bytes")
    return key


def parts_of(changes: list[ValueChange]) -> Iterator[list[ValueChange]]:
    """The changes in as few events as fit: a line of a log has a greatest length."""
    part: list[ValueChange] = []
    size = 0
    for change in changes:
        length = 6 * len(change.key) + 80
        length += len(bytes(change.value)) if change.value is not UNSET else 0
        if part and size + length > _MOST_IN_EVENT_BYTES:
            yield part
            part, size = [], 0
        part.append(change)
        size += length
    if part:
        yield part


def _numbered(source: Mapping[str, str] | None, number: int) -> Mapping[str, str]:
    """The source of one of several events: each has a key of its own."""
    if not source:
        return {}
    return {**source, "call": f"{source['call']}/{number}" if number else source["call"]}
