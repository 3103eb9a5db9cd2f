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


class Prices(Struct, frozen=True, kw_only=True):
    """What a million tokens cost, in any currency.

    >>> Prices(input=3.0, output=15.0).of(Usage(1_000_000, 100_000))
    4.5
    """

    input: float
    output: float
    cached: float | None = None
    """Of input that the provider had at hand; as other input, if not said."""

    def of(self, usage: Usage) -> float:
        """What that usage costs."""
        cached = self.input if self.cached is None else self.cached
        fresh = usage.input_tokens - usage.cached_tokens
        total = (
            fresh * self.input + usage.cached_tokens * cached + usage.output_tokens * self.output
        )
        return total / 1_000_000


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
