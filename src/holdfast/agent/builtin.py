"""The tools that every agent has: for its plan, for questions, and for its own judgement.

Each is a type: its docstring is what the model is told, its fields are what the model fills in.
"""

from __future__ import annotations

import inspect
from typing import Any, Literal

import msgspec
from msgspec import Struct

from holdfast.agent.messages import ToolCall
from holdfast.agent.model import ToolInfo
from holdfast.agent.tooling import BadCall, arguments_of


class MakePlan(Struct, frozen=True, forbid_unknown_fields=True):
    """Write down the steps that lead to the goal, in order. A new plan replaces the old one."""

    items: list[str]


class UpdatePlan(Struct, frozen=True, forbid_unknown_fields=True):
    """Say what became of an item of the plan. Items are numbered from 1."""

    item: str
    status: Literal["doing", "done", "failed", "skipped"]
    because: str = ""


class AskUser(Struct, frozen=True, forbid_unknown_fields=True):
    """Ask the user something that only they know. The answer may take long."""

    question: str


class Accept(Struct, frozen=True, forbid_unknown_fields=True):
    """The goal is reached: the answer goes to the user as it is."""


class Revise(Struct, frozen=True, forbid_unknown_fields=True):
    """The goal is not reached yet: say what is missing or wrong."""

    reason: str


Builtin = MakePlan | UpdatePlan | AskUser | Accept | Revise

NAMES: dict[type[Any], str] = {
    MakePlan: "make_plan",
    UpdatePlan: "update_plan",
    AskUser: "ask_user",
    Accept: "accept",
    Revise: "revise",
}


def told_of(kind: type[Any]) -> ToolInfo:
    """What a model is told of a built-in tool.

    >>> told_of(AskUser).name, told_of(AskUser).parameters["required"]
    ('ask_user', ['question'])
    """
    _, definitions = msgspec.json.schema_components([kind])
    schema = dict(definitions[kind.__name__])
    schema = {k: v for k, v in schema.items() if k not in ("title", "description")}
    return ToolInfo(NAMES[kind], inspect.getdoc(kind) or "", schema)


def meant(call: ToolCall, kinds: tuple[type[Any], ...]) -> Builtin | None:
    """The built-in tool that a call is for, if it is one of these; `BadCall` if it does not fit."""
    for kind in kinds:
        if NAMES[kind] == call.name:
            try:
                found: Builtin = msgspec.convert(arguments_of(call), kind)
            except msgspec.ValidationError as error:
                raise BadCall(f"the arguments of {call.name} do not fit: {error}") from None
            return found
    return None
