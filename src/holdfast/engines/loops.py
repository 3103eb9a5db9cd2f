"""An event loop in a thread of its own, for those who have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """A loop that runs until it is closed."""

    def __init__(self, name: str = "holdfast loop") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call_soon(self, work: Callable[[], Any]) -> None:
        """Do something on the loop, soon."""
        self._loop.call_soon_threadsafe(work)

    def close(self) -> None:
        """End the loop; nothing runs on it any more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
