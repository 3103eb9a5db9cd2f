"""Messages as they are stored: a turn is one value, and what is large goes to blobs."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from holdfast.agent.messages import Media, Message, Part, ToolResult
from holdfast.artifacts import Artifact, kept, opened
from holdfast.decoding import NONSENSE, Illegible, decoder
from holdfast.errors import BadInput
from holdfast.events import Said
from holdfast.values import Blobs, fetch

_decode = decoder(tuple[Message, ...])

Turn = tuple[Message, ...]


def stored_form(store: Blobs, turn: Turn) -> bytes:
    """A turn as bytes, without what the log says of it; the bytes of media are put into blobs."""
    bare = tuple(_bare(store, message) for message in turn)
    try:
        data = msgspec.json.encode(bare)
        again = _decode(data)
    except (*NONSENSE, Illegible) as error:
        raise BadInput(f"a message can't be stored: {error}") from None
    if again != bare:
        raise BadInput(
            "a message can't be stored: its meta or extra holds more than plain JSON data (texts, "
            "numbers, lists, objects), and would come back as something else"
        )
    return data


def load_turn(store: Blobs, said: Said, first: int) -> Turn:
    """The messages of a turn, each with its place in the conversation."""
    bare = _decode(fetch(store, said.messages, {}, dict))
    return tuple(
        replace(message, number=first + index, at=said.at, task=said.task, step=said.step)
        for index, message in enumerate(bare)
    )


def media_bytes(store: Blobs, artifact: Artifact) -> bytes:
    """The content of an image or a file that was stored."""
    with opened(store, artifact) as file:
        return file.read()


def _bare(store: Blobs, message: Message) -> Message:
    content = message.content
    if not isinstance(content, str):
        content = tuple(_kept(store, part) for part in content)
    return replace(message, content=content, number=0, at=None, task="", step="")


def _kept(store: Blobs, part: Part) -> Part:
    if isinstance(part, Media) and part.data is not None:
        return replace(part, data=None, artifact=kept(store, [part.data], part.name))
    if isinstance(part, ToolResult) and not isinstance(part.content, str):
        inner = tuple(_kept(store, each) for each in part.content)
        return replace(part, content=inner)
    return part
