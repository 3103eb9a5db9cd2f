"""Tasks that use as much as they can, to see whether their logs are the same everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from holdfast.agent import external, fact
from holdfast.branches import each, gather
from holdfast.checkpoints import checkpoint, restore
from holdfast.children import start
from holdfast.decisions import decide
from holdfast.errors import StepFailed
from holdfast.spec import IdempotencyKey, Retry
from holdfast.step import step, tool
from holdfast.task import current, note, patched, task
from holdfast.waiting import ask, now, random, sleep, uuid
from holdfast.workspace import files

async_files: Any = files
"""In an async task each call is awaited, which their types don't say."""

_NO_KEY = IdempotencyKey()
_QUICK = Retry(attempts=2, delay_s=0.01, jitter=0)


def _unbook(booked: str, *, key: str) -> None: ...


@tool(undo=_unbook, retry=_QUICK)
def logs_book(what: str, *, key: IdempotencyKey = _NO_KEY) -> str:
    if current().attempt == 1:
        raise ConnectionError(f"no route to {what}")
    return f"booked {what}"


@tool(undo=_unbook, retry=_QUICK)
async def logs_abook(what: str, *, key: IdempotencyKey = _NO_KEY) -> str:
    await asyncio.sleep(0)
    if current().attempt == 1:
        raise ConnectionError(f"no route to {what}")
    return f"booked {what}"


@tool(approve=True)
def logs_pay(amount: int) -> int:
    return amount


@step(retry=_QUICK)
def logs_fails() -> None:
    raise ValueError("never")


@step
def logs_inner(number: int) -> int:
    return number + 1


@step
def logs_outer(number: int) -> int:
    note("inside")
    return logs_inner(number) + logs_inner(number)


@step
def logs_words() -> Iterator[str]:
    yield from ("a", "conger", "eel")


@step
async def logs_awords() -> AsyncIterator[str]:
    for word in ("a", "conger", "eel"):
        yield word


@external(ttl_s=3600)
def logs_weather(city: str) -> str:
    return f"rain in {city}"


@task(version=1)
def logs_loop(rounds: int) -> list[int]:
    seen = restore(list[int]())
    while len(seen) < rounds:
        seen = checkpoint([*seen, logs_inner(len(seen))])
    return seen


@task(compensate="failed")
def logs_in_vain() -> None:
    logs_book("in vain")
    logs_fails()


@task
def logs_everything(guests: int) -> dict[str, Any]:
    current().plan(["go", "come back"])
    seen: dict[str, Any] = {"id": str(uuid()), "chance": random()}
    begun = now()
    seen["room"] = decide("room", "attic", options=["attic", "cellar"], because="it has a desk")
    seen["booked"] = logs_book("a room")
    try:
        logs_fails()
    except StepFailed as failed:
        seen["failed"] = failed.failure.message
    seen["outer"] = logs_outer(guests)
    seen["each"] = list(each(logs_inner, range(guests), workers=2))
    seen["both"] = gather(lambda: logs_book("one"), lambda: [logs_inner(1), logs_inner(2)])
    note("half-way", data={"guests": guests})
    current().mark("1", "done")
    sleep(0.01)
    seen["add"] = ask("Anything to add?", timeout_s=0.02, default="no")
    seen["why"] = ask("Sure?", bool, id="sure")
    seen["paid"] = logs_pay(70)
    loop = start(logs_loop, 3)
    try:
        start(logs_in_vain).result()
    except StepFailed as failed:
        seen["in vain"] = failed.failure.type
    seen["loop"] = loop.result()
    seen["weather"] = [logs_weather("Oslo"), logs_weather("Oslo")]
    seen["fact"] = fact("weather", "wet", of=[logs_weather.reading("Oslo")])
    files.write("report.md", "# The sea\n")
    seen["text"] = files.read_text("report.md")
    seen["words"] = list(logs_words())
    seen["new"] = patched("new-way")
    seen["last"] = ask("Done?", bool, id="done")
    return {**seen, "later": now() >= begun}


@task
async def logs_aeverything(guests: int) -> dict[str, Any]:
    async def two() -> list[int]:
        return [logs_inner(1), logs_inner(2)]

    current().plan(["go", "come back"])
    seen: dict[str, Any] = {"id": str(uuid()), "chance": random()}
    begun = now()
    seen["room"] = decide("room", "attic", options=["attic", "cellar"], because="it has a desk")
    seen["booked"] = await logs_abook("a room")
    try:
        logs_fails()
    except StepFailed as failed:
        seen["failed"] = failed.failure.message
    seen["outer"] = logs_outer(guests)
    seen["each"] = list(await each(logs_abook, [f"guest {n}" for n in range(guests)], workers=2))
    seen["both"] = await gather(logs_abook("one"), two())
    seen["plain"] = await asyncio.gather(logs_abook("two"), two())
    note("half-way", data={"guests": guests})
    current().mark("1", "done")
    await sleep(0.01)
    seen["add"] = await ask("Anything to add?", timeout_s=0.02, default="no")
    seen["why"] = await ask("Sure?", bool, id="sure")
    seen["paid"] = logs_pay(70)
    loop = await start(logs_loop, 3).started()
    try:
        await start(logs_in_vain)
    except StepFailed as failed:
        seen["in vain"] = failed.failure.type
    seen["loop"] = await loop
    await async_files.write("report.md", "# The sea\n")
    seen["text"] = await async_files.read_text("report.md")
    seen["words"] = [word async for word in logs_awords()]
    seen["new"] = patched("new-way")
    seen["last"] = await ask("Done?", bool, id="done")
    return {**seen, "later": now() >= begun}


@task
def logs_cancelled() -> None:
    logs_book("a room")
    logs_book("a flight")
    ask("Go on?", bool)
