"""Log records know the task, the call and the attempt that they were made in."""

from __future__ import annotations

import logging
import logging.handlers
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from holdfast import Holdfast, Retry, gather, start, step, task
from holdfast.integrations.logs import TaskFields

log = logging.getLogger("tests.trips")
FIELDS = [f"holdfast_{name}" for name in ("task", "type", "call", "path", "attempt")]
OUTSIDE = ("", "", "", "", 0)


@step(retry=Retry(attempts=2, delay_s=0.001))
def logged_step(fails: list[int]) -> int:
    log.warning("try")
    return logged_inner() if logged_tries.pop() else 1 // 0


@step
def logged_inner() -> int:
    log.warning("inner")
    return 1


@step
async def logged_async(number: int) -> int:
    log.warning("async %d", number)
    return number


@task
def logged_child() -> None:
    log.warning("child")


@task
def logged_task() -> None:
    log.warning("task")
    logged_step([])
    start(logged_child, id="kid").result()
    log.warning("end")


@task
async def logged_branches() -> None:
    await gather(logged_async(1), logged_async(2))
    log.warning("end")


logged_tries: list[bool] = []


@pytest.fixture
def records() -> Iterator[SimpleQueue[logging.LogRecord]]:
    kept: SimpleQueue[logging.LogRecord] = SimpleQueue()
    handler = logging.handlers.QueueHandler(kept)
    handler.addFilter(TaskFields())
    log.addHandler(handler)
    yield kept
    log.removeHandler(handler)


def told(records: SimpleQueue[logging.LogRecord]) -> dict[str, list[tuple[object, ...]]]:
    found: dict[str, list[tuple[object, ...]]] = {}
    while not records.empty():
        record = records.get()
        fields = tuple(getattr(record, name) for name in FIELDS)
        found.setdefault(record.getMessage(), []).append(fields)
    return found


def test_each_record_names_its_task_its_call_and_its_attempt(records):
    logged_tries[:] = [True, False]
    log.warning("before")
    with Holdfast("memory://") as hf:
        hf.run(logged_task, id="t")
    assert told(records) == {
        "before": [OUTSIDE],
        "task": [("t", "logged_task", "", "", 0)],
        "try": [("t", "logged_task", "logged_step", "1", number) for number in (1, 2)],
        "inner": [("t", "logged_task", "logged_inner", "1.1", 1)],
        "child": [("kid", "logged_child", "", "", 0)],
        "end": [("t", "logged_task", "", "", 0)],
    }


def test_branches_on_one_loop_are_told_apart(records):
    with Holdfast("memory://") as hf:
        hf.run(logged_branches, id="t")
    found = told(records)
    paths = {found[f"async {number}"][0][3] for number in (1, 2)}
    assert len(paths) == 2 and "" not in paths
    assert found["end"] == [("t", "logged_branches", "", "", 0)]


def test_a_record_that_was_given_its_fields_elsewhere_keeps_them():
    record = logging.makeLogRecord({"holdfast_task": "there", "holdfast_path": "3"})
    assert TaskFields().filter(record)
    assert (record.holdfast_task, record.holdfast_path) == ("there", "3")
