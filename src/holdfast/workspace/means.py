"""What the harness is given, and what it says: the agent and how to run it, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from holdfast.errors import HoldfastError

Agent = str | Callable[[str], Any]
"""A command, or a function that is given the prompt and returns what it has to say."""

What = Literal["planned", "did", "failed", "nothing", "blocked", "done"]
"""The plan was written; an item was done, or failed; others are at work; only failed ones are
left; everything is done."""

BUDGET_TOKENS = 16_000


class Next(Struct, frozen=True):
    """What one call of `next_item` came to, and how many items are left.

    >>> Next("did", left=2, item="1", text="sweep").what
    'did'
    """

    what: What
    left: int
    item: str = ""
    text: str = ""
    said: str = ""
    problems: tuple[str, ...] = ()
    """What is wrong with files that people edited; it goes on by what they said before."""


class Means(Struct, frozen=True):
    """How the agent is run.

    >>> Means("assistant -p", Path("project"), timeout_s=1800).budget_tokens
    16000
    """

    agent: Agent
    folder: Path
    budget_tokens: int = BUDGET_TOKENS
    timeout_s: float | None = None
    beside: tuple[Path, ...] = ()
    """Folders that are not the agent's: where the store is."""
    files: Path | None = None
    """Where the mission's own readable files are, which people may edit."""
    git: bool = False
    """Whether what an item changed is committed to the repository of the folder."""


class AgentFailed(HoldfastError):
    """An agent ended with an error, or said nothing that can be used.

    >>> issubclass(AgentFailed, HoldfastError)
    True
    """
