"""The agents that the command line is tried on. Each test has a copy of this in its folder."""

import asyncio
import os
import signal
import sys
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from holdfast import (
    IdempotencyKey,
    Retry,
    StepFailed,
    ask,
    current,
    decide,
    note,
    step,
    task,
    tool,
)

QUICK = Retry(attempts=4, delay_s=0.01, jitter=0)


@dataclass
class Room:
    name: str
    price: int


@step(retry=QUICK)
def search(city: str) -> list[Room]:
    if current().attempt < 3:
        raise ConnectionError(f"hotels.example did not answer, try {current().attempt}")
    return [Room(f"{city} Inn", 70), Room(f"{city} Lodge", 95)]


@step
def read_page(url: str) -> str:
    return "\n".join(f"line {number} of {url}" for number in range(60))


@tool
def pay(amount: int, *, key: IdempotencyKey = IdempotencyKey()) -> dict[str, int]:
    return {"paid": amount}


@step(retry=QUICK)
def book(room: Room) -> str:
    pay(room.price)
    if current().attempt < 2:
        raise ConnectionError("the reply was lost")
    return f"booked {room.name}"


@step
def visit_museum() -> str:
    raise ValueError("closed on Mondays")


@tool
def send_letter(to: str) -> str:
    """Nobody can tell whether it was sent, so a person has to."""
    if Path("die").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return f"letter to {to}"


@step
def summarize(text: str) -> str:
    return f"All set: {text}"


@task
def plan_trip(city: str) -> str:
    plan = ["search", "read_page", "book", "visit_museum", "send_letter", "summarize", "tell Ada"]
    current().plan(plan)
    rooms = search(city)
    room = decide("room", rooms[0], options=rooms, because="the cheapest")
    read_page(f"https://{city}.example")
    booked = book(room)
    note("booked a room", [room.name])
    try:
        visit_museum()
    except StepFailed as failed:
        note(f"no museum: {failed.failure.message}")
    send_letter("Ada")
    return summarize(booked)


@step
def risky() -> str:
    if not Path("fixed").exists():
        raise RuntimeError("it is broken")
    return "mended"


@task
def mendable() -> str:
    return risky()


@step
async def polish(text: str) -> str:
    await asyncio.sleep(0)
    return f"{text}!"


@task
async def branches(cities: list[str]) -> list[str]:
    async def visit(city: str) -> str:
        first = await polish(city)
        decide("go", True)
        return await polish(first)

    return list(await asyncio.gather(*(visit(city) for city in cities)))


@task
def greet(name: str, *, times: int = 1) -> str:
    print("greet prints this")
    Path("greeted").touch()
    return f"hello {name}" * times


@task
def typed(day: date, room: Room, *more: int) -> list[str]:
    return [day.isoformat(), type(day).__name__, room.name, str(sum(more))]


@task
def everything(value: object) -> object:
    return value


@step
def wait_for(name: str) -> str:
    while not Path(name).exists():
        time.sleep(0.01)
    return f"{name} came"


@task
def waits(name: str) -> str:
    note("about to wait")
    return wait_for(name)


@step
def count(number: int) -> int:
    return number


@task
def counts(upto: int) -> int:
    return sum(count(number) for number in range(upto))


@task
def leaves() -> None:
    sys.exit(3)


@task
def asks() -> str:
    return "booked" if ask("Book it?", bool, id="book") else "left it"


@tool
def post(to: str) -> None:
    wait_for(to)


@task
def posts(to: str) -> None:
    post(to)


@task
def large(size: int) -> str:
    return "x" * size
