"""Which tasks a command is about: those named, those that match, or all."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click

from holdfast.cli.options import complete_task, label_option
from holdfast.cli.when import when
from holdfast.listing import Filters
from holdfast.state import Status

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

tasks_argument = click.argument(
    "tasks", metavar="[TASK]...", nargs=-1, shell_complete=complete_task
)


_LOOKING = (
    click.option(
        "--status",
        type=click.Choice(get_args(Status)),
        multiple=True,
        help="Only tasks in this status; may be repeated, for any of them.",
    ),
    click.option("--type", metavar="NAME", help="Only runs of this task function."),
    click.option("--user", help="Only tasks of this user."),
    click.option("--session", help="Only the tasks of a session."),
    click.option("--parent", metavar="TASK", help="Only the children of a task."),
    click.option("--origin", metavar="TASK", help="Only the forks of a task."),
    label_option,
    click.option(
        "--since",
        "created_after",
        metavar="WHEN",
        callback=when,
        help="Only tasks made since: 7d, a date.",
    ),
    click.option(
        "--until",
        "created_before",
        metavar="WHEN",
        callback=when,
        help="Only tasks made before that.",
    ),
)


def looking_options(command: Callable[..., R]) -> Callable[..., R]:
    """What tasks are looked for by. The command gets them as `filters`, those of
    `Holdfast.page` and its like."""

    @functools.wraps(command)
    def gathered(*args: Any, **given: Any) -> R:
        filters = {name: given.pop(name) for name in Filters.__annotations__ if name in given}
        filters["status"] = filters["status"] or None
        return command(*args, filters=filters, **given)

    made: Callable[..., R] = gathered
    for option in reversed(_LOOKING):
        made = option(made)
    return made


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
