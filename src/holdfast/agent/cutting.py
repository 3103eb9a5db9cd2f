"""Texts cut short, where there is no room for the whole: each says what it lacks."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.agent.fitting import UNCUT
from holdfast.agent.messages import Message, Text, ToolCall, ToolResult
from holdfast.decoding import Illegible, decode

_MARK = 40
"""About how long the words are that say what is missing: less than that is not worth cutting."""


def cut(message: Message, limit: int) -> Message:
    """A message whose long texts are cut, those in the arguments of calls included."""
    if limit == UNCUT:
        return message
    content = message.content
    if isinstance(content, str):
        return replace(message, content=cut_text(content, limit))
    return replace(message, content=tuple(_cut_part(part, limit) for part in content))


def _cut_part(part: Any, limit: int) -> Any:
    if isinstance(part, Text):
        return replace(part, text=cut_text(part.text, limit))
    if isinstance(part, ToolCall):
        return replace(part, arguments=cut_arguments(part.arguments, limit))
    if isinstance(part, ToolResult):
        content = part.content
        if isinstance(content, str):
            return replace(part, content=cut_text(content, limit))
        return replace(part, content=tuple(_cut_part(each, limit) for each in content))
    return part


def cut_arguments(arguments: str, limit: int) -> str:
    """The arguments of a call that was made: what is long in them is cut, and they stay JSON.

    >>> cut_arguments('{"path": "a.txt", "text": "%s"}' % ("x" * 500), 50)[37:-13]
    'xxxxxxxxxxxxxxxxxxxxxxxx[… 450 characters are left out here …]xx'
    """
    if limit == UNCUT or len(arguments) <= limit + _MARK:
        return arguments
    try:
        whole = decode(arguments)
        short = msgspec.json.encode(_cut_value(whole, limit)).decode()
    except (Illegible, UnicodeError, RecursionError):
        return cut_text(arguments, limit)
    if len(short) <= 2 * limit + _MARK or not isinstance(whole, dict):
        return short
    left_out = f"[… {len(arguments):,} characters of arguments are left out here …]"
    return msgspec.json.encode({"left_out": left_out}).decode()


def _cut_value(value: Any, limit: int) -> Any:
    if isinstance(value, str):
        return cut_text(value, limit)
    if isinstance(value, dict):
        return {key: _cut_value(each, limit) for key, each in value.items()}
    return [_cut_value(each, limit) for each in value] if isinstance(value, list) else value


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
    if isinstance(part, ToolCall):
        return len(part.arguments)
    if isinstance(part, ToolResult):
        if isinstance(part.content, str):
            return len(part.content)
        return max(map(_longest_in, part.content), default=0)
    return 0
