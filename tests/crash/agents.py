"""The agents that are killed everywhere, and the world they act on.

Each has what can go wrong: retries with backoff, a tool inside a step that fails after it, tools
whose receiver honours the key, tools that have to be looked up, a tool that needs a person, a
decision, notes, and (async) branches of several steps under plain `asyncio.gather` and
`TaskGroup`. The world is a real server in its own process.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from examples.trip.client import World, start_world
from holdfast import (
    Happened,
    Holdfast,
    IdempotencyKey,
    InDoubt,
    Retry,
    StepFailed,
    current,
    decide,
    note,
    step,
    task,
    tool,
)
from holdfast.engines import holder as heartbeat
from holdfast.testing.crash import boundary

QUICK = Retry(attempts=4, delay_s=0.001, jitter=0)
NO_KEY = IdempotencyKey()


@cache
def world() -> World:
    if url := os.environ.get("AGENT_WORLD"):  # that of several processes
        return World(url)
    stack = ExitStack()
    atexit.register(stack.close)
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    _, url = stack.enter_context(start_world(Path(folder) / "world.db"))
    return World(url)


def affect(kind: str, reference: str, *, key: str = "", honour_key: bool = False) -> dict[str, Any]:
    """One effect in the outside world, with a place to die on either side of it."""
    boundary("before an effect")
    done = world().effect(kind, reference, honour_key=honour_key, key=key or None)
    boundary("after an effect")
    return {"kind": kind, "reference": done["reference"]}


def found(kind: str, reference: str) -> Happened[dict[str, Any]] | None:
    rows = world().find(kind, reference)
    return Happened({"kind": kind, "reference": reference}) if rows else None


@step(retry=QUICK)
def search(city: str) -> list[str]:
    world().weather(city, run=current().task_id, failures=2)
    return [f"{city} Inn", f"{city} Lodge"]


@tool(retry=QUICK)
def pay(amount: int, *, key: IdempotencyKey = NO_KEY) -> dict[str, Any]:
    """The receiver honours the key: the default policy is to call again."""
    return affect("payment", f"amount {amount}", key=key, honour_key=True)


@tool(check=lambda key: found("invite", key))
def invite(guest: str, *, key: IdempotencyKey = NO_KEY) -> dict[str, Any]:
    """The receiver forgets keys, but can be asked."""
    return affect("invite", key)


@tool
def post_letter(to: str) -> dict[str, Any]:
    """Nobody can be asked but a person."""
    return affect("letter", current().key)


@step(retry=QUICK)
def book(room: str) -> str:
    """Fails after its inner tool went through, until it was tried three times."""
    paid = pay(70)
    invite(f"reception of {room}")
    if current().attempt < 3:
        raise ConnectionError("the reply was lost")
    return f"{room} for {paid['reference']}"


@step
def never_works() -> None:
    raise ValueError("closed on Mondays")


@task
def sync_trip(city: str) -> dict[str, Any]:
    current().plan(["search", "book", "never_works", "invite", "post_letter", "pay"])
    rooms = search(city)
    room = decide("room", rooms[0], options=rooms, because="the first is the cheapest")
    note("chose a room", {"room": room})
    booked = book(room)
    try:
        never_works()
    except StepFailed as failed:
        note(f"carried on after {failed.failure.type}")
    sent = invite("ada@example.org")
    letter = post_letter("Ada")
    paid = pay(5)
    return {"booked": booked, "sent": sent["kind"], "letter": letter["kind"], "paid": paid}


@step(retry=QUICK)
async def asearch(city: str) -> list[str]:
    await asyncio.to_thread(world().weather, city, current().task_id + city, 2)
    return [f"{city} Inn", f"{city} Lodge"]


@tool(retry=QUICK)
async def apay(amount: int, *, key: IdempotencyKey = NO_KEY) -> dict[str, Any]:
    await asyncio.sleep(0)
    return affect("payment", f"amount {amount}", key=key, honour_key=True)


async def was_invited(key: str) -> Happened[dict[str, Any]] | None:
    await asyncio.sleep(0)
    return found("invite", key)


@tool(check=was_invited)
async def ainvite(guest: str, *, key: IdempotencyKey = NO_KEY) -> dict[str, Any]:
    await asyncio.sleep(0.001)
    return affect("invite", key)


@tool(in_doubt="ask")
async def apost_letter(to: str) -> dict[str, Any]:
    return affect("letter", current().key)


@step(retry=QUICK)
async def abook(room: str) -> str:
    """Branches inside a step, which fails after them until it was tried twice."""
    done = await asyncio.gather(apay(len(room)), ainvite(f"reception of {room}"))
    if current().attempt < 2:
        raise ConnectionError("the reply was lost")
    return f"{room} for {done[0]['reference']}"


async def visit(city: str, pause_s: float) -> dict[str, Any]:
    """A branch of several steps; the pauses make the branches interleave."""
    rooms = await asearch(city)
    await asyncio.sleep(pause_s)
    room = decide("room", rooms[0], because="the first is the cheapest")
    booked = await abook(room)
    await asyncio.sleep(pause_s / 2)
    sent = await ainvite(f"guest in {city}")
    return {"booked": booked, "sent": sent["kind"]}


@task
async def async_trip(cities: list[str]) -> dict[str, Any]:
    visits = await asyncio.gather(*(visit(c, 0.002 / (n + 1)) for n, c in enumerate(cities)))
    async with asyncio.TaskGroup() as group:
        paid = group.create_task(visit("Rome", 0.001))
        posted = group.create_task(apost_letter("Ada"))
    paid_directly = pay(3)  # a sync tool in an async task
    last = await apay(1)
    await ainvite("everyone, when nothing else is running")
    return {
        "visits": visits,
        "rome": paid.result(),
        "posted": posted.result()["kind"],
        "paid": [paid_directly, last],
    }


class Trip:
    """A scenario: one of the agents, and its world."""

    def __init__(self, agent: Any, argument: Any) -> None:
        self.agent, self.argument = agent, argument
        self.world = world()

    def reset(self) -> None:
        self.world.reset()

    def run(self, hf: Holdfast) -> Any:
        for _ in range(10):
            try:
                return hf.run(self.agent, self.argument, id="trip-42")
            except InDoubt as doubt:
                self.ask_a_person(hf, doubt)
        raise AssertionError("still in doubt after ten answers")

    def ask_a_person(self, hf: Holdfast, doubt: InDoubt) -> None:
        """Who looks in the letter box before answering."""
        assert doubt.name in ("post_letter", "apost_letter"), doubt
        happened = found("letter", doubt.key)
        result = happened.result if happened else None
        hf.resolve("trip-42", doubt.path, happened=bool(happened), result=result, by="a person")

    def effects(self) -> Any:
        # Ids and times differ between runs; what was done, and how often, must not.
        done = sorted((row["kind"], row["reference"]) for row in self.world.rows())
        return {"done": done, "counts": self.world.counts()}


def sync_scenario() -> Trip:
    return Trip(sync_trip, "Oslo")


def slow_scenario() -> Trip:
    """To a heart that beats fifty times as fast, everything takes fifty times as long."""
    heartbeat.TICK_S /= 50
    return sync_scenario()


def async_scenario() -> Trip:
    return Trip(async_trip, ["Oslo", "Bergen"])


@task
async def async_letters(to: str) -> list[str]:
    return [(await ainvite(to))["kind"], (await apost_letter(to))["kind"]]


def letters_scenario() -> Trip:
    """Async, but one call after the other: each run has the same boundaries."""
    return Trip(async_letters, "Ada")


@task
async def short_trip(city: str) -> dict[str, Any]:
    paid = await apay(len(city))
    sent = await ainvite(f"guest in {city}")
    return {"paid": paid, "sent": sent["kind"]}


class Fleet(Trip):
    """Several tasks on one event loop, whose logs are made durable together."""

    def run(self, hf: Holdfast) -> Any:
        async def all_of_them() -> list[Any]:
            trips = (hf.arun(self.agent, city, id=f"trip-{city}") for city in self.argument)
            return await asyncio.gather(*trips)

        return asyncio.run(all_of_them())


def fleet_scenario() -> Fleet:
    return Fleet(short_trip, ["Oslo", "Bergen", "Rome", "Paris", "Lima"])
