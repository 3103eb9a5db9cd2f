"""`holdfast check`: does the code that is about to be deployed fit the tasks that are under way?"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from typing import Literal

import click
from msgspec import Struct
from rich.text import Text

from holdfast.app import Holdfast
from holdfast.cli.code import load_app
from holdfast.cli.exits import Exit
from holdfast.cli.opening import find_task, opened, read_all
from holdfast.cli.options import code_options, complete_task, imports, json_option, pass_given
from holdfast.cli.output import console, print_error, print_json, print_lines
from holdfast.cli.settings import Given
from holdfast.cli.text import count, plain
from holdfast.errors import CodeMissing, StoreError
from holdfast.state import FINISHED, Status
from holdfast.views import TaskView
from holdfast.workspace.script import SCRIPT, STEP

Verdict = Literal["fits", "diverges", "code_missing"]

_ENDED = "its function ends the program (sys.exit) where the log goes on"


class CheckView(Struct, frozen=True):
    """Whether the code of a task fits its log, and where it first does not."""

    task: str
    type: str
    status: Status
    verdict: Verdict
    path: str = ""
    recorded: str = ""
    asked: str = ""
    why: str = ""


@click.command(short_help="Check that the code fits the tasks that are under way.")
@click.argument("tasks", metavar="[TASK]...", nargs=-1, shell_complete=complete_task)
@click.option("--type", "kind", metavar="NAME", help="Only runs of this task function.")
@json_option
@code_options
@imports("app", "redact", "secrets")
@pass_given
def check(given: Given, tasks: tuple[str, ...], kind: str | None, as_json: bool) -> Exit:
    """Check the code of --app against the logs of all unfinished tasks, or of those named.

    It is meant for CI before a deploy, with the new code and the store (or a copy of it) of the
    old. Each task's function runs from its top with the recorded results, as far as they go. No
    step or tool is called and nothing is written; only the code between the steps runs, as it does
    on every resume. Where the code asks for something else than the log holds, both are shown.

    The exit code is 7 if any task diverges or its code is missing, else 4 if a log can't be read,
    else 0. What to do about a task that diverges: gate the change (patched), bring its state up to
    date (version and upcast), or let the old code finish it.

    \b
    Examples:
      holdfast check --app agents
      holdfast check --app agents --type plan_trip
      holdfast check --app agents --json | jq -e .fits
    """
    load_app(given)
    with opened(given) as hf:
        views, unreadable = _named(hf, tasks) if tasks else _unfinished(hf)
        wanted = [view for view in views if kind is None or view.type == kind]
        # What the code between the steps prints is not ours.
        with redirect_stdout(sys.stderr):
            found = [_checked(hf, view, unreadable) for view in wanted]
    seen = [each for each in found if each is not None]
    if as_json:
        fits = not unreadable and all(each.verdict == "fits" for each in seen)
        print_json(
            {"fits": fits, "tasks": seen, "unreadable": [str(error) for error in unreadable]}
        )
    else:
        _print_all(seen)
    for error in unreadable:
        print_error(f"warning: {error}")
    if any(each.verdict != "fits" for each in seen):
        return Exit.CODE
    return Exit.DAMAGED if unreadable else Exit.OK


def _named(hf: Holdfast, tasks: tuple[str, ...]) -> tuple[list[TaskView], list[StoreError]]:
    return [find_task(hf, task) for task in dict.fromkeys(tasks)], []


def _unfinished(hf: Holdfast) -> tuple[list[TaskView], list[StoreError]]:
    views, unreadable = read_all(hf.store)
    return [view for view in views if view.status not in FINISHED], unreadable


def _checked(hf: Holdfast, view: TaskView, unreadable: list[StoreError]) -> CheckView | None:
    about = (view.id, view.type, view.status)
    try:
        found = hf.check(view.id)
    except CodeMissing as error:
        if view.type in (SCRIPT, STEP):  # of a shell script: there never was any
            return None
        return CheckView(*about, "code_missing", why=str(error))
    except StoreError as error:
        unreadable.append(error)
        return None
    except SystemExit:
        return CheckView(*about, "diverges", why=_ENDED)
    if found.fits:
        return CheckView(*about, "fits")
    return CheckView(*about, "diverges", found.path, found.recorded, found.asked, found.why)


def _print_all(found: Sequence[CheckView]) -> None:
    for each in found:
        if each.verdict != "fits":
            _print(each)
    out = console()
    if not found:
        out.print("no unfinished task to check")
    elif all(each.verdict == "fits" for each in found):
        out.print(Text(f"{count(len(found), 'task')}: all fit", "green"))
    else:
        out.print(Text(f"{count(len(found), 'task')}: {_tally(found)}", "bold red"))


def _print(each: CheckView) -> None:
    out = console()
    missing = each.verdict == "code_missing"
    where = "its code is missing" if missing else f"diverges{_place(each)}"
    who = f"{plain(each.task)}  {plain(each.type)}"
    print_lines(out, Text.assemble((who, "bold"), "  ", (where, "bold red")))
    facts = {"the log holds": each.recorded, "the code": each.asked}
    if not each.recorded:
        facts = {"why": each.why}
    for name, fact in facts.items():
        print_lines(out, Text.assemble((f"  {name:14}", "dim"), plain(fact)))
    out.print()


def _place(each: CheckView) -> str:
    if each.path == "0":
        return " at its start"
    return f" at call {plain(each.path)}" if each.path else ""


def _tally(found: Iterable[CheckView]) -> str:
    verdicts = [each.verdict for each in found]
    parts = (
        (verdicts.count("fits"), "fits", "fit"),
        (verdicts.count("diverges"), "diverges", "diverge"),
        (verdicts.count("code_missing"), "has no code", "have no code"),
    )
    return ", ".join(
        f"{number:,} {one if number == 1 else many}" for number, one, many in parts if number
    )
