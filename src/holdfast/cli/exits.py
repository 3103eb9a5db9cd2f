"""The exit codes, and which error means which. Scripts rely on them: none changes its meaning."""

from __future__ import annotations

from enum import IntEnum

from holdfast import errors


class Exit(IntEnum):
    """How a command ended.

    >>> Exit.NOT_FOUND.value
    5
    """

    OK = 0
    TASK_FAILED = 1
    DIFFERS = 1
    BAD_INPUT = 2
    WAITING = 3
    DAMAGED = 4
    NOT_FOUND = 5
    BUSY = 6
    CODE = 7
    CANCELLED = 8
    NOT_UNDONE = 9
    ALL_DONE = 10
    NOTHING_READY = 11
    BLOCKED = 12
    FAULT = 70
    INTERRUPTED = 130
    PIPE_CLOSED = 141


MEANINGS = {
    Exit.OK: "it went well",
    Exit.TASK_FAILED: "the task failed, or what was compared differs",
    Exit.BAD_INPUT: "wrong usage or input; nothing was changed",
    Exit.WAITING: "the task waits for a person or is paused; a call is in doubt or was interrupted",
    Exit.DAMAGED: "a log is damaged, or the store or the engine failed",
    Exit.NOT_FOUND: "no such task, session or store",
    Exit.BUSY: "another process is driving the task",
    Exit.CODE: "the task's code is missing, or has changed under it",
    Exit.CANCELLED: "the task was cancelled",
    Exit.NOT_UNDONE: "something that the task did could not be undone",
    Exit.ALL_DONE: "everything in the plan is done (next, loop)",
    Exit.NOTHING_READY: "nothing can be begun just now: others are at work (next, loop)",
    Exit.BLOCKED: "only items that failed, and what waits for them, are left (next, loop)",
    Exit.FAULT: "a fault in Holdfast itself",
    Exit.INTERRUPTED: "interrupted (Ctrl-C)",
    Exit.PIPE_CLOSED: "the reader of the output went away (| head)",
}

# The first that fits counts, so an error stands before the one it derives from.
_MEANT: tuple[tuple[type[Exception], Exit], ...] = (
    (errors.TaskFailed, Exit.TASK_FAILED),
    (errors.StepFailed, Exit.TASK_FAILED),
    (errors.TaskCancelled, Exit.CANCELLED),
    (errors.TaskWaiting, Exit.WAITING),
    (errors.TaskNotFound, Exit.NOT_FOUND),
    (errors.SessionNotFound, Exit.NOT_FOUND),
    (errors.TaskBusy, Exit.BUSY),
    (errors.LeaseLost, Exit.BUSY),
    (errors.StoreError, Exit.DAMAGED),
    (errors.EngineError, Exit.DAMAGED),
    (errors.CodeMissing, Exit.CODE),
    (errors.CodeChanged, Exit.CODE),
    (errors.NotAnswered, Exit.CODE),
    (errors.Undecodable, Exit.CODE),
    (errors.HoldfastError, Exit.BAD_INPUT),
    (OSError, Exit.DAMAGED),
)


def exit_of(error: BaseException) -> Exit:
    """The exit code that stands for an error.

    >>> exit_of(errors.TaskNotFound("no task 'x'")), exit_of(KeyError("x"))
    (<Exit.NOT_FOUND: 5>, <Exit.FAULT: 70>)
    """
    for kind, meant in _MEANT:
        if isinstance(error, kind):
            return meant
    return Exit.FAULT
