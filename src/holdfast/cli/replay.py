"""`holdfast replay`: run the code of tasks over their logs, with no effect, and compare."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from datetime import datetime
from typing import Any

import click
import msgspec
from rich.text import Text

from holdfast.app import Holdfast
from holdfast.cli.code import load_app
from holdfast.cli.cohort import replay_all
from holdfast.cli.exits import Exit
from holdfast.cli.opening import is_there, not_found, opened
from holdfast.cli.options import (
    code_options,
    complete_task,
    imports,
    json_option,
    pairs,
    pass_given,
)
from holdfast.cli.output import console, print_error, print_json, print_lines
from holdfast.cli.settings import Given
from holdfast.cli.text import count, plain
from holdfast.cli.when import when
from holdfast.decoding import Illegible, decode
from holdfast.replays import REAL, Replayed

_MOST_SHOWN = 5


def _values(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    """`NAME=JSON` options as a dict."""
    found = {}
    for name, text in pairs(ctx, param, given).items():
        try:
            found[name] = decode(text)
        except Illegible as error:
            raise click.BadParameter(
                f"{name}={text}: that is no JSON ({error})", ctx, param
            ) from None
    return found


@click.command(short_help="Run a task's code over its log, with no effect, and compare.")
@click.argument("task", metavar="[TASK]", required=False, shell_complete=complete_task)
@click.option("--from", "start", metavar="STEP", help="Begin before this step, as it was then.")
@click.option("--to", metavar="STEP", help="Stop at this call, before it is made.")
@click.option("--pdb", "debugs", is_flag=True, help="Open a debugger there, in the task's code.")
@click.option(
    "--stub",
    "stubs",
    metavar="NAME=JSON",
    multiple=True,
    callback=_values,
    help="What a step or tool returns, instead of what is recorded; may be repeated.",
)
@click.option(
    "--real",
    metavar="NAME",
    multiple=True,
    help="A step or tool that is really called; may be repeated.",
)
@click.option(
    "--all", "everything", is_flag=True, help="All tasks that match, one after the other."
)
@click.option("--type", "kind", metavar="NAME", help="With --all: only runs of this function.")
@click.option(
    "--since", metavar="WHEN", callback=when, help="With --all: only tasks made since: 7d, a date."
)
@json_option
@code_options
@imports("app", "redact", "secrets")
@pass_given
def replay(
    given: Given,
    task: str | None,
    start: str | None,
    to: str | None,
    debugs: bool,
    stubs: dict[str, Any],
    real: tuple[str, ...],
    everything: bool,
    kind: str | None,
    since: datetime | None,
    as_json: bool,
) -> Exit:
    """Run the code of --app over the log of a task, with no effect, and say whether it does the
    same.

    Recorded calls answer from the log: no step or tool is called, nobody waits or is asked, and
    nothing is written. Only the code between the calls runs, as it does on every resume. A call
    that is not recorded stops it, with its name and arguments, unless --stub or --real says who
    answers. The result is compared with the recorded one, and so is what the task knew before and
    after each call.

    Replay changes nothing. To go on with a task: `holdfast resume`. To go another way from one of
    its steps, for real and in a new task: `holdfast fork`.

    With --pdb, a debugger opens where the task's code makes the call --to, with its variables: c
    goes on with the replay, q ends it. With --all, what changed is listed, each with its first
    divergence. A task that is at work is replayed as far as its log goes.

    The exit code is 7 if a task does something else than its log holds, or its code is missing;
    with --all, else 4 if a log can't be read.

    \b
    Examples:
      holdfast replay trip-42 --app agents
      holdfast replay trip-42 --to 6 --pdb
      holdfast replay trip-42 --from 4 --stub 'ask_model="Rome"'
      holdfast replay --all --type plan_trip --since 7d --json
    """
    answers = stubs | dict.fromkeys(real, REAL)
    _must_make_sense(task, to, debugs, everything, kind, since, start, answers, as_json)
    load_app(given)
    with opened(given) as hf:
        if task is None:
            return replay_all(hf, kind, since, as_json)
        if not is_there(hf.store, task):
            raise not_found(hf.store, task)
        if debugs:
            return _debugged(hf, task, start=start, to=to, stubs=answers)
        # What the code between the calls prints is not ours.
        with redirect_stdout(sys.stderr):
            found = hf.replay(task, start=start, to=to, stubs=answers)
    if as_json:
        print_json(told(found))
    else:
        _print(found)
    return Exit.OK if found.same else Exit.CODE


def _must_make_sense(
    task: str | None,
    to: str | None,
    debugs: bool,
    everything: bool,
    kind: str | None,
    since: datetime | None,
    start: str | None,
    answers: dict[str, Any],
    as_json: bool,
) -> None:
    if everything == (task is not None):
        raise click.UsageError("name a task, or say --all for those that match")
    if everything and (to or start or debugs or answers):
        raise click.UsageError("--from, --to, --pdb, --stub and --real are for one task")
    if not everything and (kind or since):
        raise click.UsageError("--type and --since go with --all")
    if debugs and not to:
        raise click.UsageError("--pdb needs a call to stop at: --to STEP")
    if debugs and as_json:
        raise click.UsageError("--pdb is for people, and --json for programs: leave one out")


def _debugged(hf: Holdfast, task: str, **wanted: Any) -> Exit:
    from holdfast.cli.debugging import Debugging

    debugging = Debugging()
    found = hf.replay(task, **wanted, on_reached=debugging)
    if debugging.was_left and not found.same:
        print_lines(console(), f"{plain(task)}  left in the debugger")
        return Exit.OK
    _print(found)
    return Exit.OK if found.same or debugging.was_left else Exit.CODE


def told(found: Replayed) -> dict[str, Any]:
    """What a replay found, for programs."""
    return {"same": found.same, **msgspec.to_builtins(found)}


def _print(found: Replayed) -> None:
    out = console()
    style = "green" if found.same else "bold red"
    print_lines(out, Text.assemble((plain(found.id), "bold"), "  ", (_headline(found), style)))
    for name, fact in _facts(found):
        print_lines(out, Text.assemble((f"  {name:14}", "dim"), plain(fact)))
    if found.note:
        print_error(f"warning: {found.note}")


def _headline(found: Replayed) -> str:
    if found.divergence is None:
        return plain(found.summary())
    path = found.divergence.path
    return f"diverges at call {plain(path)}" if path else "diverges at its end"


def _facts(found: Replayed) -> list[tuple[str, str]]:
    facts = []
    if found.divergence is not None:
        facts += [
            ("the log holds", found.divergence.recorded),
            ("the code", found.divergence.asked),
        ]
    elif found.stopped_at:
        facts.append(("stopped at", found.stopped_at))
    facts += [("mended since", f"{each}") for each in found.mended]
    answered = f"{count(found.answered, 'call')} from the log"
    if found.stubbed:
        answered += f", {count(len(found.stubbed), 'call')} by stubs"
    facts.append(("answered", answered))
    facts.append(("compared", f"{count(found.snapshots, 'snapshot')}, {_differing(found)}"))
    return facts


def _differing(found: Replayed) -> str:
    if not found.differing:
        return "all the same"
    places = [f"{t.when} {t.path}" if t.path else "at its end" for t in found.differing]
    more = len(places) - _MOST_SHOWN
    shown = ", ".join(places[:_MOST_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
    return f"{len(places):,} differ: {shown}"
