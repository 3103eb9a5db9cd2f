"""Values of a graph as JSON: readable where they can be, in LangGraph's own form where not.

Messages of LangChain and plain JSON are written as what they are, also inside lists and dicts, so
that people, `jq` and SQL can read them, and a new message in a long list costs that message.
Everything else goes through the serializer of the checkpointer, with its rules on which classes may
be loaded. A user who brings a serializer of their own (an encrypting one, say) has everything
written by it.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.errors import BadInput

_MESSAGES: dict[str, type[BaseMessage]] = {
    each.__name__: each
    for each in (AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage)
}
_DEFAULTS = {
    name: {
        field: info.get_default(call_default_factory=True)
        for field, info in each.model_fields.items()
        if not info.is_required()
    }
    for name, each in _MESSAGES.items()
}
_MESSAGE, _SERDE, _DATA = "lc:message", "lc:serde", "data"
_SCALARS = (str, int, bool, type(None))


class Encoding:
    """Turns the values of a graph into JSON data, and back."""

    def __init__(self, serde: SerializerProtocol, *, readable: bool) -> None:
        self.serde = serde
        self.readable = readable

    def dump(self, value: Any) -> Any:
        """The value as JSON data."""
        if self.readable:
            message = _of_message(value)
            if message is not None:
                return message
            if is_json(value):
                return value
            if type(value) is list:
                return [self.dump(item) for item in value]
            if type(value) is dict and _are_plain(value):
                return {key: self.dump(item) for key, item in value.items()}
        kind, data = self.serde.dumps_typed(value)
        return {_SERDE: kind, _DATA: base64.b64encode(data).decode()}

    def load(self, data: Any) -> Any:
        """The value again."""
        if type(data) is list:
            return [self.load(item) for item in data]
        if type(data) is dict:
            if _SERDE in data:
                return self.serde.loads_typed((data[_SERDE], base64.b64decode(data[_DATA])))
            if _MESSAGE in data:
                fields = dict(data)
                name = fields.pop(_MESSAGE)
                if name not in _MESSAGES:
                    raise BadInput(f"a checkpoint names a message of an unknown kind: {name!a:.60}")
                return _MESSAGES[name](**fields)
            return {key: self.load(item) for key, item in data.items()}
        return data


def is_json(value: Any) -> bool:
    """Whether a value comes back from JSON as it is, and can be taken for nothing else."""
    kind = type(value)
    if kind in _SCALARS:
        return kind is not int or -(2**63) <= value < 2**63
    if kind is float:
        return math.isfinite(value)
    if kind is list:
        return all(map(is_json, value))
    if kind is dict:
        return _are_plain(value) and all(map(is_json, value.values()))
    return False


def _are_plain(keys: Iterable[object]) -> bool:
    return all(type(key) is str and not key.startswith("lc:") for key in keys)


def _of_message(value: Any) -> dict[str, Any] | None:
    """A message of LangChain as JSON data; None if it is none, or holds something else."""
    name = type(value).__name__
    if _MESSAGES.get(name) is not type(value):
        return None
    defaults = _DEFAULTS[name]
    fields = {
        field: item
        for field, item in value.__dict__.items()
        if field != "type" and (field not in defaults or item != defaults[field])
    }
    if value.__pydantic_extra__:
        fields |= value.__pydantic_extra__
    return {_MESSAGE: name, **fields} if is_json(fields) else None


def fingerprint(value: Any) -> Any:
    """The mark by which a message changed in place is known; None for what is no message."""
    if _MESSAGES.get(type(value).__name__) is not type(value):
        return None
    fields = [item if type(item) in _SCALARS else repr(item) for item in value.__dict__.values()]
    return (type(value), *fields, repr(value.__pydantic_extra__ or ""))
