"""The options by which tasks are found, for every command that goes through many of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar, get_args

import click

from holdfast.cli.amounts import when
from holdfast.cli.options import complete_task, label_option
from holdfast.core.state import Status
from holdfast.stores.listing import Filters

F = TypeVar("F", bound=Callable[..., Any])

STATUSES = get_args(Status)


def find_options(command: F) -> F:
    """`--status`, `--type`, `--user`, …: what `found_by` takes."""
    for option in (
        click.option("--until", metavar="WHEN", callback=when, help="Only tasks made before that."),
        click.option(
            "--since", metavar="WHEN", callback=when, help="Only tasks made since: 7d, a date."
        ),
        label_option,
        click.option("--origin", metavar="TASK", help="Only the forks of a task."),
        click.option("--parent", metavar="TASK", help="Only the children of a task."),
        click.option("--session", help="Only the tasks of a session."),
        click.option("--user", help="Only tasks of this user."),
        click.option("--type", "kind", metavar="NAME", help="Only runs of this task function."),
        click.option(
            "--status",
            "statuses",
            type=click.Choice(STATUSES),
            multiple=True,
            help="Only tasks in this status; may be repeated, for any of them.",
        ),
    ):
        command = option(command)
    return command


def found_by(
    statuses: tuple[str, ...],
    kind: str | None,
    user: str | None,
    session: str | None,
    parent: str | None,
    origin: str | None,
    labels: dict[str, str],
    since: datetime | None,
    until: datetime | None,
) -> Filters:
    """What was given, as `Holdfast.page` takes it."""
    return {
        "status": statuses or None,
        "type": kind,
        "user": user,
        "session": session,
        "parent": parent,
        "origin": origin,
        "labels": labels,
        "created_after": since,
        "created_before": until,
    }


# Which tasks a command is about: those named, those that match, or all.


tasks_argument = click.argument(
    "tasks", metavar="[TASK]...", nargs=-1, shell_complete=complete_task
)


def filter_options(command: F) -> F:
    """Those of `holdfast ls`."""
    for option in (
        label_option,
        click.option("--session", help="Only the tasks of a session."),
        click.option("--user", help="Only tasks of this user."),
        click.option("--type", "kind", metavar="NAME", help="Only runs of this task function."),
        click.option(
            "--status", type=click.Choice(get_args(Status)), help="Only tasks in this status."
        ),
    ):
        command = option(command)
    return command


def meant(
    tasks: tuple[str, ...],
    status: str | None,
    kind: str | None,
    user: str | None,
    session: str | None,
    labels: dict[str, str],
) -> dict[str, Any]:
    """What was said, as the arguments of `Holdfast.copy_to` and its like."""
    return {
        "ids": tasks or None,
        "status": status,
        "type": kind,
        "user": user,
        "session": session,
        "labels": labels or None,
    }
