"""The tasks that the page is tried on."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from holdfast import (
    Holdfast,
    IdempotencyKey,
    InDoubt,
    Retry,
    TaskFailed,
    Unanswered,
    Worker,
    ask,
    current,
    decide,
    note,
    start,
    step,
    task,
    tool,
)
from holdfast.workspace import Means, files, init
from tests.flavors import Crash

QUICK = Retry(attempts=3, delay_s=0.001, jitter=0)
lost: set[str] = set()
"""Those during whose invitation the process dies."""


@step(retry=QUICK)
def find_page_rooms(city: str) -> list[str]:
    if current().attempt < 2:
        raise ConnectionError("hotels.example did not answer")
    return [f"{city} Inn", f"{city} Lodge"]


@tool(approve=True)
def page_pay(amount: int, *, key: IdempotencyKey = IdempotencyKey()) -> dict[str, int]:
    return {"paid": amount}


@tool(in_doubt="ask")
def send_page_invite(to: str) -> str:
    if to in lost:
        lost.discard(to)
        raise Crash
    return f"invited {to}"


@step
def count_page_guests(names: list[str]) -> int:
    return len(names)


@task
def page_trip(city: str) -> str:
    current().plan(["find_page_rooms", "ask", "count_page_guests"])
    rooms = find_page_rooms(city)
    room = decide("room", rooms[0], options=rooms, because="the cheapest")
    files.write("plan.md", f"# Trip to {city}\n")
    note("a room was found", {"room": room})
    if not ask(f"Book {room}?", bool, id="book"):
        return "nothing booked"
    files.write("plan.md", f"# Trip to {city}\n\nBooked.\n")
    return f"{room} for {count_page_guests(['ada', 'bob'])}"


@task
def page_spend(amount: int) -> Any:
    return page_pay(amount)


@task
def page_invite(to: str) -> str:
    return send_page_invite(to)


@task
def page_breaks() -> None:
    raise ValueError("it is broken <script>alert(1)</script>")


def asked_trip(hf: Holdfast, id: str = "trip-1") -> str:
    """A trip that asks whether to book."""
    try:
        hf.run(page_trip, "Oslo", id=id, user="ada", labels={"team": "travel"})
    except Unanswered:
        return id
    raise AssertionError("it asked nothing")


def finished_trip(hf: Holdfast, id: str = "trip-2") -> str:
    asked_trip(hf, id)
    hf.answer(id, True, question="book", by="bob")
    hf.resume(id)
    return id


def failed_task(hf: Holdfast, id: str = "breaks-1") -> str:
    try:
        hf.run(page_breaks, id=id)
    except TaskFailed:
        return id
    raise AssertionError("it did not fail")


def approval(hf: Holdfast, id: str = "spend-1") -> str:
    try:
        hf.run(page_spend, 70, id=id)
    except Unanswered:
        return id
    raise AssertionError("it asked nothing")


def doubtful(hf: Holdfast, id: str = "invite-1") -> str:
    """A call of which nobody knows whether it happened."""
    lost.add(id)
    with suppress(Crash):
        hf.run(page_invite, id, id=id)
    try:
        hf.resume(id)
    except InDoubt:
        return id
    raise AssertionError("there was no doubt")


code = {"version": 1}
"""What the task below does: with another number it calls something else."""


@task
def page_shifts() -> str:
    if code["version"] == 1:
        count_page_guests(["ada"])
    else:
        find_page_rooms("Oslo")
    return str(ask("Go on?", bool, id="go"))


def hindered(hf: Holdfast, id: str = "shifts-1") -> str:
    """A task whose code changed under it, which a worker found out."""
    try:
        hf.run(page_shifts, id=id)
    except Unanswered:
        hf.answer(id, True, question="go", by="ada")
    code["version"] = 2
    try:
        Worker(hf, poll_s=0.01).run_until_idle()
    finally:
        code["version"] = 1
    return id


PLAN = "- [ ] 1. look around\n- [ ] 2. sweep (after: 1)\n- [ ] 3. paint (after: 2)"


def mission(hf: Holdfast, folder: Path) -> tuple[str, Means]:
    """A mission of three items, and how to do one of them after the other."""

    def agent(prompt: str) -> str:
        if "Write the plan for this mission" in prompt:
            return PLAN
        files.write("found.md", "# A lamp\n")
        return "it is done"

    return init(hf, "Tidy up the attic", id="attic"), Means(agent, folder=folder)


@step
def look_up_page(topic: str) -> str:
    raise LookupError(f"nothing is known of {topic}")


@task
def page_research(topic: str) -> str:
    return look_up_page(topic)


@task
def page_report(topic: str) -> str:
    return start(page_research, topic).result()


@task
def page_writes() -> str:
    return f"{ask('What shall it say?', str, id='text')} x {ask('How often?', int, id='many')}"


go_on = threading.Event()
"""What the step below waits for, in the middle of its sentence."""


@step
def page_tells() -> Iterator[str]:
    yield from ("The kettle ", "<b>is</b> ")
    go_on.wait(60)
    yield "on its way."


@task
def page_talks() -> str:
    return "".join(page_tells())


@step
def page_weather(city: str) -> Any:
    return {
        "at": datetime(2026, 11, 18, 9, tzinfo=UTC),
        "range": (2, 7),
        "photo": b"\x89PNG",
        "grains": 2**70,
        "$ref": "a key of the user's own",
        "kinds": {"rain", "wind"},
    }


@dataclass
class Stay:
    hotel: str
    night: date


@step
def page_stay(city: str) -> Sequence[Stay]:
    return [Stay(f"{city} Inn", date(2026, 11, 18))]


@task
def page_reports(city: str, since: Any) -> tuple[Any, Sequence[Stay], Any]:
    return page_weather(city), page_stay(city), since
