"""Tasks that start tasks, branches, and messages into a running task."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from holdfast.api.app import Holdfast
from holdfast.api.branches import each, gather
from holdfast.api.handle import Handle
from holdfast.api.steps import step, tool
from holdfast.api.tasks import current, start, task
from holdfast.api.waiting import ask, receive, send, sleep
from holdfast.core.spec import Retry
from holdfast.errors import EachFailed, StepFailed, TaskCancelled, TaskNotFound
from holdfast.testing.engine_contract import (
    PATIENCE_S,
    begin,
    calls,
    effects,
    new_id,
    result,
    until,
)


@step
def families_count(tag: str) -> int:
    effects[f"count {tag}"] += 1
    return effects[f"count {tag}"]


@task
def families_child(tag: str) -> str:
    return f"{tag} {families_count(tag)}"


@task
async def families_achild(tag: str) -> str:
    await asyncio.sleep(0)
    return f"{tag} {families_count(tag)}"


@task
def families_parent(tag: str) -> list[str]:
    children = [start(families_child, f"{tag}-a"), start(families_achild, f"{tag}-b")]
    return [child.result() for child in children]


@task
async def families_aparent(tag: str) -> list[str]:
    first = await start(families_child, f"{tag}-a").started()
    return [await start(families_achild, f"{tag}-b"), await first]


@task
async def families_side_by_side(tag: str) -> list[str]:
    async def one(name: str) -> str:
        return await start(families_achild, f"{tag}-{name}")

    return list(await gather(one("a"), one("b"), one("c")))


@task
def families_late_child(tag: str) -> str:
    sleep(0.2)
    return f"{tag} {families_count(tag)}"


@tool
def families_has_it_done(tag: str) -> str:
    return start(families_late_child, tag).result()


@task
def families_by_tool(tag: str) -> str:
    return families_has_it_done(tag)


@task
def families_fails(tag: str) -> None:
    families_count(tag)
    raise ValueError(f"{tag} is lost")


@task
def families_of_failing(tag: str) -> str:
    try:
        start(families_fails, tag).result()
    except StepFailed as failed:
        return f"{failed.failure.type}: {failed.failure.message}"
    return "none failed"


@task
async def families_aof_failing(tag: str) -> str:
    try:
        await start(families_fails, tag)
    except StepFailed as failed:
        return f"{failed.failure.type}: {failed.failure.message}"
    return "none failed"


@task
def families_asks(tag: str) -> str:
    return f"{tag} {ask('Go on?')}"


@task
def families_middle(tag: str) -> str:
    return f"{start(families_asks, tag).result()}!"


@task
def families_grandparent(tag: str) -> str:
    return f"{start(families_middle, tag).result()}!"


@task
async def families_agrandparent(tag: str) -> str:
    return f"{await start(families_middle, tag)}!"


@task
def families_leaves(tag: str) -> None:
    start(families_asks, tag, on_cancel="leave")
    start(families_asks, tag)
    ask("Go on?")


@step
def families_starts_in_step(tag: str) -> str:
    return f"{start(families_child, tag).result()} in a step"


@task
def families_by_step(tag: str) -> str:
    return families_starts_in_step(tag)


class Families:
    """Children, and what becomes of them."""

    @pytest.mark.parametrize("fn", [families_parent, families_aparent])
    def test_children_are_driven_and_their_results_come_back(self, hf: Holdfast, fn: Any) -> None:
        tag = new_id(fn)
        handle = begin(hf, fn, tag)
        assert sorted(handle.result(PATIENCE_S)) == [f"{tag}-a 1", f"{tag}-b 1"]
        for call in handle.view.children:
            child = hf.task(call.child)
            assert (child.status, child.state.parent) == ("completed", handle.id)
            assert child.state.driver == handle.view.state.driver

    def test_children_of_branches_are_driven_side_by_side(self, hf: Holdfast) -> None:
        tag = new_id(families_side_by_side)
        handle = begin(hf, families_side_by_side, tag)
        assert handle.result(PATIENCE_S) == [f"{tag}-{name} 1" for name in "abc"]

    @pytest.mark.parametrize("fn", [families_of_failing, families_aof_failing])
    def test_a_child_that_fails_raises_where_its_result_is_wanted(
        self, hf: Holdfast, fn: Any
    ) -> None:
        tag = new_id(fn)
        assert begin(hf, fn, tag).result(PATIENCE_S) == f"ValueError: {tag} is lost"
        assert effects[f"count {tag}"] == 1

    @pytest.mark.parametrize("fn", [families_grandparent, families_agrandparent])
    def test_a_grandchild_asks_and_everybody_goes_on_when_it_is_answered(
        self, hf: Holdfast, fn: Any
    ) -> None:
        handle = begin(hf, fn, "all")
        grandchild = _child(hf, _child(hf, handle.id))
        until(lambda: hf.task(grandchild).questions)
        hf.answer(grandchild, "well")
        assert handle.result(PATIENCE_S) == "all well!!"

    @pytest.mark.parametrize("fn", [families_grandparent, families_agrandparent])
    def test_a_task_that_waits_for_its_child_is_moved_with_it_and_its_parent_goes_on(
        self, hf: Holdfast, fn: Any
    ) -> None:
        handle = begin(hf, fn, "all")
        child = _child(hf, handle.id)
        grandchild = _child(hf, child)
        until(lambda: hf.task(grandchild).questions)
        hf.move(child, "local")
        hf.move(child, hf.engine)
        hf.answer(grandchild, "well")
        assert handle.result(PATIENCE_S) == "all well!!"

    @pytest.mark.parametrize("fn", [families_grandparent, families_agrandparent])
    def test_to_cancel_a_task_cancels_its_children_and_theirs(self, hf: Holdfast, fn: Any) -> None:
        handle = begin(hf, fn, "all")
        child = _child(hf, handle.id)
        grandchild = _child(hf, child)
        until(lambda: hf.task(grandchild).questions)
        hf.cancel(handle.id, because="it rains")
        _is_cancelled(handle)
        statuses = [hf.task(id).status for id in (handle.id, child, grandchild)]
        assert statuses == ["cancelled"] * 3

    def test_a_child_that_is_to_be_left_goes_on_without_its_parent(self, hf: Holdfast) -> None:
        handle = begin(hf, families_leaves, "left")
        until(lambda: handle.view.questions)
        left, cancelled = (call.child for call in handle.view.children)
        for child in (left, cancelled):
            until(partial(_asks, hf, child))
        hf.cancel(handle.id)
        _is_cancelled(handle)
        assert hf.task(cancelled).status == "cancelled"
        hf.answer(left, "alone")
        assert until(lambda: hf.task(left).result) == "left alone"

    def test_tools_that_wait_for_children_leave_room_for_them(self, hf: Holdfast) -> None:
        # More than a worker makes calls at a time.
        tags = [new_id(families_by_tool) for _ in range(20)]
        handles = [begin(hf, families_by_tool, tag) for tag in tags]
        assert [handle.result(PATIENCE_S) for handle in handles] == [f"{tag} 1" for tag in tags]

    def test_a_step_may_start_a_child(self, hf: Holdfast) -> None:
        tag = new_id(families_by_step)
        handle = begin(hf, families_by_step, tag)
        assert handle.result(PATIENCE_S) == f"{tag} 1 in a step"
        assert effects[f"count {tag}"] == 1


def _child(hf: Holdfast, id: str) -> str:
    child = until(lambda: hf.task(id).children)[0].child
    until(lambda: _is_there(hf, child))
    return child


def _asks(hf: Holdfast, id: str) -> bool:
    return _is_there(hf, id) and bool(hf.task(id).questions)


def _is_there(hf: Holdfast, id: str) -> bool:
    """Whether a child was made: its parent says before that it is going to."""
    try:
        return bool(hf.task(id))
    except TaskNotFound:
        return False


def _is_cancelled(handle: Handle[Any]) -> None:
    with pytest.raises(TaskCancelled):
        handle.result(PATIENCE_S)


# Branches of a task: they run side by side, and each call is made once in its place.


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

    return list(gather(lambda: two(1), lambda: gather(lambda: two(3), lambda: two(5)), naps))


@task
async def branching_agather(tag: str) -> list[Any]:
    async def two(first: int) -> list[int]:
        return [await branching_adouble(tag, first), await branching_adouble(tag, first + 1)]

    async def naps() -> str:
        await sleep(0.01)
        return f"{await branching_adouble(tag, 10)}"

    async def inner() -> list[Any]:
        return list(await gather(two(3), two(5)))

    return list(await gather(two(1), inner(), naps()))


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
    """The branches of a task."""

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


# Messages into a running task: by name, in order, each once, also while nobody drives it.


@task
def messages_two() -> list[int]:
    return [receive("number", int), receive("number", int)]


@task
async def messages_atwo() -> list[int]:
    return [await receive("number", int), await receive("number", int)]


@task
def messages_both() -> list[int]:
    return list(gather(lambda: receive("number", int), lambda: receive("number", int)))


@task
async def messages_aboth() -> list[int]:
    both: list[int] = await gather(receive("number", int), receive("number", int))
    return both


@step
def messages_in_step() -> int:
    return int(receive("number", int)) + 1


@task
def messages_by_step() -> int:
    return messages_in_step()


@task
def messages_in_time() -> list[str]:
    first = receive("word", str, timeout_s=0.05, default="none")
    try:
        return [first, receive("word", str, timeout_s=0.05)]
    except StepFailed as error:
        return [first, error.failure.type]


@task
def messages_sends(to: str) -> None:
    send(to, "number", 1)
    send(to, "number", 2)


def _awaits(handle: Handle[Any]) -> bool:
    return any(call.status == "waiting" for call in handle.view.calls)


class Messages:
    """A message is durable when it is sent, and one call gets it."""

    def test_messages_come_in_order_to_a_task_that_waits(self, hf: Holdfast) -> None:
        for fn in (messages_two, messages_atwo):
            handle = begin(hf, fn)
            for number in (3, 1):
                until(partial(_awaits, handle))
                assert hf.send(handle.id, "number", number)
            assert handle.result(PATIENCE_S) == [3, 1]

    def test_messages_that_come_first_wait_for_the_task(self, hf: Holdfast) -> None:
        for fn in (messages_two, messages_atwo):
            handle = begin(hf, fn)
            sent = [hf.send(handle.id, "number", n, id=f"n{n}") for n in (3, 3, 1)]
            assert sent == [True, False, True]
            assert handle.result(PATIENCE_S) == [3, 1]

    def test_branches_get_a_message_each(self, hf: Holdfast) -> None:
        for fn in (messages_both, messages_aboth):
            handle = begin(hf, fn)
            for number in (1, 2):
                hf.send(handle.id, "number", number)
            assert sorted(handle.result(PATIENCE_S)) == [1, 2]

    def test_a_step_receives_too(self, hf: Holdfast) -> None:
        handle = begin(hf, messages_by_step)
        until(lambda: any(call.name == "receive" for call in handle.view.calls))
        hf.send(handle.id, "number", 4)
        assert handle.result(PATIENCE_S) == 5

    def test_a_message_that_does_not_come_is_not_waited_for_forever(self, hf: Holdfast) -> None:
        assert begin(hf, messages_in_time).result(PATIENCE_S) == ["none", "NoMessage"]

    def test_a_task_sends_to_another(self, hf: Holdfast) -> None:
        handle = begin(hf, messages_two)
        begin(hf, messages_sends, handle.id).result(PATIENCE_S)
        assert handle.result(PATIENCE_S) == [1, 2]
