"""What a flow can ask of its driver, and what it is answered."""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import datetime
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast.errors import TaskWaiting
from holdfast.events import AnyEvent, Failure
from holdfast.journal.words import shown
from holdfast.spec import Spec
from holdfast.state import Call, State


class Append(Struct, gc=False):
    """Append an event; with `sync`, answer when it is durable. Answered with the call's record.

    With `while_waiting` only if the call still waits: its answer may come from outside just now.
    What depends on more than that is a function of the state as it is at that moment, which
    returns the event, or None for none.
    """

    event: AnyEvent | Callable[[State], AnyEvent | None]
    sync: bool
    while_waiting: bool = False


class Run(Struct, gc=False):
    """Run the body once. Answered with `Returned` or `Raised`."""

    attempt: int


class Check(Struct):
    """Ask the tool's `check` about the call. Answered with `Returned`, `None` or `Raised`."""


class Sleep(Struct):
    """Wait until a time. Without `park`, by all means in this process."""

    until: datetime
    park: bool = True


class Now(Struct):
    """What time is it?"""


class Park(Struct):
    """The call can't go on in this run: stop the task here. Never answered."""

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


class Stopped(Struct, gc=False):
    """A task's function was stopped for good: it was cancelled."""

    why: str


class Look(Struct, gc=False):
    """What does the log hold at a path? Answered with the record, or None."""

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


class Undo(Struct, gc=False):
    """Undo what the task did. Answered when all of it was tried."""


class CancelChildren(Struct, gc=False):
    """Ask the tasks that this one started to end, where they were declared to."""


Request = (
    Append
    | Run
    | Check
    | Sleep
    | Now
    | Park
    | Look
    | LookAtChild
    | MayStart
    | StartChild
    | DriveChild
    | Undo
    | CancelChildren
)
REMOTE = (Sleep, Park, DriveChild, StartChild, CancelChildren, Undo)
"""What a remote engine sees to, for the tasks that it drives."""

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

    def __str__(self) -> str:
        return f"{self.spec.name}({shown(self.args)})"


def key_of(task_id: str, path: str, name: str, args_hash: str, rewinds: int = 0) -> str:
    """The idempotency key of a tool call: the same for every try of it, and for no other call.

    Of a task that was put back it says how often: what it does then is done anew.

    >>> key_of("trip-42", "6", "book", "99a8fa9e"), key_of("trip-42", "6", "book", "99a8fa9e", 1)
    ('trip-42:6:book:99a8fa9e', 'trip-42:6~1:book:99a8fa9e')
    """
    return f"{task_id}:{path}{f'~{rewinds}' if rewinds else ''}:{name}:{args_hash}"
