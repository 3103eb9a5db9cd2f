"""What was known of a task when an event came: for those who tell of the event."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from msgspec import Struct

from holdfast.state import UNDO, Call, State

Fields = dict[str, Any]
"""Of an `Entry`, with values as the log has them."""

Tell = Callable[[Any, "Seen"], Fields]


class Seen(Struct):
    """What was known when an event came: the state after it, and what is left of that before."""

    state: State
    owner: str = ""
    epoch: int = 0
    let_go: bool = False
    """Whether who held it had let go of it, or it had ended."""
    approved: dict[str, tuple[str, datetime]] = {}
    """By the path of a call: who approved it, and when."""

    def call(self, path: str) -> Call | None:
        """The call of a path; a part of it, such as its approval, has its own."""
        return self.state.calls.get(path)

    def by(self, who: str) -> str:
        """Who is named, else the process that drives the task."""
        return who or self.state.owner

    def about(self, path: str) -> Fields:
        """What is known of a call."""
        call = self.call(path)
        known = {"name": call.name, "kind": call.kind} if call is not None else {}
        return {"path": path, **known, "of": _undoes(path)}


def _undoes(path: str) -> tuple[str, ...]:
    scope, _, call = path.partition(".")
    return (call.replace("/", "."),) if scope == UNDO and call else ()
