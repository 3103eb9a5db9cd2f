"""Tasks that start tasks: each child has a log of its own, and is driven by the same engine."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.branches import gather
from holdfast.children import start
from holdfast.errors import StepFailed, TaskCancelled, TaskNotFound
from holdfast.handle import Handle
from holdfast.step import step, tool
from holdfast.task import task
from holdfast.testing.engine_contract.working import (
    PATIENCE_S,
    begin,
    effects,
    new_id,
    until,
)
from holdfast.waiting import ask, sleep


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

    return await gather(one("a"), one("b"), one("c"))


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
