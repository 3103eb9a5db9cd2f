"""What a copy says of itself: while it goes on, and when it is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from holdfast.core.kinds import KindName, id_of, kind_of


class CopiedLog(Struct, frozen=True):
    """One log of a copy."""

    id: str
    how: Literal["copied", "continued", "there", "ahead"]
    """`copied`: it was not there. `continued`: it was there in part. `there`: it was there, the
    same. `ahead`: it was there, and has gone on since."""
    status: str
    """In the target, when the copy was done. A memory has none."""
    events: int
    size_bytes: int
    blobs: int


class CopiedTask(CopiedLog, frozen=True):
    """One task of a copy."""


class Refused(Struct, frozen=True):
    """A task that was not copied (and with it its family), or not deleted, and why."""

    id: str
    """Of a task. A log of another `kind` is named by its stream: `sessions/<id>`."""
    why: str
    error: str
    """The name of the error that it would have been."""
    kind: KindName = "task"


def why_refused(stream: str, error: Exception, before: str = "") -> Refused:
    """What keeps a log from being copied, as it is told."""
    kind = kind_of(stream)
    why = f"{before}{error}"
    return Refused(kind.shown(id_of(stream)), why, type(error).__name__, kind.name)


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
    sessions: tuple[CopiedLog, ...] = ()
    """Those of the tasks, and those that were meant themselves."""
    memories: tuple[CopiedLog, ...] = ()

    @property
    def events(self) -> int:
        """How many events there are in the logs that were copied."""
        return sum(log.events for log in self._logs)

    @property
    def size_bytes(self) -> int:
        """How long these logs are, without their blobs."""
        return sum(log.size_bytes for log in self._logs)

    @property
    def _logs(self) -> tuple[CopiedLog, ...]:
        return (*self.tasks, *self.sessions, *self.memories)


What = Literal["paused", "copying", "copied", "goes on", "deleted", "archiving", "reading"]


class CopyProgress(Struct, frozen=True):
    """How far a copy, an archive or a clean-up is."""

    what: What
    id: str
    done: int
    """How many logs are done, of `total`."""
    total: int
    events: int = 0


Tell = Callable[[CopyProgress], None]


def nothing(progress: CopyProgress) -> None:
    """Nobody wants to know."""
