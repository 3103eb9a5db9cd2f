"""The command `holdfast` itself: its commands, its global options, and how errors are told."""

from __future__ import annotations

import os
import re
import sys
import traceback
from typing import Any, NoReturn

import click

import holdfast
from holdfast.cli import (
    answer,
    archive,
    check,
    compensate,
    completion,
    control,
    copy,
    doctor,
    doubt,
    drive,
    gc,
    keys,
    log,
    ls,
    memory,
    mirror,
    resolve,
    show,
    start,
    verify,
    why,
    worker,
)
from holdfast.cli.exits import MEANINGS, Exit, exit_of
from holdfast.cli.hints import told
from holdfast.cli.options import app_option, debug_option, key_option, sign_key_option, url_option
from holdfast.cli.output import print_error, print_json
from holdfast.cli.settings import Given
from holdfast.errors import HoldfastError, TaskCancelled, TaskFailed, TaskWaiting

EPILOG = "\b\nExit codes:\n" + "\n".join(
    f"  {code.value:<4} {meaning}" for code, meaning in MEANINGS.items()
)


class Root(click.Group):
    """The group of all commands. Whatever goes wrong ends in one paragraph and an exit code."""

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        _survive_any_encoding()
        words = [*(args[0] if args else kwargs.get("args") or sys.argv[1:])]
        given = Given(json="--json" in words)  # known from the start: the words may not even parse
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
            _tell(given, error, _message(given, error))
            sys.exit(exit_of(error))

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order one meets them, not by the alphabet

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


def _message(given: Given, error: Exception) -> str:
    if isinstance(error, HoldfastError):
        return told(given, error)
    if isinstance(error, OSError):
        return f"the system refused: {error}"
    kind = type(error).__name__
    return f"unexpected {kind}: {error}. This is a fault in Holdfast: --debug shows where"


@click.group(
    cls=Root,
    epilog=EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(holdfast.__version__, message="holdfast %(version)s")
@url_option
@app_option
@key_option
@sign_key_option
@debug_option
@click.pass_context
def root(ctx: click.Context) -> None:
    """Look after the tasks of your agents: where they are, what they did, how they go on.

    A task is one run of an agent function. Everything it does is recorded in a log, in a folder
    called the store. These commands read that log, and drive tasks that stopped.

    \b
    Examples:
      holdfast ls                       the newest tasks, a page at a time
      holdfast show trip-42             where a task is, and what happened to get there
      holdfast why trip-42              what it chose, and why
      holdfast log -f trip-42           watch it as it works
      holdfast run agents:plan Oslo     start a task, and drive it here
      holdfast resume trip-42           go on after a crash (with --app agents: its code)
      holdfast start agents:plan Oslo   start a task, and leave it to a worker
      holdfast worker --app agents      drive all tasks that have something to do
      holdfast cancel trip-42           end it
      holdfast answer                   what tasks ask people
      holdfast doubt                    calls that may or may not have happened
      holdfast memory search "tea"      what agents remember
      holdfast check --app agents       does the code fit the tasks that are under way?
      holdfast doctor                   is every log intact?
      holdfast verify                   was any log changed or cut?
      holdfast copy --to URL            copy or move tasks to another store
      holdfast gc --older-than 30d      delete what has ended long ago
      holdfast mirror DIR               keep readable files of a database's tasks
      holdfast rebuild                  make the readable files anew

    The options below may stand before or after the command's name. Settings come from an option,
    else from the environment (HOLDFAST_URL, HOLDFAST_APP, HOLDFAST_KEY, …), else from
    [tool.holdfast] in the nearest pyproject.toml (url = "…", app = "…", key_file = "…"), else from
    the default. HOLDFAST_REDACT and HOLDFAST_SECRETS (redact = "…", secrets = "…") name, as
    module:attribute, a Redact and where named secrets come from.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for _command in (
    ls.ls,
    show.show,
    why.why,
    log.log,
    drive.run,
    start.start,
    worker.worker,
    drive.resume,
    drive.retry,
    control.pause,
    control.cancel,
    compensate.compensate,
    answer.answer,
    doubt.doubt,
    resolve.resolve,
    memory.memory,
    check.check,
    doctor.doctor,
    verify.verify,
    verify.head,
    keys.keys,
    copy.copy,
    archive.archive,
    copy.restore,
    gc.gc,
    mirror.mirror,
    mirror.rebuild,
    completion.completion,
):
    root.add_command(_command)
