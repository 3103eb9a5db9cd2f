"""The events of going back, and of going another way."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType, field

from holdfast.core.events.base import Event, Failure
from holdfast.core.events.calls import Kind

# Where a log that shares its past with another one leaves it.


Effects = Literal["live", "reuse", "stub"]
"""The policy for tools that are called after a fork, or after a rewind.

`live`: they are called. `reuse`: one that was called with the same arguments in the past that was
left is answered by what it returned then; others are called. `stub`: none is called; one that has
no answer stops the task.
"""


class Fork(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A fork's link to its original: whose past it shares, up to which event, and with what
    changes it goes on.

    `sum` is that of the last event they share: another past would have another one.
    """

    of: str
    seq: int
    sum: str
    task: str = ""
    """The task that was forked, where that is a fork itself, and the past is its original's."""
    path: str = ""
    """The call before or after which it leaves, if it was said so."""
    when: str = ""
    by: str = ""
    because: str = ""
    effects: Effects = "live"
    stubs: dict[str, Raw] = {}
    """The results that steps and tools return after the fork without being called, by name."""
    arguments: dict[str, dict[str, Raw]] = {}
    """Arguments that are others after the fork: by the name of the step, and the parameter."""
    sessions: dict[str, str] = {}
    """The conversations that branched along: the id of each by that of the original."""


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
    """Whether the task did it itself, before a rewind, and can undo it."""


class Rewound(Event, frozen=True, kw_only=True, tag="rewound"):
    """The task was rewound to the event `to`. The events since then stay in the log.

    It is no part of the task's past any more, but for what the next writer has to know: the epoch,
    the messages that were taken, and the number of rewinds.
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
    """The conversations that are rewound along with it, and each to which event."""


class SessionRewound(Event, frozen=True, kw_only=True, tag="session_rewound"):
    """The conversation was rewound to the event `to`, along with a task."""

    to: int
    key: str
    by: str = ""


HistoryEvent = Adopted | Rewound
"""Those of a task."""
