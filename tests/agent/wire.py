"""Wire data of any shape that the client libraries' own types allow, for property tests."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Sequence
from copy import deepcopy
from functools import cache
from typing import Annotated, Any, Literal, Union

import typing_extensions
from anthropic.types import (
    MessageParam,
    TextBlockParam,
    ThinkingBlockParam,
    ToolResultBlockParam,
    ToolUseBlockParam,
)
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolMessageParam
from openai.types.responses import ResponseInputItemParam
from pydantic import BaseModel, TypeAdapter

from holdfast.log.messages import (
    Foreign,
    Media,
    Message,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

TEXTS = st.one_of(
    st.sampled_from(["", "Hello", "Grüße 🎈", "a b\n", "data:image/png;base64,iVBORw==", "e30="]),
    st.sampled_from(["{}", '{"a": 1}', "{oops", "[1]"]),
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


REQUIRED = ("typing.Required", "typing_extensions.Required")


@cache
def of_type(kind: Any) -> st.SearchStrategy[Any]:
    """JSON data of a type of a client library, now and then with a field that it doesn't know."""
    if kind in _SCALARS:
        return _SCALARS[kind]
    origin: Any = typing.get_origin(kind)
    args = typing.get_args(kind)
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
    hints: dict[str, Any] = typing_extensions.get_type_hints(kind, include_extras=True)
    needed = {name for name, hint in hints.items() if str(hint).startswith(REQUIRED)}
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
    spoken = of_type(ThinkingBlockParam | TextBlockParam | ToolUseBlockParam)
    asking = st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": st.lists(spoken, min_size=1, max_size=4)}
    )
    for message in draw(st.lists(of_type(MessageParam) | asking, max_size=4)):
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


CHAT: TypeAdapter[Any] = TypeAdapter(list[ChatCompletionMessageParam])
ITEMS: TypeAdapter[Any] = TypeAdapter(list[ResponseInputItemParam])
MESSAGES: TypeAdapter[Any] = TypeAdapter(list[MessageParam])


def must_fit(adapter: TypeAdapter[Any], data: Any) -> None:
    """Raise where the data is not of the type."""
    _look_through(adapter.validate_python(data))


def _look_through(value: Any) -> None:
    # What is declared as an iterable is looked at only when it is asked for.
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return
    for inner in value.values() if isinstance(value, dict) else value:
        _look_through(inner)


IMAGE = Media(kind="image", media_type="image/png", data=b"\x89PNG")
MEDIA = st.sampled_from(
    [
        IMAGE,
        Media(kind="image", url="https://example.org/cat.png"),
        Media(kind="file", media_type="application/pdf", data=b"%PDF", name="a.pdf"),
        Media(kind="file", media_type="text/plain", data=b"some text"),
        Media(kind="file", media_type="application/zip", data=b"PK", name="a.zip"),
        Media(kind="audio", media_type="audio/wav", data=b"RIFF"),
    ]
)
WORDS = st.sampled_from(["", "Hello", "Grüße 🎈", "one\ntwo"])
TEXT = WORDS.map(Text)
RESULT = st.lists(st.one_of(TEXT, MEDIA, st.just(Foreign("other", {"type": "new"}))), max_size=2)
SAID = st.one_of(
    TEXT,
    WORDS.map(lambda text: Thinking(text, {"other": {"signature": "s"}})),
    WORDS.map(Refusal),
    st.just(Foreign("other", {"type": "new"})),
)


@st.composite
def conversation(draw: st.DrawFn) -> list[Message]:
    """Any messages of ours, in which every call has its result."""
    found: list[Message] = []
    for number in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(["system", "user", "assistant", "asking", "asking"]))
        if kind != "asking":
            parts = {"assistant": SAID, "system": TEXT}.get(kind, st.one_of(TEXT, MEDIA))
            content = draw(WORDS | st.lists(parts, max_size=3).map(tuple))
            found.append(Message(kind, content))  # type: ignore[arg-type]
            continue
        calls = [
            ToolCall(f"call_{number}_{n}{draw(ODD_IDS)}", "look", draw(TEXTS))
            for n in range(draw(st.integers(1, 3)))
        ]
        order = draw(st.permutations([*calls, *draw(st.lists(SAID, max_size=3))]))
        cut = draw(st.integers(0, len(order)))
        whole = [order[:cut], order[cut:]] if draw(st.booleans()) else [order]
        if isinstance(whole[0][-1:], list) and not any(isinstance(p, ToolCall) for p in whole[0]):
            whole = [order]
        found += [Message("assistant", tuple(parts)) for parts in whole]
        results = [
            ToolResult(call.id, draw(WORDS | RESULT.map(tuple)), draw(st.booleans()))
            for call in draw(st.permutations(calls))
        ]
        if draw(st.booleans()):
            found += [Message("tool", (result,)) for result in results]
        else:
            more = draw(st.lists(st.one_of(TEXT, MEDIA), max_size=2))
            found.append(Message("user", tuple(draw(st.permutations([*results, *more])))))
    return found
