"""What providers refuse, beyond calls and results that do not pair.

Each rule is one that an agent runs into by what a model says: a provider that takes the request now
refuses the next one, which has the reply in it. So a scripted model refuses it as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def why_refused(format: str, data: Json) -> str:
    """What a provider would say against a request; nothing if it would take it."""
    rules = _of_anthropic if format == "anthropic" else _of_openai
    return next(rules(data), "")


def _of_openai(data: Json) -> Iterator[str]:
    functions = [tool.get("function", tool) for tool in data.get("tools") or ()]
    for message in _objects(data.get("messages")):
        functions += [call.get("function", {}) for call in message.get("tool_calls") or ()]
    items = _objects(data.get("input"))
    functions += [item for item in items if item.get("type") == "function_call"]
    yield from _names(function["name"] for function in functions if "name" in function)


def _of_anthropic(data: Json) -> Iterator[str]:
    blocks: list[Json] = []
    for message in data["messages"]:
        content = message["content"]
        blocks += [{"type": "text", "text": content}] if isinstance(content, str) else content
    if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
        yield "text content blocks must contain non-whitespace text"
    calls = [block for block in blocks if block["type"] == "tool_use"]
    if calls and not data.get("tools"):
        yield "requests which include tool_use blocks must define tools"
    ids = [call["id"] for call in calls]
    if len(set(ids)) < len(ids):
        yield "tool_use ids must be unique"
    yield from _names(named["name"] for named in [*calls, *(data.get("tools") or ())])


def _names(names: Iterator[str]) -> Iterator[str]:
    for name in names:
        if not _NAME.fullmatch(name):
            yield f"the name of a tool does not match '^[a-zA-Z0-9_-]{{1,64}}$': {name!r:.80}"


def _objects(data: Any) -> list[Json]:
    return [each for each in data if isinstance(each, dict)] if isinstance(data, list) else []
