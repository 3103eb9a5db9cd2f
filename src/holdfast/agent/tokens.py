"""How many tokens a message takes: counted, or estimated where that can't be.

A counter is asked for every message that may go into a context, so it has to be quick, and it may
not need a network. Providers count in ways of their own, so every count is a good guess; what they
report afterwards makes it a better one (`calibrate`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Protocol

from holdfast.agent.messages import Media, Message, Part, Text, ToolCall, ToolResult
from holdfast.errors import BadInput

PER_MESSAGE = 8
"""What a message takes besides its content: its role, and the marks around it."""

PER_PART = 4
"""What a part takes besides its text."""

PER_MEDIA = 1600
"""What an image takes, about the most that providers ask for one of usual size."""

LEAST_RATIO, GREATEST_RATIO = 0.25, 4.0


class Counter(Protocol):
    """Counts the tokens of a message. The name tells counts of one kind from those of another."""

    @property
    def name(self) -> str:
        """What it is called."""

    def count(self, message: Message) -> int:
        """How many tokens a message takes."""


class Estimate:
    """An estimate that needs nothing, and is rather too high than too low.

    A run of plain letters is a token for each three of them (whole words are mostly one to two); a
    digit, a mark or a letter with an accent is one of its own; so is a letter of any script beyond
    the Latin, Greek and Cyrillic ones for each byte and a half, and an emoji for each byte. Spaces
    go with what follows; only a run of them counts.

    >>> from holdfast.agent.messages import user
    >>> Estimate().count(user("Where is my order?"))
    20
    """

    name = "estimate"

    def count(self, message: Message) -> int:
        """How many tokens a message takes, at the most."""
        return counted(message, estimated)


def estimated(text: str) -> int:
    """How many tokens a text takes, at the most.

    >>> estimated("order"), estimated("1234"), estimated("日本"), estimated("🎈")
    (2, 4, 4, 4)
    """
    raise NotImplementedError


class Tiktoken:
    """Counts with the tokens of OpenAI's models, by the `tiktoken` library.

    Given an encoding, or the name of a model. By name, its data is loaded when it is first needed,
    which takes a network unless they are at hand.

    >>> import tiktoken
    >>> from holdfast.agent.messages import user
    >>> bytes_only = tiktoken.Encoding(
    ...     "bytes", pat_str=r"[\\s\\S]", mergeable_ranks={bytes([n]): n for n in range(256)},
    ...     special_tokens={},
    ... )
    >>> Tiktoken(bytes_only).count(user("Hi"))
    14
    """
