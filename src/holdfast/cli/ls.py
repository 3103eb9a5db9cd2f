"""`holdfast ls`: the tasks of a store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, get_args

import click
from rich.text import Text

from holdfast.cli.exits import Exit
from holdfast.cli.opening import at_work, opened, read_all
from holdfast.cli.options import json_option, label_option, pass_given, store_options
from holdfast.cli.output import console, print_error, print_json, print_table, status_text
from holdfast.cli.settings import Given
from holdfast.cli.text import ago, count, plain
from holdfast.state import FINISHED, Status
from holdfast.views import TaskView

STATUSES = get_args(Status)
COLUMNS = ("ID", "TYPE", "STATUS", "POSITION", "UPDATED", "USER")


@click.command()
@click.option("--status", type=click.Choice(STATUSES), help="Only tasks in this status.")
@click.option("--type", "kind", metavar="NAME", help="Only runs of this task function.")
@click.option("--user", help="Only tasks of this user.")
@click.option("--session", help="Only the tasks of a session.")
@label_option
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many.")
@json_option
@store_options
@pass_given
def ls(
    given: Given,
    status: str | None,
    kind: str | None,
    user: str | None,
    session: str | None,
    labels: dict[str, str],
    limit: int | None,
    as_json: bool,
) -> Exit:
    """List tasks, the most recently changed first.

    \b
    A task that nobody is at work on is marked where that matters:
      stopped      it is in progress: resume it, or have a worker take it up
      waiting      it sleeps, backs off or waits for a child: a worker goes on with it in time
      to be ended  it was cancelled, and has something to do first: resume it, or have a worker

    With --json, at_work says who is at work on a task, or null, and wake_at when a task that was
    let go of goes on by itself.

    A task whose log can't be read is named on standard error, and the exit code is then 4.

    \b
    Examples:
      holdfast ls
      holdfast ls --status failed --limit 10
      holdfast ls --status paused
      holdfast ls --label team=travel --json | jq -r '.[].id'
    """
    wanted = {"status": status, "type": kind, "user": user, "session": session}
    with opened(given, only_reads=True) as hf:
        views, unreadable = read_all(hf.store)
        found = [view for view in views if _matches(view, wanted, labels)]
        found.sort(key=lambda view: (view.state.updated_at, view.id), reverse=True)
        listed = [(view, at_work(hf.store, view)) for view in found[:limit]]
        if as_json:
            print_json([_summary(view, holder) for view, holder in listed])
        else:
            _print_table(
                listed, len(found), "no tasks match" if views else f"no tasks in {hf.store.url}"
            )
    for error in unreadable:
        print_error(f"warning: {error}")
    return Exit.DAMAGED if unreadable else Exit.OK


def _matches(view: TaskView, wanted: dict[str, str | None], labels: dict[str, str]) -> bool:
    state = view.state
    has = {
        "status": view.status,
        "type": view.type,
        "user": state.user,
        "session": state.session,
    }
    if any(want is not None and has[name] != want for name, want in wanted.items()):
        return False
    return labels.items() <= state.labels.items()


def _summary(view: TaskView, holder: str | None) -> dict[str, Any]:
    state = view.state
    return {
        "id": view.id,
        "type": view.type,
        "status": view.status,
        "position": view.position,
        "created_at": state.created_at,
        "updated_at": state.updated_at,
        "user": state.user,
        "session": state.session,
        "labels": state.labels,
        "parent": state.parent,
        "at_work": holder,
        "wake_at": state.wake_at if state.parked else None,
    }


def _print_table(views: list[tuple[TaskView, str | None]], total: int, if_none: str) -> None:
    out = console()
    if not views:
        out.print(plain(if_none))
        return
    print_table(out, COLUMNS, list(_rows(views)), cut_last=False)
    if total > len(views):
        out.print(Text(f"… and {count(total - len(views), 'older task')}", "dim"))


def _how_it_stands(view: TaskView) -> tuple[str, str]:
    """What is to be known of a task that nobody is at work on."""
    state = view.state
    if view.status in FINISHED:
        return "", ""
    if state.cancelling or state.ending:
        return ", to be ended", "bold yellow"
    if view.status != "in_progress":
        return "", ""
    # Who lets go of a task that waits says so; who dies, or is told to end, does not.
    return (", waiting", "yellow") if state.parked else (", stopped", "bold yellow")


def _rows(views: list[tuple[TaskView, str | None]]) -> Iterator[tuple[str | Text, ...]]:
    now = datetime.now(UTC)
    for view, holder in views:
        status = status_text(view.status)
        if holder is None:
            status.append(*_how_it_stands(view))
        yield (
            plain(view.id),
            plain(view.type),
            status,
            str(view.position),
            ago(view.state.updated_at, now),
            plain(view.state.user),
        )
