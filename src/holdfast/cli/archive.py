"""`holdfast archive`: tasks into one compressed file."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.amounts import bytes_text
from holdfast.cli.chosen import filter_options, meant, tasks_argument
from holdfast.cli.exits import Exit
from holdfast.cli.opening import opened
from holdfast.cli.options import json_option, pass_given, store_options
from holdfast.cli.output import console, print_error, print_json, print_lines
from holdfast.cli.progress import telling
from holdfast.cli.settings import Given
from holdfast.cli.text import counts, plain

plain_option = click.option(
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
@json_option
@store_options
@pass_given
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
