"""The requests of a flow to its driver, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import datetime
from shlex import quote
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast.core.events import AnyEvent, Failure
from holdfast.core.lists import in_short
from holdfast.core.spec import Spec
from holdfast.core.state import Call, State
from holdfast.errors import BadInput, CodeChanged, InDoubt, StepFailed, TaskWaiting, Unanswered

if TYPE_CHECKING:
    pass


# How calls are named in messages, and the errors that flows and drivers raise of records.


def must_match(asked: Asked, record: Call) -> None:
    """Raise `CodeChanged` unless the record is of the call that the code asks for now."""
    same_kind = (record.kind == "tool") == asked.spec.is_tool
    if record.name == asked.spec.name and record.args_hash == asked.args_hash and same_kind:
        return
    why = ""
    if record.name == asked.spec.name and same_kind:
        why = "The arguments differ: what they are made from must be the same on every run"
    elif record.name == asked.spec.name:
        kind = "tool" if asked.spec.is_tool else "step"
        why = f"It was recorded as a {record.kind}, and is a {kind} now"
    elif asked.path.startswith("@"):
        why = "The task's code changed, or a step stands between restore() and the loop"
    raise CodeChanged(asked.task_id, asked.path, describe(record), f"calls {asked}", why)


def describe(record: Call) -> str:
    """A call as it stands in the log, for messages."""
    if record.kind == "decision":
        return f"the decision {record.name!r}"
    if record.kind == "fact":
        return f"the fact {record.name!r}"
    return f"{record.name}({shown(record.args)})"


def unanswered(task_id: str, record: Call) -> Unanswered:
    """The error that tells a person what they are asked."""
    return Unanswered(task_id, record.key, record.why, record.expects, record.until, record.refused)


def awaiting_message(task_id: str, record: Call) -> TaskWaiting:
    """The error that says which message a task waits for."""
    refused = f" (the last one did not fit: {record.refused})" if record.refused else ""
    why = f"task {task_id!r} waits for the message {record.key!r}, {record.expects}{refused}"
    return TaskWaiting(task_id, why, record.until)


def in_doubt(task_id: str, record: Call) -> InDoubt:
    """The error that tells a person what to find out."""
    return InDoubt(task_id, record.path, record.name, record.key, record.why)


def misfit(task_id: str, record: Call, error: Exception) -> BadInput:
    """The error for a result that a person gave, and which is not what the tool returns."""
    return BadInput(
        f"task {task_id!r}, call {record.path}, {record.name}: the result given by "
        f"{record.settled_by} does not fit ({error}). Settle it again: "
        f"holdfast resolve {quote(task_id)} {quote(record.path)} --happened --result JSON"
    )


def step_failed(record: Call) -> StepFailed:
    """The error that a failed call raises in the task, from its record alone."""
    failure = record.failure or Failure("Unknown", "")
    return StepFailed(record.path, record.name, failure, len(record.attempts))


def shown(raw: Any, most: int = 200) -> str:
    if not isinstance(raw, Raw):
        return ""
    text = in_short(bytes(raw)).decode(errors="replace")
    return text if len(text) <= most else f"{text[:most]}… {len(text):,} characters"


class Append(Struct, gc=False):
    """Append an event; with `sync`, answer when it is durable. Answered with the call's record.

    With `while_waiting` only if the call still waits: its answer may come from outside just now.
    An event that depends on more than that is given as a function of the state at that moment,
    which returns the event, or None for none.
    """

    event: AnyEvent | Callable[[State], AnyEvent | None]
    sync: bool
    while_waiting: bool = False


class RunBody(Struct, gc=False):
    """Run the body once. Answered with `Returned` or `Raised`."""

    attempt: int


class Check(Struct):
    """Ask the tool's `check` about the call. Answered with `Returned`, `None` or `Raised`."""


class Sleep(Struct):
    """Wait until a time. Without `park`, by all means in this process. `why`, if not to sleep."""

    until: datetime
    park: bool = True
    why: str = ""


class Now(Struct):
    """Asks for the time."""


class Park(Struct):
    """The call can't go on in this run: stop the task here. Never answered."""

    waiting: TaskWaiting


class Await(Struct):
    """Wait until the call has ended or its time is up, in this process or by parking the task."""

    waiting: TaskWaiting


class Returned(Struct, gc=False):
    """A body's result: as it goes into the log, and as the task will see it."""

    raw: Raw
    value: Any


class Raised(Struct, gc=False):
    """A body's exception. `final` where trying again would be pointless.

    `retry_after_s` is what the exception says: an attempt before that would be refused.
    """

    failure: Failure
    final: bool = False
    causes: tuple[str, ...] = ()
    parts: Raw | UnsetType = UNSET
    retry_after_s: float = 0.0
    refused_s: float = 0.0
    """For how long a provider refuses everybody: it had too many requests."""


class Stopped(Struct, gc=False):
    """A task's function was stopped for good: it was cancelled."""

    why: str


class Look(Struct, gc=False):
    """Asks for the record that the log holds at a path. Answered with it, or None."""

    path: str


class LookAtChild(Struct, gc=False):
    """How did another task end? Answered with `Returned`, `Raised`, or None if it goes on."""

    id: str


class MayStart(Struct, gc=False):
    """Refuse an id for a child that another task has."""

    id: str


class StartChild(Struct, gc=False):
    """Make the log of another task, if it is not there yet."""

    id: str
    name: str
    args: bytes
    path: str


class DriveChild(Struct, gc=False):
    """Wait for another task by driving it, if nobody else does. Answered when it has ended, or
    after a while; parks the call where that is not for this process to do."""

    id: str


class Admit(Struct, gc=False):
    """May a call be made, by its limit? Answered with None, or with when to ask again.

    It has waited `since` a time, and was told to come at `until`.
    """

    asked: Asked
    since: datetime | None
    until: datetime | None


class Leave(Struct, gc=False):
    """An attempt of a call that its limit let in has ended."""

    asked: Asked
    outcome: Returned | Raised


class Undo(Struct, gc=False):
    """Undo what the task did. Answered when all of it was tried."""


class CancelChildren(Struct, gc=False):
    """Ask the tasks that this one started to end, where they were declared to."""


Request = (
    Append
    | RunBody
    | Check
    | Sleep
    | Now
    | Park
    | Await
    | Look
    | LookAtChild
    | MayStart
    | StartChild
    | DriveChild
    | Admit
    | Leave
    | Undo
    | CancelChildren
)
REMOTE = (Sleep, Park, Await, DriveChild, StartChild, CancelChildren, Undo)
"""The requests that a remote engine carries out for the tasks that it drives."""

Flow = Generator[Request, Any, Returned | Call]
"""A call's flow ends with what its body returned just now, or with the record of its end."""


class Asked(Struct, gc=False):
    """A call as the code asks for it now."""

    task_id: str
    path: str
    spec: Spec
    args: Raw
    args_hash: str
    key: str
    hidden: tuple[str, ...] = ()
    """Texts among the arguments that `args` leaves out."""
    ttl_s: float = 0
    """For a read: how old an earlier one may be that answers for it; 0 if none may."""
    given: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    """The arguments as the code gave them, if decoding them would give the same."""
    weight: int = 0
    """For a call with a limit: the tokens that it is expected to take."""
    limit_key: str = ""
    """For such a call: which calls it shares the limit with; '' for all."""

    def __str__(self) -> str:
        return f"{self.spec.name}({shown(self.args)})"


def key_of(task_id: str, path: str, name: str, args_hash: str, rewinds: int = 0) -> str:
    """The idempotency key of a tool call: the same for every try of it, and for no other call.

    For a rewound task it counts the rewinds: the task's calls are then made anew.

    >>> key_of("trip-42", "6", "book", "99a8fa9e"), key_of("trip-42", "6", "book", "99a8fa9e", 1)
    ('trip-42:6:book:99a8fa9e', 'trip-42:6~1:book:99a8fa9e')
    """
    return f"{task_id}:{path}{f'~{rewinds}' if rewinds else ''}:{name}:{args_hash}"
