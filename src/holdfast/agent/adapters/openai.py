"""The two ways to ask by OpenAI's client: chat completions, which many other servers speak as well,
and responses.
"""

from __future__ import annotations

from typing import Any

from holdfast.agent.adapters.base import Adapter, Client_co, Flow, failed_inside
from holdfast.agent.formats import a_list
from holdfast.agent.formats import openai_chat as chat
from holdfast.agent.formats import openai_responses as responses
from holdfast.agent.model import Reply, Request, Stop
from holdfast.core.usage import Usage
from holdfast.log.messages import Message, Refusal

_STOPS: dict[str, Stop] = {
    "stop": "end",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "refusal",
}
_ENDS = ("response.completed", "response.incomplete", "response.failed")
_CUT_OFF: dict[str, Stop] = {"max_output_tokens": "length", "content_filter": "refusal"}


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
        asked = {"model": self.model, "messages": chat.to_wire(request.messages, request.load)}
        if request.tools:
            asked["tools"] = chat.tools_to_wire(request.tools)
        if request.output is not None:
            asked |= chat.output_to_wire(request.output)
        asked |= self.options
        usage = {"include_usage": True}
        pieces = ChatPieces()
        return self.exchange(
            self.client.chat.completions, asked, pieces, request, stream_options=usage
        )

    def read(self, data: dict[str, Any]) -> Reply:
        """The reply in a completion."""
        return _read_chat(data)


class OpenAIResponses(Adapter[Client_co]):
    """A model behind OpenAI's responses.

    The whole conversation is sent each time, so nothing depends on what the provider keeps: with
    `store=False, include=["reasoning.encrypted_content"]` it need not keep anything.

    >>> from openai import OpenAI
    >>> OpenAIResponses(OpenAI(api_key="a key"), "gpt-5", store=False)
    OpenAIResponses('gpt-5')
    """

    def flow(self, request: Request) -> Flow[Reply]:
        """How the model is asked."""
        asked = {"model": self.model, "input": responses.to_wire(request.messages, request.load)}
        if request.tools:
            asked["tools"] = responses.tools_to_wire(request.tools)
        if request.output is not None:
            asked |= responses.output_to_wire(request.output)
        asked |= self.options
        pieces = ResponsePieces(str(self))
        return self.exchange(self.client.responses, asked, pieces, request)

    def read(self, data: dict[str, Any]) -> Reply:
        """The reply in a response."""
        if data.get("error") or data.get("status") in ("failed", "cancelled"):
            raise failed_inside(data.get("error") or data.get("status"), str(self))
        return _read_response(data)


def _usage(data: Any, given: str, made: str) -> Usage:
    """The usage in an answer, which calls the tokens by these two names."""
    data = data or {}
    details = data.get(f"{given}_tokens_details") or {}
    made_details = data.get(f"{made}_tokens_details") or {}
    return Usage(
        int(data.get(f"{given}_tokens") or 0),
        int(data.get(f"{made}_tokens") or 0),
        int(details.get("cached_tokens") or 0),
        reasoning_tokens=int(made_details.get("reasoning_tokens") or 0),
    )


# Chat completions


def _read_chat(data: dict[str, Any]) -> Reply:
    """A completion as a reply."""
    (choice, *_) = data["choices"]
    given = choice["message"]
    (message,) = chat.from_wire([_message(given, str(data.get("id", "")))])
    return Reply(
        message,
        _usage(data.get("usage"), "prompt", "completion"),
        _chat_stop(choice.get("finish_reason"), message),
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


def _chat_stop(reason: Any, message: Message) -> Stop:
    stop = _STOPS.get(str(reason), "other")
    if stop == "end" and message.calls:
        return "tool_calls"
    if stop == "end" and any(isinstance(part, Refusal) for part in message.parts):
        return "refusal"
    return stop


class ChatPieces:
    """A completion that comes in pieces."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._calls: dict[int, dict[str, Any]] = {}
        self._choice: dict[str, Any] = {"message": self._message}
        self.data: dict[str, Any] = {"choices": [self._choice]}
        self.is_whole: bool = False

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


# Responses


def _read_response(data: dict[str, Any]) -> Reply:
    """A response as a reply."""
    message = responses.message_of([_item(item) for item in a_list(data["output"], "output")])
    return Reply(
        message,
        _usage(data.get("usage"), "input", "output"),
        _response_stop(data, message),
        str(data.get("model") or ""),
        str(data.get("id") or ""),
    )


def _item(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if value is not None}


def _response_stop(data: dict[str, Any], message: Message) -> Stop:
    if data.get("status") == "incomplete":
        return _CUT_OFF.get((data.get("incomplete_details") or {}).get("reason", ""), "other")
    if message.calls:
        return "tool_calls"
    is_refusal = any(isinstance(part, Refusal) for part in message.parts)
    return "refusal" if is_refusal else "end"


class ResponsePieces:
    """A response that comes in pieces. Its last event has the whole."""

    def __init__(self, model: str) -> None:
        self._model = model
        self.data: dict[str, Any] = {}
        self.is_whole: bool = False

    def take(self, event: dict[str, Any]) -> str | None:
        """Add one; returns the text in it."""
        if event.get("type") == "error":
            raise failed_inside(event, self._model)
        if event.get("type") in _ENDS:
            self.data, self.is_whole = event["response"], True
        return event.get("delta") if event.get("type") == "response.output_text.delta" else None
