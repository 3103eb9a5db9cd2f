"""Which tasks a command is about: those named, those that match, or all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click

from holdfast.cli.options import complete_task, label_option
from holdfast.state import Status

F = TypeVar("F", bound=Callable[..., Any])

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
