"""Workers at work in a thread, and waiting for what they do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
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


def until(what: Callable[[], Any], seconds: float = 30.0) -> None:
    """Wait for something to be so; fails if it does not come."""
    give_up_at = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < give_up_at, "it did not come"
        time.sleep(0.02)
