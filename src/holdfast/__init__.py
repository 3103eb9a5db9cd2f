"""Holdfast: the durable state layer for AI agents.

An agent built on it survives crashes, resumes at the step it was on, never repeats a side effect
it has already made, and can say at any time where it is and what happened to get there.

`Temporal` and `Restate`, the engines, are here too, and are loaded when they are asked for.
"""

from typing import Any

from holdfast.above import lead_to
from holdfast.app import Holdfast
from holdfast.artifacts import Artifact, keep
from holdfast.branches import ItemFailed, Results, each, gather
from holdfast.checkpoints import checkpoint, restore
from holdfast.children import Child, start
from holdfast.decisions import decide
from holdfast.errors import (
    AlreadyAnswered,
    ArchiveDamaged,
    BadId,
    BadInput,
    CodeChanged,
    CodeMissing,
    Conflict,
    EachFailed,
    HoldfastError,
    HoldsSecret,
    IllegalTransition,
    InDoubt,
    LeaseLost,
    LogDamaged,
    NewerFormat,
    NotAnswered,
    NotATask,
    StepFailed,
    StorageFailed,
    StoreError,
    TaskBusy,
    TaskCancelled,
    TaskFailed,
    TaskNotFound,
    TaskPaused,
    TaskReleased,
    TaskWaiting,
    TooLarge,
    Unanswered,
    Undecodable,
    Unserializable,
    WrongArguments,
    WrongKey,
)
from holdfast.events import VERSION, PlanItem
from holdfast.handle import Handle, NotFinished
from holdfast.keys import Keys
from holdfast.redact import Redact
from holdfast.secret import Secret
from holdfast.spec import Happened, IdempotencyKey, Retry
from holdfast.step import step, tool
from holdfast.task import current, note, patched, progress, task
from holdfast.upkeep.retention import Retention
from holdfast.waiting import ask, now, random, sleep, uuid
from holdfast.worker import Worker

__version__ = VERSION

lead_to(
    sessions="holdfast.agent.sessions",
    memories="holdfast.agent.memories",
    projections="holdfast.workspace.projector",
    files="holdfast.workspace.task_files",
    handoff="holdfast.workspace.handoff",
)

__all__ = [
    "AlreadyAnswered",
    "ArchiveDamaged",
    "Artifact",
    "BadId",
    "BadInput",
    "Child",
    "CodeChanged",
    "CodeMissing",
    "Conflict",
    "EachFailed",
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
    "LogDamaged",
    "NewerFormat",
    "NotATask",
    "NotAnswered",
    "NotFinished",
    "PlanItem",
    "Redact",
    "Results",
    "Retention",
    "Retry",
    "Secret",
    "StepFailed",
    "StorageFailed",
    "StoreError",
    "TaskBusy",
    "TaskCancelled",
    "TaskFailed",
    "TaskNotFound",
    "TaskPaused",
    "TaskReleased",
    "TaskWaiting",
    "TooLarge",
    "Unanswered",
    "Undecodable",
    "Unserializable",
    "Worker",
    "WrongArguments",
    "WrongKey",
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
    "restore",
    "sleep",
    "start",
    "step",
    "task",
    "tool",
    "uuid",
]

_ENGINES = {"Temporal": "temporal", "Restate": "restate"}


def __getattr__(name: str) -> Any:
    """The engines: each needs a package of its own, which nobody else has to have."""
    extra = _ENGINES.get(name)
    if extra is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"holdfast.engines.{extra}"), name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{__name__}.{name} needs {error.name}: pip install 'holdfast[{extra}]'",
            name=error.name,
        ) from None
