"""A research agent: in one reply its model asks for seven calls, and they run side by side.

| tool | after a crash in the middle of it |
|---|---|
| `search` | is asked again: it only reads |
| `order_copy` | is made again with the same key, which the library honours |
| `reserve` | the library is asked whether it happened |
| `post_letter` | waits for a person, who looks into the letter box |
| `publish` | needs a yes first, and is made again with the same key |
| `dictate` | a step that streams; it begins anew |
| `reader` | another agent, as a child task; it goes on where it was |
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from examples.trip.client import World
from holdfast import (
    Happened,
    Holdfast,
    IdempotencyKey,
    InDoubt,
    Unanswered,
    current,
    step,
    tool,
)
from holdfast.agent import (
    AgentResult,
    Orchestrator,
    Reply,
    Request,
    ToolCall,
    Usage,
    assistant,
    external,
)

Json = dict[str, Any]
NO_KEY = IdempotencyKey()
GOAL, SESSION, TASK = "Write a page on eels.", "research", "eels"

_worlds: list[World] = []


def work_in(world: World) -> None:
    """Say which world the tools act on."""
    _worlds[:] = [world]


def affect(kind: str, reference: str, key: str = "") -> str:
    """Do something to the world; with a key, once."""
    _worlds[0].effect(kind, reference, honour_key=bool(key), key=key or None)
    return f"{kind}: done"


@external
def search(topic: str) -> list[str]:
    """Find sources on a topic."""
    return [f"All about {topic}", f"{topic} in winter"]


@tool
def order_copy(title: str, *, key: IdempotencyKey = NO_KEY) -> str:
    """Order a copy of a book."""
    return affect("copy", title, key)


def reserved(key: str) -> Happened[str] | None:
    """Ask the library for what was reserved under a key."""
    return Happened("seat: done") if _worlds[0].find("seat", key) else None


@tool(check=reserved)
def reserve(room: str, *, key: IdempotencyKey = NO_KEY) -> str:
    """Reserve a seat in a reading room."""
    return affect("seat", key)


@tool(in_doubt="ask")
def post_letter(to: str) -> str:
    """Post a letter to an author."""
    return affect("letter", current().key)


@tool(approve=True)
def publish(title: str, *, key: IdempotencyKey = NO_KEY) -> str:
    """Publish a page."""
    return affect("page", title, key)


@step
def dictate(sentences: int) -> Iterator[str]:
    """Dictate a text, sentence by sentence."""
    for number in range(sentences):
        yield f"Sentence {number + 1}. "


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(f"call_{name}", name, json.dumps(arguments))


def reader_model(request: Request) -> Reply:
    """The model of the agent that reads: it orders a copy, and tells what is in it."""
    if request.messages[-1].role == "user":
        return Reply(assistant("", [call("order_copy", title="Eels")]), Usage(40, 5))
    return Reply(assistant("Eels are long."), Usage(50, 5))


def model(request: Request) -> Reply:
    """The model of the agent that writes: everything at once, and then a page made of it."""
    last = request.messages[-1]
    if last.role == "user":
        asked = [
            call("search", topic="eels"),
            call("order_copy", title="All about eels"),
            call("reserve", room="north"),
            call("post_letter", to="the author"),
            call("publish", title="Eels, a page"),
            call("dictate", sentences=3),
            call("reader", request="What are eels like?"),
        ]
        return Reply(assistant("", asked), Usage(100, 20), stop="tool_calls")
    results = [result for message in request.messages for result in message.results]
    return Reply(assistant(" | ".join(str(each.content) for each in results)), Usage(200, 30))


def make_agent(asks: Any = model, reads: Any = reader_model) -> Orchestrator:
    """The agent that writes, with the agent that reads as one of its tools."""
    reader = Orchestrator("reader", reads, [order_copy], about="Reads books.", plan=False)
    tools = [search, order_copy, reserve, post_letter, publish, dictate, reader.as_tool()]
    return Orchestrator("research", asks, tools, plan=False, ask_user=False)


def attend(hf: Holdfast, agent: Orchestrator) -> AgentResult:
    """Run it to its end, or go on with it. A person says yes, and looks into the letter box."""
    while True:
        try:
            return agent.run(hf.session(SESSION, user="ada"), GOAL, id=TASK)
        except Unanswered as asked:
            hf.answer(asked.task_id, True, question=asked.id, by="ada")
        except InDoubt as doubt:
            happened = bool(_worlds[0].find("letter", doubt.key))
            result = "letter: done" if happened else None
            hf.resolve(doubt.task_id, doubt.path, happened=happened, result=result, by="ada")
