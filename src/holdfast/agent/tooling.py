"""Tools as a model sees and calls them: schemas out, arguments in, results as text.

Whatever a model writes is data. Arguments that are no JSON, do not fit, or name a tool that is not
there are told to the model, and nothing is called.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from holdfast.agent.messages import ToolCall
from holdfast.agent.model import ToolInfo
from holdfast.decoding import Illegible, decode
from holdfast.errors import BadInput, Undecodable
from holdfast.spec import IdempotencyKey, Spec, is_async

_MOST_SHOWN = 10


class BadCall(Exception):
    """A call that a model asked for, and that can't be made. The message is for the model."""


class Tools:
    """The tools of an agent, by name."""

    def __init__(self, tools: Iterable[Any]) -> None:
        self.functions: dict[str, Callable[..., Any]] = {}
        self.infos: list[ToolInfo] = []
        for fn in tools:
            spec = _spec_of(fn)
            if spec.name in self.functions:
                raise BadInput(f"two tools are named {spec.name!r}: a model could not tell them")
            self.functions[spec.name] = fn
            self.infos.append(info_of(fn))

    @property
    def is_async(self) -> bool:
        """Whether one of them has to be awaited."""
        return any(is_async(fn) for fn in self.functions.values())

    def must_differ_from(self, names: Iterable[str]) -> None:
        """Refuse a tool that is named like one that the agent has of itself."""
        if taken := sorted(set(names) & self.functions.keys()):
            raise BadInput(
                f"a tool is named {taken[0]!r}, as one that the agent has of itself: rename it, as "
                f"in @tool(name=…), or leave that one out (ask_user=False, plan=False)"
            )

    def prepared(self, call: ToolCall) -> Callable[[], Any]:
        """What makes the call, or `BadCall` if it can't be made."""
        fn = self.functions.get(call.name)
        if fn is None:
            known = ", ".join(sorted(self.functions)[:_MOST_SHOWN]) or "none"
            raise BadCall(f"there is no tool {call.name!r:.80}; there are: {known}")
        spec = _spec_of(fn)
        data = arguments_of(call)
        try:
            args, kwargs = spec.signature.load(msgspec.json.encode(data))
            inspect.signature(spec.fn).bind(*args, **kwargs, **_injected(spec))
        except (Undecodable, TypeError, RecursionError) as error:
            raise BadCall(f"the arguments of {call.name} do not fit: {error}") from None
        return lambda: fn(*args, **kwargs)


def _injected(spec: Spec) -> dict[str, IdempotencyKey]:
    return dict.fromkeys(spec.signature.injected, IdempotencyKey())


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """The arguments that a model wrote, or `BadCall`."""
    try:
        data = decode(call.arguments or "{}")
    except (Illegible, UnicodeError) as error:
        raise BadCall(f"the arguments of {call.name} are not valid JSON: {error}") from None
    if not isinstance(data, dict):
        raise BadCall(f"the arguments of {call.name} must be a JSON object, by parameter name")
    return data


def as_text(value: Any) -> str:
    """A result as a model reads it.

    >>> as_text({"shipped": True}), as_text("on its way"), as_text(None)
    ('{"shipped":true}', 'on its way', 'done')
    """
    if isinstance(value, str):
        return value
    if value is None:
        return "done"
    return msgspec.json.encode(value, enc_hook=_plain).decode()


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)  # of pydantic
    return dump(mode="json") if callable(dump) else str(value)


def info_of(fn: Any) -> ToolInfo:
    """What a model is told of a tool: made of its signature and its docstring.

    >>> from holdfast import tool
    >>> @tool
    ... def find_order_by_number(number: int, country: str = "NO") -> str:
    ...     "Look an order up."
    ...     return "shipped"
    >>> info = info_of(find_order_by_number)
    >>> info.description, info.parameters["required"], info.parameters["properties"]["number"]
    ('Look an order up.', ['number'], {'type': 'integer'})
    """
    spec = _spec_of(fn)
    hints = typing.get_type_hints(spec.fn)
    taken = [
        parameter
        for parameter in inspect.signature(spec.fn).parameters.values()
        if parameter.name not in spec.signature.injected
    ]
    for parameter in taken:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise BadInput(f"{spec.name}: a model can't fill *{parameter.name}: name what it takes")
    kinds = [hints.get(parameter.name, Any) for parameter in taken]
    schemas, definitions = _schemas(kinds)
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {p.name: schema for p, schema in zip(taken, schemas, strict=True)},
        "required": [p.name for p in taken if p.default is p.empty],
        "additionalProperties": False,
    }
    if definitions:
        parameters["$defs"] = definitions
    return ToolInfo(spec.name, inspect.getdoc(spec.fn) or "", parameters)


def _schemas(kinds: list[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    try:
        found, definitions = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
        return list(found), definitions
    except TypeError:
        return _apart(kinds)


def _apart(kinds: list[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The schemas of types that msgspec does not know all of; what they refer to is looked for at
    the root, so it is taken there, under a name that no other parameter has."""
    found: list[dict[str, Any]] = []
    definitions: dict[str, Any] = {}
    for number, kind in enumerate(kinds, 1):
        schema = _schema_of(kind)
        inner = schema.pop("$defs", {})
        names = {name: f"{name}_{number}" if name in definitions else name for name in inner}
        found.append(_renamed(schema, names))
        definitions |= {names[name]: _renamed(each, names) for name, each in inner.items()}
    return found, definitions


def _renamed(schema: Any, names: Mapping[str, str]) -> Any:
    if isinstance(schema, list):
        return [_renamed(each, names) for each in schema]
    if not isinstance(schema, dict):
        return schema
    done = {key: _renamed(value, names) for key, value in schema.items()}
    target = done.get("$ref")
    if isinstance(target, str) and (name := target.removeprefix("#/$defs/")) in names:
        done["$ref"] = f"#/$defs/{names[name]}"
    return done


def _schema_of(kind: Any) -> dict[str, Any]:
    """The schema of one type, where msgspec does not know all of them."""
    own = getattr(kind, "model_json_schema", None)  # of pydantic
    try:
        schema: Mapping[str, Any] = own() if callable(own) else msgspec.json.schema(kind)
    except TypeError:
        return {}
    return dict(schema)


def _spec_of(fn: Any) -> Spec:
    spec = getattr(fn, "holdfast_spec", None)
    if not isinstance(spec, Spec) or spec.kind == "task":
        name = getattr(fn, "__name__", None) or repr(fn)
        raise BadInput(f"{name:.60} can't be a tool of an agent: decorate it with @tool or @step")
    return spec
