"""The messages of Anthropic.

What the system says stands beside the messages, calls are blocks among the text, and the results of
all calls of a message stand together at the head of the next one, which is the user's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from holdfast.agent.formats import media as files
from holdfast.agent.formats.anthropic_blocks import NAME, read_block, write_block
from holdfast.agent.formats.common import (
    Load,
    Wire,
    a_list,
    a_text,
    an_object,
    left_over,
    own,
    paired,
    sendable,
)
from holdfast.agent.messages import Media, Message, Part, Role, Text, ToolResult
from holdfast.agent.model import ToolInfo
from holdfast.errors import BadInput

System = str | list[Wire] | None

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}

_BEGINNING = "(continued)"
"""What the user is made to say where a conversation begins with something else."""


def to_wire(messages: Iterable[Message], load: Load | None = None) -> tuple[System, list[Wire]]:
    """Messages as the `system` and the `messages` of a request.

    `load` gives the bytes of what was stored. Where there is nothing for `system` it is None, and
    has to be left out.

    >>> from holdfast.agent.messages import system, user
    >>> to_wire([system("Be brief."), user("Hello")])
    ('Be brief.', [{'role': 'user', 'content': 'Hello'}])
    """
    by_turn = paired(messages)
    leading: list[Message] = []
    while by_turn and by_turn[0][0].role == "system" and not _in_place(by_turn[0][0]):
        leading.append(by_turn.pop(0)[0])
    wires = [wire for turn in by_turn for wire in _turn(turn, load)]
    if wires and wires[0]["role"] != "user" and not _in_place(by_turn[0][0]):
        wires.insert(0, {"role": "user", "content": _BEGINNING})
    return _system(leading), wires


def tools_to_wire(tools: Iterable[ToolInfo]) -> list[Wire]:
    """Tools as the `tools` of a request.

    >>> tools_to_wire([ToolInfo("find", "Find it.", {"type": "object"})])[0]["input_schema"]
    {'type': 'object'}
    """
    return [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
        for tool in tools
    ]


def _in_place(message: Message) -> bool:
    """Whether it was a message of its own, of that role, where it was read."""
    return "role" in own(NAME, message.extra)


def _system(leading: list[Message]) -> System:
    if not leading:
        return None
    if len(leading) == 1 and isinstance(leading[0].content, str):
        return leading[0].content
    return [wire for message in leading for wire in _blocks(message, None)]


def _turn(turn: tuple[Message, ...], load: Load | None) -> list[Wire]:
    written: list[Wire] = []
    for message in turn:
        left = own(NAME, message.extra)
        form = left.pop("content", None)
        role = left.pop("role", None) or _role(message)
        content: Any = message.content
        if not isinstance(content, str):
            content = _blocks(message, load)
            if form != "in order":
                content.sort(key=_after_results)
        if form is None and not (content.strip() if isinstance(content, str) else content):
            continue  # nothing of it can be sent, and nothing is not taken
        if message.results and written and written[-1]["role"] == "user" and not _in_place(message):
            before = written.pop()
            content = [*before["content"], *content]
            content.sort(key=_after_results)
            left = before | left | {"role": role}
        written.append({"role": role} | left | {"content": content})
    return written


def _after_results(block: Wire) -> bool:
    return block.get("type") != "tool_result"


def _role(message: Message) -> str:
    return "assistant" if message.role == "assistant" else "user"


def _blocks(message: Message, load: Load | None) -> list[Wire]:
    parts: Iterable[Part] = message.parts
    if message.role in ("system", "assistant"):
        parts = map(_in_words, parts)
    return sendable(write_block(part, load) for part in parts)


def _in_words(part: Part) -> Part:
    return Text(files.described(part)) if isinstance(part, Media) else part


def from_wire(messages: Any, system: Any = None) -> list[Message]:
    """Messages from the `messages` of a request and its `system`.

    >>> call = {"type": "tool_use", "id": "c1", "name": "find", "input": {"id": 7}}
    >>> from_wire([{"role": "assistant", "content": [call]}])[0].calls[0].arguments
    '{"id":7}'
    """
    found: list[Message] = []
    if system is not None:
        content, _ = _read_content(system, "system", f"{NAME}, system")
        found.append(Message("system", content))
    brings_results = False
    for number, data in enumerate(a_list(messages, f"messages of {NAME}"), 1):
        what = f"{NAME}, message {number}"
        message = _read(an_object(data, what), what, first=number == 1, after=brings_results)
        brings_results = bool(message.results)
        found.append(message)
    return found


def _read(wire: Wire, what: str, *, first: bool, after: bool) -> Message:
    given = a_text(wire, "role", what)
    role = _ROLES.get(given, "user")
    if "content" not in wire:
        raise BadInput(f"{what}: expected a field 'content', found {sorted(wire)!r:.80}")
    content, hints = _read_content(wire["content"], role, what)
    message = Message(role, content)
    # Written otherwise without the hint: first without the user, in `system`, with those before it.
    moves = (role == "assistant" and first) or role == "system" or (after and message.results)
    if given != role or moves:
        hints["role"] = given
    return replace(message, extra=left_over(NAME, wire, "role", "content", **hints))


def _read_content(data: Any, role: Role, what: str) -> tuple[str | tuple[Part, ...], Wire]:
    if isinstance(data, str):
        return data, {} if data.strip() else {"content": ""}
    parts = tuple(read_block(block, role, what) for block in a_list(data, f"{what}, content"))
    are_results = [isinstance(part, ToolResult) for part in parts]
    if not parts or are_results != sorted(are_results, reverse=True):
        return parts, {"content": "in order"}
    return parts, {}
