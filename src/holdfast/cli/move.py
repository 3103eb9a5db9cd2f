"""`holdfast move`: give a task that is under way to another engine."""

from __future__ import annotations

import click

from holdfast.cli.control import by_option
from holdfast.cli.engines import engine_of, engine_options
from holdfast.cli.exits import Exit
from holdfast.cli.hints import our_command
from holdfast.cli.opening import find_task, opened
from holdfast.cli.options import imports, json_option, pass_given, store_options, task_argument
from holdfast.cli.output import console, print_json, print_lines
from holdfast.cli.settings import Given
from holdfast.cli.text import plain
from holdfast.engines.elsewhere import LOCAL
from holdfast.errors import BadInput


@click.command(short_help="Give a task that is under way to another engine.")
@task_argument
@engine_options
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for whoever drives it now.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Do not ask the engine that has it: it is gone, or can't go on with the task.",
)
@by_option
@json_option
@store_options
@imports("redact", "engine")
@pass_given
def move(given: Given, task: str, timeout_s: float, force: bool, by: str, as_json: bool) -> Exit:
    """Give a task that is under way to another engine, which goes on at its next step.

    Whoever drives it now finishes the step in hand, and lets go of it. What it waits for goes
    along: questions, times, retries, and its open children, with theirs. A task that has ended
    can't be moved. If it is there already nothing changes, but the engine is told of it again.

    A task of a remote engine is let go of by a worker of that engine: if none runs, the command
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
    """
    if not given.engine:
        raise BadInput("say where it is to go: --engine temporal, restate or local")
    target = engine_of(given)
    try:
        # Who drives it now is told at once, if the settings name that engine.
        with opened(_without_engine(given)) as hf:
            find_task(hf, task)
            moved = hf.move(task, target or "local", by=by, timeout_s=timeout_s, force=force)
    finally:
        if target is not None:
            target.close()
    name = target.name if target is not None else LOCAL
    if as_json:
        print_json({"id": task, "engine": name, "moved": moved})
    else:
        _print(given, task, name, moved)
    return Exit.OK


def _without_engine(given: Given) -> Given:
    return Given(
        url=given.url, key_file=given.key_file, sign_key_file=given.sign_key_file,
        imports=given.imports,
    )  # fmt: skip


def _print(given: Given, task: str, name: str, moved: tuple[str, ...]) -> None:
    out = console()
    if not moved:
        print_lines(out, f"{plain(task)} is on {plain(name)} already")
        return
    print_lines(out, f"moved to {plain(name)}: {', '.join(plain(id) for id in moved)}")
    if name == LOCAL:
        resume = our_command(_without_engine(given), "resume", task, code=True)
        print_lines(out, f"A worker goes on with it, or:  {plain(resume)}")
