"""What drives a task is in its log, and whoever has another engine leaves the task alone."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import (
    BadInput,
    Holdfast,
    InDoubt,
    TaskBusy,
    TaskCancelled,
    TaskFailed,
    TaskPaused,
    Unanswered,
    Worker,
    WrongArguments,
    ask,
    start,
    step,
    task,
    tool,
)
from holdfast.core.facts import BY_ENGINE
from holdfast.engines.holder import Holding
from holdfast.engines.routing import job_for
from holdfast.errors import AlreadyAnswered, DrivenElsewhere, EngineConflict, EngineError
from holdfast.log.reading import stream_of
from holdfast.log.states import load
from holdfast.log.store_calls import acquire_one, facts_of_all, inbox_of
from tests.engines.toy import Toy, bring, drive

made: list[str] = []
weather = ["calm"]
never = threading.Event()


@step
def routed_step(name: str) -> str:
    made.append(name)
    if weather[0] == "storm":
        raise ValueError("storm")
    return f"hi {name}"


@task
def routed(name: str) -> str:
    return routed_step(name)


@task
async def routed_async(name: str) -> str:
    return f"hi {name}"


@task
def routed_asking(name: str) -> str:
    return f"{name}: {ask('Go on?', bool, id='go')}"


@task
def routed_parent(name: str) -> str:
    return start(routed_asking, name).result()


def routed_unbook(name: str) -> None:
    made.append(f"unbook {name}")


@tool(undo=routed_unbook)
def routed_book(name: str) -> str:
    made.append(f"book {name}")
    return name


@task
def routed_booking(name: str) -> str:
    routed_book(name)
    return str(ask("Keep it?", bool))


@tool(timeout_s=0.01)
def routed_unsure(name: str) -> str:
    never.wait()
    return name


@task
def routed_doubtful(name: str) -> str:
    return routed_unsure(name)


@pytest.fixture(autouse=True)
def _calm() -> None:
    made.clear()
    weather[0] = "calm"


@pytest.fixture(params=["memory", "files", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    places = {
        "memory": "memory://",
        "files": str(tmp_path / "state"),
        "sqlite": f"sqlite:///{tmp_path}/state.db",
    }
    return places[str(request.param)]


@contextmanager
def both(url: str, toy: Toy) -> Iterator[tuple[Holdfast, Holdfast]]:
    """The same store, with the engine and without."""
    with Holdfast(url, engine=toy) as hf:
        if url == "memory://":
            yield hf, Holdfast(hf.store)
        else:
            with Holdfast(url) as local:
                yield hf, local


def test_a_task_that_an_engine_drives_runs_there_and_its_result_comes_back(url: str) -> None:
    toy = Toy()
    with Holdfast(url, engine=toy) as hf, toy.serve(hf):
        assert hf.run(routed, "Ada", id="r-1") == "hi Ada"
        assert hf.run(routed, "Ada", id="r-1") == "hi Ada"
        assert hf.resume("r-1") == "hi Ada"
        assert hf.task("r-1").state.driver == "toy"
        assert made == ["Ada"]
        assert toy.started == ["r-1"]


def test_async_code_waits_for_a_task_of_an_engine_without_blocking_its_loop() -> None:
    toy = Toy()

    async def main() -> tuple[str, str, object]:
        with Holdfast("memory://", engine=toy) as hf, toy.serve(hf):
            first = await hf.arun(routed_async, "Ada", id="ra-1")
            second = await hf.arun(routed, "Bob", id="ra-2")
            return first, second, await hf.aresume("ra-1")

    assert asyncio.run(main()) == ("hi Ada", "hi Bob", "hi Ada")


def test_a_started_task_is_in_the_store_before_its_engine_knows_of_it(url: str) -> None:
    toy = Toy()
    with Holdfast(url, engine=toy) as hf:
        handle = hf.start(routed, "Ada", id="s-1")
        state = handle.view.state
        assert (state.status, state.driver, state.driven_since) == ("pending", "toy", 1)
        assert toy.jobs["s-1"] == job_for(state)
        hf.start(routed, "Ada", id="s-1")
        assert len(toy.jobs) == 1


def test_local_drivers_leave_a_task_of_an_engine_alone(url: str) -> None:
    toy = Toy()
    with both(url, toy) as (hf, local):
        hf.start(routed, "Ada", id="l-1")
        Worker(local).run_until_idle()
        for go_on in (
            lambda: local.resume("l-1"),
            lambda: local.run(routed, "Ada", id="l-1"),
            lambda: local.start(routed, "Ada", id="l-1"),
            lambda: local.retry("l-1"),
            lambda: asyncio.run(local.aresume("l-1")),
            lambda: asyncio.run(local.arun(routed, "Ada", id="l-1")),
        ):
            with pytest.raises(DrivenElsewhere, match=r"driven by toy.*holdfast move l-1"):
                go_on()
        assert made == []
        assert [event.seq for event in hf.task("l-1").events()] == [1]
        facts = dict(facts_of_all(hf.store, "tasks/"))["tasks/l-1"]
        assert facts is not None
        assert facts.wake_at == BY_ENGINE


def test_a_task_that_another_process_of_its_engine_holds_is_named_as_the_engines() -> None:
    toy = Toy()
    with both("memory://", toy) as (hf, local):
        hf.start(routed, "Ada", id="h-1")
        lease = acquire_one(hf.store, stream_of("h-1"), "a worker of toy", 30.0)
        with pytest.raises(DrivenElsewhere, match="driven by toy"):
            local.resume("h-1")
        hf.start(routed, "Ada", id="h-1")  # the same again, which is under way
        with pytest.raises(TaskBusy):
            hf.start(routed, "Bob", id="h-1")
        hf.store.release([lease])


def test_an_id_that_is_driven_locally_is_refused_to_an_engine_and_nothing_is_changed(
    url: str,
) -> None:
    toy = Toy()
    with both(url, toy) as (hf, local):
        local.start(routed, "Ada", id="c-1")
        for go in (hf.run, hf.start):
            with pytest.raises(DrivenElsewhere, match=r"driven locally.*holdfast move c-1"):
                go(routed, "Ada", id="c-1")
        assert toy.jobs == {}
        assert hf.task("c-1").seq == 1
        assert hf.resume("c-1") == "hi Ada"  # by its id alone it is gone on with where it is
        assert hf.run(routed, "Ada", id="c-1") == "hi Ada"  # what has ended is nobody's


def test_other_arguments_are_refused_with_an_engine_too() -> None:
    with Holdfast("memory://", engine=Toy()) as hf:
        hf.start(routed, "Ada", id="w-1")
        with pytest.raises(WrongArguments):
            hf.start(routed, "Bob", id="w-1")


def test_an_id_that_the_engine_has_for_something_else_leaves_no_task_behind(url: str) -> None:
    toy = Toy()
    toy.refuses.add("x-1")
    with Holdfast(url, engine=toy) as hf:
        with pytest.raises(EngineConflict, match="x-1"):
            hf.start(routed, "Ada", id="x-1")
        assert hf.tasks() == []


def test_a_task_is_safe_when_its_engine_cannot_be_reached(
    caplog: pytest.LogCaptureFixture,
) -> None:
    toy = Toy()
    toy.is_down = True
    with Holdfast("memory://", engine=toy) as hf:
        with caplog.at_level(logging.WARNING, "holdfast"):
            assert hf.start(routed, "Ada", id="d-1").status == "pending"
        assert "toy can't be reached. Task 'd-1' is safe" in caplog.text
        with pytest.raises(EngineError, match="Task 'd-2' is safe in memory://"):
            hf.run(routed, "Ada", id="d-2")
        toy.is_down = False
        with toy.serve(hf):
            assert hf.run(routed, "Ada", id="d-2") == "hi Ada"


def test_a_run_raises_what_its_task_waits_for_as_a_local_one_would() -> None:
    toy = Toy()
    with Holdfast("memory://", engine=toy) as hf, toy.serve(hf):
        with pytest.raises(Unanswered) as waiting:
            hf.run(routed_asking, "Ada", id="q-1")
        assert waiting.value.id == "go"
        hf.answer("q-1", True)
        assert hf.resume("q-1") == "Ada: True"
        with pytest.raises(Unanswered) as of_child:
            hf.run(routed_parent, "Bob", id="q-2")
        assert of_child.value.task_id == "q-2.1"
        with pytest.raises(InDoubt):
            hf.run(routed_doubtful, "Ada", id="q-3")
        hf.resolve("q-3", "1", happened=True, result="sent")
        assert hf.resume("q-3") == "sent"
        never.set()


def test_an_answer_that_is_under_way_is_waited_for() -> None:
    toy = Toy()
    with Holdfast("memory://", engine=toy) as hf:
        hf.start(routed_asking, "Ada", id="u-1")
        drive("toy", hf, "u-1")
        plain = Holdfast(hf.store)  # nobody tells the engine
        plain.answer("u-1", True)
        with pytest.raises(AlreadyAnswered):
            plain.answer("u-1", False)
        while not toy.to_do.empty():
            toy.to_do.get()
        with toy.serve(hf):
            assert hf.resume("u-1") == "Ada: True"


def test_children_are_driven_by_the_engine_of_their_parent() -> None:
    toy = Toy()
    with both("memory://", toy) as (hf, local):
        hf.start(routed_parent, "Ada", id="p-1")
        drive("toy", hf, "p-1")
        assert hf.task("p-1.1").state.driver == "toy"
        with pytest.raises(Unanswered):
            local.run(routed_parent, "Ada", id="p-2")
        assert hf.task("p-2.1").state.driver == ""


def test_a_paused_task_of_an_engine_goes_on_by_a_message() -> None:
    toy = Toy()
    with Holdfast("memory://", engine=toy) as hf:
        hf.start(routed, "Ada", id="pa-1")
        hf.pause("pa-1", because="lunch")
        assert hf.task("pa-1").status == "pending"
        bring(hf, "pa-1")
        assert hf.task("pa-1").status == "paused"
        with pytest.raises(TaskPaused, match="lunch"):
            hf.run(routed, "Ada", id="pa-1")
        with toy.serve(hf):
            assert hf.resume("pa-1") == "hi Ada"


def test_a_failed_task_of_an_engine_is_retried_by_it_and_by_nobody_else(url: str) -> None:
    toy = Toy()
    weather[0] = "storm"
    with both(url, toy) as (hf, local), toy.serve(hf):
        with pytest.raises(TaskFailed, match="storm"):
            hf.run(routed, "Ada", id="f-1")
        seq = hf.task("f-1").seq
        with pytest.raises(DrivenElsewhere):
            local.retry("f-1")
        assert hf.task("f-1").seq == seq
        weather[0] = "calm"
        assert hf.retry("f-1") == "hi Ada"
        assert hf.task("f-1").state.driven_since == seq + 1
        assert toy.jobs["f-1"].seq == seq + 1


def test_a_retry_waits_until_whoever_drove_the_task_to_its_end_has_let_go_of_it() -> None:
    toy = Toy()
    weather[0] = "storm"
    with Holdfast("memory://", engine=toy) as hf:
        hf.start(routed, "Ada", id="fl-1")
        drive("toy", hf, "fl-1")
        weather[0] = "calm"
        lease = acquire_one(hf.store, stream_of("fl-1"), "a worker of toy", 30.0)
        letting_go = threading.Timer(0.1, lambda: hf.store.release([lease]))
        letting_go.start()
        with toy.serve(hf):
            assert hf.retry("fl-1") == "hi Ada"
        letting_go.join()


def test_a_cancelled_task_of_an_engine_undoes_what_it_did_there() -> None:
    toy = Toy()
    with Holdfast("memory://", engine=toy) as hf, toy.serve(hf):
        with pytest.raises(Unanswered):
            hf.run(routed_booking, "Oslo", id="b-1")
        hf.cancel("b-1", because="ill")
        with pytest.raises(TaskCancelled):
            hf.resume("b-1")
        assert ("b-1", "to end") in toy.told
        assert made == ["book Oslo", "unbook Oslo"]
        assert [each.status for each in hf.compensate("b-1").compensation] == ["undone"]


def test_messages_for_a_task_of_an_engine_go_to_its_inbox_and_never_into_its_log(
    url: str,
) -> None:
    toy = Toy()
    with both(url, toy) as (hf, local):
        hf.start(routed_asking, "Ada", id="m-1")
        drive("toy", hf, "m-1")
        seq = hf.task("m-1").seq
        local.answer("m-1", True)
        local.pause("m-1")
        local.cancel("m-1")
        local.cancel("m-1")
        assert hf.task("m-1").seq == seq
        names = [post.name.partition("-")[0] for post in inbox_of(hf.store, [stream_of("m-1")])]
        assert names == ["answer", "pause", "cancel"]
        assert toy.told == []
        with pytest.raises(BadInput, match="not paused"):
            local.unpause("m-1")
        with pytest.raises(BadInput, match="not in doubt"):
            local.resolve("m-1", "1", happened=True)


def test_who_takes_hold_of_a_task_of_an_engine_leaves_its_messages_where_they_are() -> None:
    toy = Toy()
    with Holdfast("memory://", engine=toy) as hf:
        hf.start(routed, "Ada", id="k-1")
        hf.pause("k-1")
        with hf._holding.hold("k-1") as log:
            hf._holding._heartbeat._attend([log])
            assert log.state.seq == 1
        assert len(inbox_of(hf.store, [stream_of("k-1")])) == 1


def test_the_engine_is_told_of_each_message_and_one_that_is_down_loses_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    toy = Toy()
    with Holdfast("memory://", engine=toy) as hf:
        hf.start(routed, "Ada", id="t-1")
        toy.is_down = True
        with caplog.at_level(logging.WARNING, "holdfast"):
            hf.pause("t-1")
        assert "toy was not told of 'pause-" in caplog.text
        assert toy.told == []
        assert len(inbox_of(hf.store, [stream_of("t-1")])) == 1
        toy.is_down = False
        hf.cancel("t-1")
        assert toy.told == [("t-1", "to end")]


def test_a_task_of_an_engine_that_has_ended_takes_files_as_any_other() -> None:
    toy = Toy()
    with Holdfast("memory://", engine=toy) as hf, toy.serve(hf):
        hf.run(routed, "Ada", id="e-1")
        hf.files("e-1").write("a.md", "one", by="ada")
        assert [each.name for each in hf.files("e-1").list()] == ["a.md"]
        assert inbox_of(hf.store, [stream_of("e-1")]) == []


def test_a_parent_of_an_engine_hears_of_its_child_by_its_inbox() -> None:
    toy = Toy()
    with Holdfast("memory://", engine=toy) as hf:
        hf.start(routed_parent, "Ada", id="tp-1")
        drive("toy", hf, "tp-1")
        drive("toy", hf, "tp-1.1")
        hf.answer("tp-1.1", True)
        drive("toy", hf, "tp-1.1")
        assert hf.task("tp-1.1").status == "completed"
        (post,) = inbox_of(hf.store, [stream_of("tp-1")])
        assert post.name.startswith("child-tp-1.1")
        assert ("tp-1", post.name) in toy.told
        drive("toy", hf, "tp-1")
        assert hf.task("tp-1").result == "Ada: True"


def test_a_fork_of_a_task_of_an_engine_is_local() -> None:
    toy = Toy()
    with both("memory://", toy) as (hf, local), toy.serve(hf):
        hf.run(routed, "Ada", id="fo-1")
        fork = local.fork("fo-1", at="1", effects="live")
        assert fork.state.driver == ""
        assert local.resume(fork.id) == "hi Ada"
        assert fork.id not in toy.jobs


def test_a_task_of_an_engine_is_replayed_here() -> None:
    toy = Toy()
    with both("memory://", toy) as (hf, local), toy.serve(hf):
        hf.run(routed, "Ada", id="re-1")
        assert local.replay("re-1").same
        assert made == ["Ada"]


def test_a_holdfast_without_an_engine_has_the_local_one_which_knows_who_holds_what() -> None:
    with Holdfast("memory://") as hf:
        hf.start(routed, "Ada", id="lo-1")
        job = job_for(load(hf.store, "lo-1", missing_ok=True))
        assert hf.engine.query(job) is None
        with hf._holding.hold("lo-1"):
            known = hf.engine.query(job)
            assert known is not None
            assert (known.status, known.detail) == ("running", hf._holding.owner)
        worker = hf.engine.worker(hf)
        assert isinstance(worker, Worker)
        worker.run_until_idle()
        ended = hf.engine.query(job)
        assert ended is not None
        assert ended.status == "ended"
        assert isinstance(hf._holding, Holding)
