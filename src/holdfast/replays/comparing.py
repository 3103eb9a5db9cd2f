"""Holding a replay against what it replays: what both knew before and after each call."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast.events import (
    NEVER,
    Adopted,
    AnyEvent,
    AttemptFailed,
    Checkpointed,
    Completed,
    Doubted,
    Failed,
    ListGrew,
    Settled,
    Started,
    TaskErrored,
)
from holdfast.fold import advance, fold
from holdfast.fold.task import carried
from holdfast.history import Place
from holdfast.known import Known
from holdfast.replays.retracing import Retraced
from holdfast.replays.script import Script, around
from holdfast.snapshots import Snapshot, Tag, shown_call, tags
from holdfast.state import State
from holdfast.store import Store
from holdfast.values import stow

MOST_DIFFERING = 100
"""How many snapshots that differ are told of."""

_OF_A_CALL = (Started, AttemptFailed, Completed, Failed, Settled, Doubted, Adopted)


class Compared(Struct, frozen=True):
    """How many snapshots were compared, and which of them differ."""

    count: int
    differing: tuple[Tag, ...]


def compared(
    store: Store, aside: Store, found: Retraced, wanted: Sequence[Tag], *, always: bool = False
) -> Compared:
    """Compare the snapshots of a life and of its replay, byte for byte.

    They are the fold of their events. So while those are the same, so are the snapshots, and need
    not be made; `always` makes them all the same. After so many that differ, no more are looked at.
    """
    both = _Both(found.before, store, aside)
    due = iter(wanted)
    tag = next(due, None)
    differing: list[Tag] = []
    count = 0
    for event, others in found.pairs:
        both.advance(event, others)
        while tag is not None and event is not None and tag.seq <= event.seq:
            count += 1
            is_open = len(differing) < MOST_DIFFERING and (always or not both.is_same)
            if is_open and both.differ():
                differing.append(tag)
            tag = next(due, None)
    return Compared(count, tuple(differing))


class _Both:
    """What the log and the replay come to, side by side."""

    def __init__(self, before: State, store: Store, aside: Store) -> None:
        self._recorded, self._replayed = fold((), before), fold((), before)
        self._stores = (store, aside)
        self._is_other = False
        self._other_calls: set[str] = set()

    @property
    def is_same(self) -> bool:
        """Whether they are known to be the same."""
        return not self._is_other and not self._other_calls

    def advance(self, event: AnyEvent | None, others: Sequence[AnyEvent]) -> None:
        """Take a recorded event, and what the replay has in its place."""
        if event is not None:
            advance(self._recorded, event)
        for other in others:
            _advance(self._replayed, other, self._stores[1])
        if len(others) == 1 and others[0] is event:
            return
        together = [event, *others] if event is not None else list(others)
        for each in together:
            if isinstance(each, _OF_A_CALL):
                self._look_at(each.path)
        rest = [
            [each for each in side if not isinstance(each, (*_OF_A_CALL, ListGrew))]
            for side in ([event] if event is not None else [], others)
        ]
        self._is_other = self._is_other or not self._are_same(*rest)

    def _look_at(self, path: str) -> None:
        """Compare one call: with what is known of it, not with how that came to be."""
        views = self._views()
        calls = [view.state.calls.get(path) for view in views]
        shown = [
            None if call is None else shown_call(view, call)
            for view, call in zip(views, calls, strict=True)
        ]
        if shown[0] == shown[1]:
            self._other_calls.discard(path)
        else:
            self._other_calls.add(path)

    def _are_same(self, recorded: Sequence[AnyEvent], replayed: Sequence[AnyEvent]) -> bool:
        if len(recorded) != len(replayed):
            return False
        if any(isinstance(each, Checkpointed) for each in recorded):
            first, second = (view.checkpoint for view in self._views())
            return bool(first == second)
        return [_bare(each) for each in recorded] == [_bare(each) for each in replayed]

    def differ(self) -> bool:
        """Whether their snapshots differ, byte for byte."""
        states = (self._recorded, self._replayed)
        first, second = (
            Snapshot(store, state, Place(state.seq)).to_json()
            for store, state in zip(self._stores, states, strict=True)
        )
        return first != second

    def _views(self) -> tuple[Known, Known]:
        store, aside = self._stores
        return Known(store, self._recorded), Known(aside, self._replayed)


def wanted_tags(newest: State, script: Script, stubbed: set[str]) -> list[Tag]:
    """The snapshots of a life that a replay has to come to: around each call, and at its end.

    What was made inside of a call that a stub answers is not made again.
    """
    life = script.life
    found = [tag for tag in tags(newest) if life.start < tag.seq <= life.last]
    found = [tag for tag in found if stubbed.isdisjoint(around(tag.path))]
    if life.how in ("returned", "raised") and life.end is not None:
        end = Tag(life.last, "", newest.task, "after", life.end.at, newest.status)
        found = [*(tag for tag in found if tag.seq < life.last), end]
    return found


def _advance(state: State, event: AnyEvent, store: Store) -> None:
    if isinstance(event, Checkpointed) and event.carried is not None:
        # Made of what the replay knew when it came by, which is more than what had happened.
        event = replace(event, carried=carried(state, lambda value: stow(store, value)))
    advance(state, event)


def _bare(event: AnyEvent) -> AnyEvent:
    bare = replace(event, seq=0, at=NEVER)
    if isinstance(bare, TaskErrored):  # where it was raised is not what it says
        bare = replace(bare, failure=replace(bare.failure, traceback=""))
    return bare
