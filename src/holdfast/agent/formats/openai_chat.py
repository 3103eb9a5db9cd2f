"""The messages of OpenAI's chat completions, which many other servers speak as well.

A message of the model holds text, then calls; a result is a message of its own, of role `tool`.
Results hold text only, so an image that a tool brought goes into a message of the user after them.
"""

from __future__ import annotations

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
from holdfast.errors import BadInput
from holdfast.log.messages import (
    ROLES,
    Foreign,
    Media,
    Message,
    Part,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
)

# Parts of the messages of OpenAI's chat completions: texts, images, files, in both directions.


NAME = "openai_chat"


def is_content(part: Part, role: Role) -> bool:
    """Whether a part belongs to the `content`. A refusal mostly has a field of its own."""
    match part:
        case Refusal():
            return role != "assistant" or bool(own(NAME, part.extra))
        case Foreign():
            return part.format == NAME
        case _:
            return isinstance(part, Text | Media)


def write_part(part: Part, role: Role, load: Load | None) -> Wire | None:
    """A part of the `content`; None for what this format can't carry there."""
    match part:
        case Text():
            return {"type": "text", "text": part.text} | own(NAME, part.extra)
        case Refusal() if is_content(part, role):
            if role != "assistant":
                return {"type": "text", "text": part.text}
            return {"type": "refusal", "refusal": part.text} | own(NAME, part.extra)
        case Media() if role == "user":
            return _write_media(part, load) or {"type": "text", "text": files.described(part)}
        case Media() if role != "tool":
            return {"type": "text", "text": files.described(part)}
        case Foreign() if part.format == NAME:
            return an_object(part.data, f"a part of {NAME}")
        case _:
            return None


def _write_media(media: Media, load: Load | None) -> Wire | None:
    left = own(NAME, media.extra)
    match media.kind:
        case "image":
            url = files.url_of(media, load)
            if not url:
                return None
            return {"type": "image_url"} | left | {"image_url": _within(left, "image_url", url=url)}
        case "audio":
            found = files.content(media, load)
            sound = files.sound_format(found[0]) if found else None
            if found is None or sound is None:
                return None
            inner = _within(left, "input_audio", data=files.base64(found[1]), format=sound)
            return {"type": "input_audio"} | left | {"input_audio": inner}
        case _:
            inner = _within(left, "file")
            if found := files.content(media, load):
                inner |= {"file_data": files.data_url(*found)}
            if not inner:
                return None
            inner |= {"filename": media.name} if media.name else {}
            return {"type": "file"} | left | {"file": inner}


def _within(left: Wire, key: str, **fields: str) -> Wire:
    return dict(left.get(key) or {}) | fields


def read_part(data: Any, role: Role, what: str) -> Text | Media | Refusal | Foreign:
    """A part from the `content`."""
    wire = an_object(data, f"{what}, content")
    match wire.get("type"):
        case "text":
            return Text(a_text(wire, "text", what), left_over(NAME, wire, "type", "text"))
        case "refusal" if role == "assistant":
            extra = left_over(NAME, wire, "refusal")
            return Refusal(a_text(wire, "refusal", what), extra)
        case "image_url" | "file" | "input_audio" if role == "user":
            media = _read_media(wire)
            # It is taken for what it seems to be only if it can be written just as it was.
            if media is not None and _write_media(media, None) == wire:
                return media
    return Foreign(NAME, wire)


def _read_media(wire: Wire) -> Media | None:
    inner = wire.get(wire["type"])
    if not isinstance(inner, dict):
        return None
    kind, rest = wire["type"], dict(inner)
    match kind:
        case "image_url" if isinstance(inner.get("url"), str):
            media = files.of_url("image", rest.pop("url"))
        case "input_audio" if isinstance(inner.get("data"), str):
            sound = rest.pop("format", "")
            media_type = files.sound_type(sound) if isinstance(sound, str) else ""
            data = files.from_base64(rest.pop("data"))
            media = Media(kind="audio", media_type=media_type, data=data)
        case "file":
            name, held = rest.get("filename"), rest.get("file_data")
            found = files.from_data_url(held) if isinstance(held, str) else None
            media = Media(kind="file")
            if found and found[0]:
                del rest["file_data"]
                media = replace(media, media_type=found[0], data=found[1])
            if name and isinstance(name, str):
                media = replace(media, name=rest.pop("filename"))
        case _:
            return None
    hints = {kind: rest} if rest else {}
    return replace(media, extra=left_over(NAME, wire, "type", kind, **hints))


_LONGEST_ID = 40
_ROLES: dict[str, Role] = {role: role for role in ROLES} | {"developer": "system"}


def to_wire(messages: Iterable[Message], load: Load | None = None) -> list[Wire]:
    """Messages as the `messages` of a request. `load` gives the bytes of what was stored.

    >>> from holdfast.log.messages import system, user
    >>> to_wire([system("Be brief."), user("Hello")])
    [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'Hello'}]
    """
    return [wire for turn in paired(messages) for wire in _turn(turn, load)]


def tools_to_wire(tools: Iterable[ToolInfo]) -> list[Wire]:
    """Tools as the `tools` of a request.

    >>> tools_to_wire([ToolInfo("find", "Find it.", {"type": "object"})])[0]["function"]["name"]
    'find'
    """
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            },
        }
        for tool in tools
        if not tool.is_answer
    ]


def output_to_wire(output: ToolInfo) -> Wire:
    """The form of an answer, as a part of a request.

    >>> form = ToolInfo("final_answer", "", {"type": "object", "properties": {}, "required": []})
    >>> output_to_wire(form)["response_format"]["json_schema"]["strict"]
    True
    """
    schema = closed_schema(output.parameters)
    form = {"name": output.name, "schema": schema, "strict": is_strict_schema(schema)}
    return {"response_format": {"type": "json_schema", "json_schema": form}}


def _turn(turn: tuple[Message, ...], load: Load | None) -> Iterator[Wire]:
    shown: list[Part] = []
    after: list[Message] = []
    for message in turn:
        if not message.results:
            yield _message(message, load)
            continue
        for result in message.results:
            yield _result(result)
            shown += _shown_apart(result)
        rest = [part for part in message.parts if not isinstance(part, ToolResult)]
        if rest:
            after.append(replace(message, role="user", content=tuple(rest)))
    if shown:
        yield _message(Message("user", tuple(shown)), load)
    for message in after:
        yield _message(message, load)


def _shown_apart(result: ToolResult) -> list[Part]:
    if isinstance(result.content, str):
        return []
    found: list[Part] = [part for part in result.content if isinstance(part, Media)]
    return [Text(f"From the tool call {result.call_id}:"), *found] if found else []


def _result(result: ToolResult) -> Wire:
    left = own(NAME, result.extra)
    form = left.pop("content", None)
    call_id = left.pop("tool_call_id", None) or wire_id(result.call_id, _LONGEST_ID)
    wire: Wire = {"role": "tool", "tool_call_id": call_id}
    if isinstance(result.content, str):
        return wire | _in_form(form or "text", [], result.content) | left
    parts = sendable(write_part(part, "tool", None) for part in result.content)
    return wire | _in_form(form or ("parts" if parts else "text"), parts, None) | left


def _message(message: Message, load: Load | None) -> Wire:
    left = own(NAME, message.extra)
    form = left.pop("content", None) or _usual_form(message)
    parts = sendable(write_part(part, message.role, load) for part in message.parts)
    wire: Wire = {"role": left.pop("role", None) or message.role}
    wire |= _in_form(form, parts, message.content)
    wire |= left
    if message.name:
        wire["name"] = message.name
    if refusals := _refusals(message):
        wire["refusal"] = "".join(refusals)
    if message.calls:
        wire["tool_calls"] = [_call(call) for call in message.calls]
    return wire


def _usual_form(message: Message) -> str:
    if isinstance(message.content, str):
        return "text"
    said = [part for part in message.content if is_content(part, message.role)]
    if message.calls or _refusals(message):
        is_plain = len(said) == 1 and isinstance(said[0], Text) and not own(NAME, said[0].extra)
        return "null" if not said else "text" if is_plain else "parts"
    return "parts" if said else "text"


def _refusals(message: Message) -> list[str]:
    return [
        part.text
        for part in message.parts
        if isinstance(part, Refusal) and not is_content(part, message.role)
    ]


def _in_form(form: str, parts: list[Wire], content: Any) -> Wire:
    match form:
        case "absent":
            return {}
        case "null":
            return {"content": None}
        case "parts":
            return {"content": parts}
        case _:
            texts = [str(part.get("text", "")) for part in parts]
            return {"content": content if isinstance(content, str) else "".join(texts)}


def _call(call: ToolCall) -> Wire:
    left = own(NAME, call.extra)
    if left.get("type"):
        return left  # no call of a function: kept whole
    call_id = left.pop("id", None) or wire_id(call.id, _LONGEST_ID)
    kind = {} if "type" in left else {"type": "function"}
    function = {"name": call.name, "arguments": call.arguments}
    left.pop("type", None)
    return {"id": call_id} | kind | left | {"function": function | dict(left.get("function") or {})}


def from_wire(data: Any) -> list[Message]:
    """Messages from the `messages` of a request, or from that of a choice.

    >>> from_wire([{"role": "user", "content": "Hello", "mood": "fine"}])[0].extra
    {'openai_chat': {'mood': 'fine'}}
    """
    wires = a_list(data, f"messages of {NAME}")
    return [_read(wire, f"{NAME}, message {number}") for number, wire in enumerate(wires, 1)]


def _read(data: Any, what: str) -> Message:
    wire = an_object(data, what)
    given = a_text(wire, "role", what)
    if given == "tool":
        return Message("tool", (_read_result(wire, what),))
    role = _ROLES.get(given, "user")
    known, hints = {"role", "content"}, {}
    if given != role:
        hints["role"] = given
    name = wire.get("name")
    if name and isinstance(name, str):
        known.add("name")
    form, content = _read_content(wire, role, what)
    asides: list[Part] = []
    if role == "assistant":
        if isinstance(wire.get("refusal"), str):
            known.add("refusal")
            asides.append(Refusal(wire["refusal"]))
        if wire.get("tool_calls"):
            known.add("tool_calls")
            asides += [_read_call(call, what) for call in a_list(wire["tool_calls"], what)]
    if asides and isinstance(content, str):
        content = (Text(content),) if content else ()
    if asides:
        content = (*content, *asides)
    message = Message(role, content, name=name if "name" in known and name else "")
    if form != _usual_form(message):
        hints["content"] = form
    return replace(message, extra=left_over(NAME, wire, *known, **hints))


def _read_content(wire: Wire, role: Role, what: str) -> tuple[str, str | tuple[Part, ...]]:
    content = wire.get("content")
    if content is None:
        return ("null" if "content" in wire else "absent"), ""
    if isinstance(content, str):
        return "text", content
    parts = a_list(content, f"{what}, content")
    return "parts", tuple(read_part(part, role, what) for part in parts)


def _read_call(data: Any, what: str) -> ToolCall:
    what = f"{what}, tool_calls"
    wire = an_object(data, what)
    call_id = a_text(wire, "id", what)
    kind = wire.get("type", "function")
    if kind != "function":
        inner = wire.get("custom") if kind == "custom" else None
        if not isinstance(kind, str) or not kind:
            raise BadInput(f"{what}: 'type' must be text, not {kind!r:.40}")
        if not isinstance(inner, dict):
            return ToolCall(call_id, kind, "{}", {NAME: dict(wire)})
        name, given = a_text(inner, "name", what), a_text(inner, "input", what)
        return ToolCall(call_id, name, given, {NAME: dict(wire)})
    function = an_object(wire.get("function"), f"{what}, function")
    hints: Wire = {} if "type" in wire else {"type": ""}
    if call_id != wire_id(call_id, _LONGEST_ID):
        hints["id"] = call_id
    if rest := {key: function[key] for key in function if key not in ("name", "arguments")}:
        hints["function"] = rest
    name, arguments = a_text(function, "name", what), a_text(function, "arguments", what)
    extra = left_over(NAME, wire, "id", "type", "function", **hints)
    return ToolCall(call_id, name, arguments, extra)


def _read_result(wire: Wire, what: str) -> ToolResult:
    call_id = a_text(wire, "tool_call_id", what)
    form, content = _read_content(wire, "tool", what)
    hints: Wire = {} if form in ("text", "parts") and content != () else {"content": form}
    if call_id != wire_id(call_id, _LONGEST_ID):
        hints["tool_call_id"] = call_id
    extra = left_over(NAME, wire, "role", "content", "tool_call_id", **hints)
    return ToolResult(call_id, content, extra=extra)  # type: ignore[arg-type]  # of a tool: no refusal
