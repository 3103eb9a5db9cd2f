"""Doors to rooms that are built on top of `Holdfast`: sessions, memories, readable files.

`Holdfast` offers them, and they need `Holdfast`. Imported from here, each would import the other.
So `holdfast/__init__.py`, which knows every room, names the module behind each door, and `door`
loads that module when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_behind: dict[str, str] = {}


def lead_to(**modules: str) -> None:
    """Say which module is behind each door."""
    _behind.update(modules)


def door(name: str) -> Any:
    """The module behind a door."""
    return import_module(_behind[name])
