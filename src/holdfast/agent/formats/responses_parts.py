"""Parts of the items of OpenAI's responses: texts, images and files, in both directions."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from holdfast.agent.formats import media as files
from holdfast.agent.formats.common import Load, Wire, a_text, an_object, left_over, own
from holdfast.agent.messages import Foreign, Media, Part, Refusal, Text

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
    """What is known of the message item that a part begins, if it was read from one.

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
