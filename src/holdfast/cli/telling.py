"""How a command ends: whatever goes wrong is told in one paragraph, and has an exit code.

This module loads nothing that is slow to load: `holdfast once` runs many times in one script.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from typing import Any, NoReturn, TextIO

import click

from holdfast.cli.exits import Exit, exit_of
from holdfast.cli.hints import told
from holdfast.cli.settings import Given
from holdfast.cli.text import plain, plain_json, to_json
from holdfast.errors import HoldfastError, TaskCancelled, TaskFailed, TaskWaiting


class Told(click.Command):
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
    # What is still in the buffer would make Python complain once more as it ends.
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
    """What an error says to the person at the keyboard."""
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
