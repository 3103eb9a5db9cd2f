"""One command for many tasks: named by their ids, or found by the filters of `holdfast ls`.

Each task is treated by itself: one that can't be told does not keep the others from it. A dry run
says which tasks are meant, and does nothing. It says the outcome of each at the end, and the exit
code is that of the first error.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from msgspec import Struct

from holdfast.api.app import Holdfast
from holdfast.cli.exits import Exit, exit_of
from holdfast.cli.opening import must_be_there
from holdfast.cli.options import F, complete_task, find_options, found_by, stacked
from holdfast.cli.output import console, print_error, print_json, print_lines
from holdfast.cli.text import count, plain
from holdfast.core.kinds import id_of
from holdfast.errors import BadInput, HoldfastError
from holdfast.stores.listing import streams_of_tasks

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
