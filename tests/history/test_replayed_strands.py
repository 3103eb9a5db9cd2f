"""Replay of a log that ends while several strands are under way: none is held up by another.

The first strand comes to the end of the log before the second has come to its recorded call. It
is forced here; threads do it by chance.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from typing import Any

import pytest

from holdfast import Holdfast, each, gather, note, step, task
from holdfast.log.reading import stream_of
from holdfast.stores.memory import Aside

SECOND_ENDED = threading.Event()
CODE: dict[str, Any] = {}
"""How the code runs: with how many workers, whether it is recorded, what the second strand asks."""


@pytest.fixture(autouse=True)
def recording():
    SECOND_ENDED.clear()
    CODE.update(workers=2, is_replay=False, second=2)


def late() -> float:
    """How long the second strand waits before its call, for the first to come to the end."""
    return 0.2 if CODE["is_replay"] else 0.0


def end_second_first(n: int) -> bool:
    """Whether the first call is to wait for the second."""
    if n > 1:
        SECOND_ENDED.set()
    return n == 1 and not SECOND_ENDED.is_set()


@step
def st_step(n: int) -> int:
    if end_second_first(n):
        assert SECOND_ENDED.wait(10)
    return n


@step
async def st_astep(n: int) -> int:
    while end_second_first(n):  # noqa: ASYNC110 - each attempt has a loop of its own
        await asyncio.sleep(0.001)
    return n


@task
def st_each() -> list[int]:
    return each(st_step, [1, CODE["second"]], workers=CODE["workers"])


@task
async def st_async_each() -> list[int]:
    work: Any = each(st_step, [1, CODE["second"]], workers=CODE["workers"])
    return list(await work)


@task
def st_nested() -> list[Any]:
    return list(gather(lambda: gather(lambda: st_step(1)), _second))


def _second() -> int:
    time.sleep(late())
    note("between")
    return gather(lambda: st_step(CODE["second"]))[0]


async def _second_in_thread() -> int:
    await asyncio.sleep(late())
    return await asyncio.to_thread(st_step, CODE["second"])


@task
async def st_threads() -> list[int]:
    return list(await asyncio.gather(asyncio.to_thread(st_step, 1), _second_in_thread()))


@task
async def st_body_and_thread() -> list[int]:
    first = asyncio.create_task(asyncio.to_thread(st_step, 1))
    second = await _second_in_thread()
    return [await first, second]


@task
async def st_body_and_branch() -> list[int]:
    first = asyncio.create_task(st_astep(1))
    await asyncio.sleep(late())
    second = await st_astep(CODE["second"])
    return [await first, second]


@task
async def st_coroutines() -> list[int]:
    async def second() -> int:
        await asyncio.sleep(late())
        note("between")
        return await st_astep(CODE["second"])

    return list(await gather(st_astep(1), second()))


IN_THREADS = [st_each, st_async_each, st_nested, st_body_and_thread]
ALL = [*IN_THREADS, st_threads, st_body_and_branch, st_coroutines]


def cut_anywhere(agent: Any) -> list[Aside]:
    """The stores of a task that was killed after each of its events."""
    stores = []
    with Holdfast("memory://") as hf:
        hf.run(agent, id="t")
        lines = list(hf.store.read(stream_of("t")))
        ends = [line for line in lines if re.search(rb'"type":"(completed|stepped)"', line)]
        assert [b'"result":2' in line for line in ends] == [True, False]
        for length in range(1, len(lines)):
            stores.append(cut := Aside(hf.store))
            cut.take(stream_of("t"), lines[:length])
    return stores


@pytest.mark.parametrize("agent", ALL, ids=lambda agent: agent.__name__)
def test_a_strand_at_the_end_of_the_log_does_not_hold_up_another(agent):
    stores = cut_anywhere(agent)
    CODE.update(workers=1, is_replay=True)
    for store in stores:
        with Holdfast(store) as killed:
            found = killed.replay("t")
            assert (found.same, found.recorded) == (True, "open"), found.summary()


@pytest.mark.parametrize("agent", IN_THREADS, ids=lambda agent: agent.__name__)
def test_what_another_strand_does_otherwise_is_told_all_the_same(agent):
    *_, store = cut_anywhere(agent)
    CODE.update(workers=1, is_replay=True, second=3)
    with Holdfast(store) as killed:
        found = killed.replay("t")
        check = killed.check("t")
    assert found.divergence is not None
    assert 'the code calls st_step({"n":3})' in found.summary()
    assert not check.fits
