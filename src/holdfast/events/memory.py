"""The events of a memory: what is known beyond any session."""

from __future__ import annotations

from msgspec import UNSET, Raw, UnsetType, field

from holdfast.events.base import Event


class MemoryBegan(Event, frozen=True, kw_only=True, tag="memory_began"):
    """The first event of every memory."""

    format: int
    id: str


class Remembered(Event, frozen=True, kw_only=True, tag="remembered"):
    """Something worth knowing later, and where it comes from."""

    id: str
    text: str
    user: str = ""
    session: str = ""
    task: str = ""
    step: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    vector: Raw | UnsetType = UNSET
    """What the user's embedding function made of the text, if there was one."""
    key: str = ""


class Forgotten(Event, frozen=True, kw_only=True, tag="forgotten"):
    """An entry is not to be found any more. The log still has it."""

    id: str
    because: str = ""


MemoryEvent = MemoryBegan | Remembered | Forgotten
