"""What is done with a log works on the logs of an engine: moving, forking, replaying, checking."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.errors import DrivenElsewhere, TaskCancelled, Unanswered
from holdfast.spec import Retry
from holdfast.step import step
from holdfast.task import current, task
from holdfast.testing.engine_contract.working import (
    PATIENCE_S,
    begin,
    effects,
    new_id,
    question,
    until,
    working,
)
from holdfast.waiting import ask, uuid


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
    seen = [first, await ask("And then?"), uuid()]
    return [*seen, travelling_retries(tag), await travelling_alooks(tag, "Rome")]


BOTH = pytest.mark.parametrize("fn", [travelling_goes, travelling_agoes])


class Travelling:
    """Logs are read, forked, replayed and moved, whoever drives the task."""

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
