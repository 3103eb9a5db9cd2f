"""Tasks on a real Temporal: whose workflow is told what, and what is left behind at its end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from holdfast import BadInput, Holdfast, ask, sleep, step, task, tool
from holdfast.engines.routing import job_for
from holdfast.engines.temporal import Temporal
from holdfast.engines.temporal.served import serving
from holdfast.testing.servers import TemporalServer
from tests.engines.temporally import ask_temporal, temporal_at, until, working
from tests.engines.test_native import native_events, of_kind

NOBODY = "127.0.0.1:1"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/state.db"


def apart_unbook(room: str) -> None:
    raise AssertionError("nobody asked for that")


@tool(undo=apart_unbook)
def apart_book(room: str) -> str:
    return room


@step
async def apart_look(number: int) -> int:
    await asyncio.sleep(0)
    return number


@task
def apart_waits(room: str) -> str:
    return f"{apart_book(room)} {ask('Keep it?', bool)}"


@task
def apart_asks() -> list[bool]:
    return [ask(f"{n}?", bool, timeout_s=3600) for n in range(2)]


@task
def apart_naps(texts: list[str]) -> int:
    sleep(0.05)
    total = sum(len(apart_book(text)) for text in texts)
    sleep(0.05)
    return total


@task
async def apart_by_event(count: int) -> int:
    """Waits for plain asyncio, which a branch of its own would wake."""
    is_done, total = asyncio.Event(), 0

    async def work() -> None:
        nonlocal total
        for number in range(count):
            total += await apart_look(number)
        is_done.set()

    working = asyncio.create_task(work())
    await is_done.wait()
    await working
    return total


@task
def apart_runs_a_loop() -> int:
    return asyncio.run(apart_look(1))


def test_a_cancel_reaches_no_workflow_of_another_store(
    temporal: TemporalServer, url: str, tmp_path: Path
) -> None:
    engine = temporal_at(temporal)
    with Holdfast(url, engine=engine) as hf, working(hf):
        theirs = hf.start(apart_waits, "room", id="mine-1")
        until(lambda: theirs.status == "awaiting_user")
        other = f"sqlite:///{tmp_path}/other.db"
        with Holdfast(other, engine=Temporal(NOBODY)) as lost:
            lost.start(apart_waits, "hall", id="mine-1")
        with Holdfast(other, engine=temporal_at(temporal)) as late:
            late.cancel("mine-1")
            assert late.task("mine-1").status == "pending"
        hf.answer("mine-1", True)
        assert theirs.result(20) == "room True"
    assert not of_kind(native_events(temporal, "mine-1"), "workflow_execution_cancel_requested")


def test_a_workflow_of_another_store_that_has_ended_is_in_nobodys_way(
    temporal: TemporalServer, url: str, tmp_path: Path
) -> None:
    with Holdfast(url, engine=temporal_at(temporal)) as hf, working(hf):
        assert hf.run(apart_naps, ["a"], id="again-1") == 1
    with Holdfast(f"sqlite:///{tmp_path}/other.db") as here:
        here.start(apart_naps, ["a", "b"], id="again-1")
        engine = temporal_at(temporal)
        here.move("again-1", engine)
        with Holdfast(here.store.url, engine=engine) as hf, working(hf):
            assert hf.resume("again-1") == 2
        engine.close()


def test_the_timer_of_a_question_that_was_answered_is_taken_back(
    temporal: TemporalServer, url: str
) -> None:
    with Holdfast(url, engine=temporal_at(temporal)) as hf, working(hf):
        asked = hf.start(apart_asks, id="timers-1")
        for _ in range(2):
            until(lambda: asked.view.questions)
            key = asked.view.questions[0].key
            hf.answer("timers-1", True)
            until(lambda key=key: [q.key for q in asked.view.questions] != [key])  # type: ignore[misc]
        assert asked.result(20) == [True, True]
    events = native_events(temporal, "timers-1")
    assert len(of_kind(events, "timer_started")) == 2
    assert len(of_kind(events, "timer_canceled")) == 2


def test_no_worker_keeps_the_arguments_of_calls_that_were_made(
    temporal: TemporalServer, url: str
) -> None:
    engine = temporal_at(temporal, "kept", kept=0)
    with Holdfast(url, engine=engine, lease_s=3) as hf, working(hf), working(hf):
        started = [hf.start(apart_naps, ["x" * 100] * 9, id=f"kept-{n}") for n in range(4)]
        assert [each.result(60) for each in started] == [900] * 4
        until(lambda: not any(served.offers for served in serving.values()))


def test_who_looks_at_a_task_that_has_left_writes_nothing(
    temporal: TemporalServer, url: str
) -> None:
    async def look(client: Client) -> Any:
        return await client.get_workflow_handle("left-1").query("__stack_trace")

    with Holdfast(url, engine=temporal_at(temporal)) as hf, working(hf):
        waits = hf.start(apart_waits, "room", id="left-1")
        until(lambda: waits.status == "awaiting_user")
        hf.move("left-1", "local")
        before = hf.task("left-1").seq
        ask_temporal(temporal, look)
        assert hf.task("left-1").seq == before
        with Holdfast(url) as here:
            here.answer("left-1", True)
            assert here.resume("left-1") == "room True"


@pytest.mark.parametrize("options", [{}, {"kept": 0}])
def test_a_function_that_waits_for_plain_asyncio_goes_on_in_new_runs(
    temporal: TemporalServer, url: str, options: dict[str, Any]
) -> None:
    engine = temporal_at(temporal, longest_history=30, **options)
    with Holdfast(url, engine=engine) as hf, working(hf):
        assert hf.start(apart_by_event, 20, id=f"runs-{len(options)}").result(60) == 190


def test_a_function_that_can_not_be_held_says_why(temporal: TemporalServer, url: str) -> None:
    with Holdfast(url, engine=temporal_at(temporal)) as hf, working(hf) as said:
        handle = hf.start(apart_runs_a_loop, id="loop-1")
        until(lambda: any("is not async, and makes an async call" in text for text in said))
        assert handle.status == "in_progress"
        assert handle.view.calls == ()
        hf.move("loop-1", "local", force=True, timeout_s=20)
    with Holdfast(url) as here:
        assert here.resume("loop-1") == 1


@pytest.mark.parametrize("address", ["", "localhost", "http://localhost:7233", "a b:1", ":7233"])
def test_an_address_that_can_not_be_right_is_refused(address: str) -> None:
    with pytest.raises(BadInput, match=r"must be like '127\.0\.0\.1:7233'"):
        Temporal(address)


def test_an_address_may_be_one_of_ipv6() -> None:
    assert Temporal("[::1]:7233").address == "[::1]:7233"


def test_a_message_is_one_signal_however_many_workers_tell_of_it(
    temporal: TemporalServer, url: str
) -> None:
    engine = temporal_at(temporal)
    with Holdfast(url, engine=engine) as hf, working(hf):
        trip = hf.start(apart_waits, "12", id="told-often")
        until(lambda: trip.status == "awaiting_user")
        job = job_for(hf.task("told-often").state)
        for _ in range(3):  # each worker looks after every inbox
            other = temporal_at(temporal, queue=engine.queue)
            for name in ("message-1", "message-2", "message-1"):
                other.tell(job, name)
            other.close()
        hf.answer("told-often", True)
        assert trip.result(60) == "12 True"
    signals = of_kind(native_events(temporal, "told-often"), "workflow_execution_signaled")
    assert len(signals) == 3, "two messages that mean nothing, and the answer"
