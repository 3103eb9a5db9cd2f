"""A task that is told to stop stops at every call it still makes, whatever its code catches."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Holdfast, TaskWaiting, aask, ask, each, gather, note, now, sleep, step, task
from holdfast.errors import Suspend

SEEN: list[str] = []


@step
def stopped_step() -> int:
    SEEN.append("a body")
    return 1


@step
async def stopped_astep() -> int:
    SEEN.append("a body")
    return 1


CALLS = {
    "step": stopped_step,
    "ask": lambda: ask("And now?"),
    "sleep": lambda: sleep(1),
    "now": now,
    "gather": lambda: gather(stopped_step),
    "each": lambda: each(lambda _: stopped_step(), [1]),
    "note": lambda: note("x"),
}
ACALLS: dict[str, Any] = {
    "step": stopped_astep,
    "ask": lambda: ask("And now?"),
    "sleep": lambda: sleep(1),
}


@task
def stopped_task(name: str) -> None:
    try:
        ask("Really?")
    finally:
        try:
            CALLS[name]()
        except BaseException as signal:
            SEEN.append(type(signal).__name__)
            raise


@task
async def stopped_atask(name: str) -> None:
    try:
        await aask("Really?")
    finally:
        try:
            await ACALLS[name]()
        except BaseException as signal:
            SEEN.append(type(signal).__name__)
            raise


@pytest.mark.parametrize("name", CALLS)
def test_a_sync_task_that_suspends_makes_no_more_calls(name):
    SEEN.clear()
    with Holdfast("memory://") as hf:
        with pytest.raises(TaskWaiting, match="Really"):
            hf.run(stopped_task, name, id="t")
        assert [Suspend.__name__] == SEEN
        assert hf.task("t").status == "awaiting_user"
        assert [call.name for call in hf.task("t").calls] == ["ask"]


@pytest.mark.parametrize("name", ACALLS)
def test_an_async_task_that_suspends_makes_no_more_calls(name):
    SEEN.clear()
    with Holdfast("memory://") as hf:
        with pytest.raises(TaskWaiting, match="Really"):
            asyncio.run(hf.arun(stopped_atask, name, id="t"))
        assert [Suspend.__name__] == SEEN
        assert [call.name for call in hf.task("t").calls] == ["ask"]
