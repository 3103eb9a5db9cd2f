"""Whether a store tells the truth of its logs: what it tells is compared with what they say.

Lists and workers go by what a store tells of a log without reading it (its `Facts`). That is a
copy, and a store notices by itself when it is out of date. A copy that is wrong in another way,
because somebody edited it or a program wrote it wrongly, would be believed for ever, and a task
that it calls completed would be driven by nobody. So `holdfast doctor` compares all of it, and
each worker a little at a time, and the store is given the truth to remember.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import msgspec
from msgspec.structs import asdict, replace

from holdfast.core.events import NEVER, TaskCompleted, TaskErrored, TaskStopped
from holdfast.core.kinds import TASK, id_of
from holdfast.core.state import FINISHED
from holdfast.errors import HoldfastError, StoreError
from holdfast.log.reading import newest_event
from holdfast.log.states import Folded, facts_in, lines_of, load_any
from holdfast.log.store_calls import facts_of_all
from holdfast.stores.port import Facts, Store

_AT_ONCE_S = 0.02
"""How long a worker compares at a time; at least one log."""
_REST = 100
"""How many times as long it then does other things."""
_ROUND_S = 60.0
"""When all was compared, how long it takes at least until that begins anew."""


class Patrol:
    """Compares the tasks of a store with their logs, a little with every step.

    A log found right is read again only when the store tells something else of it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._right: dict[str, int] = {}
        """By stream, a hash of what was told of it and found right."""
        self._todo: Iterator[tuple[str, Facts]] = iter(())
        self._is_over = True
        self._next_at = self._round_at = 0.0

    def step(self) -> list[str]:
        """Go on, if it is time; returns what was wrong, in words, and is right from now on."""
        begun = time.monotonic()
        if begun < self._next_at or (self._is_over and begun < self._round_at):
            return []
        wrong: list[str] = []
        try:
            if self._is_over:
                self._begin()
                self._round_at = begun + _ROUND_S
            for stream, told in self._todo:
                wrong += self._compared(stream, told)
                if time.monotonic() - begun > _AT_ONCE_S:
                    break
            else:
                self._is_over = True
        except HoldfastError:  # the store can't be reached, which its worker is told soon enough
            self._is_over = True
        now = time.monotonic()
        self._next_at = now + _REST * (now - begun)
        return wrong

    def _begin(self) -> None:
        told = [
            (stream, facts) for stream, facts in facts_of_all(self._store, TASK.prefix) if facts
        ]
        self._right = {stream: self._right.get(stream, 0) for stream, _ in told}
        new = [each for each in told if self._right[each[0]] != _hash(each[1])]
        # From anywhere: so that a worker which never lives long gets everywhere in the end.
        start = random.randrange(len(new)) if new else 0
        self._todo, self._is_over = iter(new[start:] + new[:start]), False

    def _compared(self, stream: str, told: Facts) -> list[str]:
        try:
            if not _has_ended_as_told(self._store, stream, told):
                state = load_any(self._store, stream)
                if _difference(told, facts_in(state)):
                    return self._corrected(stream, told, state)
        except StoreError:  # a worker that looks at it says so
            return []
        self._right[stream] = _hash(told)
        return []

    def _corrected(self, stream: str, told: Facts, state: Folded) -> list[str]:
        wrong = differs(self._store, stream, told, state)
        if not wrong:  # it goes on meanwhile: the next round tells
            return []
        self._store.remember(stream, facts_in(state), lines_of(state))
        return [f"{id_of(stream)}: the store was wrong about it: {wrong}"]


def differs(store: Store, stream: str, told: Facts, state: Folded) -> str:
    """In which way a store tells something else of a log than it says, in words; "" if it does not.

    `state` is what the log came to when it was read, after the store told.
    """
    if not state.seq or not _difference(told, facts_in(state)):
        return ""
    # It may have gone on since, or be under way: then its driver tells the store.
    now = dict(facts_of_all(store, stream)).get(stream)
    if now is None or store.holder(stream) is not None:
        return ""
    if load_any(store, stream).seq != state.seq:
        return ""
    return _difference(now, facts_in(state))


def _difference(told: Facts, facts: Facts) -> str:
    # When it was updated is known to the store only as often as it was told something.
    said, right = (asdict(replace(each, updated_at=NEVER)) for each in (told, facts))
    different = [name for name in said if said[name] != right[name]]
    return "; ".join(
        f"{_NAMES.get(name, name)} is {_text(said[name])}, and {_text(right[name])} by its log"
        for name in different
    )


_NAMES = {"task": "type"}


def _text(value: object) -> str:
    return repr(value) if isinstance(value, str | dict) else str(value)


def _has_ended_as_told(store: Store, stream: str, told: Facts) -> bool:
    """Whether an ended task was told to be that. Most are, and one event shows it."""
    ends = {"completed": TaskCompleted, "failed": TaskErrored, "cancelled": TaskStopped}
    if told.status not in FINISHED or told.wake_at is not None:
        return False
    return isinstance(newest_event(store, stream), ends[told.status])


def _hash(facts: Facts) -> int:
    return hash(msgspec.json.encode(facts))
