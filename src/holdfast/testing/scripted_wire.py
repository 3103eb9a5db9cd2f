"""Replies of a scripted model as the providers' servers would send them.

Written apart from `holdfast.agent.formats`, so that one checks the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from holdfast.agent.formats import anthropic, as_object, openai_chat, openai_responses
from holdfast.agent.model import Reply, ToolInfo
from holdfast.log.messages import Message, Refusal, Text, Thinking, ToolCall

Json = dict[str, Any]
Event = tuple[str, Json]
"""The name of an event of a stream, if it has one, and its data."""

PATHS = {
    "/chat/completions": "openai_chat",
    "/responses": "openai_responses",
    "/messages": "anthropic",
}
_PIECE = 7
_CREATED = 1_700_000_000


def asked(format: str, data: Json) -> tuple[list[Message], tuple[ToolInfo, ...]]:
    """The content of a request: the messages and the tools in it."""
    tools = data.get("tools") or []
    if format == "openai_chat":
        return openai_chat.from_wire(data.get("messages")), tuple(
            ToolInfo(t["name"], t.get("description", ""), t.get("parameters") or {})
            for tool in tools
            if (t := tool.get("function"))
        )
    if format == "openai_responses":
        given = data.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        return openai_responses.from_wire(items), tuple(
            ToolInfo(tool["name"], tool.get("description", ""), tool.get("parameters") or {})
            for tool in tools
            if tool.get("type") == "function"
        )
    return anthropic.from_wire(data.get("messages"), data.get("system")), tuple(
        ToolInfo(tool["name"], tool.get("description", ""), tool["input_schema"])
        for tool in tools
        if "input_schema" in tool
    )


def error(format: str, status: int, message: str) -> Json:
    """The body with which a server refuses."""
    names = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}
    names |= {403: "permission_error", 429: "rate_limit_error", 529: "overloaded_error"}
    kind = names.get(status, "api_error" if status >= 500 else "invalid_request_error")
    inner = {"type": kind, "message": message}
    if format == "anthropic":
        return {"type": "error", "error": inner}
    return {"error": inner | {"code": None, "param": None}}


def whole(format: str, reply: Reply) -> Json:
    """A reply in one piece."""
    return {"openai_chat": _completion, "openai_responses": _response, "anthropic": _message}[
        format
    ](reply)


def events(format: str, reply: Reply, data: Json) -> Iterator[Event]:
    """A reply in pieces."""
    if format == "openai_chat":
        return _completion_events(
            reply, bool((data.get("stream_options") or {}).get("include_usage"))
        )
    if format == "openai_responses":
        return _response_events(reply)
    return _message_events(reply)


def _cut(text: str) -> Iterator[str]:
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE]


def _text(reply: Reply) -> str:
    return "".join(part.text for part in reply.message.parts if isinstance(part, Text))


def _refusal(reply: Reply) -> str | None:
    found = [part.text for part in reply.message.parts if isinstance(part, Refusal)]
    return "".join(found) if found else None


def _completion(reply: Reply) -> Json:
    message: Json = {
        "role": "assistant",
        "content": _text(reply) or (None if reply.message.calls or _refusal(reply) else ""),
        "refusal": _refusal(reply),
        "annotations": [],
    }
    if reply.message.calls:
        message["tool_calls"] = [_chat_call(call) for call in reply.message.calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(reply)}
    return _completion_head(reply, "chat.completion") | {
        "choices": [choice],
        "usage": _chat_usage(reply),
    }


def _completion_head(reply: Reply, kind: str) -> Json:
    return {"id": reply.id, "object": kind, "created": _CREATED, "model": reply.model}


def _chat_call(call: ToolCall) -> Json:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _finish(reply: Reply) -> str:
    # A refusal ends like any other reply; only the provider's own filter has a reason of its own.
    if reply.stop == "refusal":
        return "stop" if _refusal(reply) is not None else "content_filter"
    names = {"tool_calls": "tool_calls", "length": "length"}
    return names.get(reply.stop, "stop")


def _chat_usage(reply: Reply) -> Json:
    return {
        "prompt_tokens": reply.usage.input_tokens,
        "completion_tokens": reply.usage.output_tokens,
        "total_tokens": reply.usage.tokens,
        "prompt_tokens_details": {"cached_tokens": reply.usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": reply.usage.reasoning_tokens},
    }


def _completion_events(reply: Reply, with_usage: bool) -> Iterator[Event]:
    head = _completion_head(reply, "chat.completion.chunk")

    def chunk(delta: Json, finish: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return "", head | {"choices": [choice]}

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for piece in _cut(_text(reply)):
        yield chunk({"content": piece})
    for piece in _cut(_refusal(reply) or ""):
        yield chunk({"refusal": piece})
    for number, call in enumerate(reply.message.calls):
        named = _chat_call(call) | {"function": {"name": call.name, "arguments": ""}}
        yield chunk({"tool_calls": [{"index": number} | named]})
        for piece in _cut(call.arguments):
            function = {"function": {"arguments": piece}}
            yield chunk({"tool_calls": [{"index": number} | function]})
    yield chunk({}, _finish(reply))
    if with_usage:
        yield "", head | {"choices": [], "usage": _chat_usage(reply)}
    yield "[DONE]", {}


def _output(reply: Reply) -> list[Json]:
    items: list[Json] = []
    for part in reply.message.parts:
        name = f"{reply.id}_{len(items)}"
        match part:
            case Thinking():
                summary = [{"type": "summary_text", "text": part.text}]
                items.append({"type": "reasoning", "id": f"rs_{name}", "summary": summary})
            case Text() | Refusal():
                said: Json = {"type": "refusal", "refusal": part.text}
                if isinstance(part, Text):
                    said = {"type": "output_text", "text": part.text, "annotations": []}
                message = {"type": "message", "id": f"msg_{name}", "role": "assistant"}
                status = "incomplete" if reply.stop == "length" else "completed"
                items.append(message | {"status": status, "content": [said]})
            case ToolCall():
                call = {"type": "function_call", "id": f"fc_{name}", "call_id": part.id}
                named = {"name": part.name, "arguments": part.arguments, "status": "completed"}
                items.append(call | named)
    return items


def _response(reply: Reply) -> Json:
    status, details = "completed", None
    if reply.stop in ("length", "refusal") and _refusal(reply) is None:
        reason = "max_output_tokens" if reply.stop == "length" else "content_filter"
        status, details = "incomplete", {"reason": reason}
    return {
        "id": reply.id,
        "object": "response",
        "created_at": _CREATED,
        "status": status,
        "error": None,
        "incomplete_details": details,
        "model": reply.model,
        "output": _output(reply),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": reply.usage.input_tokens,
            "input_tokens_details": {
                "cached_tokens": reply.usage.cached_tokens,
                "cache_write_tokens": 0,
            },
            "output_tokens": reply.usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": reply.usage.reasoning_tokens},
            "total_tokens": reply.usage.tokens,
        },
    }


def _response_events(reply: Reply) -> Iterator[Event]:
    done = _response(reply)
    number = 0

    def event(kind: str, **data: Any) -> Event:
        nonlocal number
        number += 1
        return kind, {"type": kind, "sequence_number": number} | data

    begun = done | {"status": "in_progress", "output": [], "usage": None}
    yield event("response.created", response=begun)
    for index, item in enumerate(done["output"]):
        at = {"output_index": index, "item_id": item["id"]}
        yield event("response.output_item.added", output_index=index, item=item | {"content": []})
        for part in item.get("content", ()) if item["type"] == "message" else ():
            kind = "output_text" if part["type"] == "output_text" else "refusal"
            for piece in _cut(part.get("text", part.get("refusal", ""))):
                yield event(f"response.{kind}.delta", **at, content_index=0, delta=piece)
        for piece in _cut(item.get("arguments", "")):
            yield event("response.function_call_arguments.delta", **at, delta=piece)
        yield event("response.output_item.done", output_index=index, item=item)
    yield event(f"response.{done['status']}", response=done)


def _blocks(reply: Reply) -> list[Json]:
    blocks: list[Json] = []
    for part in reply.message.parts:
        match part:
            case Thinking():
                signed = f"sig_{reply.id}"
                blocks.append({"type": "thinking", "thinking": part.text, "signature": signed})
            case Text() | Refusal():
                blocks.append({"type": "text", "text": part.text})
            case ToolCall():
                call = {"type": "tool_use", "id": part.id, "name": part.name}
                blocks.append(call | {"input": as_object(part.arguments)})
    return blocks


def _message(reply: Reply) -> Json:
    reasons = {"tool_calls": "tool_use", "length": "max_tokens", "refusal": "refusal"}
    fresh = reply.usage.input_tokens - reply.usage.cached_tokens
    return {
        "id": reply.id,
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": _blocks(reply),
        "stop_reason": reasons.get(reply.stop, "end_turn"),
        "stop_sequence": None,
        "usage": {
            "input_tokens": fresh,
            "cache_read_input_tokens": reply.usage.cached_tokens,
            "output_tokens": reply.usage.output_tokens,
            "output_tokens_details": {"thinking_tokens": reply.usage.reasoning_tokens},
        },
    }


def _message_events(reply: Reply) -> Iterator[Event]:
    def event(kind: str, **data: Any) -> Event:
        return kind, {"type": kind} | data

    done = _message(reply)
    usage = done["usage"] | {"output_tokens": 1}
    begun = done | {"content": [], "stop_reason": None, "usage": usage}
    yield event("message_start", message=begun)
    yield event("ping")
    calls = iter(reply.message.calls)
    for index, block in enumerate(done["content"]):
        start, deltas = _pieces(block, calls)
        yield event("content_block_start", index=index, content_block=start)
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    delta = {"stop_reason": done["stop_reason"], "stop_sequence": None}
    tokens = {"output_tokens": reply.usage.output_tokens}
    yield event("message_delta", delta=delta, usage=tokens)
    yield event("message_stop")


def _pieces(block: Json, calls: Iterator[ToolCall]) -> tuple[Json, list[Json]]:
    match block["type"]:
        case "tool_use":
            arguments = next(calls).arguments
            texts = _cut("" if arguments == "{}" else arguments)
            pieces = [{"type": "input_json_delta", "partial_json": text} for text in texts]
            return block | {"input": {}}, pieces
        case "thinking":
            texts = _cut(block["thinking"])
            pieces = [{"type": "thinking_delta", "thinking": text} for text in texts]
            pieces.append({"type": "signature_delta", "signature": block["signature"]})
            return block | {"thinking": "", "signature": ""}, pieces
        case _:
            pieces = [{"type": "text_delta", "text": text} for text in _cut(block["text"])]
            return block | {"text": ""}, pieces


def line(event: Event) -> bytes:
    """An event as it goes over the wire."""
    name, data = event
    if name == "[DONE]":
        return b"data: [DONE]\n\n"
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()
