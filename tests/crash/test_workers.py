"""Workers that are killed, frozen and kept waiting: real processes, real signals."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.core.events import TaskCompleted
from tests.crash import worker_agents as agents
from tests.thorough import THOROUGH

ROOT = Path(__file__).parents[2]


class Processes:
    """Processes at work in one folder; what is left of them is killed in the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._all: list[subprocess.Popen[str]] = []

    def start(self, *verb: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.worker_agents", *verb],
            cwd=ROOT,
            env={**os.environ, "AGENT_FOLDER": str(self.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._all.append(process)
        return process

    def end(self) -> None:
        for process in self._all:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    found = Processes(tmp_path)
    yield found
    found.end()


def wait_for(what: Callable[[], bool], seconds: float = 60.0) -> float:
    """How long it took; fails if it did not come."""
    began = time.monotonic()
    while not what():
        assert time.monotonic() - began < seconds, "it did not come"
        time.sleep(0.01)
    return time.monotonic() - began


@pytest.mark.timeout(300)
def test_thousands_of_items_killed_again_and_again_are_each_done_once(tmp_path, processes):
    count, kills = (10_000, 20) if THOROUGH else (4_000, 8)
    world = tmp_path / "world"
    chance = random.Random(7)
    world.touch()
    killed = 0
    shortest = len("all:1.1:mark:0123456789abcdef\n")
    for threshold in sorted(chance.sample(range(200, count - 1000), kills)):
        process = processes.start("mark", str(count))
        size = threshold * shortest
        wait_for(lambda p=process, s=size: p.poll() is not None or world.stat().st_size >= s, 120)
        process.kill()
        if process.wait() == 0:
            break  # it was quicker than we
        assert process.returncode == -signal.SIGKILL, process.communicate()[0]
        killed += 1
    assert killed
    last = processes.start("mark", str(count))
    output, _ = last.communicate(timeout=120)
    assert output.split()[-1] == str(count)
    often = Counter(world.read_text().split())
    assert len(often) == count
    assert set(often.values()) == {1}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["before", "after"])
def test_a_worker_frozen_in_a_step_is_taken_over_and_refused(tmp_path, processes, kind):
    with Holdfast(tmp_path / "w", lease_s=agents.LEASE_S) as hf:
        handle = hf.start(getattr(agents, kind), id="t")
        first = processes.start("work")
        wait_for((tmp_path / f"at-{first.pid}").exists)
        first.send_signal(signal.SIGSTOP)
        second = processes.start("work")
        if kind == "before":  # the call is in doubt, and is made again with its key
            wait_for((tmp_path / f"at-{second.pid}").exists)
            (tmp_path / "open").touch()
        assert handle.result(timeout_s=60) == (second.pid if kind == "before" else 0)
        (tmp_path / "open").touch()
        first.send_signal(signal.SIGCONT)
        first_said = stop(first)
        assert "taken over" in first_said, first_said
        assert "completed" in stop(second)
        events = list(handle.events())
    assert sum(isinstance(event, TaskCompleted) for event in events) == 1
    assert isinstance(events[-1], TaskCompleted)  # nothing of the zombie came after it
    assert len((tmp_path / "world").read_text().split()) == 1


def stop(process: subprocess.Popen[str]) -> str:
    # It is asked to end when it has had the time to notice that it lost the task.
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    return process.communicate(timeout=60)[0]


@pytest.mark.timeout(120)
def test_two_hundred_waiting_tasks_hold_no_threads_and_wake_in_time(tmp_path, processes):
    with Holdfast(tmp_path / "w", lease_s=agents.LEASE_S) as hf:
        for number in range(80):
            hf.start(agents.asks, number, id=f"ask-{number}")
            hf.start(agents.asks_async, number, id=f"aask-{number}")
        for number in range(40):
            hf.start(agents.naps, number, 6 + number / 20, id=f"nap-{number}")
        worker = processes.start("work")
        wait_for(lambda: all(t.state.parked or t.status == "completed" for t in hf.tasks()), 60)
        threads = len(os.listdir(f"/proc/{worker.pid}/task"))
        # Its pool of 8, the store's of at most 16, the loop, the heartbeat, the one that writes the
        # readable files, and the main one. One more may be about to end on a busy machine.
        assert threads <= 8 + 16 + 5, f"{threads} threads for 200 waiting tasks"

        for id in ("ask-7", "aask-7", "ask-42"):
            hf.answer(id, "fine")
            wait_for(lambda id=id: hf.task(id).status == "completed")
        waiting = [hf.task(f"nap-{number}") for number in range(40)]
        wait_for(lambda: all(hf.task(view.id).status == "completed" for view in waiting), 60)
        for view in waiting:
            due = view.calls[0].until
            assert due is not None
            late = hf.task(view.id).state.updated_at - due
            assert 0 <= late.total_seconds() < 20
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0


@pytest.mark.timeout(120)
def test_a_worker_killed_while_it_drains_leaves_its_task_to_the_next(tmp_path, processes):
    with Holdfast(tmp_path / "w", lease_s=agents.LEASE_S) as hf:
        handle = hf.start(agents.before, id="t")
        first = processes.start("work")
        wait_for((tmp_path / f"at-{first.pid}").exists)
        first.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert first.poll() is None, "it finishes the step in hand first"
        first.kill()
        (tmp_path / "open").touch()
        second = processes.start("work")
        assert handle.result(timeout_s=60) == second.pid
    assert len((tmp_path / "world").read_text().split()) == 1
