"""Holdfast: the durable state layer for AI agents.

An agent built on it survives crashes, resumes at the step it was on, never repeats a side effect
it has already made, and can say at any time where it is and what happened to get there.
"""

from holdfast.app import Holdfast
from holdfast.branches import ItemFailed, Results, each, gather
from holdfast.errors import (
    AlreadyAnswered,
    BadId,
    BadInput,
    CodeChanged,
    CodeMissing,
    Conflict,
    EachFailed,
    HoldfastError,
    InDoubt,
    LeaseLost,
    LogDamaged,
    NewerFormat,
    NotATask,
    StepFailed,
    StorageFailed,
    StoreError,
    TaskBusy,
    TaskFailed,
    TaskNotFound,
    TaskWaiting,
    TooLarge,
    Unanswered,
    Undecodable,
    Unserializable,
    WrongArguments,
)
from holdfast.spec import Happened, IdempotencyKey, Retry
from holdfast.step import step, tool
from holdfast.task import current, decide, note, task
from holdfast.waiting import ask, now, random, sleep, uuid

__version__ = "0.1.0"

__all__ = [
    "AlreadyAnswered",
    "BadId",
    "BadInput",
    "CodeChanged",
    "CodeMissing",
    "Conflict",
    "EachFailed",
    "Happened",
    "Holdfast",
    "HoldfastError",
    "IdempotencyKey",
    "InDoubt",
    "ItemFailed",
    "LeaseLost",
    "LogDamaged",
    "NewerFormat",
    "NotATask",
    "Results",
    "Retry",
    "StepFailed",
    "StorageFailed",
    "StoreError",
    "TaskBusy",
    "TaskFailed",
    "TaskNotFound",
    "TaskWaiting",
    "TooLarge",
    "Unanswered",
    "Undecodable",
    "Unserializable",
    "WrongArguments",
    "ask",
    "current",
    "decide",
    "each",
    "gather",
    "note",
    "now",
    "random",
    "sleep",
    "step",
    "task",
    "tool",
    "uuid",
]
