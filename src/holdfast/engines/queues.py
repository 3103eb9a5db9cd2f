"""Queues in a store: their declarations, the log of their places, and how tasks enter them.

A declaration is a value in the namespace `holdfast.queues`, so it is kept, copied and archived as
other values are. The places are a log of their own (`core.queues.QueuePlaces`): every worker that
takes one for a task, or gives one back, adds an event to it under the lease of that log, so nobody
counts places that somebody else is taking. The log is begun anew when it has grown long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.decoding import decoder
from holdfast.core.events import FORMAT, PlacesChanged, QueueTurned
from holdfast.core.facts import Facts
from holdfast.core.queues import (
    KEY,
    QUEUE,
    QUEUES,
    Queue,
    QueuePlaces,
    advance,
    begun_with,
    checked_priority,
    checked_queue_name,
    ticket_for,
)
from holdfast.core.state import FINISHED
from holdfast.core.words import must_be_texts
from holdfast.errors import BadInput, LeaseLost, TaskBusy
from holdfast.log.ledger import Ledger
from holdfast.log.namespaces import Namespace, OtherVersion, namespace_of
from holdfast.log.states import load
from holdfast.log.store_calls import streams_in

if TYPE_CHECKING:
    from holdfast.engines.holder import Holding
    from holdfast.engines.local.tasks import Driving, TaskOptions
    from holdfast.stores.port import Store

NAMESPACE = "holdfast.queues"
SINGLES = "holdfast.singletons."
_LONGEST_LOG = 2000
_LIST_EVERY_S = 30.0
_APPEARS_S = 5.0
"""How long a task may take to appear whose id was noted as the only one of its key."""


_load_id = decoder(str)

# Declarations


class DeclaredQueue(Struct, frozen=True, omit_defaults=True):
    """A queue as it is kept in the store."""

    queue: Queue
    number: int
    paused: bool = False
    by: str = ""
    because: str = ""


_load_declared = decoder(DeclaredQueue)


def _values(holding: Holding, name: str = NAMESPACE) -> Namespace:
    return namespace_of(holding.store, name, holding.owner, holding.clock)


def declared_queues(holding: Holding) -> dict[str, DeclaredQueue]:
    """The queues of a store, by name."""
    values = _values(holding)
    found = (_declared(values.bytes_of(kept)) for kept in values.find_all("queue/"))
    return {each.queue.name: each for each in found}


def declared_queue(holding: Holding, name: str) -> DeclaredQueue:
    """The queue of that name. `BadInput` if nobody has declared it."""
    values = _values(holding)
    for kept in values.find([f"queue/{checked_queue_name(name)}"]).values():
        return _declared(values.bytes_of(kept))
    known = ", ".join(sorted(declared_queues(holding))) or "none"
    raise BadInput(
        f"there is no queue {name!r} in {holding.store.url} (there: {known}): "
        f"declare it by hf.queue(Queue({name!r}, concurrency=…)), or holdfast queue set"
    )


def _declared(data: bytes) -> DeclaredQueue:
    return _load_declared(data)


def declare_queue(holding: Holding, queue: Queue) -> DeclaredQueue:
    """Keep a queue in the store; one of that name gets the new limits and keeps its tasks."""
    if not isinstance(queue, Queue):
        raise BadInput(f"hf.queue({queue!r:.60}) takes a Queue, or the name of one")
    number: int | None = None

    def change(old: DeclaredQueue | None) -> DeclaredQueue:
        nonlocal number
        if old is not None:
            return replace(old, queue=queue)
        number = _new_number(holding, queue.name) if number is None else number
        return DeclaredQueue(queue, number)

    made = _change(holding, queue.name, change)
    if number is not None and made.number != number:  # somebody else declared it a moment ago
        _values(holding).delete([f"number/{number}"])
    return made


def pause_queue(
    holding: Holding, name: str, *, paused: bool, by: str = "", because: str = ""
) -> DeclaredQueue:
    """Start no more tasks of a queue, or go on; those under way are left alone."""
    must_be_texts("a queue", by=by, because=because)
    declared_queue(holding, name)

    def change(old: DeclaredQueue | None) -> DeclaredQueue:
        if old is None:
            raise BadInput(f"there is no queue {name!r}")
        return replace(old, paused=paused, by=by or holding.owner, because=because)

    return _change(holding, name, change)


def _change(
    holding: Holding, name: str, change: Callable[[DeclaredQueue | None], DeclaredQueue]
) -> DeclaredQueue:
    values, key = _values(holding), f"queue/{name}"
    while True:
        kept = values.find([key]).get(key)
        old = None if kept is None else _declared(values.bytes_of(kept))
        new = change(old)
        if new == old:
            return new
        try:
            values.put(
                {key: msgspec.json.encode(new)}, expected=0 if kept is None else kept.version
            )
            return new
        except OtherVersion:
            continue


def _new_number(holding: Holding, name: str) -> int:
    """A number that no other queue has: each stands under a key of its own, put there once."""
    values = _values(holding)
    taken = {int(kept.key.partition("/")[2]) for kept in values.find_all("number/")}
    for number in range(QUEUES):
        if number not in taken:
            try:
                values.put({f"number/{number}": msgspec.json.encode(name)}, expected=0)
                return number
            except OtherVersion:
                continue
    raise BadInput(f"a store has at most {QUEUES} queues: use one queue with keys instead")


# The places of one queue


class KeepsPlaces(Protocol):
    """What a log of places is kept with."""

    @property
    def store(self) -> Store: ...
    @property
    def owner(self) -> str: ...
    @property
    def clock(self) -> Callable[[], datetime]: ...
    @property
    def lease_s(self) -> float: ...


class QueueLog:
    """The places of a queue, as far as its log was read, and the way to change them.

    The log of a limit is in another `room`.
    """

    def __init__(self, holding: KeepsPlaces, name: str, room: str = "queues") -> None:
        self._holding, self._name, self._room = holding, name, room
        self._number = max(self._newest(), 1)
        self._ledger = self._opened()
        self._listed_at = time.monotonic()

    def look(self) -> QueuePlaces:
        """The places now, without waiting for anybody."""
        if time.monotonic() - self._listed_at > _LIST_EVERY_S:
            self._go_to(self._newest())
        state = self._ledger.refresh()
        while state.is_over:
            self._turn()
            state = self._ledger.refresh()
        return state

    def write(
        self, make: Callable[[QueuePlaces], PlacesChanged | None], *, patience_s: float = 0.0
    ) -> bool:
        """Add the event that is made of the newest places; False if it makes none. `TaskBusy` if
        somebody else is at it for longer than `patience_s`."""
        while True:
            must_turn = False

            def guarded(state: QueuePlaces) -> PlacesChanged | QueueTurned | None:
                nonlocal must_turn
                must_turn = state.is_over or not state.seq or state.seq >= _LONGEST_LOG
                if must_turn:
                    return QueueTurned() if state.seq and not state.is_over else None
                return make(state)

            try:
                done = self._ledger.write(guarded, patience_s=patience_s)
            except LeaseLost:  # we were frozen for longer than the lease: nothing was written
                raise TaskBusy(
                    f"the places of {self._name!r} were changed by another worker meanwhile"
                ) from None
            if not must_turn:
                return done
            self._turn()

    def _turn(self) -> None:
        """Begin the log of places, or go on to the next one."""
        before = self._ledger.refresh()
        if before.is_over:
            self._go_to(self._number + 1)
            self._begin(before)
            # A reader that fell behind finds its way by the log before this one, so that stays.
            if self._number > 2:
                self._opened(self._number - 2).delete()
        elif not before.seq and self._newest() > self._number:
            self._go_to(self._newest())
        else:
            self._begin(QueuePlaces())

    def _begin(self, before: QueuePlaces) -> None:
        now_s = self._holding.clock().timestamp()
        began = begun_with(f"{self._name}/{self._number}", FORMAT, before, now_s)
        self._ledger.write(lambda state: None if state.seq else began)

    def _go_to(self, number: int) -> None:
        self._listed_at = time.monotonic()
        if number > self._number:
            self._number = number
            self._ledger = self._opened()

    def _opened(self, number: int | None = None) -> Ledger[QueuePlaces]:
        return Ledger(
            self._holding.store,
            f"{self._room}/{self._name}/{number or self._number}",
            self._holding.owner,
            self._holding.clock,
            new=QueuePlaces,
            advance=advance,
            facts=_facts,
            lease_s=self._holding.lease_s,
        )

    def _newest(self) -> int:
        prefix = f"{self._room}/{self._name}/"
        ends = (s.removeprefix(prefix) for s in streams_in(self._holding.store, prefix))
        return max((int(end) for end in ends if end.isdecimal()), default=0)


def _facts(state: QueuePlaces) -> Facts:
    return Facts(status="open", created_at=state.created_at, updated_at=state.updated_at)


# How a task enters a queue


def start_in_queue(
    driving: Driving, spec: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: TaskOptions
) -> str:
    """Make a task and leave it in its queue; returns its id, or that of the one that counts."""
    declared = declared_queue(driving.holding, given.queue)
    ready = with_ticket(declared, given, driving.holding.clock())
    queue = declared.queue
    if queue.singleton is None and queue.debounce_s is None:
        return driving.start(spec, args, kwargs, ready)
    task = driving.starting(spec, args, kwargs, ready)
    named = replace(ready, id=task.task_id)
    return _Single(driving, queue, given.key).start(
        task.task_id, lambda: driving.start(spec, args, kwargs, named)
    )


def with_ticket(declared: DeclaredQueue, given: TaskOptions, now: datetime) -> TaskOptions:
    """The options of a task with its place in the queue."""
    must_be_texts(f"queue {given.queue!r}", key=given.key)
    queue, priority = declared.queue, checked_priority(given.priority)
    not_before = given.not_before
    if queue.debounce_s is not None and not_before is None:
        not_before = now + timedelta(seconds=queue.debounce_s)
    labels = {**(given.labels or {}), QUEUE: queue.name}
    if given.key:
        labels[KEY] = given.key
    ticket = ticket_for(queue, declared.number, given.key, priority)
    return replace(given, ticket=ticket, labels=labels, not_before=not_before)


class _Single:
    """The one task of a key that counts: its id is a value, changed only by its readers."""

    def __init__(self, driving: Driving, queue: Queue, key: str) -> None:
        self._driving, self._queue = driving, queue
        self._key = f"key/{key}"
        self._values = _values(driving.holding, f"{SINGLES}{queue.name}")

    def start(self, id: str, make: Callable[[], str]) -> str:
        while True:
            kept = self._values.find([self._key]).get(self._key)
            before = "" if kept is None else _load_id(self._values.bytes_of(kept))
            if before == id:
                return make()
            if before and kept is not None and self._counts(before, kept.at):
                if self._queue.singleton == "first":
                    return before
                self._end(before, id)
            try:
                self._values.put(
                    {self._key: msgspec.json.encode(id)},
                    expected=0 if kept is None else kept.version,
                )
            except OtherVersion:
                continue
            return make()

    def _counts(self, id: str, since: datetime) -> bool:
        """Whether a task is one of which there may be only one."""
        holding = self._driving.holding
        state = load(holding.store, id, missing_ok=True)
        if not state.seq:  # its id was noted, and it is being made, or its maker died
            return (holding.clock() - since).total_seconds() < _APPEARS_S
        if self._queue.debounce_s is not None:
            return state.status == "pending"
        return state.status not in FINISHED

    def _end(self, id: str, instead: str) -> None:
        from holdfast.engines.control import cancel

        because = f"{instead} was started in its place"
        holding = self._driving.holding
        try:
            if load(holding.store, id, missing_ok=True).seq:
                cancel(holding, id, because, "", wait=False)
        except BadInput:
            pass  # it has ended
