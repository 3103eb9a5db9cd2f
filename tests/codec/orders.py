"""The same small agent four times: with a dataclass, a Struct, an attrs class, a pydantic model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import attrs
import msgspec
import pydantic

from holdfast import ask, receive, step, task, tool
from tests.flavors import Crash


@dataclass
class DataOrder:
    city: str
    beds: int = 1


class StructOrder(msgspec.Struct):
    city: str
    beds: int = 1


@attrs.define
class AttrsOrder:
    city: str
    beds: int = 1


class ModelOrder(pydantic.BaseModel):
    city: str
    beds: int = 1


class Agent:
    """Tasks, a step and a tool that take and return one kind of order."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.crashes = False
        self.returns: Any = None
        name = kind.__name__

        def take(order: kind) -> kind:
            return order

        def question() -> kind:
            return ask("Which order?", kind, id="which")

        def message() -> kind:
            return receive("order", kind, timeout_s=0.05)

        def find() -> kind:
            return self.returns

        def book(order: kind) -> kind:
            if self.crashes:
                raise Crash
            return order

        for fn in (take, question, message, find, book):
            fn.__annotations__ = {
                key: kind for key, value in fn.__annotations__.items() if value == "kind"
            }
        self.take = task(name=f"take_{name}")(take)
        self.question = task(name=f"question_{name}")(question)
        self.message = task(name=f"message_{name}")(message)
        self.find: Any = step(name=f"find_{name}")(find)
        self.read = step(name=f"read_{name}")(find)
        self.read_untyped = step(name=f"read_{name}")(self._loose)
        self.book: Any = tool(name=f"book_{name}", in_doubt="ask")(book)
        self.finds = task(name=f"finds_{name}")(self._finds)
        self.books = task(name=f"books_{name}")(self._books)
        self.finder = self.find

    def _loose(self) -> Any:
        return self.returns

    def _finds(self) -> Any:
        found = self.finder()
        if self.crashes:
            raise Crash
        return repr(found)

    def _books(self) -> Any:
        return repr(self.book(self.kind(city="Oslo", beds=2)))


AGENTS = {kind.__name__: Agent(kind) for kind in (DataOrder, StructOrder, AttrsOrder, ModelOrder)}
take_DataOrder, take_StructOrder, take_AttrsOrder, take_ModelOrder = (
    agent.take for agent in AGENTS.values()
)
