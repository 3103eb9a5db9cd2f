"""The state of a memory: everything its events come to.

What is found in it is found by indexes that are made of this, and can be deleted.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from holdfast.core.events import NEVER, AnyEvent, Forgotten, MemoryBegan, Remembered
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
    """What was remembered under a key, also if it was forgotten since: it is not to come back."""
    gone: dict[int, int] = {}
    """Which events took an entry away, and the event that it had come with."""


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
