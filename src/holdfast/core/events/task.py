"""The events of a task: who drives it, what it was told, and how it went on and ended."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType, field

from holdfast.core.events.base import Event, Failure
from holdfast.core.events.calls import CallEvent
from holdfast.core.events.history import Effects, Fork

PlanStatus = Literal["pending", "doing", "done", "failed", "skipped"]


class QueueTicket(Struct, frozen=True, omit_defaults=True):
    """In which queue a task waits, and where: see `core.queues`."""

    queue: str
    lane: int
    key: str = ""
    priority: int = 0
    ahead_s: float = 0.0
    """How many seconds its priority is worth."""


class TaskCreated(Event, frozen=True, kw_only=True, tag="task_created"):
    """The first event of every task."""

    format: int
    id: str
    task: str
    args: Raw
    args_hash: str
    user: str = ""
    session: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    version: int = 0
    timeout_s: float | None = None
    parent: str = ""
    parent_path: str = ""
    fork: Fork | None = None
    """For a fork: whose past it shares. Its own events count on from there."""
    engine: str = ""
    """The engine that is to drive it; '' for any process that has the code and looks for work."""
    ticket: QueueTicket | None = None
    """For a task of a queue. A fork of it has none."""
    not_before: datetime | None = None
    """When it may begin at the earliest."""


class Queued(Event, frozen=True, kw_only=True, tag="queued"):
    """The task waits in its queue: its time has come, or it was released before and can go on."""

    ticket: QueueTicket | None = None
    """Where, if that has changed."""


class Claimed(Event, frozen=True, kw_only=True, tag="claimed"):
    """A writer took hold of the task. Higher epochs win; lower ones are refused by the store."""

    format: int
    epoch: int
    owner: str
    engine: str = "local"
    process: str = ""
    """Tells the writer's process from every other one, also from a later one of the same number."""


class DriverDied(Event, frozen=True, kw_only=True, tag="driver_died"):
    """The process that drove the task died, or hung for longer than its lease. The next driver
    records that, before it claims the task."""

    owner: str
    """The driver that died."""
    path: str = ""
    """Where: the call that was being made; '' if there was none, and the function itself ran."""
    name: str = ""
    """The name of that call."""
    deaths: int = 1
    """How often a driver died there."""
    beside: tuple[str, ...] = ()
    """Other calls that were being made at the time."""


class SetAside(Event, frozen=True, kw_only=True, tag="task_stuck"):
    """Drivers of the task died too often at one place, so nobody drives it until a person says so.

    The fields say who died last, where, and how often.
    """

    owner: str
    path: str = ""
    name: str = ""
    deaths: int = 1
    post: str = ""


class Hindered(Event, frozen=True, kw_only=True, tag="hindered"):
    """The task could not go on, for a reason that is not its own. Recorded once for each reason."""

    error: str
    """The type of the error, such as CodeChanged."""
    why: str
    """Its words, and what to do."""
    by: str = ""
    """The driver that tried."""


class Parked(Event, frozen=True, kw_only=True, tag="parked"):
    """The writer released the task, which waits. `until` is when it goes on by itself."""

    until: datetime | None = None
    why: str = ""


class PauseRequested(Event, frozen=True, kw_only=True, tag="task_paused"):
    """Somebody asked for the task to stop at its next step, and to stay so."""

    by: str
    because: str = ""
    post: str = ""


class TaskContinued(Event, frozen=True, kw_only=True, tag="task_continued"):
    """Somebody asked for a paused task to go on."""

    by: str
    post: str = ""


class CancelRequested(Event, frozen=True, kw_only=True, tag="cancel_requested"):
    """Somebody asked for the task to end at its next step."""

    by: str
    because: str = ""
    post: str = ""


class Moved(Event, frozen=True, kw_only=True, tag="moved"):
    """Somebody gave the task to another engine, which drives it from here on; or its own engine
    goes on with it in a new run."""

    engine: str
    """Its name; '' for this process, or any local worker."""
    by: str = ""
    forced: bool = False
    """Whether the engine that had it was not asked: what it still does for the task is refused."""
    since: int = 0
    """If its own engine goes on with it, the event that the run before this one drove it from."""
    post: str = ""


class PlanItem(Struct, frozen=True, omit_defaults=True):
    """One thing that a task intends to do, and what became of it. See `current().plan`.

    Without an `id` it is known by its place in the plan, counted from 1. `after` are the ids of
    the items that come before it.

    >>> PlanItem("book the room", id="book", after=("search",)).status
    'pending'
    """

    text: str
    id: str = ""
    status: PlanStatus = "pending"
    after: tuple[str, ...] = ()


class Planned(Event, frozen=True, kw_only=True, tag="planned"):
    """The task said what it intends to do. The newest plan counts; older ones stay in the log.

    An item that is nothing but a text, known by its place, is written as that text.
    """

    items: tuple[str | PlanItem, ...]
    mark: str = ""
    by: str = ""
    """The person who changed it, if it was not the task."""
    diff: str = ""
    base_seq: int = 0
    """For a change from outside: the event whose plan it was made of."""
    post: str = ""


class PlanProgressed(Event, frozen=True, kw_only=True, tag="plan_progressed"):
    """The task said what became of an item of its plan."""

    id: str
    status: PlanStatus
    because: str = ""
    mark: str = ""


class ListGrew(Event, frozen=True, kw_only=True, tag="list_grew"):
    """A long list that values name: the items that it has beyond those of the list `base`.

    Without `base` it goes on from the list of the last such event; with an empty one, from none.
    A part of an item from the result of a call is null there, and is in `copied`: where it stands
    in `items`, the path of the call, and the event that has its result.
    """

    digest: str
    length: int
    base: str | None = None
    items: Raw | UnsetType = UNSET
    copied: tuple[tuple[tuple[str | int, ...], str, int], ...] = ()


class Unread(Struct, frozen=True):
    """A message that no call has taken yet. `seq` is the event that brought it."""

    seq: int
    name: str
    value: Raw


class Carried(Struct, frozen=True, omit_defaults=True):
    """The facts that a reader needs who begins at a checkpoint instead of at the start."""

    status: str = ""
    because: str = ""
    plan: tuple[str | PlanItem, ...] = ()
    until: datetime | None = None
    cancelling: bool = False
    undoable: bool = False
    posts: tuple[str, ...] = ()
    open: tuple[Raw, ...] = ()
    """The calls that have not ended, as the state has them: they may end after the checkpoint."""
    lists: tuple[tuple[str, int], ...] = ()
    """The newest long lists, by digest and length: they may grow after the checkpoint."""
    rewinds: int = 0
    effects: Effects = "live"
    left_at: int = 0
    mission: Raw | UnsetType = UNSET
    files: Raw | UnsetType = UNSET
    """The files of the task, as the state has them; many of them are in a blob."""
    driver: str = ""
    driven_since: int = 1
    taken_at: int = 0
    mail: tuple[Unread, ...] = ()
    ticket: QueueTicket | None = None


class Checkpointed(Event, frozen=True, kw_only=True, tag="checkpointed"):
    """The task's explicit state, whole or as what changed since the checkpoint before.

    Nothing older is replayed. A whole one (`carried` is there) can be gone on from without
    reading anything older, except the first event.
    """

    number: int
    version: int = 0
    state: Raw | UnsetType = UNSET
    change: Raw | UnsetType = UNSET
    carried: Carried | None = None


class Patched(Event, frozen=True, kw_only=True, tag="patched"):
    """The task took the new way at a place where its code was changed, and keeps to it."""

    mark: str


class Progressed(Event, frozen=True, kw_only=True, tag="progressed"):
    """How far the task says it is. For those who watch; a replay does not say it again."""

    scope: str
    number: int
    text: str = ""
    done: float | None = None
    total: float | None = None


class Compensating(Event, frozen=True, kw_only=True, tag="compensating"):
    """The task's effects are being undone. Its function runs no more; then it ends as said here."""

    ending: Literal["failed", "cancelled"]
    by: str = ""
    failure: Failure | None = None
    causes: tuple[str, ...] = ()


class TaskStopped(Event, frozen=True, kw_only=True, tag="task_cancelled"):
    """The task ended because somebody asked for it."""

    because: str = ""


class TaskCompleted(Event, frozen=True, kw_only=True, tag="task_completed"):
    """The task's function returned."""

    result: Raw


class TaskErrored(Event, frozen=True, kw_only=True, tag="task_failed"):
    """The task's function raised. `causes` are the failed calls that led to it."""

    failure: Failure
    causes: tuple[str, ...] = ()


class TaskRetried(Event, frozen=True, kw_only=True, tag="task_retried"):
    """Somebody asked for the failed task to be tried again."""

    by: str = ""


TaskEvent = (
    CallEvent
    | TaskCreated
    | Queued
    | Claimed
    | DriverDied
    | SetAside
    | Hindered
    | Parked
    | PauseRequested
    | TaskContinued
    | CancelRequested
    | Moved
    | Planned
    | PlanProgressed
    | ListGrew
    | Checkpointed
    | Patched
    | Progressed
    | Compensating
    | TaskStopped
    | TaskCompleted
    | TaskErrored
    | TaskRetried
)


# The events of a task's workspace: what it is for, and the files that belong to it.


class MissionSet(Event, frozen=True, kw_only=True, tag="mission_set"):
    """The purpose of the task, in people's words. The newest counts; older ones stay in the log.

    `diff` is what changed, where somebody edited it.
    """

    text: Raw
    by: str = ""
    diff: str = ""
    post: str = ""


class FileKept(Event, frozen=True, kw_only=True, tag="file_kept"):
    """From here on a file of the task has this content: an artifact. `path` is the call that
    wrote it; by `mark` a replay knows it again.

    `base` is the version that the writer expected to replace, where it said so: 0 for none.
    """

    name: str
    file: Raw
    path: str = ""
    mark: str = ""
    by: str = ""
    base: int | UnsetType = UNSET
    post: str = ""


class FileRemoved(Event, frozen=True, kw_only=True, tag="file_removed"):
    """From here on a file of the task is gone. Its versions stay."""

    name: str
    path: str = ""
    mark: str = ""
    by: str = ""
    base: int | UnsetType = UNSET
    post: str = ""


WorkspaceEvent = MissionSet | FileKept | FileRemoved
