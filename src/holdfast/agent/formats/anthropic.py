"""The messages of Anthropic.

The system text is beside the messages, calls are blocks among the text, and the results of
all calls of a message stand together at the head of the next one, which is the user's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from holdfast.agent import formats as files
from holdfast.agent.formats import (
    Load,
    Wire,
    a_list,
    a_text,
    an_object,
    as_arguments,
    as_object,
    closed_schema,
    left_over,
    own,
    paired,
    sendable,
    wire_id,
)
from holdfast.agent.model import ToolInfo
from holdfast.errors import BadInput
from holdfast.log.messages import (
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

# The blocks of Anthropic's messages, in both directions.


NAME = "anthropic"

_LONGEST_ID = 256
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def write_block(part: Part, load: Load | None) -> Wire | None:
    """A part as a block; None for what this format can't carry."""
    match part:
        case Text():
            return _write_text(part)
        case Refusal():
            return {"type": "text", "text": part.text} if part.text.strip() else None
        case Media():
            return _write_media(part, load) or {"type": "text", "text": files.described(part)}
        case Thinking():
            left = own(NAME, part.extra)
            # A thought without the provider's signature is refused.
            return {"type": "thinking", "thinking": part.text} | left if left else None
        case ToolCall():
            left = own(NAME, part.extra)
            call_id = left.pop("id", None) or wire_id(part.id, _LONGEST_ID)
            named = {"name": part.name, "input": as_object(part.arguments)}
            return {"type": "tool_use", "id": call_id} | named | left
        case ToolResult():
            return _write_result(part, load)
        case Foreign() if part.format == NAME:
            return an_object(part.data, f"a block of {NAME}")
        case _:
            return None


def _write_text(part: Text) -> Wire | None:
    left = own(NAME, part.extra)
    if not part.text.strip() and "text" not in left:
        return None  # a text that says nothing is refused
    return {"type": "text"} | left | {"text": part.text}


def _write_result(result: ToolResult, load: Load | None) -> Wire:
    left = own(NAME, result.extra)
    call_id = left.pop("tool_use_id", None) or wire_id(result.call_id, _LONGEST_ID)
    wire: Wire = {"type": "tool_result", "tool_use_id": call_id}
    form = left.pop("content", None)
    if isinstance(result.content, str):
        wire |= {} if form == "absent" else {"content": result.content}
    else:
        parts = sendable(write_block(part, load) for part in result.content)
        wire["content"] = parts or ([] if form else "")
    return wire | left | ({"is_error": True} if result.is_error else {})


def _write_media(media: Media, load: Load | None) -> Wire | None:
    left = own(NAME, media.extra)
    kind = "image" if media.kind == "image" else "document"
    source = left.pop("source", None) or _source(media, kind, load)
    if source is None:
        return None
    named = {"title": media.name} if media.name and kind == "document" else {}
    return {"type": kind} | named | left | {"source": source}


def _source(media: Media, kind: str, load: Load | None) -> Wire | None:
    if media.kind == "audio":
        return None
    found = files.content(media, load)
    if found is None:
        is_known = kind == "image" or media.media_type in ("", "application/pdf")
        return {"type": "url", "url": media.url} if media.url and is_known else None
    media_type, data = found
    if media_type in (_IMAGES if kind == "image" else ("application/pdf",)):
        return {"type": "base64", "media_type": media_type, "data": files.base64(data)}
    if kind == "document" and media_type.startswith("text/"):
        text = data.decode("utf-8", "replace")
        return {"type": "text", "media_type": "text/plain", "data": text}
    return None


def read_block(data: Any, role: Role, what: str) -> Part:
    """A block as a part."""
    wire = an_object(data, f"{what}, content")
    match wire.get("type"):
        case "thinking":
            thought = a_text(wire, "thinking", what)
            extra = left_over(NAME, wire, "type", "thinking")
            return Thinking(thought, extra) if extra else Foreign(NAME, wire)
        case "tool_use":
            return _read_call(wire, what)
        case "tool_result":
            return _read_result(wire, what)
        case "image" | "document" if role != "user":
            return Foreign(NAME, wire)  # nothing that others could show there
        case _:
            return _read_shown(wire, what)


def _read_shown(wire: Wire, what: str) -> Text | Media | Foreign:
    match wire.get("type"):
        case "text":
            text = a_text(wire, "text", what)
            hints = {} if text.strip() else {"text": text}
            return Text(text, left_over(NAME, wire, "type", "text", **hints))
        case "image" | "document":
            media = _read_media(wire)
            # It is taken for what it seems to be only if it can be written just as it was.
            if media is not None and _write_media(media, None) == wire:
                return media
    return Foreign(NAME, wire)


def _read_call(wire: Wire, what: str) -> ToolCall:
    call_id, name = a_text(wire, "id", what), a_text(wire, "name", what)
    given = an_object(wire.get("input"), f"{what}, input of {name!r:.40}")
    hints = {} if call_id == wire_id(call_id, _LONGEST_ID) else {"id": call_id}
    extra = left_over(NAME, wire, "type", "id", "name", "input", **hints)
    return ToolCall(call_id, name, as_arguments(given), extra)


def _read_result(wire: Wire, what: str) -> ToolResult:
    call_id = a_text(wire, "tool_use_id", what)
    hints: Wire = {} if call_id == wire_id(call_id, _LONGEST_ID) else {"tool_use_id": call_id}
    content = wire.get("content", "")
    if "content" not in wire:
        hints["content"] = "absent"
    if not isinstance(content, str):
        blocks = a_list(content, f"{what}, content of a tool_result")
        content = tuple(_read_shown(an_object(block, what), what) for block in blocks)
        hints |= {} if content else {"content": "parts"}
    known = ["type", "tool_use_id", "content"]
    is_error = wire.get("is_error") is True
    known += ["is_error"] if is_error else []
    return ToolResult(call_id, content, is_error, left_over(NAME, wire, *known, **hints))


def _read_media(wire: Wire) -> Media | None:
    source = wire.get("source")
    if not isinstance(source, dict):
        return None
    media = Media(kind="image" if wire["type"] == "image" else "file")
    title, known = wire.get("title"), {"type", "source"}
    if media.kind == "file" and title and isinstance(title, str):
        media, known = replace(media, name=title), known | {"title"}
    hints: Wire = {}
    match source:
        case {"type": "base64", "media_type": str(media_type), "data": str(text)}:
            media = replace(media, media_type=media_type, data=files.from_base64(text))
        case {"type": "text", "data": str(text)}:
            media = replace(media, media_type="text/plain", data=text.encode("utf-8", "replace"))
        case {"type": "url", "url": str(url)}:
            media = replace(media, url=url)
        case {"type": "file"}:
            hints = {"source": source}
        case _:
            if not isinstance(source.get("data"), str | None):
                raise BadInput(f"a block of {NAME}: the data of a source must be text")
            return None
    return replace(media, extra=left_over(NAME, wire, *known, **hints))


System = str | list[Wire] | None

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}

_BEGINNING = "(continued)"
"""The user's first message where a conversation begins with something else."""


def to_wire(messages: Iterable[Message], load: Load | None = None) -> tuple[System, list[Wire]]:
    """Messages as the `system` and the `messages` of a request.

    `load` gives the bytes of what was stored. Where there is nothing for `system` it is None, and
    has to be left out.

    >>> from holdfast.log.messages import system, user
    >>> to_wire([system("Be brief."), user("Hello")])
    ('Be brief.', [{'role': 'user', 'content': 'Hello'}])
    """
    by_turn = paired(messages)
    leading: list[Message] = []
    while by_turn and by_turn[0][0].role == "system" and not _in_place(by_turn[0][0]):
        leading.append(by_turn.pop(0)[0])
    wires = [wire for turn in by_turn for wire in _turn(turn, load)]
    if wires and wires[0]["role"] != "user" and not _in_place(by_turn[0][0]):
        wires.insert(0, {"role": "user", "content": _BEGINNING})
    return _system(leading), wires


def tools_to_wire(tools: Iterable[ToolInfo]) -> list[Wire]:
    """Tools as the `tools` of a request.

    >>> tools_to_wire([ToolInfo("find", "Find it.", {"type": "object"})])[0]["input_schema"]
    {'type': 'object'}
    """
    return [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
        for tool in tools
        if not tool.is_answer
    ]


_REFUSED = frozenset({
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "default", "title"),
})  # fmt: skip
"""The keywords that a schema of an answer may not have."""


def output_to_wire(output: ToolInfo) -> Wire:
    """The form of an answer, as a part of a request.

    >>> form = ToolInfo("final_answer", "", {"type": "object", "properties": {}})
    >>> output_to_wire(form)["output_config"]["format"]["type"]
    'json_schema'
    """
    schema = closed_schema(output.parameters, _REFUSED)
    return {"output_config": {"format": {"type": "json_schema", "schema": schema}}}


def _in_place(message: Message) -> bool:
    """Whether it was a message of its own, of that role, where it was read."""
    return "role" in own(NAME, message.extra)


def _system(leading: list[Message]) -> System:
    if not leading:
        return None
    if len(leading) == 1 and isinstance(leading[0].content, str):
        return leading[0].content
    return [wire for message in leading for wire in _blocks(message, None)]


def _turn(turn: tuple[Message, ...], load: Load | None) -> list[Wire]:
    written: list[Wire] = []
    for message in turn:
        left = own(NAME, message.extra)
        form = left.pop("content", None)
        role = left.pop("role", None) or _role(message)
        content: Any = message.content
        if not isinstance(content, str):
            content = _blocks(message, load)
            if form != "in order":
                content.sort(key=_after_results)
        if form is None and not (content.strip() if isinstance(content, str) else content):
            continue  # nothing of it can be sent, and nothing is not taken
        if message.results and written and written[-1]["role"] == "user" and not _in_place(message):
            before = written.pop()
            content = [*before["content"], *content]
            content.sort(key=_after_results)
            left = before | left | {"role": role}
        written.append({"role": role} | left | {"content": content})
    return written


def _after_results(block: Wire) -> bool:
    return block.get("type") != "tool_result"


def _role(message: Message) -> str:
    return "assistant" if message.role == "assistant" else "user"


def _blocks(message: Message, load: Load | None) -> list[Wire]:
    parts: Iterable[Part] = message.parts
    if message.role in ("system", "assistant"):
        parts = map(_in_words, parts)
    return sendable(write_block(part, load) for part in parts)


def _in_words(part: Part) -> Part:
    return Text(files.described(part)) if isinstance(part, Media) else part


def from_wire(messages: Any, system: Any = None) -> list[Message]:
    """Messages from the `messages` of a request and its `system`.

    >>> call = {"type": "tool_use", "id": "c1", "name": "find", "input": {"id": 7}}
    >>> from_wire([{"role": "assistant", "content": [call]}])[0].calls[0].arguments
    '{"id":7}'
    """
    found: list[Message] = []
    if system is not None:
        content, _ = _read_content(system, "system", f"{NAME}, system")
        found.append(Message("system", content))
    brings_results = False
    for number, data in enumerate(a_list(messages, f"messages of {NAME}"), 1):
        what = f"{NAME}, message {number}"
        message = _read(an_object(data, what), what, first=number == 1, after=brings_results)
        brings_results = bool(message.results)
        found.append(message)
    return found


def _read(wire: Wire, what: str, *, first: bool, after: bool) -> Message:
    given = a_text(wire, "role", what)
    role = _ROLES.get(given, "user")
    if "content" not in wire:
        raise BadInput(f"{what}: expected a field 'content', found {sorted(wire)!r:.80}")
    content, hints = _read_content(wire["content"], role, what)
    message = Message(role, content)
    # Written otherwise without the hint: first without the user, in `system`, with those before it.
    moves = (role == "assistant" and first) or role == "system" or (after and message.results)
    if given != role or moves:
        hints["role"] = given
    return replace(message, extra=left_over(NAME, wire, "role", "content", **hints))


def _read_content(data: Any, role: Role, what: str) -> tuple[str | tuple[Part, ...], Wire]:
    if isinstance(data, str):
        return data, {} if data.strip() else {"content": ""}
    parts = tuple(read_block(block, role, what) for block in a_list(data, f"{what}, content"))
    are_results = [isinstance(part, ToolResult) for part in parts]
    if not parts or are_results != sorted(are_results, reverse=True):
        return parts, {"content": "in order"}
    return parts, {}
