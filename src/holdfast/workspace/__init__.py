"""The workspace: readable files, the face of the log, and the harness that works on them.

Everything here is loaded when it is asked for: most tasks need none of it.

>>> from holdfast import workspace
>>> workspace.init.__name__
'init'

Public, by the names in `__all__`. It uses `agent`, `api` and everything below. Read `projecting`
first for readable files, `harness` for missions, `once` for scripts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.workspace.harness import Agent, AgentFailed, Means, Next, init, loop, next_item

__all__ = ["Agent", "AgentFailed", "Means", "Next", "init", "loop", "next_item"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("holdfast.workspace.harness"), name)


def __dir__() -> list[str]:
    return __all__
