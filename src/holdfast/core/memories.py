"""The state of a memory: everything its events come to.

A memory holds entries, which are found by what they say, or values, which are found by their key.

Searches use indexes that are made of this, and can be deleted.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Raw, Struct

from holdfast.core.events import (
    NEVER,
    AnyEvent,
    Forgotten,
    MemoryBegan,
    Remembered,
    ValueChange,
    ValuesChanged,
)
from holdfast.errors import LogDamaged


class Entry(Struct, frozen=True):
    """Something that is remembered, and where it comes from."""

    id: str
    text: str
    user: str = ""
    session: str = ""
    task: str = ""
    step: str = ""
    """The step of the task that remembered it, or its own place where that was none."""
    labels: dict[str, str] = {}
    at: datetime = NEVER


def entry_of(event: Remembered) -> Entry:
    """An entry, as its event has it."""
    return Entry(
        event.id,
        event.text,
        event.user,
        event.session,
        event.task,
        event.step,
        event.labels,
        event.at,
    )


class KeptValue(Struct, frozen=True, gc=False):
    """A value under a key."""

    key: str
    value: Raw
    """As it stands in the event: itself, or a reference to a blob."""
    version: int
    """The number of the event that put it."""
    at: datetime
    expires_at: datetime | None = None

    def lives(self, now: datetime) -> bool:
        """Whether it has not expired."""
        return self.expires_at is None or now < self.expires_at


class Memories(Struct):
    """Everything that is known of a memory after the event `seq`."""

    id: str = ""
    seq: int = 0
    created_at: datetime = NEVER
    updated_at: datetime = NEVER
    entries: dict[str, Remembered] = {}
    """By id, in the order in which they came."""
    by_seq: dict[int, Remembered] = {}
    """The same by the number of their events, by which indexes know them."""
    keys: dict[str, Remembered] = {}
    """The entry under a key, also if it was forgotten since: it is not to come back."""
    gone: dict[int, int] = {}
    """Which events took an entry away, and the event that it had come with."""
    values: dict[str, KeptValue] = {}
    """By key; those that have expired may be among them."""
    calls: dict[str, int] = {}
    """The calls of tasks that changed values, and the events that they made."""


def advance(state: Memories, event: AnyEvent) -> None:
    """Change a memory's state, which the caller alone owns, by one event."""
    match event:
        case MemoryBegan():
            state.id, state.created_at = event.id, event.at
        case Remembered():
            if not event.key or event.key not in state.keys:
                _take_in(state, event)
        case Forgotten():
            if event.id not in state.entries:
                what = f"entry {event.id!r} is forgotten, and was never there"
                raise LogDamaged(f"memories/{state.id}", event.seq, what)
            _take_away(state, event.id, event.seq)
        case ValuesChanged():
            change(state.values, state.calls, event)
        case _:
            what = f"a {type(event).__name__} is no event of a memory"
            raise LogDamaged(f"memories/{state.id}", event.seq, what)
    state.seq, state.updated_at = event.seq, event.at


def _take_in(state: Memories, event: Remembered) -> None:
    if event.id in state.entries:  # the newer one stands in its place
        _take_away(state, event.id, event.seq)
    state.entries[event.id] = state.by_seq[event.seq] = event
    if event.key:
        state.keys[event.key] = event


def _take_away(state: Memories, id: str, seq: int) -> None:
    was = state.entries.pop(id)
    del state.by_seq[was.seq]
    state.gone[seq] = was.seq


def change(values: dict[str, KeptValue], calls: dict[str, int], event: ValuesChanged) -> None:
    """Change values as an event says, unless the same call of a task did so before."""
    if event.call:
        if event.call in calls:
            return
        calls[event.call] = event.seq
    for each in event.changes:
        values.pop(each.key, None)  # the newest stands last
        if (kept := kept_value(event, each)) is not None:
            values[each.key] = kept


def kept_value(event: ValuesChanged, change: ValueChange) -> KeptValue | None:
    """The value that an event put under a key; None if it deleted what was there."""
    if not isinstance(change.value, Raw):
        return None
    return KeptValue(change.key, change.value, event.seq, event.at, change.expires_at)
