"""`holdfast snapshot` and `holdfast diff`: what a task knew, and how two such states differ."""

from __future__ import annotations

import click
import msgspec

from holdfast.cli.compared import print_diff
from holdfast.cli.exits import Exit
from holdfast.cli.layers import Page
from holdfast.cli.opening import find_task, is_there, not_found, opened
from holdfast.cli.options import (
    complete_task,
    json_option,
    pass_given,
    store_options,
    task_argument,
)
from holdfast.cli.output import console, print_json, print_table, status_text
from holdfast.cli.places import At, place_of_word, place_options
from holdfast.cli.settings import Given
from holdfast.cli.text import count, plain, precise_clock, shown
from holdfast.snapshots import Snapshot
from holdfast.views import TaskView

_full_option = click.option("--full", is_flag=True, help="Cut nothing, however long it is.")


@click.command(short_help="What a task knew before or after a step.")
@task_argument
@place_options("--step", "The place")
@_full_option
@json_option
@store_options
@pass_given
def snapshot(
    given: Given,
    task: str,
    place: At,
    full: bool,
    as_json: bool,
) -> Exit:
    """What a task knew before or after a step: input, plan, calls, decisions, notes, conversation,
    state and files.

    Without a step or an event it lists the snapshots that there are: one before and one after each
    call. Nothing is run and nothing is written.

    \b
    Examples:
      holdfast snapshot trip-42
      holdfast snapshot trip-42 --step 6 --before
      holdfast snapshot trip-42 --step 6 --after --json | jq .conversation
      holdfast snapshot trip-42 --event 61
    """
    with opened(given) as hf:
        if not is_there(hf.store, task):
            raise not_found(hf.store, task)
        if place.step is None and place.seq is None:
            return _list(find_task(hf, task), as_json)
        found = place.of(hf, task)
        if as_json:
            print_json({**_tag(found), **found.content})
            return Exit.OK
        _print(Page(console(), full=full), found)
    return Exit.OK


def _list(view: TaskView, as_json: bool) -> Exit:
    tags = list(view.snapshots())
    if as_json:
        print_json([msgspec.to_builtins(tag) for tag in tags])
        return Exit.OK
    rows = [
        (
            tag.when,
            plain(tag.path),
            plain(tag.name),
            status_text(tag.outcome),
            f"{tag.seq}",
            precise_clock(tag.at),
        )
        for tag in tags
    ]
    out = console()
    if rows:
        print_table(out, ("", "STEP", "NAME", "OUTCOME", "EVENT", "TIME"), rows, cut_last=False)
    else:
        out.print("it has made no call yet, so it has no snapshots but what it is now")
    return Exit.OK


def _tag(found: Snapshot) -> dict[str, object]:
    place = found.place
    return {
        "id": found.id,
        "seq": found.seq,
        "at": found.at,
        "status": found.status,
        "path": place.path,
        "when": place.when,
    }


def _print(page: Page, found: Snapshot) -> None:
    page.line(
        (plain(found.id), "bold"),
        f"  {found.place}, event {found.seq}, {precise_clock(found.at)}  ",
        status_text(found.status),
        indent=0,
    )
    for name, value in found.content.items():
        if value in (None, [], {}, ""):
            continue
        if name == "calls":
            page.heading("calls", count(len(value), "call"))
            for path, call in page.newest(list(value.items())):
                page.line((plain(path), "bold"), f"  {plain(call['name'])}  ", call["status"])
                for part in ("question", "input", "output", "failure", "child"):
                    if part in call:
                        page.line((part, "dim"), indent=5)
                        page.block(shown(call[part]), indent=7)
        else:
            page.heading(name)
            page.block(shown(value), indent=2)


@click.command(short_help="How what a task knew differs between two places, or between two tasks.")
@task_argument
@click.argument("other", required=False, shell_complete=complete_task)
@click.option("--from", "start", metavar="PLACE", help="Where in TASK.  [default: its end]")
@click.option("--to", metavar="PLACE", help="Where in OTHER, or in TASK.  [default: its end]")
@_full_option
@json_option
@store_options
@pass_given
def diff(
    given: Given,
    task: str,
    other: str | None,
    start: str | None,
    to: str | None,
    full: bool,
    as_json: bool,
) -> Exit:
    """What was added, changed and removed from one snapshot to another, of one task or of two.

    A PLACE is a step (6, which is before it), before:6, after:6, event:61 or end. Long texts, and
    files that are texts, are compared inside. Exits with 0 if there is no difference, else with 1.

    \b
    Examples:
      holdfast diff trip-42 --from before:6 --to after:6
      holdfast diff trip-42 trip-42-fork
      holdfast diff trip-42 trip-42-fork --from after:6 --to after:6 --json
    """
    if other is None and start is None:
        raise click.UsageError("say a second task, or --from which place")
    with opened(given) as hf:
        for id in (task, other or task):
            if not is_there(hf.store, id):
                raise not_found(hf.store, id)
        one = place_of_word(start or "end").of(hf, task)
        two = place_of_word(to or "end").of(hf, other or task)
        made = one.diff(two)
        if as_json:
            print_json(made)
        else:
            print_diff(Page(console(), full=full), made, indent=0)
    return Exit.DIFFERS if made else Exit.OK
