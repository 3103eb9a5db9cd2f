"""A model, as an agent sees it: a function from a `Request` to a `Reply`.

The adapters (`holdfast.agent.adapters`) make one of a provider's client; a test, or anybody else,
writes one by hand.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Literal

from msgspec import Struct

from holdfast.core.usage import Usage
from holdfast.log.artifacts import Artifact
from holdfast.log.messages import (
    Foreign,
    Media,
    Message,
    Part,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

Stop = Literal["end", "tool_calls", "length", "refusal", "other"]
"""Why a model stopped: it was done, it asks for calls, it was cut off, it won't."""


class ToolInfo(Struct, frozen=True, omit_defaults=True):
    """A tool as the model sees it: its name, what it does, and the JSON schema of its input."""

    name: str
    description: str
    parameters: dict[str, Any]
    is_answer: bool = False
    """Whether it is no tool, but the form that the answer has to have: see `Request.output`."""


class Request(Struct, frozen=True):
    """The input of a model call: exactly what the model sees, in no provider's format."""

    messages: tuple[Message, ...]
    tools: tuple[ToolInfo, ...] = ()
    load: Callable[[Artifact], bytes] | None = None
    """How the bytes of images and files that were stored are had."""
    output: ToolInfo | None = None
    """The form that the answer has to have: its `parameters` are a JSON schema. Only a model with
    a true attribute `structured` is given one."""
    on_text: Callable[[str], Any] | None = None
    """Told each piece of the reply's text as it comes, by a model that streams, for those who
    follow the call."""


class Reply(Struct, frozen=True, omit_defaults=True):
    """The answer of a model."""

    message: Message
    usage: Usage = Usage()
    stop: Stop = "end"
    model: str = ""
    id: str = ""


Model = Callable[[Request], Reply | Awaitable[Reply]]


# A conversation as text, for people and for a model that summarizes it.


def transcript(messages: Iterable[Message]) -> str:
    """Messages as lines of text.

    >>> from holdfast.log.messages import assistant, tool_result, user
    >>> print(transcript([user("Where?"), assistant("", [ToolCall("c", "look", "{}")])]))
    user: Where?
    assistant calls look({})
    """
    return "\n".join(line for message in messages for line in lines_of(message))


def lines_of(message: Message) -> Iterator[str]:
    """The lines for one message: one for each thing in it."""
    for part in message.parts:
        yield _line(message, part)
    if not message.parts:
        yield f"{message.role}:"


def _line(message: Message, part: Part) -> str:
    who = f"{message.role} ({message.name})" if message.name else message.role
    match part:
        case Text():
            return f"{who}: {part.text}"
        case Thinking():
            return f"{who} thinks: {part.text}"
        case Refusal():
            return f"{who} refuses: {part.text}"
        case ToolCall():
            return f"{who} calls {part.name}({part.arguments})"
        case ToolResult():
            return f"result{' (an error)' * part.is_error}: {result_text(part)}"
        case Media():
            return f"{who}: {media_text(part)}"
        case Foreign():
            return f"{who}: ({part.format} part)"


def result_text(result: ToolResult) -> str:
    """The text of a result, without other parts."""
    if isinstance(result.content, str):
        return result.content
    return "".join(
        part.text if isinstance(part, Text) else media_text(part) if isinstance(part, Media) else ""
        for part in result.content
    )


def media_text(media: Media) -> str:
    """The text that stands for an image or a file."""
    size = media.artifact.size_bytes if media.artifact else len(media.data or b"")
    what = " ".join(each for each in (media.name, media.media_type, media.url[:80]) if each)
    return f"({media.kind}{': ' * bool(what)}{what}{f', {size:,} bytes' * bool(size)})"
