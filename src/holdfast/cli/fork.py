"""`holdfast fork` and `holdfast rewind`: go another way, or back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from msgspec import UNSET

from holdfast.cli.arguments import json_of
from holdfast.cli.code import load_app
from holdfast.cli.drive import drive_here
from holdfast.cli.exits import Exit
from holdfast.cli.hints import our_command
from holdfast.cli.opening import find_task, opened
from holdfast.cli.options import code_options, imports, json_option, pass_given, task_argument
from holdfast.cli.output import console, print_error, print_json, print_lines, print_table
from holdfast.cli.places import At, place_options, values
from holdfast.cli.settings import Given
from holdfast.cli.text import count, plain
from holdfast.travel.rewinding import Effect
from holdfast.views import TaskView

F = TypeVar("F", bound=Callable[..., Any])

EFFECTS = {
    "live": "the tools that it calls are called",
    "reuse": "a tool that the original called with the same arguments is not called again; others "
    "are",
    "stub": "no tool is called: the original or a --stub answers, and what neither does stops it",
}


def effects_option(default: str | None) -> Callable[[F], F]:
    """`--effects`, which has to be said where there is no default."""
    usual: dict[str, Any] = {"default": default, "show_default": True}
    return click.option(
        "--effects",
        type=click.Choice(list(EFFECTS)),
        help="What becomes of the tools it calls from there on.",
        **({"required": True} if default is None else usual),
    )


def change_options(command: F) -> F:
    """What can be other in a fork than in its original."""
    for option in (
        click.option("--state", metavar="JSON", help="Another state of the last checkpoint."),
        click.option(
            "--stub",
            "stubs",
            metavar="NAME=JSON",
            multiple=True,
            callback=values,
            help="What a step or tool returns without being called; may be repeated.",
        ),
        click.option(
            "--set",
            "arguments",
            metavar="STEP.ARG=JSON",
            multiple=True,
            callback=values,
            help="Another argument for a step after the fork (ask_model.model='\"large\"').",
        ),
        click.option(
            "--input",
            "inputs",
            metavar="ARG=JSON",
            multiple=True,
            callback=values,
            help="Another argument of the task; may be repeated.",
        ),
        click.option(
            "--result",
            "results",
            metavar="STEP=JSON",
            multiple=True,
            callback=values,
            help="Another result of a step before the fork; may be repeated.",
        ),
        click.option("--task", "function", metavar="NAME", help="Another task function."),
    ):
        command = option(command)
    return command


def changes_of(words: dict[str, Any]) -> dict[str, Any]:
    """The arguments for `hf.fork` that those options come to."""
    arguments: dict[str, dict[str, Any]] = {}
    for name, value in words["arguments"].items():
        step, dot, argument = name.rpartition(".")
        if not dot or not step:
            raise click.UsageError(f"--set {name}=…: name the step and its argument, STEP.ARG=JSON")
        arguments.setdefault(step, {})[argument] = value
    return {
        "results": words["results"],
        "input": words["inputs"],
        "arguments": arguments,
        "stubs": words["stubs"],
        "state": UNSET if words["state"] is None else json_of(words["state"]),
        "task": words["function"],
    }


@click.command(short_help="A new task that shares the past of another one.")
@task_argument
@place_options("--at", "Where it leaves")
@effects_option(None)
@change_options
@click.option("--id", "new_id", metavar="ID", help="The id of the fork.  [default: a new one]")
@click.option("--because", default="", metavar="TEXT", help="Why, for the log.")
@click.option("--by", default="", metavar="NAME", help="Who, for the log.")
@click.option("--run", "is_run", is_flag=True, help="Drive it here at once; needs --app.")
@json_option
@code_options
@imports("app", "redact", "secrets")
@pass_given
def fork(
    given: Given,
    /,
    task: str,
    place: At,
    effects: Any,
    new_id: str | None,
    because: str,
    by: str,
    is_run: bool,
    as_json: bool,
    **words: Any,
) -> Exit:
    """Make a new task that shares the past of another one up to a step, and goes its own way.

    Nothing of the past is copied or run again, and the original stays as it is. To go on with a
    task itself is `holdfast resume`; to run the code over a log without any effect, `holdfast
    replay`. What the fork does has keys of its own, so --effects has to be said.

    \b
    Examples:
      holdfast fork trip-42 --at 6 --effects live --app agents --run
      holdfast fork trip-42 --at 6 --after --result 6='{"room": "attic"}' --effects reuse
      holdfast fork trip-42 --at 4 --set ask_model.model='"large"' --effects stub --stub send=null
    """
    if is_run or any(words.values()):  # so that what is changed is checked against the code
        load_app(given)
    with opened(given) as hf:
        find_task(hf, task)
        made = hf.fork(
            task,
            at=place.step,
            when=place.when,
            seq=place.seq,
            effects=effects,
            new_id=new_id,
            because=because,
            by=by,
            **changes_of(words),
        )
        if is_run:
            print_error(f"task {made.id}")
            return drive_here(given, hf, made.id, lambda: hf.resume(made.id), as_json)
        _print_fork(given, made, as_json)
    return Exit.OK


def _print_fork(given: Given, made: TaskView, as_json: bool) -> None:
    origin = made.state.fork
    if origin is None:
        raise LookupError(f"task {made.id} is no fork")
    if as_json:
        print_json({"id": made.id, "of": origin.of, "seq": origin.seq, "effects": origin.effects})
        return
    out = console()
    place = f" {origin.when} step {plain(origin.path)}" if origin.path else ""
    shared = f"shares {count(origin.seq, 'event')} with {plain(origin.of)}"
    print_lines(out, f"task {plain(made.id)} leaves{place}, and {shared}")
    print_lines(out, f"effects {origin.effects}: {EFFECTS[origin.effects]}")
    for original, session in origin.sessions.items():
        print_lines(out, f"session {plain(session)} branches from {plain(original)}")
    print_lines(out, f"To run it: {plain(our_command(given, 'resume', made.id, code=True))}")


@click.command(short_help="Put a task back: state, conversation and files as one.")
@task_argument
@place_options("--to", "To where")
@click.option(
    "--undo", is_flag=True, help="Undo what can be undone of what came since; needs --app."
)
@effects_option("reuse")
@click.option("--because", default="", metavar="TEXT", help="Why, for the log.")
@click.option("--by", default="", metavar="NAME", help="Who, for the log.")
@json_option
@code_options
@imports("app", "redact", "secrets")
@pass_given
def rewind(
    given: Given,
    task: str,
    place: At,
    undo: bool,
    effects: Any,
    because: str,
    by: str,
    as_json: bool,
) -> Exit:
    """Put a task back to before a step (or after it): state, conversation and files as one cut.

    Nothing is deleted: one event says so, and the rewind can be rewound. What the task did outside
    since then is listed, with its undo where it has one; --undo runs those first. The task is
    paused then: `holdfast resume` goes on from there. A tool that it calls again with the same
    arguments is answered by what it returned before (--effects live calls it anew).

    \b
    Examples:
      holdfast rewind trip-42 --to 6
      holdfast rewind trip-42 --to 6 --undo --app agents --because "the wrong room"
      holdfast rewind trip-42 --event 61
    """
    if undo:
        load_app(given)
    with opened(given) as hf:
        find_task(hf, task)
        done = hf.rewind(
            task,
            to=place.step,
            when=place.when,
            seq=place.seq,
            undo=undo,
            effects=effects,
            because=because,
            by=by,
        )
        if as_json:
            print_json({"id": task, "status": done.task.status, "effects": done.effects})
        else:
            _print_rewind(given, done.task, done.effects)
    return Exit.OK


def _print_rewind(given: Given, view: TaskView, effects: Sequence[Effect]) -> None:
    out = console()
    print_lines(out, f"task {plain(view.id)} was put back, and is {view.status}")
    if effects:
        print_lines(out, "What it had done outside since then, the newest first:")
        rows = [
            (plain(e.path), plain(e.name), e.status, _UNDO[e.undo], plain(e.key or e.child))
            for e in effects
        ]
        print_table(out, ("STEP", "NAME", "STATUS", "UNDO", "KEY"), rows, cut_last=False)
    if view.status == "paused":
        print_lines(out, f"To go on: {plain(our_command(given, 'resume', view.id, code=True))}")
    back = our_command(given, "rewind", view.id, options=("--event", f"{view.seq - 1}"))
    print_lines(out, f"To take it back: {plain(back)}")


_UNDO = {
    "none": "has none",
    "possible": "left",
    "undone": "undone",
    "failed": "could not be undone",
}
"""What became of the undo of an effect, in words."""
