"""The tasks of a fleet under test: healthy ones of many kinds, and ones that end their process.

Each effect goes into a folder, FLEET_FOLDER: a file for each key, made anew or found. So a second
effect under one key, and an effect of a task that is not to have any, both show.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from holdfast import Happened, Retry, ask, current, sleep, start, step, task, tool


def _folder() -> Path:
    return Path(os.environ["FLEET_FOLDER"])


def _happened(key: str) -> Happened[str] | None:
    return Happened(key) if (_folder() / _name(key)).exists() else None


def _name(key: str) -> str:
    return key.replace("/", "_")


@tool(check=_happened)
def mark(what: str) -> str:
    key = str(current().key)
    path = _folder() / _name(key)
    # Made whole by one system call, and never twice: the receiver honours the key.
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        (_folder() / f"{_name(key)}.twice").touch()
    return what


@step(retry=Retry(attempts=4, delay_s=0.05, jitter=0))
def flaky(number: int) -> int:
    tried = _folder() / f"flaky-{number}-{time.time_ns()}.try"
    tried.touch()
    if len(list(_folder().glob(f"flaky-{number}-*.try"))) < 2:
        raise ConnectionError("not the first time")
    return number


@step
def slow(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@step
def poison() -> None:
    os._exit(9)


@task
def plain(number: int) -> int:
    for part in range(3):
        mark(f"{number}-{part}")
    return number


@task
def with_children(number: int) -> int:
    children = [start(plain, number * 1000 + each) for each in range(2)]
    return sum(child.result() for child in children)


@task
def with_timer(number: int) -> int:
    mark("before")
    sleep(1.5)
    mark("after")
    return number


@task
def with_question(number: int) -> str:
    mark("asks")
    answer = ask(f"Go on with {number}?", str, id="go")
    mark("answered")
    return answer


@task
def with_retries(number: int) -> int:
    return flaky(number)


@task
async def asynchronous(number: int) -> int:
    mark("one")
    mark("two")
    return number


@task
def long(seconds: float) -> float:
    return slow(seconds)


@task
def with_pause(seconds: float) -> float:
    slow(0.0)
    sleep(seconds)
    return slow(0.0)


@task
def poisoned() -> None:
    poison()


@task
def poisoned_at_once() -> None:
    os._exit(9)


HEALTHY = (plain, with_children, with_timer, with_question, with_retries, asynchronous)
