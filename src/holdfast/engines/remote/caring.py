"""Looking after the tasks of an engine, for as long as a worker of it runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from holdfast.engines.port import Engine
from holdfast.engines.sweeping import Memory, sweep
from holdfast.engines.threads import off_loop
from holdfast.errors import HoldfastError
from holdfast.patrol import Patrol
from holdfast.store import Store

_EVERY_S = 1.0


async def look_after(
    store: Store,
    engine: Engine,
    say: Callable[[str], None],
    serve: Callable[[str], None] = lambda task: None,
) -> None:
    """Make a pass over the tasks of an engine about once a second. What stands in the way is said
    once, until it changes or is gone. With `serve` the engine is told who has the code of a type of
    task: it may have forgotten."""
    memory, said, patrol = Memory(), set[str](), Patrol(store)
    while True:
        try:
            for wrong in await off_loop(patrol.step):
                say(wrong)
            swept = await off_loop(sweep, store, engine, memory, time.monotonic())
            trouble = list(swept.trouble)
            for id in swept.started:
                say(f"{id}: started, as {engine.name} did not drive it")
            if swept.unserved:
                await off_loop(serve, swept.unserved)
        except (HoldfastError, OSError) as error:
            trouble = [str(error)]
        # Of a task that was not looked at this time, it is still what it was.
        trouble += memory.trouble.values()
        for text in dict.fromkeys(trouble):
            if text not in said:
                say(text)
        said = set(trouble)
        await asyncio.sleep(_EVERY_S)
