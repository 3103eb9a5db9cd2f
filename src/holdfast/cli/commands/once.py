"""`holdfast once`: a command of a shell script as a durable step."""

from __future__ import annotations

import hashlib
import shlex
import signal
import sys
import traceback
from contextlib import ExitStack
from tempfile import TemporaryFile
from typing import IO, Any

import click

from holdfast.cli.arguments import Size
from holdfast.cli.exits import Exit, ToldCommand, exit_of, in_words, print_error
from holdfast.cli.opening import opened
from holdfast.cli.options import stacked, store_command
from holdfast.cli.settings import Given, resolve_commands
from holdfast.core.spec import SCRIPT_STEP, Retry
from holdfast.errors import BadInput, HoldfastError, InDoubt
from holdfast.workspace.once import once as run_once
from holdfast.workspace.process import MAX_OUTPUT_BYTES, Signals, die_by
from holdfast.workspace.script import Step, end_script

OURS = 100
"""Added to Holdfast's own exit codes, so that nobody takes them for the command's."""

_OPTIONS = (
    click.argument("name", required=False),
    click.argument("command", nargs=-1, type=click.UNPROCESSED),
    click.option(
        "--task",
        "script",
        metavar="ID",
        envvar="HOLDFAST_TASK",
        help="Which run of the script it is a step of.  [default: $HOLDFAST_TASK]",
    ),
    click.option(
        "--key",
        "known_by",
        default="",
        metavar="TEXT",
        help="What the step is known by besides its name, instead of the command line.",
    ),
    click.option(
        "--file",
        "files",
        metavar="FILE",
        multiple=True,
        help="A file that the command makes, to be kept with the step; may be repeated.",
    ),
    click.option(
        "--stdin", "takes_stdin", is_flag=True, help="Give the command our standard input."
    ),
    click.option(
        "--retry",
        "retries",
        type=click.IntRange(0, 1000),
        default=0,
        metavar="N",
        help="If it fails, try it up to N more times before the step has failed.",
    ),
    click.option(
        "--retry-delay",
        "delay_s",
        type=click.FloatRange(0),
        default=1.0,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait before the first of those; each later wait is twice as long.",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(0, min_open=True),
        metavar="SECONDS",
        help="End an attempt that takes longer, and all that it started: exit code 124.",
    ),
    click.option(
        "--in-doubt",
        type=click.Choice(["retry", "ask"]),
        default="retry",
        show_default=True,
        help="What to do if it was killed half-way: run it again, or stop and ask a person.",
    ),
    click.option(
        "--keep-failure",
        is_flag=True,
        help="A failure is a result like any other: it is not run again with the script.",
    ),
    click.option(
        "--restore", is_flag=True, help="Put the step's files back also where they were changed."
    ),
    click.option(
        "--max-output",
        "max_output_bytes",
        type=Size(),
        default=MAX_OUTPUT_BYTES,
        metavar="SIZE",
        help="How much of each stream of output to record.  [default: 1GiB]",
    ),
    click.option(
        "--git",
        metavar="FOLDER",
        default="",
        help="After the step, commit what changed in a folder to its git repository.",
    ),
    click.option("--git-init", is_flag=True, help="Make that repository, if there is none."),
    click.option("--done", is_flag=True, help="Instead of a step: the script has come to its end."),
)


@click.command(
    cls=ToldCommand,
    short_help="Run a command of a shell script once.",
    context_settings={"help_option_names": ["-h", "--help"]},  # also where it is called alone
)
@stacked(*_OPTIONS)
@store_command("redact", json=False)
def once(
    given: Given,
    /,
    name: str | None,
    command: tuple[str, ...],
    script: str | None,
    takes_stdin: bool,
    retries: int,
    delay_s: float,
    done: bool,
    **words: Any,
) -> int:
    """Run a command of a shell script as a durable step: once, however often the script is run.

    Its output is passed on and recorded. When the script runs again, a step that ended well does
    not: it prints its recorded output and ends with the same exit code. A step that failed, or was
    killed half-way, runs again. Steps may run at the same time.

    One run of a script is a task, HOLDFAST_TASK; a step is known in it by its NAME. The same name
    with another command is an error. With --key the command may change, and the key may not.

    The command does not get our standard input, unless that is a terminal or --stdin says so: then
    it is read to its end first, and is part of what may not change.

    Each --file must be there when the command has ended well. A file that is missing later is
    restored; a file that was changed is left as it is, and reported.

    The exit code is the command's. Holdfast's own errors have the code that they have in all
    commands, plus 100: 102 wrong input, 103 a person is asked whether it happened (--in-doubt ask),
    106 another process runs the step, 107 the script changed.

    \b
    Examples:
      export HOLDFAST_TASK=nightly-2026-01-31
      holdfast once fetch --retry 3 -- curl -fsSO https://example.org/data.csv
      holdfast once clean --file clean.csv -- sh -c 'sort -u data.csv > clean.csv'
      holdfast once mail --in-doubt ask -- mail -s "the data are there" ada@example.org
      holdfast once --done
    """
    signals = Signals()
    try:
        with signals.heard(), ExitStack() as stack:
            task = _script(script)
            if done:
                _must_stand_alone(name)
                end_script(stack.enter_context(opened(given)), task)
                return Exit.OK
            stdin = stack.enter_context(_standard_input()) if takes_stdin else None
            words["retry"] = Retry(attempts=1 + retries, delay_s=delay_s)
            step = _step(task, name, command, words, stdin)
            hf = stack.enter_context(opened(given, create=True))
            code = run_once(hf, step, stdin=stdin, signals=signals, say=_say)
    except KeyboardInterrupt:
        die_by(signals.got or signal.SIGINT)
        return Exit.INTERRUPTED
    except BrokenPipeError:
        return Exit.PIPE_CLOSED
    except (HoldfastError, OSError) as error:
        if given.debug:
            traceback.print_exc()
        print_error(f"error: {_in_doubt(given, error) or in_words(given, error)}")
        return OURS + exit_of(error)
    if signals.got and code:
        die_by(signals.got)
    return code


def _script(given: str | None) -> str:
    if not given:
        raise BadInput(
            "nothing says which run of the script this step belongs to: put a line such as "
            "export HOLDFAST_TASK=nightly-$(date +%F) at the top of the script, or say --task ID. "
            "The same id goes on with a run, another one begins anew"
        )
    return given


def _must_stand_alone(name: str | None) -> None:
    if name is not None:
        raise click.UsageError("--done ends a script, and runs no step: leave out the name")


def _step(
    script: str,
    name: str | None,
    command: tuple[str, ...],
    words: dict[str, Any],
    stdin: IO[bytes] | None,
) -> Step:
    if name is None or not command:
        raise click.UsageError("say what to run: holdfast once NAME -- COMMAND …")
    digest = ""
    if stdin is not None:
        stdin.seek(0)
        digest = hashlib.file_digest(stdin, "sha256").hexdigest()  # type: ignore[arg-type]
    return Step(script=script, name=name, command=command, stdin=digest, **words)


def _standard_input() -> IO[bytes]:
    """All of it, in a file: every attempt is given the same."""
    file = TemporaryFile()  # noqa: SIM115 (the caller closes it)
    for part in iter(lambda: sys.stdin.buffer.read(1 << 20), b""):
        file.write(part)
    file.flush()
    return file


def _say(text: str) -> None:
    print_error(f"holdfast: {text}")


def _in_doubt(given: Given, error: Exception) -> str:
    """The commands that settle a step; its code is not ours to load, and its result is short."""
    if not isinstance(error, InDoubt):
        return ""
    happened, did_not = resolve_commands(given, error.task_id, error.path, SCRIPT_STEP)
    return (
        f"step {shlex.quote(error.task_id)} may or may not have happened ({error.why}), and a "
        f"person has to say which. Its key was {error.key}\n"
        f"it happened:        {happened}\n"
        f"it did not happen:  {did_not}\n"
        f"Then run the script again."
    )
