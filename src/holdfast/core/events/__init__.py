"""The events: what a log is made of.

One closed union of frozen types. An event says what happened and is never changed; everything a
task knows is a fold of its events. Values inside an event (`args`, `result`, …) stay the JSON
bytes that the codec made of them, so that reading a log decodes, imports and runs nothing.

The log sets `seq` and `at` at the append: code that makes an event leaves them out.
Add new types and new optional fields freely; a change that an older Holdfast would misread needs
a new `FORMAT`, which every writer notes in the log when it takes hold of it (`Claimed`).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.core.decoding import decoder
from holdfast.core.events.base import (
    FORK_FORMAT,
    FORMAT,
    NEVER,
    NEWEST_FORMAT,
    VERSION,
    Event,
    Failure,
)
from holdfast.core.events.calls import (
    AnswerRefused,
    AttemptFailed,
    ChildEnded,
    ChildMade,
    ChildStarted,
    Completed,
    Decided,
    Derived,
    Doubted,
    Failed,
    Kind,
    MessageAwaited,
    MessageExpired,
    MessageRefused,
    MessageSent,
    Noted,
    Observed,
    OnCancel,
    QuestionAnswered,
    QuestionAsked,
    QuestionExpired,
    Reused,
    Settled,
    Started,
    Stepped,
    TimerSet,
    Verdict,
    Woke,
)
from holdfast.core.events.history import (
    Adopted,
    Effects,
    Fork,
    HistoryEvent,
    Rewound,
    SessionRewound,
)
from holdfast.core.events.queue import (
    PlacesChanged,
    QueueBegan,
    QueueEvent,
    QueuePlace,
    QueueTurned,
)
from holdfast.core.events.session import (
    Forgotten,
    MemoryBegan,
    MemoryEvent,
    Pinned,
    Remembered,
    Said,
    SessionBegan,
    SessionEnded,
    SessionEvent,
    Summarized,
    ValueChange,
    ValuesChanged,
)
from holdfast.core.events.task import (
    CancelRequested,
    Carried,
    Checkpointed,
    Claimed,
    Compensating,
    DriverDied,
    FileKept,
    FileRemoved,
    Hindered,
    ListGrew,
    MissionSet,
    Moved,
    Parked,
    Patched,
    PauseRequested,
    PlanItem,
    Planned,
    PlanProgressed,
    PlanStatus,
    Progressed,
    Queued,
    QueueTicket,
    SetAside,
    TaskCompleted,
    TaskContinued,
    TaskCreated,
    TaskErrored,
    TaskEvent,
    TaskRetried,
    TaskStopped,
    Unread,
    WorkspaceEvent,
)

AnyEvent = TaskEvent | WorkspaceEvent | HistoryEvent | SessionEvent | MemoryEvent | QueueEvent

dump_event: Callable[[AnyEvent], bytes] = msgspec.json.Encoder().encode
"""The event as a JSON object, without `seq` and `at` while no log has taken it."""

load_event: Callable[[bytes], AnyEvent] = decoder(AnyEvent)  # type: ignore[arg-type]
"""The event of one line of a log. Raises `Illegible` where it is none."""


def parts_of(event: AnyEvent) -> tuple[AnyEvent, ...]:
    """The events that one stands for, for readers that follow calls from their start to their end:
    a `Stepped` is a `Started` and a `Completed` of one number, each at its own time.

    >>> line = b'{"type":"stepped","seq":3,"at":"2026-01-01T00:00:02Z","path":"1","name":"add",'
    >>> line += b'"began":"2026-01-01T00:00:00Z","args":{},"args_hash":"99a8fa9e","result":2}'
    >>> begun, ended = parts_of(load_event(line))
    >>> begun.seq, begun.name, begun.at.second, ended.seq, bytes(ended.result), ended.at.second
    (3, 'add', 0, 3, b'2', 2)
    """
    if type(event) is not Stepped:
        return (event,)
    begun = Started(
        seq=event.seq,
        at=event.began,
        path=event.path,
        name=event.name,
        args=event.args,
        args_hash=event.args_hash,
    )
    return begun, Completed(seq=event.seq, at=event.at, path=event.path, result=event.result)


__all__ = [
    "FORK_FORMAT",
    "FORMAT",
    "NEVER",
    "NEWEST_FORMAT",
    "VERSION",
    "Adopted",
    "AnswerRefused",
    "AnyEvent",
    "AttemptFailed",
    "CancelRequested",
    "Carried",
    "Checkpointed",
    "ChildEnded",
    "ChildMade",
    "ChildStarted",
    "Claimed",
    "Compensating",
    "Completed",
    "Decided",
    "Derived",
    "Doubted",
    "DriverDied",
    "Effects",
    "Event",
    "Failed",
    "Failure",
    "FileKept",
    "FileRemoved",
    "Forgotten",
    "Fork",
    "Hindered",
    "HistoryEvent",
    "Kind",
    "ListGrew",
    "MemoryBegan",
    "MemoryEvent",
    "MessageAwaited",
    "MessageExpired",
    "MessageRefused",
    "MessageSent",
    "MissionSet",
    "Moved",
    "Noted",
    "Observed",
    "OnCancel",
    "Parked",
    "Patched",
    "PauseRequested",
    "Pinned",
    "PlacesChanged",
    "PlanItem",
    "PlanProgressed",
    "PlanStatus",
    "Planned",
    "Progressed",
    "QuestionAnswered",
    "QuestionAsked",
    "QuestionExpired",
    "QueueBegan",
    "QueueEvent",
    "QueuePlace",
    "QueueTicket",
    "QueueTurned",
    "Queued",
    "Remembered",
    "Reused",
    "Rewound",
    "Said",
    "SessionBegan",
    "SessionEnded",
    "SessionEvent",
    "SessionRewound",
    "SetAside",
    "Settled",
    "Started",
    "Stepped",
    "Summarized",
    "TaskCompleted",
    "TaskContinued",
    "TaskCreated",
    "TaskErrored",
    "TaskEvent",
    "TaskRetried",
    "TaskStopped",
    "TimerSet",
    "Unread",
    "ValueChange",
    "ValuesChanged",
    "Verdict",
    "Woke",
    "WorkspaceEvent",
    "dump_event",
    "load_event",
    "parts_of",
]
