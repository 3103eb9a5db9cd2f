"""The events of a session: what was said in it, and what was made of that."""

from __future__ import annotations

from datetime import datetime

from msgspec import UNSET, Raw, Struct, UnsetType, field

from holdfast.core.events.base import Event
from holdfast.core.events.history import Fork, SessionRewound


class SessionBegan(Event, frozen=True, kw_only=True, tag="session_began"):
    """The first event of every session."""

    format: int
    id: str
    user: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    fork: Fork | None = None


class Said(Event, frozen=True, kw_only=True, tag="said"):
    """One turn of the conversation: a message, with the results of the calls that it asks for.

    They are in one event because a call without its result must never be all that a crash leaves.
    `key` is that of the one who says it: what was said before under the same key is not said again.
    """

    messages: Raw
    count: int
    role: str
    """Of the first one."""
    key: str = ""
    digest: str = ""
    task: str = ""
    step: str = ""


class Pinned(Event, frozen=True, kw_only=True, tag="pinned"):
    """From here on a message is in every context, or (not `pinned`) no longer is."""

    number: int
    pinned: bool = True
    by: str = ""


class Summarized(Event, frozen=True, kw_only=True, tag="summarized"):
    """A summary of the conversation up to a message. The messages themselves stay.

    `base` is the event of the summary that this one goes on from, which it stands for as well.
    """

    upto: int
    text: Raw
    base: int = 0
    key: str = ""
    task: str = ""
    step: str = ""


class SessionEnded(Event, frozen=True, kw_only=True, tag="session_ended"):
    """The user's engagement is over. The next message begins it again."""

    because: str = ""


# The events of a memory: what is known beyond any session.


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
    """The vector that the user's embedding function made of the text, if there is one."""
    key: str = ""


class Forgotten(Event, frozen=True, kw_only=True, tag="forgotten"):
    """An entry is not to be found any more. The log still has it."""

    id: str
    because: str = ""


class ValueChange(Struct, frozen=True, omit_defaults=True):
    """The outcome for one key: it has this value now, or (left out) none."""

    key: str
    value: Raw | UnsetType = UNSET
    expires_at: datetime | None = None


class ValuesChanged(Event, frozen=True, kw_only=True, tag="values_changed"):
    """Values were put under keys, or deleted: all of these at once.

    `call` is the key of the call of a task that did it, which does it once.
    """

    changes: tuple[ValueChange, ...]
    call: str = ""
    task: str = ""
    step: str = ""


SessionEvent = (
    SessionBegan | Said | Pinned | Summarized | SessionEnded | SessionRewound | ValuesChanged
)
MemoryEvent = MemoryBegan | Remembered | Forgotten | ValuesChanged
