"""`holdfast mirror` and `rebuild`: the readable files of tasks, kept in step or made anew."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import click

from holdfast.api.app import Holdfast
from holdfast.cli.exits import Exit
from holdfast.cli.opening import (
    folder_of,
    keys_of,
    must_be_there,
    opened,
    store_url,
    task_ids,
)
from holdfast.cli.options import (
    store_command,
    tasks_argument,
)
from holdfast.cli.output import (
    console,
    print_error,
    print_json,
    print_json_line,
    print_lines,
    warned,
)
from holdfast.cli.settings import Given
from holdfast.cli.text import count, plain, to_json
from holdfast.errors import BadInput, HoldfastError, TaskNotFound
from holdfast.log.reading import pause
from holdfast.workspace.projecting import Projected, project, task_folder
from holdfast.workspace.projector import Mirror, Round
from holdfast.workspace.replacement import make_root

_MOMENT_S = 0.02
"""Between two rounds when there is more to do: the store is not ours alone."""

_LEFT = "was edited, and is left alone until that is taken in"
_ASIDE = "was edited: that version is now {name}.edited-…"


@click.command(short_help="Keep readable files of tasks in a folder, in step with any store.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@tasks_argument
@click.option("--once", is_flag=True, help="Write them, and end.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.05),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often the store is looked at.",
)
@click.option(
    "--plain", "plain_text", is_flag=True, help="From an encrypted store: the files are not."
)
@store_command()
def mirror(
    given: Given,
    folder: Path,
    tasks: tuple[str, ...],
    once: bool,
    interval_s: float,
    plain_text: bool,
    as_json: bool,
) -> Exit:
    """Keep readable files of the tasks named, or of all, in DIR/tasks/, in step with their logs.

    \b
    For each task:
      status.md        where it is, what it waits for, what failed, what is next
      mission.md       what it is for
      plan.md          what it intends to do, as a checklist, if it said so
      decisions.md     what it chose, and why
      state.json       all that in one JSON object
      progress.log     time | step | status | details
      tool_log.jsonl   every tool call

    It runs until it is interrupted (Ctrl-C), or with --once until all is written. It only reads the
    store. A store in a folder keeps such files itself: there, `holdfast rebuild` makes them anew.
    For an encrypted store you have to say --plain, because the files are readable.

    \b
    Examples:
      holdfast mirror --url sqlite:///trips.db view
      holdfast mirror --url postgresql://host/agents view trip-42 --once
    """
    _must_be_elsewhere(store_url(given), folder)
    if keys_of(given) is not None and not plain_text:
        raise BadInput(
            "the store is encrypted, and these files would tell what it hides: give --plain if "
            "they may"
        )
    with opened(given) as hf:
        must_be_there(hf.store, *tasks)
        make_root(folder)
        following = Mirror(hf.store, folder, tasks)
        problems: dict[str, str] = {}
        told: set[tuple[str, str]] = set()
        with suppress(KeyboardInterrupt):
            while True:
                found = following.look()
                _tell(found, problems, as_json)
                _tell_edited(found, told)
                problems = found.problems
                if once and (found.is_all or problems):
                    break
                wait_s = interval_s if found.is_all or problems else _MOMENT_S
                pause(hf.store, wait_s, lines=True)
    return Exit.DAMAGED if problems else Exit.OK


def _must_be_elsewhere(url: str, folder: Path) -> None:
    own = folder_of(url)
    if own is not None and own.resolve() == folder.resolve():
        raise BadInput(
            f"{folder} is the store itself, which keeps these files in step as tasks are driven: "
            f"`holdfast rebuild` makes them anew"
        )


def _tell(found: Round, before: dict[str, str], as_json: bool) -> None:
    for made in found.changed:
        if as_json:
            print_json_line(to_json(made))
        else:
            print_lines(console(), f"{plain(made.task)}: event {made.seq}")
    sys.stdout.flush()
    for stream, problem in found.problems.items():
        if before.get(stream) != problem:  # told once, as long as it stays the same
            print_error(f"warning: {problem}")


def _tell_edited(found: Round, told: set[tuple[str, str]]) -> None:
    for task, names in found.edited.items():
        for name in names:
            if (task, name) not in told:
                told.add((task, name))
                print_error(
                    f"warning: {plain(task)}: {name} {_LEFT}: a mirror only reads the store"
                )


@click.command(short_help="Make the readable files of tasks anew, from their logs.")
@tasks_argument
@store_command()
def rebuild(given: Given, tasks: tuple[str, ...], as_json: bool) -> Exit:
    """Make the readable files of the tasks named, or of all, anew from their logs.

    The files of a task (status.md, state.json, …) are made of its log alone, so this gives the
    same bytes whenever it is done. Changes are reported; other files in the folder are left alone.
    An edited plan.md or mission.md is left as it is; an edited version of any other is kept beside
    the new one.

    \b
    Examples:
      holdfast rebuild
      holdfast rebuild trip-42
    """
    root = folder_of(store_url(given))
    if root is None:
        raise BadInput(
            f"{store_url(given)} is no folder, so it has no such files: keep them in one with "
            f"`holdfast mirror DIR`"
        )
    if keys_of(given) is not None:
        raise BadInput(
            "the store is encrypted, so it has no readable files: keep them elsewhere with "
            "`holdfast mirror --plain DIR`"
        )
    with opened(given) as hf:
        must_be_there(hf.store, *tasks)
        made, problems = _rebuilt(hf, root, tasks or tuple(task_ids(hf.store)))
    if as_json:
        print_json(made)
    else:
        _print(made)
    return warned(problems)


def _rebuilt(hf: Holdfast, root: Path, ids: tuple[str, ...]) -> tuple[list[Projected], list[str]]:
    made: list[Projected] = []
    problems: list[str] = []
    for task_id in ids:
        try:
            made.append(project(hf.store, task_id, task_folder(root, task_id)))
        except TaskNotFound:  # taken hold of, and never begun
            continue
        except HoldfastError as error:
            problems.append(str(error))
    return made, problems


def _print(made: list[Projected]) -> None:
    out, same = console(), 0
    for each in made:
        written = [n for n, outcome in each.files.items() if outcome in ("made", "replaced")]
        notes = {
            "edited": _LEFT,
            "kept aside": _ASIDE,
            "busy": "changes all the time: try again",
        }
        gone = [n for n, outcome in each.files.items() if outcome == "removed"]
        told = [
            f"{name} {notes[outcome].format(name=name)}"
            for name, outcome in each.files.items()
            if outcome in notes
        ]
        if gone:
            told.insert(0, f"removed {', '.join(gone)}")
        if not written and not told:
            same += 1
            continue
        if written:
            told.insert(0, f"wrote {', '.join(written)}")
        print_lines(out, f"{plain(each.task)}: {'; '.join(told)}")
    print_lines(out, f"{count(same, 'task')} as before, {count(len(made) - same, 'task')} not")
