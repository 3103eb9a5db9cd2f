"""Tasks are driven to their end, once, and the engine knows of those that it drives."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.api.app import Holdfast
from holdfast.api.steps import step, tool
from holdfast.api.tasks import current, task
from holdfast.api.waiting import aask, ask, uuid
from holdfast.core.spec import Retry
from holdfast.engines.port import Driven, Job
from holdfast.engines.routing import job_for
from holdfast.errors import (
    DrivenElsewhere,
    TaskCancelled,
    TaskFailed,
    Unanswered,
    Unserializable,
    WrongArguments,
)
from holdfast.testing.engine_contract import (
    PATIENCE_S,
    begin,
    effects,
    new_id,
    question,
    result,
    until,
    working,
)


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


# The operations on a log work on the logs of an engine: moving, forking, replaying, checking.


@step
def travelling_looks(tag: str, place: str) -> str:
    effects[f"look {tag} {place}"] += 1
    return f"{place} is fine"


@step
async def travelling_alooks(tag: str, place: str) -> str:
    effects[f"look {tag} {place}"] += 1
    return f"{place} is fine"


@step(retry=Retry(attempts=2, delay_s=0.3, jitter=0))
def travelling_retries(tag: str) -> int:
    effects[f"retry {tag}"] += 1
    if current().attempt == 1:
        raise ConnectionError("no route")
    return current().attempt


@task
def travelling_goes(tag: str) -> list[Any]:
    first = travelling_looks(tag, "Oslo")
    seen = [first, ask("And then?"), uuid()]
    return [*seen, travelling_retries(tag), travelling_looks(tag, "Rome")]


@task
async def travelling_agoes(tag: str) -> list[Any]:
    first = await travelling_alooks(tag, "Oslo")
    seen = [first, await aask("And then?"), uuid()]
    return [*seen, travelling_retries(tag), await travelling_alooks(tag, "Rome")]


BOTH = pytest.mark.parametrize("fn", [travelling_goes, travelling_agoes])


class Travelling:
    """Logs are read, forked, replayed and moved on every engine."""

    @BOTH
    def test_a_task_goes_from_here_to_the_engine_and_back_with_its_question(
        self, hf: Holdfast, fn: Any
    ) -> None:
        tag = id = new_id(fn)
        # The same store: what one of them closes, the other has closed.
        here = Holdfast(hf.store)
        here.start(fn, tag, id=id)
        with working(here):
            until(lambda: here.task(id).questions)
            _move(hf, id)
            if hf.engine.name != "local":
                with pytest.raises(DrivenElsewhere):
                    here.resume(id)
            assert hf.move(id, "local", timeout_s=PATIENCE_S) == _moved(hf, id)
            _move(hf, id)
            hf.answer(id, "home")
            result = until(lambda: hf.task(id).result)
        assert [result[0], result[1], result[3], result[4]] == [
            "Oslo is fine",
            "home",
            2,
            "Rome is fine",
        ]
        made = [effects[f"look {tag} {place}"] for place in ("Oslo", "Rome")]
        assert (made, effects[f"retry {tag}"]) == ([1, 1], 2)

    @BOTH
    def test_a_fork_goes_its_own_way_on_the_engine(self, hf: Holdfast, fn: Any) -> None:
        tag = new_id(fn)
        handle = begin(hf, fn, tag)
        question(handle)
        hf.answer(handle.id, "home")
        first = handle.result(PATIENCE_S)
        fork = hf.fork(
            handle.id, at="2", effects="live", results={"1": "Bergen is fine"}, new_id=new_id(fn)
        )
        _move(hf, fork.id)
        until(lambda: hf.task(fork.id).questions)
        hf.answer(fork.id, "away")
        other = until(lambda: hf.task(fork.id).result)
        assert other[:2] == ["Bergen is fine", "away"]
        assert f"{first[2]}" != f"{other[2]}"
        made = [effects[f"look {tag} {place}"] for place in ("Oslo", "Rome")]
        assert made == [1, 2]

    @BOTH
    def test_the_log_of_a_task_fits_its_code_and_replays_without_a_difference(
        self, hf: Holdfast, fn: Any
    ) -> None:
        handle = begin(hf, fn, new_id(fn))
        question(handle)
        assert hf.check(handle.id).fits
        hf.answer(handle.id, "home")
        handle.result(PATIENCE_S)
        replayed = hf.replay(handle.id)
        assert replayed.same, replayed
        assert (replayed.outcome, replayed.divergence) == ("completed", None)
        assert not hf.verify().damage

    @BOTH
    def test_a_task_is_put_back_and_goes_on_from_there(self, hf: Holdfast, fn: Any) -> None:
        tag = new_id(fn)
        handle = begin(hf, fn, tag)
        question(handle)
        hf.answer(handle.id, "home")
        handle.result(PATIENCE_S)
        hf.rewind(handle.id, to="2", effects="reuse")
        with pytest.raises(Unanswered):
            hf.resume(handle.id)
        hf.answer(handle.id, "away")
        assert hf.resume(handle.id)[1] == "away"
        assert effects[f"look {tag} Oslo"] == 1
        replayed = hf.replay(handle.id)
        assert replayed.same, replayed
        assert (replayed.outcome, replayed.divergence) == ("completed", None)

    @BOTH
    def test_a_task_that_is_put_back_twice_or_ended_after_it_replays_without_a_difference(
        self, hf: Holdfast, fn: Any
    ) -> None:
        handle = begin(hf, fn, new_id(fn))
        question(handle)
        hf.answer(handle.id, "home")
        handle.result(PATIENCE_S)
        for answer in ("away", "nowhere"):
            hf.rewind(handle.id, to="2", effects="reuse")
            assert hf.replay(handle.id).same
            with pytest.raises(Unanswered):
                hf.resume(handle.id)
            hf.answer(handle.id, answer)
            assert hf.resume(handle.id)[1] == answer
            replayed = hf.replay(handle.id)
            assert replayed.same, replayed
        hf.rewind(handle.id, to="2", effects="reuse")
        hf.cancel(handle.id)
        with pytest.raises(TaskCancelled):
            handle.result(PATIENCE_S)
        replayed = hf.replay(handle.id)
        assert replayed.same, replayed


def _moved(hf: Holdfast, id: str) -> tuple[str, ...]:
    return () if hf.engine.name == "local" else (id,)


def _move(hf: Holdfast, id: str) -> None:
    assert hf.move(id, timeout_s=PATIENCE_S) == _moved(hf, id)
