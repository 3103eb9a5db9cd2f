"""Single measurements for `bench.aims`, each in a process of its own; prints one JSON object.

record N URL            n steps of a task that then stops, without syncs
resume N URL            how long a new process takes to get past them, and its memory
walk                    how many calls of Python one step takes, and in how many modules
fill TASKS STEPS URL    tasks for workers
work URL GO             a worker, which begins when the file GO is there
raw N FOLDER            the floor of a conversation: a line of 1 KB and its sync, n times
lasted URL              the time between the first step of those tasks and the last
"""

import asyncio
import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.child import megabytes
from holdfast import Holdfast, Worker, step, task

Json = dict[str, Any]


@step
def add(x: int) -> int:
    return x + 1


@step
def one(x: int) -> dict:  # type: ignore[type-arg]
    return {"x": x}


class _Stopped(BaseException):
    """Ends the process's part of a task, as a crash would."""


@task
def count_and_stop(n: int) -> int:
    x = 0
    for _ in range(n):
        x = add(x)
    raise _Stopped


@step
async def add_async(x: int) -> int:
    await asyncio.sleep(0)
    return x + 1


@task
async def count_async(n: int) -> int:
    x = 0
    for _ in range(n):
        x = await add_async(x)
    return x


def _stopped(n: int, url: str) -> tuple[float, float]:
    start, cpu = time.perf_counter(), time.process_time()
    with Holdfast(url, sync=False) as hf:
        try:
            hf.run(count_and_stop, n, id="long")
        except _Stopped:
            return time.perf_counter() - start, time.process_time() - cpu
    raise AssertionError("the task was to stop and did not")


def record(n: str, url: str) -> Json:
    seconds, cpu_s = _stopped(int(n), url)
    return {"seconds": seconds, "cpu_s": cpu_s}


def resume(n: str, url: str) -> Json:
    import_module(f"holdfast.stores.{_kind(url)}.store")  # the time is that besides imports
    seconds, cpu_s = _stopped(int(n), url)
    return {"seconds": seconds, "cpu_s": cpu_s, "megabytes": megabytes()}


def _kind(url: str) -> str:
    kind, colon, _ = url.partition("://")
    return {"postgresql": "postgres"}.get(kind, kind) if colon else "files"


def walk(url: str) -> Json:
    found: list[str] = []

    def profile(frame: Any, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and "/holdfast/" in file:
            found.append(file.rsplit("/holdfast/", 1)[1])

    @task
    def walked(n: int) -> None:
        for number in range(n):
            if number == n - 1:
                sys.setprofile(profile)
            one(number)
        sys.setprofile(None)

    with Holdfast(url) as hf:
        hf.run(walked, 50, id="walk")
    return {"calls": len(found), "modules": len(set(found))}


def fill(tasks: str, steps: str, url: str) -> Json:
    with Holdfast(url) as hf:
        for number in range(int(tasks)):
            hf.start(count_async, int(steps), id=f"t-{number}")
    return {}


def work(url: str, go: str) -> Json:
    with Holdfast(url) as hf:
        worker = Worker(hf)
        while not Path(go).exists():
            time.sleep(0.001)
        worker.run_until_idle()
    return {}


def lasted(url: str) -> Json:
    with Holdfast(url) as hf:
        states = [view.state for view in hf.tasks()]
    assert all(state.status == "completed" for state in states)
    began = min(call.at for state in states for call in state.calls.values())
    return {"seconds": (max(state.updated_at for state in states) - began).total_seconds()}


def raw(n: str, folder: str) -> Json:
    fd = os.open(f"{folder}/raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    start = time.perf_counter()
    for _ in range(int(n)):
        os.write(fd, b"x" * 1040 + b"\n")
        os.fdatasync(fd)
    return {"seconds": time.perf_counter() - start}


if __name__ == "__main__":
    made = {f.__name__: f for f in (record, resume, walk, fill, work, lasted, raw)}
    print(json.dumps(made[sys.argv[1]](*sys.argv[2:])))
