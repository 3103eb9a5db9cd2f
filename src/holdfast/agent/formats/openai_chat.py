"""The messages of OpenAI's chat completions, which many other servers speak as well.

A message of the model holds text, then calls; a result is a message of its own, of role `tool`.
Results hold text only, so an image that a tool brought goes into a message of the user after them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from holdfast.agent.formats.chat_parts import NAME, is_content, read_part, write_part
from holdfast.agent.formats.common import (
    Load,
    Wire,
    a_list,
    a_text,
    an_object,
    left_over,
    own,
    paired,
    sendable,
    wire_id,
)
from holdfast.agent.messages import (
    ROLES,
    Media,
    Message,
    Part,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from holdfast.agent.model import ToolInfo
from holdfast.errors import BadInput

_LONGEST_ID = 40
_ROLES: dict[str, Role] = {role: role for role in ROLES} | {"developer": "system"}


def to_wire(messages: Iterable[Message], load: Load | None = None) -> list[Wire]:
    """Messages as the `messages` of a request. `load` gives the bytes of what was stored.

    >>> from holdfast.agent.messages import system, user
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
    ]


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
