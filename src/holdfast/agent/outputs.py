"""Typed answers: how a model is told the type, and how its answer becomes a value of it.

A model whose provider has structured output is given the schema with the request. Any other gets a
tool, `final_answer`, whose arguments are the answer. Either way the answer is validated here: a
schema promises less than a type, and some servers don't keep the promise.
"""

from __future__ import annotations

import inspect
from types import UnionType
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.agent.model import ToolInfo
from holdfast.agent.tooling import BadCall
from holdfast.codec import shape_of
from holdfast.codec.scalars import name_of
from holdfast.codec.schemas import schema_of
from holdfast.core.decoding import Illegible, decode
from holdfast.errors import BadInput, Undecodable

T = TypeVar("T")

ANSWER_TOOL = "final_answer"
"""The tool by which a model answers whose provider has no structured output."""

_WRAPPED = "answer"
"""Providers take only objects, so any other value is the one field of one."""

_PLEASE = "Give the final answer to the user, when the goal is reached."
_MOST_SHOWN = 1000


class AnswerForm(Generic[T]):
    """The type of an agent's answers.

    >>> output = AnswerForm(list[int])
    >>> output.info.parameters["properties"]["answer"]["type"]
    'array'
    >>> output.read('{"answer": [1, 2]}'), output.value("[1,2]")
    ('[1,2]', [1, 2])
    """

    def __init__(self, kind: type[T] | UnionType) -> None:
        schema = schema_of(kind)
        if not schema:
            raise BadInput(
                f"output={name_of(kind):.80} has no JSON schema, so a model could not be told it: "
                f"give a pydantic model, a dataclass, a msgspec Struct or a type made of these"
            )
        self.kind = kind
        self.name: str = name_of(kind)
        self._shape = shape_of(kind)
        definitions = schema.get("$defs", {})
        root = _resolved(schema, definitions)
        self._is_wrapped = root.get("type") != "object" or "properties" not in root
        if self._is_wrapped:
            inner = {key: value for key, value in schema.items() if key != "$defs"}
            schema = {
                "type": "object",
                "properties": {_WRAPPED: inner},
                "required": [_WRAPPED],
                "additionalProperties": False,
                **({"$defs": definitions} if definitions else {}),
            }
        elif root is not schema:
            schema = {**root, "$defs": definitions}
        # A union has no __dict__, and what a class inherits is not about it.
        about = inspect.getdoc(kind) if "__doc__" in getattr(kind, "__dict__", {}) else ""
        described = f"{_PLEASE} {about}".strip() if about else _PLEASE
        self.info: ToolInfo = ToolInfo(ANSWER_TOOL, described, schema)
        """The words for the model about it, as a tool; its parameters are the answer."""

    def read(self, text: str) -> str:
        """The JSON of an answer that fits, without what it is wrapped in; else `BadCall`."""
        try:
            data = decode(_bare(text))
        except (Illegible, UnicodeError) as error:
            raise BadCall(f"the answer is not valid JSON: {error}") from None
        if self._is_wrapped and isinstance(data, dict) and data.keys() == {_WRAPPED}:
            data = data[_WRAPPED]
        found = msgspec.json.encode(data)
        try:
            self._shape.accept(found)
        except (Undecodable, RecursionError) as error:
            raise BadCall(f"the answer does not fit: {str(error)[:_MOST_SHOWN]}") from None
        return found.decode()

    def value(self, answer: str) -> T:
        """The value of an answer that was read."""
        value: T = self._shape.accept(answer.encode())
        return value


def _resolved(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema that a reference at the root means."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    found: dict[str, Any] = definitions.get(name, schema)
    return found


def _bare(text: str) -> str:
    """The JSON in an answer. Models like to put it in a fence."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```") and "\n" in stripped:
        return stripped[3:-3].partition("\n")[2]
    return stripped
