"""Messages to and from the formats of providers, without loss.

One module a format, each with the same three functions on plain JSON data; no client library is
loaded:

| module | `from_wire` | `to_wire` |
|---|---|---|
| `openai_chat` | the `messages` of a chat completion | the same |
| `openai_responses` | the `input` or `output` items of a response | `input` items |
| `anthropic` | `messages`, and the `system` parameter | `(system, messages)` |

and `tools_to_wire`. A message read from a format is written to it just as it was. A part that only
that format knows stays in `extra` or as a `Foreign` part, and is sent to no other. Calls and
results are always written in pairs: every call has its result right after it.

Here is what the formats share: reading foreign data, and preparing messages to be sent.
"""

from __future__ import annotations

import json
import mimetypes
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any, Literal

from msgspec.structs import replace

from holdfast.errors import BadInput
from holdfast.log.artifacts import Artifact
from holdfast.log.messages import Extra, Media, Message, turns

Wire = dict[str, Any]
"""A JSON object as a provider writes it."""

Load = Callable[[Artifact], bytes]

MALFORMED = "_malformed"
"""The key under which arguments that are no JSON object are sent where an object is needed."""

_PLAIN_ID = re.compile(r"[a-zA-Z0-9_-]+")


def closed_schema(schema: Any, without: frozenset[str] = frozenset()) -> Any:
    """A schema whose objects have the properties that they name and no others, as providers want it
    of an answer; without keywords that they refuse. The answer is validated here in any case.

    >>> closed_schema(
    ...     {"type": "object", "properties": {"n": {"minimum": 1}}}, frozenset({"minimum"})
    ... )
    {'type': 'object', 'properties': {'n': {}}, 'additionalProperties': False}
    """
    if isinstance(schema, list):
        return [closed_schema(each, without) for each in schema]
    if not isinstance(schema, dict):
        return schema
    named = ("properties", "$defs")  # what stands there is called by names, and not by keywords
    made = {
        key: {name: closed_schema(each, without) for name, each in value.items()}
        if key in named and isinstance(value, dict)
        else closed_schema(value, without)
        for key, value in schema.items()
        if key not in without
    }
    if "properties" in made:
        made.setdefault("additionalProperties", False)
    return made


def is_strict_schema(schema: Any) -> bool:
    """Whether OpenAI follows a schema strictly: each object is closed and needs all it names.

    >>> is_strict_schema(closed_schema({"properties": {"n": {}}, "required": []}))
    False
    """
    if isinstance(schema, list):
        return all(map(is_strict_schema, schema))
    if not isinstance(schema, dict):
        return True
    if "default" in schema or (schema.get("type") == "object" and "properties" not in schema):
        return False
    if "properties" in schema:
        is_closed = schema.get("additionalProperties") is False
        if not is_closed or set(schema.get("required", ())) != schema["properties"].keys():
            return False
        if not all(map(is_strict_schema, schema["properties"].values())):
            return False
    rest = {key: value for key, value in schema.items() if key != "properties"}
    return all(map(is_strict_schema, rest.values()))


def a_list(data: Any, what: str) -> list[Any]:
    """The data, if it is a list."""
    if not isinstance(data, list | tuple):
        raise BadInput(f"{what}: expected a list, found {_kind(data)}")
    return list(data)


def an_object(data: Any, what: str) -> Wire:
    """The data, if it is a JSON object."""
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise BadInput(f"{what}: expected a JSON object, found {_kind(data)}")
    return data


def a_text(data: Wire, key: str, what: str) -> str:
    """A field that has to be there, and to be text."""
    if key not in data:
        raise BadInput(f"{what}: expected a field {key!r}, found {sorted(data)!r:.80}")
    if not isinstance(data[key], str):
        raise BadInput(f"{what}: {key!r} must be text, not {_kind(data[key])}")
    return str(data[key])


def _kind(data: Any) -> str:
    return f"{type(data).__name__} ({data!r:.40})"


def left_over(name: str, data: Wire, *known: str, **hints: Any) -> Extra:
    """The fields of a message or part that only this format knows.

    `hints` are kept with it, under the names of fields that are known and so can't be among the
    rest: they say how a known field was written where there is more than one way.
    """
    left = {key: value for key, value in data.items() if key not in known} | hints
    return {name: left} if left else {}


def own(name: str, extra: Extra) -> Wire:
    """The fields that are kept for this format, to be written back."""
    return dict(extra.get(name) or {})


def sendable(wires: Iterable[Wire | None]) -> list[Wire]:
    """Without those that there is no way to write."""
    return [wire for wire in wires if wire is not None]


def paired(messages: Iterable[Message]) -> list[tuple[Message, ...]]:
    """Messages by turn, ready to be sent; `BadInput` where calls and results don't pair."""
    return list(turns(_joined(messages)))


def _joined(messages: Iterable[Message]) -> list[Message]:
    """Messages of the assistant in a row as one, where the calls of the first are still open."""
    done: list[Message] = []
    for message in messages:
        if not isinstance(message, Message):
            raise BadInput(f"expected a Message, found {_kind(message)}")
        last = done[-1] if done else None
        if last is not None and last.calls and message.role == "assistant":
            extra = last.extra | message.extra
            done[-1] = replace(last, content=last.parts + message.parts, extra=extra)
        else:
            done.append(message)
    return done


def wire_id(call_id: str, most: int) -> str:
    """The id of a call as a provider takes it; another one for the same id never comes out."""
    if _PLAIN_ID.fullmatch(call_id) and len(call_id) <= most:
        return call_id
    return f"call_{sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def as_object(arguments: str) -> Wire:
    """Arguments as the JSON object that they are, or as one that holds the text as it is.

    >>> as_object('{"a": 1}'), as_object("{oops")
    ({'a': 1}, {'_malformed': '{oops'})
    """
    found = _parsed(arguments)
    return {MALFORMED: arguments} if found is None else found


def as_arguments(data: Wire) -> str:
    """The reverse of `as_object`.

    >>> as_arguments({"a": 1}), as_arguments({"_malformed": "{oops"})
    ('{"a":1}', '{oops')
    """
    text = data.get(MALFORMED)
    if len(data) == 1 and isinstance(text, str) and _parsed(text) is None:
        return text
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _parsed(arguments: str) -> Wire | None:
    try:
        found = json.loads(arguments, parse_constant=_no_constant)
        # A lone surrogate can be escaped in JSON, and not be sent.
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# Images, files and sounds on their way to the wire and back.


_BEGINNINGS = {
    b"\x89PNG": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"%PDF": "application/pdf",
    b"ID3": "audio/mpeg",
}
_USUAL = {"image": "image/png", "file": "application/octet-stream", "audio": "audio/wav"}

_FORMATS = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav"}
_SOUNDS = {"mp3": "audio/mpeg", "wav": "audio/wav"}


def content(media: Media, load: Load | None) -> tuple[str, bytes] | None:
    """Media type and bytes; None where there is only an address."""
    if media.data is not None:
        return _typed(media, media.data)
    if media.artifact is not None:
        if load is None:
            raise BadInput(
                f"{described(media)}: its bytes are in the store as {media.artifact.name!r}, and "
                f"no load=… was given to have them with"
            )
        return _typed(media, load(media.artifact))
    return from_data_url(media.url)


def _typed(media: Media, data: bytes) -> tuple[str, bytes]:
    return media.media_type or _guessed(media, data), data


def _guessed(media: Media, data: bytes) -> str:
    if data[:4] == b"RIFF":
        return "image/webp" if data[8:12] == b"WEBP" else "audio/wav"
    for beginning, media_type in _BEGINNINGS.items():
        if data.startswith(beginning):
            return media_type
    name = media.name or (media.artifact.name if media.artifact else "")
    return mimetypes.guess_type(name)[0] or _USUAL[media.kind]


def base64(data: bytes) -> str:
    """Bytes as text."""
    return b64encode(data).decode()


def from_base64(text: str) -> bytes | None:
    """The bytes, if the text is what `base64` makes of them."""
    try:
        data = b64decode(text, validate=True)
    except ValueError:
        return None
    return data if base64(data) == text else None


def data_url(media_type: str, data: bytes) -> str:
    """Bytes as an address that holds them."""
    return f"data:{media_type};base64,{base64(data)}"


def from_data_url(url: str) -> tuple[str, bytes] | None:
    """The reverse, where `data_url` would give just that address."""
    head, found, rest = url.partition(";base64,")
    if not found or not head.startswith("data:"):
        return None
    data = from_base64(rest)
    return None if data is None else (head.removeprefix("data:"), data)


def of_url(kind: Literal["image", "file"], url: str) -> Media:
    """Media from an address, which may hold the bytes."""
    found = from_data_url(url)
    # Without a type of its own it would be guessed on the way back, and not be the same address.
    if found is None or not found[0]:
        return Media(kind=kind, url=url)
    return Media(kind=kind, media_type=found[0], data=found[1])


def url_of(media: Media, load: Load | None) -> str:
    """The address of media, which may be one that holds the bytes; empty if there is none."""
    if media.url and media.data is None and media.artifact is None:
        return media.url
    found = content(media, load)
    return data_url(*found) if found else ""


def sound_format(media_type: str) -> str | None:
    """The providers' name for a type of sound, if they take it."""
    return _FORMATS.get(media_type)


def sound_type(name: str) -> str:
    """The media type of a sound by what providers call it."""
    return _SOUNDS.get(name, "")


def described(media: Media) -> str:
    """The text in the place of media that a model is not sent."""
    what = {"image": "an image", "file": "a file", "audio": "a sound"}[media.kind]
    name = media.name or (media.artifact.name if media.artifact else "")
    at = media.url if not media.url.startswith("data:") else ""
    return f"({', '.join(filter(None, (what, name, media.media_type, at)))})"
