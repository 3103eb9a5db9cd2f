"""The items of OpenAI's responses.

Here a conversation is a flat list of items: messages, thoughts, calls and results side by side.
Items of the model in a row are one message of ours, cut where another message begins; a call that
is still open keeps what follows in the same message, since its result has to come next. An item
that is not known stays whole, in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from holdfast.agent.formats import common as files
from holdfast.agent.formats.common import (
    Load,
    Wire,
    an_object,
    closed_schema,
    is_strict_schema,
    own,
    paired,
    sendable,
    wire_id,
)
from holdfast.agent.formats.responses_items import (
    ANSWERS,
    LONGEST_ID,
    NAME,
    from_wire,
    mark_of,
    message_of,
    write_input,
    write_output,
)
from holdfast.agent.model import ToolInfo
from holdfast.log.messages import (
    Foreign,
    Media,
    Message,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

__all__ = ["NAME", "from_wire", "message_of", "to_wire", "tools_to_wire"]


def to_wire(messages: Iterable[Message], load: Load | None = None) -> list[Wire]:
    """Messages as the `input` of a request. `load` gives the bytes of what was stored.

    >>> from holdfast.log.messages import ToolCall, assistant, tool_result
    >>> call = assistant("", [ToolCall("c1", "find", "{}")])
    >>> [item["type"] for item in to_wire([call, tool_result("c1", "found")])]
    ['function_call', 'function_call_output']
    """
    return [item for turn in paired(messages) for item in _turn(turn, load)]


def tools_to_wire(tools: Iterable[ToolInfo]) -> list[Wire]:
    """Tools as the `tools` of a request.

    >>> tools_to_wire([ToolInfo("find", "Find it.", {"type": "object"})])[0]["name"]
    'find'
    """
    return [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            # A schema has to be of a certain kind to be followed strictly, and most are not.
            "strict": False,
        }
        for tool in tools
        if not tool.is_answer
    ]


def output_to_wire(output: ToolInfo) -> Wire:
    """The form of an answer, as a part of a request.

    >>> form = ToolInfo("final_answer", "", {"type": "object", "properties": {}, "required": []})
    >>> output_to_wire(form)["text"]["format"]["name"]
    'final_answer'
    """
    schema = closed_schema(output.parameters)
    form = {"name": output.name, "schema": schema, "strict": is_strict_schema(schema)}
    return {"text": {"format": {"type": "json_schema", **form}}}


def _turn(turn: tuple[Message, ...], load: Load | None) -> Iterator[Wire]:
    kinds = {call.id: own(NAME, call.extra).get("type", "function_call") for call in turn[0].calls}
    after: list[Wire] = []
    for message in turn:
        if message.role == "assistant":
            yield from _of_the_model(message)
            continue
        rest: list[Part] = []
        for part in message.parts if message.results else ():
            match part:
                case ToolResult():
                    yield _result(part, kinds.get(part.call_id), load)
                case Foreign() if message.role == "tool":
                    yield from _foreign(part)
                case _:
                    rest.append(part)
        if not message.results:
            after.append(_message(message, message.content, load))
        elif rest:
            after.append(_message(message, tuple(rest), load))
    yield from after


def _message(message: Message, content: str | tuple[Part, ...], load: Load | None) -> Wire:
    left = own(NAME, message.extra)
    role = left.pop("role", None) or ("user" if message.role == "tool" else message.role)
    written: Any = content
    if not isinstance(content, str):
        written = sendable(write_input(part, load) for part in content)
    return {"role": role, "content": written} | left


def _of_the_model(message: Message) -> Iterator[Wire]:
    if not message.parts:
        yield {"role": "assistant", "content": ""}
    said: list[Text | Refusal] = []
    for part in message.parts:
        if isinstance(part, Media):
            part = Text(files.described(part))
        if isinstance(part, Text | Refusal):
            if mark_of(part) is not None:
                yield from _said(said)
                said = []
            said.append(part)
            continue
        yield from _said(said)
        said = []
        match part:
            case ToolCall():
                yield _call(part)
            case Thinking() if NAME in part.extra:
                yield own(NAME, part.extra)
            case Foreign():
                yield from _foreign(part)
    yield from _said(said)


def _said(parts: list[Text | Refusal]) -> Iterator[Wire]:
    if not parts:
        return
    mark = mark_of(parts[0])
    if mark is not None and mark.get("content") != "text":
        yield {"role": "assistant", "content": [write_output(part) for part in parts]} | mark
        return
    # Only what came from here has the id that parts need, so the rest is said as one text.
    text = "".join(part.text for part in parts)
    if text or mark is not None:
        left = {key: value for key, value in (mark or {}).items() if key != "content"}
        yield {"role": "assistant", "content": text} | left


def _foreign(part: Foreign) -> Iterator[Wire]:
    if part.format == NAME:
        yield an_object(part.data, f"an item of {NAME}")


def _call(call: ToolCall) -> Wire:
    left = own(NAME, call.extra)
    if "type" in left:
        return left  # no call of a function: kept whole
    call_id = left.pop("call_id", None) or wire_id(call.id, LONGEST_ID)
    named = {"name": call.name, "arguments": call.arguments}
    return {"type": "function_call", "call_id": call_id} | named | left


def _result(result: ToolResult, asked_by: str | None, load: Load | None) -> Wire:
    left = own(NAME, result.extra)
    if "type" in left:
        return left
    call_id = left.pop("call_id", None) or wire_id(result.call_id, LONGEST_ID)
    output: Any = result.content
    if not isinstance(output, str):
        output = sendable(write_input(part, load) for part in output)
    kind = ANSWERS.get(asked_by or "", "function_call_output")
    return {"type": kind, "call_id": call_id, "output": output} | left
