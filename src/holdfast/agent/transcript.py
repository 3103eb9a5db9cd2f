"""A conversation as text: for people, and for a model that is to summarize it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
    """What a result says, without what is no text."""
    if isinstance(result.content, str):
        return result.content
    return "".join(
        part.text if isinstance(part, Text) else media_text(part) if isinstance(part, Media) else ""
        for part in result.content
    )


def media_text(media: Media) -> str:
    """What stands for an image or a file where only text can stand."""
    size = media.artifact.size_bytes if media.artifact else len(media.data or b"")
    what = " ".join(each for each in (media.name, media.media_type, media.url[:80]) if each)
    return f"({media.kind}{': ' * bool(what)}{what}{f', {size:,} bytes' * bool(size)})"
