"""The output of commands: for people by rich, for machines as JSON, and errors in one paragraph.

Every string given to the console is shown as it is: markup, emoji names and highlighting are off,
so nothing in a log can style, hide or link anything. Styles are given with `Text` only.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.cli.exits import Exit, print_error, print_json, print_json_line
from holdfast.cli.text import count, plain
from holdfast.upkeep.families import CopyProgress, Tell

__all__ = [
    "console",
    "print_error",
    "print_json",
    "print_json_line",
    "print_lines",
    "print_table",
    "status_text",
    "telling",
    "warned",
]

WIDE = 10_000
"""The width when nobody looks: a pipe or a file gets whole lines, not lines cut at 80."""

STYLES = {
    "completed": "green",
    "in_progress": "cyan",
    "running": "cyan",
    "pending": "dim",
    "retrying": "yellow",
    "waiting": "yellow",
    "backing_off": "yellow",
    "awaiting_user": "bold yellow",
    "in_doubt": "bold yellow",
    "paused": "yellow",
    "stuck": "bold red",
    "failed": "bold red",
    "damaged": "bold red",
    "cancelled": "dim",
}


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(*, stderr: bool = False, file: TextIO | None = None) -> Console:
    """A console on what is standard output now, or on a file."""
    stream = file or (sys.stderr if stderr else sys.stdout)
    looked_at = stream.isatty() or "COLUMNS" in os.environ
    # Measured here: of a terminal that calls itself dumb, rich would always think 80 columns.
    size = shutil.get_terminal_size()
    return _Console(
        stderr=stderr,
        file=file,
        markup=False,
        emoji=False,
        highlight=False,
        width=size.columns if looked_at else WIDE,
        height=size.lines,
    )


def warned(problems: Iterable[object]) -> Exit:
    """Tell what could not be read, each on standard error; how the command ends then."""
    ended = Exit.OK
    for problem in problems:
        print_error(f"warning: {problem}")
        ended = Exit.DAMAGED
    return ended


def print_lines(out: Console, text: Text | str, *, cropped: bool = False) -> None:
    """Text of one or many lines, which the terminal wraps, or which are cropped to its width."""
    if not out.is_terminal:
        # The console takes a quarter of a millisecond to find that there is nothing to style.
        out.file.write(f"{text}\n")
    elif cropped:
        out.print(text, no_wrap=True, overflow="ellipsis")
    else:
        out.print(text, soft_wrap=True)


def status_text(status: str) -> Text:
    """A status in its colour."""
    return Text(plain(status), STYLES.get(status, ""))


def print_table(
    out: Console, columns: Sequence[str], rows: Sequence[Sequence[str | Text]], *, cut_last: bool
) -> None:
    """A table without lines. Wide cells are folded, or cut in the last column."""
    if not out.is_terminal:
        _write_table(out, [columns, *rows])
        return
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold", no_wrap=cut_last)
    if cut_last:
        made.columns[-1].no_wrap, made.columns[-1].overflow = False, "ellipsis"
    for row in rows:
        made.add_row(*row)
    out.print(made)


def _write_table(out: Console, rows: Sequence[Sequence[str | Text]]) -> None:
    # By hand: the console takes half a millisecond for a row, and a task may have 10,000 calls.
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        padded = (
            cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)
        )
        out.file.write("  ".join(padded).rstrip() + "\n")


# How far a long command is: a bar on a terminal, a line now and then elsewhere. On stderr.


_LINE_S = 10.0
_QUICK_S = 0.5
"""Work that is done sooner needs no bar."""


@contextmanager
def telling() -> Iterator[Tell]:
    """Something to call with each step of the work."""
    if sys.stderr.isatty():
        with _bar() as tell:
            yield tell
    else:
        yield _progress_lines()


def _progress_lines() -> Tell:
    told_at = time.monotonic()

    def tell(progress: CopyProgress) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= _LINE_S:
            told_at = time.monotonic()
            sys.stderr.write(_progress_text(progress) + "\n")
            sys.stderr.flush()

    return tell


@contextmanager
def _bar() -> Iterator[Tell]:
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), TextColumn("{task.description}", markup=False), TimeRemainingColumn())
    bar = Bar(*columns, console=console(stderr=True), transient=True)
    began, shown = time.monotonic(), False
    task: Any = None

    def tell(progress: CopyProgress) -> None:
        nonlocal shown, task
        if not shown and time.monotonic() - began >= _QUICK_S:
            shown = True
            bar.start()
            task = bar.add_task("", total=None)
        if shown:
            bar.update(
                task,
                description=_progress_text(progress),
                completed=progress.done,
                total=progress.total,
            )

    try:
        yield tell
    finally:
        if shown:
            bar.stop()


def _progress_text(progress: CopyProgress) -> str:
    of = f"{progress.done:,} of {count(progress.total, 'task')}"
    events = f", {count(progress.events, 'event')}" if progress.events else ""
    return f"{progress.what}: {of} ({plain(progress.id)}{events})"
