"""`holdfast fork`, `rewind` and `experiment`: go another way, or back, or many ways at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from msgspec import UNSET

from holdfast.cli.arguments import json_of
from holdfast.cli.commands.compare import print_figures
from holdfast.cli.commands.drive import drive_here
from holdfast.cli.exits import Exit
from holdfast.cli.layers import LayerPage
from holdfast.cli.opening import find_task, load_app, opened
from holdfast.cli.options import (
    At,
    because_option,
    by_option,
    full_option,
    place_options,
    stacked,
    store_command,
    stub_option,
    task_argument,
    values,
)
from holdfast.cli.output import console, print_error, print_json, print_lines, print_table
from holdfast.cli.settings import Given, our_command
from holdfast.cli.text import count, cut, plain, short
from holdfast.codec import from_outside
from holdfast.errors import BadInput
from holdfast.history.comparison import Experiment, Variant
from holdfast.history.forks import EFFECTS, UNDO_WORDS, Effect
from holdfast.views.task import TaskView

F = TypeVar("F", bound=Callable[..., Any])


def effects_option(default: str | None) -> Callable[[F], F]:
    """`--effects`, which has to be said where there is no default."""
    usual: dict[str, Any] = {"default": default, "show_default": True}
    return click.option(
        "--effects",
        type=click.Choice(list(EFFECTS)),
        help="What becomes of the tools it calls from there on.",
        **({"required": True} if default is None else usual),
    )


def _json_option(name: str, into: str, metavar: str, help: str) -> Callable[[F], F]:
    return click.option(name, into, metavar=metavar, multiple=True, callback=values, help=help)


change_options: Final = stacked(
    click.option("--task", "function", metavar="NAME", help="Another task function."),
    _json_option(
        "--result", "results", "STEP=JSON",
        "Another result of a step before the fork; may be repeated.",
    ),
    _json_option(
        "--input", "inputs", "ARG=JSON", "Another argument of the task; may be repeated."
    ),
    _json_option(
        "--set", "arguments", "STEP.ARG=JSON",
        "Another argument for a step after the fork (ask_model.model='\"large\"').",
    ),
    stub_option,
    click.option("--state", metavar="JSON", help="Another state of the last checkpoint."),
)  # fmt: skip
"""The things that can differ between a fork and its original."""


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
        "state": UNSET if words["state"] is None else from_outside(json_of(words["state"])),
        "task": words["function"],
    }


@click.command(short_help="A new task that shares the past of another one.")
@task_argument
@place_options("--at", "Where it leaves")
@effects_option(None)
@change_options
@click.option("--id", "new_id", metavar="ID", help="The id of the fork.  [default: a new one]")
@because_option
@by_option
@click.option("--run", "is_run", is_flag=True, help="Drive it here at once; needs --app.")
@store_command("app", "redact", "secrets")
def fork(given: Given, /, task: str, place: At, is_run: bool, as_json: bool, **words: Any) -> Exit:
    """Make a new task that shares the past of another one up to a step, and goes its own way.

    Nothing of the past is copied or run again, and the original stays as it is. To go on with a
    task itself is `holdfast resume`; to run the code over a log without any effect, `holdfast
    replay`. The fork's tools get keys of their own, so you must choose --effects.

    \b
    Examples:
      holdfast fork trip-42 --at 6 --effects live --app agents --run
      holdfast fork trip-42 --at 6 --after --result 6='{"room": "attic"}' --effects reuse
      holdfast fork trip-42 --at 4 --set ask_model.model='"large"' --effects stub --stub send=null
    """
    about = {name: words.pop(name) for name in ("effects", "new_id", "because", "by")}
    if is_run or any(words.values()):  # so that what is changed is checked against the code
        load_app(given)
    with opened(given) as hf:
        find_task(hf, task)
        made = hf.fork(task, **place.named("at"), **about, **changes_of(words))
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
@because_option
@by_option
@store_command("app", "redact", "secrets")
def rewind(given: Given, /, task: str, place: At, undo: bool, as_json: bool, **words: Any) -> Exit:
    """Rewind a task to before a step (or after it): state, conversation and files as one cut.

    Nothing is deleted: the log gains one event, and the rewind can be rewound. The command lists
    the task's outside effects since then, with the undo of each that has one; --undo runs those
    first. The task is then paused: `holdfast resume` goes on from there. A tool that it calls again
    with the same arguments returns its earlier result (--effects live calls it anew).

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
        done = hf.rewind(task, **place.named("to"), undo=undo, **words)
        if as_json:
            print_json({"id": task, "status": done.task.status, "effects": done.effects})
        else:
            _print_rewind(given, done.task, done.effects)
    return Exit.OK


def _print_rewind(given: Given, view: TaskView, effects: Sequence[Effect]) -> None:
    out = console()
    print_lines(out, f"task {plain(view.id)} was rewound, and is {view.status}")
    if effects:
        print_lines(out, "What it had done outside since then, the newest first:")
        rows = [
            (plain(e.path), plain(e.name), e.status, UNDO_WORDS[e.undo], plain(e.key or e.child))
            for e in effects
        ]
        print_table(out, ("STEP", "NAME", "STATUS", "UNDO", "KEY"), rows, cut_last=False)
    if view.status == "paused":
        print_lines(out, f"To go on: {plain(our_command(given, 'resume', view.id, code=True))}")
    back = our_command(given, "rewind", view.id, options=("--event", f"{view.seq - 1}"))
    print_lines(out, f"To take it back: {plain(back)}")


# `holdfast experiment`: forks of one task that go different ways, side by side.


@click.command(short_help="Forks of one task that go different ways, side by side.")
@task_argument
@place_options("--at", "Where they leave")
@effects_option(None)
@click.option(
    "--variant",
    "words",
    metavar="NAME=JSON",
    multiple=True,
    help="What is other in this one: an object with arguments, input, results, stubs, state or "
    "task; may be repeated.",
)
@click.option(
    "--variants",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A JSON file with an object of them, by name.",
)
@full_option
@store_command("app", "redact", "secrets")
def experiment(
    given: Given,
    task: str,
    place: At,
    effects: Any,
    words: tuple[str, ...],
    file: Path | None,
    full: bool,
    as_json: bool,
) -> Exit:
    """Fork a task at one place once for each variant, run the forks side by side, and compare them.

    A variant says what is other in it, as `holdfast fork` does: {"arguments": {"ask_model":
    {"model": "large"}}}, {"results": {"6": null}}, {"input": {"city": "Bergen"}}, {"stubs": …},
    {"state": …} or {"task": "plan_two"}. An empty one, {}, goes the same way once more. All forks
    are made before the first one runs, and stay.

    \b
    Examples:
      holdfast experiment trip-42 --at 4 --effects stub --app agents \\
          --variant large='{"arguments": {"ask_model": {"model": "large"}}}' --variant same={}
      holdfast experiment trip-42 --at 4 --effects reuse --variants models.json --app agents
    """
    variants = _variants(words, file)
    load_app(given)
    with opened(given) as hf:
        find_task(hf, task)
        done = hf.experiment(
            task, variants, progress=_tell_variant, effects=effects, **place.named("at")
        )
    if as_json:
        print_json(done)
        return Exit.OK
    page = LayerPage(console(), full=full)
    _print_variants(page, done)
    print_figures(page, done.comparison.figures)
    return Exit.OK


_ALLOWED = ("arguments", "input", "results", "stubs", "state", "task")


def _variants(words: tuple[str, ...], file: Path | None) -> dict[str, dict[str, Any]]:
    given: dict[str, Any] = {}
    if file is not None:
        read = json_of(file.read_text())
        if not isinstance(read, dict):
            raise BadInput(f"{file} must hold an object of variants by name")
        given |= read
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise click.UsageError(f"--variant {word!r} is not of the form NAME=JSON")
        given[name] = json_of(value)
    if not given:
        raise click.UsageError("give at least one --variant, or --variants FILE")
    for name, changes in given.items():
        unknown = [] if not isinstance(changes, dict) else sorted(changes.keys() - {*_ALLOWED})
        if not isinstance(changes, dict) or unknown:
            raise BadInput(
                f"variant {name!r}: {short(unknown or changes)} is not among what can be other: "
                f"{', '.join(_ALLOWED)}"
            )
    return {name: _read_variant(changes) for name, changes in given.items()}


def _read_variant(changes: dict[str, Any]) -> dict[str, Any]:
    read = dict(changes)
    for what in ("input", "results", "stubs"):
        if isinstance(named := changes.get(what), dict):
            read[what] = {name: from_outside(value) for name, value in named.items()}
    if "state" in changes:
        read["state"] = from_outside(changes["state"])
    if isinstance(steps := changes.get("arguments"), dict):
        read["arguments"] = {
            step: {name: from_outside(value) for name, value in named.items()}
            if isinstance(named, dict)
            else named
            for step, named in steps.items()
        }
    return read


def _tell_variant(variant: Variant) -> None:
    print_error(f"{variant.name}: {variant.problem or 'completed'} ({variant.id})")


def _print_variants(page: LayerPage, done: Experiment) -> None:
    page.heading("Variants", f"of {plain(done.original)}")
    rows = []
    for variant, alignment in zip(done.variants, done.comparison.alignments, strict=True):
        first = alignment.first
        where = "no divergence" if first is None else f"{first.path or 'its end'}: {first.what}"
        outcome = cut(plain(variant.problem), 60) if variant.problem else short(variant.result)
        rows.append((plain(variant.name), plain(variant.id), plain(where), outcome))
    print_table(page.out, ("VARIANT", "TASK", "FIRST DIVERGENCE", "RESULT"), rows, cut_last=True)
    print_lines(page.out, "")
