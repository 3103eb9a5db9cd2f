"""What goes wrong around an engine is said, loses nothing, and goes on when it is mended."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from temporalio.client import Client

from holdfast import (
    Holdfast,
    TaskCancelled,
    ask,
    step,
    task,
    tool,
)
from holdfast.core.events import AnyEvent, CancelRequested
from holdfast.engines.remote.sweep import SweepMemory, sweep
from holdfast.engines.routing import job_for
from holdfast.engines.temporal import Temporal
from holdfast.errors import DrivenElsewhere, EngineConflict, EngineError
from holdfast.log.reading import read_events, stream_of
from holdfast.testing.servers import TemporalServer
from tests.engines.ill import (
    HOSTILE,
    Full,
    begin_anew,
    define,
    go_on,
    ill_ask,
    ill_greet,
    ill_large,
    ill_name,
    ill_settle,
    ill_wait,
    made,
    without,
)
from tests.engines.killing import ROOT
from tests.engines.serve import LEASE_S, LOST_AFTER_S
from tests.engines.servers import new_temporal
from tests.engines.stopping import stopping
from tests.engines.temporally import ask_temporal, temporal_at, until, working
from tests.freezing import freeze, is_unlocked

NOBODY = "127.0.0.1:1"
MOST = 200_000


@pytest.fixture(autouse=True)
def _fresh() -> None:
    begin_anew()


def ill_unbook(name: str) -> None:
    made.append(f"unbook {name}")


@tool(undo=ill_unbook)
def ill_book(name: str) -> str:
    made.append(f"book {name}")
    return name


@task
def ill_booking(name: str) -> str:
    ill_book(name)
    return str(ask("Keep it?", bool))


def events(hf: Holdfast, id: str) -> list[AnyEvent]:
    return list(read_events(hf.store, stream_of(id)))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/state.db"


# No server, or another one


def test_without_a_server_a_task_is_safe_and_is_started_when_there_is_one(
    temporal: TemporalServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "holdfast")
    with Holdfast(url, engine=Temporal(NOBODY)) as hf:
        with pytest.raises(EngineError, match=f"{NOBODY} can't be reached.*is safe in sqlite"):
            hf.run(ill_greet, "Ada", id="down-1")
        assert hf.start(ill_ask, "Bob", id="down-2").status == "pending"
        hf.pause("down-2")
        hf.cancel("down-2", because="not needed")
        with working(hf) as said:
            until(lambda: any("can't be reached" in text for text in said))
    with Holdfast(url) as local:
        local.start(ill_greet, "Cy", id="down-3")
    refused = pytest.raises(EngineError, match=r"can't be reached.*not moved: it is local's")
    with Holdfast(url, engine=Temporal(NOBODY)) as hf, refused:
        hf.move("down-3")
    with Holdfast(url, engine=temporal_at(temporal)) as hf, working(hf):
        assert hf.resume("down-1") == "hi Ada"
        assert hf.move("down-3") == ("down-3",)
        assert hf.resume("down-3") == "hi Cy"
        with pytest.raises(TaskCancelled, match="not needed"):
            hf.resume("down-2")
    assert {"Ada", "Cy"} <= set(made)


def test_a_server_that_goes_away_in_the_middle_of_a_step_and_comes_back(
    tmp_path: Path, url: str
) -> None:
    with (
        new_temporal(tmp_path / "temporal") as server,
        Holdfast(url, engine=temporal_at(server)) as hf,
        working(hf),
    ):
        handle = hf.start(ill_wait, "Ada", id="gone-1")
        until(lambda: made)
        server.kill()
        go_on.set()
        until(lambda: "completed" in [c.status for c in hf.task("gone-1").state.calls.values()])
        server.start()
        assert handle.result(timeout_s=60) == "hi Ada after"
    assert made == ["Ada", "Ada after"]


def test_a_namespace_that_is_not_there_is_named_with_how_to_make_it(
    temporal: TemporalServer, url: str
) -> None:
    engine = Temporal(temporal.address, namespace="nowhere")
    with Holdfast(url, engine=engine) as hf:
        with pytest.raises(EngineError, match=r"no namespace 'nowhere': make it .*create nowhere"):
            hf.run(ill_greet, "Ada", id="space-1")
        with pytest.raises(EngineError, match="no namespace 'nowhere'"):
            hf.engine.worker(hf).run()
        assert hf.task("space-1").status == "pending"


# Whose id it is


def test_a_task_that_is_driven_locally_is_not_taken(temporal: TemporalServer, url: str) -> None:
    with Holdfast(url) as local:
        local.start(ill_ask, "Ada", id="mine-1")
    with Holdfast(url, engine=temporal_at(temporal)) as hf:
        with pytest.raises(DrivenElsewhere, match="'mine-1' exists, and is driven locally"):
            hf.run(ill_ask, "Ada", id="mine-1")
        assert hf.task("mine-1").state.driver == ""


def test_the_task_of_another_store_with_the_same_id_is_a_conflict_and_is_left_alone(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    one, two = (Holdfast(tmp_path / n, engine=temporal_at(temporal, "shared")) for n in "ab")
    with one, two:
        one.start(ill_ask, "Ada", id="same-1")
        with pytest.raises(EngineConflict, match=r"not this task's.*under another id"):
            two.run(ill_ask, "Bob", id="same-1")
        with pytest.raises(Exception, match="no task 'same-1'"):
            two.task("same-1")


def test_a_worker_of_another_store_refuses_a_task_and_changes_nothing(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    one, two = (Holdfast(tmp_path / n, engine=temporal_at(temporal, "shared-2")) for n in "ab")
    with one, two:
        one.start(ill_greet, "Ada", id="same-2")
        with Holdfast(tmp_path / "b", engine=Temporal(NOBODY)) as unheard:
            unheard.start(ill_greet, "Bob", id="same-2")
        before = two.task("same-2").state.seq
        with working(two) as said:
            until(lambda: any("which has another under the same id" in text for text in said))
        assert two.task("same-2").state.seq == before
        with working(one):
            assert one.resume("same-2") == "hi Ada"
    assert made == ["Ada"]


def test_a_workflow_of_somebody_else_with_that_id_is_a_conflict_and_is_left_alone(
    temporal: TemporalServer, url: str
) -> None:
    async def begin(client: Client) -> Any:
        return await client.start_workflow("TheirFlow", id="theirs-1", task_queue="theirs")

    theirs = ask_temporal(temporal, begin)
    conflict = pytest.raises(EngineConflict, match=r"\(TheirFlow, of another store")
    with Holdfast(url, engine=temporal_at(temporal)) as hf, conflict:
        hf.run(ill_greet, "Ada", id="theirs-1")

    async def status(client: Client) -> str:
        found = await client.get_workflow_handle("theirs-1").describe()
        return f"{found.status.name if found.status else ''} {found.run_id == theirs.result_run_id}"

    assert ask_temporal(temporal, status) == "RUNNING True"


# What an admin does on Temporal's own page


def test_a_workflow_that_was_cancelled_by_temporals_means_is_cancelled_and_undone(
    temporal: TemporalServer, url: str
) -> None:
    async def cancel(client: Client) -> None:
        await client.get_workflow_handle("page-1").cancel()

    with Holdfast(url, engine=temporal_at(temporal)) as hf, working(hf):
        handle = hf.start(ill_booking, "Oslo", id="page-1")
        until(lambda: handle.status == "awaiting_user")
        ask_temporal(temporal, cancel)
        with pytest.raises(TaskCancelled):
            handle.result(timeout_s=20)
        (asked,) = [e for e in events(hf, "page-1") if isinstance(e, CancelRequested)]
        assert asked.by == "temporal"
    assert made == ["book Oslo", "unbook Oslo"]


def test_a_workflow_that_was_terminated_is_left_so_until_somebody_goes_on_with_it(
    temporal: TemporalServer, url: str
) -> None:
    async def terminate(client: Client) -> None:
        await client.get_workflow_handle("page-2").terminate()

    with Holdfast(url, engine=temporal_at(temporal)) as hf, working(hf):
        handle = hf.start(ill_ask, "Ada", id="page-2")
        until(lambda: handle.status == "awaiting_user")
        ask_temporal(temporal, terminate)
        swept = sweep(hf.store, hf.engine, SweepMemory(), 0.0)
        assert swept.started == ()
        assert "page-2" in swept.trouble[0] and "terminated" in swept.trouble[0]
        hf.answer("page-2", True)
        swept = sweep(hf.store, hf.engine, SweepMemory(), 0.0)
        assert swept.started == ()
        assert hf.resume("page-2") == "Ada: True"
    assert made == ["Ada"]


def test_a_terminated_task_that_is_cancelled_is_undone(temporal: TemporalServer, url: str) -> None:
    async def terminate(client: Client) -> None:
        await client.get_workflow_handle("page-3").terminate()

    with Holdfast(url, engine=temporal_at(temporal)) as hf, working(hf):
        handle = hf.start(ill_booking, "Oslo", id="page-3")
        until(lambda: handle.status == "awaiting_user")
        ask_temporal(temporal, terminate)
        hf.cancel("page-3")
        with pytest.raises(TaskCancelled):
            handle.result(timeout_s=20)
    assert made == ["book Oslo", "unbook Oslo"]


def test_signals_that_mean_nothing_are_passed_over(temporal: TemporalServer, url: str) -> None:
    async def disturb(client: Client) -> None:
        handle = client.get_workflow_handle("page-4")
        await handle.signal("tell", "no-such-message")
        await handle.signal("tell", {"not": "a name"})
        await handle.signal("tell")
        await handle.signal("nonsense", 7)

    with Holdfast(url, engine=temporal_at(temporal)) as hf, working(hf):
        handle = hf.start(ill_ask, "Ada", id="page-4")
        until(lambda: handle.status == "awaiting_user")
        ask_temporal(temporal, disturb)
        hf.answer("page-4", True)
        assert handle.result(timeout_s=20) == "Ada: True"


def test_a_message_that_temporal_was_not_told_of_is_told_by_a_worker(
    temporal: TemporalServer, url: str
) -> None:
    with Holdfast(url, engine=temporal_at(temporal)) as hf, working(hf):
        handle = hf.start(ill_ask, "Ada", id="lost-1")
        until(lambda: handle.status == "awaiting_user")
        with Holdfast(url) as untold:
            untold.answer("lost-1", True)
        assert handle.result(timeout_s=20) == "Ada: True"


# The code


code = ["old"]


@step
def ill_first(name: str) -> str:
    made.append(f"first {name}")
    return name


@step
def ill_second(name: str) -> str:
    made.append(f"second {name}")
    return name


@task
def ill_changing(name: str) -> str:
    (ill_first if code[0] == "old" else ill_second)(name)
    return f"{name}: {ask('Go on?', bool, id='go')}"


def test_a_worker_without_the_code_says_so_and_one_with_it_goes_on(
    temporal: TemporalServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = temporal_at(temporal)
    with Holdfast(url, engine=engine) as hf:
        hf.start(ill_greet, "Ada", id="code-1")
        with without("ill_greet"), working(hf) as said:
            until(lambda: any("CodeMissing: the log names a task 'ill_greet'" in s for s in said))
            assert hf.task("code-1").status in ("pending", "in_progress")
        assert "Traceback" not in caplog.text  # a line says it
        with working(hf):
            assert hf.resume("code-1") == "hi Ada"


def test_a_worker_with_changed_code_says_so_and_the_right_code_goes_on(
    temporal: TemporalServer, url: str
) -> None:
    code[0] = "old"
    with Holdfast(url, engine=temporal_at(temporal)) as hf:
        handle = hf.start(ill_changing, "Ada", id="code-2")
        with working(hf):
            until(lambda: handle.status == "awaiting_user")
        code[0] = "new"
        hf.answer("code-2", True)
        with working(hf) as said:
            text = until(lambda: next((s for s in said if "CodeChanged" in s), ""))
            assert "code-2: CodeChanged: " in text and "ill_first" in text and "ill_second" in text
            assert handle.status == "awaiting_user"
        code[0] = "old"
        with working(hf):
            assert handle.result(timeout_s=20) == "Ada: True"
    assert made == ["first Ada"]


def test_of_two_versions_the_older_refuses_what_the_newer_began(
    temporal: TemporalServer, url: str
) -> None:
    with Holdfast(url, engine=temporal_at(temporal)) as hf:
        handle = hf.start(define(2), "Ada", id="code-3")
        define(1)
        with working(hf) as said:
            until(lambda: any("CodeChanged" in s and "version 2" in s for s in said))
        assert made == []
        define(2)
        with working(hf):
            until(lambda: handle.status == "awaiting_user")
            hf.answer("code-3", True)
            assert handle.result(timeout_s=20) == "hi Ada True 2"


# Values and names


@task
def ill_too_large(size: int) -> int:
    return len(ill_large(size))


def test_a_result_above_the_limit_fails_as_it_does_locally(
    temporal: TemporalServer, url: str
) -> None:
    with Holdfast("memory://", max_value_bytes=MOST) as hf, pytest.raises(Exception) as local:
        hf.run(ill_too_large, 2 * MOST, id="large-0")
    engine = temporal_at(temporal)
    with Holdfast(url, engine=engine, max_value_bytes=MOST) as hf, working(hf):
        with pytest.raises(type(local.value)) as remote:
            hf.run(ill_too_large, 2 * MOST, id="large-1")
        assert hf.run(ill_too_large, MOST // 2, id="large-2") == MOST // 2
    assert str(remote.value).replace("large-1", "large-0") == str(local.value)


@task(name="__temporal_workflow")
def ill_internal(name: str) -> str:
    return ill_settle(name)


@pytest.mark.parametrize("id", HOSTILE)
def test_ids_and_names_of_all_kinds(temporal: TemporalServer, url: str, id: str) -> None:
    with Holdfast(url, engine=temporal_at(temporal)) as hf, working(hf):
        assert hf.run(ill_name, id, id=id) == id
        job = job_for(hf.task(id).state)
        until(lambda: getattr(hf.engine.query(job), "detail", "") == "completed")
    assert made == [id]


def test_names_that_look_like_those_of_temporal(temporal: TemporalServer, url: str) -> None:
    with Holdfast(url, engine=temporal_at(temporal)) as hf, working(hf):
        assert hf.run(ill_internal, "Ada", id="internal-1") == "Ada"


# The store


def test_a_disk_that_is_full_for_a_while_stops_nothing_for_good(temporal: TemporalServer) -> None:
    store = Full()
    with Holdfast(store, engine=temporal_at(temporal)) as hf, working(hf) as said:
        handle = hf.start(ill_wait, "Ada", id="full-1")
        until(lambda: made)
        store.is_full = True
        go_on.set()
        until(lambda: any("no space left" in text for text in said))
        store.is_full = False
        assert handle.result(timeout_s=30) == "hi Ada after"
    assert made.count("Ada after") == 1


# A worker that is stopped, and comes back when it is taken for dead


@contextmanager
def worker_process(url: str, server: TemporalServer, queue: str) -> Iterator[int]:
    module = ["-m", "tests.engines.serve", url, "tests.engines.stopping"]
    process = subprocess.Popen(
        [sys.executable, *module, "temporal", server.address, queue],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def stop_working(worker: int, folder: Path) -> None:
    freeze(worker, partial(is_unlocked, folder / "state.db"), lambda: time.sleep(0.01))


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def test_a_worker_that_was_stopped_and_comes_back_too_late_is_refused(
    temporal: TemporalServer, url: str, tmp_path: Path
) -> None:
    begun, ended, effects = (tmp_path / n for n in ("begun", "ended", "effects"))
    engine = temporal_at(temporal, "zombies", lost_after_s=LOST_AFTER_S)
    with Holdfast(url, lease_s=LEASE_S, engine=engine) as hf:
        handle = hf.start(stopping, str(tmp_path), id="zombie-1")
        with worker_process(url, temporal, "zombies") as first:
            until(lambda: lines(begun))
            stop_working(first, tmp_path)
            with worker_process(url, temporal, "zombies") as second:
                until(lambda: len(lines(begun)) == 2, 60)
                (tmp_path / "go").touch()
                assert handle.result(timeout_s=20) == second
                os.kill(first, signal.SIGCONT)
                until(lambda: str(first) in lines(ended))
                recorded = hf.task("zombie-1").state.calls["1"].result
                assert isinstance(recorded, Raw) and bytes(recorded) == str(second).encode()
    with Holdfast(url) as hf:
        assert not hf.verify().damage
        assert hf.task("zombie-1").status == "completed"
    assert lines(effects) == [str(second)]


def test_a_worker_that_was_stopped_and_comes_back_goes_on_where_it_was(
    temporal: TemporalServer, url: str, tmp_path: Path
) -> None:
    engine = temporal_at(temporal, "sleepers", lost_after_s=LOST_AFTER_S)
    with Holdfast(url, lease_s=LEASE_S, engine=engine) as hf:
        handle = hf.start(stopping, str(tmp_path), id="sleeper-1")
        with worker_process(url, temporal, "sleepers") as worker:
            until(lambda: lines(tmp_path / "begun"))
            stop_working(worker, tmp_path)
            until_missed(temporal, "sleeper-1")
            os.kill(worker, signal.SIGCONT)
            until_asked_again(temporal, "sleeper-1")
            (tmp_path / "go").touch()
            assert handle.result(timeout_s=20) == worker
    assert len(lines(tmp_path / "begun")) == 1
    assert len(lines(tmp_path / "effects")) == 1


def until_missed(server: TemporalServer, id: str) -> None:
    """Until Temporal takes the worker that makes a call for dead."""

    async def is_missed(client: Client) -> bool:
        events = client.get_workflow_handle(id).fetch_history_events()
        return any([e.HasField("activity_task_timed_out_event_attributes") async for e in events])

    until(lambda: ask_temporal(server, is_missed))


def until_asked_again(server: TemporalServer, id: str) -> None:
    """Until a worker was given a call to make."""

    async def is_asked(client: Client) -> bool:
        found = (await client.get_workflow_handle(id).describe()).raw_description
        return any(each.HasField("last_started_time") for each in found.pending_activities)

    until(lambda: ask_temporal(server, is_asked))
