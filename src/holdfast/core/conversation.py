"""The state of a session: everything its events come to. Reading it decodes no message.

Messages are counted from 1. A turn is one event: a message, with the results of the calls in it.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.events import (
    NEVER,
    AnyEvent,
    Fork,
    Pinned,
    Said,
    SessionBegan,
    SessionEnded,
    SessionRewound,
    Summarized,
    ValuesChanged,
)
from holdfast.core.memories import KeptValue, change
from holdfast.errors import LogDamaged


class Conversation(Struct):
    """Everything that is known of a session after the event `seq`."""

    id: str = ""
    user: str = ""
    labels: dict[str, str] = {}
    status: Literal["open", "ended"] = "open"
    because: str = ""
    seq: int = 0
    created_at: datetime = NEVER
    updated_at: datetime = NEVER
    messages: int = 0
    """How many there are."""
    turns: list[Said] = []
    firsts: list[int] = []
    """The number of the first message of each turn."""
    system: list[int] = []
    """The turns that are system messages."""
    keys: dict[str, int] = {}
    """The turns that were said under a key, by it: which one it is."""
    pinned: dict[int, int] = {}
    """The pinned messages, and the event since which they are."""
    summaries: list[Summarized] = []
    """The newest last."""
    origins: tuple[str, ...] = ()
    """The sessions whose past it shares, if it is a fork."""
    fork: Fork | None = None
    """Whose past it shares, if it is a fork."""
    rewinds: tuple[str, ...] = ()
    """The keys of those who put it back."""
    values: dict[str, KeptValue] = {}
    """The values that it keeps under keys: the checkpoints of a graph, or the state of an app."""
    calls: dict[str, int] = {}
    """The calls of tasks that changed values, and the events that they made."""
    trail: list[AnyEvent] = []
    """The events that it was made of, so that it can be rewound."""

    @property
    def summary(self) -> Summarized | None:
        """The newest summary."""
        return self.summaries[-1] if self.summaries else None

    def was_left(self, seq: int) -> bool:
        """Whether it was rewound since an event, to a time before that."""
        return any(
            isinstance(event, SessionRewound) and event.to < seq < event.seq for event in self.trail
        )

    def turn_of(self, number: int) -> int:
        """Which turn a message is in."""
        return bisect_right(self.firsts, number) - 1


def as_it_is(state: Conversation) -> Conversation:
    """The state for one who looks at it while others go on: what they add is not in it."""
    return replace(
        state,
        turns=state.turns.copy(),
        firsts=state.firsts.copy(),
        system=state.system.copy(),
        pinned=state.pinned.copy(),
        summaries=state.summaries.copy(),
        keys={},
        trail=[],
    )


def advance(state: Conversation, event: AnyEvent) -> None:
    """Change a session's state, which the caller alone owns, by one event."""
    match event:
        case SessionBegan():
            if state.id:
                state.origins = (*state.origins, state.id)
            state.id, state.user, state.labels = event.id, event.user, event.labels
            state.created_at, state.fork = event.at, event.fork
        case Said():
            if event.count < 1:
                raise LogDamaged(f"sessions/{state.id}", event.seq, "a turn without a message")
            if event.key:
                state.keys[event.key] = len(state.turns)
            if event.role == "system":
                state.system.append(len(state.turns))
            state.firsts.append(state.messages + 1)
            state.turns.append(event)
            state.messages += event.count
            state.status = "open"
        case Pinned():
            state.pinned.pop(event.number, None)
            if event.pinned:
                state.pinned[event.number] = event.seq
        case Summarized():
            state.summaries.append(event)
        case SessionEnded():
            state.status, state.because = "ended", event.because
        case ValuesChanged():
            change(state.values, state.calls, event)
        case SessionRewound():
            _rewind(state, event)
        case _:
            what = f"a {type(event).__name__} is no event of a session"
            raise LogDamaged(f"sessions/{state.id}", event.seq, what)
    state.seq, state.updated_at = event.seq, event.at
    state.trail.append(event)


_ITS_OWN = frozenset({"id", "user", "labels", "created_at", "fork", "origins", "trail"})
"""The fields that stay, also when a fork is rewound into the past it shares."""


def _rewind(state: Conversation, event: SessionRewound) -> None:
    """Become the fold of the events up to `to`. An earlier rewind among them counts."""
    kept: list[AnyEvent] = []
    upto = event.to
    for each in reversed(state.trail):
        if each.seq <= upto:
            kept.append(each)
            upto = each.to if isinstance(each, SessionRewound) else each.seq - 1
    before = Conversation()
    for each in reversed(kept):
        if not isinstance(each, SessionRewound):
            advance(before, each)
    rewinds = (*state.rewinds, event.key)
    for field in Conversation.__struct_fields__:
        if field not in _ITS_OWN:
            setattr(state, field, getattr(before, field))
    state.rewinds = rewinds
