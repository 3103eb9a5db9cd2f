"""What a replay found."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from holdfast.snapshots import Tag


class Divergence(Struct, frozen=True):
    """Where the code first does something else than the log holds.

    >>> print(Divergence("6", "book(attic)", "calls book(cellar)"))
    at step 6: the log holds book(attic), the code calls book(cellar)
    """

    path: str
    """The call; '' for the end of the task."""
    recorded: str
    asked: str
    why: str = ""

    def __str__(self) -> str:
        where = "at its end" if not self.path else f"at step {self.path}"
        if not self.recorded:
            return f"{where}: the code {self.asked}"
        return f"{where}: the log holds {self.recorded}, the code {self.asked}"


class Replayed(Struct, frozen=True, kw_only=True):
    """What a replay found: whether the code does what it did when the log was written.

    >>> Replayed(id="trip-42", outcome="completed", recorded="completed").same
    True
    """

    id: str
    outcome: str
    """How it ended: completed, failed, cancelled; `stopped` at a call; or `open`, like the log."""
    recorded: str
    """How the log ends: completed, failed, cancelled, or `open`."""
    result: Any = None
    """What the code returned, as plain data."""
    failure: str = ""
    """What the code raised, if it failed."""
    divergence: Divergence | None = None
    stopped_at: str = ""
    """The call that it stopped at, with its arguments: nobody could answer it, or it was asked
    to stop there."""
    answered: int = 0
    """How many calls were answered by the log."""
    stubbed: tuple[str, ...] = ()
    """The paths of the calls that stubs answered."""
    snapshots: int = 0
    """How many snapshots were compared."""
    differing: tuple[Tag, ...] = ()
    """Those that are not the same, byte for byte: the first of them, if they are many."""
    mended: tuple[Divergence, ...] = ()
    """Where the code goes on in tries that failed there, before the task was tried again."""
    note: str = ""
    """What else there is to know, such as that the log is damaged further on."""

    @property
    def same(self) -> bool:
        """Whether the outcome is the recorded one, and so is every snapshot on the way."""
        return self.divergence is None and not self.differing

    def summary(self) -> str:
        """What it found, in a line.

        >>> Replayed(id="trip-42", outcome="completed", recorded="completed").summary()
        'the same: completed, as recorded'
        """
        if self.divergence is not None:
            return f"diverges {self.divergence}"
        if self.differing:
            first = self.differing[0]
            where = f"{first.when} step {first.path}" if first.path else "at its end"
            return f"diverges: what it knows {where} is not what it knew"
        ends = (
            "as far as its log goes" if self.recorded == "open" else f"{self.recorded}, as recorded"
        )
        if self.outcome == "stopped":
            return f"the same as far as {self.stopped_at}"
        return f"the same: {ends}"
