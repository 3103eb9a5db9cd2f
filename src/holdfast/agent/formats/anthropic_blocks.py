"""The blocks of Anthropic's messages, in both directions."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from holdfast.agent.formats import media as files
from holdfast.agent.formats.common import (
    Load,
    Wire,
    a_list,
    a_text,
    an_object,
    as_arguments,
    as_object,
    left_over,
    own,
    sendable,
    wire_id,
)
from holdfast.agent.messages import (
    Foreign,
    Media,
    Part,
    Refusal,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from holdfast.errors import BadInput

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
