"""`holdfast` alone, which says where you are, and `holdfast demo`, which shows what this is for."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from holdfast.api.app import Holdfast
from holdfast.cli.exits import Exit
from holdfast.cli.hints import our_command, resume_command
from holdfast.cli.opening import StoreNotFound, must_exist, opened, read_task, store_url
from holdfast.cli.options import store_command
from holdfast.cli.output import console, print_json, print_lines, print_table, status_text
from holdfast.cli.settings import Given
from holdfast.cli.text import ago, cut, plain
from holdfast.core.state import Status
from holdfast.errors import BadInput, StoreError, TaskNotFound
from holdfast.views.needs import at_work, doubts_of, questions_of
from holdfast.views.task import TaskView

_MOST = 5
_NEEDY: tuple[Status, ...] = ("awaiting_user", "stuck", "failed", "in_progress")
"""The statuses in which a task may wait for a person, the most urgent first."""

_NEXT = (
    ("holdfast ls", "the newest tasks"),
    ("holdfast show TASK", "one task: where it is, and what happened to get there"),
    ("holdfast ui", "the same in a browser"),
    ("holdfast help", "every command; holdfast help TOPIC explains one"),
)
_FIRST = (
    ("holdfast demo", "an agent is killed half-way, and goes on"),
    ("holdfast run MODULE:FUNCTION", "run a task of your own"),
    ("holdfast once NAME -- COMMAND", "a step of a shell script that is not done twice"),
    ("holdfast help", "every command; holdfast help TOPIC explains one"),
)


def say_where_you_are(given: Given) -> None:
    """The store, the tasks that need a person, the newest ones, and what to try next."""
    out = console()
    try:
        must_exist(store_url(given))
    except StoreNotFound as missing:
        print_lines(out, plain(str(missing)))
        _print_next(out, _FIRST)
        return
    with opened(given) as hf:
        print_lines(out, Text.assemble(("store  ", "dim"), plain(hf.store.url)))
        needy = list(_needy(hf))
        newest = hf.page(limit=_MOST).tasks
        if not newest:
            print_lines(out, "no tasks yet")
            _print_next(out, _FIRST)
            return
        out.print()
        if needy:
            out.print(Text("These need you", "bold yellow"))
            rows = [_needs(given, hf, view) for view in needy]
            print_table(out, ("ID", "STATUS", "WHAT IT NEEDS", "TO DO"), rows, cut_last=False)
        else:
            out.print("no task needs you")
        now = datetime.now(UTC)
        out.print(Text("\nThe newest", "bold"))
        rows = [
            (plain(each.id), status_text(each.status), ago(each.updated_at, now)) for each in newest
        ]
        print_table(out, ("ID", "STATUS", "CHANGED"), rows, cut_last=False)
    _print_next(out, _NEXT)


def _needy(hf: Holdfast) -> Iterator[TaskView]:
    for status in _NEEDY:
        for record in hf.page(limit=_MOST, status=status).tasks:
            try:
                view = read_task(hf.store, record.id)
            except (TaskNotFound, StoreError):  # gone meanwhile, or damaged: `doctor` tells
                continue
            if view.status == status and (status != "in_progress" or _has_stopped(hf, view)):
                yield view


def _has_stopped(hf: Holdfast, view: TaskView) -> bool:
    """Whether nobody is at work on a task that nobody released: its process died."""
    state = view.state
    return not state.parked and not state.driver and at_work(hf.store, view) is None


def _needs(given: Given, hf: Holdfast, view: TaskView) -> tuple[str | Text, ...]:
    what, command = view.state.because, our_command(given, "show", view.id)
    if view.status == "in_progress":
        what, command = "nobody is at work on it", resume_command(given, view.state)
    if view.status == "failed" and view.failure is not None:
        what = view.failure.summary()
    for question in questions_of(view)[:1]:
        what = question.question
        command = our_command(given, "answer", view.id, question.id, "ANSWER")
    for doubt in doubts_of(hf.store, view)[:1]:
        if doubt.waits_for_a_person:
            what = f"call {doubt.path}, {doubt.tool}, may or may not have happened"
            command = our_command(given, "doubt", view.id)
    return plain(view.id), status_text(view.status), plain(cut(what, 60)), plain(command)


def _print_next(out: Console, commands: tuple[tuple[str, str], ...]) -> None:
    out.print(Text("\nTry", "bold"))
    longest = max(len(command) for command, _ in commands)
    for command, purpose in commands:
        print_lines(out, Text.assemble(f"  {command.ljust(longest)}  ", (purpose, "dim")))


_IN_WHEEL, _IN_CHECKOUT = "holdfast.cli.trip", "examples.trip"


@click.command(short_help="Watch an agent be killed half-way, and go on.")
@click.option(
    "--dir",
    "folder",
    default="holdfast-demo",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the store of the demo is kept, for you to look at (holdfast-demo).",
)
@store_command()
def demo(given: Given, folder: Path, as_json: bool) -> Exit:
    """Plan a trip twice: with an ordinary agent, and with the same agent on Holdfast.

    Both are killed in step 6 of 9, right after a calendar invite went out, and started again. The
    outside world is a server on this machine that keeps its own books: at the end they are shown,
    two invites beside one. It takes a few seconds, needs no network and no key, and leaves a store
    to look at. A folder that another program made is refused.

    \b
    Examples:
      holdfast demo
      holdfast demo --dir /tmp/trip
      holdfast show trip-42 --url holdfast-demo
    """
    module, where = _trip()
    _must_be_ours(folder)
    # Without -P, a json.py in the current folder would be imported.
    safely = ["-P"] if where is None else []
    done = subprocess.run(
        [sys.executable, *safely, "-m", module, str(folder.resolve())],
        cwd=where,
        stdout=sys.stderr if as_json else None,
        check=False,
    )
    if as_json:
        print_json({"store": str(folder), "task": "trip-42", "ok": done.returncode == 0})
    return Exit.OK if done.returncode == 0 else Exit.TASK_FAILED


def _trip() -> tuple[str, Path | None]:
    """The module of the trip, and the folder that it is imported from."""
    if importlib.util.find_spec(_IN_WHEEL) is not None:
        return _IN_WHEEL, None
    checkout = Path(__file__).resolve().parents[4]
    if (checkout / "examples" / "trip" / "__main__.py").exists():
        return _IN_CHECKOUT, checkout
    raise BadInput("this install has no demo: it comes with the wheel (pip install holdfast)")


def _must_be_ours(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()) and not (folder / "tasks" / "trip-42").is_dir():
        raise BadInput(f"{folder} is there, and is no demo's: name another folder with --dir")
