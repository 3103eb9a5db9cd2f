"""One process drives many tasks: each once, none forgotten, and none holds up the others."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    BadInput,
    Holdfast,
    Retry,
    TaskFailed,
    Worker,
    ask,
    checkpoint,
    gather,
    restore,
    sleep,
    start,
    step,
    task,
    tool,
)
from holdfast.core.events import Claimed
from holdfast.core.spec import registry
from holdfast.log.store_calls import due_in
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.store import FileStore
from holdfast.stores.memory import MemoryStore
from tests.flavors import Crash

ran: Counter[Any] = Counter()
gate = threading.Event()


class Busy:
    """How many are at work at once, and how many ever were."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = 0
        self.most = 0

    def __enter__(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *error: Any) -> None:
        with self._lock:
            self.now -= 1


busy = Busy()


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    # What this module defines is all there is, and what a test defines ends with it.
    found = registry._found.items()
    ours = {k: {w: s for w, s in v.items() if w.startswith(f"{__name__}.")} for k, v in found}
    monkeypatch.setattr(registry, "_found", ours)
    ran.clear()
    gate.clear()
    busy.most = 0
    yield
    gate.set()


@pytest.fixture(params=["memory", "files"])
def opened(request, tmp_path) -> Callable[[], Holdfast]:
    """Opens the same store once more, as another process would."""
    if request.param == "files":
        return lambda: Holdfast(tmp_path / "w", sync=False)
    store = MemoryStore()
    return lambda: Holdfast(store)


@pytest.fixture
def hf(opened) -> Iterator[Holdfast]:
    with opened() as hf:
        yield hf


@step
def work(n: int) -> int:
    with busy:
        ran["work", n] += 1
        time.sleep(0.02)
    return n


@step
async def awork(n: int) -> int:
    with busy:
        ran["work", n] += 1
        await asyncio.sleep(0.02)
    return n


@step
def held_up(n: int) -> int:
    ran["held up", n] += 1
    gate.wait(60)
    return n


@task
def job(n: int) -> int:
    return work(n)


@task
async def ajob(n: int) -> int:
    return await awork(n)


@task
def long_job(n: int) -> int:
    held_up(n)
    return work(n)


@task
def asking(n: int) -> bool:
    work(n)
    return ask("Sure?", bool)


@task
async def aasking(n: int) -> bool:
    await awork(n)
    return await ask("Sure?", bool)


@task
def napping(seconds: float) -> str:
    sleep(seconds)
    return "awake"


@task
async def anapping(seconds: float) -> str:
    await sleep(seconds)
    return "awake"


def idle(worker: Worker, seconds: float = 60.0) -> bool:
    """Let a worker work until it is idle; False if that takes too long."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            worker.run_until_idle()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    late = thread.is_alive()
    if late:
        worker.stop()
        thread.join(60)
    if errors:
        raise errors[0]
    return not late


class Running:
    """A worker at work in a thread."""

    def __init__(self, hf: Holdfast, **options: Any) -> None:
        self.said: list[str] = []
        self.worker = Worker(hf, say=self.said.append, **{"poll_s": 0.05, **options})
        self._thread = threading.Thread(target=self.worker.run, daemon=True)

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.stop()

    def stop(self) -> None:
        self.worker.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()


def eventually(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    give_up_at = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < give_up_at, "it did not come to that"
        time.sleep(0.01)
    return found


def claims(hf: Holdfast, id: str) -> int:
    return sum(isinstance(event, Claimed) for event in hf.task(id).events())


# Driving


def test_sync_and_async_tasks_are_driven_together(hf):
    sync_one, async_one = threading.Event(), threading.Event()

    @step
    def meet(n: int) -> int:
        ran["met", n] += 1
        sync_one.set()
        assert async_one.wait(60)
        return n

    @step
    async def ameet(n: int) -> int:
        ran["met", n] += 1
        async_one.set()
        give_up_at = time.monotonic() + 60
        while not sync_one.is_set():
            assert time.monotonic() < give_up_at
            await asyncio.sleep(0.005)
        return n

    @task
    def meets(n: int) -> int:
        return meet(n)

    @task
    async def ameets(n: int) -> int:
        return await ameet(n)

    handles = [hf.start(meets if n % 2 else ameets, n, id=f"t{n}") for n in range(12)]
    Worker(hf).run_until_idle()
    assert [handle.result(timeout_s=0) for handle in handles] == list(range(12))
    assert ran == {("met", n): 1 for n in range(12)}
    assert not [
        t for t in threading.enumerate() if t.name.startswith(("holdfast task", "holdfast loop"))
    ]


@pytest.mark.parametrize("kind", [job, ajob])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_worker_drives_no_more_at_once_than_it_may(hf, kind, concurrency):
    for n in range(8):
        hf.start(kind, n, id=f"t{n}")
    Worker(hf, concurrency=concurrency, poll_s=0.01).run_until_idle()
    assert [view.status for view in hf.tasks()] == ["completed"] * 8
    assert busy.most <= concurrency


def test_a_limit_of_one_type_leaves_room_for_the_others(hf):
    for n in range(4):
        hf.start(long_job, n, id=f"long-{n}")
    for n in range(10, 14):
        hf.start(job, n, id=f"short-{n}")
    with Running(hf, concurrency=8, limits={"long_job": 1}) as running:
        eventually(lambda: len(hf.tasks(status="completed", type="job")) == 4)
        assert sum(n for what, n in ran.items() if what[0] == "held up") == 1
        eventually(lambda: len(running.worker.active) == 1)
        gate.set()
        eventually(lambda: len(hf.tasks(status="completed")) == 8)


@pytest.mark.parametrize(
    "bad", [{"concurrency": 0}, {"limits": {"job": 0}}, {"limits": {"x": "2"}}]
)
def test_a_limit_that_makes_no_sense_is_refused(hf, bad):
    with pytest.raises(BadInput, match="limit"):
        Worker(hf, **bad)


def test_a_task_that_fails_is_not_tried_again_and_stops_nobody(hf):
    @task
    def failing() -> None:
        ran["failing"] += 1
        raise ValueError("broken")

    bad, good = hf.start(failing, id="bad"), hf.start(job, 1, id="good")
    said: list[str] = []
    worker = Worker(hf, say=said.append)
    assert idle(worker)
    assert idle(worker)
    assert good.result(timeout_s=0) == 1
    with pytest.raises(TaskFailed, match="broken"):
        bad.result(timeout_s=0)
    assert ran["failing"] == 1
    assert any("broken" in text for text in said)


def test_a_worker_may_run_again_after_it_was_stopped(hf):
    worker = Worker(hf)
    hf.start(job, 1, id="a")
    worker.run_until_idle()
    hf.start(job, 2, id="b")
    worker.run_until_idle()
    assert hf.task("b").status == "completed"


# Waiting


def test_waiting_tasks_hold_no_thread_and_wake_when_answered(hf):
    for n in range(30):
        hf.start(asking if n % 2 else aasking, n, id=f"q{n}")
        hf.start(napping if n % 2 else anapping, 60, id=f"s{n}")
    before = len(threading.enumerate())
    with Running(hf, concurrency=4) as running:
        eventually(lambda: len(hf.tasks(status="awaiting_user")) == 30)
        eventually(lambda: not running.worker.active)
        # A pool, that of the loop, the loop itself, the worker, a heartbeat; and 60 tasks wait.
        pools = 4 + (os.cpu_count() or 1) + 4
        assert len(threading.enumerate()) <= before + pools + 3
        for id in ("q7", "q8"):
            hf.answer(id, True)
            eventually(lambda id=id: hf.task(id).status == "completed")
    assert set(ran.values()) == {1}


@pytest.mark.parametrize("kind", [napping, anapping])
def test_a_sleeper_wakes_when_its_time_has_come(hf, kind):
    handle = hf.start(kind, 1.0, id="t")
    with Running(hf, patience_s=0.05) as running:
        eventually(lambda: hf.task("t").state.parked)
        eventually(lambda: not running.worker.active)
        assert handle.result(timeout_s=60) == "awake"
    (nap,) = hf.task("t").calls
    assert nap.until is not None
    assert nap.ended_at is not None
    assert timedelta(0) <= nap.ended_at - nap.until < timedelta(seconds=20)


def test_a_question_whose_time_is_up_goes_on_by_itself(hf):
    @task
    def asks_shortly() -> str:
        return ask("Well?", str, timeout_s=0.3, default="nobody")

    handle = hf.start(asks_shortly, id="t")
    with Running(hf):
        assert handle.result(timeout_s=60) == "nobody"


def test_a_long_backoff_holds_no_thread(hf):
    broken = [True]

    @step(retry=Retry(attempts=5, delay_s=1.0, jitter=0))
    def unsteady() -> int:
        ran["unsteady"] += 1
        if broken[0]:
            broken[0] = False
            raise ValueError("once more")
        return 1

    @task
    def patient() -> int:
        return unsteady()

    handle = hf.start(patient, id="t")
    with Running(hf, patience_s=0.05) as running:
        eventually(lambda: hf.task("t").state.parked)
        eventually(lambda: not running.worker.active)
        assert handle.result(timeout_s=60) == 1
    assert ran["unsteady"] == 2


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_parent_waits_for_its_children_without_a_thread(hf, kind):
    @task(name="family_sync")
    def parent() -> list[int]:
        children = [start(long_job, n) for n in range(3)]
        return [child.result() for child in children]

    @task(name="family_async")
    async def aparent() -> list[int]:
        children = [await start(long_job, n).started() for n in range(3)]
        return [await child for child in children]

    handle = hf.start(parent if kind == "sync" else aparent, id="p")
    with Running(hf, concurrency=4) as running:
        eventually(lambda: sum(ran.values()) == 3)
        eventually(lambda: "p" not in running.worker.active)
        gate.set()
        assert handle.result(timeout_s=60) == [0, 1, 2]
    assert set(ran.values()) == {1}


def test_paused_tasks_are_left_alone_until_they_may_go_on(hf):
    handle = hf.start(job, 1, id="t")
    handle.pause()
    with Running(hf):
        time.sleep(0.2)
        assert not ran
        hf.unpause("t")
        assert handle.result(timeout_s=60) == 1


# Stopping


@pytest.mark.parametrize("again", ["here", "elsewhere"])
def test_a_stop_in_mid_step_records_the_step_and_leaves_the_rest(opened, hf, again):
    hf.start(long_job, 1, id="t")
    running = Running(hf)
    with running:
        eventually(lambda: ran["held up", 1])
        running.worker.stop()
        eventually(lambda: [call.status for call in hf.task("t").calls] == ["running"])
        gate.set()
    assert hf.task("t").calls[0].status == "completed"
    assert hf.task("t").status == "in_progress"
    assert hf.store.holder("tasks/t") is None
    assert not ran["work", 1]
    if again == "here":
        assert idle(Worker(hf))
    else:
        with opened() as other:
            assert idle(Worker(other))
    assert hf.task("t").result == 1
    assert set(ran.values()) == {1}


def test_a_stop_lets_async_steps_end_too(hf):
    @step
    async def slow() -> int:
        ran["slow"] += 1
        await asyncio.sleep(0.3)
        return 1

    @task
    async def slowly() -> int:
        return await slow() + await slow()

    hf.start(slowly, id="t")
    with Running(hf):
        eventually(lambda: ran["slow"])
    assert [call.status for call in hf.task("t").calls] == ["completed"]
    assert idle(Worker(hf))
    assert hf.task("t").result == 2
    assert ran["slow"] == 2


def test_a_stop_of_branches_and_loops_leaves_nothing_half_done(hf):
    @task
    def branching() -> list[Any]:
        n = restore(0)
        while n < 40:
            gather(partial(work, 2 * n), partial(work, 2 * n + 1))
            n = checkpoint(n + 1)
        return [n]

    hf.start(branching, id="t")
    for _ in range(3):
        with Running(hf):
            before = sum(ran.values())
            eventually(lambda before=before: sum(ran.values()) > before)
    assert idle(Worker(hf))
    assert hf.task("t").result == [40]
    assert set(ran.values()) == {1}


def test_a_worker_that_is_stopped_before_it_runs_takes_nothing(hf):
    hf.start(job, 1, id="t")
    worker = Worker(hf)
    worker.stop()
    worker.run()
    assert not ran


# Trouble


def test_changed_code_stops_its_own_task_alone(hf):
    @task(name="will_change")
    def old() -> int:
        work(1)
        return ask("Sure?", int)

    hf.start(old, id="old")
    assert idle(Worker(hf))
    hf.answer("old", 1)
    ran.clear()

    registry._found.pop(("task", "will_change"))

    @task(name="will_change")
    def new() -> int:
        return work(2)

    hf.start(job, 3, id="other")
    said: list[str] = []
    worker = Worker(hf, say=said.append)
    assert idle(worker)
    assert hf.task("other").status == "completed"
    assert hf.task("old").status == "in_progress"
    assert set(ran) == {("work", 3)}
    assert any("CodeChanged" in text for text in said)
    seq = hf.task("old").seq
    assert idle(worker)  # and is not tried again at once
    assert hf.task("old").seq == seq


def test_a_task_whose_code_is_not_loaded_is_left_to_others(hf):
    @task(name="of_others")
    def theirs() -> int:
        return work(1)

    hf.start(theirs, id="theirs")
    hf.start(theirs, id="theirs-2")
    hf.start(job, 2, id="ours")
    known = registry._found.pop(("task", "of_others"))
    said: list[str] = []
    worker = Worker(hf, say=said.append)
    assert idle(worker)
    assert hf.task("theirs").status == "pending"
    assert hf.task("theirs").seq == 1
    assert hf.task("ours").status == "completed"
    assert sum("of_others" in text for text in said) == 1
    registry._found["task", "of_others"] = known
    assert idle(worker)
    assert hf.task("theirs").status == "completed"


def test_a_damaged_log_stops_nobody(tmp_path):
    with Holdfast(tmp_path / "w", sync=False) as hf:
        hf.start(job, 1, id="bad")
        hf.start(job, 2, id="good")
        log = tmp_path / "w/tasks/bad/events.jsonl"
        log.write_bytes(log.read_bytes().replace(b"job", b"jab"))
        said: list[str] = []
        assert idle(Worker(hf, say=said.append))
        assert hf.task("good").status == "completed"
        assert any("damaged" in text for text in said)
        assert not ran["work", 1]


def raising(kind: str) -> Any:
    @task(name="raises_crash")
    async def crashes() -> None:
        raise Crash

    @task(name="raises_cancelled")
    async def cancels() -> None:
        raise asyncio.CancelledError

    @task(name="raises_exit")
    async def exits() -> None:
        sys.exit(3)

    @task(name="raises_exit_sync")
    def exits_sync() -> None:
        sys.exit(3)

    return {
        "crash": crashes,
        "cancelled": cancels,
        "exit": exits,
        "exit, sync": exits_sync,
    }[kind]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    "kind",
    [
        "crash",
        "exit, sync",
        "cancelled",
        "exit",
    ],
)
def test_a_task_that_raises_anything_at_all_stops_nobody(tmp_path, kind):
    hf = Holdfast(tmp_path / "w", sync=False)
    hf.start(raising(kind), id="bad")
    others = [hf.start(job if n % 2 else ajob, n, id=f"t{n}") for n in range(4)]
    assert idle(Worker(hf, poll_s=0.02))
    assert [other.status for other in others] == ["completed"] * 4
    hf.close()


# Several


def test_two_workers_on_one_folder_drive_each_task_once(tmp_path):
    with Holdfast(tmp_path / "w", sync=False) as one, Holdfast(tmp_path / "w", sync=False) as two:
        for n in range(40):
            one.start(job if n % 2 else ajob, n, id=f"t{n}")
        workers = [Running(hf, concurrency=4, poll_s=0.01) for hf in (one, two)]
        with workers[0], workers[1]:
            eventually(lambda: len(one.tasks(status="completed")) == 40)
        assert set(ran.values()) == {1}
        assert {claims(one, f"t{n}") for n in range(40)} == {1}


def test_two_workers_of_one_object_drive_each_task_once(hf):
    for n in range(20):
        hf.start(job, n, id=f"t{n}")
    with Running(hf, concurrency=2, poll_s=0.01), Running(hf, concurrency=2, poll_s=0.01):
        eventually(lambda: len(hf.tasks(status="completed")) == 20)
    assert set(ran.values()) == {1}


KILLED = """
import sys, time
from holdfast import Holdfast, step, task, tool

@tool(in_doubt="retry")
def first(n: int) -> int:
    print("first", flush=True)
    return n

@step
def hang(n: int) -> int:
    print("hanging", flush=True)
    time.sleep(60)
    return n

@task(name="orphan")
def orphan(n: int) -> int:
    return first(n) + hang(n)

with Holdfast(sys.argv[1], lease_s=60) as hf:
    hf.run(orphan, 5, id="t")
"""


@tool(name="first", in_doubt="retry")
def first_here(n: int) -> int:
    ran["first"] += 1
    return n


@step(name="hang")
def hang_no_more(n: int) -> int:
    ran["hang"] += 1
    return n


@task(name="orphan")
def orphan(n: int) -> int:
    return first_here(n) + hang_no_more(n)


@pytest.mark.parametrize("when", ["the worker is there", "the worker comes later"])
def test_an_orphan_of_a_killed_process_is_taken_over_at_once(tmp_path, when):
    command = [sys.executable, "-c", KILLED, str(tmp_path / "w")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "first\n"
        assert process.stdout.readline() == "hanging\n"
        with Holdfast(tmp_path / "w") as hf:
            eventually(lambda: hf.task("t").seq >= 4)
            running = Running(hf)
            if when == "the worker is there":
                with running:
                    time.sleep(0.3)
                    assert not ran
                    os.kill(process.pid, signal.SIGKILL)
                    process.wait()
                    eventually(lambda: hf.task("t").status == "completed")
            else:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                with running:
                    eventually(lambda: hf.task("t").status == "completed")
            assert hf.task("t").result == 10
            assert claims(hf, "t") == 2
    assert ran == {"hang": 1}


# The index is a copy


def test_a_worker_finds_its_tasks_without_an_index(tmp_path):
    with Holdfast(tmp_path / "w", sync=False) as hf:
        for n in range(5):
            hf.start(job, n, id=f"t{n}")
    (tmp_path / "w/index.jsonl").unlink()
    with Holdfast(tmp_path / "w", sync=False) as hf:
        assert idle(Worker(hf))
        assert len(hf.tasks(status="completed")) == 5


def test_a_worker_that_may_drive_few_at_once_finds_all_its_tasks_without_an_index(tmp_path):
    with Holdfast(tmp_path / "w", sync=False) as hf:
        for n in range(10):
            hf.start(job, n, id=f"t{n}")
    (tmp_path / "w/index.jsonl").unlink()
    with Holdfast(tmp_path / "w", sync=False) as hf:
        assert idle(Worker(hf, poll_s=0.01, concurrency=2))
        assert len(hf.tasks(status="completed")) == 10


def test_an_index_that_lies_about_the_type_does_not_decide_what_runs(tmp_path):
    @task(name="jab")
    def other(n: int) -> int:
        ran["the wrong one"] += 1
        return -n

    with Holdfast(tmp_path / "w", sync=False) as hf:
        hf.start(job, 5, id="t")
        list(due_in(hf.store, "tasks/", datetime.now(UTC)))
    index = tmp_path / "w/index.jsonl"
    index.write_bytes(index.read_bytes().replace(b'"job"', b'"jab"'))
    with Holdfast(tmp_path / "w", sync=False) as hf:
        list(due_in(hf.store, "tasks/", datetime.now(UTC)))
        idle(Worker(hf))
        assert not ran["the wrong one"]
        assert hf.task("t").status in ("pending", "completed")


def test_a_task_whose_folder_was_removed_is_not_made_anew(tmp_path):
    with Holdfast(tmp_path / "w", sync=False) as hf:
        hf.start(job, 1, id="gone")
        hf.start(job, 2, id="here")
        list(due_in(hf.store, "tasks/", datetime.now(UTC)))
        shutil.rmtree(tmp_path / "w/tasks/gone")
        assert idle(Worker(hf))
        assert hf.task("here").status == "completed"
        assert not hf.tasks().unreadable
        assert [view.id for view in hf.tasks()] == ["here"]


class FullIndex(Disk):
    """A disk on which the last word about a task finds no room in the index."""

    def write(self, fd: int, data: bytes) -> None:
        if data.startswith(b'{"stream"') and b'"status":"completed"' in data:
            raise OSError(28, "No space left on device")
        super().write(fd, data)


def test_a_finished_task_of_which_the_index_does_not_know_is_left_alone(tmp_path):
    said: list[str] = []
    with Holdfast(FileStore(Path(tmp_path / "w"), sync=False, disk=FullIndex())) as hf:
        hf.start(job, 1, id="t")
        assert idle(Worker(hf, poll_s=0.01, say=said.append))
        assert sum("taken up" in text for text in said) <= 2


def test_a_worker_says_that_the_clock_was_set_back():
    """The tasks that it put aside wake by the clock, and so they wake later."""
    now, said = [datetime(2026, 1, 1, tzinfo=UTC)], []
    with Holdfast("memory://", clock=lambda: now[0]) as hf:
        worker = Worker(hf, say=said.append)
        for minutes in (0, 10, 10):
            now[0] += timedelta(minutes=minutes)
            worker.run_until_idle()
        assert said == []
        now[0] -= timedelta(minutes=15)
        worker.run_until_idle()
        worker.run_until_idle()
    assert [text.partition(":")[0] for text in said] == [
        "the clock was set back by at least 900.0 s"
    ]
