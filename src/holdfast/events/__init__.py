"""The events: what a log is made of.

One closed union of frozen types. An event says what happened and is never changed; everything a
task knows is a fold of its events. Values inside an event (`args`, `result`, …) stay the JSON
bytes that the codec made of them, so that reading a log decodes, imports and runs nothing.

`seq` and `at` are given by the log when it is appended: whoever makes an event leaves them out.
Add new types and new optional fields freely; a change that an older Holdfast would misread needs
a new `FORMAT`, which every writer notes in the log when it takes hold of it (`Claimed`).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.decoding import decoder
from holdfast.events.base import FORMAT, NEVER, NEWEST_FORMAT, VERSION, Event, Failure
from holdfast.events.calls import (
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
    Noted,
    Observed,
    OnCancel,
    QuestionAnswered,
    QuestionAsked,
    QuestionExpired,
    Reused,
    Settled,
    Started,
    TimerSet,
    Verdict,
    Woke,
)
from holdfast.events.forking import (
    Effects,
    Fork,
)
from holdfast.events.history import (
    Adopted,
    HistoryEvent,
    Rewound,
    SessionRewound,
)
from holdfast.events.memory import (
    Forgotten,
    MemoryBegan,
    MemoryEvent,
    Remembered,
)
from holdfast.events.session import (
    Pinned,
    Said,
    SessionBegan,
    SessionEnded,
    SessionEvent,
    Summarized,
)
from holdfast.events.task import (
    CancelRequested,
    Carried,
    Checkpointed,
    Claimed,
    Compensating,
    ListGrew,
    Moved,
    Parked,
    Patched,
    PauseRequested,
    PlanItem,
    Planned,
    PlanProgressed,
    PlanStatus,
    Progressed,
    TaskCompleted,
    TaskContinued,
    TaskCreated,
    TaskErrored,
    TaskEvent,
    TaskRetried,
    TaskStopped,
)
from holdfast.events.workspace import (
    FileKept,
    FileRemoved,
    MissionSet,
    WorkspaceEvent,
)

AnyEvent = TaskEvent | WorkspaceEvent | HistoryEvent | SessionEvent | MemoryEvent

dump_event: Callable[[AnyEvent], bytes] = msgspec.json.Encoder().encode
"""The event as a JSON object, without `seq` and `at` while no log has taken it."""

load_event: Callable[[bytes], AnyEvent] = decoder(AnyEvent)  # type: ignore[arg-type]
"""The event of one line of a log. Raises `Illegible` where it is none."""

__all__ = [
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
    "Effects",
    "Event",
    "Failed",
    "Failure",
    "FileKept",
    "FileRemoved",
    "Forgotten",
    "Fork",
    "HistoryEvent",
    "Kind",
    "ListGrew",
    "MemoryBegan",
    "MemoryEvent",
    "MissionSet",
    "Moved",
    "Noted",
    "Observed",
    "OnCancel",
    "Parked",
    "Patched",
    "PauseRequested",
    "Pinned",
    "PlanItem",
    "PlanProgressed",
    "PlanStatus",
    "Planned",
    "Progressed",
    "QuestionAnswered",
    "QuestionAsked",
    "QuestionExpired",
    "Remembered",
    "Reused",
    "Rewound",
    "Said",
    "SessionBegan",
    "SessionEnded",
    "SessionEvent",
    "SessionRewound",
    "Settled",
    "Started",
    "Summarized",
    "TaskCompleted",
    "TaskContinued",
    "TaskCreated",
    "TaskErrored",
    "TaskEvent",
    "TaskRetried",
    "TaskStopped",
    "TimerSet",
    "Verdict",
    "Woke",
    "WorkspaceEvent",
    "dump_event",
    "load_event",
]
