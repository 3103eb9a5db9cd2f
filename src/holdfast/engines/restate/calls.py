"""The calls of tasks, made in threads of this process, each by one of them at a time.

When the server loses its connection to us it asks for the same calls again, while those it asked
for first still run: nothing ends a thread. So a call that is being made is waited for, and its
outcome counts for all who asked. (Between processes the lease of the task sees to that.)
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from restate.exceptions import RetryableError

from holdfast.core.journal import Asked
from holdfast.engines.remote.attempt import attempt, settle
from holdfast.engines.remote.carrier import Waits
from holdfast.engines.remote.host import THREADS, Host, Places
from holdfast.errors import CodeChanged, CodeMissing

_logger = logging.getLogger("holdfast")

_AGAIN_S = (0.05, 0.2, 0.5)
"""When to try again what did not work for want of the store, before Restate hears of it."""

_LATER, _MUCH_LATER = timedelta(seconds=1), timedelta(seconds=5)
"""When Restate is to ask again: sooner for what may have passed by then, later for what a person
has to mend. Meanwhile the log is free, so that the task can be taken elsewhere."""

Which = tuple[str, str]
"""A task, and the path of a call in it."""


class Calls:
    """The calls that this process makes."""

    def __init__(self, host: Host, at_once: int) -> None:
        self._host = host
        self._places = host.places = Places(at_once)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="holdfast step")
        self._under_way: dict[Which, Future[Waits | None]] = {}
        self._lock = threading.Lock()
        self._is_closing = False

    async def call(self, asked: Asked, data: bytes) -> dict[str, Any]:
        """Make a call, as far as it goes; says when that was, and what it waits for now."""
        id, path, spec = asked.task_id, asked.path, asked.spec
        return await self._made((id, path), lambda: attempt(self._host, id, path, spec, data))

    async def settle(self, id: str) -> dict[str, Any]:
        """Find out about the calls in doubt of a task."""
        return await self._made((id, ""), lambda: settle(self._host, id))

    async def _made(self, which: Which, make: Callable[[], Waits | None]) -> dict[str, Any]:
        waits = await self._outcome_at_last(which, make)
        said: dict[str, Any] = {"at": self._host.holding.clock().isoformat()}
        if waits is not None:
            until = None if waits.until is None else waits.until.isoformat()
            said["waits"] = {"seq": waits.seq, "until": until}
        return said

    async def _outcome_at_last(
        self, which: Which, make: Callable[[], Waits | None]
    ) -> Waits | None:
        for again_s in _AGAIN_S:
            with suppress(Exception):
                return await self._outcome(which, make)
            await asyncio.sleep(again_s)
        try:
            return await self._outcome(which, make)
        except Exception as error:
            _logger.warning("task %r, call %s: %s", *which, error)
            raise trouble(which[0], error) from None

    async def _outcome(self, which: Which, make: Callable[[], Waits | None]) -> Waits | None:
        while True:
            future = await self._begun(which, make)
            try:
                await _end_of(future)
            except asyncio.CancelledError:  # it is we who are not to wait any longer
                future.cancel()  # if it has not begun
                raise
            if not future.cancelled():
                return future.result()

    async def _begun(self, which: Which, make: Callable[[], Waits | None]) -> Future[Waits | None]:
        if (known := self._under_way.get(which)) is not None:
            return known
        await self._places.acquire()
        with self._lock:
            known = self._under_way.get(which)
            begun = None
            if known is None and not self._is_closing:
                begun = self._under_way[which] = self._threads.submit(make)
        if begun is not None:
            # Not under the lock: it is called here and now if the call has ended already.
            begun.add_done_callback(partial(self._end, which))
            return begun
        self._places.give_away()
        if known is None:
            await asyncio.Event().wait()  # until we are disconnected, in a moment
        return await self._begun(which, make)

    def _end(self, which: Which, future: Future[Waits | None]) -> None:
        self._places.give_away()
        with self._lock:
            if self._under_way.get(which) is future:
                del self._under_way[which]

    def close(self) -> None:
        """Begin no more calls."""
        with self._lock:
            self._is_closing = True
            under_way = list(self._under_way.values())
        for future in under_way:
            future.cancel()

    def finish(self) -> None:
        """Wait for the end of the calls under way, which is in their logs then."""
        with self._lock:
            under_way = list(self._under_way.values())
        wait(under_way)
        self._threads.shutdown()


def _end_of(work: Future[Any]) -> asyncio.Future[None]:
    """Done when work is. A waiter that gives up does not end the work, and misses no error of
    it."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    def tell(_: Future[Any]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(end)

    work.add_done_callback(tell)
    return ended


def trouble(id: str, error: BaseException) -> RetryableError:
    """The words for Restate about an error that is not the task's own: it asks again later.

    Not its text, which may hold what is secret or encrypted in the store.
    """
    text = f"task {id!r}: {type(error).__name__}; the log of the worker says more"
    later = _MUCH_LATER if isinstance(error, CodeChanged | CodeMissing) else _LATER
    return RetryableError(text, retry_after=later)
