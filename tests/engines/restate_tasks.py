"""Tasks for the tests of Restate; run as a program, a worker that drives them:
`python -m tests.engines.restate_tasks STORE URL ADMIN LISTEN`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

from holdfast import (
    Happened,
    Holdfast,
    IdempotencyKey,
    Retry,
    aask,
    ask,
    checkpoint,
    current,
    each,
    gather,
    now,
    restore,
    sleep,
    start,
    step,
    task,
    tool,
)
from holdfast.engines.restate import Restate

FOLDER = "RESTATE_TEST_FOLDER"
"""Where tasks leave what they did: one line for each effect, in one write."""


def effect(text: str) -> None:
    with open(Path(os.environ[FOLDER]) / "effects", "a") as file:
        file.write(f"{text}\n")


def effects() -> list[str]:
    file = Path(os.environ[FOLDER]) / "effects"
    return file.read_text().splitlines() if file.exists() else []


@step
def rs_look(n: int) -> int:
    effect(f"look {n}")
    return n * n


@step
async def rs_think(n: int) -> int:
    await asyncio.sleep(0.001)
    return n + 1


def rs_sent(key: str) -> Happened[str] | None:
    to = next((line.split()[1] for line in effects() if line.endswith(key)), None)
    return None if to is None else Happened(f"sent to {to}")


@tool(check=rs_sent)
def rs_send(to: str, *, key: IdempotencyKey = IdempotencyKey()) -> str:
    effect(f"send {to} {key}")
    return f"sent to {to}"


@tool(approve=True)
def rs_pay(amount: int) -> int:
    effect(f"pay {amount}")
    return amount


def rs_unbook(booked: str) -> None:
    effect(f"unbook {booked}")


@tool(undo=rs_unbook)
def rs_book(what: str) -> str:
    effect(f"book {what}")
    return what


@step(retry=Retry(attempts=4, delay_s=0.05, jitter=0))
def rs_flaky(name: str) -> int:
    effect(f"try {name}")
    tries = effects().count(f"try {name}")
    if tries < 3:
        raise ConnectionError(f"try {tries}")
    return tries


@task
def rs_plain(n: int) -> list[str]:
    squares = [rs_look(i) for i in range(n)]
    return [rs_send(str(square)) for square in squares]


@task
async def rs_together() -> list[object]:
    first = await gather(rs_think(1), rs_think(2))
    plain = await asyncio.gather(rs_think(3), rs_think(4), rs_think(5))
    many = await each(rs_think, range(10, 14), workers=2)
    async with asyncio.timeout(30):
        last = await rs_think(6)
    return [first, plain, list(many), last]


@task
def rs_together_sync() -> list[object]:
    both = gather(lambda: rs_look(1), lambda: rs_look(rs_look(2)))
    return [both, list(each(rs_look, range(4), workers=2))]


@task
def rs_asking() -> list[object]:
    sleep(0.05)
    name = ask("your name?", str)
    return [name, rs_pay(7)]


@task
async def rs_asking_async() -> list[object]:
    await sleep(0.05)
    name = await aask("your name?", str)
    return [name, await asyncio.to_thread(len, name)]


@task
def rs_parent() -> list[object]:
    plain = start(rs_plain, 2)
    together = start(rs_together)
    return [plain.result(), together.result()]


@task
def rs_stubborn() -> int:
    return rs_flaky("once") + rs_look(1)


@task
def rs_counting(upto: int) -> int:
    n = restore(0)
    while n < upto:
        n = rs_look(n) - n * n + n + 1
        checkpoint(n)
    return n


@task
def rs_slow(n: int) -> int:
    for i in range(n):
        rs_look(i)
        ask(f"go on after {i}?", bool)
    return n


@task
def rs_trip() -> str:
    rs_book("room")
    rs_book("flight")
    ask("keep them?", bool)
    return "kept"


@task
def rs_failing() -> None:
    rs_book("table")
    raise ValueError("no more")


def is_there(name: str) -> bool:
    return (Path(os.environ[FOLDER]) / name).exists()


@step
def rs_wait() -> None:
    effect("waits")
    while not is_there("go"):
        time.sleep(0.005)


@step
def rs_note_it() -> str:
    effect("went")
    return "went"


@task
def rs_patient() -> str:
    rs_wait()
    return rs_note_it()


@task
def rs_mended() -> int:
    value = rs_look(1)
    if not is_there("mended"):
        raise ValueError("not yet")
    return value


@task
def rs_changing() -> int:
    value = rs_note_it() if is_there("changed") else rs_look(1)
    ask("go on?", bool)
    return int(value)


@task
def rs_long(n: int) -> int:
    total = 0
    for _ in range(2):
        total += sum(rs_look(i) for i in range(n))
        ask("go on?", bool)
    return total


@task
def rs_many(n: int) -> int:
    return sum(rs_look(i) for i in range(n))


# Tasks that wait for something while they make calls: in a new run they go on waiting.


def rs_looks(n: int) -> int:
    return len([rs_look(i) for i in range(n)])


def rs_nap(seconds: float) -> bool:
    """Sleep, and say whether that took as long as it should. What an earlier run waited for comes
    meanwhile, if it comes."""
    began = now()
    sleep(seconds)
    rs_look(1000)
    return now() - began >= timedelta(seconds=seconds)


@task
def rs_with_child(n: int) -> list[object]:
    child = start(rs_slow, 1)
    looked = rs_looks(n)
    return [looked, child.result(), rs_nap(0.3)]


@task
def rs_with_question(n: int) -> list[object]:
    began = now()
    said = gather(lambda: rs_looks(n), lambda: ask("now?", str, timeout_s=2, default="no"))
    return [*said, now() - began >= timedelta(seconds=2), rs_nap(0.5)]


@step
async def rs_glance(n: int) -> int:
    effect(f"look {n}")
    return 1


@task
async def rs_in_time(n: int) -> list[object]:
    looked = 0
    for i in range(n):
        async with asyncio.timeout(1.5):
            looked += await rs_glance(i)
    began = now()
    await sleep(2)
    return [looked, now() - began >= timedelta(seconds=2), *[rs_look(n + i) for i in range(4)]]


@task
async def rs_limited(n: int) -> int:
    looked = 0
    for i in range(n):
        async with asyncio.timeout(0.5):
            looked += await rs_glance(i)
        if i % 4 == 3:
            await aask(f"go on after {i}?", bool)
    return looked


@step(retry=Retry(attempts=2, delay_s=2, jitter=0))
def rs_second_try() -> str:
    effect(f"try {current().attempt}")
    if current().attempt == 1:
        raise ConnectionError("no route")
    return "second"


@task
def rs_backing_off(n: int) -> list[object]:
    began = now()
    said = gather(lambda: rs_looks(n), rs_second_try)
    return [*said, now() - began >= timedelta(seconds=2), rs_nap(0.3)]


@task
def rs_sleeping(n: int) -> list[object]:
    said = gather(lambda: rs_looks(n), lambda: rs_nap(2))
    return [*said, rs_nap(0.3)]


@task
def rs_of_long(n: int) -> int:
    return start(rs_many, n).result()


@task
def rs_agent(name: str) -> list[object]:
    """Some of everything, for a worker that is killed."""
    said: list[object] = [rs_send(f"{name}-{i}") for i in range(3)]
    said.append(gather(*(lambda i=i: rs_send(f"{name}-g{i}") for i in range(3))))
    sleep(0.2)
    said.append(start(rs_leaf, name).result())
    said.append(ask("go on?", bool))
    said += [rs_send(f"{name}-z{i}") for i in range(3)]
    return said


@task
async def rs_leaf(name: str) -> list[int]:
    rs_send(f"{name}-leaf")
    return list(await asyncio.gather(*(rs_think(i) for i in range(4))))


def main(store: str, url: str, admin: str, listen: str) -> None:
    engine = Restate(url, admin=admin, listen=listen)
    with Holdfast(store, engine=engine, lease_s=2) as hf:
        worker = engine.worker(hf, say=lambda text: print(text, flush=True))
        signal.signal(signal.SIGTERM, lambda *_: worker.stop())
        worker.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
