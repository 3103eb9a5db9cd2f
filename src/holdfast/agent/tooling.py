"""Tools as a model sees and calls them: schemas out, arguments in, results as text.

Every text of a model is data. Arguments that are no JSON, do not fit, or name a tool that is not
there are told to the model, and nothing is called. Typed answers are at the end.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import UnionType
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.agent.model import ToolInfo, media_text
from holdfast.api.tasks import start
from holdfast.codec import shape_of
from holdfast.codec.classes import schema_of, taken_apart
from holdfast.codec.scalars import name_of
from holdfast.codec.signature import hints_of
from holdfast.core.decoding import Illegible, decode
from holdfast.core.scope import inside, scope_var
from holdfast.core.spec import IdempotencyKey, Spec, is_async
from holdfast.errors import BadInput, HoldfastError, Undecodable
from holdfast.log.messages import Media, Text, ToolCall

_MOST_SHOWN = 10


class BadCall(Exception):
    """A call that a model asked for, and that can't be made. The message is for the model."""


class Tools:
    """The tools of an agent, by name."""

    def __init__(self, tools: Iterable[Any]) -> None:
        self.functions: dict[str, Callable[..., Any]] = {}
        self.infos: list[ToolInfo] = []
        if not isinstance(tools, Iterable):
            raise BadInput(f"tools=… is a list of tools, not {tools!r:.60}: write [{_name(tools)}]")
        for fn in tools:
            info = info_of(fn)
            if info.name in self.functions:
                raise BadInput(f"two tools are named {info.name!r}: a model could not tell them")
            self.functions[info.name] = fn
            self.infos.append(info)

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        return iter(self.functions.values())

    @property
    def is_async(self) -> bool:
        """Whether one of them has to be awaited."""
        return any(is_async(fn) for fn in self.functions.values() if not isinstance(fn, AgentTool))

    def must_differ_from(self, names: Iterable[str]) -> None:
        """Refuse a tool that is named like one that the agent has of itself."""
        if taken := sorted(set(names) & self.functions.keys()):
            raise BadInput(
                f"a tool is named {taken[0]!r}, as one that the agent has of itself: rename it, as "
                f"in @tool(name=…), or leave that one out (ask_user=False, plan=False)"
            )

    def prepared(self, call: ToolCall) -> Callable[[], Any]:
        """A function that makes the call, or `BadCall` if it can't be made."""
        fn = self.functions.get(call.name)
        if fn is None:
            known = ", ".join(sorted(self.functions)[:_MOST_SHOWN]) or "none"
            raise BadCall(f"there is no tool {call.name!r:.80}; there are: {known}")
        data = arguments_of(call)
        if isinstance(fn, AgentTool):
            return partial(fn, fn.request_in(data))
        if hasattr(fn, "holdfast_info"):  # the author of the schema takes what a model makes of it
            return partial(_called, fn, (), {"arguments": data})
        spec = _spec_of(fn)
        try:
            args, kwargs = spec.signature.accept(msgspec.json.encode(data))
            inspect.signature(fn).bind(*args, **kwargs, **_injected(spec))
        except (Undecodable, TypeError, RecursionError) as error:
            raise BadCall(f"the arguments of {call.name} do not fit: {error}") from None
        return partial(_called, fn, args, kwargs)

    def may_be_parallel(self, name: str) -> bool:
        """Whether a tool may be called beside others."""
        fn = self.functions.get(name)
        return fn is None or isinstance(fn, AgentTool) or _spec_of(fn).parallel


def _called(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Make the call; that of a sync tool off the loop, which other calls and tasks run on."""
    scope = scope_var.get()
    if _spec_of(fn).streams:
        return _whole(fn(*args, **kwargs))
    if scope is None or not scope.is_async or is_async(fn):
        return fn(*args, **kwargs)
    if not scope.run.driver.has_threads:
        from holdfast.engines import async_driver

        spec = _spec_of(fn)
        if spec.is_method:
            return fn(*args, **kwargs)
        # Its body runs elsewhere anyhow, and awaited it does not hold the others up.
        return async_driver.call(scope, spec, tuple(args), dict(kwargs))
    from holdfast.engines.loops import in_own_thread

    return in_own_thread(partial(fn, *args, **kwargs))


def _whole(parts: Any) -> Any:
    """The parts of a tool that streams, together: as a text, if all of them are."""
    if hasattr(parts, "__aiter__"):
        return _awhole(parts)
    return _joined(list(parts))


async def _awhole(parts: AsyncIterable[Any]) -> Any:
    return _joined([part async for part in parts])


def _joined(parts: list[Any]) -> Any:
    return "".join(parts) if all(isinstance(part, str) for part in parts) else parts


class AgentTool:
    """Another agent as a tool: a call starts it as a child task, in a conversation of its own.

    Made by `agent.as_tool(…)`. Its usage counts as that of the agent that called it.
    """

    def __init__(self, task: Callable[..., Any], info: ToolInfo) -> None:
        self.task = task
        self.holdfast_info = info

    def request_in(self, data: dict[str, Any]) -> str:
        """The request in the arguments that a model wrote, or `BadCall`."""
        request = data.get("request")
        if data.keys() != {"request"} or not isinstance(request, str) or not request.strip():
            name = self.holdfast_info.name
            raise BadCall(f"the arguments of {name} do not fit: give it a request, as text")
        return request

    def __call__(self, request: str) -> Any:
        """Start it, and wait for its result; in an async task, to be awaited."""
        child = start(self.task, request, apart=True)
        return child if inside("an agent as a tool").is_async else child.result()


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
    if callable(said := getattr(value, "for_model", None)):
        return str(said())
    if parts := parts_of(value):
        return "\n".join(p.text if isinstance(p, Text) else media_text(p) for p in parts)
    return msgspec.json.encode(value, enc_hook=_plain).decode()


def parts_of(value: Any) -> tuple[Text | Media, ...]:
    """A result that holds images or files, as a model is sent it; nothing for any other.

    >>> parts_of(["The first page:", Media(kind="image", data=b"png")])[0]
    Text(text='The first page:', extra={})
    """
    if callable(given := getattr(value, "parts_for_model", None)):
        return tuple(given())
    parts = value if isinstance(value, list | tuple) else [value]
    is_one = all(isinstance(part, str | Text | Media) for part in parts)
    if not is_one or not any(isinstance(part, Media) for part in parts):
        return ()
    return tuple(Text(part) if isinstance(part, str) else part for part in parts)


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)  # of pydantic
    return dump(mode="json") if callable(dump) else str(value)


def tool_infos(tools: Iterable[Any]) -> list[ToolInfo]:
    """Tools as a model is told them: name, description and JSON schema of each.

    >>> from holdfast import tool
    >>> @tool
    ... def find_for_infos(number: int) -> str:
    ...     "Look it up."
    ...     return "shipped"
    >>> [(each.name, each.parameters["required"]) for each in tool_infos([find_for_infos])]
    [('find_for_infos', ['number'])]
    """
    return list((tools if isinstance(tools, Tools) else Tools(tools)).infos)


def info_of(fn: Any) -> ToolInfo:
    """A tool as the model sees it: made of its signature and its docstring.

    >>> from holdfast import tool
    >>> @tool
    ... def find_order_by_number(number: int, country: str = "NO") -> str:
    ...     "Look an order up."
    ...     return "shipped"
    >>> info = info_of(find_order_by_number)
    >>> info.description, info.parameters["required"], info.parameters["properties"]["number"]
    ('Look an order up.', ['number'], {'type': 'integer'})
    """
    given = getattr(fn, "holdfast_info", None)
    if isinstance(given, ToolInfo):
        return given
    spec = _spec_of(fn)
    hints = hints_of(spec.fn)
    taken = [
        parameter
        for parameter in inspect.signature(fn).parameters.values()
        if parameter.name not in spec.signature.injected
    ]
    for parameter in taken:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise BadInput(f"{spec.name}: a model can't fill *{parameter.name}: name what it takes")
    text, told = described(inspect.getdoc(spec.fn) or "")
    definitions: dict[str, Any] = {}
    properties = {
        parameter.name: _property(
            spec, parameter, hints.get(parameter.name, Any), told, definitions
        )
        for parameter in taken
    }
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": [p.name for p in taken if p.default is p.empty],
        "additionalProperties": False,
    }
    if definitions:
        parameters["$defs"] = definitions
    return ToolInfo(spec.name, text, parameters)


def _property(
    spec: Spec,
    parameter: inspect.Parameter,
    hint: Any,
    told: Mapping[str, str],
    definitions: dict[str, Any],
) -> dict[str, Any]:
    """The schema of one parameter: its type, what is said of it, and its default."""
    schema = taken_apart(schema_of(hint), definitions)
    said = _description(hint) or told.get(parameter.name, "")
    if said and "description" not in schema:
        schema = {**schema, "description": said}
    shape = spec.signature.shape(parameter.name)
    if parameter.default is not parameter.empty and shape is not None:
        with suppress(HoldfastError):
            data = shape.dump(parameter.default)
            if b'"$' not in data:  # what only a log understands is of no use to a model
                schema = {**schema, "default": decode(data)}
    return schema


def _description(hint: Any) -> str:
    """The description in an annotation: `Annotated[str, "in which city"]`."""
    if typing.get_origin(hint) is not typing.Annotated:
        return ""
    for each in hint.__metadata__:
        said = each if isinstance(each, str) else getattr(each, "description", None)
        if isinstance(said, str) and said:
            return said
    return ""


_SECTION = re.compile(r"^(Args|Arguments|Parameters|Params):\s*$")
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_FIELD = re.compile(r"^:param\s+(?:[^:]*\s)?(\w+):\s*(.*)$")


def described(doc: str) -> tuple[str, dict[str, str]]:
    """A docstring without what it says of the parameters; and that, by their names.

    >>> described("Find it.\\n\\nArgs:\\n    city: Where to look,\\n        in full.\\n")
    ('Find it.', {'city': 'Where to look, in full.'})
    """
    kept: list[str] = []
    told: dict[str, str] = {}
    indent, depth, name = -1, 0, ""
    for line in doc.splitlines():
        inside, text = len(line) - len(line.lstrip()), line.strip()
        if _SECTION.match(text):
            indent, name = inside, ""
        elif found := _FIELD.match(text):
            indent, name = inside, found[1]
            told[name] = found[2]
        elif indent >= 0 and (not text or inside > indent):
            found = _ENTRY.match(text)
            if found and (not name or inside <= depth):
                name, depth = found[1], inside
                told[name] = found[2]
            elif name and text:
                told[name] = f"{told[name]} {text}".strip()
        else:
            indent, name = -1, ""
            kept.append(line)
    return "\n".join(kept).strip(), told


def _name(fn: Any) -> str:
    return getattr(fn, "__name__", None) or repr(fn)


def _spec_of(fn: Any) -> Spec:
    spec = getattr(fn, "holdfast_spec", None)
    if not isinstance(spec, Spec) or spec.kind == "task":
        raise BadInput(
            f"{_name(fn):.60} can't be a tool of an agent: decorate it with @tool or @step"
        )
    return spec


# Typed answers: how a model is told the type, and how its answer becomes a value of it.
#
# A model whose provider has structured output is given the schema with the request. Any other gets
# a tool, `final_answer`, whose arguments are the answer. Either way the answer is validated here: a
# schema promises less than a type, and some servers don't keep the promise.

T = TypeVar("T")

ANSWER_TOOL = "final_answer"
"""The tool by which a model answers whose provider has no structured output."""

_WRAPPED = "answer"
"""Providers take only objects, so any other value is the one field of one."""

_PLEASE = "Give the final answer to the user, when the goal is reached."
_MOST_SHOWN_OF_ANSWER = 1000


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
            raise BadCall(
                f"the answer does not fit: {str(error)[:_MOST_SHOWN_OF_ANSWER]}"
            ) from None
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
