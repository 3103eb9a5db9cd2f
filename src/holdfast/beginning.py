"""How the driving of a task begins: which one, and what is done to it first."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from holdfast.log import Log
from holdfast.spec import Spec
from holdfast.state import State


class Begin(Struct, frozen=True):
    """A task that is to be driven, and what is done to it first."""

    task_id: str
    spec: Spec
    begin: Callable[[Log], None]
    ends_with: Callable[[State], bool]
    """Whether the recorded end of a task is what the caller asked for."""
    args_hash: str = ""
    engine: str | None = None
    """What is to drive it; None for whatever its log says."""
    continues: bool = False
    """Whether it is let go on if it is paused."""
    reopens: bool = False
    """Whether one that has ended is opened again."""


class Given(Struct, frozen=True, kw_only=True):
    """What `run` and `start` are told about a task besides its arguments."""

    id: str | None = None
    user: str = ""
    session: str = ""
    labels: dict[str, str] | None = None
    parent: str = ""
    parent_path: str = ""
    engine: str = ""
    """The remote engine that is to drive it; '' for none."""
