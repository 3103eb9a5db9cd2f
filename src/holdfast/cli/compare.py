"""`holdfast compare` and `holdfast experiment`: tasks side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from holdfast.cli.arguments import json_of
from holdfast.cli.code import load_app
from holdfast.cli.compared import print_alignment, print_diff, print_figures
from holdfast.cli.exits import Exit
from holdfast.cli.fork import effects_option
from holdfast.cli.layers import Page
from holdfast.cli.opening import find_task, opened
from holdfast.cli.options import (
    code_options,
    complete_task,
    imports,
    json_option,
    pass_given,
    store_options,
    task_argument,
)
from holdfast.cli.output import console, print_error, print_json, print_lines, print_table
from holdfast.cli.places import At, place_options
from holdfast.cli.settings import Given
from holdfast.cli.text import cut, plain, short
from holdfast.comparing.comparison import Comparison, Experiment, Variant
from holdfast.errors import BadInput

_full_option = click.option("--full", is_flag=True, help="Cut nothing, however long it is.")


@click.command(short_help="Tasks side by side, up to where they first differ.")
@click.argument(
    "tasks", nargs=-1, required=True, metavar="TASK TASK…", shell_complete=complete_task
)
@_full_option
@json_option
@store_options
@pass_given
def compare(given: Given, tasks: tuple[str, ...], full: bool, as_json: bool) -> Exit:
    """Two tasks or more side by side: call by call to the first divergence, then what each came to,
    took and cost, and how what they know and the files they made differ.

    Each is held against the first one. Exits with 0 if none diverges, else with 1.

    \b
    Examples:
      holdfast compare trip-42 trip-42-fork
      holdfast compare trip-42 trip-43 trip-44 --json
    """
    with opened(given) as hf:
        for task in tasks:
            find_task(hf, task)
        found = hf.compare(*tasks)
    if as_json:
        print_json(found)
    else:
        _print(Page(console(), full=full), found)
    return Exit.OK if found.is_same else Exit.DIFFERS


def _print(page: Page, found: Comparison) -> None:
    if len(set(found.types)) > 1:
        kinds = ", ".join(
            f"{plain(i)} is a {plain(t)}" for i, t in zip(found.ids, found.types, strict=True)
        )
        page.line((f"These are tasks of different functions: {kinds}.", "yellow"), indent=0)
    for alignment in found.alignments:
        print_alignment(page, alignment)
    for id, known in zip(found.ids[1:], found.knows, strict=True):
        page.heading("Knows", f"{plain(id)}, held against {plain(found.ids[0])}")
        print_diff(page, known)
    print_figures(page, found.figures)


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
@_full_option
@json_option
@code_options
@imports("app", "redact", "secrets")
@pass_given
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
            task,
            variants,
            progress=_tell,
            at=place.step,
            when=place.when,
            seq=place.seq,
            effects=effects,
        )
    if as_json:
        print_json(done)
        return Exit.OK
    page = Page(console(), full=full)
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
    return given


def _tell(variant: Variant) -> None:
    print_error(f"{variant.name}: {variant.problem or 'completed'} ({variant.id})")


def _print_variants(page: Page, done: Experiment) -> None:
    page.heading("Variants", f"of {plain(done.original)}")
    rows = []
    for variant, alignment in zip(done.variants, done.comparison.alignments, strict=True):
        first = alignment.first
        where = "no divergence" if first is None else f"{first.path or 'its end'}: {first.what}"
        outcome = cut(plain(variant.problem), 60) if variant.problem else short(variant.result)
        rows.append((plain(variant.name), plain(variant.id), plain(where), outcome))
    print_table(page.out, ("VARIANT", "TASK", "FIRST DIVERGENCE", "RESULT"), rows, cut_last=True)
    print_lines(page.out, "")
