"""A task is taken from an engine that is gone, or that can not go on with it; what is left of it
there, and comes back, does nothing more."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from holdfast import Holdfast, TaskCancelled, Unanswered, ask, start, step, task
from holdfast.engines.elsewhere import job_for
from holdfast.errors import EngineError
from holdfast.events import Moved
from holdfast.reading import stream_of
from tests.engines.serve import engine_of
from tests.engines.test_live_moves import where
from tests.engines.toy import Toy
from tests.engines.working import driving, until

made: list[str] = []


@step
def forced_step(name: str) -> str:
    made.append(name)
    return name


@task
def forced(name: str) -> str:
    forced_step(f"{name} 1")
    one = ask("One?", bool, id="one")
    forced_step(f"{name} 2")
    two = ask("Two?", bool, id="two")
    forced_step(f"{name} 3")
    return f"{one} {two}"


@task
def forced_parent(name: str) -> str:
    return start(forced, name).result()


class Code:
    """What is deployed: the next version of `forced_changing` does something else."""

    is_new = False


@task
def forced_changing(name: str) -> bool:
    forced_step("something else" if Code.is_new else f"{name} 1")
    return ask("One?", bool, id="one")


@pytest.fixture(autouse=True)
def _anew() -> None:
    made.clear()


def moves(hf: Holdfast, id: str) -> list[tuple[str, bool]]:
    events = hf.task(id).events()
    return [(event.engine, event.forced) for event in events if isinstance(event, Moved)]


def asked(hf: Holdfast, id: str, question: str) -> bool:
    calls = hf.task(id).state.calls.values()
    return any(call.key == question and call.status == "waiting" for call in calls)


def test_a_task_and_its_children_are_taken_from_an_engine_that_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    toy = Toy()
    with Holdfast("memory://", engine=toy) as there:
        here = Holdfast(there.store)
        parent = there.start(forced_parent, "Ada", id="p-1")
        with toy.serve(there):
            until(lambda: there.tasks(status="awaiting_user"))
        child = "p-1.1"
        toy.is_down = True
        here.answer(child, True)  # which nobody brings in
        with pytest.raises(
            EngineError, match="If toy is gone for good, take it: holdfast move --force"
        ):
            here.move("p-1", "local", timeout_s=0.1)
        with caplog.at_level(logging.WARNING, "holdfast"):
            assert there.move("p-1", "local", by="ada", force=True) == (child, "p-1")
        assert "taken from toy, which was not told" in caplog.text
        assert moves(here, "p-1") == moves(here, child) == [("", True)]
        with pytest.raises(Unanswered):
            here.resume(child)
        here.answer(child, False)
        assert here.resume("p-1") == parent.result() == "True False"
        assert made == ["Ada 1", "Ada 2", "Ada 3"]
        assert here.verify("p-1").sound


def test_an_engine_that_can_be_reached_is_told_to_end_what_it_has() -> None:
    toy = Toy()
    with Holdfast("memory://", engine=toy) as hf:
        hf.start(forced, "Ada", id="t-1")
        assert list(toy.jobs) == ["t-1"]
        hf.move("t-1", "local", force=True)
        assert not toy.jobs


def test_a_task_begins_anew_on_the_engine_that_has_it() -> None:
    toy = Toy()
    with Holdfast("memory://", engine=toy) as hf:
        hf.start(forced, "Ada", id="a-1")
        before = toy.jobs["a-1"]
        assert hf.move("a-1") == ()
        assert hf.move("a-1", force=True) == ("a-1",)
        assert toy.jobs["a-1"] == job_for(hf.task("a-1").state) != before


def test_a_task_goes_from_one_cluster_of_an_engine_to_another() -> None:
    one, other = Toy(), Toy()
    with Holdfast("memory://", engine=one) as hf:
        hf.start(forced, "Ada", id="c-1")
        assert hf.move("c-1", other, force=True) == ("c-1",)
        assert (list(one.jobs), list(other.jobs)) == ([], ["c-1"])


def test_one_that_is_driven_here_is_moved_as_ever() -> None:
    toy = Toy()
    with Holdfast("memory://") as hf:
        hf.start(forced, "Ada", id="o-1")
        assert hf.move("o-1", "local", force=True) == ()
        assert hf.move("o-1", toy, force=True) == ("o-1",)
        assert moves(hf, "o-1") == [("toy", False)]


def test_a_task_that_a_worker_is_at_work_on_is_not_taken() -> None:
    toy = Toy()
    with Holdfast("memory://", engine=toy) as hf:
        hf.start(forced, "Ada", id="h-1")
        held = hf.store.acquire(stream_of("h-1"), "a worker of toy", 60.0)
        with pytest.raises(EngineError, match="while one of its workers is at work on it"):
            hf.move("h-1", "local", force=True, timeout_s=0.1)
        assert moves(hf, "h-1") == []
        hf.store.release(held)
        hf.move("h-1", "local", force=True)
        with pytest.raises(Unanswered):
            Holdfast(hf.store).resume("h-1")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("engine", ["temporal", "restate"])
def test_what_an_engine_has_left_of_a_task_does_nothing_and_the_task_can_come_back(
    engine: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = request.getfixturevalue(engine)
    remote = engine_of(*where(engine, server))
    store, id = f"sqlite:///{tmp_path}/store.db", f"left-on-{engine}"
    refused = f"was taken from {engine} by force"
    said: list[str] = []
    with Holdfast(store) as here, Holdfast(store, engine=remote) as there:
        with driving(remote.worker(there)):
            there.start(forced, "Ada", id=id)
            until(lambda: asked(here, id, "one"))
            before = job_for(here.task(id).state)
        here.move(id, "local", force=True)  # by somebody who has no engine to tell
        here.answer(id, True)
        with pytest.raises(Unanswered):
            here.resume(id)
        with driving(remote.worker(there, say=said.append)):
            seq = here.task(id).seq
            remote.tell(before, "something")  # so that its old run looks into the log
            until(lambda: refused in f"{said} {caplog.text}")
            time.sleep(1.0)
            assert here.task(id).seq == seq
            assert there.move(id) == (id,)
            there.answer(id, False)
            assert there.resume(id) == "True False"
        assert moves(here, id) == [("", True), (engine, False)]
        assert made == ["Ada 1", "Ada 2", "Ada 3"]
        assert here.verify(id).sound


@pytest.mark.timeout(120)
@pytest.mark.parametrize("engine", ["temporal", "restate"])
def test_a_task_whose_code_no_longer_fits_is_taken_and_ended(
    engine: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = request.getfixturevalue(engine)
    remote = engine_of(*where(engine, server))
    id = f"unfit-on-{engine}"
    with Holdfast(f"sqlite:///{tmp_path}/store.db", engine=remote) as there:
        with driving(remote.worker(there)):
            there.start(forced_changing, "Ada", id=id)
            until(lambda: asked(there, id, "one"))
        monkeypatch.setattr(Code, "is_new", True)
        with driving(remote.worker(there)):
            job = job_for(there.task(id).state)
            there.answer(id, True)
            time.sleep(1.5)
            assert there.cancel(id) == "awaiting_user"  # nobody can hear it
            there.move(id, "local", force=True)
            known = remote.query(job)
            assert known is not None and known.status != "running"
            with pytest.raises(TaskCancelled):
                Holdfast(there.store).resume(id)
        assert made == ["Ada 1"]
