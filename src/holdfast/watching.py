"""Waiting for the end of a task that somebody else drives, by looking at its log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from holdfast.news import pause
from holdfast.store import Store
from holdfast.tail import Tail

SHORTEST_S, LONGEST_S = 0.01, 0.25

Looks: TypeAlias = Iterator[float | None]
"""How long to wait until the next look; None when the task has ended."""


def looks(store: Store, id: str, judge: Callable[[Tail], None]) -> Looks:
    """Look at a task until it has ended; `judge` may raise, if there is no point in waiting on."""
    pause_s, tail = SHORTEST_S, Tail(store, id)
    while True:
        for _ in tail.read():
            pass
        if tail.finished:
            yield None
        judge(tail)
        yield pause_s
        pause_s = min(2 * pause_s, LONGEST_S)


def wait(store: Store, looking: Looks) -> None:
    """Look, and wait in between, until the task has ended."""
    while (pause_s := next(looking)) is not None:
        pause(store, pause_s)


async def await_end(looking: Looks) -> None:
    """The same for async code."""
    import asyncio

    from holdfast.engines.threads import off_loop

    while (pause_s := await off_loop(next, looking)) is not None:  # noqa: ASYNC110
        await asyncio.sleep(pause_s)
