"""`holdfast start`: make a task and leave it to a worker; and how a task to be made is named."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec import Struct

from holdfast.cli.arguments import arguments_of
from holdfast.cli.code import load, look_in
from holdfast.cli.engines import engine_options
from holdfast.cli.exits import Exit
from holdfast.cli.hints import our_command
from holdfast.cli.opening import opened
from holdfast.cli.options import (
    imports,
    json_option,
    label_option,
    pairs,
    pass_given,
    store_options,
)
from holdfast.cli.output import console, print_error, print_json, print_lines
from holdfast.cli.settings import Given
from holdfast.cli.text import plain
from holdfast.driving import new_id
from holdfast.errors import BadInput
from holdfast.spec import task_spec
from holdfast.words import checked_id

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.argument("function", metavar="MODULE:FUNCTION"),
    click.argument("args", nargs=-1),
    click.option("--id", "task_id", metavar="ID", help="The task's id.  [default: a new one]"),
    click.option(
        "--arg",
        "named",
        metavar="NAME=VALUE",
        multiple=True,
        callback=pairs,
        help="An argument by name; may be repeated.",
    ),
    click.option("--user", default="", help="Whose task it is."),
    click.option("--session", default="", help="The session it belongs to."),
    label_option,
)


class NewTask(Struct, frozen=True):
    """A task to be made, or to be gone on with: its function, its id, and what it is given."""

    fn: Callable[..., Any]
    id: str
    args: tuple[Any, ...]
    options: dict[str, Any]


def new_task_options(command: F) -> F:
    """The arguments and options by which a task is named; `new_task` takes them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def new_task(
    given: Given,
    *,
    function: str,
    args: tuple[str, ...],
    task_id: str | None,
    named: dict[str, str],
    user: str,
    session: str,
    labels: dict[str, str],
) -> NewTask:
    """The task that the command line names, or `BadInput`. Its module is imported."""
    look_in(Path.cwd())
    if ":" not in function:
        raise BadInput(f"{function!r} names no function: write MODULE:FUNCTION, as in agents:plan")
    given.app = (function.partition(":")[0],)  # what a command to go on needs
    fn = load(function)
    spec = task_spec(fn)
    values, by_name = arguments_of(spec, args, named)
    id = checked_id(task_id) if task_id is not None else new_id(spec.name, datetime.now(UTC))
    return NewTask(fn, id, values, {"user": user, "session": session, "labels": labels, **by_name})


@click.command(short_help="Make a task, and leave it to a worker.")
@new_task_options
@json_option
@engine_options
@store_options
@imports("redact", "secrets", "engine")
@pass_given
def start(given: Given, /, as_json: bool, **words: Any) -> Exit:
    """Make a task, leave it to a worker, and print its id.

    The arguments are those of `holdfast run`. The task is on disk when this returns; it is
    driven by `holdfast worker`, now or as soon as one runs. With the --id of a task that exists
    nothing is made: it is that one, whatever its status. With --engine a worker of that engine
    drives it.

    With --json an object is printed: the task's id and status.

    \b
    Examples:
      holdfast start agents:plan_trip Oslo --id trip-42
      id=$(holdfast start agents:plan_trip Oslo) && holdfast log -f "$id"
    """
    task = new_task(given, **words)
    with opened(given, create=True) as hf:
        status = hf.start(task.fn, *task.args, id=task.id, **task.options).status
    if as_json:
        print_json({"id": task.id, "status": status})
        return Exit.OK
    out = console()
    print_lines(out, plain(task.id) if out.is_terminal else task.id)  # a pipe gets the very id
    if status == "pending":
        print_error(f"left to a worker: {our_command(given, 'worker', code=True)}")
    else:
        print_error(f"the task exists, and is {status}")
    return Exit.OK
