"""How the strands of an async task come to a stop together.

A strand that has to stop lets the calls come to their end that others are making, and raises then.
Whoever does not hear of that, because he waits for plain asyncio, is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from holdfast.engines.alarm import Alarm
from holdfast.engines.run import Run
from holdfast.errors import Signal, Suspend, TaskWaiting
from holdfast.state import scope_of

_QUIET_S = 0.02


async def park(run: Run, path: str, waiting: TaskWaiting) -> None:
    """Let the other branches work on until all of them wait for something too; then stop.

    Returns if the task was told something meanwhile: it may be what the call waits for.
    """
    _give_up(run, path)
    told = run.log.messages
    run.log.waits.append(waiting.until)
    while True:
        # Others may be about to make their first call, or their next one.
        await asyncio.sleep(_QUIET_S)
        if not run.in_flight:
            break
        await asyncio.wait(list(run.in_flight.values()))
    if run.log.messages != told and run.stop is None:
        run.log.waits.remove(waiting.until)
        return
    run.stop = run.stop or Suspend(waiting)
    _raise_in(run, path, run.stop)


async def stop(run: Run, path: str) -> NoReturn:
    """Stop this strand, but let the calls that other branches are making come to their end:
    raising at once would make a `TaskGroup` cancel them, and leave them in doubt."""
    _give_up(run, path)
    while isinstance(run.stop, Suspend) and run.in_flight:
        await asyncio.wait(list(run.in_flight.values()))
    told = Suspend(TaskWaiting(run.task_id, "told to stop"))
    _raise_in(run, path, run.stop or told)


def _raise_in(run: Run, path: str, signal: Signal) -> NoReturn:
    if isinstance(run.alarm, Alarm):
        run.alarm.leave_soon(signal)
    run.raise_in(path, signal)


def _give_up(run: Run, path: str) -> None:
    # This call, and those it was made in, won't end in this run: nobody needs to wait for them.
    while path:
        if path in run.in_flight:
            land(run, path, run.in_flight[path])
        path = scope_of(path)


def land(run: Run, path: str, mark: asyncio.Future[None]) -> None:
    """A call under way has come to its end, or nobody needs to wait for it."""
    if run.in_flight.get(path) is mark:
        del run.in_flight[path]
    if not mark.done():
        mark.set_result(None)


@contextmanager
def under_way(run: Run, path: str) -> Iterator[None]:
    """A call is under way: others that have to stop let it come to its end first."""
    mark = run.in_flight[path] = asyncio.get_running_loop().create_future()
    try:
        yield
    finally:
        land(run, path, mark)
