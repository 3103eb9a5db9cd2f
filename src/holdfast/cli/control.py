"""`holdfast pause` and `cancel`: tell a task to stop, whoever drives it and wherever."""

from __future__ import annotations

import click
from rich.console import Console

from holdfast.app import Holdfast
from holdfast.cli.exits import Exit
from holdfast.cli.hints import our_command
from holdfast.cli.opening import at_work, find_task, opened
from holdfast.cli.options import imports, json_option, pass_given, store_options, task_argument
from holdfast.cli.output import console, print_json, print_lines
from holdfast.cli.settings import Given
from holdfast.cli.text import plain
from holdfast.engines.elsewhere import driven_by
from holdfast.errors import BadInput
from holdfast.state import FINISHED, State
from holdfast.views import TaskView

because_option = click.option("--because", default="", metavar="TEXT", help="Why, for the log.")
by_option = click.option("--by", default="", metavar="NAME", help="Who says so, for the log.")


@click.command(short_help="Stop a task at its next step, for now.")
@task_argument
@because_option
@by_option
@json_option
@store_options
@imports("redact", "engine")
@pass_given
def pause(given: Given, task: str, because: str, by: str, as_json: bool) -> Exit:
    """Stop a task at its next step, until somebody lets it go on.

    The step in hand comes to its end and is recorded. No worker takes up a paused task. To let it
    go on, `holdfast resume` it: here with --app, or by a worker with --worker.

    \b
    Examples:
      holdfast pause trip-42
      holdfast pause trip-42 --because "the budget is spent" --by ada
    """
    with opened(given) as hf:
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
    here = our_command(given, "resume", task, code=True)
    worker = our_command(given, "resume", task, options=("--worker",))
    if driven_by(view.state):
        print_lines(out, f"To let it go on: {plain(worker)}")
        return Exit.OK
    print_lines(out, f"To let it go on here:  {plain(here)}")
    print_lines(out, f"To let a worker do so: {plain(worker)}")
    return Exit.OK


def _print_pause(out: Console, view: TaskView, holder: str | None) -> None:
    if view.status != "paused":
        # Who holds the task takes messages in many times a second, unless it hangs.
        who = holder or driven_by(view.state) or "its holder"
        print_lines(out, f"asked to pause: {plain(who)} has yet to hear of it")
    elif holder:
        print_lines(out, f"paused: {plain(holder)} finishes the step in hand, and lets go of it")
    else:
        print_lines(out, "paused")


@click.command(short_help="End a task at its next step, for good.")
@task_argument
@because_option
@by_option
@json_option
@store_options
@imports("redact", "engine")
@pass_given
def cancel(given: Given, task: str, because: str, by: str, as_json: bool) -> Exit:
    """End a task at its next step, for good, and say what comes of that.

    \b
    One of these is said (with --json it is the outcome):
      ended        nobody was driving it, and it ended at once
      will_end     somebody is driving it: it ends at its next step; a running async step is
                   cancelled, a sync one comes to its end and is recorded
      to_be_driven it has something to do first: tools to undo, or children to cancel. A worker
                   does that and ends it, or `holdfast resume` with the task's code

    What is undone is what its tools declare (undo=…), unless the task says otherwise
    (compensate=…). Its children are cancelled too, unless they were started to be left alone.

    \b
    Examples:
      holdfast cancel trip-42
      holdfast cancel trip-42 --because "Ada has flown home" --by bob
    """
    with opened(given) as hf:
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
    resume = our_command(given, "resume", view.id, code=True)
    print_lines(out, f"A worker does that, or:  {plain(resume)}")


def _must_have_heard(view: TaskView, wanted: str) -> None:
    if view.status in FINISHED and view.status != wanted:
        raise BadInput(f"task {view.id!r} is {view.status}: it has ended before it could be told")


def before_its_end(state: State) -> str:
    """What a task that is being cancelled has to do before it has ended."""
    children = any(
        call.kind == "child" and call.status == "waiting" and call.on_cancel == "cancel"
        for call in state.calls.values()
    )
    if not children:
        return "has something to undo"
    return "has children to cancel" + (" and something to undo" if state.undoable else "")
