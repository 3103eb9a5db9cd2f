"""Tasks for workers that are killed, frozen or kept waiting, and the outside world they act on.

`python -m tests.crash.worker_agents FOLDER VERB …` is one process at work; the world is a file
that every effect adds a line to.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from holdfast import Happened, Holdfast, IdempotencyKey, Worker, ask, each, sleep, task, tool

FOLDER = Path(os.environ.get("AGENT_FOLDER", "."))
WORLD = FOLDER / "world"
LEASE_S = 1.0


def effect(text: str) -> None:
    fd = os.open(WORLD, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, text.encode() + b"\n")
    os.close(fd)


def effects() -> list[str]:
    return WORLD.read_text().split() if WORLD.exists() else []


@tool(check=lambda key: Happened(None) if key in effects() else None)
def mark(number: int, *, key: IdempotencyKey = IdempotencyKey()) -> None:
    effect(key)


@task
def mark_all(count: int) -> int:
    return len(each(mark, range(count), workers=16))


def gate(name: str) -> None:
    """Say that we are here, and stand still until we may go on."""
    (FOLDER / f"{name}-{os.getpid()}").touch()
    while not (FOLDER / "open").exists():
        time.sleep(0.01)


@tool
def frozen_before(*, key: IdempotencyKey = IdempotencyKey()) -> int:
    """The receiver honours the key, and the worker is frozen before it calls it."""
    gate("at")
    if key not in effects():
        effect(key)
    return os.getpid()


@tool(check=lambda key: Happened(0) if key in effects() else None)
def frozen_after(*, key: IdempotencyKey = IdempotencyKey()) -> int:
    """The receiver can be asked, and the worker is frozen after it called it."""
    effect(key)
    gate("at")
    return os.getpid()


@task
def before() -> int:
    return frozen_before()


@task
def after() -> int:
    return frozen_after()


@task
def asks(number: int) -> str:
    return f"{number}: {ask('Well?', str)}"


@task
def naps(number: int, seconds: float) -> int:
    sleep(seconds)
    return number


@task
async def asks_async(number: int) -> str:
    return f"{number}: {await ask('Well?', str)}"


def main(verb: str, *rest: str) -> Any:
    with Holdfast(FOLDER / "w", lease_s=LEASE_S) as hf:
        if verb == "mark":
            return hf.run(mark_all, int(rest[0]), id="all")
        worker = Worker(hf, concurrency=8, say=lambda text: print(text, flush=True))
        signal.signal(signal.SIGTERM, lambda *_: worker.stop())
        return worker.run()


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
