"""Work that an event loop leaves to threads, apart from the threads that users' code leaves it to.

asyncio has one small pool for everybody. If the store had to wait there behind a user's
`to_thread`, or a waiting `result()`, tasks would hold each other up, or for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import cache, partial
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")

_STORE_THREADS = 16
_POLL_S = 0.005


@cache
def _store_pool() -> Executor:
    return ThreadPoolExecutor(_STORE_THREADS, thread_name_prefix="holdfast store")


def off_loop(work: Callable[..., T], *args: Any, pool: Executor | None = None) -> asyncio.Future[T]:
    """Do a short piece of work, such as a sync, in a thread. A future, and no asyncio task: that
    would count as a branch of the task that runs here."""
    call = partial(copy_context().run, work, *args)
    return asyncio.get_running_loop().run_in_executor(pool or _store_pool(), call)


async def in_own_thread(work: Callable[..., T], *args: Any) -> T:
    """Do work that may take long, such as a whole task, in a thread of its own."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    call = partial(copy_context().run, work, *args)

    def settle(value: Any, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)

    def run() -> None:
        try:
            outcome: tuple[Any, BaseException | None] = (call(), None)
        except BaseException as error:
            outcome = (None, error)
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, *outcome)

    thread = Thread(target=run, name="holdfast task", daemon=True)
    thread.start()
    try:
        return await done
    finally:
        # Who was cancelled waits for what can not be.
        while thread.is_alive():  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
