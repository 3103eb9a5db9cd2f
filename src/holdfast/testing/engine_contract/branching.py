"""Branches of a task: they run side by side, and each call is made once in its place."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.branches import each, gather
from holdfast.errors import EachFailed, StepFailed
from holdfast.spec import Retry
from holdfast.step import step
from holdfast.task import current, task
from holdfast.testing.engine_contract.working import (
    PATIENCE_S,
    begin,
    calls,
    effects,
    new_id,
    result,
)
from holdfast.waiting import sleep


@step
def branching_double(tag: str, number: int) -> int:
    effects[f"double {tag} {number}"] += 1
    return 2 * number


@step
async def branching_adouble(tag: str, number: int) -> int:
    effects[f"double {tag} {number}"] += 1
    await asyncio.sleep(0.002 * (number % 3))
    return 2 * number


@step(retry=Retry(attempts=2, delay_s=0.01))
def branching_odd(number: int) -> int:
    if number % 2 == 0 or current().attempt == 1:
        raise ValueError(f"{number} is even")
    return number


@step(retry=Retry(attempts=2, delay_s=0.01))
async def branching_aodd(number: int) -> int:
    await asyncio.sleep(0)
    if number % 2 == 0 or current().attempt == 1:
        raise ValueError(f"{number} is even")
    return number


@task
def branching_gather(tag: str) -> list[Any]:
    def two(first: int) -> list[int]:
        return [branching_double(tag, first), branching_double(tag, first + 1)]

    def naps() -> str:
        sleep(0.01)
        return f"{branching_double(tag, 10)}"

    return gather(lambda: two(1), lambda: gather(lambda: two(3), lambda: two(5)), naps)


@task
async def branching_agather(tag: str) -> list[Any]:
    async def two(first: int) -> list[int]:
        return [await branching_adouble(tag, first), await branching_adouble(tag, first + 1)]

    async def naps() -> str:
        await sleep(0.01)
        return f"{await branching_adouble(tag, 10)}"

    async def inner() -> list[Any]:
        return await gather(two(3), two(5))

    return await gather(two(1), inner(), naps())


@task
async def branching_asyncio(tag: str) -> list[list[int]]:
    async def two(first: int) -> list[int]:
        return [await branching_adouble(tag, first), await branching_adouble(tag, first + 1)]

    there = await asyncio.gather(two(1), two(3))
    async with asyncio.TaskGroup() as group:
        more = [group.create_task(two(n)) for n in (5, 7)]
    return [*there, *(one.result() for one in more)]


@task
async def branching_mixed_waits(tag: str) -> list[int]:
    """Steps in the order in which plain asyncio lets them go on."""
    turn, order = asyncio.Event(), list[int]()

    async def first() -> None:
        await turn.wait()
        order.append(await branching_adouble(tag, 1))

    async def second() -> None:
        order.append(await branching_adouble(tag, 2))
        await asyncio.sleep(0.005)
        turn.set()
        order.append(await branching_adouble(tag, 3))

    await asyncio.gather(first(), second())
    return sorted(order)


@task
def branching_each(tag: str, count: int) -> list[int]:
    return list(each(branching_pair, [(tag, n) for n in range(count)], workers=4))


@step
def branching_pair(item: tuple[str, int]) -> int:
    return branching_double(*item)


@task
async def branching_aeach(tag: str, count: int) -> list[int]:
    return list(await each(branching_apair, [(tag, n) for n in range(count)], workers=4))


@step
async def branching_apair(item: tuple[str, int]) -> int:
    return await branching_adouble(*item)


@task
def branching_tolerates(tolerate: int) -> list[Any]:
    try:
        ended = each(branching_odd, range(1, 5), tolerate=tolerate)
    except EachFailed as failed:
        return [type(failed).__name__]
    return [*ended, [failure.item for failure in ended.failures]]


@task
async def branching_atolerates(tolerate: int) -> list[Any]:
    try:
        ended = await each(branching_aodd, range(1, 5), tolerate=tolerate)
    except EachFailed as failed:
        return [type(failed).__name__]
    return [*ended, [failure.item for failure in ended.failures]]


@task
def branching_one_fails(tag: str) -> str:
    try:
        gather(lambda: branching_odd(2), lambda: branching_double(tag, 1))
    except StepFailed as failed:
        return failed.failure.message
    return "none failed"


@task
async def branching_aone_fails(tag: str) -> str:
    try:
        await gather(branching_aodd(2), branching_adouble(tag, 1))
    except StepFailed as failed:
        return failed.failure.message
    return "none failed"


class Branching:
    """What a task does side by side."""

    @pytest.mark.parametrize("fn", [branching_gather, branching_agather])
    def test_gathered_branches_come_together_in_their_order(self, hf: Holdfast, fn: Any) -> None:
        tag = new_id(fn)
        assert result(hf, fn, tag) == [[2, 4], [[6, 8], [10, 12]], "20"]
        assert [effects[f"double {tag} {n}"] for n in (1, 2, 3, 4, 5, 6, 10)] == [1] * 7

    def test_plain_asyncio_gathers_and_groups_steps_too(self, hf: Holdfast) -> None:
        tag = new_id(branching_asyncio)
        assert result(hf, branching_asyncio, tag) == [[2, 4], [6, 8], [10, 12], [14, 16]]
        assert [effects[f"double {tag} {n}"] for n in range(1, 9)] == [1] * 8

    def test_plain_asyncio_waits_and_wakes_between_steps(self, hf: Holdfast) -> None:
        tag = new_id(branching_mixed_waits)
        assert result(hf, branching_mixed_waits, tag) == [2, 4, 6]
        assert [effects[f"double {tag} {n}"] for n in (1, 2, 3)] == [1] * 3

    @pytest.mark.parametrize("fn", [branching_each, branching_aeach])
    def test_each_item_is_made_once_and_the_results_are_in_order(
        self, hf: Holdfast, fn: Any
    ) -> None:
        tag = new_id(fn)
        assert result(hf, fn, tag, 9) == [2 * n for n in range(9)]
        assert [effects[f"double {tag} {n}"] for n in range(9)] == [1] * 9

    @pytest.mark.parametrize("fn", [branching_tolerates, branching_atolerates])
    def test_as_many_items_may_fail_as_are_tolerated(self, hf: Holdfast, fn: Any) -> None:
        handle = begin(hf, fn, 2)
        assert handle.result(PATIENCE_S) == [1, None, 3, None, [2, 4]]
        assert len(calls(handle)) == 4
        assert result(hf, fn, 1) == ["EachFailed"]

    @pytest.mark.parametrize("fn", [branching_one_fails, branching_aone_fails])
    def test_a_branch_that_fails_raises_where_they_come_together(
        self, hf: Holdfast, fn: Any
    ) -> None:
        assert result(hf, fn, new_id(fn)) == "2 is even"
