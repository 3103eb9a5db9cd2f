"""Which tasks a command is about: those named, those that match, or all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar, get_args

import click

from holdfast.cli.options import complete_task, label_option
from holdfast.cli.when import when
from holdfast.listing import Filters
from holdfast.state import Status

F = TypeVar("F", bound=Callable[..., Any])

tasks_argument = click.argument(
    "tasks", metavar="[TASK]...", nargs=-1, shell_complete=complete_task
)


def looking_options(command: F) -> F:
    """What tasks are looked for by: for `looked_for`."""
    for option in (
        click.option("--until", metavar="WHEN", callback=when, help="Only tasks made before that."),
        click.option(
            "--since", metavar="WHEN", callback=when, help="Only tasks made since: 7d, a date."
        ),
        label_option,
        click.option("--parent", metavar="TASK", help="Only the children of a task."),
        click.option("--session", help="Only the tasks of a session."),
        click.option("--user", help="Only tasks of this user."),
        click.option("--type", "kind", metavar="NAME", help="Only runs of this task function."),
        click.option(
            "--status",
            "statuses",
            type=click.Choice(get_args(Status)),
            multiple=True,
            help="Only tasks in this status; may be repeated, for any of them.",
        ),
    ):
        command = option(command)
    return command


def looked_for(
    statuses: tuple[str, ...],
    kind: str | None,
    user: str | None,
    session: str | None,
    parent: str | None,
    labels: dict[str, str],
    since: datetime | None,
    until: datetime | None,
) -> Filters:
    """What was said, as the filters of `Holdfast.page` and its like."""
    return {
        "status": statuses or None,
        "type": kind,
        "user": user,
        "session": session,
        "parent": parent,
        "labels": labels,
        "created_after": since,
        "created_before": until,
    }


def filter_options(command: F) -> F:
    """Some of those of `holdfast ls`, each once."""
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
