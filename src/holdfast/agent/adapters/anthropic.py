"""Messages of Anthropic's client."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from holdfast.agent.adapters.base import Adapter, Client_co, Flow, OnText, failed_inside
from holdfast.agent.formats import a_list, as_object
from holdfast.agent.formats import anthropic as wire
from holdfast.agent.model import Reply, Request, Stop, ToolInfo
from holdfast.core.limits import Limit, Limited
from holdfast.core.usage import Prices, Usage
from holdfast.log.messages import Message, Refusal

_STOPS: dict[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
_GROWING = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


class AnthropicMessages(Adapter[Client_co]):
    """A model behind Anthropic's messages.

    >>> from anthropic import Anthropic
    >>> AnthropicMessages(Anthropic(api_key="a key"), "claude-sonnet-4-5", max_tokens=1000)
    AnthropicMessages('claude-sonnet-4-5')
    """

    def __init__(
        self,
        client: Client_co,
        model: str,
        *,
        max_tokens: int = 8192,
        prices: Prices | None = None,
        stream: bool = False,
        on_text: OnText | None = None,
        structured: bool = True,
        limit: Limit | Limited | None = None,
        **options: Any,
    ) -> None:
        options["max_tokens"] = max_tokens
        super().__init__(
            client,
            model,
            prices=prices,
            stream=stream,
            on_text=on_text,
            structured=structured,
            limit=limit,
            **options,
        )

    def flow(self, request: Request) -> Flow[Reply]:
        """How the model is asked."""
        system, messages = wire.to_wire(request.messages, request.load)
        asked: dict[str, Any] = {"model": self.model, "messages": messages}
        if system:
            asked["system"] = system
        if tools := request.tools or tools_called(request.messages):
            asked["tools"] = wire.tools_to_wire(tools)
        if request.output is not None:
            asked |= wire.output_to_wire(request.output)
        asked |= self.options
        return self.exchange(self.client.messages, asked, MessagePieces(), request)

    def read(self, data: dict[str, Any]) -> Reply:
        """The reply in a message."""
        if data.get("type") == "error":
            raise failed_inside(data, str(self))
        return reply_of(data)


def tools_called(messages: Iterable[Message]) -> tuple[ToolInfo, ...]:
    """The tools that a conversation has calls of: without any tools such a one is refused, also
    where nothing is to be called any more."""
    names = dict.fromkeys(call.name for message in messages for call in message.calls)
    about = "Was there earlier. It can't be called now."
    return tuple(ToolInfo(name, about, {"type": "object"}) for name in names)


def reply_of(data: dict[str, Any]) -> Reply:
    """A message as a reply."""
    blocks = [_block(block) for block in a_list(data["content"], "content")]
    # Some say nothing before they call, and would be refused when they are sent again.
    blocks = [b for b in blocks if b.get("type") != "text" or str(b.get("text", "")).strip()]
    # It goes on with others, so nothing has to say that it came first.
    (_, message) = wire.from_wire(
        [{"role": "user", "content": ""}, {"role": "assistant", "content": blocks or ""}]
    )
    message = replace(message, extra={})
    stop = _STOPS.get(str(data.get("stop_reason")), "other")
    why = (data.get("stop_details") or {}).get("explanation")
    if stop == "refusal" and not message.parts and why:
        message = replace(message, content=(Refusal(str(why)),))
    return Reply(
        message,
        usage_of(data.get("usage")),
        stop,
        str(data.get("model") or ""),
        str(data.get("id") or ""),
    )


def _block(block: dict[str, Any]) -> dict[str, Any]:
    given = block.get("input", {})
    if block.get("type") == "tool_use" and not isinstance(given, dict):
        block["input"] = as_object(given if isinstance(given, str) else json.dumps(given))
    return {key: value for key, value in block.items() if value is not None}


def usage_of(data: Any) -> Usage:
    """The usage of a message. Tokens written to the cache, or read from it, are input as well."""
    data = data or {}
    cached = int(data.get("cache_read_input_tokens") or 0)
    written = int(data.get("cache_creation_input_tokens") or 0)
    fresh = int(data.get("input_tokens") or 0)
    details = data.get("output_tokens_details") or {}
    thought = int(details.get("thinking_tokens") or 0)
    made = int(data.get("output_tokens") or 0)
    return Usage(fresh + written + cached, made, cached, reasoning_tokens=thought)


class MessagePieces:
    """A message that comes in pieces."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self.is_whole: bool = False
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, str] = {}

    def take(self, event: dict[str, Any]) -> str | None:
        """Add one; returns the text in it."""
        match event.get("type"):
            case "message_start":
                self.data = dict(event["message"])
            case "content_block_start":
                self._blocks[event["index"]] = dict(event["content_block"])
            case "content_block_delta":
                return self._grow(event["index"], event["delta"])
            case "message_delta":
                self.data |= {k: v for k, v in event["delta"].items() if v is not None}
                usage = {k: v for k, v in (event.get("usage") or {}).items() if v is not None}
                self.data["usage"] = (self.data.get("usage") or {}) | usage
            case "message_stop":
                self._finish()
        return None

    def _grow(self, index: int, delta: dict[str, Any]) -> str | None:
        block, kind = self._blocks[index], delta.get("type")
        if kind == "input_json_delta":
            self._inputs[index] = self._inputs.get(index, "") + delta["partial_json"]
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
        elif kind in _GROWING:
            field = _GROWING[kind]
            block[field] = (block.get(field) or "") + delta[field]
        return str(delta["text"]) if kind == "text_delta" else None

    def _finish(self) -> None:
        for index, text in self._inputs.items():
            if text:  # a call without arguments comes without a piece
                self._blocks[index]["input"] = as_object(text)
        self.data["content"] = [self._blocks[index] for index in sorted(self._blocks)]
        self.is_whole = True
