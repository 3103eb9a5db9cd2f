"""Agents whose model is a list of what it says, for tests that look at what becomes of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import Holdfast, Retry, TaskFailed, tool
from holdfast.agent import AgentResult, Message, Orchestrator, Reply, Request, ToolCall, assistant

Said = Reply | Message | str | BaseException

QUICK = Retry(attempts=3, delay_s=0, jitter=0)

_numbers = itertools.count(1)


class Model:
    """A model that says one thing after the other; what it raises, it raises."""

    def __init__(self, said: Sequence[Said]) -> None:
        self.said = list(said)
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Any:
        self.requests.append(request)
        if not self.said:
            raise AssertionError(f"it was asked once more: {request.messages[-1]}")
        said = self.said.pop(0)
        if isinstance(said, BaseException):
            raise said
        if isinstance(said, str):
            said = assistant(said)
        return Reply(said) if isinstance(said, Message) else said


class AsyncModel(Model):
    """The same, awaited."""

    async def __call__(self, request: Request) -> Any:
        return super().__call__(request)


done: list[Any] = []
"""What the tools have done."""


@tool(in_doubt="retry")
def ring(times: int, who: str = "nobody") -> str:
    """Ring a bell."""
    done.append((times, who))
    return f"rang {times} times for {who}"


@tool(in_doubt="retry")
def break_down(reason: str) -> str:
    """Fail."""
    raise ValueError(reason)


def calls(*asked: tuple[str, str] | tuple[str, str, str], text: str = "") -> Message:
    """A reply that asks for calls: of (name, arguments), with ids of their own if none is given."""
    made = [
        ToolCall(each[2] if len(each) > 2 else f"c{n}", *each[:2]) for n, each in enumerate(asked)
    ]
    return assistant(text, made)


def make(
    model: Any, tools: Sequence[Any] = (), kind: type[Orchestrator] = Orchestrator, **options: Any
) -> Orchestrator:
    """An agent of a name that no other test has."""
    options = {"plan": False, "retry": QUICK, **options}
    return kind(f"talker_{next(_numbers)}", model, tools, **options)


def talk(
    hf: Holdfast, agent: Orchestrator, goal: str | Message = "Go.", id: str = "t1"
) -> AgentResult:
    """Run it in the session of the test."""
    return agent.run(hf.session("s1", user="ada"), goal, id=id)


def fails(hf: Holdfast, agent: Orchestrator, goal: str = "Go.", id: str = "t1") -> str:
    """Run it in the session of the test; the reason why its task failed."""
    with pytest.raises(TaskFailed) as failed:
        talk(hf, agent, goal, id)
    assert hf.task(id).status == "failed"
    return str(failed.value)


def conversation(hf: Holdfast) -> list[Message]:
    """What was said in it, without times."""
    return [replace(message, at=None) for message in hf.session("s1").messages()]


def lines(hf: Holdfast) -> list[str]:
    """The same in short."""
    return [_line(message) for message in conversation(hf)]


def _line(message: Message) -> str:
    parts = [message.text, *(f"{c.name}({c.arguments})" for c in message.calls)]
    parts += [str(result.content) for result in message.results]
    return f"{message.role}: {' '.join(part for part in parts if part)}"
