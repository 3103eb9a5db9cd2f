"""Tasks on Restate: a real server, and workers that may be killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Handle, Holdfast, TaskCancelled, TaskFailed, Unanswered, Worker
from holdfast.cli.commands.show import event_line
from holdfast.core.events import Claimed, Moved, Parked, parts_of
from holdfast.core.spec import task_spec
from holdfast.engines.port import Job
from holdfast.engines.remote.sweep import SweepMemory, sweep
from holdfast.engines.restate import Restate
from holdfast.engines.routing import job_for
from holdfast.errors import BadInput, EngineConflict, EngineError
from holdfast.log.reading import read_events, stream_of
from holdfast.log.states import load
from holdfast.testing.servers import RestateServer, free_ports
from tests.engines import restate_tasks as tasks
from tests.engines.restately import last_failure
from tests.engines.servers import new_restate
from tests.engines.working import driving, until_it_drives

PATIENCE_S = 30.0
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(tasks.FOLDER, str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def listen() -> str:
    """Where the workers of these tests listen, one after the other: one deployment."""
    return f"127.0.0.1:{next(free_ports())}"


@contextmanager
def driven(store: Any, server: RestateServer, listen: str, **options: Any) -> Iterator[Holdfast]:
    """A store whose tasks Restate drives, with a worker in this process."""
    engine = engine_at(server, listen, **options)
    ready = threading.Event()

    def say(text: str) -> None:
        if text.startswith("drives"):
            ready.set()

    with Holdfast(store, engine=engine) as hf, driving(engine.worker(hf, say=say)):
        assert ready.wait(PATIENCE_S)
        yield hf


@contextmanager
def worker_process(store: Path, server: RestateServer, listen: str) -> Iterator[Any]:
    """A worker in a process of its own, which drives tasks when the block begins."""
    command = [sys.executable, "-m", "tests.engines.restate_tasks", str(store), server.url]
    process = subprocess.Popen(
        [*command, server.admin_url, listen],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert process.stdout is not None
    try:
        until_it_drives(process.stdout)
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def wait_for(hf: Holdfast, id: str, status: str) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while hf.task(id).status != status:
        assert time.monotonic() < give_up_at, (id, status, hf.task(id))
        time.sleep(0.01)


def wait_until(what: Callable[[], Any]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def calls(hf: Holdfast, id: str, kind: str) -> list[Any]:
    state = load(hf.store, id, missing_ok=True)
    return [call for call in state.calls.values() if call.kind == kind]


def has_asked(hf: Holdfast, id: str, number: int) -> bool:
    return len(calls(hf, id, "question")) == number


# What a person does to the task of each kind, and how it ends.


def leave(hf: Holdfast, id: str) -> None:
    pass


def answer(hf: Holdfast, id: str) -> None:
    wait_for(hf, id, "awaiting_user")
    hf.answer(id, "Ada")


def answer_and_approve(hf: Holdfast, id: str) -> None:
    answer(hf, id)
    wait_until(lambda: calls(hf, id, "approval"))
    hf.answer(id, True)


def answer_next(hf: Holdfast, id: str, number: int) -> None:
    wait_until(partial(has_asked, hf, id, number))
    wait_for(hf, id, "awaiting_user")
    hf.answer(id, True, question=calls(hf, id, "question")[-1].key)


def pause_and_go_on(hf: Holdfast, id: str) -> None:
    wait_for(hf, id, "awaiting_user")
    hf.pause(id, because="lunch")
    wait_for(hf, id, "paused")
    hf.unpause(id)
    for number in (1, 2):
        answer_next(hf, id, number)


def cancel(hf: Holdfast, id: str) -> None:
    wait_for(hf, id, "awaiting_user")
    hf.cancel(id, because="too dear")


KINDS: list[Any] = [
    (tasks.rs_plain, (3,), leave),
    (tasks.rs_together, (), leave),
    (tasks.rs_together_sync, (), leave),
    (tasks.rs_asking, (), answer_and_approve),
    (tasks.rs_asking_async, (), answer),
    (tasks.rs_parent, (), leave),
    (tasks.rs_stubborn, (), leave),
    (tasks.rs_counting, (5,), leave),
    (tasks.rs_slow, (2,), pause_and_go_on),
    (tasks.rs_trip, (), cancel),
    (tasks.rs_failing, (), leave),
]


def outcome(hf: Holdfast, fn: Any, args: Any, act: Any) -> Any:
    handle = hf.start(fn, *args, id=fn.__name__)
    act(hf, handle.id)
    try:
        return handle.result(PATIENCE_S)
    except (TaskFailed, TaskCancelled) as error:
        return type(error), str(error)


BY_CHANCE = {"at", "until", "retry_at", "owner", "by", "seq", "post", "traceback"}
BY_ENGINE = {"engine", "driver"}


def story(hf: Holdfast, id: str) -> dict[str, list[Any]]:
    """What the log says of each call, without times and who wrote it."""
    said: dict[str, list[Any]] = {}
    read = read_events(hf.store, stream_of(id))
    for event in (part for each in read for part in parts_of(each)):
        if isinstance(event, Claimed | Parked):
            continue
        found = msgspec.json.decode(msgspec.json.encode(event))
        said.setdefault(found.get("path", ""), []).append(_timeless(found))
    return said


def _timeless(found: Any) -> Any:
    if isinstance(found, dict):
        left_out = BY_CHANCE | BY_ENGINE
        return {key: _timeless(value) for key, value in found.items() if key not in left_out}
    return [_timeless(value) for value in found] if isinstance(found, list) else found


@pytest.fixture(scope="module")
def engine_store(
    restate: RestateServer, listen: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Holdfast]:
    with driven(tmp_path_factory.mktemp("store"), restate, listen) as hf:
        yield hf


@pytest.mark.parametrize(("fn", "args", "act"), KINDS, ids=[fn.__name__ for fn, _, _ in KINDS])
def test_a_task_ends_the_same_and_has_the_same_log_as_one_that_is_driven_locally(
    fn: Any, args: Any, act: Any, engine_store: Holdfast, folder: Path
) -> None:
    found = outcome(engine_store, fn, args, act)
    done = sorted(tasks.effects())
    (folder / "effects").unlink(missing_ok=True)
    with Holdfast("memory://") as hf, driving(Worker(hf)):
        assert found == outcome(hf, fn, args, act)
        assert done == sorted(tasks.effects())
        assert story(engine_store, fn.__name__) == story(hf, fn.__name__)


# What the server is told, and what it says


def test_a_task_that_was_started_and_told_twice_does_everything_once(
    engine_store: Holdfast,
) -> None:
    hf = engine_store
    handle = hf.start(tasks.rs_trip, id="twice")
    job = job_of(hf, "twice")
    hf.engine.start(job)
    wait_for(hf, "twice", "awaiting_user")
    known = hf.engine.query(job)
    assert known is not None and known.status == "running" and known.started_at is not None
    hf.answer("twice", True)
    for _ in range(3):
        hf.engine.tell(job, "answer-3-1")
    assert handle.result(PATIENCE_S) == "kept"
    wait_until(lambda: hf.engine.query(job).status == "ended")  # type: ignore[union-attr]
    assert Counter(tasks.effects()) == {"book room": 1, "book flight": 1}


def test_a_task_can_be_cancelled_by_means_of_restate(engine_store: Holdfast) -> None:
    hf = engine_store
    handle = hf.start(tasks.rs_trip, id="native")
    wait_for(hf, "native", "awaiting_user")
    known = hf.engine.query(job_of(hf, "native"))
    assert known is not None and isinstance(hf.engine, Restate)
    hf.engine.admin.ask("PATCH", f"/invocations/{known.run}/cancel")
    with pytest.raises(TaskCancelled):
        handle.result(PATIENCE_S)
    assert tasks.effects()[-2:] == ["unbook flight", "unbook room"]


def test_a_workflow_that_somebody_killed_stays_so_until_it_is_begun_again_where_it_was(
    engine_store: Holdfast,
) -> None:
    hf = engine_store
    handle = hf.start(tasks.rs_slow, 2, id="shot")
    answer_next(hf, "shot", 1)
    wait_until(partial(has_asked, hf, "shot", 2))
    known = hf.engine.query(job_of(hf, "shot"))
    assert known is not None and isinstance(hf.engine, Restate)
    hf.engine.admin.ask("PATCH", f"/invocations/{known.run}/kill")
    wait_until(lambda: hf.engine.query(job_of(hf, "shot")).status == "stopped")  # type: ignore[union-attr]
    [said] = sweep(hf.store, hf.engine, SweepMemory(), 0.0).trouble
    assert "shot: somebody ended it on restate ([409] killed), and it is left so" in said
    with pytest.raises(Unanswered):
        hf.resume("shot")
    answer_next(hf, "shot", 2)
    assert handle.result(PATIENCE_S) == 2
    assert tasks.effects() == ["look 0", "look 1"]


def test_a_task_whose_workflow_was_killed_can_be_cancelled(engine_store: Holdfast) -> None:
    hf = engine_store
    handle = hf.start(tasks.rs_slow, 2, id="shot-2")
    wait_until(partial(has_asked, hf, "shot-2", 1))
    job = job_of(hf, "shot-2")
    hf.engine.stop(job)
    wait_until(lambda: hf.engine.query(job).status == "stopped")  # type: ignore[union-attr]
    hf.cancel("shot-2")
    with pytest.raises(TaskCancelled):
        handle.result(PATIENCE_S)


def test_a_task_that_makes_many_calls_goes_on_in_new_invocations(
    restate: RestateServer, folder: Path
) -> None:
    listen = f"127.0.0.1:{next(free_ports())}"
    with driven(folder / "s", restate, listen, prefix="renewed.", renew_after=7) as hf:
        handle = hf.start(tasks.rs_long, 10, id="long")
        for number in (1, 2):
            answer_next(hf, "long", number)
        assert handle.result(PATIENCE_S) == 2 * sum(n * n for n in range(10))
        moves = [e for e in read_events(hf.store, stream_of("long")) if isinstance(e, Moved)]
        assert moves
        for move in moves:
            assert "to a new run of restate, by" in event_line(move, handle.view.state).plain
    assert tasks.effects() == [f"look {n}" for n in range(10)] * 2


# Tasks that wait for something when they get a new run, and how they end


WAITING: list[Any] = [
    (tasks.rs_with_child, [12, 1, True]),
    (tasks.rs_with_question, [12, "no", True, True]),
    (tasks.rs_in_time, [12, True, 144, 169, 196, 225]),
    (tasks.rs_backing_off, [12, "second", True, True]),
    (tasks.rs_sleeping, [12, True, True]),
]


def must_be_right(hf: Holdfast, id: str, handle: Any, ends: Any) -> None:
    if id.endswith("rs_with_child"):
        wait_until(lambda: "look 11" in tasks.effects())
        answer_next(hf, f"{id}.1", 1)
    assert handle.result(PATIENCE_S) == ends
    done = Counter(line for line in tasks.effects() if line not in ("look 0", "look 1000"))
    assert set(done.values()) == {1}  # the child looks at 0 too


def renewals(hf: Holdfast, id: str) -> list[int]:
    events = read_events(hf.store, stream_of(id))
    return [event.since for event in events if isinstance(event, Moved)]


@pytest.mark.parametrize(("fn", "ends"), WAITING, ids=[fn.__name__ for fn, _ in WAITING])
def test_what_a_task_waits_for_goes_along_to_a_new_run_and_comes_once(
    fn: Any, ends: Any, restate: RestateServer, folder: Path
) -> None:
    listen = f"127.0.0.1:{next(free_ports())}"
    id = f"renewed-{fn.__name__}"
    with driven(folder / "s", restate, listen, prefix="renewed.", renew_after=6) as hf:
        handle = hf.start(fn, 12, id=id)
        must_be_right(hf, id, handle, ends)
        assert len(renewals(hf, id)) >= 2


@pytest.mark.parametrize(("fn", "ends"), WAITING, ids=[fn.__name__ for fn, _ in WAITING])
def test_what_a_task_waits_for_when_its_run_is_killed_comes_once_after_it_is_resumed(
    fn: Any, ends: Any, engine_store: Holdfast
) -> None:
    hf, id = engine_store, f"killed-{fn.__name__}"
    handle = hf.start(fn, 12, id=id)
    wait_until(lambda: "look 11" in tasks.effects())
    kill_run(hf, id)
    with suppress(Unanswered):
        assert hf.resume(id) == ends
    must_be_right(hf, id, handle, ends)
    assert renewals(hf, id) == [1]


def kill_run(hf: Holdfast, id: str) -> None:
    job = job_of(hf, id)
    known = hf.engine.query(job)
    assert known is not None and isinstance(hf.engine, Restate)
    hf.engine.end(known.run, "kill")
    wait_until(lambda: hf.engine.query(job).status == "stopped")  # type: ignore[union-attr]


def test_a_parent_hears_of_the_end_of_a_child_that_went_on_under_other_keys(
    restate: RestateServer, folder: Path
) -> None:
    listen = f"127.0.0.1:{next(free_ports())}"
    with driven(folder / "s", restate, listen, prefix="family.", renew_after=5) as hf:
        assert hf.start(tasks.rs_of_long, 20, id="of-long").result(PATIENCE_S) == 2470
        assert len(renewals(hf, "of-long.1")) >= 3
    assert Counter(tasks.effects()) == Counter(f"look {n}" for n in range(20))


def test_a_parent_hears_of_the_end_of_a_child_that_was_killed_and_resumed(
    engine_store: Holdfast,
) -> None:
    hf = engine_store
    handle = hf.start(tasks.rs_with_child, 1, id="bereft")
    wait_until(partial(has_asked, hf, "bereft.1", 1))
    kill_run(hf, "bereft.1")
    with pytest.raises(Unanswered):
        hf.resume("bereft.1")
    answer_next(hf, "bereft.1", 1)
    assert handle.result(PATIENCE_S) == [1, 1, True]
    # Nobody waits any more for the run that was killed.
    wait_until(lambda: not open_at(hf, "bereft.1"))


def test_the_children_of_a_task_that_was_killed_are_resumed_with_it(engine_store: Holdfast) -> None:
    hf = engine_store
    handle = hf.start(tasks.rs_with_child, 1, id="orphans")
    wait_until(partial(has_asked, hf, "orphans.1", 1))
    child = job_of(hf, "orphans.1")
    kill_run(hf, "orphans")
    wait_until(lambda: hf.engine.query(child).status == "stopped")  # type: ignore[union-attr]
    with pytest.raises(Unanswered):
        hf.resume("orphans")
    answer_next(hf, "orphans.1", 1)
    assert handle.result(PATIENCE_S) == [1, 1, True]


def open_at(hf: Holdfast, key: str) -> list[Any]:
    """What is under way at Restate for a key."""
    assert isinstance(hf.engine, Restate)
    query = (
        f"select target from sys_invocation where target_service_key = '{key}' "
        f"and status != 'completed'"
    )
    rows: list[Any] = hf.engine.admin.ask("POST", "/query", {"query": query}).json()["rows"]
    return rows


class Dies(Restate):
    """Whoever starts a new run of a task has trouble right before it, or right after it."""

    def __init__(self, *args: Any, after: bool, **options: Any) -> None:
        super().__init__(*args, **options)
        self._after, self._died = after, set[int]()

    def start(self, job: Job) -> None:
        if job.seq == 1 or job.seq in self._died:
            return super().start(job)
        self._died.add(job.seq)
        if self._after:
            super().start(job)
        raise EngineError("no answer")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_run_that_dies_when_it_has_written_that_a_new_one_follows_comes_to_the_same_end(
    after: bool, restate: RestateServer, folder: Path
) -> None:
    listen = f"127.0.0.1:{next(free_ports())}"
    engine = Dies(
        restate.url,
        admin=restate.admin_url,
        listen=listen,
        prefix="dies.",
        renew_after=6,
        after=after,
    )
    id = f"dies-{after}"
    with Holdfast(folder / "s", engine=engine) as hf, driving(engine.worker(hf)):
        handle = hf.start(tasks.rs_sleeping, 12, id=id)
        must_be_right(hf, id, handle, [12, True, True])
        since = renewals(hf, id)
        assert len(since) >= 2 and since == sorted(set(since))  # each was followed once
        wait_until(lambda: not open_at(hf, id))


def test_a_failed_task_can_be_tried_again(engine_store: Holdfast, folder: Path) -> None:
    with pytest.raises(TaskFailed):
        engine_store.run(tasks.rs_mended, id="mended")
    (folder / "mended").touch()
    assert engine_store.retry("mended") == 1
    assert tasks.effects() == ["look 1"]


def test_an_id_that_restate_knows_from_another_store_is_refused(
    engine_store: Holdfast, folder: Path
) -> None:
    engine_store.run(tasks.rs_plain, 1, id="taken")
    with (
        Holdfast(folder / "other", engine=engine_store.engine) as other,
        pytest.raises(EngineConflict, match=r"'taken'.*another store.*prefix"),
    ):
        other.run(tasks.rs_plain, 1, id="taken")


def test_a_restate_that_is_not_there_or_is_something_else_is_named(
    restate: RestateServer, folder: Path
) -> None:
    job = Job("trip-1", "rs_nowhere", 1)
    nobody = f"http://127.0.0.1:{next(free_ports())}"
    with pytest.raises(EngineError, match=f"{nobody} can't be reached.*start its server"):
        Restate(nobody).start(job)
    with pytest.raises(EngineError, match=r"no worker has registered 'rs_nowhere'.*Start one"):
        Restate(restate.url, admin=restate.admin_url).start(job)
    with pytest.raises(EngineError, match="is it Restate's ingress"):
        Restate(restate.admin_url, admin=restate.admin_url).start(job)
    with pytest.raises(EngineError, match="is it Restate's admin API"):
        Restate(restate.url, admin=restate.url).query(job)


@pytest.mark.parametrize(
    "given",
    [
        {"url": "restate:8080"},
        {"admin": "ftp://restate"},
        {"listen": "9080"},
        {"listen": "127.0.0.1:99999"},
        {"prefix": "restate"},
        {"prefix": "a b"},
        {"renew_after": 0},
    ],
)
def test_settings_that_can_not_be_right_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=f"Restate.{next(iter(given))}="):
        Restate(**given)


def job_of(hf: Holdfast, id: str) -> Job:
    return job_for(load(hf.store, id, missing_ok=True))


# Trouble


def test_a_server_that_goes_away_during_a_step_comes_back_to_its_result(folder: Path) -> None:
    listen = f"127.0.0.1:{next(free_ports())}"
    with new_restate(folder / "restate") as server, driven(folder / "s", server, listen) as hf:
        handle = hf.start(tasks.rs_patient, id="patient")
        wait_until(lambda: "waits" in tasks.effects())
        try:
            server.restart()
            wait_until(lambda: is_asked_again(hf, "patient"))
        finally:
            (folder / "go").touch()
        assert handle.result(PATIENCE_S) == "went"
    assert tasks.effects() == ["waits", "went"]


def is_asked_again(hf: Holdfast, id: str) -> bool:
    with suppress(EngineError):  # it has just come back
        known = hf.engine.query(job_of(hf, id))
        return known is not None and known.detail == "running"
    return False


def test_a_worker_that_is_stopped_finishes_its_step_and_another_goes_on(folder: Path) -> None:
    listen = f"127.0.0.1:{next(free_ports())}"
    with new_restate(folder / "restate") as server:
        with (
            worker_process(folder / "s", server, listen) as worker,
            Holdfast(folder / "s", engine=engine_at(server, listen)) as hf,
        ):
            handle = hf.start(tasks.rs_patient, id="patient")
            wait_until(lambda: "waits" in tasks.effects())
            worker.send_signal(signal.SIGTERM)
            (folder / "go").touch()
            assert worker.wait(PATIENCE_S) == 0
            assert tasks.effects() == ["waits"]
        with driven(folder / "s", server, listen) as hf:
            assert hf.resume(handle.id) == "went"
    assert tasks.effects() == ["waits", "went"]


def test_a_worker_that_finishes_a_long_step_leaves_all_else_to_the_others(folder: Path) -> None:
    listen = f"127.0.0.1:{next(free_ports())}"
    names = [f"other-{i}" for i in range(6)]
    with (
        new_restate(folder / "restate") as server,
        Holdfast(folder / "s", engine=engine_at(server, listen)) as hf,
        worker_process(folder / "s", server, listen) as worker,
    ):
        long = hf.start(tasks.rs_patient, id="patient")
        waiting = hf.start(tasks.rs_slow, 1, id="waiting")
        wait_until(lambda: "waits" in tasks.effects() and has_asked(hf, "waiting", 1))
        with worker_process(folder / "s", server, listen):
            worker.send_signal(signal.SIGTERM)
            assert worker.stdout is not None
            wait_until(lambda: "finishing" in worker.stdout.readline())
            handles = [hf.start(tasks.rs_plain, 1, id=name) for name in names]
            hf.answer("waiting", True)
            for handle in [waiting, *handles]:
                handle.result(PATIENCE_S)
            assert worker.poll() is None  # it still has the step in hand
            (folder / "go").touch()
            assert worker.wait(PATIENCE_S) == 0
            assert long.result(PATIENCE_S) == "went"
    assert Counter(tasks.effects())["waits"] == 1


def has_looked(times: int) -> bool:
    return len(tasks.effects()) == times


def test_limits_that_were_kept_ring_for_nobody_whoever_runs_the_function_again(
    folder: Path,
) -> None:
    listen = f"127.0.0.1:{next(free_ports())}"
    with new_restate(folder / "restate") as server:
        for number in (1, 2, 3):
            with driven(folder / "s", server, listen) as hf:
                if number == 1:
                    hf.start(tasks.rs_limited, 12, id="limited")
                answer_next(hf, "limited", number)
                looks = min(4 * number + 4, 12)
                wait_until(partial(has_looked, looks))
                time.sleep(0.7)  # the limits are over, and Restate says so
        with driven(folder / "s", server, listen) as hf:
            assert hf.resume("limited") == 12
    assert tasks.effects() == [f"look {n}" for n in range(12)]


def test_a_worker_registers_again_with_a_server_that_came_back_empty(folder: Path) -> None:
    listen = f"127.0.0.1:{next(free_ports())}"
    with new_restate(folder / "restate") as server, driven(folder / "s", server, listen) as hf:
        waiting = hf.start(tasks.rs_slow, 1, id="waiting")
        wait_until(partial(has_asked, hf, "waiting", 1))
        server.kill()
        shutil.rmtree(folder / "restate" / "data")
        server.start()
        assert hf.start(tasks.rs_plain, 1, id="new").result(PATIENCE_S) == ["sent to 0"]
        hf.answer("waiting", True)
        assert waiting.result(PATIENCE_S) == 1
        assert renewals(hf, "waiting") == [1]  # its key may be known there from another time
    assert Counter(tasks.effects())["look 0"] == 2


def test_a_worker_without_the_sdk_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "holdfast.engines.restate.worker", None)
    refused = pytest.raises(BadInput, match=r"pip install 'holdfast\[restate\]'")
    with Holdfast("memory://", engine=Restate()) as hf, refused:
        hf.engine.worker(hf)


def test_who_only_starts_tasks_needs_nothing_of_restate_itself() -> None:
    code = "import sys, holdfast.engines.restate; print({'restate', 'hypercorn'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def engine_at(server: RestateServer, listen: str, **options: Any) -> Restate:
    return Restate(server.url, admin=server.admin_url, listen=listen, **options)


def test_a_worker_with_changed_code_does_nothing_until_the_code_fits_again(folder: Path) -> None:
    said: list[str] = []
    listen = f"127.0.0.1:{next(free_ports())}"
    with new_restate(folder / "restate") as server:
        with driven(folder / "s", server, listen) as hf:
            handle = hf.start(tasks.rs_changing, id="changing")
            wait_for(hf, "changing", "awaiting_user")
        (folder / "changed").touch()
        with driven(folder / "s", server, listen) as hf:
            hf.answer("changing", True)
            wait_until(lambda: last_failure(hf, "changing"))
            said.append(last_failure(hf, "changing"))
            (folder / "changed").unlink()
            assert Handle(hf, handle.id, task_spec(tasks.rs_changing)).result(PATIENCE_S) == 1
    assert "CodeChanged" in said[0] and "'changing'" in said[0]
    assert tasks.effects() == ["look 1"]


def test_an_agent_survives_its_worker_and_the_server_being_killed_with_each_effect_once(
    folder: Path,
) -> None:
    chance = random.Random(os.urandom(8))
    listen = f"127.0.0.1:{next(free_ports())}"
    names = [f"agent-{i}" for i in range(4)]
    with (
        new_restate(folder / "restate") as server,
        Holdfast(folder / "store", engine=engine_at(server, listen)) as hf,
    ):
        work = partial(worker_process, folder / "store", server, listen)
        with work():
            handles = [hf.start(tasks.rs_agent, name, id=name) for name in names]
        for _ in range(4):
            with work():
                time.sleep(chance.uniform(0, 0.5))
        server.restart()
        with work():
            for name in names:
                wait_for(hf, name, "awaiting_user")
                hf.answer(name, True)
            for name, handle in zip(names, handles, strict=True):
                assert handle.result(PATIENCE_S) == agent_result(name)
    must_have_sent_once(names)


def test_of_two_workers_at_one_address_either_may_be_killed(folder: Path) -> None:
    listen = f"127.0.0.1:{next(free_ports())}"
    names = [f"agent-{i}" for i in range(6)]
    with (
        new_restate(folder / "restate") as server,
        Holdfast(folder / "store", engine=engine_at(server, listen)) as hf,
        ExitStack() as workers,
    ):
        begin = partial(worker_process, folder / "store", server, listen)
        two = [workers.enter_context(begin()) for _ in range(2)]
        handles = []
        for number, name in enumerate(names):
            handles.append(hf.start(tasks.rs_agent, name, id=name))
            wait_until(partial(_has_begun, hf, name))
            two[number % 2].kill()
            two[number % 2] = workers.enter_context(begin())
        for name, handle in zip(names, handles, strict=True):
            wait_for(hf, name, "awaiting_user")
            hf.answer(name, True)
            assert handle.result(PATIENCE_S) == agent_result(name)
    must_have_sent_once(names)


def _has_begun(hf: Holdfast, id: str) -> bool:
    return bool(hf.task(id).calls)


def must_have_sent_once(names: list[str]) -> None:
    sent = Counter(line.split()[1] for line in tasks.effects())
    parts = ["0", "1", "2", "g0", "g1", "g2", "leaf", "z0", "z1", "z2"]
    assert sent == Counter(f"{name}-{part}" for name in names for part in parts)


def agent_result(name: str) -> list[Any]:
    first = [f"sent to {name}-{i}" for i in range(3)]
    both = [f"sent to {name}-g{i}" for i in range(3)]
    return [*first, both, [1, 2, 3, 4], True, *(f"sent to {name}-z{i}" for i in range(3))]
