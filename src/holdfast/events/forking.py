"""Where a log that shares its past with another one leaves it."""

from __future__ import annotations

from typing import Literal

from msgspec import Raw, Struct

Effects = Literal["live", "reuse", "stub"]
"""What becomes of the tools that are called after a fork, or after a rewind.

`live`: they are called. `reuse`: one that was called with the same arguments in the past that was
left is answered by what it returned then; others are called. `stub`: none is called; one that has
no answer stops the task.
"""


class Fork(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a fork says of its original: whose past it shares, up to which event, and with what
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
    """What steps and tools return after the fork without being called, by their names."""
    arguments: dict[str, dict[str, Raw]] = {}
    """Arguments that are others after the fork: by the name of the step, and the parameter."""
    sessions: dict[str, str] = {}
    """The conversations that branched along: the id of each by that of the original."""
