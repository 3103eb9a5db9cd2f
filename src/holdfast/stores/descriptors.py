"""The open logs of a store: a bounded number, however many tasks it holds.

A log is opened when its task is taken hold of and, should its descriptor have been closed since,
when it is next appended to. One that somebody is using is not closed: who uses it has one of its
two locks. One with writes that were not synced is synced first, for a failure that nobody was told
of before the file was closed may be told to nobody after it.
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

_FEWEST, _MOST = 8, 4096


class Open(Protocol):
    """A log that is open."""

    writing: threading.Lock
    syncing: threading.Lock
    used: bool
    """Set by every use."""

    def is_clean(self) -> bool:
        """Whether everything that was written was synced."""


O = TypeVar("O", bound=Open)  # noqa: E741


def share_of_limit() -> int:
    """A quarter of the files that this process may open: the rest is for what the tasks do."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if limit == resource.RLIM_INFINITY else max(_FEWEST, min(_MOST, limit // 4))


class Descriptors(Generic[O]):
    """The logs that are open, in the order in which they were last found to be in use."""

    def __init__(self, close: Callable[[O], None]) -> None:
        self._close = close
        self._open: dict[O, None] = {}
        self._lock = threading.Lock()
        self._most = share_of_limit()

    def add(self, log: O) -> None:
        """Count a log that was just opened, and close others if there are too many."""
        with self._lock:
            self._open[log] = None
            chosen = self._chosen() if len(self._open) > self._most else []
        for other in chosen:
            self._shut(other)

    def _shut(self, log: O) -> None:
        # Taken by `with`, so that an interrupt can't leave them locked. We hardly wait for them, as
        # both were free; and whoever has taken them since does not wait for us: it would have found
        # our log in use.
        with log.writing, log.syncing:
            self._close(log)
            self.remove(log)

    def remove(self, log: O) -> None:
        """Count a log no more."""
        with self._lock:
            self._open.pop(log, None)

    def __iter__(self) -> Iterator[O]:
        return iter(list(self._open))

    def _chosen(self) -> list[O]:
        """Logs to be closed, of which none is in use: a good many that cost nothing, or one that
        has to be synced first."""
        room = max(1, self._most // 8)
        chosen: list[O] = []
        for log in list(self._open):
            if log.used:  # since it was last looked at: it gets another round
                log.used = False
                del self._open[log]
                self._open[log] = None
            elif log.is_clean() and _is_free(log):
                chosen.append(log)
                if len(chosen) == room:
                    break
        return chosen or next(([log] for log in self._open if _is_free(log)), [])


def _is_free(log: Open) -> bool:
    return not log.writing.locked() and not log.syncing.locked()
