"""Many logs are synced and released together, each with an outcome of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import Raw

from holdfast.core.events import TaskCreated
from holdfast.engines.holder import close_together, sync_together
from holdfast.errors import LeaseLost, StorageFailed, StoreError
from holdfast.log.log import Log, open_log
from holdfast.stores.memory import MemoryStore

NAMES = ("a", "b", "c")


class Failing(MemoryStore):
    """Fails where it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[tuple[str, str], StoreError] = {}

    def sync(self, leases: Any) -> Any:
        return [self.errors.get(("sync", lease.stream)) for lease in leases]

    def append(self, lease: Any, *rest: Any) -> None:
        if error := self.errors.get(("append", lease.stream)):
            raise error
        super().append(lease, *rest)


@pytest.fixture
def store() -> Failing:
    return Failing()


def now() -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def logs(store: Any) -> Iterator[list[Log]]:
    made = [open_log(store, name, "me", 60, now) for name in NAMES]
    for name, log in zip(NAMES, made, strict=True):
        log.append(TaskCreated(format=1, id=name, task="job", args=Raw(b"{}"), args_hash="h"))
    yield made


@pytest.mark.parametrize("call", ["sync", "append"])
def test_of_many_that_are_synced_each_has_its_own_outcome(store, logs, call):
    broken = StorageFailed("the disk is full")
    store.errors[call, "tasks/b"] = broken
    assert sync_together([*logs, logs[1], logs[0]]) == [None, broken, None, broken, None]
    assert [log.has_to_be_synced() for log in (logs[0], logs[2])] == [False, False]


@pytest.mark.parametrize("call", ["sync", "append"])
def test_of_many_that_are_closed_only_the_one_that_fails_says_so(store, logs, call):
    broken = StorageFailed("the disk is full")
    store.errors[call, "tasks/b"] = broken
    assert close_together(store, logs) == [None, broken, None]
    assert [store.holder(f"tasks/{name}") for name in NAMES] == [None] * 3
    assert len(list(store.read("tasks/a"))) == len(list(store.read("tasks/c"))) == 1


def test_of_many_that_are_closed_all_are_released_when_the_store_fails_as_a_whole(
    store, logs, monkeypatch
):
    def fail(leases: Any) -> Any:
        raise broken

    broken = StorageFailed("the cable was pulled")
    monkeypatch.setattr(store, "sync", fail)
    assert close_together(store, logs) == [broken] * 3
    assert [store.holder(f"tasks/{name}") for name in NAMES] == [None] * 3
    assert all(log.is_broken for log in logs)


def test_of_many_that_are_closed_one_that_was_taken_over_is_no_failure(store, logs):
    store.errors["sync", "tasks/c"] = LeaseLost("somebody took it over")
    assert close_together(store, logs) == [None, None, None]


def test_logs_with_nothing_to_sync_are_only_released(store, logs):
    assert close_together(store, logs) == [None] * 3
    again = [open_log(store, name, "me", 60, now) for name in NAMES]
    store.errors = {("sync", f"tasks/{name}"): StorageFailed("no") for name in NAMES}
    assert close_together(store, again) == [None] * 3
    assert store.holder("tasks/a") is None


LEFT_OPEN = """
import sys
from holdfast import Holdfast, step, task

@step
def one() -> int:
    return 1

@task
def left_open() -> int:
    return one()

for url in sys.argv[1:]:
    hf = Holdfast(url)
    print(hf.run(left_open))
"""


def test_a_process_that_closes_nothing_ends_all_the_same(tmp_path):
    """No thread of ours keeps it."""
    urls = ["memory://", str(tmp_path / "w"), f"sqlite:///{tmp_path}/w.db"]
    done = subprocess.run(
        [sys.executable, "-c", LEFT_OPEN, *urls],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "1\n1\n1\n"), done.stderr
