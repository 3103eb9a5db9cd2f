"""Waiting for something to happen in a store.

A store that many processes share may tell of news: it then has one method more than the port asks
for, which returns True as soon as facts have changed or a message was left, or, of `lines`, when
anything was appended at all. With any other store one looks again from time to time, and with
those that tell one does so too, only not so often: a process that dies tells nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from holdfast.store import Store


@runtime_checkable
class TellsNews(Protocol):
    """A store that tells of news."""

    def wait_for_news(self, timeout_s: float, *, lines: bool = False) -> bool:
        """Wait until there is news that the calling thread has not been told of; False if none."""


def pause(store: Store, seconds: float, *, lines: bool = False) -> None:
    """Wait until it is worth to look again: for so long, or until there is news."""
    if isinstance(store, TellsNews):
        store.wait_for_news(seconds, lines=lines)
    else:
        time.sleep(seconds)
