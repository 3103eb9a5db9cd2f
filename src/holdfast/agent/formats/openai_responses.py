"""The items of OpenAI's responses.

Here a conversation is a flat list of items: messages, thoughts, calls and results side by side.
Items of the model in a row are one message of ours, cut where another message begins; a call that
is still open keeps what follows in the same message, since its result has to come next. An item
that is not known stays whole, in its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from holdfast.agent import formats as files
from holdfast.agent.formats import (
    Load,
    Wire,
    a_list,
    a_text,
    an_object,
    closed_schema,
    is_strict_schema,
    left_over,
    own,
    paired,
    sendable,
    wire_id,
)
from holdfast.agent.model import ToolInfo
from holdfast.log.messages import (
    Extra,
    Foreign,
    Media,
    Message,
    Part,
    Refusal,
    Role,
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


# Reading the items of OpenAI's responses into messages.

# Parts of the items of OpenAI's responses: texts, images and files, in both directions.


NAME = "openai_responses"

LONGEST_ID = 64

ANSWERS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}
"""The calls that the caller answers, and the type of the answer. Others the provider makes."""


def mark_of(part: Part) -> Any:
    """The facts of the message item that a part begins, if it was read from one.

    It is kept under the name of the field that holds the text, which is never among the rest.
    """
    match part:
        case Text():
            return own(NAME, part.extra).get("text")
        case Refusal():
            return own(NAME, part.extra).get("refusal")
        case _:
            return None


def write_input(part: Part, load: Load | None) -> Wire | None:
    """A part of what the model is given; None for what this format can't carry."""
    match part:
        case Text():
            return {"type": "input_text", "text": part.text} | _plain(part)
        case Refusal():
            return {"type": "input_text", "text": part.text}
        case Media():
            described = {"type": "input_text", "text": files.described(part)}
            return _write_media(part, load) or described
        case Foreign() if part.format == NAME:
            return an_object(part.data, f"a part of {NAME}")
        case _:
            return None


def write_output(part: Text | Refusal) -> Wire:
    """A part of what the model said."""
    if isinstance(part, Refusal):
        return {"type": "refusal", "refusal": part.text} | _plain(part)
    return {"type": "output_text", "text": part.text} | _plain(part)


def _plain(part: Text | Refusal) -> Wire:
    left = own(NAME, part.extra)
    left.pop("text" if isinstance(part, Text) else "refusal", None)
    return left


def _write_media(part: Media, load: Load | None) -> Wire | None:
    left = own(NAME, part.extra)
    if part.kind == "audio":
        return None
    if part.kind == "image":
        url = files.url_of(part, load)
        if not url and not left.get("file_id"):
            return None
        left = {"detail": "auto"} | left
        if left["detail"] == "":
            del left["detail"]
        return {"type": "input_image"} | ({"image_url": url} if url else {}) | left
    if found := files.content(part, load):
        left["file_data"] = files.data_url(*found)
    elif part.url:
        left["file_url"] = part.url
    elif not left.get("file_id"):
        return None
    return {"type": "input_file"} | ({"filename": part.name} if part.name else {}) | left


def read_input(data: Any, what: str) -> Text | Media | Foreign:
    """A part of what the model was given."""
    wire = an_object(data, f"{what}, content")
    match wire.get("type"):
        case "input_text":
            return Text(a_text(wire, "text", what), left_over(NAME, wire, "type", "text"))
        case "input_image" | "input_file":
            media = _read_media(wire)
            # It is taken for what it seems to be only if it can be written just as it was.
            if _write_media(media, None) == wire:
                return media
    return Foreign(NAME, wire)


def read_output(data: Any, what: str) -> Text | Refusal | None:
    """A part of what the model said; None if it is of no known type."""
    wire = an_object(data, f"{what}, content")
    match wire.get("type"):
        case "output_text":
            return Text(a_text(wire, "text", what), left_over(NAME, wire, "type", "text"))
        case "input_text":
            return Text(a_text(wire, "text", what), left_over(NAME, wire, "text"))
        case "refusal":
            extra = left_over(NAME, wire, "type", "refusal")
            return Refusal(a_text(wire, "refusal", what), extra)
        case _:
            return None


def _read_media(wire: Wire) -> Media:
    known, hints = {"type"}, {}
    if wire["type"] == "input_image":
        media, key = Media(kind="image"), "image_url"
        known |= {"detail"} if wire.get("detail", "") == "auto" else set()
        hints = {"detail": ""} if "detail" not in wire else {}
    else:
        media, key = Media(kind="file"), "file_data"
        if wire.get("filename") and isinstance(wire["filename"], str):
            known.add("filename")
            media = replace(media, name=wire["filename"])
        if "file_data" not in wire:
            key = "file_url"
    if isinstance(wire.get(key), str):
        known.add(key)
        found = files.of_url(media.kind, wire[key])  # type: ignore[arg-type]  # no sound
        media = replace(media, media_type=found.media_type, data=found.data, url=found.url)
    return replace(media, extra=left_over(NAME, wire, *known, **hints))


_ROLES: dict[str, Role] = {"user": "user", "system": "system", "developer": "system"}
_NOT_ARGUMENTS = ("id", "call_id", "type", "status")


def from_wire(data: Any) -> list[Message]:
    """Messages from the `input` of a request, or from the `output` of a response.

    >>> found = from_wire([{"role": "user", "content": "Hello"}, {"type": "new_thing", "x": 1}])
    >>> [message.role for message in found], found[1].content[0].data
    (['user', 'assistant'], {'type': 'new_thing', 'x': 1})
    """
    reading = _Reading()
    for number, item in enumerate(a_list(data, f"items of {NAME}"), 1):
        what = f"{NAME}, item {number}"
        reading.item(an_object(item, what), what)
    reading.end_group()
    return reading.messages


def message_of(data: Any) -> Message:
    """One message of the model from all the items of its `output`.

    >>> message_of(
    ...     [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]
    ... ).calls
    (ToolCall(id='c', name='f', arguments='{}', extra={}),)
    """
    items = [an_object(item, NAME) for item in a_list(data, f"items of {NAME}")]
    # Calls that come with their answers were made by the provider: nobody else answers them.
    answered = {item.get("call_id") for item in items if item.get("type") in ANSWERS.values()}
    parts: list[Part] = []
    for number, item in enumerate(items, 1):
        if item.get("call_id") is not None and item.get("call_id") in answered:
            parts.append(Foreign(NAME, item))
        else:
            parts += _item_of_the_model(item, parts, f"{NAME}, item {number}")
    return _assistant(parts)


class _Reading:
    """The messages so far, and the parts of the one of the model that is not at its end."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.group: list[Part] = []
        self.open: set[str] = set()

    def item(self, wire: Wire, what: str) -> None:
        kind = _kind(wire)
        if kind == "message" and a_text(wire, "role", what) != "assistant":
            self.end_group()
            self.messages.append(_message_item(wire, what))
        elif kind in ANSWERS.values() and isinstance(wire.get("call_id"), str):
            self.end_group()
            self.messages.append(Message("tool", (_result_item(wire, what),)))
            self.open.discard(wire["call_id"])
        else:
            if self._begins_anew(kind):
                self.end_group()
            parts = _item_of_the_model(wire, self.group, what)
            if self.open and not self.group and isinstance(parts[0], Foreign):
                self._with_the_result(parts)
            else:
                self.group += parts

    def _begins_anew(self, kind: Any) -> bool:
        if any(isinstance(part, ToolCall) for part in self.group):
            return False  # their results come next, so all this is of one message
        if kind == "message":
            return any(isinstance(part, Text | Refusal) for part in self.group)
        return kind == "reasoning" and not all(isinstance(part, Thinking) for part in self.group)

    def _with_the_result(self, parts: list[Part]) -> None:
        # Nothing may come between results that belong together, so it stays with one of them.
        last = self.messages.pop()
        self.messages.append(Message(last.role, (*last.parts, *parts)))

    def end_group(self) -> None:
        if self.group:
            self.messages.append(_assistant(self.group))
            self.open = {call.id for call in self.messages[-1].calls}
        self.group = []


def _assistant(parts: list[Part]) -> Message:
    match parts:
        case [Text(text=text, extra={})] if text and not parts[0].extra:  # type: ignore[union-attr]
            return Message("assistant", text)
        case _:
            return Message("assistant", tuple(parts))


def _kind(wire: Wire) -> Any:
    return wire.get("type", "message" if "role" in wire else None)


def _message_item(wire: Wire, what: str) -> Message:
    given = wire["role"]
    role = _ROLES.get(given, "user")
    hints = {} if given == role else {"role": given}
    extra = left_over(NAME, wire, "role", "content", **hints)
    content = wire.get("content")
    if isinstance(content, str):
        return Message(role, content, extra=extra)
    parts = a_list(content, f"{what}, content")
    return Message(role, tuple(read_input(part, what) for part in parts), extra=extra)


def _item_of_the_model(wire: Wire, before: list[Part], what: str) -> list[Part]:
    kind = _kind(wire)
    if kind == "message":
        return _said_item(wire, bool(before) and isinstance(before[-1], Text | Refusal), what)
    if kind == "reasoning":
        return [Thinking(_thought(wire), {NAME: dict(wire)})]
    if kind == "function_call":
        return [_call_item(wire, what)]
    if kind in ANSWERS and isinstance(wire.get("call_id"), str):
        return [_other_call(wire)]
    return [Foreign(NAME, dict(wire))]


def _said_item(wire: Wire, follows: bool, what: str) -> list[Part]:
    """A message of the model. Its first part knows what else there is to the item."""
    mark = {key: value for key, value in wire.items() if key not in ("role", "content")}
    content = wire.get("content")
    if isinstance(content, str):
        if not mark and content and not follows:
            return [Text(content)]
        return [Text(content, {NAME: {"text": mark | {"content": "text"}}})]
    parts = [read_output(part, what) for part in a_list(content, f"{what}, content")]
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return [Foreign(NAME, dict(wire))]
    first, *rest = known
    key = "text" if isinstance(first, Text) else "refusal"
    extra: Extra = {NAME: first.extra.get(NAME, {}) | {key: mark}}
    return [type(first)(first.text, extra), *rest]


def _thought(wire: Wire) -> str:
    found = []
    for key in ("summary", "content"):
        pieces = wire.get(key)
        for piece in pieces if isinstance(pieces, list) else []:
            if isinstance(piece, dict) and isinstance(piece.get("text"), str):
                found.append(piece["text"])
    return "\n\n".join(found)


def _call_item(wire: Wire, what: str) -> ToolCall:
    call_id, name = a_text(wire, "call_id", what), a_text(wire, "name", what)
    hints = {} if call_id == wire_id(call_id, LONGEST_ID) else {"call_id": call_id}
    extra = left_over(NAME, wire, "type", "call_id", "name", "arguments", **hints)
    return ToolCall(call_id, name, a_text(wire, "arguments", what), extra)


def _other_call(wire: Wire) -> ToolCall:
    name, given = wire.get("name"), wire.get("input")
    if isinstance(name, str) and isinstance(given, str):
        return ToolCall(wire["call_id"], name, given, {NAME: dict(wire)})
    asked = {key: value for key, value in wire.items() if key not in _NOT_ARGUMENTS}
    return ToolCall(wire["call_id"], wire["type"], json.dumps(asked), {NAME: dict(wire)})


def _result_item(wire: Wire, what: str) -> ToolResult:
    call_id, output = wire["call_id"], wire.get("output")
    if wire["type"] != "function_call_output":
        return ToolResult(call_id, _in_words(output), extra={NAME: dict(wire)})
    hints = {} if call_id == wire_id(call_id, LONGEST_ID) else {"call_id": call_id}
    extra = left_over(NAME, wire, "type", "call_id", "output", **hints)
    if isinstance(output, str):
        return ToolResult(call_id, output, extra=extra)
    parts = a_list(output, f"{what}, output")
    return ToolResult(call_id, tuple(read_input(part, what) for part in parts), extra=extra)


def _in_words(output: Any) -> str | tuple[Text | Any, ...]:
    if isinstance(output, str):
        return output
    if isinstance(output, dict) and isinstance(output.get("image_url"), str):
        return (files.of_url("image", output["image_url"]),)
    return json.dumps(output, ensure_ascii=False)
