"""A task that is under way goes from one engine to another, and nothing is lost or done twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    BadInput,
    Holdfast,
    Retry,
    TaskNotFound,
    TaskReleased,
    Unanswered,
    Worker,
    ask,
    sleep,
    start,
    step,
    task,
)
from holdfast.core.events import Claimed, Moved, Parked
from holdfast.engines import follow
from holdfast.engines.port import Driven, Job
from holdfast.engines.remote.sweep import SweepMemory, sweep
from holdfast.engines.routing import job_for
from holdfast.errors import DrivenElsewhere, EngineConflict, EngineError
from holdfast.log.reading import stream_of
from holdfast.log.store_calls import inbox_of
from tests.engines.toy import Toy, bring, drive

made: list[str] = []
gate = threading.Event()
begun = threading.Event()


@step
def movable_step(name: str) -> str:
    made.append(name)
    return name


@step
def movable_long(name: str) -> str:
    begun.set()
    assert gate.wait(60)
    made.append(name)
    return name


@step(retry=Retry(attempts=3, delay_s=3600.0, jitter=0))
def movable_flaky(name: str) -> str:
    made.append(name)
    if made.count(name) < 2:
        raise ConnectionError("no route")
    return name


@task
def movable(name: str) -> str:
    movable_step(f"{name} 1")
    answer = ask("Go on?", bool)
    movable_step(f"{name} 2")
    return f"{name}: {answer}"


@task
def movable_slow(name: str) -> str:
    movable_long(f"{name} 1")
    movable_step(f"{name} 2")
    return name


@task
def movable_backing_off(name: str) -> str:
    return movable_flaky(name)


@task
def movable_parent(name: str) -> str:
    return start(movable_middle, name).result()


@task
def movable_middle(name: str) -> str:
    return start(movable, name).result()


@pytest.fixture(autouse=True)
def _anew() -> None:
    made.clear()
    gate.clear()
    begun.clear()


@pytest.fixture(params=["memory", "files", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    places = {
        "memory": "memory://",
        "files": str(tmp_path / "state"),
        "sqlite": f"sqlite:///{tmp_path}/state.db",
    }
    return places[str(request.param)]


def until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.005)


def test_a_task_goes_to_an_engine_and_back_with_its_question(url: str) -> None:
    toy = Toy()
    with Holdfast(url) as hf:
        with pytest.raises(Unanswered):
            hf.run(movable, "Ada", id="m-1")
        assert hf.move("m-1", toy, by="bob") == ("m-1",)
        state = hf.task("m-1").state
        assert state.driver == "toy"
        assert toy.jobs["m-1"] == job_for(state)
        with pytest.raises(DrivenElsewhere):
            hf.resume("m-1")
        drive("toy", hf, "m-1")
        with toy.serve(hf):
            assert hf.move("m-1", "local") == ("m-1",)
        assert hf.task("m-1").state.driver == ""
        hf.answer("m-1", True)
        assert hf.resume("m-1") == "Ada: True"
        assert made == ["Ada 1", "Ada 2"]
        moves = [event for event in hf.task("m-1").events() if isinstance(event, Moved)]
        assert moves[0].by == "bob"
        assert [event.engine for event in moves] == ["toy", ""]


@task
def movable_sleeper(name: str) -> str:
    sleep(3600)
    return movable_step(name)


@pytest.mark.parametrize("fn", [movable, movable_backing_off, movable_sleeper, movable_parent])
@pytest.mark.parametrize("drives", [True, False])
def test_a_task_that_waits_is_taken_by_a_worker_when_it_comes_back(
    url: str, fn: Any, drives: bool
) -> None:
    """Whatever its engine said of when to wake it: an engine wakes its tasks by its own means."""
    toy = Toy()
    with Holdfast(url) as hf:
        hf.start(fn, "Ada", id="k-1")
        Worker(hf).run_until_idle()
        assert hf.task("k-1").state.parked
        hf.move("k-1", toy)
        if drives:
            drive("toy", hf, "k-1")
        with hf._holding.hold("k-1") as log:
            log.append(Parked(why="it waits on toy"))
        with toy.serve(hf):
            hf.move("k-1", "local")
        Worker(hf).run_until_idle()
        since = [type(event) for event in hf.task("k-1").events()]
        assert Claimed in since[len(since) - since[::-1].index(Moved) :]


def test_a_moved_task_goes_on_at_its_next_step_on_the_engine(url: str) -> None:
    toy = Toy()
    with Holdfast(url, engine=toy) as hf:
        local = Holdfast(hf.store)
        with pytest.raises(Unanswered):
            local.run(movable, "Ada", id="n-1")
        local.answer("n-1", True)
        assert hf.move("n-1") == ("n-1",)
        with toy.serve(hf):
            assert hf.resume("n-1") == "Ada: True"
        assert made == ["Ada 1", "Ada 2"]


def test_whoever_drives_a_task_that_is_moved_finishes_the_step_in_hand_and_lets_go(
    url: str,
) -> None:
    toy = Toy()
    with Holdfast(url) as hf:
        hf.start(movable_slow, "Ada", id="h-1")
        worker = Worker(hf)
        working = threading.Thread(target=worker.run)
        working.start()
        assert begun.wait(60)
        moved: list[tuple[str, ...]] = []
        moving = threading.Thread(target=lambda: moved.append(hf.move("h-1", toy)))
        moving.start()
        until(lambda: hf.task("h-1").state.driver == "toy")
        assert toy.started == []
        gate.set()
        moving.join()
        worker.stop()
        working.join()
        assert moved == [("h-1",)]
        assert made == ["Ada 1"]
        assert toy.started == ["h-1"]
        drive("toy", hf, "h-1")
        assert (hf.task("h-1").result, made) == ("Ada", ["Ada 1", "Ada 2"])


def test_a_run_whose_task_is_moved_away_says_so() -> None:
    toy = Toy()
    with Holdfast("memory://") as hf:
        errors: list[BaseException] = []

        def run() -> None:
            try:
                hf.run(movable_slow, "Ada", id="r-1")
            except TaskReleased as error:
                errors.append(error)

        running = threading.Thread(target=run)
        running.start()
        assert begun.wait(60)
        moving = threading.Thread(target=lambda: hf.move("r-1", toy))
        moving.start()
        until(lambda: hf.task("r-1").state.driver == "toy")
        gate.set()
        moving.join()
        running.join()
        assert "'r-1' was moved: from here on it is toy's" in str(errors[0])


def test_who_waits_for_a_task_that_is_moved_away_from_its_engine_is_told(monkeypatch) -> None:
    toy, waits, looks = Toy(), threading.Event(), follow.looks
    with Holdfast("memory://", engine=toy) as hf:
        hf.start(movable, "Ada", id="v-1")
        moving = threading.Thread(target=lambda: hf.move("v-1", "local"))
        moving.start()
        until(lambda: bool(inbox_of(hf.store, [stream_of("v-1")])))

        def looking(*given: Any) -> Any:
            waits.set()
            return looks(*given)

        def bring_then() -> None:
            assert waits.wait(60)
            bring(hf, "v-1")

        monkeypatch.setattr(follow, "looks", looking)
        bringing = threading.Thread(target=bring_then)
        bringing.start()
        with pytest.raises(TaskReleased, match="from here on it is local's"):
            hf.run(movable, "Ada", id="v-1")
        bringing.join()
        moving.join()


def test_a_retry_in_backoff_is_moved_with_its_time() -> None:
    toy = Toy()
    with Holdfast("memory://") as hf:
        hf.start(movable_backing_off, "Ada", id="b-1")
        Worker(hf).run_until_idle()
        before = hf.task("b-1").state.calls["1"]
        hf.move("b-1", toy)
        assert hf.task("b-1").state.calls["1"] == before
        assert before.retry_at is not None
        drive("toy", hf, "b-1")
        assert made == ["Ada"]  # its time has not come


def test_open_children_and_their_children_move_along(url: str) -> None:
    toy = Toy()
    ids = ["p-1", "p-1.1", "p-1.1.1"]
    with Holdfast(url, engine=toy) as hf:
        local = Holdfast(hf.store)
        with pytest.raises(Unanswered):
            local.run(movable_parent, "Ada", id="p-1")
        assert sorted(hf.move("p-1")) == ids
        assert [hf.task(id).state.driver for id in ids] == ["toy"] * 3
        assert sorted(toy.jobs) == ids
        with toy.serve(hf):
            hf.answer("p-1.1.1", True)
            assert hf.resume("p-1") == "Ada: True"
        assert made == ["Ada 1", "Ada 2"]


def test_children_in_the_hands_of_their_parents_worker_move_along() -> None:
    toy = Toy()
    with Holdfast("memory://") as hf:
        hf.start(movable_parent, "Ada", id="w-1")
        worker = Worker(hf)
        working = threading.Thread(target=worker.run)
        working.start()
        until(lambda: bool(made))
        assert set(hf.move("w-1", toy)) == {"w-1", "w-1.1", "w-1.1.1"}
        worker.stop()
        working.join()
        with toy.serve(hf):
            hf.answer("w-1.1.1", True)
            until(lambda: hf.task("w-1").status == "completed")
        assert made == ["Ada 1", "Ada 2"]


def test_moving_a_task_to_where_it_is_changes_nothing_but_sees_to_it_that_it_is_driven() -> None:
    toy = Toy()
    with Holdfast("memory://") as hf:
        hf.start(movable, "Ada", id="s-1")
        assert hf.move("s-1", "local") == ()
        hf.move("s-1", toy)
        seq = hf.task("s-1").seq
        toy.jobs.clear()  # as if who moved it had died before he told
        assert hf.move("s-1", toy) == ()
        assert list(toy.jobs) == ["s-1"]
        assert hf.task("s-1").seq == seq


class DownWhenItMatters(Toy):
    """Goes away when it has said that it would take a task."""

    def query(self, job: Job) -> Driven | None:
        found = super().query(job)
        self.is_down = True
        return found


def test_a_move_that_dies_before_its_engine_is_told_is_finished_by_a_worker() -> None:
    with Holdfast("memory://") as hf:
        hf.start(movable, "Ada", id="d-1")
        with pytest.raises(EngineError, match="can't be reached"):
            hf.move("d-1", DownWhenItMatters())
        toy = Toy()
        assert sweep(hf.store, toy, SweepMemory(), 0.0).started == ("d-1",)


def test_a_task_whose_new_engine_can_t_be_reached_or_has_its_id_stays_where_it_is() -> None:
    toy = Toy()
    with Holdfast("memory://") as hf:
        hf.start(movable, "Ada", id="d-2")
        toy.is_down = True
        with pytest.raises(EngineError, match=r"can't be reached\. Task 'd-2' was not moved"):
            hf.move("d-2", toy)
        toy.is_down = False
        toy.refuses.add("d-2")
        with pytest.raises(EngineConflict, match="something else under the id 'd-2'"):
            hf.move("d-2", toy)
        assert hf.task("d-2").state.driver == ""


def test_a_task_whose_engine_has_no_worker_stays_there_and_moves_when_one_comes() -> None:
    toy, other = Toy(), Toy("other")
    with Holdfast("memory://", engine=toy) as hf:
        hf.start(movable, "Ada", id="t-1")
        with pytest.raises(EngineError, match=r"no worker of toy has heard.*worker --engine toy"):
            hf.move("t-1", other, timeout_s=0.01)
        assert hf.task("t-1").state.driver == "toy"
        with toy.serve(hf):
            until(lambda: hf.task("t-1").state.driver == "other")
        assert sweep(hf.store, other, SweepMemory(), 0.0).started == ("t-1",)


def test_from_one_engine_to_another(url: str) -> None:
    toy, other = Toy(), Toy("other")
    with Holdfast(url, engine=toy) as hf:
        hf.start(movable, "Ada", id="o-1")
        with toy.serve(hf):
            assert hf.move("o-1", other) == ("o-1",)
        assert other.jobs["o-1"].seq == hf.task("o-1").state.driven_since


def test_a_paused_task_is_moved_and_stays_paused() -> None:
    toy = Toy()
    with Holdfast("memory://") as hf:
        hf.start(movable, "Ada", id="pa-1")
        hf.pause("pa-1")
        hf.move("pa-1", toy)
        assert (hf.task("pa-1").status, hf.task("pa-1").state.driver) == ("paused", "toy")


def test_messages_that_come_after_a_move_wait_for_the_new_engine() -> None:
    toy = Toy()
    with Holdfast("memory://") as hf:
        with pytest.raises(Unanswered):
            hf.run(movable, "Ada", id="a-1")
        hf.move("a-1", toy)
        hf.answer("a-1", True)
        assert [post.name for post in inbox_of(hf.store, [stream_of("a-1")])] == ["answer-2-1"]
        drive("toy", hf, "a-1")
        assert hf.task("a-1").result == "Ada: True"


def test_what_cannot_be_moved_is_refused_and_left_as_it_is() -> None:
    toy = Toy()
    with Holdfast("memory://") as hf:
        with pytest.raises(TaskNotFound):
            hf.move("nobody", toy)
        hf.start(movable, "Ada", id="x-1")
        hf.cancel("x-1")
        with pytest.raises(BadInput, match=r"'x-1' is cancelled.*can't be moved"):
            hf.move("x-1", toy)
        hf.start(movable, "Ada", id="x-2")
        with pytest.raises(BadInput, match="give the engine itself"):
            hf.move("x-2", "temporal")  # type: ignore[arg-type]
        assert toy.jobs == {}


def test_a_task_of_an_engine_is_put_back_or_copied_only_after_it_was_moved_here() -> None:
    toy = Toy()
    with Holdfast("memory://", engine=toy) as hf, Holdfast("memory://") as target:
        hf.start(movable, "Ada", id="y-1")
        drive("toy", hf, "y-1")
        for call in (lambda: hf.rewind("y-1", to="1"), lambda: hf.copy_to(target, ids=["y-1"])):
            with pytest.raises(DrivenElsewhere, match="holdfast move y-1") as refused:
                call()
            assert "engine=Toy" not in f"{refused.value}"  # the store was opened so
        assert target.tasks() == []
        with toy.serve(hf):
            hf.move("y-1", "local")
        hf.rewind("y-1", to="1")
        assert hf.task("y-1").state.driver == ""
