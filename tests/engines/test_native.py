"""What a task is on an engine: the engine's own things, under the names that its author gave."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from holdfast import Holdfast, Retry, TaskCancelled, ask, sleep, start, step, task, tool
from holdfast.engines.restate import Restate
from holdfast.engines.routing import job_for
from holdfast.testing.servers import RestateServer, TemporalServer, free_ports
from tests.engines.temporally import ask_temporal, temporal_at, until, working

RETRY = Retry(attempts=4, delay_s=0.5, backoff=3.0, max_delay_s=9.0, jitter=0)


@step(retry=RETRY, timeout_s=7)
def native_find(city: str) -> str:
    return f"{city} Inn"


@step
async def native_look(city: str) -> str:
    return f"{city} Inn"


@tool
def native_book(room: str) -> str:
    return f"booked {room}"


@task
def native_visit(city: str) -> str:
    return city


@task
def native_trip(city: str) -> str:
    room = native_find(city)
    sleep(0.2)
    if not ask(f"Book {room}?", bool, id="book"):
        return "stayed"
    visit = start(native_visit, city)
    return f"{native_book(room)}, {visit.result()}"


@task
async def native_limited(city: str) -> str:
    async with asyncio.timeout(3600):
        room = await native_look(city)
    return f"{room} {await ask('Fine?', bool)}"


def native_events(server: TemporalServer, id: str) -> list[HistoryEvent]:
    """What Temporal wrote down of a workflow."""

    async def fetch(client: Client) -> list[HistoryEvent]:
        return [event async for event in client.get_workflow_handle(id).fetch_history_events()]

    found: list[HistoryEvent] = ask_temporal(server, fetch)
    return found


def of_kind(events: list[HistoryEvent], kind: str) -> list[Any]:
    """What those of one type say: `activity_task_scheduled`."""
    field = f"{kind}_event_attributes"
    return [getattr(event, field) for event in events if event.HasField(field)]  # type: ignore[arg-type]


def has_ended(hf: Holdfast, id: str) -> bool:
    known = hf.engine.query(job_for(hf.task(id).state))
    return known is not None and known.status == "ended"


def test_a_task_on_temporal_is_a_workflow_of_activities_timers_signals_and_children(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    engine = temporal_at(temporal)
    with Holdfast(f"sqlite:///{tmp_path}/store.db", engine=engine) as hf, working(hf):
        trip = hf.start(native_trip, "Oslo", id="native-1")
        until(lambda: trip.status == "awaiting_user")
        hf.answer("native-1", True)
        assert trip.result(20) == "booked Oslo Inn, Oslo"
        until(lambda: has_ended(hf, "native-1"))
    events = native_events(temporal, "native-1")
    assert of_kind(events, "workflow_execution_started")[0].workflow_type.name == "native_trip"
    find, book = of_kind(events, "activity_task_scheduled")
    assert [find.activity_type.name, book.activity_type.name] == ["native_find", "native_book"]
    assert find.retry_policy.initial_interval.ToTimedelta().total_seconds() == RETRY.delay_s
    assert find.retry_policy.backoff_coefficient == RETRY.backoff
    assert find.retry_policy.maximum_interval.ToTimedelta().total_seconds() == RETRY.max_delay_s
    # A little more than its own: the attempt is given up in the log first.
    assert find.start_to_close_timeout.ToTimedelta().total_seconds() == 7 + engine.lost_after_s
    [timer] = of_kind(events, "timer_started")
    assert 0 < timer.start_to_fire_timeout.ToTimedelta().total_seconds() < 1
    assert len(of_kind(events, "timer_fired")) == 1
    assert of_kind(events, "workflow_execution_signaled")[0].signal_name == "tell"
    [child] = of_kind(events, "start_child_workflow_execution_initiated")
    assert (child.workflow_type.name, child.workflow_id) == ("native_visit", "native-1.4")
    assert len(of_kind(events, "workflow_execution_completed")) == 1


def test_a_task_that_is_cancelled_is_a_cancelled_workflow(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    engine = temporal_at(temporal)
    with Holdfast(f"sqlite:///{tmp_path}/store.db", engine=engine) as hf, working(hf):
        trip = hf.start(native_trip, "Oslo", id="native-2")
        until(lambda: trip.status == "awaiting_user")
        hf.cancel("native-2")
        with pytest.raises(TaskCancelled):
            trip.result(20)
        until(lambda: has_ended(hf, "native-2"))
    events = native_events(temporal, "native-2")
    assert len(of_kind(events, "workflow_execution_cancel_requested")) == 1
    assert len(of_kind(events, "workflow_execution_canceled")) == 1


def test_a_limit_that_was_kept_leaves_no_timer_on_temporal(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    engine = temporal_at(temporal)
    with Holdfast(f"sqlite:///{tmp_path}/store.db", engine=engine) as hf, working(hf):
        trip = hf.start(native_limited, "Oslo", id="native-3")
        until(lambda: trip.status == "awaiting_user")
        events = until(lambda: native_events(temporal, "native-3"))
        until(lambda: of_kind(native_events(temporal, "native-3"), "timer_canceled"))
        assert len(of_kind(events, "timer_started")) == 1
        hf.answer("native-3", True)
        assert trip.result(20) == "Oslo Inn True"


def test_a_task_on_restate_is_a_workflow_of_runs_sleeps_promises_and_sends(
    restate: RestateServer, tmp_path: Path
) -> None:
    listen = f"127.0.0.1:{next(free_ports())}"
    engine = Restate(restate.url, admin=restate.admin_url, listen=listen)
    with Holdfast(f"sqlite:///{tmp_path}/store.db", engine=engine) as hf, working(hf) as said:
        until(lambda: any(text.startswith("drives") for text in said))
        trip = hf.start(native_trip, "Oslo", id="native-4")
        until(lambda: trip.status == "awaiting_user")
        hf.answer("native-4", True)
        assert trip.result(20) == "booked Oslo Inn, Oslo"
        until(lambda: has_ended(hf, "native-4"))
        known = engine.query(job_for(trip.view.state))
        assert known is not None
        journal = engine._select(
            f"entry_type, name from sys_journal where id = '{known.run}' order by index"
        )
        targets = engine._select("target from sys_invocation where target like 'native_%'")
    asked = Counter(row["entry_type"].removeprefix("Command: ") for row in journal)
    runs = [row["name"] for row in journal if row["entry_type"] == "Command: Run"]
    assert runs == ["begin", "native_find", "native_book"]
    assert (asked["Sleep"], asked["OneWayCall"], asked["Call"]) == (1, 1, 1)
    assert asked["GetPromise"] >= 2  # each is the next message to come
    assert asked["CompletePromise"] == asked["Output"] == 1
    assert {row["target"] for row in targets} >= {
        "native_trip/native-4/run",
        "native_trip/native-4/tell",
        "native_visit/native-4.4/run",
    }
