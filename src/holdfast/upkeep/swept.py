"""What a clean-up says of itself."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from holdfast.core.kinds import KindName
from holdfast.stores.port import Leftovers
from holdfast.upkeep.archiving import Archived


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
    """What came of a clean-up. Made by `Holdfast.gc`.

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
    """The logs that can't be read, or are damaged. While there are any no blob is deleted, for they
    may name it, and no task because of `max_bytes`."""
    blobs: int = 0
    """How many blobs went that no log names any more."""
    blob_bytes: int = 0
    leftovers: Leftovers = Leftovers()
    """What crashed writers had left."""
    archive: Archived | None = None
    compacted_bytes: int = 0
    sessions: tuple[SweptSession, ...] = ()
    size_bytes: int = 0
    """Of the logs and blobs that are left."""

    @property
    def freed_bytes(self) -> int:
        """How much there is less of."""
        tasks = sum(task.size_bytes for task in self.tasks)
        sessions = sum(session.size_bytes for session in self.sessions)
        return tasks + sessions + self.blob_bytes + self.leftovers.size_bytes
