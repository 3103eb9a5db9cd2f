"""The events of a queue: which tasks have a place, and since when.

The declaration of a queue is a value (`log.namespaces`). Its places change with every task, so they
have a log of their own, `queues/<name>/<number>`, of which the newest number counts.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct, field

from holdfast.core.events.base import NEVER, Event


class QueuePlace(Struct, frozen=True, omit_defaults=True):
    """The right of one task to be driven."""

    task: str
    key: str = ""
    by: str = ""
    """Tells this grant from every other one, also of the same worker."""
    at: datetime = NEVER


class QueueBegan(Event, frozen=True, kw_only=True, tag="queue_began"):
    """The first event of a log of places, with those that the log before it ended with."""

    format: int
    id: str
    places: tuple[QueuePlace, ...] = ()
    turn: int = -1
    ready_at: float = 0.0
    key_ready: dict[str, float] = field(default_factory=dict)


class PlacesChanged(Event, frozen=True, kw_only=True, tag="places_changed"):
    """A worker gave places back, and took others."""

    taken: tuple[QueuePlace, ...] = ()
    freed: tuple[str, ...] = ()
    turn: int = -1
    """The lane that was served last."""
    ready_at: float = 0.0
    """When the rate is used up to the full, in seconds since 1970: see `core.queues`."""
    key_ready: dict[str, float] = field(default_factory=dict)
    """The same of the keys that were served."""


class QueueTurned(Event, frozen=True, kw_only=True, tag="queue_turned"):
    """The log of places has grown long: the one of the next number goes on."""


QueueEvent = QueueBegan | PlacesChanged | QueueTurned
