"""How far a long command is: a bar on a terminal, a line now and then elsewhere. On stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.cli.output import console
from holdfast.cli.text import count, plain
from holdfast.upkeep.copied import CopyProgress, Tell

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
        yield _lines()


def _lines() -> Tell:
    told_at = time.monotonic()

    def tell(progress: CopyProgress) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= _LINE_S:
            told_at = time.monotonic()
            sys.stderr.write(_text(progress) + "\n")
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
                task, description=_text(progress), completed=progress.done, total=progress.total
            )

    try:
        yield tell
    finally:
        if shown:
            bar.stop()


def _text(progress: CopyProgress) -> str:
    of = f"{progress.done:,} of {count(progress.total, 'task')}"
    events = f", {count(progress.events, 'event')}" if progress.events else ""
    return f"{progress.what}: {of} ({plain(progress.id)}{events})"
