"""`holdfast ls`: the tasks of a store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TypeAlias

import click
from rich.text import Text

from holdfast.api.app import Holdfast
from holdfast.cli.exits import Exit
from holdfast.cli.opening import opened, read_task
from holdfast.cli.options import (
    cursor_option,
    find_options,
    found_by,
    limit_option,
    store_command,
)
from holdfast.cli.output import console, print_json, print_table, status_text, warned
from holdfast.cli.settings import Given
from holdfast.cli.text import ago, plain
from holdfast.core.state import FINISHED
from holdfast.engines.routing import LOCAL
from holdfast.errors import StoreError, TaskNotFound
from holdfast.log.reading import stream_of
from holdfast.stores.finding import cursor_of
from holdfast.stores.listing import Filters, TaskPage
from holdfast.stores.port import LONGEST_PAGE, PagePlace
from holdfast.views.needs import at_work
from holdfast.views.task import TaskView, position_of

Listed: TypeAlias = tuple[TaskView, str | None]
"""A task, and who is at work on it."""
COLUMNS = ("ID", "TYPE", "STATUS", "POSITION", "UPDATED", "USER")


@click.command()
@find_options
@limit_option(50)
@cursor_option
@click.option("--all", "whole", is_flag=True, help="Every page.")
@store_command()
def ls(
    given: Given,
    /,
    limit: int,
    cursor: str | None,
    whole: bool,
    as_json: bool,
    **found: Any,
) -> Exit:
    """List tasks, the newest first, a page at a time.

    A page is found by the index of the store, and only the logs of the tasks on it are read, for
    their position. If there are older ones, the last line says how to see them.

    \b
    A task that nobody is at work on is marked where that matters:
      stopped      it is in progress: resume it, or have a worker take it up
      waiting      it sleeps, backs off or waits for a child: a worker goes on
                   with it in time
      to be ended  it was cancelled, and has something to do first: resume it,
                   or have a worker
      on ENGINE    a remote engine drives it

    With --json, at_work names the process at work on a task, or is null; driver names the engine
    it is left to; wake_at is when a released task goes on by itself; cursor is its place: the next
    page begins there.

    A task whose log can't be read is named on standard error, and the exit code is then 4.

    \b
    Examples:
      holdfast ls
      holdfast ls --status failed --status cancelled --since 7d
      holdfast ls --user ada --since 2026-01-01 --until 2026-02-01 --limit 10
      holdfast ls --label team=travel --all --json | jq -r '.[].id'
    """
    filters = found_by(**found)
    with opened(given) as hf:
        listed, unreadable, after = _listed(hf, filters, limit, cursor, whole)
        if as_json:
            print_json([_summary(view, holder) for view, holder in listed])
        elif listed or unreadable:
            _print_table(listed, after)
        else:
            is_empty = cursor is None and not hf.page(limit=1).tasks
            console().print(plain(f"no tasks in {hf.store.url}" if is_empty else "no tasks match"))
    return warned(unreadable)


def _listed(
    hf: Holdfast, filters: Filters, limit: int, cursor: str | None, whole: bool
) -> tuple[list[Listed], list[StoreError], str | None]:
    """The tasks of a page, or of all; the logs that can't be read; where the next page begins."""
    listed, unreadable = list[Listed](), list[StoreError]()
    while True:
        page = hf.page(limit=LONGEST_PAGE if whole else limit, cursor=cursor, **filters)
        unreadable = unreadable or list(page.unreadable)  # the same for every page
        listed += _read(hf, page, unreadable)
        cursor = page.next
        if cursor is None or not whole:
            return listed, unreadable, cursor


def _read(hf: Holdfast, page: TaskPage, unreadable: list[StoreError]) -> Iterator[Listed]:
    for task in page.tasks:
        try:
            view = read_task(hf.store, task.id)
            yield view, at_work(hf.store, view)
        except TaskNotFound:  # it was deleted meanwhile
            continue
        except StoreError as error:
            unreadable.append(error)


def _summary(view: TaskView, holder: str | None) -> dict[str, Any]:
    state = view.state
    return {
        "id": view.id,
        "type": view.type,
        "status": view.status,
        "position": position_of(view),
        "created_at": state.created_at,
        "updated_at": state.updated_at,
        "user": state.user,
        "session": state.session,
        "labels": state.labels,
        "parent": state.parent,
        "origin": state.fork.of if state.fork is not None else "",
        "at_work": holder,
        "driver": state.driver or LOCAL,
        "wake_at": state.wake_at if state.parked else None,
        "crashes": max(state.deaths.values(), default=0),
        "hindrance": state.hindrance,
        "cursor": cursor_of(PagePlace(state.created_at, stream_of(view.id))),
    }


def _print_table(listed: list[Listed], after: str | None) -> None:
    out = console()
    print_table(out, COLUMNS, list(_rows(listed)), cut_last=False)
    if after is not None:
        line = Text(f"… there are older ones: the same with --cursor {after}", "dim")
        out.print(line, soft_wrap=True)


def _how_it_stands(view: TaskView) -> tuple[str, str]:
    """A mark for a task that nobody is at work on."""
    state = view.state
    if view.status in FINISHED:
        return "", ""
    if state.driver:
        return f", on {plain(state.driver)}", "dim"
    if state.cancelling or state.ending:
        return ", to be ended", "bold yellow"
    if state.hindrance is not None:
        return f", {plain(state.hindrance.error)}", "bold yellow"
    if view.status != "in_progress":
        return "", ""
    # A driver that releases a waiting task records that; one that dies or is told to end does not.
    return (", waiting", "yellow") if state.parked else (", stopped", "bold yellow")


def _type(view: TaskView) -> Text:
    fork = view.state.fork
    of = f", a fork of {plain(fork.of)}" if fork is not None else ""
    return Text.assemble(plain(view.type), (of, "dim"))


def _rows(views: list[Listed]) -> Iterator[tuple[str | Text, ...]]:
    now = datetime.now(UTC)
    for view, holder in views:
        status = status_text(view.status)
        if holder is None:
            status.append(*_how_it_stands(view))
        yield (
            plain(view.id),
            _type(view),
            status,
            str(position_of(view)),
            ago(view.state.updated_at, now),
            plain(view.state.user),
        )
