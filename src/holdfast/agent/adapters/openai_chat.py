"""Chat completions of OpenAI's client, and of the many servers that speak the same."""

from __future__ import annotations

from typing import Any

from holdfast.agent.adapters.base import Adapter, Client_co, Flow, ModelBusy, failed_inside
from holdfast.agent.formats import openai_chat as wire
from holdfast.agent.model import Reply, Request, Stop
from holdfast.core.usage import Usage
from holdfast.errors import BadInput
from holdfast.log.messages import Message, Refusal

_STOPS: dict[str, Stop] = {
    "stop": "end",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "refusal",
}


class OpenAIChat(Adapter[Client_co]):
    """A model behind OpenAI's chat completions.

    `options` go into every request: `temperature=0`, `max_completion_tokens=…`. With `stream` or
    `on_text` the reply comes in pieces, and is the same in the end.

    >>> from openai import OpenAI
    >>> OpenAIChat(OpenAI(api_key="a key"), "gpt-5", temperature=0)
    OpenAIChat('gpt-5')
    """

    def flow(self, request: Request) -> Flow[Reply]:
        """How the model is asked."""
        asked = {"model": self.model, "messages": wire.to_wire(request.messages, request.load)}
        if request.tools:
            asked["tools"] = wire.tools_to_wire(request.tools)
        if request.output is not None:
            asked |= wire.output_to_wire(request.output)
        asked |= self.options
        if not self.stream:
            return self.reply((yield from self.whole(self.client.chat.completions, asked)))
        pieces = ChatPieces()
        options = {"stream": True, "stream_options": {"include_usage": True}}
        stream = yield from self.ask(self.client.chat.completions.create, options | asked)
        yield from self.each(stream, pieces.take, request)
        if not pieces.is_whole:
            raise self.broken_off()
        return self.reply(pieces.data)

    def reply(self, data: dict[str, Any]) -> Reply:
        """The reply in a completion."""
        try:
            return reply_of(data)
        except (BadInput, KeyError, TypeError, ValueError, AttributeError) as error:
            if data.get("error"):
                raise failed_inside(data["error"], str(self)) from None
            raise ModelBusy(f"{self}: an answer that is no reply: {error}") from error


def reply_of(data: dict[str, Any]) -> Reply:
    """A completion as a reply."""
    (choice, *_) = data["choices"]
    given = choice["message"]
    (message,) = wire.from_wire([_message(given, str(data.get("id", "")))])
    return Reply(
        message,
        usage_of(data.get("usage")),
        _stop(choice.get("finish_reason"), message),
        str(data.get("model") or ""),
        str(data.get("id") or ""),
    )


def _message(given: dict[str, Any], reply_id: str) -> dict[str, Any]:
    """The message without what is not there, and so that it can be sent again."""
    message = {key: value for key, value in given.items() if value not in (None, [])}
    calls = [dict(call) for call in message.get("tool_calls", ())]
    for number, call in enumerate(calls):
        # Some servers give none, and without one there is no telling which result is whose.
        call["id"] = call.get("id") or f"call_{number}_{reply_id}"
    if calls:
        message["tool_calls"] = calls
    nothing = None if calls or "refusal" in message else ""
    return {"role": "assistant", "content": nothing} | message | {"role": "assistant"}


def _stop(reason: Any, message: Message) -> Stop:
    stop = _STOPS.get(str(reason), "other")
    if stop == "end" and message.calls:
        return "tool_calls"
    if stop == "end" and any(isinstance(part, Refusal) for part in message.parts):
        return "refusal"
    return stop


def usage_of(data: Any) -> Usage:
    """The usage of a completion."""
    data = data or {}
    details = data.get("prompt_tokens_details") or {}
    made = data.get("completion_tokens_details") or {}
    return Usage(
        int(data.get("prompt_tokens") or 0),
        int(data.get("completion_tokens") or 0),
        int(details.get("cached_tokens") or 0),
        reasoning_tokens=int(made.get("reasoning_tokens") or 0),
    )


class ChatPieces:
    """A completion that comes in pieces."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._calls: dict[int, dict[str, Any]] = {}
        self._choice: dict[str, Any] = {"message": self._message}
        self.data: dict[str, Any] = {"choices": [self._choice]}
        self.is_whole = False

    def take(self, chunk: dict[str, Any]) -> str | None:
        """Add one; returns the text in it."""
        for key in ("id", "model", "usage"):
            if chunk.get(key):
                self.data[key] = chunk[key]
        text = None
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0) != 0:
                continue
            delta = dict(choice.get("delta") or {})
            for piece in delta.pop("tool_calls", None) or ():
                self._call(piece)
            _merge(self._message, delta)
            text = delta.get("content") or text
            if choice.get("finish_reason"):
                self._choice["finish_reason"] = choice["finish_reason"]
                self.is_whole = True
        return text

    def _call(self, piece: dict[str, Any]) -> None:
        number = piece.get("index", len(self._calls))
        call = self._calls.setdefault(number, {"type": "function", "function": {"arguments": ""}})
        _merge(call["function"], dict(piece.get("function") or {}))
        if piece.get("id"):
            call["id"] = piece["id"]
        self._message["tool_calls"] = [self._calls[number] for number in sorted(self._calls)]


def _merge(known: dict[str, Any], delta: dict[str, Any]) -> None:
    for key, value in delta.items():
        if isinstance(value, str) and isinstance(known.get(key), str) and key != "role":
            known[key] += value
        elif value is not None:
            known[key] = value
