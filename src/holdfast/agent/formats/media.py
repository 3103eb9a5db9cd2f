"""Images, files and sounds on their way to the wire and back."""

from __future__ import annotations

import mimetypes
from base64 import b64decode, b64encode
from typing import Literal

from holdfast.agent.formats.common import Load
from holdfast.agent.messages import Media
from holdfast.errors import BadInput

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
    """What providers call a type of sound, if they take it."""
    return _FORMATS.get(media_type)


def sound_type(name: str) -> str:
    """The media type of a sound by what providers call it."""
    return _SOUNDS.get(name, "")


def described(media: Media) -> str:
    """What stands in the place of media that a model is not sent."""
    what = {"image": "an image", "file": "a file", "audio": "a sound"}[media.kind]
    name = media.name or (media.artifact.name if media.artifact else "")
    at = media.url if not media.url.startswith("data:") else ""
    return f"({', '.join(filter(None, (what, name, media.media_type, at)))})"
