"""`holdfast run`, `resume` and `retry`: drive a task in this process, and print what it returns."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.cli.answer import questions_of
from holdfast.cli.arguments import arguments_of
from holdfast.cli.code import load, load_app, look_in
from holdfast.cli.doubt import doubts_of
from holdfast.cli.exits import Exit
from holdfast.cli.hints import our_command
from holdfast.cli.opening import find_task, opened
from holdfast.cli.options import (
    code_options,
    json_option,
    label_option,
    pairs,
    pass_given,
    store_options,
    task_argument,
)
from holdfast.cli.output import print_error, print_json
from holdfast.cli.settings import Given
from holdfast.driving import new_id
from holdfast.errors import BadInput, HoldfastError, TaskFailed, TaskWaiting
from holdfast.task import task_spec
from holdfast.views import TaskView
from holdfast.words import checked_id


@click.command(short_help="Run a task function, or go on with it.")
@click.argument("function", metavar="MODULE:FUNCTION")
@click.argument("args", nargs=-1)
@click.option("--id", "task_id", metavar="ID", help="The task's id.  [default: a new one]")
@click.option(
    "--arg",
    "named",
    metavar="NAME=VALUE",
    multiple=True,
    callback=pairs,
    help="An argument by name; may be repeated.",
)
@click.option("--user", default="", help="Whose task it is.")
@click.option("--session", default="", help="The session it belongs to.")
@label_option
@json_option
@store_options
@pass_given
def run(
    given: Given,
    function: str,
    args: tuple[str, ...],
    task_id: str | None,
    named: dict[str, str],
    user: str,
    session: str,
    labels: dict[str, str],
    as_json: bool,
) -> Exit:
    """Run a task function, or go on with it, and print its result as JSON.

    MODULE is found as by `python -m`: in the current folder first. ARGS are JSON where they can
    be read as JSON, else text: 3 is a number, Oslo is a text, '"3"' is the text 3. Put -- before
    arguments that begin with a dash.

    With the --id of a task that exists it goes on with that one, or gives its recorded result.
    What the function itself prints goes to standard error. With --json an object is printed, also
    when the task fails or has to wait: its id, status, result, failure, doubts and questions.

    \b
    Examples:
      holdfast run agents:plan_trip Oslo --id trip-42
      holdfast run agents:plan_trip --arg city=Oslo --arg nights=3
      holdfast run agents.mail:triage '{"inbox": "work"}' --user ada
    """
    look_in(Path.cwd())
    if ":" not in function:
        raise BadInput(f"{function!r} names no function: write MODULE:FUNCTION, as in agents:plan")
    given.app = (function.partition(":")[0],)  # what a command to go on needs
    fn = load(function)
    spec = task_spec(fn)
    values, by_name = arguments_of(spec, args, named)
    options = {"user": user, "session": session, "labels": labels}
    task_id = checked_id(task_id) if task_id is not None else new_id(spec.name, datetime.now(UTC))
    with opened(given, create=True) as hf:
        print_error(f"task {task_id}")
        go = partial(hf.run, fn, *values, id=task_id, **options, **by_name)
        return _drive(given, hf, task_id, go, as_json)


@click.command(short_help="Go on with a task that was interrupted.")
@task_argument
@json_option
@code_options
@pass_given
def resume(given: Given, task: str, as_json: bool) -> Exit:
    """Go on with a task that was interrupted, and print its result as JSON.

    Its function runs again from the top; recorded steps give their recorded results and are not
    made again. The code is what --app names: nothing that the log names is ever imported. Of a
    finished task the recorded result or failure is given, which needs no code.

    \b
    Examples:
      holdfast resume trip-42 --app agents
      HOLDFAST_APP=agents,agents.mail holdfast resume trip-42
    """
    with opened(given) as hf:
        view = find_task(hf, task)
        if view.status not in ("completed", "failed"):
            load_app(given)
            return _drive(given, hf, task, lambda: hf.resume(task), as_json)
        return _drive(given, hf, task, lambda: _recorded_end(view), as_json)


@click.command(short_help="Try a failed task again.")
@task_argument
@json_option
@code_options
@pass_given
def retry(given: Given, task: str, as_json: bool) -> Exit:
    """Try a failed task again, and print its result as JSON.

    Recorded steps are kept; the one that failed runs anew, with all its attempts. Of a completed
    task, which has nothing to retry, the recorded result is printed.

    \b
    Examples:
      holdfast retry trip-42 --app agents
    """
    with opened(given) as hf:
        view = find_task(hf, task)
        if view.status != "completed":
            load_app(given)
            return _drive(given, hf, task, lambda: hf.retry(task), as_json)
        print_error(f"task {task} is completed: there is nothing to retry")
        return _drive(given, hf, task, lambda: _recorded_end(view), as_json)


def _recorded_end(view: TaskView) -> None:
    if view.failure is not None:
        raise TaskFailed(view.id, view.failure)


def _drive(
    given: Given, hf: Holdfast, task_id: str, drive: Callable[[], Any], as_json: bool
) -> Exit:
    go_on = our_command(given, "resume", task_id, code=True)
    try:
        # Standard output is for the result alone, whatever the task prints.
        with redirect_stdout(sys.stderr):
            drive()
    except KeyboardInterrupt:
        print_error(f"interrupted. To go on: {go_on}")
        _print_if_there(hf, task_id, as_json)
        return Exit.INTERRUPTED
    except SystemExit as error:
        print_error(
            f"error: the task's function ended the program (sys.exit({error.code!r})), which is no "
            f"way to end a task. To go on: {go_on}"
        )
        _print_if_there(hf, task_id, as_json)
        return Exit.TASK_FAILED
    except (TaskFailed, TaskWaiting):
        if as_json:
            _print_outcome(hf, task_id)
        raise
    if as_json:
        _print_outcome(hf, task_id)
    else:
        # From the log, not from memory: plain data, as everybody else will see it.
        print_json(hf.task(task_id).result)
    return Exit.OK


def _print_if_there(hf: Holdfast, task_id: str, as_json: bool) -> None:
    if as_json:
        with suppress(HoldfastError):  # it may have been stopped before anything was recorded
            _print_outcome(hf, task_id)


def _print_outcome(hf: Holdfast, task_id: str) -> None:
    view = hf.task(task_id)
    print_json(
        {
            "id": view.id,
            "status": view.status,
            "result": view.result,
            "failure": view.failure,
            "doubts": doubts_of(hf.store, view),
            "questions": questions_of(view),
        }
    )
