"""Queues: what they promise, who is next, and how many may be served now. Nothing here acts.

**Who is next** is found by the index of the store alone, which knows of each task when it wakes. A
task that waits in a queue wakes at a time that never comes, in the years after 2200: it says where
the task stands. Every queue has a number, and in it every key has a lane:

    2200 + (number * LANES + lane of the key) * 2^31 µs + rank

The rank is when the task came, in seconds, less what its priority is worth. So the first task of a
lane, and the next lane that is not empty, are each one step in an index, whatever waits elsewhere.
Lanes take turns, so that keys do; within a lane the lowest rank goes first. Nothing has to be
changed as a task grows older, because all of them do.

**How many** may be served is counted in the log of the queue's places: see `engines.queues` (the
log) and `engines.local.desk` (who takes places).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from math import ceil, floor, inf
from typing import Literal

from msgspec import Struct

from holdfast.core.events import (
    NEVER,
    AnyEvent,
    PlacesChanged,
    QueueBegan,
    QueuePlace,
    QueueTicket,
    QueueTurned,
)
from holdfast.core.words import LONGEST_ID, must_be_texts
from holdfast.errors import BadInput, LogDamaged

REGION = datetime(2200, 1, 1, tzinfo=UTC)
"""Where the times begin that no clock reaches."""
QUEUES, LANES = 1 << 8, 1 << 18
_SPAN = 1 << 31
_EPOCH = datetime(2020, 1, 1, tzinfo=UTC)

QUEUE, KEY = "queue", "queue_key"
"""The labels that every task of a queue has, so that it is found by them."""


# The declaration of people.


class Rate(Struct, frozen=True, omit_defaults=True):
    """`count` starts in every `per_s` seconds, evenly spread.

    `burst` is how many may start at once after a quiet time. Without it that is a twentieth of
    `count`, or what comes together in a tenth of a second: no span of time sees many more starts
    than its share.

    >>> Rate(100, per_s=60).spacing_s
    0.6
    """

    count: float
    per_s: float = 1.0
    burst: int | None = None

    def __post_init__(self) -> None:
        for name in ("count", "per_s"):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise BadInput(f"Rate({name}={number!r:.60}) must be a number")
            if not 0 < number < inf:
                raise BadInput(f"Rate({name}={number!r:.60}) must be above 0")
        if self.burst is not None and (type(self.burst) is not int or self.burst < 1):
            raise BadInput(f"Rate(burst={self.burst!r:.60}) must be a whole number, 1 or more")

    @property
    def spacing_s(self) -> float:
        """The seconds between two starts."""
        return self.per_s / self.count

    @property
    def at_once(self) -> int:
        """How many may start at once after a quiet time."""
        if self.burst is not None:
            return self.burst
        return max(1, ceil(self.count / 20), ceil(0.1 * self.count / self.per_s))

    @property
    def together(self) -> int:
        """How many starts are waited for once the rate is used up, so that one look is for all of
        them: what comes in a tenth of a second, and at most a quarter of what may start at once."""
        return max(1, min(self.at_once // 4, floor(0.1 / self.spacing_s)))

    def since(self, ready_at: float, now_s: float) -> float:
        """The time that a start now counts from.

        Where starts come one by one, each is a little late, as nobody looks all the time. The next
        one makes up for a short delay, or the delays would add up.
        """
        late_s = min(0.1, self.spacing_s / 2) if self.at_once == 1 else 0.0
        return max(ready_at, now_s - late_s)


def rate_of(text: str) -> Rate:
    """The rate that people write as `100/60`. `ValueError` if it is none.

    >>> rate_of("100/60") == Rate(100, per_s=60), rate_of("5") == Rate(5)
    (True, True)
    """
    count, slash, per_s = text.partition("/")
    try:
        number, span_s = float(count), float(per_s) if slash else 1.0
    except ValueError:
        raise ValueError(f"{text!r:.60} is no rate: write 100/60 for 100 in 60 seconds") from None
    return Rate(number, span_s)


class Queue(Struct, frozen=True, omit_defaults=True):
    """The place where tasks wait: how many run at once, how fast they start, and who goes first.

    `concurrency` is how many of its tasks are driven at once, by all workers together, and
    `key_concurrency` how many of one key; `rate` and `key_rate` say how many start in a time. A
    task that waits for a person, a time or a message has no place meanwhile. Keys take turns.
    Within a key the higher `priority` goes first, and each level of it is worth `ageing_s` seconds
    of waiting, so that nothing waits for ever.

    With `singleton`, at most one task of a key is unfinished: the `first` wins and is what a second
    start returns, or the `newest` does and the one before is cancelled. With `debounce_s` a task
    waits that long before it is in line, and `singleton` is about those that have not begun; it is
    `newest` unless said otherwise. A task that has waited for longer than `expires_s` is cancelled.

    >>> Queue("reports", concurrency=10, key_concurrency=2, rate=Rate(100, per_s=60)).name
    'reports'
    """

    name: str
    concurrency: int | None = None
    key_concurrency: int | None = None
    rate: Rate | None = None
    key_rate: Rate | None = None
    ageing_s: float = 60.0
    singleton: Literal["first", "newest"] | None = None
    debounce_s: float | None = None
    expires_s: float | None = None

    def __post_init__(self) -> None:
        checked_queue_name(self.name)
        for name in ("concurrency", "key_concurrency"):
            most = getattr(self, name)
            if most is not None and (type(most) is not int or most < 1):
                raise BadInput(
                    f"queue {self.name!r}: {name}={most!r:.60} must be a whole number, 1 or more"
                )
        for name in ("rate", "key_rate"):
            rate = getattr(self, name)
            if rate is not None and not isinstance(rate, Rate):
                raise BadInput(
                    f"queue {self.name!r}: {name}={rate!r:.60} must be a Rate: Rate(100, per_s=60)"
                )
        for name in ("ageing_s", "debounce_s", "expires_s"):
            seconds = getattr(self, name)
            if seconds is not None and not _is_seconds(seconds):
                raise BadInput(
                    f"queue {self.name!r}: {name}={seconds!r:.60} must be seconds, above 0"
                )
        if self.singleton not in (None, "first", "newest"):
            raise BadInput(
                f"queue {self.name!r}: singleton={self.singleton!r:.60} must be 'first' or 'newest'"
            )

    @property
    def has_a_rate_alone(self) -> bool:
        """Whether nothing but a rate holds its tasks up, so that nobody waits for a place."""
        is_free = self.concurrency is None and self.key_concurrency is None
        return is_free and (self.rate is not None or self.key_rate is not None)


def _is_seconds(number: object) -> bool:
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    return is_number and 0 < number < inf  # type: ignore[operator]


def checked_queue_name(name: object) -> str:
    """The name, if a queue can have it."""
    must_be_texts("a queue", name=name)
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_ID - 50 or not name.isprintable():
        raise BadInput(f"a queue: name={name!a:.60} must be 1 to {LONGEST_ID - 50} characters")
    return name


def checked_priority(priority: object) -> int:
    """The priority, if a task can have it."""
    if type(priority) is not int or not -1000 <= priority <= 1000:
        raise BadInput(f"priority={priority!r:.60} must be a whole number from -1000 to 1000")
    return priority


# Where a task stands.


def ticket_for(queue: Queue, number: int, key: str, priority: int) -> QueueTicket:
    """The ticket of a task that is started now."""
    lane = number * LANES + _lane_of(key)
    return QueueTicket(queue.name, lane, key, priority, priority * queue.ageing_s)


def _lane_of(key: str) -> int:
    # Two keys may share a lane, and then a turn: with a hundred keys in one of fifty queues.
    return int.from_bytes(sha256(key.encode()).digest()[:4]) % LANES if key else 0


def line_time(ticket: QueueTicket, since: datetime) -> datetime:
    """When a task wakes that stands in line since then: see the top of this module."""
    seconds = (since - _EPOCH).total_seconds() - ticket.ahead_s
    rank = min(max(int(seconds), 0), _SPAN - 1)
    return lane_start(ticket.lane) + timedelta(microseconds=rank)


def lane_start(lane: int) -> datetime:
    """The first time of a lane; that of the lane after it ends it."""
    return REGION + timedelta(microseconds=lane * _SPAN)


def lane_at(time: datetime) -> int:
    """The lane that a time is in.

    >>> ticket = ticket_for(Queue("q"), 3, "ada", 0)
    >>> lane_at(line_time(ticket, REGION)) == ticket.lane
    True
    """
    return ((time - REGION) // timedelta(microseconds=1)) // _SPAN


def number_of(lane: int) -> int:
    """The number of the queue that a lane belongs to."""
    return lane // LANES


# The places, as their log tells.


class QueuePlaces(Struct):
    """The places of a queue after the event `seq` of their log."""

    id: str = ""
    seq: int = 0
    created_at: datetime = NEVER
    updated_at: datetime = NEVER
    held: dict[str, QueuePlace] = {}
    """By the id of the task."""
    by_key: dict[str, int] = {}
    turn: int = -1
    ready_at: float = 0.0
    key_ready: dict[str, float] = {}
    is_over: bool = False
    """Whether the log of the next number goes on."""


def advance(state: QueuePlaces, event: AnyEvent) -> None:
    """Change the places, which the caller alone owns, by one event."""
    match event:
        case QueueBegan():
            state.id, state.created_at = event.id, event.at
            for place in event.places:
                _take(state, place)
            state.turn, state.ready_at = event.turn, event.ready_at
            state.key_ready = dict(event.key_ready)
        case PlacesChanged():
            for task in event.freed:
                _free(state, task)
            for place in event.taken:
                _free(state, place.task)
                _take(state, place)
            state.turn, state.ready_at = event.turn, event.ready_at
            state.key_ready.update(event.key_ready)
        case QueueTurned():
            state.is_over = True
        case _:
            what = f"a {type(event).__name__} is no event of a queue"
            raise LogDamaged(f"queues/{state.id}", event.seq, what)
    state.seq, state.updated_at = event.seq, event.at


def _take(state: QueuePlaces, place: QueuePlace) -> None:
    state.held[place.task] = place
    state.by_key[place.key] = state.by_key.get(place.key, 0) + 1


def _free(state: QueuePlaces, task: str) -> None:
    place = state.held.pop(task, None)
    if place is None:
        return
    left = state.by_key.get(place.key, 1) - 1
    if left:
        state.by_key[place.key] = left
    else:
        state.by_key.pop(place.key, None)


def begun_with(id: str, format: int, before: QueuePlaces, now_s: float) -> QueueBegan:
    """The first event of a log that goes on where another one ended."""
    ready = {key: at for key, at in before.key_ready.items() if at > now_s}
    return QueueBegan(
        format=format, id=id, places=tuple(before.held.values()), turn=before.turn,
        ready_at=before.ready_at, key_ready=ready,
    )  # fmt: skip


# How many may be served now.


class Allowance:
    """How many places may be taken, and of which keys: counted down as they are.

    A rate is a time that moves on with each start (the generic cell rate algorithm): when it would
    be used up by `at_once` starts that are evenly spread. One start moves it on by their spacing.
    """

    def __init__(self, queue: Queue, state: QueuePlaces, now_s: float, most: int) -> None:
        self._queue, self._now_s = queue, now_s
        free = inf if queue.concurrency is None else queue.concurrency - len(state.held)
        self.left = max(0, min(most, free))
        self._by_key = dict(state.by_key)
        self.ready_at: float = state.ready_at
        self._all_ready = state.key_ready
        self.key_ready: dict[str, float] = {}
        self.waits_until: float | None = None
        """When a rate allows the next one, if one was refused for that."""
        if queue.rate is not None:
            able, next_at = _starts(queue.rate, self.ready_at, now_s)
            if self.left > able:
                self.left, self.waits_until = able, next_at

    def allows(self, key: str) -> bool:
        """Whether a task of that key may have a place now."""
        if not self.left:
            return False
        most = self._queue.key_concurrency
        if most is not None and self._by_key.get(key, 0) >= most:
            return False
        if self._queue.key_rate is None:
            return True
        able, next_at = _starts(self._queue.key_rate, self._ready(key), self._now_s)
        if not able:
            self.waits_until = min(next_at, self.waits_until or inf)
        return able > 0

    def spend(self, key: str) -> None:
        """Count a place that was taken."""
        self.left -= 1
        self._by_key[key] = self._by_key.get(key, 0) + 1
        if (rate := self._queue.rate) is not None:
            self.ready_at = rate.since(self.ready_at, self._now_s) + rate.spacing_s
        if (rate := self._queue.key_rate) is not None:
            self.key_ready[key] = rate.since(self._ready(key), self._now_s) + rate.spacing_s

    def _ready(self, key: str) -> float:
        return self.key_ready.get(key, self._all_ready.get(key, 0.0))


def _starts(rate: Rate, ready_at: float, now_s: float) -> tuple[int, float]:
    """How many starts a rate allows now, and when it allows the next ones after them.

    >>> _starts(Rate(10, per_s=1, burst=2), 0.0, 100.0), _starts(Rate(10, burst=2), 100.2, 100.0)
    ((2, 100.1), (0, 100.1))
    """
    slack = rate.at_once * rate.spacing_s - max(ready_at - now_s, 0.0)
    able = max(0, floor(slack / rate.spacing_s + 1e-6))
    if able < rate.together:
        able = 0
    used = rate.since(ready_at, now_s) + able * rate.spacing_s
    return able, round(used - (rate.at_once - rate.together) * rate.spacing_s, 6)
