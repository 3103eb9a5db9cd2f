"""The events of a task, and what all events have."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast.events.forking import Effects, Fork

FORMAT = 1
"""What logs are written in; `NEWEST_FORMAT` is what those say that share their past with another,
which an older Holdfast would not know to look for."""
NEWEST_FORMAT = 2

Kind = Literal[
    "step", "tool", "decision", "fact", "sleep", "reading", "question", "approval", "child"
]
OnCancel = Literal["cancel", "leave"]
Verdict = Literal["happened", "did_not_happen"]
PlanStatus = Literal["pending", "doing", "done", "failed", "skipped"]

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
    """What every event has."""

    seq: int = 0
    at: datetime = NEVER


class TaskCreated(Event, frozen=True, kw_only=True, tag="task_created"):
    """The first event of every task."""

    format: int
    id: str
    task: str
    args: Raw
    args_hash: str
    user: str = ""
    session: str = ""
    labels: dict[str, str] = {}
    version: int = 0
    timeout_s: float | None = None
    parent: str = ""
    parent_path: str = ""
    fork: Fork | None = None
    """For a fork: whose past it shares. Its own events count on from there."""
    engine: str = ""
    """The engine that is to drive it; '' for whoever has the code and looks for work."""


class Claimed(Event, frozen=True, kw_only=True, tag="claimed"):
    """A writer took hold of the task. Higher epochs win; lower ones are refused by the store."""

    format: int
    epoch: int
    owner: str
    engine: str = "local"


class Parked(Event, frozen=True, kw_only=True, tag="parked"):
    """The writer let go of the task, which waits. `until` is when it goes on by itself."""

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
    """Somebody gave the task to another engine, which drives it from here on."""

    engine: str
    """Its name; '' for this process, or any local worker."""
    by: str = ""
    forced: bool = False
    """Whether the engine that had it was not asked: what it still does for the task is refused."""
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
    """Who changed it, if it was not the task."""
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


class Started(Event, frozen=True, kw_only=True, tag="started"):
    """An attempt of a call begins. For a tool this is the intent: on disk before the body runs.

    Only the first attempt carries the arguments; later ones are of the same call.
    """

    path: str
    attempt: int = 1
    name: str = ""
    kind: Kind = "step"
    args: Raw | UnsetType = UNSET
    args_hash: str = ""
    key: str = ""
    undo: bool = False
    external: bool = False
    """Whether it reads the outside world, and may answer for the same read made later."""
    invalidates: tuple[str, ...] = ()
    """For a tool: the reads that are not to be trusted once it may have had its effect."""


class Reused(Event, frozen=True, kw_only=True, tag="reused"):
    """A read of the outside world was answered by an earlier one, `of` that path.

    A call of its own, which a replay takes the same way, whatever time it is then.
    """

    path: str
    name: str
    args_hash: str
    of: str


class AttemptFailed(Event, frozen=True, kw_only=True, tag="attempt_failed"):
    """An attempt raised. With `retry_at` another follows then.

    `doubt` says that the call may have had its effect all the same (a timeout, a lost reply).
    `parts` are what a step that streams had yielded before.
    """

    path: str
    attempt: int
    failure: Failure
    retry_at: datetime | None = None
    doubt: bool = False
    parts: Raw | UnsetType = UNSET


class Failed(Event, frozen=True, kw_only=True, tag="failed"):
    """A call has failed for good: no attempts are left. The task sees a `StepFailed`."""

    path: str


class Completed(Event, frozen=True, kw_only=True, tag="completed"):
    """A call returned. Its result is what the task goes on with, now and on every replay."""

    path: str
    result: Raw


class Settled(Event, frozen=True, kw_only=True, tag="settled"):
    """A call in doubt was settled: by its `check`, or by a person."""

    path: str
    verdict: Verdict
    by: str
    result: Raw | UnsetType = UNSET
    because: str = ""
    post: str = ""


class Doubted(Event, frozen=True, kw_only=True, tag="doubted"):
    """A call is in doubt and only a person can settle it: the task waits."""

    path: str
    why: str


class Decided(Event, frozen=True, kw_only=True, tag="decided"):
    """The agent chose at a branch point. One event: a decision can't fail half-way."""

    path: str
    name: str
    choice: Raw
    options: Raw | UnsetType = UNSET
    because: str = ""
    supersedes: str = ""
    """The path of an earlier decision, which no longer counts."""


class Noted(Event, frozen=True, kw_only=True, tag="noted"):
    """Something the agent wanted to remember. `mark` recognises it on replay."""

    scope: str
    mark: str
    text: str
    data: Raw | UnsetType = UNSET


class Derived(Event, frozen=True, kw_only=True, tag="derived"):
    """A fact that was made of what the outside world said, and of when that was: its oldest part.

    `sources` are the paths of the reads.
    """

    path: str
    name: str
    value: Raw
    as_of: datetime
    sources: tuple[str, ...] = ()


class TimerSet(Event, frozen=True, kw_only=True, tag="timer_set"):
    """The task sleeps until a time: an absolute one, so that a crash does not start it anew."""

    path: str
    name: str
    args: Raw
    args_hash: str
    until: datetime


class Woke(Event, frozen=True, kw_only=True, tag="woke"):
    """The time a sleeping call waited for has come."""

    path: str


class Observed(Event, frozen=True, kw_only=True, tag="observed"):
    """The task read something that changes, such as the time. A replay sees what it saw."""

    path: str
    name: str
    value: Raw


class QuestionAsked(Event, frozen=True, kw_only=True, tag="question_asked"):
    """The task put a question to a person, and waits for the answer.

    With `call` it asks whether the call of that path may be made, with these `args`.
    """

    path: str
    call: str = ""
    args: Raw | UnsetType = UNSET
    id: str
    question: str
    args_hash: str
    expects: str
    until: datetime | None = None
    default: Raw | UnsetType = UNSET


class QuestionAnswered(Event, frozen=True, kw_only=True, tag="question_answered"):
    """A question was answered: by a person, or by its default when its time was up."""

    path: str
    answer: Raw
    by: str
    post: str = ""


class AnswerRefused(Event, frozen=True, kw_only=True, tag="answer_refused"):
    """An answer did not fit what the code asks for, so the question is open again."""

    path: str
    why: str


class QuestionExpired(Event, frozen=True, kw_only=True, tag="question_expired"):
    """A question's time was up, and it had no default."""

    path: str


class ChildStarted(Event, frozen=True, kw_only=True, tag="child_started"):
    """The task is about to start another one, by this id. From here on it counts as its child."""

    path: str
    id: str
    name: str
    args: Raw
    args_hash: str
    on_cancel: OnCancel = "cancel"


class ChildMade(Event, frozen=True, kw_only=True, tag="child_made"):
    """The log of the child is there. If it is not later, it was removed."""

    path: str


class ChildEnded(Event, frozen=True, kw_only=True, tag="child_ended"):
    """The task learned how its child ended: with a result, or with a failure."""

    path: str
    result: Raw | UnsetType = UNSET
    failure: Failure | None = None
    post: str = ""


class ListGrew(Event, frozen=True, kw_only=True, tag="list_grew"):
    """A long list that values name: the items that it has beyond those of the list `base`.

    Without `base` it goes on from the list of the last such event; with an empty one, from none.
    What an item has from the result of a call stands there as null, and in `copied`: where it
    stands in `items`, the path of the call, and the event that has its result.
    """

    digest: str
    length: int
    base: str | None = None
    items: Raw | UnsetType = UNSET
    copied: tuple[tuple[tuple[str | int, ...], str, int], ...] = ()


class Carried(Struct, frozen=True, omit_defaults=True):
    """What has to be known of the events before a checkpoint by those who don't read them."""

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
    """What the task did is being undone. Its function runs no more; then it ends as said here."""

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
    TaskCreated
    | Claimed
    | Parked
    | PauseRequested
    | TaskContinued
    | CancelRequested
    | Moved
    | Planned
    | PlanProgressed
    | Started
    | Reused
    | AttemptFailed
    | Failed
    | Completed
    | Settled
    | Doubted
    | Decided
    | Noted
    | Derived
    | TimerSet
    | Woke
    | Observed
    | QuestionAsked
    | QuestionAnswered
    | AnswerRefused
    | QuestionExpired
    | ChildStarted
    | ChildMade
    | ChildEnded
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
