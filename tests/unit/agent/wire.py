"""Wire data of any shape that the client libraries' own types allow, for property tests."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Sequence
from copy import deepcopy
from functools import cache
from typing import Annotated, Any, Literal, Union

import typing_extensions
from anthropic.types import MessageParam, TextBlockParam, ToolResultBlockParam
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolMessageParam
from openai.types.responses import ResponseInputItemParam
from pydantic import BaseModel, TypeAdapter

TEXTS = st.one_of(
    st.sampled_from(["", "Hello", "Grüße 🎈", "a b\n", "data:image/png;base64,iVBORw==", "e30="]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.just(1.5) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
_SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: st.integers(0, 1000),
    float: st.just(0.5),
    bool: st.booleans(),
    type(None): st.none(),
    object: JSON,
    Any: JSON,
}


@cache
def of_type(kind: Any) -> st.SearchStrategy[Any]:
    """JSON data of a type of a client library, now and then with a field that it doesn't know."""
    if kind in _SCALARS:
        return _SCALARS[kind]
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Annotated, typing.Required, typing_extensions.Required):
        return of_type(args[0])
    if origin in (Union, types.UnionType):
        return st.one_of([of_type(arg) for arg in args if _is_plain(arg)])
    if origin in (Literal, typing_extensions.Literal):
        return st.sampled_from(args)
    if origin is dict:
        return st.dictionaries(TEXTS, of_type(args[1]), max_size=2)
    if origin in (list, Iterable, Sequence) or getattr(origin, "__name__", "") == "SequenceNotStr":
        return st.deferred(lambda: st.lists(of_type(args[0]), max_size=3))
    if typing_extensions.is_typeddict(kind):
        return st.deferred(lambda: _object(kind))
    raise TypeError(f"no strategy for {kind!r}")


def _is_plain(kind: Any) -> bool:
    """Whether values of it are JSON: a union also takes models and open files."""
    is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
    name = getattr(kind, "__name__", "")
    return not is_model and name not in ("PathLike", "IO", "Base64FileInput") and "IO" not in name


@cache
def _object(kind: Any) -> st.SearchStrategy[dict[str, Any]]:
    hints = typing_extensions.get_type_hints(kind, include_extras=True)
    needed = {
        name
        for name, hint in hints.items()
        if typing.get_origin(hint) in (typing.Required, typing_extensions.Required)
    }
    fields = {name: of_type(hint) for name, hint in hints.items()}
    # Of many optional fields, most are left out most of the time.
    optional = {name: fields[name] for name in fields if name not in needed}
    optional["field_of_tomorrow"] = JSON
    return st.fixed_dictionaries({name: fields[name] for name in needed}, optional=optional)


ODD_IDS = st.sampled_from(["", "", "", ":odd/", "x" * 70])


@st.composite
def chat(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A chat, in which every call has its result."""
    found: list[dict[str, Any]] = []
    for message in draw(st.lists(of_type(ChatCompletionMessageParam), max_size=4)):
        message = deepcopy(message)
        if message["role"] == "tool":
            continue
        found.append(message)
        calls = message.get("tool_calls", []) if message["role"] == "assistant" else []
        for number, call in enumerate(calls):
            call["id"] = f"call_{len(found)}_{number}{draw(ODD_IDS)}"
        for call in calls:
            result = deepcopy(draw(of_type(ChatCompletionToolMessageParam)))
            found.append(result | {"tool_call_id": call["id"]})
    return found


ANSWERED = ("function_call", "custom_tool_call", "shell_call", "apply_patch_call", "computer_call")
OUTPUTS = tuple(f"{kind}_output" for kind in ANSWERED)


@st.composite
def items(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Items of responses, in which every call has its result."""
    found: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    for item in draw(st.lists(of_type(ResponseInputItemParam), max_size=7)):
        item = deepcopy(item)
        if item.get("type") in OUTPUTS and item.get("call_id") is not None:
            continue
        is_of_model = item.get("role", "assistant") == "assistant"
        if waiting and (not is_of_model or draw(st.booleans())):
            found += waiting
            waiting = []
        if item.get("type") in ANSWERED:
            item["call_id"] = f"call_{len(found)}{draw(ODD_IDS)}"
            waiting.append(draw(_output_of(item)))
        found.append(item)
    return found + waiting


def _output_of(item: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    kind = f"{item['type']}_output"
    answers = [
        arg
        for arg in typing.get_args(ResponseInputItemParam)
        if kind in str(typing_extensions.get_type_hints(arg).get("type", ""))
        and f"'{kind}'" in str(typing_extensions.get_type_hints(arg)["type"])
    ]
    return of_type(answers[0]).map(lambda answer: deepcopy(answer) | {"call_id": item["call_id"]})


@st.composite
def blocks(draw: st.DrawFn) -> tuple[Any, list[dict[str, Any]]]:
    """`system` and `messages` of Anthropic, in which every call has its result."""
    found: list[dict[str, Any]] = []
    for message in draw(st.lists(of_type(MessageParam), max_size=4)):
        message = deepcopy(message)
        if isinstance(message["content"], list):
            message["content"] = [
                block
                for block in message["content"]
                if block["type"] != "tool_result"
                and (block["type"] != "tool_use" or message["role"] == "assistant")
            ]
        found.append(message)
        content = message["content"]
        calls = [b for b in content if isinstance(b, dict) and b["type"] == "tool_use"]
        results = []
        for number, call in enumerate(calls):
            call["id"] = f"toolu_{len(found)}_{number}{draw(ODD_IDS)}"
            result = deepcopy(draw(of_type(ToolResultBlockParam)))
            results.append(result | {"tool_use_id": call["id"]})
        if results:
            more = draw(st.lists(of_type(TextBlockParam), max_size=2))
            order = draw(st.permutations([*results, *more]) | st.just([*results, *more]))
            cut = draw(st.integers(0, len(order))) if draw(st.booleans()) else len(order)
            pieces = [order[:cut], order[cut:]]
            holding = [p for p in pieces if any(b in results for b in p)]
            if len(holding) < 2:
                holding = [order]
            found += [{"role": "user", "content": deepcopy(piece)} for piece in holding]
    system = draw(st.none() | TEXTS | st.lists(of_type(TextBlockParam), max_size=2))
    return system, found


CHAT = TypeAdapter(list[ChatCompletionMessageParam])
ITEMS = TypeAdapter(list[ResponseInputItemParam])
MESSAGES: TypeAdapter[Any] = TypeAdapter(list[MessageParam])
