"""How many calls a worker makes at a time.

A call takes a place before it takes a thread. One that only waits for another task gives its place
away meanwhile: that task needs places as well, and would else wait for ever.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

THREADS = 10_000
"""Of a pool for calls: more than there are places, as some wait without one."""


class Places:
    """So many places, on the running loop; those who hold one may be in any thread."""

    def __init__(self, count: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._free = asyncio.Semaphore(count)

    async def acquire(self) -> None:
        """Wait for a place, on the loop."""
        await self._free.acquire()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *error: object) -> None:
        self._free.release()

    def give_away(self) -> None:
        """Let somebody else have a place. From any thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody wants one
            self._loop.call_soon_threadsafe(self._free.release)

    def take(self) -> Future[Any]:
        """The same from any thread: done when there is a place, which is taken then."""
        return asyncio.run_coroutine_threadsafe(self._free.acquire(), self._loop)
