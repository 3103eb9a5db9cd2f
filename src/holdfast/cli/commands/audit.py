"""`holdfast audit`: who did what in a task, as a report for people or for programs."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TextIO

import click
from rich.console import Console
from rich.text import Text

from holdfast.cli.arguments import when
from holdfast.cli.commands.integrity import may_be_there, read_heads
from holdfast.cli.exits import Exit, print_error, print_json_line
from holdfast.cli.opening import not_found, opened
from holdfast.cli.options import (
    json_option,
    store_command,
    task_argument,
)
from holdfast.cli.output import STYLES, console, print_lines, print_table
from holdfast.cli.settings import Given
from holdfast.cli.text import plain, plain_lines
from holdfast.errors import BadInput
from holdfast.stores import system
from holdfast.views.audit import stream_audit
from holdfast.views.audit.entry import AuditStream, EntryChoice
from holdfast.views.audit.pages import (
    CLAIMS,
    EntryPart,
    Item,
    Sheet,
    html_lines,
    markdown_lines,
    sheet,
    to_jsonl,
)

_BATCH = 100
FORMATS = ("text", "markdown", "html", "jsonl")

_STYLES = {
    "returned": "green",
    "task completed": "bold green",
    "attempt failed": "yellow",
    "failed": "red",
    "task failed": "bold red",
    "in doubt": STYLES["in_doubt"],
    "doubt settled": "yellow",
    "decided": "magenta",
    "approved": "green",
    "not approved": "red",
    "asked": "bold yellow",
    "approval asked": "bold yellow",
    "claimed": "cyan",
}


@click.command(short_help="Report who did what in a task, when and why.")
@task_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="How it is written. HTML is one file that needs nothing else; jsonl is for programs.",
)
@json_option
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write it into this file, which only you can read.",
)
@click.option("--since", metavar="WHEN", callback=when, help="Only entries since: 2h, a date.")
@click.option("--until", metavar="WHEN", callback=when, help="Only entries before that.")
@click.option("--call", metavar="PATH", help="Only entries about this call, and those inside it.")
@click.option("--event", type=click.IntRange(min=1), metavar="SEQ", help="Only that of this event.")
@click.option("--full", is_flag=True, help="Cut no value, however long. With jsonl none is ever.")
@click.option(
    "--against",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What `holdfast head` printed at an earlier time: also shows what was cut off since.",
)
@store_command(json=False)
def audit(
    given: Given,
    task: str,
    form: str,
    as_json: bool,
    output: Path | None,
    since: datetime | None,
    until: datetime | None,
    call: str | None,
    event: int | None,
    full: bool,
    against: Path | None,
) -> Exit:
    """Report who did what in a task, when, with which input and output, and why.

    Calls with every attempt and its error, decisions with their options and reasons, approvals
    with who gave them for which call, questions and answers, doubts and who settled them, pauses,
    cancellations and takeovers, what was undone, changes of the plan, files and children. All times
    are UTC. Values kept out of the log stay out of the report.

    On top stands whether the log is what was written (see `holdfast verify`). A log that is damaged
    is told of up to the damage, nothing is changed, and the exit code is 4.

    \b
    Examples:
      holdfast audit trip-42
      holdfast audit trip-42 --format html --output trip-42.html
      holdfast audit trip-42 --call 6 --since 2h
      holdfast audit trip-42 --format jsonl | jq 'select(.what == "approved")'
    """
    form = "jsonl" if as_json else form
    noted = read_heads(against) if against else []
    with opened(given) as hf:
        if not may_be_there(hf.store, task) and not noted:
            raise not_found(hf.store, task)
        wanted = EntryChoice(since, until, call, event)
        found = stream_audit(hf.store, task, datetime.now(UTC), noted, wanted)
        if output is None:
            _write(found, form, full, sys.stdout)
        else:
            with _private(output) as file:
                _write(found, form, full, file)
    checked = found.audit.verification
    if checked.sound:
        return Exit.OK
    if output is not None:
        print_error(f"the log of {task} is damaged: {checked.damage[0]}")
    return Exit.DAMAGED


def _private(path: Path) -> TextIO:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | system.NO_LINK, 0o600)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):  # it may have been there, open to all
            system.make_private(descriptor)
    except OSError as error:
        raise BadInput(f"--output {path} can't be written: {error}") from None
    return open(descriptor, "w", encoding="utf-8", errors="backslashreplace")


def _write(found: AuditStream, form: str, full: bool, out: TextIO) -> None:
    if form == "jsonl":
        for line in to_jsonl(found):
            print_json_line(line, out)
        return
    shown = sheet(found, full=full)
    if form == "html":
        out.writelines(f"{line}\n" for line in html_lines(shown))
    elif form == "markdown":
        out.writelines(f"{line}\n" for line in markdown_lines(shown))
    else:
        _print(shown, console() if out is sys.stdout else console(file=out))


def _print(shown: Sheet, out: Console) -> None:
    print_lines(out, Text(plain(shown.title), "bold"))
    print_lines(out, Text(shown.verdict, "green" if shown.sound else "bold red"))
    for check in shown.checks:
        print_lines(out, f"  {plain(check)}")
    print_lines(out, "")
    for label, text in shown.facts:
        print_lines(out, Text.assemble((f"{label:12} ", "dim"), plain(text)))
    if shown.open:
        print_lines(out, Text("\nOpen", "bold underline"))
        for each in shown.open:
            print_lines(out, Text(f"  {plain(each)}", "bold yellow"))
    if shown.claims:
        print_lines(out, Text("\nClaims", "bold underline"))
        columns = [column.upper() for column in CLAIMS]
        print_table(out, columns, [list(map(plain, row)) for row in shown.claims], cut_last=False)
    print_lines(out, Text("\nEntries", "bold underline"))
    if shown.left_out:
        print_lines(out, Text(shown.left_out, "dim"))
    items = iter(shown.items)
    while some := list(islice(items, _BATCH)):  # the console takes its time for each print
        print_lines(out, Text("\n").join(line for item in some for line in _lines(item)))


def _lines(item: Item) -> Iterator[Text]:
    yield Text.assemble(
        (f"{item.seq:5}  {item.at}  ", "dim"),
        (item.what, _STYLES.get(item.what, "bold")),
        f"  {plain(item.call)}" if item.call else "",
        (f"  by {plain(item.who)}" if item.who else "", "dim"),
    )
    for part in item.parts:
        yield from _part(part)


def _part(part: EntryPart) -> Iterator[Text]:
    first, *more = plain_lines(part.text).split("\n")
    yield Text.assemble(" " * 7, (f"{part.label}  ", "dim"), first)
    yield from (Text(f"{' ' * 9}{line}") for line in more)
    if part.cut:
        yield Text(f"{' ' * 9}… {plain(part.cut)}", "dim")
