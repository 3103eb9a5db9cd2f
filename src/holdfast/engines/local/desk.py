"""Where a worker takes places in queues for tasks, and gives them back.

A place belongs to a task, not to a worker. So a limit holds as long as tasks keep to it, and the
rules that make them are few:

- A worker drives a task of a queue only while it has the lease of the task *and* the newest grant
  of its place. Grants are events in the log of the queue, added under the lease of that log.
- A grant is good for one beginning, within half a lease. A worker that begins the task later, or
  again, asks for the place anew first.
- A grant that was not used yet, and is younger than a lease, is touched by nobody but the worker
  that has it.
- Any other is freed by a worker that has the lease of the task itself: then nobody drives it. So
  the place of a dead worker comes back with the lease of its task, or of the grant.
- A task that is released (it waits for a person, a time, a message) gives its place back, and
  stands in line again when it can go on, by the time at which it came first.

A worker that is frozen for longer than its lease loses its tasks, their places, and every append.
A call that it was in the middle of when it froze can't be stopped: nothing inside one store can.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.events import NEVER, PlacesChanged, Queued, QueuePlace, QueueTicket
from holdfast.core.facts import LONGEST_PAGE, Facts, PagePlace, Query, wake_at
from holdfast.core.queues import (
    KEY,
    LANES,
    QUEUE,
    QUEUES,
    REGION,
    Allowance,
    Queue,
    QueuePlaces,
    lane_at,
    lane_start,
    number_of,
    ticket_for,
)
from holdfast.core.state import FINISHED, HALTED, State
from holdfast.engines.control import cancel
from holdfast.engines.holder import Holding
from holdfast.engines.queues import DeclaredQueue, QueueLog, declared_queues
from holdfast.errors import HoldfastError, TaskBusy
from holdfast.log.log import Log
from holdfast.log.reading import stream_of
from holdfast.log.states import load
from holdfast.stores.port import Store

_TASKS = "tasks/"
_DECLARED_EVERY_S = 0.2
_STRAYS_EVERY_S = 30.0
_AGAIN_S = 0.02
"""How soon to try again when another worker is changing the places of a queue."""
_SPREAD_S = 0.02
"""Over how long the workers are spread that wait for the same moment."""
_KEEPS_S = 0.2
"""For how long, at most, a place is kept that nobody waits for: its queue has a rate alone."""
_MOST_LANES = 64
"""How many lanes are looked at in one go, where none of their tasks may start."""

Wants = Callable[[str, Facts], bool]
"""Whether the worker can and may drive a task."""


class _Mine(Struct):
    """A place that this worker has."""

    queue: str
    by: str
    at: datetime
    facts: Facts
    is_used: bool = False


class Desk:
    """The places that one worker takes and gives back."""

    def __init__(self, holding: Holding, say: Callable[[str], None]) -> None:
        self._holding, self._store, self._say = holding, holding.store, say
        self._id, self._count = os.urandom(4).hex(), 0
        self._mine: dict[str, _Mine] = {}
        self._freed: dict[str, dict[str, str]] = {}
        """The places to give back: by queue the tasks, each with its grant."""
        self._free_by: dict[str, float] = {}
        """By when to give them back. Places that nobody waits for go along with a grant."""
        self._again: dict[str, Facts] = {}
        """The tasks that have a place, and could not be begun yet."""
        self._logs: dict[str, QueueLog] = {}
        self._queues: dict[str, DeclaredQueue] = {}
        self._next_look = self._next_strays = 0.0
        self._next_check = 0.0
        self._asked: dict[str, float] = {}
        """When to ask again about places of others that are old, by their grants."""
        self._old_s = random.uniform(1.0, 1.05) * holding.lease_s
        self._first = 0
        """The queue to begin with: they take turns."""
        self._waiting: set[int] = set()
        """The queues in which tasks wait, by number."""
        self.waits_until: datetime | None = None
        """When a rate allows the next start of a task that waits; None if none waits for that."""
        self.is_busy: bool = False
        """Whether another worker was changing places: then it is soon to be tried again."""

    def wait_s(self) -> float | None:
        """How long to wait with the next look; None if there is no hurry."""
        if self.is_busy or self._again:
            return _AGAIN_S
        soon = [max(at - time.monotonic(), _AGAIN_S) for at in self._free_by.values()]
        if self.waits_until is not None:
            left_s = (self.waits_until - self._holding.clock()).total_seconds()
            soon.append(max(left_s, 0.001) + random.uniform(0.0, _SPREAD_S))
        return min(soon, default=None)

    # Taking places

    def take(self, room: int, wants: Wants) -> list[tuple[str, Facts]]:
        """Give back what has ended, and take places for as many tasks as there is room for."""
        self._refresh()
        self.is_busy, self.waits_until = False, None
        if not self._queues and not self._freed:
            return []
        self._check()
        taken: list[tuple[str, Facts]] = []
        for id, facts in list(self._again.items()):
            if len(taken) < room and wants(id, facts):
                del self._again[id]
                taken.append((id, facts))
        for queue in self._to_serve(room > len(taken)):
            taken += self._serve(queue, room - len(taken), wants)
        return taken

    def _to_serve(self, has_room: bool) -> list[DeclaredQueue]:
        """The queues in which somebody waits, or a place has to be given back; in turns."""
        by_number = {each.number: each for each in self._queues.values()}
        self._waiting = set(waiting_in(self._store, by_number)) if has_room else set()
        numbers = sorted(
            number
            for number, each in by_number.items()
            if self._must_free(each.queue.name) or (number in self._waiting and not each.paused)
        )
        turn = [n for n in numbers if n >= self._first] + [n for n in numbers if n < self._first]
        if turn:
            self._first = turn[0] + 1
        return [by_number[number] for number in turn]

    def _serve(self, declared: DeclaredQueue, room: int, wants: Wants) -> list[tuple[str, Facts]]:
        queue, log = declared.queue, self._log(declared.queue.name)
        freed, must_free = self._freed.get(queue.name, {}), self._must_free(queue.name)
        room = 0 if declared.paused else max(room, 0)
        granted: list[QueuePlace] = []
        search: _Search | None = None

        def make(state: QueuePlaces) -> PlacesChanged | None:
            nonlocal search
            gone = [id for id, by in freed.items() if _is_by(state, id, by)]
            left = _without(state, gone)
            now = self._holding.clock()
            allowance = Allowance(queue, left, now.timestamp(), room)
            search = _Search(self._store, declared, left, allowance, wants, now)
            search.run()
            if declared.number in self._waiting:
                self._note_wait(allowance.waits_until)
            granted[:] = [self._place(id, facts, now) for id, facts in search.picks]
            if not granted and not (gone and must_free):
                return None
            return PlacesChanged(
                taken=tuple(granted), freed=tuple(gone), turn=search.turn,
                ready_at=allowance.ready_at, key_ready=allowance.key_ready,
            )  # fmt: skip

        # Without the lease first: most looks find nothing that they may take.
        if not must_free and make(log.look()) is None:
            self._expire(search, queue)
            return []
        try:
            is_changed = log.write(make)
        except TaskBusy:
            self.is_busy = True
            return []
        if is_changed or must_free:
            self._freed.pop(queue.name, None)
            self._free_by.pop(queue.name, None)
        self._expire(search, queue)
        if not is_changed or search is None:
            return []
        for place, (_, facts) in zip(granted, search.picks, strict=True):
            self._mine[place.task] = _Mine(queue.name, place.by, place.at, facts)
        return search.picks

    def _place(self, id: str, facts: Facts, now: datetime) -> QueuePlace:
        return QueuePlace(id, facts.labels.get(KEY, ""), self._new_grant(), now)

    def _new_grant(self) -> str:
        self._count += 1
        return f"{self._id}-{self._count}"

    def _note_wait(self, until_s: float | None) -> None:
        if until_s is not None:
            until = datetime.fromtimestamp(until_s, UTC)
            self.waits_until = min(until, self.waits_until or until)

    def _expire(self, search: _Search | None, queue: Queue) -> None:
        """Cancel what has waited for too long, by its own log and not by the index alone."""
        for id in search.expired if search is not None else ():
            state = load(self._store, id, missing_ok=True)
            since = state.not_before or state.created_at
            waited_s = (self._holding.clock() - since).total_seconds()
            if not state.seq or state.claims or waited_s <= (queue.expires_s or 0):
                continue
            because = f"it waited in queue {queue.name} for longer than {queue.expires_s:g} s"
            with suppress(HoldfastError):
                cancel(self._holding, id, because, "", wait=False)
                self._say(f"{id}: {because}")

    # Having places

    def has(self, id: str) -> bool:
        """Whether this worker has the place of a task."""
        return id in self._mine

    def confirm(self, log: Log) -> None:
        """Make sure that the place of a task, whose lease we have, is still ours to use."""
        id = log.state.id
        mine = self._mine.get(id)
        if mine is not None and not mine.is_used and not self._is_old(mine.at, 0.5):
            mine.is_used = True
            return
        if mine is None or not self._take_anew(id, mine):
            raise TaskBusy(f"task {id!r}: its place in the queue was given to another worker")

    def _take_anew(self, id: str, mine: _Mine) -> bool:
        def make(state: QueuePlaces) -> PlacesChanged | None:
            place = state.held.get(id)
            if place is None or place.by != mine.by:
                return None
            anew = replace(place, by=self._new_grant(), at=self._holding.clock())
            mine.by, mine.at, mine.is_used = anew.by, anew.at, True
            return PlacesChanged(taken=(anew,), turn=state.turn, ready_at=state.ready_at)

        return self._log(mine.queue).write(make, patience_s=self._holding.lease_s)

    def ended(self, id: str) -> None:
        """Give the place of a task back with the next look: it is not driven any more."""
        mine = self._mine.pop(id, None)
        if mine is not None:
            self._freed.setdefault(mine.queue, {})[id] = mine.by
            declared = self._queues.get(mine.queue)
            can_wait = declared is not None and declared.queue.has_a_rate_alone
            wait_s = _KEEPS_S if can_wait else 0.0
            self._free_by.setdefault(mine.queue, time.monotonic() + wait_s)

    def _must_free(self, name: str) -> bool:
        return self._free_by.get(name, inf) <= time.monotonic()

    def again(self, id: str) -> None:
        """Keep the place of a task that somebody holds for a moment, and begin it later."""
        if (mine := self._mine.get(id)) is not None:
            self._again[id] = mine.facts

    def close(self) -> None:
        """Give back what is left. If that can't be done, others find it when our leases end."""
        for name, freed in list(self._freed.items()):
            with suppress(HoldfastError, OSError):
                self._free(name, freed)
        self._freed.clear()

    def _free(self, name: str, freed: dict[str, str]) -> None:
        def make(state: QueuePlaces) -> PlacesChanged | None:
            gone = tuple(id for id, by in freed.items() if _is_by(state, id, by))
            if not gone:
                return None
            return PlacesChanged(freed=gone, turn=state.turn, ready_at=state.ready_at)

        self._log(name).write(make, patience_s=self._holding.lease_s)

    # Tasks that are due, and have no place

    def admit(self, id: str, facts: Facts) -> str:
        """Have a task that is due stand in line; '' if it does, or why it can't. `TaskBusy` if
        somebody else sees to it.

        It slept, was answered or retried, its time has come, or its driver died.
        """
        self._refresh()
        name = facts.labels.get(QUEUE, "")
        declared = self._queues.get(name)
        if declared is None:
            return f"it waits in queue {name!r}, which is not declared in {self._store.url}"
        with self._holding.hold(id) as log:
            place = self._log(name).look().held.get(id)
            # QueuePlaces are given to tasks in line: of one that is not, the grant was used.
            if place is not None and log.state.in_line and not self._is_old(place.at):
                raise TaskBusy("somebody is about to drive it")
            self._line_up(log, declared)
            if place is not None:
                self._free_as(name, place)
        return ""

    def _line_up(self, log: Log, declared: DeclaredQueue | None) -> None:
        """Record that a task, whose lease we have, stands in line, if it has something to do."""
        state = log.state
        due = wake_at(state)
        ticket = _moved_ticket(state, declared)
        if state.ticket is None or due is None:
            return
        if (due <= log.clock() and not state.in_line) or ticket is not None:
            log.append(Queued(ticket=ticket))
            log.sync()

    def _free_as(self, name: str, place: QueuePlace) -> None:
        """Free a place of somebody else's, while we have the lease of its task."""

        def make(state: QueuePlaces) -> PlacesChanged | None:
            if not _is_by(state, place.task, place.by):
                return None
            return PlacesChanged(freed=(place.task,), turn=state.turn, ready_at=state.ready_at)

        self._log(name).write(make, patience_s=1.0)

    def _check(self) -> None:
        """Free the places of tasks that nobody drives any more, and line up tasks that stand in
        no queue of this store."""
        now, lease_s = time.monotonic(), self._holding.lease_s
        if now >= self._next_check:
            asks: dict[str, float] = {}
            for declared in self._queues.values():
                for place in list(self._log(declared.queue.name).look().held.values()):
                    if place.task not in self._mine:
                        asks[place.by] = self._next_ask(declared, place, now)
            self._asked = {by: at for by, at in self._asked.items() if by in asks}
            soonest = min(asks.values(), default=now + lease_s)
            self._next_check = min(max(soonest, now + 0.01 * lease_s), now + 0.3 * lease_s)
        if time.monotonic() >= self._next_strays:
            self._next_strays = time.monotonic() + _STRAYS_EVERY_S
            self._check_strays()

    def _next_ask(self, declared: DeclaredQueue, place: QueuePlace, now: float) -> float:
        """See to a place of somebody else's once it is as old as a lease; returns when to do so
        again. That is asked soon where somebody else was at it, as many are who ask at once."""
        lease_s = self._holding.lease_s
        age_s = (self._holding.clock() - place.at).total_seconds()
        if age_s <= self._old_s:
            return now + self._old_s - age_s
        if self._asked.get(place.by, now) <= now:
            try:
                self._check_place(declared, place)
                self._asked[place.by] = now + random.uniform(0.3, 0.6) * lease_s
            except TaskBusy:
                self._asked[place.by] = now + 0.05 * lease_s
        return self._asked[place.by]

    def _check_place(self, declared: DeclaredQueue, place: QueuePlace) -> None:
        if self._store.holder(stream_of(place.task)) is not None:
            return
        state = load(self._store, place.task, missing_ok=True)
        if not state.seq:
            self._free_as(declared.queue.name, place)  # it was deleted: nobody can drive it
            return
        with self._holding.hold(place.task) as log:
            if log.state.status not in FINISHED | HALTED:
                self._line_up(log, declared)
            self._free_as(declared.queue.name, place)

    def _check_strays(self) -> None:
        """Line up what came from another store, where its queue has another number."""
        known = {each.number: each.queue.name for each in self._queues.values()}
        for number in range(QUEUES) if self._queues else ():
            page = waiting_page(self._store, number * LANES, (number + 1) * LANES, 20)
            if not page and not waiting_page(self._store, number * LANES, QUEUES * LANES, 1):
                break
            for stream, facts in page:
                name = facts.labels.get(QUEUE, "")
                if name != known.get(number) and name in self._queues:
                    with suppress(TaskBusy), self._holding.hold(_id(stream)) as log:
                        self._line_up(log, self._queues[name])

    # Small things

    def _refresh(self) -> None:
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _DECLARED_EVERY_S
            self._queues = declared_queues(self._holding)

    def _log(self, name: str) -> QueueLog:
        if name not in self._logs:
            self._logs[name] = QueueLog(self._holding, name)
        return self._logs[name]

    def _is_old(self, at: datetime, share: float = 1.0) -> bool:
        return (self._holding.clock() - at).total_seconds() > share * self._holding.lease_s


def _is_by(state: QueuePlaces, id: str, by: str) -> bool:
    place = state.held.get(id)
    return place is not None and place.by == by


def _without(state: QueuePlaces, gone: list[str]) -> QueuePlaces:
    """The places without some, for counting."""
    if not gone:
        return state
    left = replace(state, held=dict(state.held), by_key=dict(state.by_key))
    for id in gone:
        key = left.held.pop(id).key
        left.by_key[key] -= 1
    return left


def _moved_ticket(state: State, declared: DeclaredQueue | None) -> QueueTicket | None:
    """The ticket that a task needs if its queue has another number here."""
    ticket = state.ticket
    if ticket is None or declared is None or number_of(ticket.lane) == declared.number:
        return None
    return ticket_for(declared.queue, declared.number, ticket.key, ticket.priority)


# Looking along the line: by the index of the store alone.


def waiting_in(store: Store, numbers: Iterable[int]) -> Iterator[int]:
    """The numbers of the queues in which a task waits."""
    wanted, at = sorted(numbers), 0
    while at < len(wanted):
        page = waiting_page(store, wanted[at] * LANES, (wanted[-1] + 1) * LANES, 1)
        if not page:
            return
        found = number_of(lane_at(page[0][1].wake_at or REGION))
        if found in wanted:
            yield found
        at = next((n for n, number in enumerate(wanted) if number > found), len(wanted))


def waiting_page(store: Store, first: int, end: int, limit: int) -> Sequence[tuple[str, Facts]]:
    """The tasks that wait in the lanes from `first` to before `end`, in order."""
    last = lane_start(end) - timedelta(microseconds=1)
    place = PagePlace(lane_start(first), "")
    query = Query(prefix=_TASKS, due_by=last, beyond=place, limit=min(limit, LONGEST_PAGE))
    return store.find(query).found


def _id(stream: str) -> str:
    return stream.removeprefix(_TASKS)


class _Search:
    """Looks for the tasks of one queue that go next: lanes in turns, in each the lowest rank."""

    def __init__(
        self,
        store: Store,
        declared: DeclaredQueue,
        state: QueuePlaces,
        allowance: Allowance,
        wants: Wants,
        now: datetime,
    ) -> None:
        self._store, self._number, self._held = store, declared.number, state.held
        self._allowance, self._wants = allowance, wants
        seconds = declared.queue.expires_s
        self._oldest = NEVER if seconds is None else now - timedelta(seconds=seconds)
        self.turn = state.turn
        self.picks: list[tuple[str, Facts]] = []
        self.expired: list[str] = []

    def run(self) -> None:
        """Fill `picks`, as far as the allowance goes."""
        if not self._allowance.left:
            return
        lanes: list[tuple[int, Iterator[tuple[str, Facts]]]] = []
        for lane, waiting in islice(self._lanes(), _MOST_LANES):
            lanes.append((lane, iter(waiting)))
            self._pick(*lanes[-1])
            if not self._allowance.left:
                return
        while lanes and self._allowance.left:
            lanes = [each for each in lanes if self._pick(*each) and self._allowance.left]

    def _pick(self, lane: int, waiting: Iterator[tuple[str, Facts]]) -> bool:
        """Take the first one of a lane that may start; False if there is none."""
        for stream, facts in waiting:
            id, key = _id(stream), facts.labels.get(KEY, "")
            if id in self._held or not self._allowance.left:
                continue
            if facts.created_at < self._oldest and facts.status == "pending":
                self.expired.append(id)
            elif self._allowance.allows(key) and self._wants(id, facts):
                self._allowance.spend(key)
                self.picks.append((id, facts))
                self.turn = lane
                return True
        return False

    def _lanes(self) -> Iterator[tuple[int, list[tuple[str, Facts]]]]:
        """The lanes in which somebody waits, beginning after the one that was served last."""
        first, end = self._number * LANES, (self._number + 1) * LANES
        after = self.turn + 1 if first <= self.turn < end else first
        return chain(self._between(after, end), self._between(first, after))

    def _between(self, first: int, end: int) -> Iterator[tuple[int, list[tuple[str, Facts]]]]:
        # Tasks of the same second are put in order here, so some more of them are read.
        limit = min(len(self._held) + int(self._allowance.left) + 100, LONGEST_PAGE)
        while first < end:
            page = waiting_page(self._store, first, end, limit)
            by_lane: dict[int, list[tuple[str, Facts]]] = {}
            for stream, facts in page:
                by_lane.setdefault(lane_at(facts.wake_at or REGION), []).append((stream, facts))
            for lane, waiting in by_lane.items():
                yield lane, sorted(waiting, key=_place_in_line)
            if len(page) < limit:
                return
            first = max(by_lane) + 1


def _place_in_line(each: tuple[str, Facts]) -> tuple[datetime, datetime, str]:
    stream, facts = each
    return facts.wake_at or REGION, facts.created_at, stream
