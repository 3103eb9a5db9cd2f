"""The reports of a copy, an archive and a clean-up: their progress, and their result."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Literal

from msgspec import Struct

from holdfast.core.kinds import KindName, id_of, kind_of
from holdfast.stores.port import Leftovers


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
    """The class name of the error."""
    kind: KindName = "task"


def why_refused(stream: str, error: Exception, before: str = "") -> Refused:
    """The report of a log that can't be copied."""
    kind = kind_of(stream)
    why = f"{before}{error}"
    return Refused(kind.shown(id_of(stream)), why, type(error).__name__, kind.name)


class Copied(Struct, frozen=True, kw_only=True):
    """The result of a copy. Made by `Holdfast.copy_to`.

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
    """Tasks that were not asked for, and went along because they belong to one that was."""
    sessions: tuple[CopiedLog, ...] = ()
    """The sessions of the tasks, and those that were chosen themselves."""
    memories: tuple[CopiedLog, ...] = ()

    @property
    def events(self) -> int:
        """How many events there are in the logs that were copied."""
        return sum(log.events for log in self._logs)

    @property
    def size_bytes(self) -> int:
        """The size of these logs, without their blobs."""
        return sum(log.size_bytes for log in self._logs)

    @property
    def _logs(self) -> tuple[CopiedLog, ...]:
        return (*self.tasks, *self.sessions, *self.memories)


class Archived(Struct, frozen=True):
    """The result of an archive: the logs that are in it."""

    path: str
    ids: tuple[str, ...]
    """Of tasks."""
    events: int
    blobs: int
    unpacked_bytes: int
    size_bytes: int
    """Of the file."""
    refused: tuple[Refused, ...] = ()
    """The logs that can't be read, and so are not in it."""
    sessions: tuple[str, ...] = ()
    memories: tuple[str, ...] = ()


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
    """Ignore the progress."""


# Clean-ups.


class SweptTask(Struct, frozen=True):
    """A task that was deleted, or would be."""

    id: str
    type: str
    status: str
    updated_at: datetime
    size_bytes: int
    why: str


class SweptSession(Struct, frozen=True):
    """A session that was deleted, or would be."""

    id: str
    user: str
    status: str
    updated_at: datetime
    size_bytes: int
    why: str


class Kept(Struct, frozen=True):
    """A task that the policy would delete, and why it stays."""

    id: str
    """Of a task. A log of another `kind` is named by its stream: `sessions/<id>`."""
    why: str
    kind: KindName = "task"


class Swept(Struct, frozen=True, kw_only=True):
    """The result of a clean-up. Made by `Holdfast.gc`.

    >>> from holdfast import Holdfast
    >>> with Holdfast("memory://") as hf:
    ...     hf.gc().freed_bytes
    0
    """

    store: str
    dry_run: bool = False
    tasks: tuple[SweptTask, ...] = ()
    kept: tuple[Kept, ...] = ()
    unreadable: tuple[Kept, ...] = ()
    """The logs that can't be read, or are damaged. While there are any, no blob is deleted, because
    they may name it, and no task goes because of `max_bytes`."""
    blobs: int = 0
    """The number of deleted blobs: no log named them any more."""
    blob_bytes: int = 0
    leftovers: Leftovers = Leftovers()
    """The removed leftovers of crashed writers."""
    archive: Archived | None = None
    compacted_bytes: int = 0
    sessions: tuple[SweptSession, ...] = ()
    size_bytes: int = 0
    """Of the logs and blobs that are left."""

    @property
    def freed_bytes(self) -> int:
        """The number of bytes that the clean-up freed."""
        tasks = sum(task.size_bytes for task in self.tasks)
        sessions = sum(session.size_bytes for session in self.sessions)
        return tasks + sessions + self.blob_bytes + self.leftovers.size_bytes
