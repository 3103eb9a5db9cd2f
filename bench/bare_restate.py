"""The same steps with Restate's SDK alone, as its users write them."""

from typing import Any

import restate
from restate import RestateDurableFuture, Workflow, WorkflowContext

from bench.engine_steps import WORKERS, made, said

bare = Workflow("Bare")


@bare.main()
async def run(ctx: WorkflowContext, asked: dict[str, int]) -> dict[str, Any]:
    n = asked["n"]
    done = await (_spread(ctx, n) if asked.get("spread") else _count(ctx, n))
    assert done == n
    return await ctx.run_typed("pace", said)


async def _count(ctx: WorkflowContext, n: int) -> int:
    x = 0
    for _ in range(n):
        x = await ctx.run_typed("add", made, x=x)
    return x


async def _spread(ctx: WorkflowContext, n: int) -> int:
    """So many at a time."""
    running: list[RestateDurableFuture[int]] = []
    done = 0
    for x in range(n):
        running.append(ctx.run_typed("add", made, x=x))
        if len(running) == WORKERS:
            ended, running = await restate.wait_completed(*running)
            done += len(ended)
    return done + len(await restate.gather(*running))
