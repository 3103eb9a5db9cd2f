"""How the store does, as one worker sees it, and what it does about it.

A database restarts, fails over, is away for an hour, is full, or takes no writes for a while. That
is no reason for a worker to end: what was acknowledged is safe, and everything else is done again.
So it waits, for longer each time and never in step with the other workers, says so once, and goes
on by itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from holdfast.core.events import NEVER
from holdfast.core.facts import PagePlace, Query
from holdfast.core.kinds import id_of
from holdfast.core.state import FINISHED
from holdfast.engines.control import tell_parent
from holdfast.engines.execution import is_open_child
from holdfast.engines.holder import Holding
from holdfast.errors import HoldfastError, StorageFailed
from holdfast.log.states import load
from holdfast.stores.port import Store

FAULTS = (StorageFailed, OSError)
"""The errors that are weather: the store, or the way to it, failed. Other errors are about one
task."""

_FIRST_S, _LONGEST_S = 0.1, 2.0
_TRIED_BYTES = 16 * 1024
"""More than the room that is left by chance on a disk that is full."""


def must_take_writes(store: Store) -> None:
    """Return if the store takes a write, else raise why not.

    A database that is full or read-only still answers every question.
    """
    digest = store.put_blob(os.urandom(_TRIED_BYTES))
    with suppress(*FAULTS):  # the role of a worker may not delete blobs: `gc` does
        store.delete_blob(digest, 0.0)


class Weather:
    """Whether the store answered a worker when it last asked, and since when it has not."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._since: float | None = None
        self._tries = 0
        self.why: str = ""
        """Why the store does not answer; '' while it does."""

    @property
    def is_fair(self) -> bool:
        """Whether the store answers: false from the first failure to the next success."""
        return self._since is None

    def fails(self, error: BaseException) -> float:
        """Take notice of a failure; returns for how long to wait before the next try."""
        if self._since is None:
            self._since = time.monotonic()
            self._say(f"the store does not answer: waits, and tries again by itself ({error})")
        self.why = str(error)
        self._tries += 1
        longest = min(_FIRST_S * 2 ** min(self._tries, 10), _LONGEST_S)
        from random import uniform  # seldom needed, and slow to import

        return uniform(longest / 2, longest)  # not all at once

    def clears(self) -> bool:
        """Take notice that the store answered; True if it did not before."""
        if self._since is None:
            return False
        away_s = time.monotonic() - self._since
        self._since, self._tries, self.why = None, 0, ""
        self._say(f"the store answers again, after {away_s:.1f} s: goes on")
        return True


# Wake-ups that were lost: a child ended, and its driver died, or lost the store, before it could
# tell the parent. A worker looks for such pairs too: far back when it starts or has lost the store,
# and else only at what ended a moment ago.


_FAR_BACK, _MOMENT = timedelta(minutes=15), timedelta(seconds=15)
_EVERY_S = 3.0
_AT_ONCE, _MOST_PAGES, _MOST_KNOWN = 200, 10, 10_000


class WakeUps:
    """Finds parents that wait for a child which has ended, and tells them."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self._next = 0.0
        self._is_behind = True
        self._known: dict[str, None] = {}

    def look_far_back(self) -> None:
        """The next look goes further back: some may have been lost."""
        self._is_behind = True
        self._next = 0.0

    def step(self) -> None:
        """Look, if it is time to."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EVERY_S
        waiting: dict[str, list[str]] = {}
        for child, parent in self._ended():
            waiting.setdefault(parent, []).append(child)
        for parent, children in waiting.items():
            self._tell(parent, children)
        self._is_behind = False
        if len(self._known) > _MOST_KNOWN:
            self._known = dict.fromkeys(list(self._known)[-_MOST_KNOWN // 2 :])

    def _ended(self) -> list[tuple[str, str]]:
        """The children that have ended of late and were not looked at yet, each with its parent."""
        store, now = self._holding.store, self._holding.clock()
        span = _FAR_BACK if self._is_behind else _MOMENT
        since = now - span if now - NEVER > span else NEVER
        found: list[tuple[str, str]] = []
        beyond = None
        for _ in range(_MOST_PAGES):
            page = store.find(
                Query(
                    status=tuple(sorted(FINISHED)),
                    updated_after=since,
                    limit=_AT_ONCE,
                    beyond=beyond,
                )
            )
            found += [
                (id_of(stream), facts.parent)
                for stream, facts in page.found
                if facts.parent and id_of(stream) not in self._known
            ]
            if not page.more:
                break
            stream, facts = page.found[-1]
            beyond = PagePlace(facts.created_at, stream)
        return found

    def _tell(self, parent: str, children: list[str]) -> None:
        store = self._holding.store
        try:
            state = load(store, parent, missing_ok=True)
            if state.status not in FINISHED and not state.driver:
                waited_for = {call.child for call in state.calls.values() if is_open_child(call)}
                for child in waited_for.intersection(children):
                    tell_parent(self._holding, load(store, child, missing_ok=True))
        except FAULTS:
            raise
        except HoldfastError:  # it can't be read: its driver says so
            pass
        self._known.update(dict.fromkeys(children))
