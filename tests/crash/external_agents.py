"""Agents that look at the outside world between their own changes to it, to be killed everywhere.

What they see is their own doing, so it is known: whoever is answered by what was true before a
change, or makes a change twice, returns something else.
"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import Holdfast, IdempotencyKey, gather, step, task, tool
from holdfast.agent import external, fact
from tests.crash.agents import NO_KEY, QUICK, Trip, affect, found, world

FOREVER = float("inf")


def count(kind: str) -> int:
    return sum(row["kind"] == kind for row in world().rows())


@external(ttl_s=FOREVER)
def coins() -> int:
    return count("coin")


@external(ttl_s=FOREVER, retry=QUICK)
def stamps(owner: str) -> int:
    return count("stamp")


@external(ttl_s=FOREVER)
def treasure(owner: str) -> int:
    """Made of the others: what makes one of them untrue makes it untrue."""
    return 10 * coins() + stamps(owner)


@tool(retry=QUICK, invalidates=[coins])
def mint(number: int, *, key: IdempotencyKey = NO_KEY) -> dict[str, Any]:
    """The receiver honours the key."""
    return affect("coin", f"number {number}", key=key, honour_key=True)


@tool(check=lambda key: found("stamp", key), invalidates=["stamps"])
def print_stamp(number: int, *, key: IdempotencyKey = NO_KEY) -> dict[str, Any]:
    """The receiver forgets keys, but can be asked."""
    return affect("stamp", key)


@step
def look_around() -> list[int]:
    return [coins(), stamps("ada"), treasure("ada")]


@task
def collector(rounds: int) -> list[Any]:
    seen: list[Any] = []
    for number in range(rounds):
        seen += [look_around(), coins()]
        mint(number)
        seen += [coins(), stamps("ada"), treasure("ada")]
        print_stamp(number)
        reading = treasure.reading("ada")
        seen += [fact("worth", reading.value, of=reading), gather(coins, look_around)]
    return seen


@external(ttl_s=FOREVER)
async def acoins() -> int:
    await asyncio.sleep(0)
    return count("coin")


@tool(retry=QUICK, invalidates=[acoins])
async def amint(number: int, *, key: IdempotencyKey = NO_KEY) -> dict[str, Any]:
    await asyncio.sleep(0)
    return affect("coin", f"number {number}", key=key, honour_key=True)


@task
async def acollector(rounds: int) -> list[Any]:
    seen: list[Any] = []
    for number in range(rounds):
        seen += [await acoins(), await acoins()]
        await asyncio.gather(amint(2 * number), amint(2 * number + 1))
        reading = await acoins.reading()
        seen += [fact("worth", reading.value, of=reading), await acoins()]
    return seen


class Collecting(Trip):
    """Knows what the agent has to see, killed or not."""

    def __init__(self, agent: Any, rounds: int, sees: Any) -> None:
        super().__init__(agent, rounds)
        self.sees = [seen for number in range(rounds) for seen in sees(number)]

    def run(self, hf: Holdfast) -> Any:
        seen = super().run(hf)
        assert seen == self.sees, f"saw {seen}, not {self.sees}"
        return seen


def sync_reads() -> Collecting:
    def sees(n: int) -> list[Any]:
        before, after = [n, n, 11 * n], [n + 1, n + 1, 11 * (n + 1)]
        return [before, n, n + 1, n, 11 * n + 10, 11 * (n + 1), [n + 1, after]]

    return Collecting(collector, 3, sees)


def async_reads() -> Collecting:
    return Collecting(acollector, 3, lambda n: [2 * n, 2 * n, 2 * n + 2, 2 * n + 2])
