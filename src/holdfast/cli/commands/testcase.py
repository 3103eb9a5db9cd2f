"""`holdfast testcase` and `evaluate`: a recorded run as a test, or run anew and compared."""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from pprint import pformat
from textwrap import indent
from typing import Any

import click
import msgspec

from holdfast.api.app import Holdfast
from holdfast.api.settings import load
from holdfast.cli.commands.stores import plain_option
from holdfast.cli.exits import Exit
from holdfast.cli.opening import find_task, load_app, opened
from holdfast.cli.options import (
    store_command,
    task_argument,
    values,
)
from holdfast.cli.output import console, print_error, print_json, print_lines, print_table
from holdfast.cli.settings import Given
from holdfast.cli.text import plain
from holdfast.errors import BadInput
from holdfast.history.replay import Replayed
from holdfast.testing.evaluating import EvaluatedCase, Evaluation
from holdfast.testing.evaluating import evaluate as run_cases
from holdfast.views.task import TaskView

_MOST_SHOWN = 2000

_TEST = '''\
"""A recorded run of {type}, replayed. Made by `holdfast testcase {id}`.

The code of the task runs over the log beside this file: no step or tool is called, and there is no
network. If it is meant to do something else from now on, make a test of a new run.
"""

from pathlib import Path

{imports}
from holdfast.testing import replay_recorded

LOG = Path(__file__).with_name({log_shown})


def test_{name}_does_what_it_did():
    replayed = replay_recorded(LOG, {task})
    assert replayed.same, replayed.summary()
    assert replayed.outcome == "{outcome}"
{more}'''


@click.command("testcase", short_help="Make a test of a recorded run.")
@task_argument
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("tests"),
    show_default=True,
    help="The folder to write to; it is made if it is not there.",
)
@click.option(
    "--force", is_flag=True, help="Replace the test that is there, or one that fails now."
)
@plain_option
@store_command("app", "redact", "secrets")
def make_testcase(
    given: Given, task: str, output: Path, force: bool, plain_text: bool, as_json: bool
) -> Exit:
    """Write a pytest file, and beside it the recorded log of a task, that replays the run.

    The test runs the task's code over that log, and fails if it calls something else, ends in
    another way, or knows something else on the way. It needs no store and no network: the log is an
    archive with all that belongs to the task. Redacted values are not in there either.

    The test imports the modules of --app, which pytest has to find (pythonpath in its settings, or
    python -m pytest).

    \b
    Examples:
      holdfast testcase trip-42 --app agents
      holdfast testcase trip-42 --app agents -o tests/replays
    """
    modules = load_app(given)
    if not modules:
        raise BadInput("the test has to import the code of the task: say where it is with --app")
    with opened(given) as hf:
        view = find_task(hf, task)
        name = _name(view.id)
        test, log = output / f"test_{name}.py", output / f"{name}.hfa"
        _must_be_free((test, log), force)
        with redirect_stdout(sys.stderr):
            found = hf.replay(view.id)
        if not found.same and not force:
            print_error(
                f"error: the code does not do what the log holds, so the test would fail: "
                f"{found.summary()}. Nothing was written (--force writes it all the same)"
            )
            return Exit.CODE
        _write(hf, view, found, test, log, modules, plain_text)
    if as_json:
        print_json({"test": str(test), "log": str(log), "same": found.same})
    else:
        print_lines(console(), f"wrote {plain(str(test))} and {plain(str(log))}")
    return Exit.OK


def _name(id: str) -> str:
    """The name of a task's test.

    >>> _name("Trip 42/b")
    'trip_42_b'
    """
    return re.sub(r"\W+", "_", id, flags=re.ASCII).strip("_").lower()[:80] or "task"


def _must_be_free(paths: tuple[Path, ...], force: bool) -> None:
    there = [path for path in paths if path.exists()]
    if there and not force:
        raise BadInput(
            f"{' and '.join(map(str, there))} {'is' if len(there) == 1 else 'are'} there already: "
            f"say --force to replace, or -o DIR for another folder. Nothing was written"
        )


def _write(
    hf: Holdfast,
    view: TaskView,
    found: Replayed,
    test: Path,
    log: Path,
    modules: tuple[str, ...],
    plain_text: bool,
) -> None:
    test.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    hf.archive_to(log, view.id, plain=plain_text)
    names = sorted({module.partition(":")[0] for module in modules})
    text = _TEST.format(
        type=view.type,
        id=_in_docstring(view.id),
        imports="\n".join(f"import {name}  # noqa: F401 (the code of the task)" for name in names),
        name=_name(view.id),
        log_shown=_quoted(log.name),
        task=_quoted(view.id),
        outcome=found.recorded,
        more=_more(found, view),
    )
    test.write_text(text, encoding="utf-8")


def _in_docstring(id: str) -> str:
    return id if re.fullmatch(r"[\w. -]+", id) else repr(id)[1:-1].replace('"', "'")


def _quoted(text: str) -> str:
    """A text as Python, in double quotes where that needs no more than the others.

    >>> print(_quoted("it's"), _quoted('say "hi"'))
    "it's" 'say "hi"'
    """
    shown = repr(text)
    return f'"{shown[1:-1]}"' if shown.startswith("'") and '"' not in shown else shown


def _more(found: Replayed, view: TaskView) -> str:
    """The test's lines about the end, where it is short enough to read."""
    if found.recorded == "completed":
        result = view.result
        shown = (
            _quoted(result)
            if isinstance(result, str)
            else pformat(result, width=80, sort_dicts=False)
        )
        if len(shown) > _MOST_SHOWN:
            return ""
        if "\n" not in shown:
            return f"    assert replayed.result == {shown}\n"
        return f"    assert replayed.result == (\n{indent(shown, ' ' * 8)}\n    )\n"
    if found.recorded == "failed" and view.failure is not None:
        return f"    assert replayed.failure == {_quoted(view.failure.summary())}\n"
    return ""


# `holdfast evaluate`: recorded runs, run again with the prompts and models of today.


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
