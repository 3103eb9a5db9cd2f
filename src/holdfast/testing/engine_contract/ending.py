"""Stopping a task: for a while, for good, in time, and with what it did taken back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.api.app import Holdfast
from holdfast.api.branches import gather
from holdfast.api.handle import Handle
from holdfast.api.steps import step, tool
from holdfast.api.tasks import task
from holdfast.api.waiting import aask, ask, sleep
from holdfast.core.spec import IdempotencyKey
from holdfast.errors import BadInput, TaskCancelled, TaskFailed, TaskPaused
from holdfast.testing.engine_contract import (
    PATIENCE_S,
    begin,
    effects,
    new_id,
    question,
    until,
)

_NO_KEY = IdempotencyKey()


def _unbook(booked: str, *, key: str) -> None:
    effects[booked] -= 1


async def _aunbook(booked: str, *, key: str) -> None:
    await asyncio.sleep(0)
    effects[booked] -= 1


@tool(undo=_unbook)
def ending_books(what: str, *, key: IdempotencyKey = _NO_KEY) -> str:
    effects[f"booked {what}"] += 1
    return f"booked {what}"


@tool(undo=_aunbook)
async def ending_abooks(what: str, *, key: IdempotencyKey = _NO_KEY) -> str:
    await asyncio.sleep(0)
    effects[f"booked {what}"] += 1
    return f"booked {what}"


@step
def ending_waits_for(gate: str) -> str:
    """Waits for the test, in this process, and not for the engine."""
    until(lambda: effects[gate])
    return gate


@task
def ending_sleeps(tag: str) -> None:
    ending_books(tag)
    sleep(3600)


@task
async def ending_asleeps(tag: str) -> None:
    await ending_abooks(tag)
    await sleep(3600)


@task
def ending_asks(tag: str) -> bool:
    ending_books(tag)
    return bool(ask("Go on?", bool))


@task
async def ending_aasks(tag: str) -> bool:
    await ending_abooks(tag)
    return bool(await aask("Go on?", bool))


@task
def ending_gathers(tag: str) -> list[Any]:
    def books_and_sleeps(what: str) -> None:
        ending_books(what)
        sleep(3600)

    def books_and_asks(what: str) -> None:
        ending_books(what)
        ask("Go on?")

    ending_books(tag)
    return list(
        gather(
            lambda: books_and_sleeps(f"{tag}-a"),
            lambda: books_and_asks(f"{tag}-b"),
        )
    )


@task
async def ending_agathers(tag: str) -> list[Any]:
    async def books_and_sleeps(what: str) -> None:
        await ending_abooks(what)
        await sleep(3600)

    async def books_and_asks(what: str) -> None:
        await ending_abooks(what)
        await aask("Go on?")

    await ending_abooks(tag)
    return list(await gather(books_and_sleeps(f"{tag}-a"), books_and_asks(f"{tag}-b")))


@task
async def ending_waits_for_a_branch(tag: str) -> str:
    """Waits for plain asyncio, which tells it nothing of being paused."""
    booked: asyncio.Queue[str] = asyncio.Queue()

    async def books() -> None:
        ending_waits_for(f"{tag} gate")
        await booked.put(await ending_abooks(tag))

    booking = asyncio.create_task(books())
    found = await booked.get()
    await booking
    return found


@task
def ending_busy(tag: str) -> list[str]:
    return [ending_waits_for(f"{tag} gate"), ending_books(tag)]


@task
async def ending_abusy(tag: str) -> list[str]:
    return [ending_waits_for(f"{tag} gate"), await ending_abooks(tag)]


@task(timeout_s=0.3)
def ending_late(tag: str) -> None:
    ending_books(tag)
    sleep(3600)


@task(timeout_s=0.3)
async def ending_alate(tag: str) -> None:
    await ending_abooks(tag)
    await sleep(3600)


@task(compensate="always")
def ending_fails(tag: str) -> None:
    ending_books(tag)
    ending_books(f"{tag}-more")
    raise ValueError("no rooms")


@task(compensate="always")
async def ending_afails(tag: str) -> None:
    await ending_abooks(tag)
    await ending_abooks(f"{tag}-more")
    raise ValueError("no rooms")


@task
def ending_fails_half_way(tag: str) -> None:
    ending_books(tag)
    raise ValueError("no rooms")


class Ending:
    """Pausing, cancelling, running out of time, undoing."""

    @pytest.mark.parametrize("fn", [ending_busy, ending_abusy])
    def test_a_paused_task_stops_at_its_next_step_until_it_may_go_on(
        self, hf: Holdfast, fn: Any
    ) -> None:
        tag = new_id(fn)
        handle = begin(hf, fn, tag)
        until(lambda: handle.view.calls)
        hf.pause(handle.id, because="lunch")
        effects[f"{tag} gate"] += 1
        until(lambda: handle.status == "paused")
        until(lambda: handle.view.calls[0].status == "completed")
        assert effects[f"booked {tag}"] == 0
        hf.unpause(handle.id)
        assert handle.result(PATIENCE_S) == [f"{tag} gate", f"booked {tag}"]

    def test_a_function_that_waits_for_plain_asyncio_is_paused_with_its_branches(
        self, hf: Holdfast
    ) -> None:
        tag = new_id(ending_waits_for_a_branch)
        handle = begin(hf, ending_waits_for_a_branch, tag)
        until(lambda: handle.view.calls)
        hf.pause(handle.id)
        effects[f"{tag} gate"] += 1
        until(lambda: handle.status == "paused")
        until(lambda: handle.view.calls[0].status == "completed")
        hf.unpause(handle.id)
        assert handle.result(PATIENCE_S) == f"booked {tag}"
        assert effects[f"booked {tag}"] == 1

    @pytest.mark.parametrize("fn", [ending_asks, ending_aasks])
    def test_a_task_that_waits_is_paused_and_keeps_what_it_is_told_meanwhile(
        self, hf: Holdfast, fn: Any
    ) -> None:
        handle = begin(hf, fn, new_id(fn))
        question(handle)
        hf.pause(handle.id)
        until(lambda: handle.status == "paused")
        hf.answer(handle.id, True)
        with pytest.raises(TaskPaused):
            hf.run(fn, handle.view.input["tag"], id=handle.id)
        hf.unpause(handle.id)
        assert handle.result(PATIENCE_S) is True

    def test_a_paused_task_can_be_cancelled(self, hf: Holdfast) -> None:
        tag = new_id(ending_asks)
        handle = begin(hf, ending_asks, tag)
        question(handle)
        hf.pause(handle.id)
        until(lambda: handle.status == "paused")
        hf.cancel(handle.id)
        _is_cancelled(handle)
        assert effects[f"booked {tag}"] == 0

    @pytest.mark.parametrize("fn", [ending_sleeps, ending_asleeps, ending_asks, ending_aasks])
    def test_a_task_that_waits_is_cancelled_and_undone(self, hf: Holdfast, fn: Any) -> None:
        tag = new_id(fn)
        handle = begin(hf, fn, tag)
        until(lambda: len(handle.view.calls) == 2)
        assert effects[f"booked {tag}"] == 1
        hf.cancel(handle.id, because="it rains", by="ada")
        _is_cancelled(handle)
        assert effects[f"booked {tag}"] == 0
        assert handle.view.state.because == "it rains"
        assert [undone.status for undone in handle.view.compensation] == ["undone"]
        with pytest.raises(BadInput):
            hf.cancel(handle.id)

    @pytest.mark.parametrize("fn", [ending_gathers, ending_agathers])
    def test_a_task_is_cancelled_in_the_middle_of_its_branches(self, hf: Holdfast, fn: Any) -> None:
        tag = new_id(fn)
        handle = begin(hf, fn, tag)
        until(lambda: len(handle.view.calls) == 5)
        hf.cancel(handle.id)
        _is_cancelled(handle)
        assert [effects[f"booked {what}"] for what in (tag, f"{tag}-a", f"{tag}-b")] == [0] * 3
        assert {undone.status for undone in handle.view.compensation} == {"undone"}

    @pytest.mark.parametrize("fn", [ending_busy, ending_abusy])
    def test_a_task_at_work_is_cancelled_at_its_next_step(self, hf: Holdfast, fn: Any) -> None:
        tag = new_id(fn)
        handle = begin(hf, fn, tag)
        until(lambda: handle.view.calls)
        hf.cancel(handle.id)
        effects[f"{tag} gate"] += 1
        _is_cancelled(handle)
        assert effects[f"booked {tag}"] == 0
        assert handle.view.calls[0].status == "completed"

    @pytest.mark.parametrize("fn", [ending_late, ending_alate])
    def test_a_task_whose_time_is_up_ends(self, hf: Holdfast, fn: Any) -> None:
        tag = new_id(fn)
        handle = begin(hf, fn, tag)
        with pytest.raises(TaskFailed) as failed:
            handle.result(PATIENCE_S)
        assert failed.value.failure.timed_out

    @pytest.mark.parametrize("fn", [ending_fails, ending_afails])
    def test_a_task_that_fails_is_undone_if_it_says_so(self, hf: Holdfast, fn: Any) -> None:
        tag = new_id(fn)
        handle = begin(hf, fn, tag)
        with pytest.raises(TaskFailed, match="no rooms"):
            handle.result(PATIENCE_S)
        assert [effects[f"booked {what}"] for what in (tag, f"{tag}-more")] == [0, 0]
        assert [undone.path for undone in handle.view.compensation] == ["2", "1"]

    def test_a_task_that_failed_is_undone_by_hand(self, hf: Holdfast) -> None:
        tag = new_id(ending_fails_half_way)
        handle = begin(hf, ending_fails_half_way, tag)
        with pytest.raises(TaskFailed, match="no rooms"):
            handle.result(PATIENCE_S)
        assert effects[f"booked {tag}"] == 1
        view = hf.compensate(handle.id)
        assert (view.status, effects[f"booked {tag}"]) == ("failed", 0)


def _is_cancelled(handle: Handle[Any]) -> None:
    with pytest.raises(TaskCancelled):
        handle.result(PATIENCE_S)
