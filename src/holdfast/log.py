"""One task's log, held open by its one writer.

`Log` gives events their place: it counts and seals them, hands the lines to the store, and keeps
the state current. Values that are too large for a line go to a blob first and the line holds a
reference. Many threads may append at once; they wait for each other's syncs together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import UNSET, Raw
from msgspec.structs import replace

from holdfast import chain
from holdfast.codec import Growing, Listing, ListShape
from holdfast.decoding import NONSENSE, Illegible, placed
from holdfast.errors import BadInput, Conflict, LeaseLost, LogDamaged, StoreError
from holdfast.events import (
    AnyEvent,
    Checkpointed,
    Completed,
    Event,
    ListGrew,
    Started,
    dump_event,
    load_event,
)
from holdfast.facts import Facts, facts_of
from holdfast.fold import advance
from holdfast.lists import (
    FEWEST_BYTES,
    FEWEST_COPIED,
    LISTED,
    REFERENCES,
    Lists,
    Place,
    Version,
    count_of,
    form_of,
    listed,
    version_of,
    without_lists,
    without_results,
)
from holdfast.reading import advance_checked, all_lists, since_checkpoint, stream_of
from holdfast.redact import DEFAULT
from holdfast.scope import Scope, given_up
from holdfast.state import State
from holdfast.values import INLINE_BYTES, MAX_VALUE_BYTES, fetch, items_of, stow
from holdfast.waypoints.leaving import Leaving

if TYPE_CHECKING:
    from holdfast.store import Lease, Store

Clock = Callable[[], datetime]
Appended = AnyEvent | Callable[[State], AnyEvent | None]
"""An event, or what makes one of the state as it is at that moment (or none, after all)."""

MAX_LINE_BYTES = 512 * 1024
_WORTH_A_LOOK = 4 * FEWEST_BYTES
"""Long lists are looked for in values of at least this size."""
_RECENT = 16

_INTERRUPTED = Conflict(
    "writing the log was interrupted half-way (by a signal handler that raised?): this run can't "
    "go on; run the task again"
)
"""Stands while the parts of a log's state do not fit each other."""

_ABANDONED = Conflict("what was to be written was left out: nothing more can be")

_HOT = (Started, Completed, ListGrew)
"""Made of what the codec checked, and without a word on how the task stands."""


def _must_fit_a_line(event: AnyEvent, data: bytes) -> None:
    if len(data) > MAX_LINE_BYTES:
        raise BadInput(
            f"a {type(event).__name__} of {len(data):,} bytes is too long to be recorded: texts "
            f"have to be short, and large data is passed as a value (note(text, data))"
        )


def _dumped(event: AnyEvent) -> bytes:
    # What is written must be readable. Starts and results are made of what the codec checked; the
    # fields of other events come from users, and types in Python are only a promise.
    try:
        data = dump_event(event)
        load_event(data)
        _must_fit_a_line(event, data)
    except (*NONSENSE, Illegible) as error:
        raise BadInput(f"a {type(event).__name__} can't be recorded: {error}") from None
    return data


class Attending(Protocol):
    """Who drives the task while its log is held."""

    def hear(self, event: AnyEvent) -> None:
        """An event came from outside."""

    def tick(self) -> None:
        """Time has passed."""


class Holds(Protocol):
    """Who knows for how long a log is held."""

    def is_sure(self) -> bool:
        """Whether nobody can have taken it over."""

    def confirm(self) -> None:
        """Ask the store whether it still is held. `LeaseLost` if not."""


class Log:
    """A task's log while it is being written. Made by `open_log`."""

    def __init__(self, store: Store, lease: Lease, clock: Clock) -> None:
        self.store = store
        self.lease = lease
        self.state = State()
        self.clock = clock
        self.max_value_bytes = MAX_VALUE_BYTES
        self.redact = DEFAULT
        self.attended: Attending | None = None
        self.tenure: Holds | None = None
        """None of a log that nobody looks after: no task is driven by it."""
        self.base = 0
        """How many of its events are those of the log that it is a fork of."""
        self._waypoints = Leaving(store, lease.stream, self.state)
        self._total = chain.ROOT
        self._unwritten: list[bytes] = []
        self.bytes_since_checkpoint = 0
        """How much has to be read to go on from the last whole checkpoint."""
        self.messages = self.seen = 0
        """How many messages from outside it has taken, and how many of them its driver knew of
        when it began."""
        self.waits: list[datetime | None] = []
        """Until when each strand of this run waits that has stopped; None for a person."""
        self._facts: Facts | None = None
        self._is_news = False
        self._lock = threading.Lock()
        self._keeping = threading.Lock()
        self._recent: dict[bytes, tuple[str, int]] = {}
        """The newest longer results, by their bytes: the call, and the event that has them."""
        self.growing = Growing(lambda: self.state.lists)
        """The lists that its driver handed over last."""
        self._broken: BaseException | None = None
        self.flushed = 0
        """Up to which event the store has been given the log."""
        self.synced = 0
        """Up to which event the log is durable."""
        self.newest_word = 0
        """The newest event that is no plain start or result of a call."""

    def load(self) -> None:
        """Read what the stream holds, from its last whole checkpoint on."""
        if self.lease.head == 0:
            return
        for event, total, size in since_checkpoint(self.store, self.lease.stream):
            advance_checked(self.state, event, self.lease.stream)
            self._waypoints.read(self.state, event, total)
            self._total = total
            self.bytes_since_checkpoint += size
        fork = self.state.fork
        self.base = fork.seq if fork is not None else 0
        self.flushed = self.synced = self.state.seq

    def begin_with(self, past: State) -> None:
        """Begin a new log with the past of another one, whose events it does not hold itself."""
        self.state = past
        self.base = self.flushed = self.synced = past.seq

    def append(self, event: Appended, strand: Scope | None = None) -> bool:
        """Give an event its place in the log. It is written by the next `flush` or `sync`.

        So the start of a quick step costs no write of its own: it goes out with its result. A
        strand that was given up may append nothing more, from one moment to the next. What
        depends on the state, which others change too, is given as a function of it; if that
        returns None, nothing is appended, and neither does this return True.
        """
        with self._lock:
            if self._broken is not None:
                raise self._broken
            if strand is not None and strand.is_closed():
                raise given_up(strand)
            state = self.state
            seq = state.seq + 1 - self.base
            if isinstance(event, _HOT):
                placed: AnyEvent = replace(event, seq=seq, at=self.clock())
                data = dump_event(placed)
            else:
                made = event if isinstance(event, Event) else event(state)
                if made is None:
                    return False
                clean = self.redact.event(made)
                placed = replace(clean, seq=seq, at=self.clock())
                data = _dumped(placed)
                self._is_news = True
                self.newest_word = state.seq + 1
            self._broken = _INTERRUPTED
            line, self._total = chain.seal(self._total, data)
            self._unwritten.append(line)
            self.bytes_since_checkpoint += len(line)
            if type(placed) is Checkpointed and placed.carried is not None:
                self.bytes_since_checkpoint = 0
            if self.base:
                placed = replace(placed, seq=seq + self.base)
            advance(state, placed)
            self._waypoints.passed(state, placed, self._total)
            if isinstance(placed, Completed):  # not an answer, which may yet be refused
                self._remember(placed)
            self._broken = None
            return True

    def _remember(self, event: Completed) -> None:
        """Keep a result in mind that a list may soon hold."""
        result = bytes(event.result)
        is_fit = FEWEST_COPIED <= len(result) <= INLINE_BYTES and not result.startswith(REFERENCES)
        if is_fit and self.state.calls[event.path].ended_seq == event.seq:
            self._recent[result] = (event.path, event.seq)
            if len(self._recent) > _RECENT:
                del self._recent[next(iter(self._recent))]

    def flush(self) -> None:
        """Hand what was appended to the store, where others can see it."""
        with self._lock:
            if self._broken is not None:
                raise self._broken
            if not self._unwritten:
                return
            lines, seq = self._unwritten, self.state.seq
            self._broken = _INTERRUPTED
            self._unwritten = []
            try:
                news = self._news() if self._is_news else None
                self.store.append(self.lease, seq - self.base - len(lines), lines, news)
            except StoreError as error:
                self._broken = error
                raise
            self.flushed = seq
            self._broken = None
            self._waypoints.put()

    def _news(self) -> Facts | None:
        """The facts for the store, where they differ in more than the time."""
        self._is_news = False
        facts = facts_of(self.state)
        if self._facts is not None and facts == replace(self._facts, updated_at=facts.updated_at):
            return None
        self._facts = facts
        return facts

    def sync(self) -> None:
        """Return when everything appended so far is durable."""
        self.flush()
        seq = self.flushed
        try:
            self.store.sync(self.lease)
        except StoreError as error:
            self.was_synced(seq, error)
            raise
        self.was_synced(seq, None)

    def was_synced(self, seq: int, error: BaseException | None) -> None:
        """Take notice that the events up to `seq` are durable, or that nobody knows."""
        if error is not None:
            self._broken = error
        elif seq > self.synced:
            self.synced = seq

    def refuse(self, error: BaseException) -> None:
        """Take notice that nothing more can be written."""
        with self._lock:
            self._broken = self._broken or error

    @property
    def is_broken(self) -> bool:
        """Whether nothing more can be written by it."""
        return self._broken is not None

    def has_to_be_synced(self) -> bool:
        """Whether something was appended that may be lost yet, and can be kept."""
        return self._broken is None and self.state.seq > self.synced

    def stow(self, value: bytes) -> Raw:
        """The value as it goes into an event: itself, or what says where it is kept."""
        self.redact.must_be_free(value)
        if isinstance(value, Listing):
            form = form_of(value)
            for known in value.known.values():
                self._keep(known.version)
            return self._named(form.places, bytes(form.value))
        if len(value) < _WORTH_A_LOOK or value.startswith(REFERENCES):
            return stow(self.store, value, self.max_value_bytes)
        left, lists = without_lists(value)
        if not lists:
            return stow(self.store, value, self.max_value_bytes)
        places = []
        for path, items in lists:
            version, _ = version_of(items, count_of(items), self.state.lists)
            self._keep(version)
            places.append(Place(path, version.length, version.digest))
        return self._named(places, left)

    def stow_alone(self, value: bytes) -> Raw:
        """The same for what has to be read without anything that came before it."""
        self.redact.must_be_free(value)
        return stow(self.store, value, self.max_value_bytes)

    def _named(self, places: Sequence[Place], left: bytes) -> Raw:
        inner = bytes(stow(self.store, left, self.max_value_bytes))
        return Raw(listed(inner, places))

    def _keep(self, version: Version) -> None:
        """See to it that a list is in the log."""
        with self._keeping:
            parts, base = self._not_kept(version)
            if parts:
                items = b"[%b]" % b",".join(reversed(parts))
                self.redact.must_be_free(items)
                left, copied = without_results(items, self._recent)
                if len(left) > INLINE_BYTES:  # a blob can't refer to the log
                    left, copied = items, ()
                grown = ListGrew(
                    digest=version.digest,
                    length=version.length,
                    base=self._base_of(base),
                    items=Raw(left) if copied else self.stow_alone(left),
                    copied=copied,
                )
                self.append(grown)
            version.is_stored()

    def _not_kept(self, version: Version) -> tuple[list[bytes], Version | None]:
        """What a list has more than one that is in the log, the last first; and which one."""
        parts: list[bytes] = []
        base: Version | None = version
        while base is not None and base.digest not in self.state.lists:
            parts.append(base.items)
            base = base.base
        return parts, base

    def _base_of(self, base: Version | None) -> str | None:
        """How an event says which list it goes on from: not at all, if it is the newest."""
        digest = base.digest if base is not None else ""
        return None if digest and digest == next(reversed(self.state.lists), "") else digest

    def fetch(self, value: Raw) -> bytes:
        """The bytes that `stow` was given."""
        try:
            return fetch(self.store, value, self.state.lists, self._all_lists)
        except LogDamaged as error:
            raise placed(error, self.lease.stream) from error.__cause__

    def recall(self, value: Raw, shape: ListShape) -> list[Any] | None:
        """A list that was stowed, made quickly of one that is remembered; None if none is."""
        data = bytes(value)
        if not data.startswith(LISTED):
            return None
        first, *others = form_of(data).places
        if others or first.path:
            return None
        lists = self.state.lists
        return self.growing.recall(first.digest, shape, lists, partial(items_of, self.store))

    def _all_lists(self) -> Lists:
        here = {k: v for k, v in self.state.lists.items() if v.items is not UNSET}
        return {**all_lists(self.store, self.lease.stream), **here}

    def abandon(self) -> None:
        """Leave out what was appended and not written yet. Nothing more can be."""
        with self._lock:
            self._unwritten, self._broken = [], _ABANDONED

    def close(self) -> None:
        """Give the task back. What was appended is made durable first, if it can be."""
        try:
            if self.has_to_be_synced():
                # What was acknowledged is safe; the rest belongs to who has the lease now.
                with suppress(LeaseLost):
                    self.sync()
        finally:
            self.store.release(self.lease)


def open_log(store: Store, task_id: str, owner: str, lease_s: float, clock: Clock) -> Log:
    """Take hold of a task's log, or of the place where it will be."""
    return opened(store, store.acquire(stream_of(task_id), owner, lease_s), clock)


def opened(store: Store, lease: Lease, clock: Clock) -> Log:
    """The log of which somebody took the lease."""
    log = Log(store, lease, clock)
    try:
        log.load()
    except BaseException:
        store.release(lease)
        raise
    return log
