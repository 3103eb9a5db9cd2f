"""The same steps with Temporal's SDK alone, as its users write them."""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow

with workflow.unsafe.imports_passed_through():
    from bench.engine_steps import (
        WORKERS,
        Message,
        looked_up,
        made,
        replied,
        said,
        said_before,
    )

QUEUE = "bare"
_LIMIT = timedelta(seconds=30)


@activity.defn
def add(x: int) -> int:
    return made(x)


@activity.defn
def pace() -> dict[str, Any]:
    return said()


@workflow.defn
class Count:
    """Steps one after the other; a long history is continued as a new one."""

    @workflow.run
    async def run(self, n: int, x: int = 0) -> dict[str, Any]:
        while x < n:
            x = await workflow.execute_activity(add, x, start_to_close_timeout=_LIMIT)
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(args=[n, x])
        return await _pace()


@workflow.defn
class Spread:
    """So many at a time."""

    @workflow.run
    async def run(self, n: int) -> dict[str, Any]:
        places = asyncio.Semaphore(WORKERS)

        async def one(x: int) -> int:
            async with places:
                return await workflow.execute_activity(add, x, start_to_close_timeout=_LIMIT)

        results = await asyncio.gather(*(one(x) for x in range(n)))
        assert sum(results) == n * (n + 1) // 2
        return await _pace()


@activity.defn
def model(messages: list[Message]) -> Message:
    return replied(messages)


@activity.defn
def look_up(what: str) -> Message:
    return looked_up(what)


@workflow.defn
class Converse:
    """An agent: a model is given all that was said, and calls a tool, again and again."""

    @workflow.run
    async def run(self, calls: int) -> dict[str, Any]:
        messages = said_before()
        for _ in range(calls):
            said: Message = await workflow.execute_activity(
                model, messages, start_to_close_timeout=_LIMIT
            )
            messages.append(said)
            found: Message = await workflow.execute_activity(
                look_up, said["content"], start_to_close_timeout=_LIMIT
            )
            messages.append(found)
        return {"calls": calls}


async def _pace() -> dict[str, Any]:
    return await workflow.execute_activity(pace, start_to_close_timeout=_LIMIT)
