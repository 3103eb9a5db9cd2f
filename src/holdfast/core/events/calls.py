"""The events of a call: a step, a tool, and whatever else a task asks for by its place."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import UNSET, Raw, UnsetType

from holdfast.core.events.base import Event, Failure

Kind = Literal[
    "step",
    "tool",
    "decision",
    "fact",
    "sleep",
    "reading",
    "question",
    "approval",
    "message",
    "child",
    "limit",
]
OnCancel = Literal["cancel", "leave"]
Verdict = Literal["happened", "did_not_happen"]


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


class Stepped(Event, frozen=True, kw_only=True, tag="stepped"):
    """A plain step began, and returned, and nothing else was written meanwhile: its `Started` and
    its `Completed` in one. `at` is when it returned."""

    path: str
    began: datetime
    name: str
    args: Raw
    args_hash: str
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
    """The task sleeps until a time: an absolute one, so that a crash does not start it anew.

    With `call` the call of that path waits for a limit, of this `name`, and since when.
    """

    path: str
    name: str
    args: Raw
    args_hash: str
    until: datetime
    call: str = ""
    since: datetime | None = None


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
    schema: Raw | UnsetType = UNSET
    """The JSON Schema of an answer, for types that their name alone does not explain."""


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


class MessageAwaited(Event, frozen=True, kw_only=True, tag="message_awaited"):
    """The task waits for a message of this name. The oldest one that nobody took is its answer."""

    path: str
    name: str
    args_hash: str
    expects: str
    until: datetime | None = None
    default: Raw | UnsetType = UNSET


class MessageSent(Event, frozen=True, kw_only=True, tag="message_sent"):
    """Somebody sent the task a message. The call that has waited longest for its name takes it, or
    else the next call that waits for that name."""

    name: str
    value: Raw
    by: str
    post: str = ""


class MessageRefused(Event, frozen=True, kw_only=True, tag="message_refused"):
    """The message that a call took does not fit what the code expects, so the call waits again."""

    path: str
    why: str


class MessageExpired(Event, frozen=True, kw_only=True, tag="message_expired"):
    """No message came in time. The call ends with its default, or fails if it has none."""

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


CallEvent = (
    Started
    | Reused
    | AttemptFailed
    | Failed
    | Completed
    | Stepped
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
    | MessageAwaited
    | MessageSent
    | MessageRefused
    | MessageExpired
    | ChildStarted
    | ChildMade
    | ChildEnded
)
