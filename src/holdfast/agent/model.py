"""What a model is to an agent: a function from a `Request` to a `Reply`.

The adapters (`holdfast.agent.adapters`) make one of a provider's client; a test, or anybody else,
writes one by hand.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from msgspec import Struct

from holdfast.agent.messages import Message
from holdfast.artifacts import Artifact
from holdfast.usage import Usage

Stop = Literal["end", "tool_calls", "length", "refusal", "other"]
"""Why a model stopped: it was done, it asks for calls, it was cut off, it won't."""


class ToolInfo(Struct, frozen=True):
    """What a model is told of a tool: its name, what it does, and the JSON schema of its input."""

    name: str
    description: str
    parameters: dict[str, Any]


class Request(Struct, frozen=True):
    """What a model is asked: exactly what it sees, apart from how a provider writes it."""

    messages: tuple[Message, ...]
    tools: tuple[ToolInfo, ...] = ()
    load: Callable[[Artifact], bytes] | None = None
    """How the bytes of images and files that were stored are had."""


class Reply(Struct, frozen=True, omit_defaults=True):
    """What a model answered."""

    message: Message
    usage: Usage = Usage()
    stop: Stop = "end"
    model: str = ""
    id: str = ""


Model = Callable[[Request], Reply | Awaitable[Reply]]
