"""`holdfast gc`: delete finished tasks as a policy says, and what nobody needs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
from msgspec.structs import asdict
from rich.console import Console

from holdfast.cli.amounts import AgeParam, Size, bytes_text
from holdfast.cli.commands.copy import dry_run_option, plain_option
from holdfast.cli.exits import Exit
from holdfast.cli.opening import opened
from holdfast.cli.options import json_option, pass_given, store_options
from holdfast.cli.output import console, print_error, print_json, print_lines, print_table
from holdfast.cli.progress import telling
from holdfast.cli.settings import Given
from holdfast.cli.text import ago, count, counts, plain
from holdfast.core.kinds import for_people
from holdfast.core.state import FINISHED
from holdfast.upkeep.retention import Retention
from holdfast.upkeep.swept import Swept, SweptSession

COLUMNS = ("ID", "TYPE", "STATUS", "UPDATED", "SIZE", "WHY")
SESSION_COLUMNS = ("SESSION", "USER", "STATUS", "UPDATED", "SIZE")
_LISTED = 50


@click.command(short_help="Delete finished tasks, and what nobody needs.")
@click.option(
    "--older-than",
    type=AgeParam(),
    metavar="AGE",
    help="Tasks whose last event is older: 30d, 12h.",
)
@click.option(
    "--keep-last",
    type=click.IntRange(min=0),
    metavar="N",
    help="Never the newest N of each task function. Alone: all but those.",
)
@click.option(
    "--max-size",
    type=Size(),
    metavar="SIZE",
    help="The oldest, if the store is larger: 10GB.",
)
@click.option(
    "--status",
    type=click.Choice(sorted(FINISHED)),
    multiple=True,
    help="Only tasks in this status; may be repeated.  [default: all that have ended]",
)
@click.option(
    "--type", "kinds", metavar="NAME", multiple=True, help="Only runs of this task function."
)
@click.option(
    "--sessions-after",
    type=AgeParam(),
    metavar="AGE",
    help="Also sessions without a task left, whose last event is older.",
)
@click.option("--archive", type=click.Path(), metavar="FILE", help="Archive them first, here.")
@plain_option
@click.option(
    "--grace",
    type=AgeParam(),
    default="1h",
    show_default=True,
    metavar="AGE",
    help="How old a blob must be that nobody names.",
)
@click.option("--vacuum", is_flag=True, help="Give the space back to the disk (SQLite).")
@dry_run_option
@json_option
@store_options
@pass_given
def gc(
    given: Given,
    older_than: timedelta | None,
    keep_last: int | None,
    max_size: int | None,
    status: tuple[str, ...],
    kinds: tuple[str, ...],
    sessions_after: timedelta | None,
    archive: str | None,
    plain_text: bool,
    grace: timedelta,
    vacuum: bool,
    dry_run: bool,
    as_json: bool,
) -> Exit:
    """Delete finished tasks as the options say, and what nobody needs.

    A task goes if it is older than --older-than, or if the store is larger than --max-size (the
    oldest go first). Without any of --older-than, --keep-last and --max-size no task goes, but only
    blobs that no log names any more, and what crashed writers left behind.

    Never deleted: a task that has not ended, or has something to undo; one whose parent,
    child, fork or origin has not ended (a family goes as a whole); one that somebody holds; a blob
    that a log names; a memory. Sessions go only with --sessions-after, and only if no task of
    them is left.

    With --archive what goes is written to a file first, or to a new file in a folder, and read back
    before anything is deleted. `holdfast restore` brings it back.

    \b
    Examples:
      holdfast gc --older-than 30d --dry-run
      holdfast gc --older-than 30d --keep-last 10 --archive old/
      holdfast gc --max-size 10GB --status completed
      holdfast gc
    """
    policy = Retention(
        older_than=older_than,
        keep_last=keep_last,
        max_bytes=max_size,
        status=status or tuple(sorted(FINISHED)),
        type=kinds,
        sessions_after=sessions_after,
        grace=grace,
    )
    with opened(given) as hf, telling() as tell:
        swept = hf.gc(
            policy, archive=archive, plain=plain_text, compact=vacuum, dry_run=dry_run,
            progress=tell,
        )  # fmt: skip
    if as_json:
        print_json({**asdict(swept), "freed_bytes": swept.freed_bytes})
    else:
        _print(console(), swept)
    stayed = "no blob was deleted"
    if max_size is not None:
        stayed += ", and no task because of --max-size"
    for log in swept.unreadable:
        print_error(f"warning: {log.id} can't be read, so {stayed}: {log.why}")
    return Exit.DAMAGED if swept.unreadable else Exit.OK


def _print(out: Console, swept: Swept) -> None:
    now = datetime.now(UTC)
    rows = [
        (
            *(plain(t.id), plain(t.type), t.status),
            *(ago(t.updated_at, now), bytes_text(t.size_bytes), t.why),
        )
        for t in swept.tasks[:_LISTED]
    ]
    if rows:
        print_table(out, COLUMNS, rows, cut_last=False)
    if len(swept.tasks) > _LISTED:
        print_lines(out, f"… and {count(len(swept.tasks) - _LISTED, 'task')} more (--json)")
    if swept.sessions:
        sessions = [_session(each, now) for each in swept.sessions[:_LISTED]]
        print_table(out, SESSION_COLUMNS, sessions, cut_last=False)
    if swept.archive is not None:
        size = bytes_text(swept.archive.size_bytes)
        print_lines(out, f"archived to {plain(swept.archive.path)} ({size})")
    what = ", ".join((
        *counts({"tasks": len(swept.tasks), "sessions": len(swept.sessions)}),
        f"{count(swept.blobs, 'blob')} that nobody names",
        count(swept.leftovers.count, "leftover"),
    ))  # fmt: skip
    freed = bytes_text(swept.freed_bytes)
    if swept.dry_run:
        print_lines(out, f"would delete {what}, and free {freed}")
    else:
        print_lines(out, f"deleted {what}: {freed} freed, {bytes_text(swept.size_bytes)} left")
    if swept.compacted_bytes:
        print_lines(out, f"{bytes_text(swept.compacted_bytes)} given back to the disk")
    for kept in swept.kept:
        print_lines(out, f"kept {plain(for_people(kept.id, kept.kind))}: {plain(kept.why)}")


def _session(session: SweptSession, now: datetime) -> tuple[str, ...]:
    age, size = ago(session.updated_at, now), bytes_text(session.size_bytes)
    return plain(session.id), plain(session.user), session.status, age, size
