"""The tasks that are frozen: every kind of body, each of which says that it has begun."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from random import Random

from holdfast import Happened, IdempotencyKey, gather, step, task, tool
from holdfast.agent import external

clock = time.CLOCK_BOOTTIME

checked_at: ContextVar[float] = ContextVar("checked_at", default=float("inf"))
"""When the strand that runs here was last told that its lease holds; never, in a build that does
not look."""


def _to_nobody(name: str, began: float, checked: float) -> None: ...


say: Callable[[str, float, float], None] = _to_nobody
dies_in = ""
"""The body in which the process is killed."""


def begun(name: str) -> int:
    """Say that a body has begun. It returns whose result it is."""
    say(name, time.clock_gettime(clock), checked_at.get())
    if name == dies_in:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


@step
def plain(n: int) -> int:
    return begun("plain")


@step(timeout_s=60)
def timed(n: int) -> int:
    return begun("timed")


@step
def outer(n: int) -> int:
    by = begun("outer")
    plain(n)
    return by


@external(ttl_s=0)
def read(n: int) -> int:
    return begun("read")


@step
def parts(n: int) -> Iterator[int]:
    yield begun("parts")
    yield n


def undo_book(result: int, *, key: IdempotencyKey) -> int:
    return begun("undo")


@tool(in_doubt="retry", undo=undo_book)
def book(n: int) -> int:
    return begun("book")


def paid(key: str) -> Happened[int] | None:
    return Happened(begun("check"))


@tool(check=paid)
def pay(n: int) -> int:
    return begun("pay")


STEPS = (plain, timed, outer, read, book, pay)


@task(compensate="failed")
def short() -> None:
    """One of each, and then all of it undone."""
    pay(0)
    for each in STEPS:
        each(1)
    list(parts(1))
    gather(lambda: plain(2), lambda: plain(3))
    raise RuntimeError("to be undone")


@task(compensate="failed")
def long(seed: str, count: int) -> None:
    """Many of each, with pauses between them."""
    chance = Random(seed)
    for n in range(count):
        chance.choice(STEPS)(n)
        time.sleep(chance.choice((0, 0.0005, 0.002)))
    raise RuntimeError("to be undone")


@step
async def aplain(n: int) -> int:
    return begun("plain")


@step(timeout_s=60)
async def atimed(n: int) -> int:
    return begun("timed")


@step
async def aouter(n: int) -> int:
    by = begun("outer")
    await aplain(n)
    return by


@external(ttl_s=0)
async def aread(n: int) -> int:
    return begun("read")


@step
async def aparts(n: int) -> AsyncIterator[int]:
    yield begun("parts")
    yield n


async def aundo_book(result: int, *, key: IdempotencyKey) -> int:
    return begun("undo")


@tool(in_doubt="retry", undo=aundo_book)
async def abook(n: int) -> int:
    return begun("book")


async def apaid(key: str) -> Happened[int] | None:
    return Happened(begun("check"))


@tool(check=apaid)
async def apay(n: int) -> int:
    return begun("pay")


ASTEPS = (aplain, atimed, aouter, aread, abook, apay)


@task(compensate="failed")
async def ashort() -> None:
    await apay(0)
    for each in ASTEPS:
        await each(1)
    async for _ in aparts(1):
        pass
    await asyncio.gather(aplain(2), aplain(3))
    raise RuntimeError("to be undone")


@task(compensate="failed")
async def along(seed: str, count: int) -> None:
    chance = Random(seed)
    for n in range(count):
        await chance.choice(ASTEPS)(n)
        await asyncio.sleep(chance.choice((0, 0.0005, 0.002)))
    raise RuntimeError("to be undone")
