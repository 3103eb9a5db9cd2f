"""The exit codes, and which error means which. Scripts rely on them: none changes its meaning."""

from __future__ import annotations

import os
import re
import sys
import traceback
from enum import IntEnum
from typing import Any, NoReturn, TextIO

import click

from holdfast import errors
from holdfast.cli.settings import Given, told
from holdfast.cli.text import plain, plain_json, to_json
from holdfast.errors import HoldfastError, TaskCancelled, TaskFailed, TaskWaiting


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
    Exit.WAITING: "it waits for a person or is paused; a call is in doubt or interrupted",
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


# How a command ends: whatever goes wrong is told in one paragraph, and has an exit code.
#
# This module loads nothing that is slow to load: `holdfast once` runs many times in one script.


class ToldCommand(click.Command):
    """A command whose errors are told."""

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        _survive_any_encoding()
        words = [*(args[0] if args else kwargs.get("args") or sys.argv[1:])]
        ours = words[: words.index("--")] if "--" in words else words
        given = Given(json="--json" in ours)  # known from the start: the words may not even parse
        kwargs |= {"standalone_mode": False, "obj": given}
        try:
            sys.exit(super().main(*args, **kwargs) or Exit.OK)
        except click.Abort:
            sys.exit(Exit.INTERRUPTED)
        except click.ClickException as error:
            _tell(given, error, _usage(error))
            sys.exit(Exit.BAD_INPUT)
        except Exception as error:
            if given.debug:
                traceback.print_exc()
            _tell(given, error, in_words(given, error))
            sys.exit(exit_of(error))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
            return code
        except BrokenPipeError:
            _discard_output()
            return Exit.PIPE_CLOSED


def _survive_any_encoding() -> None:
    # A terminal that knows no UTF-8 shows \u2192 for an arrow rather than a traceback.
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    # Text left in the buffer would make Python complain once more as it ends.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _tell(given: Given, error: Exception, message: str) -> None:
    # A task that ended or waits was driven by a command that printed the outcome as its JSON.
    if given.json and not isinstance(error, TaskFailed | TaskCancelled | TaskWaiting):
        print_json({"error": {"type": type(error).__name__, "message": message}})
    print_error(f"error: {message}")


def _usage(error: click.ClickException) -> str:
    ctx = getattr(error, "ctx", None)
    hint = f" (see {ctx.command_path} --help)" if isinstance(ctx, click.Context) else ""
    # Click lists choices on lines of their own, set in by tabs.
    message = re.sub(r"\s*\n\s*", " ", error.format_message())
    return message.rstrip(".") + hint


def in_words(given: Given, error: Exception) -> str:
    """The words of an error for the person at the keyboard."""
    if isinstance(error, HoldfastError):
        return told(given, error)
    if isinstance(error, OSError):
        return f"the system refused: {error}"
    kind = type(error).__name__
    return f"unexpected {kind}: {error}. This is a fault in Holdfast: --debug shows where"


def print_json(value: Any) -> None:
    """The one JSON value that a command with `--json` prints."""
    print_json_line(to_json(value, indent=2 if sys.stdout.isatty() else 0))


def print_json_line(line: str, out: TextIO | None = None) -> None:
    """A line of JSON: its very bytes into a pipe; on a terminal nothing that it would act on."""
    out = out or sys.stdout
    out.write((plain_json(line) if out.isatty() else line) + "\n")


def print_error(message: str) -> None:
    """An error, or a warning, as one paragraph on standard error.

    Lines after the first are set in, so that no value can pass for a message of ours.
    """
    first, *rest = message.rstrip().split("\n")
    lines = [plain(first), *(f"  {plain(line.removeprefix('  '))}" for line in rest)]
    sys.stderr.write("\n".join(lines) + "\n")
