"""The events of going back, and of going another way."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Raw, UnsetType, field

from holdfast.events.base import Event, Failure
from holdfast.events.calls import Kind
from holdfast.events.forking import Effects


class Adopted(Event, frozen=True, kw_only=True, tag="adopted"):
    """A call was not made: it has the outcome of another one, of a stub, or of a person's choice.

    `how`: `reused` is what the same tool returned for the same arguments in the past that a fork
    or a rewind left, `stub` what was given for it, `recorded` what the call of this path came to
    in the log that is replayed, `edited` what a person put in the place of a recorded result.
    """

    path: str
    name: str
    kind: Kind
    how: Literal["reused", "stub", "recorded", "edited"]
    args: Raw | UnsetType = UNSET
    args_hash: str = ""
    result: Raw | UnsetType = UNSET
    failure: Failure | None = None
    of: str = ""
    """The task whose call it was, and that call's path."""
    of_path: str = ""
    child: str = ""
    key: str = ""
    """Of the call that it has the outcome of; for a question: its id, what was asked, and by whom
    it was answered."""
    why: str = ""
    by: str = ""
    undo: bool = False
    """Whether the task did it itself, before it was put back, and can undo it."""


class Rewound(Event, frozen=True, kw_only=True, tag="rewound"):
    """The task was put back to how it was after the event `to`. What came since stays in the log.

    It is no part of the task's past any more, but for what the next writer has to know: the epoch,
    the messages that were taken, and how often it was put back.
    """

    to: int
    number: int
    epoch: int
    claims: int = 0
    posts: tuple[str, ...] = ()
    path: str = ""
    when: str = ""
    by: str = ""
    because: str = ""
    effects: Effects = "reuse"
    sessions: dict[str, int] = field(default_factory=dict)
    """The conversations that are put back along with it, and each to which event."""


class SessionRewound(Event, frozen=True, kw_only=True, tag="session_rewound"):
    """The conversation was put back to how it was after the event `to`, along with a task."""

    to: int
    key: str
    by: str = ""


HistoryEvent = Adopted | Rewound
"""Those of a task."""
