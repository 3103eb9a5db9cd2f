"""`holdfast pause`, `cancel`, `move` and `compensate`: stop tasks, move them, undo what they did.

They act on one task or on many, named by their ids or found by the filters of `holdfast ls`, and
so do `resume`, `retry` and `answer`. An error at one task does not keep the others from it. A dry
run only names the tasks. The report at the end has the outcome of each, and the exit code is that
of the first error.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial
from typing import Any, get_args

import click
from msgspec import Struct
from rich.console import Console
from rich.text import Text

from holdfast.api.app import Holdfast
from holdfast.cli.exits import Exit, exit_of
from holdfast.cli.opening import engine_of, find_task, load_app, must_be_there, opened
from holdfast.cli.options import (
    F,
    because_option,
    by_option,
    complete_task,
    find_options,
    found_by,
    stacked,
    store_command,
    task_argument,
)
from holdfast.cli.output import console, print_error, print_json, print_lines, print_table
from holdfast.cli.settings import Given, our_command, resume_command
from holdfast.cli.text import count, plain
from holdfast.core.kinds import id_of
from holdfast.core.state import FINISHED, State, Status
from holdfast.engines.routing import LOCAL, driven_by
from holdfast.errors import BadInput, HoldfastError, TaskWaiting
from holdfast.history.known import Undone
from holdfast.stores.listing import streams_of_tasks
from holdfast.views.task import TaskView, at_work

_SAY_EVERY_S = 1.0
_MOST_SAID = 20

_filters: Callable[[F], F] = stacked(
    find_options,
    click.option("--all", "everything", is_flag=True, help="All tasks that it can be done to."),
    click.option("--dry-run", is_flag=True, help="Only say which tasks are meant."),
)

bulk_options: Callable[[F], F] = stacked(
    click.argument("tasks", metavar="[TASK]...", nargs=-1, shell_complete=complete_task), _filters
)
"""Tasks by their ids, or by filters: what `chosen` takes."""

more_tasks: Callable[[F], F] = _filters
"""The same for commands whose arguments are about one task."""


class Meant(Struct, frozen=True):
    """The tasks that are meant."""

    ids: tuple[str, ...]
    many: bool
    """Whether they were not named one by one: a report is made of all of them."""
    dry_run: bool = False


def chosen(hf: Holdfast, able: Sequence[str], tasks: Sequence[str], **given: Any) -> Meant:
    """Which tasks are meant. `able` are the statuses it can be done in, if none was asked for."""
    dry_run, everything = given.pop("dry_run"), given.pop("everything")
    if tasks:
        if is_filtered(given) or everything:
            raise click.UsageError("name tasks, or say by filters which are meant, not both")
        ids = tuple(dict.fromkeys(tasks))
        return Meant(ids, len(ids) > 1 or dry_run, dry_run)
    if not is_filtered(given) and not everything:
        raise click.UsageError("say which tasks: their ids, filters such as --status, or --all")
    wanted = found_by(**given)
    if not given["statuses"]:
        wanted["status"] = tuple(able)
    streams, unreadable = streams_of_tasks(hf.store, wanted)
    for error in unreadable:
        print_error(f"warning: {error}")
    return Meant(tuple(id_of(stream) for stream in reversed(streams)), True, dry_run)


def is_filtered(given: Mapping[str, Any]) -> bool:
    """Whether tasks are to be found by something."""
    return any(bool(value) for value in given.values())


def in_bulk(
    hf: Holdfast, meant: Meant, done: str, act: Callable[[str], object], as_json: bool
) -> Exit:
    """Do something to each of the tasks, and say what came of it. `done` is the word for it."""
    must_be_there(hf.store, *(meant.ids if not meant.dry_run else ()))
    failed: dict[str, HoldfastError] = {}
    said = time.monotonic()
    for number, task in enumerate(() if meant.dry_run else meant.ids):
        if sys.stderr.isatty() and time.monotonic() - said > _SAY_EVERY_S:
            said = time.monotonic()
            print_error(f"{number:,} of {len(meant.ids):,} tasks")
        try:
            act(task)
        except HoldfastError as error:
            failed[task] = error
    if as_json:
        report = {
            "dry_run": meant.dry_run,
            "done": [] if meant.dry_run else [id for id in meant.ids if id not in failed],
            "meant": list(meant.ids),
            "failed": {id: str(error) for id, error in failed.items()},
        }
        print_json(report)
    else:
        _print(meant, done, failed)
    return exit_of(next(iter(failed.values()))) if failed else Exit.OK


def _print(meant: Meant, done: str, failed: dict[str, HoldfastError]) -> None:
    out = console()
    if meant.dry_run:
        for task in meant.ids[:_MOST_SAID]:
            print_lines(out, f"would be {done}: {plain(task)}")
        if len(meant.ids) > _MOST_SAID:
            print_lines(out, f"… and {len(meant.ids) - _MOST_SAID:,} more")
        print_lines(out, f"{count(len(meant.ids), 'task')} would be {done}")
        return
    for task, error in list(failed.items())[:_MOST_SAID]:
        print_error(f"{task}: {str(error).partition(chr(10))[0]}")
    if len(failed) > _MOST_SAID:
        print_error(f"… and {len(failed) - _MOST_SAID:,} more")
    not_done = f", {count(len(failed), 'task')} could not be" if failed else ""
    print_lines(out, f"{count(len(meant.ids) - len(failed), 'task')} {done}{not_done}")


def must_leave_to_worker(meant: Meant, to_worker: bool) -> None:
    """Raise `BadInput` if many tasks would be driven here, one after the other."""
    if meant.many and not to_worker and not meant.dry_run:
        raise BadInput("several tasks are left to workers: say --worker, or name one task")


UNFINISHED = tuple(status for status in get_args(Status) if status not in FINISHED)


@click.command(short_help="Stop a task at its next step, for now.")
@bulk_options
@because_option
@by_option
@store_command("redact", "engine")
def pause(
    given: Given, tasks: tuple[str, ...], because: str, by: str, as_json: bool, **filters: Any
) -> Exit:
    """Stop a task at its next step, until somebody lets it go on.

    The step in hand runs to its end and is recorded. No worker takes up a paused task. To let it go
    on, `holdfast resume` it: here with --app, or by a worker with --worker.

    \b
    Examples:
      holdfast pause trip-42
      holdfast pause trip-42 --because "the budget is spent" --by ada
      holdfast pause --type plan_trip --label team=travel --dry-run
    """
    with opened(given) as hf:
        meant = chosen(hf, ("pending", "in_progress", "awaiting_user"), tasks, **filters)
        if meant.many:
            act = partial(hf.pause, because=because, by=by)
            return in_bulk(hf, meant, "paused", act, as_json)
        (task,) = meant.ids
        find_task(hf, task)
        hf.pause(task, because=because, by=by)
        view = hf.task(task)
        _must_have_heard(view, "paused")
        holder = at_work(hf.store, view)
    if as_json:
        print_json({"id": task, "status": view.status, "at_work": holder})
        return Exit.OK
    out = console()
    _print_pause(out, view, holder)
    here = resume_command(given, view.state)
    worker = our_command(given, "resume", task, options=("--worker",))
    if driven_by(view.state):
        print_lines(out, f"To let it go on: {plain(worker)}")
        return Exit.OK
    print_lines(out, f"To let it go on here:  {plain(here)}")
    print_lines(out, f"To let a worker do so: {plain(worker)}")
    return Exit.OK


def _print_pause(out: Console, view: TaskView, holder: str | None) -> None:
    if view.status != "paused":
        # The holder of the task reads messages many times a second, unless it hangs.
        who = holder or driven_by(view.state) or "its holder"
        print_lines(out, f"asked to pause: {plain(who)} has yet to hear of it")
    elif holder:
        print_lines(out, f"paused: {plain(holder)} finishes the step in hand, and releases it")
    else:
        print_lines(out, "paused")


@click.command(short_help="End a task at its next step, for good.")
@bulk_options
@because_option
@by_option
@store_command("redact", "engine")
def cancel(
    given: Given, tasks: tuple[str, ...], because: str, by: str, as_json: bool, **filters: Any
) -> Exit:
    """End a task at its next step, for good, and say what comes of that.

    \b
    One of these is said (with --json it is the outcome):
      ended         nobody was driving it, and it ended at once
      will_end      somebody is driving it: it ends at its next step; a running
                    async step is cancelled, a sync one runs to its end and is
                    recorded
      to_be_driven  it has something to do first: tools to undo, or children to
                    cancel. A worker does that and ends it, or `holdfast resume`
                    with the task's code

    The tools that declare an undo (undo=…) are undone, unless the task says otherwise
    (compensate=…). Its children are cancelled too, unless they were started to be left alone.

    \b
    Examples:
      holdfast cancel trip-42
      holdfast cancel trip-42 --because "Ada has flown home" --by bob
      holdfast cancel --session s-7
    """
    with opened(given) as hf:
        meant = chosen(hf, UNFINISHED, tasks, **filters)
        if meant.many:
            act = partial(hf.cancel, because=because, by=by)
            return in_bulk(hf, meant, "told to end", act, as_json)
        (task,) = meant.ids
        find_task(hf, task)
        hf.cancel(task, because=because, by=by)
        view = hf.task(task)
        _must_have_heard(view, "cancelled")
        outcome, holder = _outcome(hf, view)
    if as_json:
        print_json({"id": task, "status": view.status, "outcome": outcome, "at_work": holder})
    else:
        _print_cancel(given, view, outcome, holder)
    return Exit.OK


def _outcome(hf: Holdfast, view: TaskView) -> tuple[str, str | None]:
    holder = at_work(hf.store, view)
    if view.status == "cancelled":
        return "ended", None
    who = holder or driven_by(view.state) or None
    return "will_end" if who else "to_be_driven", who


def _print_cancel(given: Given, view: TaskView, outcome: str, holder: str | None) -> None:
    out = console()
    if outcome == "ended":
        print_lines(out, "cancelled: it has ended")
        return
    if outcome == "will_end":
        print_lines(out, f"asked to end: it will at its next step ({plain(holder or '')})")
        return
    print_lines(out, f"asked to end: it {before_its_end(view.state)} first")
    resume = resume_command(given, view.state)
    print_lines(out, f"A worker does that, or:  {plain(resume)}")


def _must_have_heard(view: TaskView, wanted: str) -> None:
    if view.status in FINISHED and view.status != wanted:
        raise BadInput(f"task {view.id!r} is {view.status}: it has ended before it could be told")


def before_its_end(state: State) -> str:
    """The work that a task being cancelled has to do before it ends."""
    children = any(
        call.kind == "child" and call.status == "waiting" and call.on_cancel == "cancel"
        for call in state.calls.values()
    )
    if not children:
        return "has something to undo"
    return "has children to cancel" + (" and something to undo" if state.undoable else "")


# `holdfast move`: give a task that is under way to another engine.


@click.command(short_help="Give a task that is under way to another engine.")
@bulk_options
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for its current driver.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Do not ask the engine that has it: it is gone, or can't go on with the task.",
)
@by_option
@store_command("redact", "engine", engine=True)
def move(
    given: Given,
    tasks: tuple[str, ...],
    timeout_s: float,
    force: bool,
    by: str,
    as_json: bool,
    **filters: Any,
) -> Exit:
    """Give a task that is under way to another engine, which goes on at its next step.

    Its current driver finishes the step in hand and releases it. Everything it waits for goes
    along: questions, times, retries, and its open children, with theirs. A task that has ended
    can't be moved. If it is there already nothing changes, but the engine is told of it again.

    A worker of a remote engine releases the tasks of that engine: if none runs, the command
    gives up after --timeout, and the task moves as soon as one does. A task that was moved to
    local goes on as soon as a worker takes it up, or with `holdfast resume`.

    With --force the engine that has the task is not asked: for one that is gone for good, or that
    can't go on because the code no longer fits. Whatever it still does for the task is refused,
    and ended: at once if the settings name that engine (HOLDFAST_ENGINE, HOLDFAST_ENGINE_ADDRESS),
    else as soon as a worker of it comes upon it. A failed task can be taken too, to be retried.

    \b
    Examples:
      holdfast move trip-42 --engine temporal --address temporal:7233
      holdfast move trip-42 --engine restate --address http://restate:8080
      holdfast move trip-42 --engine local
      holdfast move trip-42 --engine local --force
      holdfast move --type plan_trip --engine temporal --dry-run
    """
    if not given.engine:
        raise BadInput("say where it is to go: --engine temporal, restate or local")
    target = engine_of(given)
    try:
        # Its current driver is told at once, if the settings name that engine.
        with opened(_without_engine(given)) as hf:
            meant = chosen(hf, UNFINISHED, tasks, **filters)
            if meant.many:
                told: dict[str, Any] = {"by": by, "timeout_s": timeout_s, "force": force}
                act = partial(hf.move, engine=target or "local", **told)
                return in_bulk(hf, meant, "moved", act, as_json)
            (task,) = meant.ids
            find_task(hf, task)
            moved = hf.move(task, target or "local", by=by, timeout_s=timeout_s, force=force)
    finally:
        if target is not None:
            target.close()
    name = target.name if target is not None else LOCAL
    if as_json:
        print_json({"id": task, "engine": name, "moved": moved})
    else:
        _print_moved(given, task, name, moved)
    return Exit.OK


def _without_engine(given: Given) -> Given:
    return Given(
        url=given.url, key_file=given.key_file, sign_key_file=given.sign_key_file,
        imports=given.imports,
    )  # fmt: skip


def _print_moved(given: Given, task: str, name: str, moved: tuple[str, ...]) -> None:
    out = console()
    if not moved:
        print_lines(out, f"{plain(task)} is on {plain(name)} already")
        return
    print_lines(out, f"moved to {plain(name)}: {', '.join(plain(id) for id in moved)}")
    if name == LOCAL:
        resume = our_command(_without_engine(given), "resume", task, code=True)
        print_lines(out, f"A worker goes on with it, or:  {plain(resume)}")


# `holdfast compensate`: undo what a task did that ended badly.


_COLUMNS = ("PATH", "TOOL", "UNDO", "WHY")

_STYLES = {
    "undone": "green",
    "could not be undone": "bold red",
    "in doubt": "bold yellow",
    "under way": "cyan",
    "left": "yellow",
}


@click.command(short_help="Undo what a failed or cancelled task did.")
@task_argument
@store_command("app", "redact", "secrets", "engine")
def compensate(given: Given, task: str, as_json: bool) -> Exit:
    """Undo what a failed or cancelled task did, or finish doing so; print what came of it.

    Holdfast undoes the tools that it called as they declare (undo=…), the last one first. Each undo
    is a recorded call with a key of its own: one that succeeded is not repeated, and one that
    failed is tried again. Calls in doubt are settled first, because only what happened can be
    undone.

    The exit code is 9 if something could not be undone, 3 if a call in doubt waits for a person,
    else 0. The task stays failed or cancelled; once undone it can't be retried.

    \b
    Examples:
      holdfast compensate trip-42 --app agents
      holdfast compensate trip-42 --app agents --json | jq '.compensation[] | select(.why != "")'
    """
    with opened(given) as hf:
        _must_have_ended_badly(given, find_task(hf, task))
        load_app(given)
        try:
            # Standard output is for the table alone, whatever the tools print.
            with redirect_stdout(sys.stderr):
                view = hf.compensate(task)
        except TaskWaiting:
            _print_undone(hf.task(task), as_json)
            raise
        except KeyboardInterrupt:
            again = our_command(given, "compensate", task, code=True)
            print_error(f"interrupted. To go on: {again}")
            _print_undone(hf.task(task), as_json)
            return Exit.INTERRUPTED
        _print_undone(view, as_json)
    left = [each for each in view.compensation if each.status != "undone"]
    return Exit.NOT_UNDONE if left else Exit.OK


def _must_have_ended_badly(given: Given, view: TaskView) -> None:
    if view.status in ("failed", "cancelled") or view.state.ending:
        return
    advice = ""
    if view.status != "completed":
        advice = f" (this does both: {our_command(given, 'cancel', view.id)})"
    raise BadInput(
        f"task {view.id!r} is {view.status}: only what failed or was cancelled is undone{advice}"
    )


def _print_undone(view: TaskView, as_json: bool) -> None:
    if as_json:
        print_json({"id": view.id, "status": view.status, "compensation": list(view.compensation)})
        return
    out = console()
    print_compensation(out, view.compensation)
    out.print(summary_of(view.compensation))


def print_compensation(out: Console, calls: Sequence[Undone]) -> None:
    """The calls that can be undone, the last first, and the outcome of each."""
    if calls:
        print_table(out, _COLUMNS, [_undone_row(each) for each in calls], cut_last=False)


def _undone_row(each: Undone) -> tuple[Any, ...]:
    status = Text(each.status, _STYLES.get(each.status, ""))
    return plain(each.path), plain(each.name), status, plain(each.why)


def summary_of(calls: Sequence[Undone]) -> str:
    """The outcome of all of them, in short."""
    if not calls:
        return "nothing to undo"
    found = dict.fromkeys(each.status for each in calls)
    return ", ".join(
        f"{count(sum(each.status == status for each in calls), 'call')} {status}"
        for status in found
    )
