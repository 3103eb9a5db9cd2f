"""`holdfast run`, `resume` and `retry`: drive a task in this process, and print what it returns."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from functools import partial
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.cli.answer import questions_of
from holdfast.cli.code import load_app
from holdfast.cli.compensate import summary_of
from holdfast.cli.doubt import doubts_of
from holdfast.cli.engines import engine_options
from holdfast.cli.exits import Exit, exit_of
from holdfast.cli.hints import our_command
from holdfast.cli.live import live
from holdfast.cli.opening import find_task, opened
from holdfast.cli.options import (
    code_options,
    imports,
    json_option,
    pass_given,
    store_options,
    task_argument,
)
from holdfast.cli.output import console, print_error, print_json, print_lines
from holdfast.cli.settings import Given
from holdfast.cli.start import new_task, new_task_options
from holdfast.cli.text import plain
from holdfast.engines.elsewhere import driven_by
from holdfast.errors import HoldfastError, TaskCancelled, TaskFailed, TaskWaiting
from holdfast.state import FINISHED
from holdfast.views import TaskView

_progress_option = click.option(
    "--progress", is_flag=True, help="Print what it does on standard error, as it does it."
)


@click.command(short_help="Run a task function, or go on with it.")
@new_task_options
@_progress_option
@json_option
@engine_options
@store_options
@imports("redact", "secrets", "engine")
@pass_given
def run(given: Given, /, progress: bool, as_json: bool, **words: Any) -> Exit:
    """Run a task function, or go on with it, and print its result as JSON.

    MODULE is found as by `python -m`: in the current folder first. ARGS are JSON where they can
    be read as JSON, else text: 3 is a number, Oslo is a text, '"3"' is the text 3. Put -- before
    arguments that begin with a dash.

    With the --id of a task that exists it goes on with that one, or gives its recorded result.
    What the function itself prints goes to standard error. With --json an object is printed, also
    when the task fails or has to wait: its id, status, result, failure, doubts and questions.

    With --engine a worker of that engine drives it, and this command waits for it.

    \b
    Examples:
      holdfast run agents:plan_trip Oslo --id trip-42
      holdfast run agents:plan_trip --arg city=Oslo --arg nights=3
      holdfast run agents.mail:triage '{"inbox": "work"}' --user ada
    """
    task = new_task(given, **words)
    with opened(given, create=True) as hf:
        print_error(f"task {task.id}")
        go = partial(hf.run, task.fn, *task.args, id=task.id, **task.options)
        return drive_here(given, hf, task.id, go, as_json, progress)


@click.command(short_help="Go on with a task that was interrupted or paused.")
@task_argument
@click.option(
    "--worker", "to_worker", is_flag=True, help="Let a paused task go on, and leave it to a worker."
)
@_progress_option
@json_option
@engine_options
@code_options
@imports("app", "redact", "secrets", "engine")
@pass_given
def resume(given: Given, task: str, to_worker: bool, progress: bool, as_json: bool) -> Exit:
    """Go on with a task that was interrupted or paused, and print its result as JSON.

    Its function runs again from the top; recorded steps give their recorded results and are not
    made again. The code is what --app names: nothing that the log names is ever imported. Of a
    finished task the recorded result or failure is given, which needs no code. A task that is
    being cancelled is cancelled here: what it did is undone, if it was declared so.

    To run the code over the log without doing anything: `holdfast replay`. To go another way from
    one of its steps, in a new task: `holdfast fork`.

    With --worker a paused task is not driven here: it goes on as soon as a worker takes it up.

    \b
    Examples:
      holdfast resume trip-42 --app agents
      holdfast resume trip-42 --worker
      HOLDFAST_APP=agents,agents.mail holdfast resume trip-42
    """
    with opened(given) as hf:
        view = find_task(hf, task)
        if to_worker:
            return _leave_to_worker(given, hf, task, as_json)
        if view.status not in FINISHED:
            load_app(given)
            return drive_here(given, hf, task, lambda: hf.resume(task), as_json, progress)
        return drive_here(given, hf, task, lambda: _recorded_end(view), as_json)


@click.command(short_help="Try a failed task again.")
@task_argument
@_progress_option
@json_option
@engine_options
@code_options
@imports("app", "redact", "secrets", "engine")
@pass_given
def retry(given: Given, task: str, progress: bool, as_json: bool) -> Exit:
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
            return drive_here(given, hf, task, lambda: hf.retry(task), as_json, progress)
        print_error(f"task {task} is completed: there is nothing to retry")
        return drive_here(given, hf, task, lambda: _recorded_end(view), as_json)


def _leave_to_worker(given: Given, hf: Holdfast, task_id: str, as_json: bool) -> Exit:
    hf.unpause(task_id)
    if as_json:
        print_json({"id": task_id, "status": hf.task(task_id).status})
        return Exit.OK
    driver = driven_by(hf.task(task_id).state)
    options = ("--engine", driver) if driver and not given.engine else ()
    worker = our_command(given, "worker", options=options, code=True)
    print_lines(console(), f"goes on, left to a worker: {plain(worker)}")
    return Exit.OK


def _recorded_end(view: TaskView) -> None:
    if view.status == "cancelled":
        raise TaskCancelled(view.id, view.state.because)
    if view.failure is not None:
        raise TaskFailed(view.id, view.failure)


def drive_here(
    given: Given,
    hf: Holdfast,
    task_id: str,
    drive: Callable[[], Any],
    as_json: bool,
    progress: bool = False,
) -> Exit:
    """Drive a task in this process, and print what came of it."""
    go_on = our_command(given, "resume", task_id, code=True)
    try:
        # Standard output is for the result alone, whatever the task prints.
        with redirect_stdout(sys.stderr), live(hf.store, task_id, progress):
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
    except (TaskFailed, TaskCancelled, TaskWaiting) as error:
        if as_json:
            _print_outcome(hf, task_id)
        view = hf.task(task_id)
        if isinstance(error, TaskWaiting) or not view.state.compensated:
            raise
        print_error(f"error: {_undone(given, view, error)}")
        return exit_of(error)
    if as_json:
        _print_outcome(hf, task_id)
    else:
        # From the log, not from memory: plain data, as everybody else will see it.
        print_json(hf.task(task_id).result)
    return Exit.OK


def _undone(given: Given, view: TaskView, error: TaskFailed | TaskCancelled) -> str:
    """How it ended, and what was undone of what it did. There is nothing to retry after that."""
    ended = str(error)
    if isinstance(error, TaskFailed):
        ended = f"task {view.id!r} failed: {error.failure.summary()}"
    words = f"{ended}\nof what it did: {summary_of(view.compensation)}"
    if any(each.status != "undone" for each in view.compensation):
        words += f"\nto undo the rest: {our_command(given, 'compensate', view.id, code=True)}"
    return words


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
