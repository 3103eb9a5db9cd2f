"""Branches of an async task: asyncio tasks with paths that were given beforehand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Protocol

from holdfast.engines import aio, local
from holdfast.engines.branching import branch_asyncio_tasks
from holdfast.engines.run import Run
from holdfast.engines.threads import off_loop
from holdfast.scope import Scope, scope_var
from holdfast.spec import Spec


class Batch(Protocol):
    """What `each` asks of its batch: see `holdfast.branches`."""

    run: Run
    spec: Spec
    meter: Any

    def note(self, outcome: Any) -> None: ...
    def end(self) -> Any: ...
    def stop_if_doomed(self) -> None: ...


async def gather(
    run: Run,
    path: str,
    strands: Sequence[Scope],
    branches: Iterable[Awaitable[Any]],
    ended: Callable[[Run, str, Sequence[Scope], Iterable[Any]], list[Any]],
) -> list[Any]:
    """Run coroutines side by side, each in its strand."""
    branch_asyncio_tasks()
    tasks = [_start(strand, branch) for strand, branch in zip(strands, branches, strict=True)]
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    return ended(run, path, strands, outcomes)


async def each(batch: Batch, calls: Iterator[tuple[str, bytes]], workers: int) -> Any:
    """Make the calls of a batch, so many at a time."""
    running: set[asyncio.Future[Any]] = set()
    has_threads = not batch.spec.is_async and batch.run.driver.has_threads
    pool = ThreadPoolExecutor(workers) if has_threads else None
    try:
        for path, data in calls:
            running.add(asyncio.ensure_future(_call(batch, path, data, pool)))
            if len(running) >= workers:
                running = await _take(batch, running)
        while running:
            running = await _take(batch, running)
    except Exception:
        # The items that are under way come to their end, and may have something to say first.
        await asyncio.gather(*running, return_exceptions=True)
        batch.stop_if_doomed()
        raise
    finally:
        batch.meter.end()
        for left in running:
            left.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if pool is not None:
            pool.shutdown(wait=False)
    return batch.end()


async def _take(batch: Batch, running: set[asyncio.Future[Any]]) -> set[asyncio.Future[Any]]:
    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        batch.note(task.exception() or task.result())
    return running


async def _call(batch: Batch, path: str, data: bytes, pool: Executor | None) -> Any:
    if pool is None:
        return await aio.call_at(batch.run, path, batch.spec, data)
    return await off_loop(local.call_at, batch.run, path, batch.spec, data, pool=pool)


def _start(strand: Scope, branch: Awaitable[Any]) -> asyncio.Task[Any]:
    context = copy_context()
    context.run(scope_var.set, strand)
    return asyncio.get_running_loop().create_task(_await(branch), context=context)


async def _await(branch: Awaitable[Any]) -> Any:
    return await branch
