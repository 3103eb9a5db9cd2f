"""`holdfast run`, `start`, `resume` and `retry`: drive a task here, or leave it to a worker."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from msgspec import Struct

from holdfast.api.app import Holdfast
from holdfast.api.settings import load, look_in
from holdfast.cli.arguments import arguments_of
from holdfast.cli.commands.control import (
    bulk_options,
    chosen,
    in_bulk,
    must_leave_to_worker,
    summary_of,
)
from holdfast.cli.exits import Exit, exit_of
from holdfast.cli.opening import find_task, load_app, opened
from holdfast.cli.options import (
    label_option,
    pairs,
    stacked,
    store_command,
)
from holdfast.cli.output import console, print_error, print_json, print_lines
from holdfast.cli.settings import Given, our_command
from holdfast.cli.text import plain
from holdfast.core.spec import task_spec
from holdfast.core.state import FINISHED
from holdfast.core.words import checked_id
from holdfast.engines.local.tasks import new_id
from holdfast.engines.routing import driven_by
from holdfast.errors import BadInput, HoldfastError, TaskCancelled, TaskFailed, TaskWaiting
from holdfast.log.reading import Tail
from holdfast.stores.port import Store
from holdfast.views.task import TaskView, doubts_of, questions_of
from holdfast.workspace.projecting import progress_line

F = TypeVar("F", bound=Callable[..., Any])

new_task_options: Final = stacked(
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
    kwargs: dict[str, Any]
    options: dict[str, Any]


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
    options = {"id": id, "user": user, "session": session, "labels": labels}
    return NewTask(fn, id, values, by_name, options)


@click.command(short_help="Make a task, and leave it to a worker.")
@new_task_options
@store_command("redact", "secrets", "engine", engine=True)
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
        status = hf.options(**task.options).start(task.fn, *task.args, **task.kwargs).status
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


# Live progress of a task: the lines of its `progress.log`, on standard error.


_LOOK_S = 0.2


@contextmanager
def live(store: Store, task_id: str, wanted: bool) -> Iterator[None]:
    """While it lasts, print what is new in the log of a task, if that is `wanted`."""
    if not wanted:
        yield
        return
    tail, ended = Tail(store, task_id), threading.Event()
    _read(tail)  # what was there before is not told again

    def follow() -> None:
        while not ended.wait(_LOOK_S):
            _print(tail)

    thread = threading.Thread(target=follow, name="holdfast live", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        _print(tail)


def _print(tail: Tail) -> None:
    for line in _read(tail):
        if line:
            print_error(line.rstrip("\n"))


def _read(tail: Tail) -> list[str]:
    lines: list[str] = []
    with suppress(HoldfastError):  # who drives the task tells what is wrong with its log
        lines.extend(progress_line(event, tail.state) for _, event in tail.read())
    return lines


_progress_option = click.option(
    "--progress", is_flag=True, help="Print what it does on standard error, as it does it."
)


@click.command(short_help="Run a task function, or go on with it.")
@new_task_options
@_progress_option
@store_command("redact", "secrets", "engine", engine=True)
def run(given: Given, /, progress: bool, as_json: bool, **words: Any) -> Exit:
    """Run a task function, or go on with it, and print its result as JSON.

    MODULE is found as by `python -m`: in the current folder first. ARGS are JSON where they can
    be read as JSON, else text: 3 is a number, Oslo is a text, '"3"' is the text 3. Put -- before
    arguments that begin with a dash.

    With the --id of a task that exists it goes on with that one, or gives its recorded result.
    The function's own output goes to standard error. With --json an object is printed, also
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
        go = partial(hf.options(**task.options).run, task.fn, *task.args, **task.kwargs)
        return drive_here(given, hf, task.id, go, as_json, progress)


SET_ASIDE = ("paused", "stuck")
"""The statuses in which a task waits for somebody to let it go on."""


@click.command(short_help="Go on with a task that was interrupted or paused.")
@bulk_options
@click.option(
    "--worker", "to_worker", is_flag=True, help="Let a paused task go on, and leave it to a worker."
)
@_progress_option
@store_command("app", "redact", "secrets", "engine", engine=True)
def resume(
    given: Given,
    tasks: tuple[str, ...],
    to_worker: bool,
    progress: bool,
    as_json: bool,
    **filters: Any,
) -> Exit:
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
      holdfast resume --label team=travel --worker
    """
    with opened(given) as hf:
        meant = chosen(hf, SET_ASIDE, tasks, **filters)
        must_leave_to_worker(meant, to_worker)
        if meant.many:
            return in_bulk(hf, meant, "left to workers", hf.unpause, as_json)
        (task,) = meant.ids
        view = find_task(hf, task)
        if to_worker:
            return _leave_to_worker(given, hf, task, as_json)
        if view.status not in FINISHED:
            load_app(given)
            return drive_here(given, hf, task, lambda: hf.resume(task), as_json, progress)
        return drive_here(given, hf, task, lambda: _recorded_end(view), as_json)


@click.command(short_help="Try a failed task again.")
@bulk_options
@click.option(
    "--worker", "to_worker", is_flag=True, help="Open it again, and leave it to a worker."
)
@_progress_option
@store_command("app", "redact", "secrets", "engine", engine=True)
def retry(
    given: Given,
    tasks: tuple[str, ...],
    to_worker: bool,
    progress: bool,
    as_json: bool,
    **filters: Any,
) -> Exit:
    """Try a failed task again, and print its result as JSON.

    Recorded steps are kept; the one that failed runs anew, with all its attempts. A completed task
    has nothing to retry: the command prints its recorded result.

    With --worker the task is not driven here, and needs no --app: a worker takes it up. Several
    tasks at once, or those that filters find, are always left to workers.

    \b
    Examples:
      holdfast retry trip-42 --app agents
      holdfast retry trip-42 --worker
      holdfast retry --type plan_trip --since 1d --worker --dry-run
    """
    with opened(given) as hf:
        meant = chosen(hf, ("failed", "stuck"), tasks, **filters)
        must_leave_to_worker(meant, to_worker)
        if meant.many or to_worker:
            return in_bulk(hf, meant, "left to workers", partial(hf.retry, worker=True), as_json)
        (task,) = meant.ids
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
