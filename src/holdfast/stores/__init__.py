"""The stores that come with Holdfast, and how a URL names one."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.errors import BadInput
from holdfast.store import Store


def open_store(url: str | os.PathLike[str], *, sync: bool = True) -> Store:
    """The store that a URL names: a folder (plain path or `file://`) or `memory://`.

    `sync=False` leaves durability to the operating system: for tests and measurements only.

    >>> open_store("memory://").url
    'memory://'
    """
    text = os.fspath(url)
    if text == "memory://":
        from holdfast.stores.memory import MemoryStore

        return MemoryStore()
    scheme, found, rest = text.partition("://")
    if not found or scheme == "file":
        from holdfast.stores.files import FileStore

        if not (rest if found else text):
            raise BadInput("the store's folder has no name: give a path, as in Holdfast('state')")
        return FileStore(Path(rest if found else text), sync=sync)
    raise BadInput(f"{text!r} names no store Holdfast knows: give a folder, or memory://")
