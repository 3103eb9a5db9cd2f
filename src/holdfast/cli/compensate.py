"""`holdfast compensate`: undo what a task did that ended badly."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from holdfast.cli.code import load_app
from holdfast.cli.exits import Exit
from holdfast.cli.hints import our_command
from holdfast.cli.opening import find_task, opened
from holdfast.cli.options import code_options, imports, json_option, pass_given, task_argument
from holdfast.cli.output import console, print_error, print_json, print_table
from holdfast.cli.settings import Given
from holdfast.cli.text import count, plain
from holdfast.errors import BadInput, TaskWaiting
from holdfast.seen import Undone
from holdfast.views import TaskView

COLUMNS = ("PATH", "TOOL", "UNDO", "WHY")

_STYLES = {
    "undone": "green",
    "could not be undone": "bold red",
    "in doubt": "bold yellow",
    "under way": "cyan",
    "left": "yellow",
}


@click.command(short_help="Undo what a failed or cancelled task did.")
@task_argument
@json_option
@code_options
@imports("app", "redact", "secrets", "engine")
@pass_given
def compensate(given: Given, task: str, as_json: bool) -> Exit:
    """Undo what a failed or cancelled task did, or finish doing so; print what came of it.

    The tools it called are undone by what they declare (undo=…), the last first. Each undo is a
    recorded call with a key of its own: what was undone is not undone again, and what could not be
    is tried anew. Calls in doubt are settled first, because only what happened can be undone.

    The exit code is 9 if something could not be undone, 3 if a call in doubt waits for a person,
    else 0. The task stays failed or cancelled; once undone it can't be retried.

    \b
    Examples:
      holdfast compensate trip-42 --app agents
      holdfast compensate trip-42 --app agents --json | jq '.compensation[] | select(.why != "")'
    """
    with opened(given) as hf:
        _must_have_ended_badly(given, find_task(hf, task))
        load_app(given)
        try:
            # Standard output is for the table alone, whatever the tools print.
            with redirect_stdout(sys.stderr):
                view = hf.compensate(task)
        except TaskWaiting:
            _print(hf.task(task), as_json)
            raise
        except KeyboardInterrupt:
            again = our_command(given, "compensate", task, code=True)
            print_error(f"interrupted. To go on: {again}")
            _print(hf.task(task), as_json)
            return Exit.INTERRUPTED
        _print(view, as_json)
    left = [each for each in view.compensation if each.status != "undone"]
    return Exit.NOT_UNDONE if left else Exit.OK


def _must_have_ended_badly(given: Given, view: TaskView) -> None:
    if view.status in ("failed", "cancelled") or view.state.ending:
        return
    advice = ""
    if view.status != "completed":
        advice = f" (this does both: {our_command(given, 'cancel', view.id)})"
    raise BadInput(
        f"task {view.id!r} is {view.status}: only what failed or was cancelled is undone{advice}"
    )


def _print(view: TaskView, as_json: bool) -> None:
    if as_json:
        print_json({"id": view.id, "status": view.status, "compensation": list(view.compensation)})
        return
    out = console()
    print_compensation(out, view.compensation)
    out.print(summary_of(view.compensation))


def print_compensation(out: Console, calls: Sequence[Undone]) -> None:
    """What can be undone, the last first, and what became of each."""
    if calls:
        print_table(out, COLUMNS, [_row(each) for each in calls], cut_last=False)


def _row(each: Undone) -> tuple[Any, ...]:
    status = Text(each.status, _STYLES.get(each.status, ""))
    return plain(each.path), plain(each.name), status, plain(each.why)


def summary_of(calls: Sequence[Undone]) -> str:
    """What became of all of them, in short."""
    if not calls:
        return "nothing to undo"
    found = dict.fromkeys(each.status for each in calls)
    return ", ".join(
        f"{count(sum(each.status == status for each in calls), 'call')} {status}"
        for status in found
    )
