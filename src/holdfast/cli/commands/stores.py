"""`holdfast copy`, `archive`, `restore` and `gc`: tasks to another store, into a file, or away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click
from msgspec.structs import asdict
from rich.console import Console

from holdfast.api.app import Holdfast
from holdfast.cli.arguments import AgeParam, Size, bytes_text
from holdfast.cli.exits import Exit
from holdfast.cli.opening import keys_of, opened, store_url
from holdfast.cli.options import (
    filter_options,
    meant,
    store_command,
    tasks_argument,
)
from holdfast.cli.output import console, print_error, print_json, print_lines, print_table, telling
from holdfast.cli.settings import Given
from holdfast.cli.text import ago, count, counts, plain
from holdfast.core.kinds import KINDS, for_people
from holdfast.core.state import FINISHED, HALTED
from holdfast.stores.sealed.keys import Keys
from holdfast.upkeep.copies import must_last, stand_in
from holdfast.upkeep.families import Copied, Refused, Swept, SweptSession
from holdfast.upkeep.retention import Retention

_COPIED_COLUMNS = ("ID", "STATUS", "EVENTS", "SIZE", "")
_HOW = {
    "copied": "",
    "continued": "was there in part",
    "there": "was there already",
    "ahead": "was there, and has gone on",
}
_LISTED = 50

dry_run_option: Final = click.option(
    "--dry-run", is_flag=True, help="Say what would be done, and do nothing."
)


@click.command(short_help="Copy or move tasks to another store.")
@tasks_argument
@click.option("--from", "source", metavar="URL", help="Where the tasks are.  [default: --url]")
@click.option("--to", "target", metavar="URL", required=True, help="Where they are copied to.")
@filter_options
@click.option(
    "--to-key-file", metavar="FILE", help="Its key.  [default: that of the source, if it has one]"
)
@click.option(
    "--to-sign-key-file", metavar="FILE", help="The key to sign with there.  [default: the same]"
)
@click.option("--move", is_flag=True, help="Delete them in the source once they are in the target.")
@click.option("--paused", is_flag=True, help="Let them go on in the source: copies are paused.")
@dry_run_option
@store_command()
def copy(
    given: Given,
    /,
    tasks: tuple[str, ...],
    source: str | None,
    target: str,
    to_key_file: str | None,
    to_sign_key_file: str | None,
    move: bool,
    paused: bool,
    dry_run: bool,
    as_json: bool,
    **filters: Any,
) -> Exit:
    """Copy tasks to another store: those named, those that match, or all.

    Every copy is read back and compared before it counts. Tasks that are there already are left
    alone, so an interrupted copy goes on when you make it again. A family goes together: with a
    parent its children, with a child its parent, and with any of them its session. All includes
    sessions without a task, and memories.

    A task that somebody is driving is refused: pause it first. An unfinished task goes on in the
    target; in the source it is paused (or, with --move, deleted), so that nothing is done twice.

    The exit code is 6 if a task was refused because somebody is driving it; nothing is copied then
    if tasks were named, else all others are.

    \b
    Examples:
      holdfast copy --from workspace --to sqlite:///trips.db
      holdfast copy trip-42 --to postgresql://ada@db/trips --move
      holdfast copy --status completed --to sqlite:///done.db --dry-run
    """
    if source:
        given.url = source
    place = _target(target, to_key_file, to_sign_key_file, dry_run)
    with opened(given) as hf, place as to, telling() as tell:
        copied = hf.copy_to(
            to, **meant(tasks, **filters), move=move, paused=paused, dry_run=dry_run,
            progress=tell,
        )  # fmt: skip
    return _ended(copied, as_json)


@contextmanager
def _target(
    url: str, key_file: str | None, sign_key_file: str | None, dry_run: bool
) -> Iterator[str | Holdfast]:
    """Where tasks are copied to: opened here, if it has keys of its own."""
    if not key_file and not sign_key_file:
        yield url
        return
    must_last(url)
    key = Keys.from_file(key_file) if key_file else None
    sign_key = Keys.from_file(sign_key_file) if sign_key_file else None
    with Holdfast(stand_in(url) if dry_run else url, key=key, sign_key=sign_key) as target:
        yield target


@click.command(short_help="Bring tasks back from an archive.")
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False))
@tasks_argument
@click.option(
    "--max-bytes", type=Size(), metavar="SIZE", help="How much it may unpack to.  [default: 64GiB]"
)
@dry_run_option
@store_command()
def restore(
    given: Given,
    file: str,
    tasks: tuple[str, ...],
    max_bytes: int | None,
    dry_run: bool,
    as_json: bool,
) -> Exit:
    """Bring tasks back from an archive into the store, all of them or those named.

    Everything is checked against its sums, and nothing in the archive is run. Tasks that are
    in the store already are left alone. Unfinished tasks arrive paused: the original may have gone
    on after the archive was made.

    \b
    Examples:
      holdfast restore old-trips.hfa --dry-run
      holdfast restore old-trips.hfa trip-42
      holdfast restore old-trips.hfa --url sqlite:///trips.db
    """
    place = stand_in(store_url(given)) if dry_run else store_url(given)
    key, sign_key = keys_of(given), keys_of(given, "sign_key")
    with Holdfast(place, key=key, sign_key=sign_key) as hf, telling() as tell:
        restored = hf.restore_from(
            file, tasks or None, max_bytes=max_bytes, dry_run=dry_run, progress=tell
        )
    return _ended(restored, as_json)


def _ended(copied: Copied, as_json: bool) -> Exit:
    if as_json:
        totals = {"events": copied.events, "size_bytes": copied.size_bytes}
        print_json({**asdict(copied), **totals})
    else:
        _print_copied(console(), copied)
    for refused in copied.refused:
        print_error(f"refused: {refused.why}")
    return max((_exit_of_refused(refused) for refused in copied.refused), default=Exit.OK)


def _what_was_copied(copied: Copied) -> str:
    lengths = {kind.plural: len(getattr(copied, kind.plural)) for kind in KINDS}
    return ", ".join(counts(lengths))


def _exit_of_refused(refused: Refused) -> Exit:
    return _EXITS.get(refused.error, Exit.DAMAGED)


_EXITS = {"TaskBusy": Exit.BUSY, "BadInput": Exit.BAD_INPUT, "TaskNotFound": Exit.NOT_FOUND}


def _print_copied(out: Console, copied: Copied) -> None:
    verb = "move" if copied.moved else "copy"
    done = f"would {verb}" if copied.dry_run else "moved" if copied.moved else "copied"
    rows = [
        (plain(t.id), t.status, f"{t.events:,}", bytes_text(t.size_bytes), _HOW[t.how])
        for t in copied.tasks[:_LISTED]
    ]
    if rows:
        print_table(out, _COPIED_COLUMNS, rows, cut_last=False)
    if len(copied.tasks) > _LISTED:
        print_lines(out, f"… and {count(len(copied.tasks) - _LISTED, 'task')} more (--json)")
    size = f"{count(copied.events, 'event')}, {bytes_text(copied.size_bytes)}"
    way = f"from {plain(copied.source)} to {plain(copied.target)}"
    print_lines(out, f"{done} {_what_was_copied(copied)} ({size}) {way}")
    if copied.along:
        along = ", ".join(map(plain, copied.along[:5])) + (", …" if len(copied.along) > 5 else "")
        print_lines(
            out, f"{count(len(copied.along), 'task')} went along, of the same family: {along}"
        )
    open_ones = [task for task in copied.tasks if task.status not in (*FINISHED, *HALTED)]
    if open_ones and not copied.dry_run and not copied.moved:
        unfinished = count(len(open_ones), "unfinished task")
        print_lines(out, f"{unfinished}: to go on in {plain(copied.target)}, and paused here")


# `holdfast archive`: tasks into one compressed file.


plain_option: Final = click.option(
    "--plain",
    "plain_text",
    is_flag=True,
    help="From an encrypted store: the archive is not encrypted, and need not be.",
)


@click.command(short_help="Write tasks to a compressed file.")
@click.argument("file", metavar="FILE", type=click.Path())
@tasks_argument
@filter_options
@plain_option
@store_command()
def archive(
    given: Given,
    /,
    file: str,
    tasks: tuple[str, ...],
    plain_text: bool,
    as_json: bool,
    **filters: Any,
) -> Exit:
    """Write tasks to a compressed file: those named, those that match, or all, with their families
    and sessions. All includes sessions without a task, and memories.

    They stay in the store; `holdfast gc --archive` deletes them afterwards. The file is read back
    and compared before it gets its name. Of a task that is under way it holds what there is now. If
    FILE is a folder, a new file is made in it. `holdfast restore` brings tasks back.

    Logs that can't be read are named on standard error, and the exit code is then 4.

    \b
    Examples:
      holdfast archive backup.hfa
      holdfast archive failed.hfa --status failed
      holdfast archive trip.hfa trip-42
    """
    with opened(given) as hf, telling() as tell:
        archived = hf.archive_to(file, **meant(tasks, **filters), plain=plain_text, progress=tell)
    for refused in archived.refused:
        print_error(f"warning: not archived: {refused.why}")
    ended = Exit.DAMAGED if archived.refused else Exit.OK
    if as_json:
        print_json(archived)
        return ended
    logs = {"tasks": archived.ids, "sessions": archived.sessions, "memories": archived.memories}
    lengths = {kind: len(ids) for kind, ids in logs.items()}
    what = ", ".join(counts({**lengths, "events": archived.events}))
    size = f"{bytes_text(archived.unpacked_bytes)} in {bytes_text(archived.size_bytes)}"
    print_lines(console(), f"archived {what} ({size}) to {plain(archived.path)}")
    return ended


# `holdfast gc`: delete finished tasks as a policy says, and what nobody needs.


_SWEPT_COLUMNS = ("ID", "TYPE", "STATUS", "UPDATED", "SIZE", "WHY")
_SESSION_COLUMNS = ("SESSION", "USER", "STATUS", "UPDATED", "SIZE")


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
@store_command()
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

    It deletes a task if the task is older than --older-than, or if the store is larger than
    --max-size (the oldest first). Without any of --older-than, --keep-last and --max-size it
    deletes no task, only blobs that no log names any more and the leftovers of crashed writers.

    Never deleted: a task that has not ended, or has something to undo; one whose parent,
    child, fork or origin has not ended (a family goes as a whole); one that somebody holds; a blob
    that a log names; a memory. Sessions go only with --sessions-after, and only if no task of
    them is left.

    With --archive it first writes what it will delete to a file, or to a new file in a folder, and
    reads that back, and only then deletes. `holdfast restore` brings it back.

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
        _print_swept(console(), swept)
    stayed = "no blob was deleted"
    if max_size is not None:
        stayed += ", and no task because of --max-size"
    for log in swept.unreadable:
        print_error(f"warning: {log.id} can't be read, so {stayed}: {log.why}")
    return Exit.DAMAGED if swept.unreadable else Exit.OK


def _print_swept(out: Console, swept: Swept) -> None:
    now = datetime.now(UTC)
    rows = [
        (
            *(plain(t.id), plain(t.type), t.status),
            *(ago(t.updated_at, now), bytes_text(t.size_bytes), t.why),
        )
        for t in swept.tasks[:_LISTED]
    ]
    if rows:
        print_table(out, _SWEPT_COLUMNS, rows, cut_last=False)
    if len(swept.tasks) > _LISTED:
        print_lines(out, f"… and {count(len(swept.tasks) - _LISTED, 'task')} more (--json)")
    if swept.sessions:
        sessions = [_session(each, now) for each in swept.sessions[:_LISTED]]
        print_table(out, _SESSION_COLUMNS, sessions, cut_last=False)
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
