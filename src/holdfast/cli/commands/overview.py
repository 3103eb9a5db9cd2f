"""`holdfast` alone, `ls` and `alerts`: which tasks there are, and which need you; and `demo`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import click
from rich.console import Console
from rich.text import Text

from holdfast.api.alerts import ALERT, Alert, reasons_in
from holdfast.api.app import Holdfast
from holdfast.cli.arguments import AgeParam
from holdfast.cli.exits import Exit
from holdfast.cli.opening import StoreNotFound, must_exist, opened, read_task, store_url
from holdfast.cli.options import (
    cursor_option,
    find_options,
    found_by,
    limit_option,
    store_command,
)
from holdfast.cli.output import console, print_json, print_lines, print_table, status_text, warned
from holdfast.cli.settings import Given, our_command, resume_command
from holdfast.cli.text import ago, cut, plain
from holdfast.core.state import FINISHED, Status
from holdfast.engines.routing import LOCAL
from holdfast.errors import BadInput, StoreError, TaskNotFound
from holdfast.log.reading import stream_of
from holdfast.stores.finding import cursor_of
from holdfast.stores.listing import Filters, TaskPage
from holdfast.stores.port import LONGEST_PAGE, PagePlace
from holdfast.views.task import TaskView, at_work, doubts_of, position_of, questions_of

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


# `holdfast ls`: the tasks of a store.

Listed: TypeAlias = tuple[TaskView, str | None]
"""A task, and who is at work on it."""
COLUMNS = ("ID", "TYPE", "STATUS", "POSITION", "UPDATED", "USER")


@click.command()
@find_options
@limit_option(50)
@cursor_option
@click.option("--all", "whole", is_flag=True, help="Every page.")
@store_command()
def ls(
    given: Given,
    /,
    limit: int,
    cursor: str | None,
    whole: bool,
    as_json: bool,
    **found: Any,
) -> Exit:
    """List tasks, the newest first, a page at a time.

    A page is found by the index of the store, and only the logs of the tasks on it are read, for
    their position. If there are older ones, the last line says how to see them.

    \b
    A task that nobody is at work on is marked where that matters:
      stopped      it is in progress: resume it, or have a worker take it up
      waiting      it sleeps, backs off or waits for a child: a worker goes on
                   with it in time
      to be ended  it was cancelled, and has something to do first: resume it,
                   or have a worker
      on ENGINE    a remote engine drives it

    With --json, at_work names the process at work on a task, or is null; driver names the engine
    it is left to; wake_at is when a released task goes on by itself; cursor is its place: the next
    page begins there.

    A task whose log can't be read is named on standard error, and the exit code is then 4.

    \b
    Examples:
      holdfast ls
      holdfast ls --status failed --status cancelled --since 7d
      holdfast ls --user ada --since 2026-01-01 --until 2026-02-01 --limit 10
      holdfast ls --label team=travel --all --json | jq -r '.[].id'
    """
    filters = found_by(**found)
    with opened(given) as hf:
        listed, unreadable, after = _listed(hf, filters, limit, cursor, whole)
        if as_json:
            print_json([_summary(view, holder) for view, holder in listed])
        elif listed or unreadable:
            _print_table(listed, after)
        else:
            is_empty = cursor is None and not hf.page(limit=1).tasks
            console().print(plain(f"no tasks in {hf.store.url}" if is_empty else "no tasks match"))
    return warned(unreadable)


def _listed(
    hf: Holdfast, filters: Filters, limit: int, cursor: str | None, whole: bool
) -> tuple[list[Listed], list[StoreError], str | None]:
    """The tasks of a page, or of all; the logs that can't be read; where the next page begins."""
    listed, unreadable = list[Listed](), list[StoreError]()
    while True:
        page = hf.page(limit=LONGEST_PAGE if whole else limit, cursor=cursor, **filters)
        unreadable = unreadable or list(page.unreadable)  # the same for every page
        listed += _read(hf, page, unreadable)
        cursor = page.next
        if cursor is None or not whole:
            return listed, unreadable, cursor


def _read(hf: Holdfast, page: TaskPage, unreadable: list[StoreError]) -> Iterator[Listed]:
    for task in page.tasks:
        try:
            view = read_task(hf.store, task.id)
            yield view, at_work(hf.store, view)
        except TaskNotFound:  # it was deleted meanwhile
            continue
        except StoreError as error:
            unreadable.append(error)


def _summary(view: TaskView, holder: str | None) -> dict[str, Any]:
    state = view.state
    return {
        "id": view.id,
        "type": view.type,
        "status": view.status,
        "position": position_of(view),
        "created_at": state.created_at,
        "updated_at": state.updated_at,
        "user": state.user,
        "session": state.session,
        "labels": state.labels,
        "parent": state.parent,
        "origin": state.fork.of if state.fork is not None else "",
        "at_work": holder,
        "driver": state.driver or LOCAL,
        "wake_at": state.wake_at if state.parked else None,
        "crashes": max(state.deaths.values(), default=0),
        "hindrance": state.hindrance,
        "cursor": cursor_of(PagePlace(state.created_at, stream_of(view.id))),
    }


def _print_table(listed: list[Listed], after: str | None) -> None:
    out = console()
    print_table(out, COLUMNS, list(_rows(listed)), cut_last=False)
    if after is not None:
        line = Text(f"… there are older ones: the same with --cursor {after}", "dim")
        out.print(line, soft_wrap=True)


def _how_it_stands(view: TaskView) -> tuple[str, str]:
    """A mark for a task that nobody is at work on."""
    state = view.state
    if view.status in FINISHED:
        return "", ""
    if state.driver:
        return f", on {plain(state.driver)}", "dim"
    if state.cancelling or state.ending:
        return ", to be ended", "bold yellow"
    if state.hindrance is not None:
        return f", {plain(state.hindrance.error)}", "bold yellow"
    if view.status != "in_progress":
        return "", ""
    # A driver that releases a waiting task records that; one that dies or is told to end does not.
    return (", waiting", "yellow") if state.parked else (", stopped", "bold yellow")


def _type(view: TaskView) -> Text:
    fork = view.state.fork
    of = f", a fork of {plain(fork.of)}" if fork is not None else ""
    return Text.assemble(plain(view.type), (of, "dim"))


def _rows(views: list[Listed]) -> Iterator[tuple[str | Text, ...]]:
    now = datetime.now(UTC)
    for view, holder in views:
        status = status_text(view.status)
        if holder is None:
            status.append(*_how_it_stands(view))
        yield (
            plain(view.id),
            _type(view),
            status,
            str(position_of(view)),
            ago(view.state.updated_at, now),
            plain(view.state.user),
        )


# `holdfast alerts`: the tasks that somebody should look at, for people and for cron.

_STYLES = {"failed": "red", "stuck": "bold red", "in_doubt": "bold yellow", "asks": "yellow"}


@click.command(short_help="List what somebody should look at.")
@click.option(
    "--since",
    "age",
    type=AgeParam(),
    default="1d",
    show_default=True,
    help="Only what happened in that time: 2h, 7d.",
)
@click.option("--overdue", type=AgeParam(), help="Also tasks that have not ended after that time.")
@click.option("--exit-code", is_flag=True, help="Exit with 3 if there is anything.")
@store_command()
def alerts(
    given: Given, age: timedelta, overdue: timedelta | None, exit_code: bool, as_json: bool
) -> Exit:
    """List the tasks that somebody should look at: failed, stuck, in doubt, or asking a person.

    An alert that could not be delivered, after all its attempts, is a failed task as well. hf.on(…)
    and [[tool.holdfast.alerts]] name the receivers that workers send alerts to.

    \b
    Examples:
      holdfast alerts
      holdfast alerts --since 2h --overdue 12h
      holdfast alerts --exit-code > /dev/null || notify "somebody has to look"
    """
    now = datetime.now(UTC)
    with opened(given) as hf:
        found = [alert for alert, _ in reasons_in(hf, now - age, now, overdue)]
        undelivered = hf.page(type=ALERT, status="failed", updated_after=now - age).tasks
    if as_json:
        print_json({"alerts": found, "undelivered": [task.id for task in undelivered]})
    else:
        _print(found, [task.id for task in undelivered], now)
    return Exit.WAITING if exit_code and (found or undelivered) else Exit.OK


def _print(found: list[Alert], undelivered: list[str], now: datetime) -> None:
    out = console()
    if not found and not undelivered:
        out.print("nothing to look at")
    if found:
        rows = [_row(alert, now) for alert in found]
        print_table(out, ("TASK", "TYPE", "WHY", "SINCE", "WHAT"), rows, cut_last=True)
    for task in undelivered:
        out.print(Text(f"an alert could not be delivered: task {plain(task)}", "red"))


def _row(alert: Alert, now: datetime) -> tuple[Any, ...]:
    reason = Text(alert.reason.replace("_", " "), _STYLES.get(alert.reason, ""))
    since = ago(datetime.fromisoformat(alert.at), now)
    return plain(alert.task), plain(alert.type), reason, since, plain(alert.text)
