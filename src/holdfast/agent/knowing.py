"""What `Holdfast` knows beyond tasks and sessions."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from holdfast.engines.holding import Holding

if TYPE_CHECKING:
    from holdfast.agent.memory import Memory


class Knowing:
    """The part of `Holdfast` that remembers."""

    _holding: Holding

    @cached_property
    def memory(self) -> Memory:
        """The long-term memory: short entries that outlive sessions, found by what they say.

        >>> from holdfast import Holdfast
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.memory.remember("Ada wants a quiet room", user="ada")
        ...     hf.memory.search("which rooms are quiet?")[0].entry.text
        'Ada wants a quiet room'
        """
        from holdfast.agent.memory import open_memory

        holding = self._holding
        return open_memory(holding.store, holding.owner, holding.clock, holding.redact)
