"""Absurd, in PostgreSQL: a task of n steps, driven by its worker. The place is a database's URL."""

import asyncio
import time
from importlib.metadata import version
from typing import Any

from absurd_sdk import Absurd, AsyncAbsurd
from absurdctl import BUNDLED_SCHEMA_SQL

notes = [f"absurd-sdk {version('absurd-sdk')}"]


def count(params: Any, ctx: Any) -> int:
    x = 0
    for _ in range(params["n"]):
        x = ctx.step("add", lambda x=x: x + 1)
    if params.get("stop"):
        raise KeyboardInterrupt
    return x


async def count_async(params: Any, ctx: Any) -> int:
    x = 0
    for _ in range(params["n"]):
        x = await ctx.step("add", _adds(x))
    return x


def _adds(x: int) -> Any:
    async def add() -> int:
        return x + 1

    return add


def converse(params: Any, ctx: Any) -> int:
    messages: list[dict[str, str]] = []
    for number in range(params["n"]):
        text = ctx.step("reply", lambda: f"{len(messages)} {'blah ' * 200}")
        messages.append({"role": "assistant", "content": text})
        assert number < len(messages)
    return len(messages)


def _app(place: str) -> Absurd:
    app = Absurd(str(place))
    app.register_task("count")(count)
    app.register_task("converse")(converse)
    return app


def _set_up(place: str) -> Absurd:
    app = _app(place)
    app._conn.execute(BUNDLED_SCHEMA_SQL.encode())  # as its `absurdctl init` does
    app.create_queue()
    return app


def _done(app: Absurd, task: str, n: int) -> float:
    start = time.perf_counter()
    made = app.spawn(task, {"n": n})
    app.work_batch()
    seconds = time.perf_counter() - start
    result = app.fetch_task_result(made["task_id"])
    assert result is not None and result.state == "completed", result
    assert result.result == n
    return seconds


def run(n: int, place: str) -> float:
    return _done(_set_up(place), "count", n)


def talk(n: int, place: str) -> float:
    return _done(_set_up(place), "converse", n)


def record(n: int, place: str) -> float:
    """n steps of a task that then dies."""
    app = _set_up(place)
    app._conn.execute("set synchronous_commit = off")
    app.spawn("count", {"n": n, "stop": True})
    start = time.perf_counter()
    try:
        app.work_batch(claim_timeout=1)
    except KeyboardInterrupt:
        return time.perf_counter() - start
    raise AssertionError("the task was to die and did not")


def resume(n: int, place: str) -> float:
    """From the claim of a new process to the end of the recorded steps."""
    app = _app(place)
    while True:
        start = time.perf_counter()
        try:
            app.work_batch(claim_timeout=1)
        except KeyboardInterrupt:
            return time.perf_counter() - start
        time.sleep(0.05)  # the claim of the process that died has not run out


def many(tasks: int, steps: int, place: str) -> float:
    _set_up(place).close()
    return asyncio.run(_many(tasks, steps, str(place)))


async def _many(tasks: int, steps: int, place: str) -> float:
    app = AsyncAbsurd(place)
    ended = 0

    @app.register_task("count")
    async def counted(params: Any, ctx: Any) -> int:
        nonlocal ended
        x = await count_async(params, ctx)
        assert x == steps
        ended += 1
        if ended == tasks:
            app.stop_worker()
        return x

    start = time.perf_counter()
    for _ in range(tasks):
        await app.spawn("count", {"n": steps})
    await app.start_worker(concurrency=tasks)
    seconds = time.perf_counter() - start
    await app.close()
    assert ended == tasks
    return seconds
