"""Tasks on Restate: a real server, and workers that may be killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Holdfast, TaskCancelled, TaskFailed, Worker
from holdfast.engines.elsewhere import job_for
from holdfast.engines.port import Job
from holdfast.engines.restate import Restate
from holdfast.errors import BadInput, EngineConflict, EngineError
from holdfast.events import Claimed, Parked
from holdfast.reading import read_events, read_state, stream_of
from holdfast.testing.servers import RestateServer
from holdfast.testing.servers.running import free_ports
from tests.engines import restate_tasks as tasks
from tests.engines.servers import new_restate

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
    engine = Restate(server.url, admin=server.admin_url, listen=listen)
    ready = threading.Event()

    def say(text: str) -> None:
        if text.startswith("drives"):
            ready.set()

    with Holdfast(store, engine=engine, **options) as hf, working(engine.worker(hf, say=say)):
        assert ready.wait(PATIENCE_S)
        yield hf


@contextmanager
def working(worker: Any) -> Iterator[None]:
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join()


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
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("drives")
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
    return [call for call in hf.task(id).state.calls.values() if call.kind == kind]


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


def pause_and_go_on(hf: Holdfast, id: str) -> None:
    wait_for(hf, id, "awaiting_user")
    hf.pause(id, because="lunch")
    wait_for(hf, id, "paused")
    hf.unpause(id)
    for number in (1, 2):
        wait_until(lambda n=number: len(calls(hf, id, "question")) == n)
        wait_for(hf, id, "awaiting_user")
        hf.answer(id, True, question=calls(hf, id, "question")[-1].key)


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
    for event in read_events(hf.store, stream_of(id)):
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
    with Holdfast("memory://") as hf, working(Worker(hf)):
        assert found == outcome(hf, fn, args, act)
        assert done == sorted(tasks.effects())
        assert story(engine_store, fn.__name__) == story(hf, fn.__name__)


def test_an_agent_survives_its_worker_and_the_server_being_killed_with_each_effect_once(
    folder: Path,
) -> None:
    chance = random.Random(os.urandom(8))
    listen = f"127.0.0.1:{next(free_ports())}"
    names = [f"agent-{i}" for i in range(4)]
    with new_restate(folder / "restate") as server:
        engine = Restate(server.url, admin=server.admin_url, listen=listen)
        with Holdfast(folder / "store", engine=engine) as hf:
            for round in range(6):
                with worker_process(folder / "store", server, listen):
                    if round == 0:
                        handles = [hf.start(tasks.rs_agent, name, id=name) for name in names]
                    time.sleep(chance.uniform(0.05, 0.6))
                if round == 3:
                    server.restart()
            with worker_process(folder / "store", server, listen):
                for name in names:
                    wait_for(hf, name, "awaiting_user")
                    hf.answer(name, True)
                for name, handle in zip(names, handles, strict=True):
                    assert handle.result(PATIENCE_S) == agent_result(name)
    sent = Counter(line.split()[1] for line in tasks.effects())
    parts = ["0", "1", "2", "g0", "g1", "g2", "leaf", "z0", "z1", "z2"]
    assert sent == Counter(f"{name}-{part}" for name in names for part in parts)


def agent_result(name: str) -> list[Any]:
    first = [f"sent to {name}-{i}" for i in range(3)]
    both = [f"sent to {name}-g{i}" for i in range(3)]
    return [*first, both, [1, 2, 3, 4], True, *(f"sent to {name}-z{i}" for i in range(3))]
