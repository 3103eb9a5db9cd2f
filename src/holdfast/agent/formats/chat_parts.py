"""Parts of the messages of OpenAI's chat completions: texts, images, files, in both directions."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from holdfast.agent.formats import media as files
from holdfast.agent.formats.common import Load, Wire, a_text, an_object, left_over, own
from holdfast.agent.messages import Foreign, Media, Part, Refusal, Role, Text

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
