"""`holdfast schedule`: what starts by itself, when, and what became of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click
import msgspec
from rich.text import Text

from holdfast.api.schedules import ScheduleHandle, last_mark
from holdfast.cli.exits import Exit
from holdfast.cli.opening import load_app, opened
from holdfast.cli.options import store_command
from holdfast.cli.output import console, print_json, print_lines, print_table
from holdfast.cli.settings import Given
from holdfast.cli.text import ago, plain
from holdfast.core.decoding import decode
from holdfast.engines.schedules import Mark, Schedule
from holdfast.errors import BadInput

COLUMNS = ("SCHEDULE", "WHEN", "TASK", "NEXT", "LAST")


@click.group(short_help="What starts by itself: list, show, pause, run now, backfill.")
def schedule() -> None:
    """Schedules: tasks that start by themselves. Code declares them, by hf.schedule(…).

    \b
    Examples:
      holdfast schedule ls
      holdfast schedule show nightly
      holdfast schedule pause nightly --because "the source is down"
      holdfast schedule run nightly --app agents
    """


@schedule.command()
@store_command()
def ls(given: Given, as_json: bool) -> Exit:
    """List the schedules: when, what, and the next and the last time.

    \b
    Examples:
      holdfast schedule ls
      holdfast schedule ls --json | jq -r '.[].name'
    """
    with opened(given) as hf:
        found = hf.schedules()
        shown = [_shown(each) for each in found]
        now = datetime.now(UTC)
        rows = [_row(each.schedule, each, last_mark(hf, each.name), now) for each in found]
    if as_json:
        print_json(shown)
    elif rows:
        print_table(console(), COLUMNS, rows, cut_last=True)
    else:
        console().print("no schedules: declare one by hf.schedule(task, cron=…)")
    return Exit.OK


@schedule.command()
@click.argument("name")
@store_command()
def show(given: Given, name: str, as_json: bool) -> Exit:
    """Show a schedule: its rules, the next due times and the last runs.

    \b
    Examples:
      holdfast schedule show nightly
    """
    with opened(given) as hf:
        handle = hf.schedule(name)
        shown = {**_shown(handle), "history": msgspec.to_builtins(handle.history())}
        marks, coming, found = handle.history(), handle.next(), handle.schedule
    if as_json:
        print_json(shown)
        return Exit.OK
    lines = [
        f"{plain(found.name)}: {_when(found)}, starts {plain(found.task)}",
        f"overlap {found.overlap}, catch up {found.catch_up}, window {found.window_s:g} s, "
        f"jitter {found.jitter_s:g} s",
        *([f"paused by {plain(found.by)} {plain(found.because)}".rstrip()] if found.paused else []),
        *(f"next  {due.isoformat()}" for due in coming),
    ]
    print_lines(console(), "\n".join(lines))
    if marks:
        rows = [(m.due.isoformat(), _outcome(m), plain(m.task or m.because)) for m in marks]
        print_table(console(), ("DUE", "WHAT", "TASK"), rows, cut_last=True)
    return Exit.OK


@schedule.command()
@click.argument("name")
@click.option("--because", default="", help="Why, for those who look.")
@store_command()
def pause(given: Given, name: str, because: str, as_json: bool) -> Exit:
    """Start nothing by a schedule until it is resumed. Tasks that run go on.

    \b
    Examples:
      holdfast schedule pause nightly --because "the source is down"
    """
    with opened(given) as hf:
        hf.schedule(name).pause(because=because)
        return _tell(hf.schedule(name), as_json)


@schedule.command()
@click.argument("name")
@store_command()
def resume(given: Given, name: str, as_json: bool) -> Exit:
    """Go on with a paused schedule, from the next due time on.

    \b
    Examples:
      holdfast schedule resume nightly
    """
    with opened(given) as hf:
        hf.schedule(name).resume()
        return _tell(hf.schedule(name), as_json)


@schedule.command()
@click.argument("name")
@store_command("app")
def run(given: Given, name: str, as_json: bool) -> Exit:
    """Start the task of a schedule now, beside its due times.

    \b
    Examples:
      holdfast schedule run nightly --app agents
    """
    load_app(given)
    with opened(given) as hf:
        return _started([hf.schedule(name).run_now()], as_json)


@schedule.command()
@click.argument("name")
@click.option("--from", "start", required=True, help="The first time, such as 2026-11-01T00:00Z.")
@click.option("--to", "end", required=True, help="The last time.")
@store_command("app")
def backfill(given: Given, name: str, start: str, end: str, as_json: bool) -> Exit:
    """Start the tasks of the due times in a span. Those that exist stay as they are.

    \b
    Examples:
      holdfast schedule backfill nightly --from 2026-11-01 --to 2026-11-08 --app agents
    """
    load_app(given)
    with opened(given) as hf:
        return _started(hf.schedule(name).backfill(_time(start), _time(end)), as_json)


@schedule.command()
@click.argument("name")
@store_command()
def delete(given: Given, name: str, as_json: bool) -> Exit:
    """Forget a schedule and its history. The tasks that it started stay.

    \b
    Examples:
      holdfast schedule delete nightly
    """
    with opened(given) as hf:
        hf.schedule(name).delete()
    if as_json:
        print_json({"deleted": name})
    else:
        print_lines(console(), f"deleted: {plain(name)}")
    return Exit.OK


def _time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadInput(f"{text!r:.60} is no time: give one such as 2026-11-01T00:00Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _started(ids: list[str], as_json: bool) -> Exit:
    if as_json:
        print_json({"tasks": ids})
    else:
        print_lines(console(), "\n".join(plain(id) for id in ids) or "nothing is due in that time")
    return Exit.OK


def _tell(handle: ScheduleHandle, as_json: bool) -> Exit:
    if as_json:
        print_json(_shown(handle))
    else:
        state = "paused" if handle.schedule.paused else "on"
        print_lines(console(), f"{plain(handle.name)} is {state}: {_when(handle.schedule)}")
    return Exit.OK


def _shown(handle: ScheduleHandle) -> dict[str, Any]:
    shown: dict[str, Any] = decode(msgspec.json.encode(handle.schedule))  # its arguments are raw
    return {**shown, "next": [due.isoformat() for due in handle.next()]}


def _row(found: Schedule, handle: ScheduleHandle, mark: Any, now: datetime) -> tuple[Any, ...]:
    coming = handle.next(1)
    last = f"{mark.what} {ago(mark.due, now)}" if mark is not None else ""
    next_at: Any = coming[0].isoformat() if coming else ""
    if found.paused:
        next_at = Text("paused", "yellow")
    return plain(found.name), _when(found), plain(found.task), next_at, last


def _outcome(mark: Mark) -> str:
    if mark.how == "due":
        return mark.what
    return plain(f"{mark.what} by {mark.by} ({mark.how.replace('_', ' ')})")


def _when(found: Schedule) -> str:
    if found.cron:
        return plain(f"{found.cron} ({found.tz})")
    if found.every_s is not None:
        return f"every {found.every_s:g} s"
    return f"at {found.at.isoformat()}" if found.at is not None else ""
