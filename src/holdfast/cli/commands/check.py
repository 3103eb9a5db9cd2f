"""`holdfast check` and `replay --all`: does the code fit the logs of many tasks?"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from datetime import datetime
from typing import Literal

import click
from msgspec import Struct
from rich.text import Text

from holdfast.api.app import Holdfast
from holdfast.cli.exits import Exit
from holdfast.cli.opening import find_task, load_app, opened, read_all
from holdfast.cli.options import (
    store_command,
    tasks_argument,
    type_option,
)
from holdfast.cli.output import console, print_error, print_json, print_lines, warned
from holdfast.cli.settings import Given
from holdfast.cli.text import count, plain
from holdfast.core.spec import SCRIPT, SCRIPT_STEP
from holdfast.core.state import FINISHED, Status
from holdfast.errors import CodeMissing, HoldfastError, StoreError, TaskNotFound
from holdfast.stores.listing import TaskRecord
from holdfast.stores.port import LONGEST_PAGE
from holdfast.views.task import TaskView

Verdict = Literal["fits", "diverges", "same", "changed", "code_missing"]

_ENDED = "its function ends the program (sys.exit) where the log goes on"


class CodeVerdict(Struct, frozen=True):
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
@tasks_argument
@type_option
@store_command("app", "redact", "secrets")
def check(given: Given, tasks: tuple[str, ...], kind: str | None, as_json: bool) -> Exit:
    """Check the code of --app against the logs of all unfinished tasks, or of those named.

    It is meant for CI before a deploy, with the new code and the store (or a copy of it) of the
    old. Each task's function runs from its top with the recorded results, as far as they go. No
    step or tool is called and nothing is written; only the code between the steps runs, as it does
    on every resume. Where the code asks for something else than the log holds, both are shown.

    The exit code is 7 if any task diverges or its code is missing, else 4 if a log can't be read,
    else 0. For a task that diverges, gate the change (patched), bring its state up to date
    (version and upcast), or let the old code finish it.

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
        # The output of the code between the steps is not ours.
        with redirect_stdout(sys.stderr):
            found = [_checked(hf, view, unreadable) for view in wanted]
    seen = [each for each in found if each is not None]
    if as_json:
        fits = not unreadable and all(each.verdict == "fits" for each in seen)
        print_json(
            {"fits": fits, "tasks": seen, "unreadable": [str(error) for error in unreadable]}
        )
    else:
        _print_checked(seen)
    told = warned(unreadable)
    return told if all(each.verdict == "fits" for each in seen) else Exit.CODE


def _named(hf: Holdfast, tasks: tuple[str, ...]) -> tuple[list[TaskView], list[StoreError]]:
    return [find_task(hf, task) for task in dict.fromkeys(tasks)], []


def _unfinished(hf: Holdfast) -> tuple[list[TaskView], list[StoreError]]:
    views, unreadable = read_all(hf.store)
    return [view for view in views if view.status not in FINISHED], unreadable


def _checked(hf: Holdfast, view: TaskView, unreadable: list[StoreError]) -> CodeVerdict | None:
    about = (view.id, view.type, view.status)
    try:
        found = hf.check(view.id)
    except CodeMissing as error:
        return _missing(error, *about)
    except StoreError as error:
        unreadable.append(error)
        return None
    except SystemExit:
        return CodeVerdict(*about, "diverges", why=_ENDED)
    if found.fits:
        return CodeVerdict(*about, "fits")
    return CodeVerdict(*about, "diverges", found.path, found.recorded, found.asked, found.why)


def _missing(error: CodeMissing, task: str, type: str, status: Status) -> CodeVerdict | None:
    if type in (SCRIPT, SCRIPT_STEP):  # of a shell script: there never was any
        return None
    return CodeVerdict(task, type, status, "code_missing", why=str(error))


def _print_checked(found: Sequence[CodeVerdict]) -> None:
    for each in found:
        if each.verdict != "fits":
            at = " at its start" if each.path == "0" else f" at call {each.path}"
            _print_verdict(each, f"diverges{at if each.path else ''}")
    names = {
        "fits": ("fits", "fit"),
        "diverges": ("diverges", "diverge"),
        "code_missing": ("has no code", "have no code"),
    }
    _print_tally(found, "fits", "no unfinished task to check", "all fit", names)


def _print_verdict(each: CodeVerdict, where: str) -> None:
    out = console()
    if each.verdict == "code_missing":
        where = "its code is missing"
    who = f"{plain(each.task)}  {plain(each.type)}"
    print_lines(out, Text.assemble((who, "bold"), "  ", (plain(where), "bold red")))
    facts = {"the log holds": each.recorded, "the code": each.asked}
    for name, fact in (facts if each.recorded else {"why": each.why}).items():
        print_lines(out, Text.assemble((f"  {name:14}", "dim"), plain(fact)))
    print_lines(out, "")


def _print_tally(
    found: Sequence[CodeVerdict],
    good: Verdict,
    none: str,
    all_good: str,
    names: Mapping[str, tuple[str, str]],
) -> None:
    out, tally = console(), Counter(each.verdict for each in found)
    if not found:
        print_lines(out, none)
    elif tally[good] == len(found):
        print_lines(out, Text(f"{count(len(found), 'task')}: {all_good}", "green"))
    else:
        parts = [f"{tally[v]:,} {names[v][tally[v] != 1]}" for v in names if tally[v]]  # type: ignore[index]
        print_lines(out, Text(f"{count(len(found), 'task')}: {', '.join(parts)}", "bold red"))


# `holdfast replay --all`: many tasks against the code as it is now.


_EVERY = 25


def replay_all(hf: Holdfast, kind: str | None, since: datetime | None, as_json: bool) -> Exit:
    """Replay the tasks that match, the newest first, and list what changed."""
    unreadable: list[str] = []
    found: list[CodeVerdict] = []
    # The output of the code between the calls is not ours.
    with redirect_stdout(sys.stderr):
        for number, task in enumerate(_wanted(hf, kind, since, unreadable), 1):
            each = _replayed(hf, task, unreadable)
            found += [each] if each is not None else []
            if number % _EVERY == 0:
                print_error(f"{count(number, 'task')} replayed")
    changed = [each for each in found if each.verdict != "same"]
    if as_json:
        same = not changed and not unreadable
        print_json({"same": same, "tasks": found, "unreadable": unreadable})
    else:
        _print_replayed(found)
    told = warned(map(plain, unreadable))
    return Exit.CODE if changed else told


def _wanted(
    hf: Holdfast, kind: str | None, since: datetime | None, unreadable: list[str]
) -> Iterator[TaskRecord]:
    cursor = None
    while True:
        page = hf.page(limit=LONGEST_PAGE, cursor=cursor, type=kind, created_after=since)
        if cursor is None:
            unreadable += map(str, page.unreadable)
        yield from page.tasks
        cursor = page.next
        if cursor is None:
            return


def _replayed(hf: Holdfast, task: TaskRecord, unreadable: list[str]) -> CodeVerdict | None:
    about = (task.id, task.type, task.status)
    try:
        found = hf.replay(task.id)
    except CodeMissing as error:
        return _missing(error, *about)
    except TaskNotFound:  # it was deleted meanwhile
        return None
    except StoreError as error:
        unreadable.append(f"{task.id}: {error}")
        return None
    except HoldfastError as error:
        return CodeVerdict(*about, "changed", why=str(error))
    unreadable += [f"{task.id}: {found.note}"] if found.note else []
    if (first := found.divergence) is not None:
        why = found.summary()
        return CodeVerdict(*about, "changed", first.path, first.recorded, first.asked, why)
    if found.differing:
        return CodeVerdict(*about, "changed", found.differing[0].path, why=found.summary())
    return CodeVerdict(*about, "same", why=found.note)


def _print_replayed(found: Sequence[CodeVerdict]) -> None:
    for each in found:
        if each.verdict != "same":
            at = f"diverges at call {each.path}" if each.path else "diverges at its end"
            _print_verdict(each, at if each.recorded else "changed")
    names = {
        "same": ("the same",) * 2,
        "changed": ("changed",) * 2,
        "code_missing": ("without code",) * 2,
    }
    _print_tally(found, "same", "no task to replay", "all do the same", names)
