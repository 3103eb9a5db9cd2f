"""Holdfast: the durable state layer for AI agents.

An agent built on it survives crashes, resumes at the step it was on, never repeats a side effect
it has already made, and can say at any time where it is and what happened to get there.

`Temporal` and `Restate`, the engines, are here too, and are loaded when they are asked for.
"""

from typing import TYPE_CHECKING, Any

from holdfast.api.app import Holdfast, lead_to
from holdfast.api.branches import ItemFailed, Results, each, gather
from holdfast.api.checkpoints import checkpoint, restore
from holdfast.api.handle import Handle, NotFinished
from holdfast.api.steps import decide, step, tool
from holdfast.api.tasks import Child, current, note, patched, progress, start, task
from holdfast.api.waiting import aask, areceive, ask, now, random, receive, send, sleep, uuid
from holdfast.codec.redact import Redact
from holdfast.codec.secret import Secret
from holdfast.core.events import VERSION, PlanItem
from holdfast.core.limits import Limit
from holdfast.core.plan import ready
from holdfast.core.queues import Queue, Rate
from holdfast.core.spec import Happened, IdempotencyKey, Retry
from holdfast.engines.local.worker import Worker
from holdfast.errors import (
    AlreadyAnswered,
    ArchiveDamaged,
    BadId,
    BadInput,
    CodeChanged,
    CodeMissing,
    Conflict,
    DrivenElsewhere,
    EachFailed,
    EngineConflict,
    EngineError,
    HoldfastError,
    HoldsSecret,
    IllegalTransition,
    InDoubt,
    LeaseLost,
    LogDamaged,
    MigrationNeeded,
    NewerFormat,
    NotAnswered,
    NotATask,
    NotDurable,
    ReplyLost,
    SessionNotFound,
    StepFailed,
    StorageFailed,
    StoreError,
    StreamBroken,
    TaskBusy,
    TaskCancelled,
    TaskFailed,
    TaskNotFound,
    TaskPaused,
    TaskReleased,
    TaskStuck,
    TaskWaiting,
    TooLarge,
    Unanswered,
    Undecodable,
    Unserializable,
    WrongArguments,
    WrongKey,
)
from holdfast.history.known import TaskState
from holdfast.log.artifacts import Artifact, keep
from holdfast.stores.sealed.keys import Keys
from holdfast.upkeep.retention import Retention

if TYPE_CHECKING:
    from holdfast.api.alerts import Alert as Alert
    from holdfast.engines.restate import Restate as Restate
    from holdfast.engines.stream_follow import StreamPart as StreamPart
    from holdfast.engines.temporal import Temporal as Temporal
    from holdfast.history.replay import REAL as REAL

__version__ = VERSION

lead_to(
    sessions="holdfast.agent.sessions",
    memories="holdfast.agent.memories",
    values="holdfast.agent.values",
    projections="holdfast.workspace.projector",
    files="holdfast.workspace.task_files",
    handoff="holdfast.workspace.handoff",
)

__all__ = [
    "Alert",
    "AlreadyAnswered",
    "ArchiveDamaged",
    "Artifact",
    "BadId",
    "BadInput",
    "Child",
    "CodeChanged",
    "CodeMissing",
    "Conflict",
    "DrivenElsewhere",
    "EachFailed",
    "EngineConflict",
    "EngineError",
    "Handle",
    "Happened",
    "Holdfast",
    "HoldfastError",
    "HoldsSecret",
    "IdempotencyKey",
    "IllegalTransition",
    "InDoubt",
    "ItemFailed",
    "Keys",
    "LeaseLost",
    "Limit",
    "LogDamaged",
    "MigrationNeeded",
    "NewerFormat",
    "NotATask",
    "NotAnswered",
    "NotDurable",
    "NotFinished",
    "PlanItem",
    "Queue",
    "Rate",
    "Redact",
    "ReplyLost",
    "Results",
    "Retention",
    "Retry",
    "Secret",
    "SessionNotFound",
    "StepFailed",
    "StorageFailed",
    "StoreError",
    "StreamBroken",
    "StreamPart",
    "TaskBusy",
    "TaskCancelled",
    "TaskFailed",
    "TaskNotFound",
    "TaskPaused",
    "TaskReleased",
    "TaskState",
    "TaskStuck",
    "TaskWaiting",
    "TooLarge",
    "Unanswered",
    "Undecodable",
    "Unserializable",
    "Worker",
    "WrongArguments",
    "WrongKey",
    "aask",
    "areceive",
    "ask",
    "checkpoint",
    "current",
    "decide",
    "each",
    "gather",
    "keep",
    "note",
    "now",
    "patched",
    "progress",
    "random",
    "ready",
    "receive",
    "restore",
    "send",
    "sleep",
    "start",
    "step",
    "task",
    "tool",
    "uuid",
]

_ENGINES = {"Temporal": "temporal", "Restate": "restate"}
_LATER = {
    "Alert": "holdfast.api.alerts",
    "REAL": "holdfast.history.replay",
    "StreamPart": "holdfast.engines.stream_follow",
}


def __getattr__(name: str) -> Any:
    """Names that load when they are used. An engine needs a package of its own besides."""
    from importlib import import_module

    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    extra = _ENGINES.get(name)
    if extra is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"holdfast.engines.{extra}"), name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{__name__}.{name} needs {error.name}: pip install 'holdfast[{extra}]'",
            name=error.name,
        ) from None
