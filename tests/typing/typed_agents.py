"""What type checkers know of tasks, steps and tools. Never run: held by `test_types.py`.

A line that ends in `# wrong` must be an error for each checker, and no other line may be one.
"""

# As strict as the code of a user may be, though other tests may leave functions untyped.
# mypy: check-untyped-defs, warn-return-any, disallow-untyped-defs, disallow-incomplete-defs
# mypy: disallow-untyped-calls, disallow-untyped-decorators, disallow-subclassing-any

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Any, assert_type

from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

from holdfast import (
    Handle,
    Happened,
    Holdfast,
    IdempotencyKey,
    Restate,
    Results,
    TaskState,
    Temporal,
    aask,
    areceive,
    ask,
    each,
    gather,
    receive,
    start,
    step,
    task,
    tool,
)
from holdfast.agent import Orchestrator, Reply, Request, Session, assistant
from holdfast.agent.adapters import AnthropicMessages, OpenAIChat


class Booking:
    number: int = 1


@step
def price(room: str, nights: int = 1) -> int:
    return nights


@step
async def aprice(room: str) -> int:
    return 1


@task
def plan(city: str, *, nights: int = 1) -> Booking:
    return Booking()


@task(timeout_s=60)
async def aplan(city: str) -> str:
    return city


@task
def rename(id: str, user: str) -> bool:
    return True


# Decorated functions keep their signatures

assert_type(price("attic"), int)
price(3)  # wrong
price("attic", night=2)  # wrong


async def awaits() -> None:
    assert_type(await aprice("attic"), int)
    await aprice()  # wrong


# Running and starting


def runs(hf: Holdfast) -> None:
    assert_type(hf.run(plan, "Oslo", id="trip-1", user="ada"), Booking)
    assert_type(hf.run(aplan, "Oslo"), str)
    assert_type(hf.start(plan, "Oslo"), Handle[Booking])
    assert_type(hf.start(aplan, "Oslo").result(), str)
    hf.run(plan, "Oslo", id=3)  # wrong
    hf.start(plan, "Oslo", labels="red")  # wrong

    told = hf.options(id="trip-1", user="ada", session="s", labels={"team": "x"}, timeout_s=5)
    assert_type(told.run(plan, "Oslo", nights=2), Booking)
    assert_type(told.run(aplan, "Oslo"), str)
    assert_type(told.start(plan, city="Oslo"), Handle[Booking])
    assert_type(told.start(aplan, "Oslo"), Handle[str])
    assert_type(told.run(rename, id="boat", user="bob"), bool)
    told.run(plan, 3)  # wrong
    told.run(plan, "Oslo", night=2)  # wrong
    told.start(plan)  # wrong
    told.run(rename, id="boat")  # wrong
    hf.options(id=3)  # wrong
    hf.options(nobody="knows")  # wrong


async def runs_async(hf: Holdfast) -> None:
    assert_type(await hf.arun(plan, "Oslo"), Booking)
    assert_type(await hf.arun(aplan, "Oslo"), str)
    told = hf.options(id="trip-1")
    assert_type(await told.arun(plan, "Oslo"), Booking)
    assert_type(await told.arun(aplan, "Oslo"), str)
    assert_type(await told.astart(aplan, "Oslo"), Handle[str])
    await told.arun(plan, 3)  # wrong
    handle = await hf.astart(plan, "Oslo")
    assert_type(handle, Handle[Booking])
    assert_type(await handle.aresult(), Booking)


# Async forms have the parameters and the results of their methods


async def serves(hf: Holdfast) -> AsyncIterator[int]:
    await hf.aanswer("trip-1", True, question="book")
    assert_type(await hf.asend("trip-1", "note", 3), bool)
    await hf.aanswer("trip-1")  # wrong
    assert_type(await hf.acancel("trip-1", because="closed"), str)
    await hf.acancel("trip-1", why="closed")  # wrong
    view = await hf.atask("trip-1")
    assert_type(view.record(), TaskState)
    for each_view in await hf.atasks(status="failed", limit=3):
        assert_type(each_view.id, str)
    await hf.atasks(limits=3)  # wrong
    await (await hf.ahandle("trip-1")).acancel("enough")
    assert_type((await hf.averify()).sound, bool)
    async for event in hf.follow("trip-1", after=3):
        yield event.seq
    for event in hf.follow("trip-1"):
        assert_type(event.seq, int)


# Asking, and branches


def asks() -> None:
    assert_type(ask("Book it?", bool), bool)
    assert_type(ask("Who are you?"), str)
    assert_type(ask("How many?", int, default=1), int)
    picked: list[int] = ask("Which?", list[int])
    print(picked)


async def asks_async() -> None:
    assert_type(await aask("Book it?", bool), bool)
    assert_type(await aask("Who are you?"), str)


def receives() -> None:
    assert_type(receive("count", int), int)
    assert_type(receive("count", int, timeout_s=5, default=0), int)
    anything: Any = receive("note")
    many: list[int] = receive("counts", list[int])
    print(anything, many)
    receive("count", int).upper()  # wrong


async def receives_async() -> None:
    assert_type(await areceive("count", int), int)
    (await areceive("count", int)).upper()  # wrong


def branches() -> None:
    number, text = gather(lambda: price("attic"), lambda: "a")
    assert_type(number, int)
    assert_type(text, str)
    assert_type(gather(lambda: 1, lambda: "a", lambda: 2.0), tuple[int, str, float])
    assert_type(gather(*[lambda: 1]), list[int])
    assert_type(each(price, ["attic"]), Results[int])
    assert_type(start(plan, "Oslo").result(), Booking)
    _one, _two = gather(lambda: 1, lambda: 2, lambda: 3)  # wrong


async def branches_async() -> None:
    number, booking = await gather(aprice("attic"), aplan("Oslo"))
    assert_type(number, int)
    assert_type(booking, str)
    assert_type(await each(aprice, ["attic"]), Results[int])
    assert_type(await start(aplan, "Oslo"), str)


# `check` and `undo` are held against what the tool returns


def booked(key: str) -> Happened[Booking] | None:
    return None


async def abooked(key: IdempotencyKey) -> Happened[Booking] | None:
    return None


def unbook(booking: Booking, *, key: str) -> None: ...


def unsend(mail: str) -> None: ...


@tool(check=booked, undo=unbook)
def book(room: str, *, key: IdempotencyKey = IdempotencyKey()) -> Booking:
    return Booking()


@tool(check=abooked, undo=unbook, approve=True)
async def abook(room: str) -> Booking:
    return Booking()


@tool(undo=unsend)
def send(to: str) -> str:
    return to


@tool(in_doubt="ask")
def ring(to: str) -> None: ...


@tool(undo=lambda result: None)
def call(to: str) -> int:
    return 1


assert_type(book("attic"), Booking)
assert_type(send("ada"), str)
call("ada")


async def books() -> None:
    assert_type(await abook("attic"), Booking)


@tool(check=booked)  # wrong
def book_by_mail(room: str) -> str:
    return room


@tool(undo=unsend)  # wrong
def book_twice(room: str) -> int:
    return 2


tool(timeout_s="soon")  # wrong


# Models and engines


def model(request: Request) -> Reply:
    return Reply(assistant("done"))


async def amodel(request: Request) -> Reply:
    return Reply(assistant("done"))


def wrong_model(request: str) -> Reply:
    return Reply(assistant("done"))


async def models() -> None:
    Orchestrator("one", model=model)
    Orchestrator("two", model=amodel)
    Orchestrator("three", model=wrong_model)  # wrong
    answer: Awaitable[Reply] = amodel(Request(()))
    assert_type(await answer, Reply)


def outputs(chat: Session) -> None:
    assert_type(Orchestrator("six", model, output=Booking).run(chat, "?").output, Booking)
    assert_type(Orchestrator("seven", model).run(chat, "?").output, None)
    either = Orchestrator[Booking | int]("eight", model, output=Booking | int)
    assert_type(either.run(chat, "?").output, Booking | int)


async def adapters(request: Request) -> None:
    assert_type(OpenAIChat(OpenAI(), "gpt-5")(request), Reply)
    assert_type(await OpenAIChat(AsyncOpenAI(), "gpt-5", temperature=0)(request), Reply)
    assert_type(AnthropicMessages(Anthropic(), "claude", max_tokens=9)(request), Reply)
    assert_type(await AnthropicMessages(AsyncAnthropic(), "claude", max_tokens=9)(request), Reply)
    Orchestrator("four", model=OpenAIChat(OpenAI(), "gpt-5"))
    Orchestrator("five", model=OpenAIChat(AsyncOpenAI(), "gpt-5"))
    await OpenAIChat(OpenAI(), "gpt-5")(request)  # wrong
    print(OpenAIChat(AsyncOpenAI(), "gpt-5")(request).usage)  # wrong
    OpenAIChat("gpt-5", "gpt-5")  # wrong


def engines() -> None:
    Holdfast("state", engine=Temporal("localhost:7233"))
    Holdfast("state", engine=Restate())
    Temporal(queue=3)  # wrong
    Holdfast("state", engine="temporal")  # wrong


def shows(hf: Holdfast) -> Any:
    record: TaskState = hf.task("trip-1").record()
    return record.user
