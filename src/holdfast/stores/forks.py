"""What a process that was forked must not share with its parent: connections, locks, threads."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """A store with connections."""

    def start_anew(self) -> None:
        """Forget every connection, lock and lease, without touching them: they are the parent's."""


_open: WeakSet[Forkable] = WeakSet()


def start_anew_in_children(store: Forkable) -> None:
    """Let a store start anew in every process that is forked from now on."""
    _open.add(store)


def _start_anew() -> None:
    for store in list(_open):
        store.start_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
