"""Responses of OpenAI's client."""

from __future__ import annotations

from typing import Any

from holdfast.agent.adapters.base import Adapter, Client_co, Flow, ModelBusy, failed_inside
from holdfast.agent.formats import openai_responses as wire
from holdfast.agent.formats.common import a_list
from holdfast.agent.model import Reply, Request, Stop
from holdfast.core.usage import Usage
from holdfast.errors import BadInput
from holdfast.log.messages import Message, Refusal

_ENDS = ("response.completed", "response.incomplete", "response.failed")
_CUT_OFF: dict[str, Stop] = {"max_output_tokens": "length", "content_filter": "refusal"}


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
        asked = {"model": self.model, "input": wire.to_wire(request.messages, request.load)}
        if request.tools:
            asked["tools"] = wire.tools_to_wire(request.tools)
        if request.output is not None:
            asked |= wire.output_to_wire(request.output)
        asked |= self.options
        if not self.stream:
            return self.reply((yield from self.whole(self.client.responses, asked)))
        ends: list[dict[str, Any]] = []

        def take(event: dict[str, Any]) -> str | None:
            if event.get("type") == "error":
                raise failed_inside(event, str(self))
            if event.get("type") in _ENDS:
                ends.append(event["response"])
            return event.get("delta") if event.get("type") == "response.output_text.delta" else None

        stream = yield from self.ask(self.client.responses.create, {"stream": True} | asked)
        yield from self.each(stream, take, request)
        if not ends:
            raise self.broken_off()
        return self.reply(ends[-1])

    def reply(self, data: dict[str, Any]) -> Reply:
        """The reply in a response."""
        if data.get("error") or data.get("status") in ("failed", "cancelled"):
            raise failed_inside(data.get("error") or data.get("status"), str(self))
        try:
            return reply_of(data)
        except (BadInput, KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelBusy(f"{self}: an answer that is no reply: {error}") from error


def reply_of(data: dict[str, Any]) -> Reply:
    """A response as a reply."""
    message = wire.message_of([_item(item) for item in a_list(data["output"], "output")])
    return Reply(
        message,
        usage_of(data.get("usage")),
        _stop(data, message),
        str(data.get("model") or ""),
        str(data.get("id") or ""),
    )


def _item(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if value is not None}


def _stop(data: dict[str, Any], message: Message) -> Stop:
    if data.get("status") == "incomplete":
        return _CUT_OFF.get((data.get("incomplete_details") or {}).get("reason", ""), "other")
    if message.calls:
        return "tool_calls"
    is_refusal = any(isinstance(part, Refusal) for part in message.parts)
    return "refusal" if is_refusal else "end"


def usage_of(data: Any) -> Usage:
    """The usage of a response."""
    data = data or {}
    details = data.get("input_tokens_details") or {}
    made = data.get("output_tokens_details") or {}
    return Usage(
        int(data.get("input_tokens") or 0),
        int(data.get("output_tokens") or 0),
        int(details.get("cached_tokens") or 0),
        reasoning_tokens=int(made.get("reasoning_tokens") or 0),
    )
