"""Texts cut short, where there is no room for the whole: each says what it lacks."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from holdfast.agent.fitting import UNCUT
from holdfast.agent.messages import Message, Text, ToolResult

_MARK = 40
"""About how long the words are that say what is missing: less than that is not worth cutting."""


def cut(message: Message, limit: int) -> Message:
    """A message whose long texts are cut. Calls stay as they are: half of one is none."""
    if limit == UNCUT:
        return message
    content = message.content
    if isinstance(content, str):
        return replace(message, content=cut_text(content, limit))
    return replace(message, content=tuple(_cut_part(part, limit) for part in content))


def _cut_part(part: Any, limit: int) -> Any:
    if isinstance(part, Text):
        return replace(part, text=cut_text(part.text, limit))
    if isinstance(part, ToolResult):
        content = part.content
        if isinstance(content, str):
            return replace(part, content=cut_text(content, limit))
        return replace(part, content=tuple(_cut_part(each, limit) for each in content))
    return part


def cut_text(text: str, limit: int) -> str:
    """A text of about `limit` characters, mostly of its beginning.

    >>> cut_text("abcdefghij" * 100, 20)
    'abcdefghijabcde[… 980 characters are left out here …]fghij'
    """
    if limit == UNCUT or len(text) <= limit + _MARK:
        return text
    head = limit * 3 // 4
    left_out = len(text) - limit
    return f"{text[:head]}[… {left_out:,} characters are left out here …]{text[head - limit :]}"


def longest_text(message: Message) -> int:
    """How long the longest text is that could be cut."""
    if isinstance(message.content, str):
        return len(message.content)
    return max(map(_longest_in, message.content), default=0)


def _longest_in(part: Any) -> int:
    if isinstance(part, Text):
        return len(part.text)
    if isinstance(part, ToolResult):
        if isinstance(part.content, str):
            return len(part.content)
        return max(map(_longest_in, part.content), default=0)
    return 0
