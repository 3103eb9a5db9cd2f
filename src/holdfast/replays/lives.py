"""The lives of a task: the stretches in which its function runs once, from its top to an end.

A crash or a pause begins no new one, since what follows goes on as if it had not been. Trying a
failed task again does, and so does undoing one that has ended: what the code was told before is no
longer what it is told now. A fork, or a task that was put back, is replayed from there on: what it
shares with its original, or was put back to, is taken as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from holdfast.events import (
    AnyEvent,
    CancelRequested,
    Claimed,
    Compensating,
    PauseRequested,
    Rewound,
    TaskCompleted,
    TaskContinued,
    TaskErrored,
    TaskRetried,
    TaskStopped,
)

End = TaskCompleted | TaskErrored | TaskStopped
How = Literal["returned", "raised", "stopped", "open"]

TIMED_OUT = "TaskTimedOut"


class Life(Struct, frozen=True):
    """One run of a task's function: after the event `start`, to the event `last`."""

    start: int
    last: int
    end: End | None = None
    """How it ended; None if the log ends before that."""

    @property
    def how(self) -> How:
        """What ended it: the function itself, somebody from outside, or nothing yet."""
        match self.end:
            case TaskCompleted():
                return "returned"
            case TaskErrored(failure=failure) if failure.type != TIMED_OUT:
                return "raised"
            case None:
                return "open"
            case _:
                return "stopped"


def lives(events: Sequence[AnyEvent], base: int) -> list[Life]:
    """The lives in a log, oldest first. `base` is how many events it shares with its original."""
    begin = base
    for event in events:
        if isinstance(event, Rewound):
            begin = max(begin, event.seq)
    own = [event for event in events if event.seq > begin]
    found: list[Life] = []
    start, end = _start(own, is_paused=begin > base), None
    for event in own:
        if isinstance(event, TaskCompleted | TaskErrored | TaskStopped):
            end = event
        if isinstance(event, TaskRetried) or (isinstance(event, Compensating) and end is not None):
            found.append(Life(start, event.seq - 1, end))
            start, end = event.seq, None
    newest = events[-1].seq
    found.append(Life(start or newest, newest, end))
    return found


def _start(events: Iterable[AnyEvent], *, is_paused: bool) -> int:
    """After which event the first life begins; 0 if none does.

    What stands before the first claim was said by whoever made the task. One that was put back is
    paused, and lets nothing run until it is told to go on: an engine claims it first, to hear that.
    """
    is_claimed = False
    for event in events:
        match event:
            case Claimed() if not is_paused:
                return event.seq - 1
            case Claimed():
                is_claimed = True
            case PauseRequested():
                is_paused = True
            case TaskContinued() | CancelRequested() if is_claimed:
                return event.seq
            case TaskContinued() | CancelRequested():
                is_paused = False
            case TaskRetried():
                break
    return 0


def status_of(life: Life) -> str:
    """How a life ended, in the words for tasks; `open` if it has not."""
    match life.end:
        case TaskCompleted():
            return "completed"
        case TaskErrored():
            return "failed"
        case TaskStopped():
            return "cancelled"
        case _:
            return "open"
