"""The workspace: readable files, the face of the log, and the harness that works on them.

What is here is loaded when it is asked for: most tasks need none of it.

>>> from holdfast import workspace
>>> workspace.init.__name__
'init'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.workspace.harness import init, loop, next_item
    from holdfast.workspace.means import Agent, AgentFailed, Means, Next

__all__ = ["Agent", "AgentFailed", "Means", "Next", "init", "loop", "next_item"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "harness" if name in ("init", "loop", "next_item") else "means"
    return getattr(import_module(f"holdfast.workspace.{home}"), name)


def __dir__() -> list[str]:
    return __all__
