"""The fields that all events have."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct

VERSION = "0.2.0"
"""Of Holdfast itself, which archives and reports name."""

FORMAT = 1
"""The format of a log's first event, by which everybody who knows no more can make a task."""
FORK_FORMAT = 2
"""The format of a fork's log: an older Holdfast would not look for the past that it shares."""
NEWEST_FORMAT = 3
"""The format of a driver, noted in `Claimed` when it takes hold of a task: it writes `Stepped`."""

NEVER = datetime(1970, 1, 1, tzinfo=UTC)
"""The time of an event that no log has taken yet."""


class Failure(Struct, frozen=True, omit_defaults=True, gc=False):
    """One exception as a recorded fact: what was raised, where, and while doing what.

    >>> Failure("ValueError", "no rooms").summary()
    'ValueError: no rooms'
    """

    type: str
    message: str
    traceback: str = ""
    module: str = "builtins"
    timed_out: bool = False

    def summary(self) -> str:
        """The last line of a traceback, as Python would print it."""
        return f"{self.type}: {self.message}" if self.message else self.type


class Event(Struct, frozen=True, omit_defaults=True, tag_field="type", gc=False):
    """The fields of every event."""

    seq: int = 0
    at: datetime = NEVER
