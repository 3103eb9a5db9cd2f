"""Tasks are driven to their end, once, and the engine knows of those that it drives."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.engines.elsewhere import job_for
from holdfast.engines.port import Driven, Job
from holdfast.errors import TaskFailed, Unserializable, WrongArguments
from holdfast.step import step, tool
from holdfast.task import task
from holdfast.testing.engine_contract.working import (
    PATIENCE_S,
    begin,
    effects,
    new_id,
    question,
    result,
    until,
)
from holdfast.waiting import ask


@tool
def starting_greet(name: str) -> str:
    effects[f"greet {name}"] += 1
    return f"hello {name}"


@tool
async def starting_agreet(name: str) -> str:
    effects[f"greet {name}"] += 1
    await asyncio.sleep(0)
    return f"hello {name}"


@task
def starting_plain(name: str) -> str:
    return starting_greet(name)


@task
async def starting_async(name: str) -> str:
    return await starting_agreet(name)


@task
async def starting_mixed(name: str) -> list[str]:
    return [starting_greet(name), await starting_agreet(name)]


@task
def starting_without_calls(number: int) -> int:
    return 2 * number


@task
def starting_asks(name: str) -> bool:
    starting_greet(name)
    return bool(ask("Go on?", bool))


@step
def starting_size(text: str) -> int:
    return len(text)


@task
def starting_long_text(length: int) -> tuple[int, str]:
    text = "x" * length
    return starting_size(text), text


BOTH = pytest.mark.parametrize("fn", [starting_plain, starting_async])


class Starting:
    """From start to end."""

    @BOTH
    def test_a_task_that_is_started_is_driven_to_its_end(self, hf: Holdfast, fn: Any) -> None:
        name = new_id(fn)
        handle = begin(hf, fn, name)
        assert handle.result(PATIENCE_S) == f"hello {name}"
        assert (handle.status, effects[f"greet {name}"]) == ("completed", 1)

    @BOTH
    def test_run_waits_for_the_result_and_run_again_returns_the_recorded_one(
        self, hf: Holdfast, fn: Any
    ) -> None:
        id = new_id(fn)
        assert hf.run(fn, id, id=id) == hf.run(fn, id, id=id) == hf.resume(id) == f"hello {id}"
        assert effects[f"greet {id}"] == 1

    @BOTH
    def test_arun_does_the_same_for_async_code(self, hf: Holdfast, fn: Any) -> None:
        id = new_id(fn)

        async def twice() -> list[str]:
            return [await hf.arun(fn, id, id=id), await hf.arun(fn, id, id=id)]

        assert asyncio.run(twice()) == [f"hello {id}"] * 2
        assert effects[f"greet {id}"] == 1

    def test_an_async_task_may_call_sync_steps_as_well(self, hf: Holdfast) -> None:
        name = new_id(starting_mixed)
        assert result(hf, starting_mixed, name) == [f"hello {name}"] * 2
        assert effects[f"greet {name}"] == 2

    def test_a_task_without_calls_is_driven_too(self, hf: Holdfast) -> None:
        assert result(hf, starting_without_calls, 21) == 42

    def test_started_twice_a_task_is_one(self, hf: Holdfast) -> None:
        id = new_id(starting_asks)
        first = hf.start(starting_asks, id, id=id)
        again = hf.start(starting_asks, id, id=id)
        question(first)
        hf.start(starting_asks, id, id=id)
        hf.answer(id, True)
        assert [first.result(PATIENCE_S), again.result(PATIENCE_S)] == [True, True]
        hf.start(starting_asks, id, id=id)
        assert effects[f"greet {id}"] == 1

    def test_a_job_that_is_started_or_told_of_nothing_again_changes_nothing(
        self, hf: Holdfast
    ) -> None:
        handle = begin(hf, starting_asks, new_id(starting_asks))
        question(handle)
        job = job_for(handle.view.state)
        for _ in range(2):
            hf.engine.start(job)
            hf.engine.tell(job, "nothing-1")
        hf.answer(handle.id, False)
        assert handle.result(PATIENCE_S) is False
        assert effects[f"greet {handle.view.input['name']}"] == 1

    def test_another_task_or_other_arguments_under_the_same_id_are_refused(
        self, hf: Holdfast
    ) -> None:
        id = new_id(starting_plain)
        hf.start(starting_plain, id, id=id).result(PATIENCE_S)
        with pytest.raises(WrongArguments):
            hf.start(starting_plain, "another", id=id)
        with pytest.raises(WrongArguments):
            hf.start(starting_async, id, id=id)

    def test_an_engine_knows_nothing_of_what_it_was_never_given(self, hf: Holdfast) -> None:
        assert hf.engine.query(Job(new_id(starting_plain), "starting_plain", 1, "no log")) is None

    def test_an_engine_knows_what_is_under_way_and_what_has_ended(self, hf: Holdfast) -> None:
        handle = begin(hf, starting_asks, new_id(starting_asks))
        question(handle)
        job = job_for(handle.view.state)
        if hf.engine.name != "local":  # there nobody has a task in hand that waits
            assert _known(hf, job).status == "running"
        hf.answer(handle.id, True)
        handle.result(PATIENCE_S)
        until(lambda: _known(hf, job).status == "ended")

    def test_a_task_that_is_taken_from_an_engine_by_force_begins_anew_there(
        self, hf: Holdfast
    ) -> None:
        handle = begin(hf, starting_asks, new_id(starting_asks))
        question(handle)
        before = job_for(handle.view.state)
        moved = hf.move(handle.id, force=True)
        if hf.engine.name != "local":  # which has nothing to begin anew
            assert moved == (handle.id,)
            assert _known(hf, job_for(handle.view.state)).status == "running"
            until(lambda: not _drives(hf, before))
        hf.answer(handle.id, True)
        assert handle.result(PATIENCE_S) is True

    def test_a_task_whose_code_changed_its_result_to_what_nobody_can_store_fails(
        self, hf: Holdfast
    ) -> None:
        with pytest.raises(TaskFailed) as failed:
            result(hf, starting_unserializable)
        assert failed.value.failure.type == Unserializable.__name__

    def test_long_values_go_through(self, hf: Holdfast) -> None:
        length = 3_000_000
        assert result(hf, starting_long_text, length) == (length, "x" * length)


@task
def starting_unserializable() -> object:
    return object()


def _drives(hf: Holdfast, job: Job) -> bool:
    known = hf.engine.query(job)
    return known is not None and known.status == "running"


def _known(hf: Holdfast, job: Job) -> Driven:
    known = hf.engine.query(job)
    assert known is not None
    assert (known.id, known.engine) == (job.id, hf.engine.name)
    return known
