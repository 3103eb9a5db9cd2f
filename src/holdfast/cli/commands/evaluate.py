"""`holdfast evaluate`: recorded runs, run again with the prompts and models of today."""

from __future__ import annotations

import sys
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.api.app import Holdfast
from holdfast.api.settings import load
from holdfast.cli.exits import Exit
from holdfast.cli.opening import load_app, opened
from holdfast.cli.options import store_command, values
from holdfast.cli.output import console, print_error, print_json, print_table
from holdfast.cli.settings import Given
from holdfast.cli.text import plain
from holdfast.errors import BadInput
from holdfast.testing.evaluating import EvaluatedCase, Evaluation
from holdfast.testing.evaluating import evaluate as run_cases


@click.command("evaluate", short_help="Run recorded tasks anew with other prompts or models.")
@click.argument("cases", metavar="CASE...", nargs=-1, required=True)
@click.option(
    "--check",
    "checks",
    metavar="MODULE:FUNCTION",
    multiple=True,
    help="A function that says whether a run is well, or how well; may be repeated.",
)
@click.option(
    "--stub",
    "stubs",
    metavar="NAME=JSON",
    multiple=True,
    callback=values,
    help="What a step or tool returns, instead of what is recorded; may be repeated.",
)
@click.option(
    "--at-once",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    metavar="N",
    help="How many cases run side by side.",
)
@store_command("app", "redact", "secrets")
def evaluate(
    given: Given,
    cases: tuple[str, ...],
    checks: tuple[str, ...],
    stubs: dict[str, Any],
    at_once: int,
    as_json: bool,
) -> Exit:
    """Run recorded tasks anew, with the code of --app, and print a table.

    A CASE is an archive, such as `holdfast testcase` writes, or the id of a task in the store. It
    is run from its beginning, in memory. Steps run, so models are really asked, with the prompts of
    today. Tools do not: one that is called as it was then returns what it returned then, and one
    that is called otherwise ends the case. Questions have the answers that were given then.

    The table has a row for each case: how it ended, what each check says, what its calls of models
    cost now and then, and where it first did something else. A check is a function of an
    `EvaluatedRun` (see `holdfast.testing`): it returns True or False, or a number.

    The exit code is 1 if a case ended otherwise than recorded, or a check says no.

    \b
    Examples:
      holdfast evaluate tests/*.hfa --app agents --check checks:is_polite
      holdfast evaluate trip-42 trip-43 --app agents --json
    """
    if not load_app(given):
        raise BadInput("the tasks are run with your code: say where it is with --app")
    functions = {name.rpartition(":")[2]: load(name) for name in checks}
    with ExitStack() as stack:
        ids = [case for case in cases if not Path(case).is_file()]
        hf: Holdfast | None = stack.enter_context(opened(given)) if ids else None
        # The output of the tasks is not ours.
        stack.enter_context(redirect_stdout(sys.stderr))
        found = run_cases(
            cases, checks=functions, hf=hf, stubs=stubs, at_once=at_once, progress=_told
        )
    _print(found, as_json)
    return Exit.OK if found.passed else Exit.DIFFERS


def _told(case: EvaluatedCase) -> None:
    for name, why in case.notes.items():
        print_error(f"{plain(case.case)}: {plain(name)}: {plain(why)}")


def _print(found: Evaluation, as_json: bool) -> None:
    if as_json:
        shown = [{**msgspec.to_builtins(case), "passed": case.passed} for case in found.cases]
        print_json({"passed": found.passed, "spent": found.spent, "cases": shown})
        return
    columns, rows = found.rows()
    shown_rows = [[plain(cell) for cell in row] for row in rows]
    print_table(console(), columns, shown_rows, cut_last=False)
