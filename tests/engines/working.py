"""Workers at work in a thread, and waiting for what they do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def driving(worker: Any) -> Iterator[None]:
    """A worker at work, until the block ends."""
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join()


def until(what: Callable[[], Any], seconds: float = 120.0) -> None:
    """Wait for something to be so; fails if it does not come."""
    give_up_at = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < give_up_at, "it did not come"
        time.sleep(0.02)


def until_it_drives(printed: Iterable[str]) -> None:
    """Read what a worker process prints until it is at work. It may say first what is in its way,
    and try again."""
    said = []
    for line in printed:
        said.append(line)
        if "drives tasks" in line:
            return
    raise AssertionError(f"the worker ended: {''.join(said)}")
