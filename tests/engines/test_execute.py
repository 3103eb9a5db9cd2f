"""One call of a task, made by another process that knows only names."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast import (
    CodeChanged,
    CodeMissing,
    Holdfast,
    InDoubt,
    TaskBusy,
    TaskNotFound,
    step,
    task,
    tool,
)
from holdfast.core.events import FORMAT, TaskCreated
from holdfast.engines.holder import Holding
from holdfast.engines.remote.attempt import execute
from holdfast.log.log import open_log
from holdfast.stores.files.store import FileStore

ROOT = Path(__file__).parents[2]


@step
def add_remotely(a: int, b: int) -> int:
    with open("calls.txt", "a") as calls:
        calls.write(f"{a}+{b}\n")
    return a + b


@step
async def add_remotely_async(a: int, b: int) -> int:
    return a + b


@step
def fail_remotely() -> None:
    raise ValueError("no")


@tool
def post_remotely(text: str) -> str:
    return text


@task
def remote_sum() -> int:
    return add_remotely(1, 2)


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    opened = FileStore(tmp_path / "w")
    log = open_log(opened, "t", "test", 30, now)
    created = TaskCreated(format=FORMAT, id="t", task="remote_sum", args=b"{}", args_hash="x")
    from msgspec import Raw
    from msgspec.structs import replace

    log.append(replace(created, args=Raw(b"{}"), args_hash=hash_of(b"{}")))
    log.close()
    yield opened
    opened.close()


def hash_of(data: bytes) -> str:
    from holdfast.codec import args_hash

    return args_hash(data)


def run_in_another_process(folder: Path) -> str:
    script = """
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
import tests.engines.test_execute
from holdfast.engines.remote.attempt import execute
from holdfast.engines.holder import Holding
from holdfast.stores.files.store import FileStore
holding = Holding(FileStore(Path("w")), "far away", 30, lambda: datetime.now(UTC), 1 << 20)
call = execute(holding, "t", "1", "add_remotely", b'{"a":1,"b":2}')
print(call.status, bytes(call.result).decode())
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_call_delivered_twice_is_made_once_and_the_task_goes_on_from_it(store, tmp_path):
    assert run_in_another_process(tmp_path) == "completed 3"
    assert run_in_another_process(tmp_path) == "completed 3"
    with Holdfast(store) as hf:
        assert hf.run(remote_sum, id="t") == 3
    assert (tmp_path / "calls.txt").read_text() == "1+2\n"


def at(store, path, name, args):
    return execute(Holding(store, "me", 30, now, 1 << 20), "t", path, name, args)


def test_async_steps_failures_and_doubts_are_recorded_ends(store):
    assert at(store, "1", "add_remotely_async", b'{"a":1,"b":2}').status == "completed"
    for _ in range(2):
        failed = at(store, "2", "fail_remotely", b"{}")
        assert (failed.status, failed.failure.message) == ("failed", "no")


def test_a_tool_whose_worker_died_is_in_doubt(store, monkeypatch):
    class Died(BaseException):
        pass

    def die(text: str) -> str:
        raise Died

    from msgspec.structs import replace

    from holdfast.core.spec import registry

    spec = registry.call("post_remotely")
    monkeypatch.setattr(registry, "call", lambda name: replace(spec, fn=die))
    with pytest.raises(Died):
        at(store, "1", "post_remotely", b'{"text":"hi"}')
    monkeypatch.undo()
    with pytest.raises(InDoubt):
        at(store, "1", "post_remotely", b'{"text":"hi"}')


def test_the_same_path_with_other_arguments_is_refused(store):
    at(store, "1", "add_remotely", b'{"a":1,"b":2}')
    with pytest.raises(CodeChanged, match="The arguments differ"):
        at(store, "1", "add_remotely", b'{"a":1,"b":3}')


def test_an_unknown_name_is_refused(store):
    with pytest.raises(CodeMissing, match="no_such_step"):
        at(store, "1", "no_such_step", b"{}")


def test_an_unknown_task_is_refused_and_leaves_no_log(store, tmp_path):
    with pytest.raises(TaskNotFound):
        execute(Holding(store, "me", 30, now, 1 << 20), "nobody", "1", "fail_remotely", b"{}")
    with Holdfast(tmp_path / "w") as hf:
        assert [view.id for view in hf.tasks()] == ["t"]


def test_a_call_longer_than_its_lease_is_not_made_twice(store, monkeypatch):
    calls, began, go_on = [], threading.Event(), threading.Event()

    @step
    def long_call() -> int:
        calls.append(1)
        began.set()
        assert go_on.wait(60)
        return len(calls)

    first = Holding(store, "first", 0.3, now, 1 << 20)
    thread = threading.Thread(target=execute, args=(first, "t", "1", "long_call", b"{}"))
    thread.start()
    assert began.wait(60)
    later = time.time() + 100  # and there it stands still, however busy the machine is
    monkeypatch.setattr(time, "time", lambda: later)
    renew, renewed = store.renew, threading.Event()
    monkeypatch.setattr(store, "renew", lambda lease: (renew(lease), renewed.set()))
    assert renewed.wait(60)
    with pytest.raises(TaskBusy):
        execute(Holding(store, "second", 30, now, 1 << 20), "t", "1", "long_call", b"{}")
    go_on.set()
    thread.join()
    assert at(store, "1", "long_call", b"{}").status == "completed"
    assert calls == [1]
    first.close()
