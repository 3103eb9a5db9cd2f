"""Agents that use everything that waits, branches or is taken back, to be killed everywhere.

Branches, a map, timers, a question, an approval, a child that loops over checkpoints, a child that
fails and is undone, a step that streams. The world is the same as that of the other agents.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from holdfast import (
    Holdfast,
    IdempotencyKey,
    InDoubt,
    StepFailed,
    Unanswered,
    aask,
    ask,
    checkpoint,
    each,
    gather,
    now,
    patched,
    progress,
    restore,
    sleep,
    start,
    step,
    task,
    tool,
    uuid,
)
from tests.crash.agents import NO_KEY, QUICK, Trip, affect, found, invite


def refund(paid: dict[str, Any], *, key: str) -> dict[str, Any]:
    return affect("refund", paid["reference"], key=key, honour_key=True)


@tool(retry=QUICK, undo=refund)
def deposit(amount: int, *, key: IdempotencyKey = NO_KEY) -> dict[str, Any]:
    return affect("deposit", f"amount {amount}", key=key, honour_key=True)


@tool(approve=True, check=lambda key: found("ticket", key))
def buy_ticket(to: str, *, key: IdempotencyKey = NO_KEY) -> dict[str, Any]:
    return affect("ticket", key)


@tool(check=lambda key: found("card", key))
def send_card(to: str, *, key: IdempotencyKey = NO_KEY) -> dict[str, Any]:
    return affect("card", key)


@step
def write_diary(days: int) -> Iterator[str]:
    for day in range(days):
        yield f"day {day}"


@step
def fails_late() -> None:
    raise ValueError("the hotel burned down")


@task(compensate="failed")
def book_in_vain() -> None:
    deposit(10)
    gather(lambda: deposit(20), lambda: invite("the porter"))
    fails_late()


@task(version=1)
def walk(stages: int) -> list[dict[str, Any]]:
    log = restore(list[dict[str, Any]]())
    while len(log) < stages:
        log = checkpoint([*log, send_card(f"stage {len(log)}")])
    return log


@task
def expedition(guests: int) -> dict[str, Any]:
    begun = now()
    progress("setting out", done=0, total=3)
    cards = each(send_card, [f"guest {n}" for n in range(guests)], workers=3)
    two = gather(lambda: deposit(1)["kind"], lambda: send_card("two at once"))
    sleep(0.002)
    walking = start(walk, 3)
    try:
        start(book_in_vain).result()
        booked = "booked"
    except StepFailed as failed:
        booked = failed.failure.type
    ticket = ""
    if ask("Go on?", bool):
        ticket = buy_ticket("Oslo")["kind"]
    diary = list(write_diary(3))
    return {
        "cards": list(cards),
        "two": two,
        "walked": walking.result(),
        "booked": booked,
        "ticket": ticket,
        "diary": diary,
        "new": patched("new-way"),
        "id": str(uuid()),
        "later": now() >= begun,
    }


async def arefund(paid: dict[str, Any], *, key: str) -> dict[str, Any]:
    await asyncio.sleep(0)
    return affect("refund", paid["reference"], key=key, honour_key=True)


@tool(retry=QUICK, undo=arefund)
async def adeposit(amount: int, *, key: IdempotencyKey = NO_KEY) -> dict[str, Any]:
    await asyncio.sleep(0)
    return affect("deposit", f"amount {amount}", key=key, honour_key=True)


@tool(approve=True, check=lambda key: found("ticket", key))
async def abuy_ticket(to: str, *, key: IdempotencyKey = NO_KEY) -> dict[str, Any]:
    await asyncio.sleep(0)
    return affect("ticket", key)


@tool(check=lambda key: found("card", key))
async def asend_card(to: str, *, key: IdempotencyKey = NO_KEY) -> dict[str, Any]:
    await asyncio.sleep(0.001)
    return affect("card", key)


@step
async def awrite_diary(days: int) -> AsyncIterator[str]:
    for day in range(days):
        await asyncio.sleep(0)
        yield f"day {day}"


@task(compensate="failed")
async def abook_in_vain() -> None:
    await adeposit(10)
    await gather(adeposit(20), asend_card("the porter"))
    fails_late()


@task(version=1)
async def awalk(stages: int) -> list[dict[str, Any]]:
    log = restore(list[dict[str, Any]]())
    while len(log) < stages:
        log = checkpoint([*log, await asend_card(f"stage {len(log)}")])
    return log


@task
async def aexpedition(guests: int) -> dict[str, Any]:
    progress("setting out", done=0, total=3)
    cards = await each(asend_card, [f"guest {n}" for n in range(guests)], workers=3)
    two = await gather(adeposit(1), asend_card("two at once"))
    await sleep(0.002)
    walking = await start(awalk, 3).started()
    try:
        await start(abook_in_vain)
        booked = "booked"
    except StepFailed as failed:
        booked = failed.failure.type
    ticket = ""
    if await aask("Go on?", bool):
        ticket = (await abuy_ticket("Oslo"))["kind"]
    diary = [part async for part in awrite_diary(3)]
    return {
        "cards": list(cards),
        "two": [two[0]["kind"], two[1]],
        "walked": await walking,
        "booked": booked,
        "ticket": ticket,
        "diary": diary,
        "new": patched("new-way"),
    }


@task(compensate="cancelled")
def called_off() -> None:
    """Cancels itself half-way, by way of a child's effect, and has to take everything back."""
    deposit(1)
    gather(lambda: deposit(2), lambda: deposit(3))
    start(walk, 2, on_cancel="leave")
    ask("Shall we?", bool)


class Expedition(Trip):
    """Answers whatever it is asked, and looks up what is in doubt."""

    def run(self, hf: Holdfast) -> Any:
        for _ in range(20):
            try:
                return hf.run(self.agent, self.argument, id="trip-42")
            except InDoubt as doubt:
                self.ask_a_person(hf, doubt)
            except Unanswered as asked:
                hf.answer(asked.task_id, True, question=asked.id, by="a person")
        raise AssertionError("still waiting after twenty answers")


class CalledOff(Trip):
    """Is cancelled where it asks, and ends with everything undone."""

    def run(self, hf: Holdfast) -> Any:
        from contextlib import suppress

        from holdfast import BadInput, TaskCancelled

        with suppress(Unanswered, TaskCancelled):
            hf.run(called_off, id="trip-42")
        with suppress(BadInput, TaskCancelled):  # it has ended already
            if hf.cancel("trip-42", because="it rains") != "cancelled":
                hf.resume("trip-42")
        view = hf.task("trip-42")
        # Branches end in any order, and so are they undone.
        return [view.status, sorted((u.path, u.status) for u in view.compensation)]


def sync_flow() -> Expedition:
    return Expedition(expedition, 5)


def async_flow() -> Expedition:
    return Expedition(aexpedition, 5)


def cancelled_flow() -> CalledOff:
    return CalledOff(called_off, None)
