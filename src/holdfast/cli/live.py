"""What a task does, as it does it: the lines of its `progress.log`, on standard error."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from holdfast.cli.output import print_error
from holdfast.errors import HoldfastError
from holdfast.store import Store
from holdfast.tail import Tail
from holdfast.workspace.progress import progress_line

_LOOK_S = 0.2


@contextmanager
def live(store: Store, task_id: str, wanted: bool) -> Iterator[None]:
    """While it lasts, print what is new in the log of a task, if that is `wanted`."""
    if not wanted:
        yield
        return
    tail, ended = Tail(store, task_id), threading.Event()
    _read(tail)  # what was there before is not told again

    def follow() -> None:
        while not ended.wait(_LOOK_S):
            _print(tail)

    thread = threading.Thread(target=follow, name="holdfast live", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        _print(tail)


def _print(tail: Tail) -> None:
    for line in _read(tail):
        if line:
            print_error(line.rstrip("\n"))


def _read(tail: Tail) -> list[str]:
    lines: list[str] = []
    with suppress(HoldfastError):  # who drives the task tells what is wrong with its log
        lines.extend(progress_line(event, tail.state) for _, event in tail.read())
    return lines
