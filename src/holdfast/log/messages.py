"""Messages of a conversation, in one format for all providers.

A message has a role and content: a plain text, or parts. The parts are those that providers know,
under one name each; what only one of them knows is kept as it is (`extra`, `Foreign`), so that
nothing is lost on the way to the log and back. See `holdfast.agent.formats` for the way to and
from the wire.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.decoding import NONSENSE, Illegible, decoder
from holdfast.core.events import Said
from holdfast.errors import BadInput
from holdfast.log.artifacts import Artifact, kept, opened
from holdfast.log.values import Blobs, fetch

Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")

Extra = dict[str, dict[str, Any]]
"""Fields that only one provider's format has, by the name of the format: plain JSON data."""


class Text(Struct, frozen=True, omit_defaults=True, tag="text"):
    """A piece of text."""

    text: str
    extra: Extra = {}


class Media(Struct, frozen=True, omit_defaults=True, kw_only=True, tag="media"):
    """An image, a document or a sound: its bytes, or where they are.

    When it is stored, `data` goes to blobs and `artifact` stands for it.
    """

    kind: Literal["image", "file", "audio"]
    media_type: str = ""
    data: bytes | None = None
    url: str = ""
    artifact: Artifact | None = None
    name: str = ""
    extra: Extra = {}


class Thinking(Struct, frozen=True, omit_defaults=True, tag="thinking"):
    """The model's reasoning before it spoke, as far as the provider shows it."""

    text: str
    extra: Extra = {}


class Refusal(Struct, frozen=True, omit_defaults=True, tag="refusal"):
    """A model's word that it won't."""

    text: str
    extra: Extra = {}


class ToolCall(Struct, frozen=True, omit_defaults=True, tag="tool_call"):
    """A call that a model asks for. `arguments` is the JSON it wrote, right or wrong."""

    id: str
    name: str
    arguments: str
    extra: Extra = {}


class ToolResult(Struct, frozen=True, omit_defaults=True, tag="tool_result"):
    """The result of a call, for the model to read."""

    call_id: str
    content: str | tuple[Text | Media | Foreign, ...] = ""
    is_error: bool = False
    extra: Extra = {}


class Foreign(Struct, frozen=True, omit_defaults=True, tag="foreign"):
    """A part that only one provider's format knows. It is kept, and sent to nobody else."""

    format: str
    data: Any


Part = Text | Media | Thinking | Refusal | ToolCall | ToolResult | Foreign


class Message(Struct, frozen=True, omit_defaults=True):
    """One message: who says what. In a conversation it also knows when, and what made it.

    >>> hello = Message("user", "Where is my order?")
    >>> hello.text, hello.calls
    ('Where is my order?', ())
    """

    role: Role
    content: str | tuple[Part, ...] = ""
    name: str = ""
    meta: dict[str, Any] = {}
    """Notes of the code that stores it: plain JSON data, sent to nobody."""
    extra: Extra = {}
    number: int = 0
    """Its place in the conversation, counted from 1; 0 while it is in none."""
    at: datetime | None = None
    task: str = ""
    step: str = ""
    """The task and the step that said it; empty if it was said outside of a task."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The content as parts, also where it is one text."""
        if isinstance(self.content, str):
            return (Text(self.content),) if self.content else ()
        return self.content

    @property
    def text(self) -> str:
        """Its text, without other parts."""
        return "".join(part.text for part in self.parts if isinstance(part, Text | Refusal))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls that it asks for."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The results that it brings."""
        return tuple(part for part in self.parts if isinstance(part, ToolResult))


def system(text: str, **options: Any) -> Message:
    """A message that says how the model is to behave.

    >>> system("Be brief.").role
    'system'
    """
    return Message("system", text, **options)


def user(content: str | Iterable[Part], **options: Any) -> Message:
    """A message of the user.

    >>> user("Hello").text
    'Hello'
    """
    return Message("user", content if isinstance(content, str) else tuple(content), **options)


def assistant(text: str = "", calls: Iterable[ToolCall] = (), **options: Any) -> Message:
    """A message of the model: what it says, and the calls it asks for.

    >>> assistant("Let me look.", [ToolCall("c1", "find_order", '{"id": 7}')]).calls[0].name
    'find_order'
    """
    asked = tuple(calls)
    if not asked:
        return Message("assistant", text, **options)
    return Message("assistant", (*((Text(text),) if text else ()), *asked), **options)


def tool_result(
    call_id: str,
    content: str | Iterable[Text | Media | Foreign],
    *,
    is_error: bool = False,
    **options: Any,
) -> Message:
    """A message that brings the result of a call.

    >>> tool_result("c1", "shipped").results[0].content
    'shipped'
    """
    said = content if isinstance(content, str) else tuple(content)
    return Message("tool", (ToolResult(call_id, said, is_error),), **options)


def turns(messages: Iterable[Message]) -> Iterator[tuple[Message, ...]]:
    """Messages by turn: each message together with the results of the calls in it.

    `BadInput` where calls and results don't pair. A turn is stored, sent, left out and summarized
    as a whole, so no call is ever cut from its result.

    >>> talk = [user("Where?"), assistant("", [ToolCall("c", "look", "{}")]), tool_result("c", "!")]
    >>> [len(turn) for turn in turns(talk)]
    [1, 2]
    """
    turn: list[Message] = []
    open_calls: set[str] = set()
    for message in messages:
        _must_be_content(message)
        _must_be_of_its_role(message)
        if open_calls:
            if not message.results:
                raise BadInput(f"{_shown(message)}: {_unanswered(open_calls)} first")
            turn.append(message)
        else:
            turn = [message]
        for result in message.results:
            if result.call_id not in open_calls:
                raise BadInput(
                    f"{_shown(message)}: a result of the call {result.call_id!r:.60}, which is "
                    f"not open: it comes right after the message that asks for the call, once"
                )
            open_calls.discard(result.call_id)
        if message.calls:
            if open_calls:
                raise BadInput(f"{_shown(message)}: {_unanswered(open_calls)} first")
            open_calls = _ids_of(message)
        if not open_calls:
            yield tuple(turn)
    if open_calls:
        raise BadInput(
            f"{_shown(turn[0])}: {_unanswered(open_calls)}: a message that asks for calls is kept "
            f"together with their results, or not at all"
        )


def _must_be_content(message: Message) -> None:
    """Refuse what is no content in words: types in Python are only a promise."""
    content = message.content
    if isinstance(content, str):
        return
    if not isinstance(content, tuple | list):
        raise BadInput(
            f"a message of role {message.role!r:.60}: its content is a text or parts, "
            f"not {content!r:.60}"
        )
    for part in content:
        if not isinstance(part, Part):
            raise BadInput(f"a message of role {message.role!r:.60}: {part!r:.60} is no part")
        id = part.id if isinstance(part, ToolCall) else getattr(part, "call_id", "")
        if not isinstance(id, str):
            raise BadInput(f"a message of role {message.role!r:.60}: the id {id!r:.60} is no text")
        inner = part.content if isinstance(part, ToolResult) else ""
        if not isinstance(inner, str | tuple | list):
            raise BadInput(f"the result of the call {id!r:.60} is a text or parts: {inner!r:.60}")


def _must_be_of_its_role(message: Message) -> None:
    if message.role not in ROLES:
        raise BadInput(f"a message of role {message.role!r:.60}: it must be one of {ROLES}")
    if message.calls and message.role != "assistant":
        raise BadInput(f"{_shown(message)}: only the assistant asks for calls")
    if message.results and message.role not in ("tool", "user"):
        raise BadInput(
            f"{_shown(message)}: results come from a tool, or with a message of the user"
        )
    if message.role == "tool" and not message.results:
        raise BadInput(f"{_shown(message)}: a message of a tool brings the result of a call")


def _ids_of(message: Message) -> set[str]:
    ids = [call.id for call in message.calls]
    if not all(ids) or len(set(ids)) < len(ids):
        raise BadInput(f"{_shown(message)}: every call needs an id of its own, not {ids!r:.80}")
    return set(ids)


def _unanswered(calls: set[str]) -> str:
    return f"the calls {', '.join(sorted(calls))!r:.80} need their results"


def _shown(message: Message) -> str:
    return f"the {message.role} message {message.text!r:.40}"


def is_valid(messages: Sequence[Message]) -> bool:
    """Whether every call has its result right after it, and the reverse.

    >>> is_valid([tool_result("c1", "shipped")])
    False
    """
    try:
        for _ in turns(messages):
            pass
    except BadInput:
        return False
    return True


# Messages as they are stored: a turn is one value, and what is large goes to blobs.


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
