"""What a copy says of itself: while it goes on, and when it is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct


class CopiedTask(Struct, frozen=True):
    """One task of a copy."""

    id: str
    how: Literal["copied", "continued", "there", "ahead"]
    """`copied`: it was not there. `continued`: it was there in part. `there`: it was there, the
    same. `ahead`: it was there, and has gone on since."""
    status: str
    """In the target, when the copy was done."""
    events: int
    size_bytes: int
    blobs: int


class Refused(Struct, frozen=True):
    """A task that was not copied (and with it its family), or not deleted, and why."""

    id: str
    why: str
    error: str
    """The name of the error that it would have been."""


class Copied(Struct, frozen=True, kw_only=True):
    """What came of a copy. Made by `Holdfast.copy_to`.

    >>> from holdfast import Holdfast
    >>> with Holdfast("memory://") as hf, Holdfast("memory://") as other:
    ...     hf.copy_to(other).tasks
    ()
    """

    source: str
    target: str
    moved: bool = False
    dry_run: bool = False
    tasks: tuple[CopiedTask, ...] = ()
    refused: tuple[Refused, ...] = ()
    along: tuple[str, ...] = ()
    """Those that were not asked for, and went along because they belong to one that was."""

    @property
    def events(self) -> int:
        """How many events there are in the logs that were copied."""
        return sum(task.events for task in self.tasks)

    @property
    def size_bytes(self) -> int:
        """How long these logs are, without their blobs."""
        return sum(task.size_bytes for task in self.tasks)


What = Literal["paused", "copying", "copied", "goes on", "deleted", "archiving", "reading"]


class Progress(Struct, frozen=True):
    """How far a copy, an archive or a clean-up is."""

    what: What
    id: str
    done: int
    """How many tasks are done, of `total`."""
    total: int
    events: int = 0


Tell = Callable[[Progress], None]


def nothing(progress: Progress) -> None:
    """Nobody wants to know."""
