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

from holdfast.codec import Growing, Listing, ListShape
from holdfast.codec.redact import DEFAULT
from holdfast.core.decoding import MOST_LEVELS, NONSENSE, Illegible, placed
from holdfast.core.events import (
    AnyEvent,
    Checkpointed,
    Completed,
    Event,
    ListGrew,
    Started,
    Stepped,
    dump_event,
    load_event,
)
from holdfast.core.facts import Facts, facts_of
from holdfast.core.fold import advance
from holdfast.core.lists import (
    FEWEST_BYTES,
    FEWEST_COPIED,
    LISTED,
    REFERENCES,
    ListPlace,
    Lists,
    Version,
    count_of,
    form_of,
    listed,
    version_of,
    without_lists,
    without_results,
)
from holdfast.core.scope import Scope, given_up
from holdfast.core.state import Reread, State
from holdfast.errors import BadInput, Conflict, LeaseLost, LogDamaged, StoreError
from holdfast.log import chain
from holdfast.log.reading import (
    advance_checked,
    all_lists,
    new_state,
    read_events,
    since_checkpoint,
    stream_of,
)
from holdfast.log.states import reach
from holdfast.log.store_calls import acquire_one
from holdfast.log.trail import WaypointWriter
from holdfast.log.values import INLINE_BYTES, MAX_VALUE_BYTES, fetch, items_of, stow

if TYPE_CHECKING:
    from holdfast.stores.port import Lease, Store

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
    # Everything written must be readable. Starts and results come from the codec's checks; the
    # fields of other events come from users, and types in Python are only a promise.
    try:
        data = dump_event(event)
        load_event(data)
        _must_fit_a_line(event, data)
    except (*NONSENSE, Illegible) as error:
        raise BadInput(f"a {type(event).__name__} can't be recorded: {error}") from None
    return data


class Attending(Protocol):
    """The driver of the task while its log is held."""

    def hear(self, event: AnyEvent) -> None:
        """An event came from outside."""

    def tick(self) -> None:
        """Time has passed."""


class Holds(Protocol):
    """The clock that knows for how long a log is held."""

    def is_sure(self) -> bool:
        """Whether nobody can have taken it over."""

    def confirm(self) -> None:
        """Ask the store whether it still is held. `LeaseLost` if not."""


class Watching(Protocol):
    """Counts what is written, while it is: for metrics and traces."""

    def wrote(self, state: State, lines: Sequence[bytes]) -> None:
        """The store was given these lines. Quick: the log is locked meanwhile."""

    def refused(self, state: State, error: BaseException) -> None:
        """The store refused what was written, and the log takes nothing more."""


class KeepsParts(Protocol):
    """Writes the parts of steps that stream where others can follow them."""

    def begin(self, log: Log, path: str, raws: list[bytes], of_text: bool = False) -> Any:
        """An attempt begins, and adds its parts to `raws`, or the pieces of a text. The result has
        a field `has_ended`, to be set when the call has its record."""


class Log:
    """A task's log while it is being written. Made by `open_log`."""

    def __init__(self, store: Store, lease: Lease, clock: Clock) -> None:
        self.store = store
        self.lease = lease
        self.state: State = new_state(store, lease.stream)
        self.clock = clock
        self.max_value_bytes = MAX_VALUE_BYTES
        self.redact = DEFAULT
        self.attended: Attending | None = None
        self.tenure: Holds | None = None
        """None of a log that nobody looks after: no task is driven by it."""
        self.watched: Watching | None = None
        self.keeper: KeepsParts | None = None
        """The writer of the parts of streams beside the log, if there is one."""
        self.base: int = 0
        """How many of its events are those of the log that it is a fork of."""
        self._waypoints = WaypointWriter(store, lease.stream)
        self._total = chain.ROOT
        self._unwritten: list[bytes] = []
        self._begun: Started | None = None
        """The start of a plain step, if that is the newest event and has no line yet: the step's
        result may become part of it."""
        self._noticed: Started | None = None
        """The start that was left without a line when the log was flushed last."""
        self.bytes_since_checkpoint: int = 0
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
        self.growing: Growing = Growing(lambda: self.state.lists)
        """The lists that its driver handed over last."""
        self._broken: BaseException | None = None
        self.flushed: int = 0
        """Up to which event the store has been given the log."""
        self.synced: int = 0
        """Up to which event the log is durable."""
        self.newest_word: int = 0
        """The newest event that is no plain start or result of a call."""

    def load(self) -> None:
        """Read what the stream holds, from its last whole checkpoint on."""
        if self.lease.head == 0:
            return
        for event, total, size in since_checkpoint(self.store, self.lease.stream):
            advance_checked(self.state, event, self.lease.stream)
            self._total = total
            self.bytes_since_checkpoint += size
        self._waypoints.go_on(self.state.seq, partial(reach, self.store, self.lease.stream))
        fork = self.state.fork
        self.base = fork.seq if fork is not None else 0
        self.flushed = self.synced = self.state.seq

    def begin_with(self, past: State) -> None:
        """Begin a new log with the past of another one, whose events it does not hold itself."""
        trail = Reread(partial(read_events, self.store, self.lease.stream), past.trail)
        trail.thin()
        past.trail = trail
        self.state = past
        self.base = self.flushed = self.synced = past.seq

    def append(self, event: Appended, strand: Scope | None = None) -> bool:
        """Give an event its place in the log. It is written by the next `flush` or `sync`.

        So the start of a quick step costs no write of its own: it goes out with its result, in one
        event (`Stepped`) if that is the very next one. A strand that was given up may append
        nothing more, from one moment to the next. An event that depends on the state, which others
        change too, is given as a function of it; if that returns None, nothing is appended, and
        neither does this return True.
        """
        with self._lock:
            if self._broken is not None:
                raise self._broken
            if strand is not None and strand.run.has_given_up and strand.is_closed():
                raise given_up(strand)
            state, begun = self.state, self._begun
            is_hot = isinstance(event, _HOT)
            made = event if isinstance(event, Event) else event(state)
            if made is None:
                return False
            if not is_hot:
                made = self.redact.event(made)
            at = self.clock()
            if (
                begun is not None
                and type(made) is Completed
                and made.path == begun.path
                and at >= begun.at
            ):
                placed: AnyEvent = Stepped(
                    seq=begun.seq,
                    at=at,
                    path=begun.path,
                    began=begun.at,
                    name=begun.name,
                    args=begun.args,  # type: ignore[arg-type] # a plain start has them
                    args_hash=begun.args_hash,
                    result=made.result,
                )
            else:
                placed = replace(made, seq=state.seq + 1, at=at)
            may_wait = (
                type(placed) is Started
                and placed.kind == "step"
                and placed.attempt == 1
                and type(placed.args) is Raw
                and not (placed.key or placed.undo or placed.external or placed.invalidates)
                and at >= state.updated_at
            )
            if may_wait:
                data = b""
            else:
                own = replace(placed, seq=placed.seq - self.base) if self.base else placed
                data = dump_event(own) if is_hot else _dumped(own)
            if not is_hot:
                self._is_news = True
                self.newest_word = placed.seq
            self._broken = _INTERRUPTED
            if begun is not None:
                if type(placed) is not Stepped:
                    self._seal_begun(begun)
                elif state.trail and state.trail[-1] is begun:
                    state.trail.pop()
            advance(state, placed)
            self._begun = placed if may_wait else None  # type: ignore[assignment]
            if not may_wait:
                self._seal(placed, data)
            self._broken = None
            return True

    def _seal_begun(self, begun: Started) -> None:
        """The start of a step gets a line of its own, as its result is not the next event."""
        self._seal(begun, dump_event(replace(begun, seq=begun.seq - self.base)))
        self._begun = None

    def _seal(self, event: AnyEvent, data: bytes) -> None:
        line, self._total = chain.seal(self._total, data)
        self._unwritten.append(line)
        self.bytes_since_checkpoint += len(line)
        if type(event) is Checkpointed and event.carried is not None:
            self.bytes_since_checkpoint = 0
        waypoints = self._waypoints
        waypoints.events.append(event)
        if event.seq % waypoints.every == 0:
            waypoints.catch_up(self.state, self._total)
        if len(data) > FEWEST_COPIED and isinstance(event, (Completed, Stepped)):
            self._remember(event)

    def _remember(self, event: Completed | Stepped) -> None:
        """Keep a result in mind that a list may soon hold; not an answer, which may be refused."""
        result = bytes(event.result)
        is_fit = FEWEST_COPIED <= len(result) <= INLINE_BYTES and not result.startswith(REFERENCES)
        if is_fit and self.state.calls[event.path].ended_seq == event.seq:
            self._recent[result] = (event.path, event.seq)
            if len(self._recent) > _RECENT:
                del self._recent[next(iter(self._recent))]

    @property
    def kept_seq(self) -> int:
        """The newest event that keeps its number, whatever comes next."""
        with self._lock:
            return self.state.seq - (self._begun is not None)

    def flush(self, *, leave_new: bool = False) -> None:
        """Hand what was appended to the store, where others can see it.

        With `leave_new` a step that began since the last such flush is not shown to be at work: it
        mostly ends before the next one, and then takes one line instead of two.
        """
        with self._lock:
            if self._broken is not None:
                raise self._broken
            begun = self._begun
            if leave_new and begun is not self._noticed:
                self._noticed = begun
            elif begun is not None:
                self._broken = _INTERRUPTED
                self._seal_begun(begun)
                self._broken = None
            if not self._unwritten:
                return
            lines, seq = self._unwritten, self.state.seq - (self._begun is not None)
            self._broken = _INTERRUPTED
            self._unwritten = []
            try:
                news = self._news() if self._is_news else None
                self.store.append(self.lease, seq - self.base - len(lines), lines, news)
            except StoreError as error:
                self._breaks(error)
                raise
            self.flushed = seq
            self._broken = None
            if self.watched is not None:
                self.watched.wrote(self.state, lines)
            if self._waypoints.is_due:
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
            (error,) = self.store.sync((self.lease,))
        except StoreError as failed:
            error = failed
        if error is not None:
            self.was_synced(seq, error)
            raise error
        self.synced = max(self.synced, seq)

    def was_synced(self, seq: int, error: BaseException | None) -> None:
        """Take notice that the events up to `seq` are durable, or that nobody knows."""
        if error is not None:
            self.refuse(error)
        elif seq > self.synced:
            self.synced = seq

    def refuse(self, error: BaseException) -> None:
        """Take notice that nothing more can be written."""
        with self._lock:
            if self._broken is None:
                self._breaks(error)

    def _breaks(self, error: BaseException) -> None:
        if self.watched is not None and (self._broken is None or self._broken is _INTERRUPTED):
            self.watched.refused(self.state, error)
        self._broken = error

    # While another thread writes, it looks broken. The lock waits for what comes of that.

    @property
    def is_broken(self) -> bool:
        """Whether nothing more can be written by it."""
        with self._lock:
            return self._broken is not None

    def has_to_be_synced(self) -> bool:
        """Whether something was appended that may be lost yet, and can be kept."""
        with self._lock:
            return self._broken is None and self.state.seq > self.synced

    def stow(self, value: bytes) -> Raw:
        """The value as it goes into an event: itself, or what says where it is kept."""
        if len(value) <= MOST_LEVELS and not self.redact.refuses and b'"$' not in value:
            return Raw(value)  # too short for anything that is looked for below
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
            places.append(ListPlace(path, version.length, version.digest))
        return self._named(places, left)

    def stow_alone(self, value: bytes) -> Raw:
        """The same for what has to be read without anything that came before it."""
        self.redact.must_be_free(value)
        return stow(self.store, value, self.max_value_bytes)

    def _named(self, places: Sequence[ListPlace], left: bytes) -> Raw:
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
        """The items of a list beyond a version in the log, the last first; and that version."""
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
            self._unwritten, self._begun, self._broken = [], None, _ABANDONED

    def close(self) -> None:
        """Release the task. Appended events are made durable first, if they can be."""
        try:
            if self.has_to_be_synced():
                # Acknowledged events are safe; the rest belongs to the current holder of the lease.
                with suppress(LeaseLost):
                    self.sync()
        finally:
            self.store.release([self.lease])


def open_log(store: Store, task_id: str, owner: str, lease_s: float, clock: Clock) -> Log:
    """Take hold of a task's log, or of the place where it will be."""
    return opened(store, acquire_one(store, stream_of(task_id), owner, lease_s), clock)


def opened(store: Store, lease: Lease, clock: Clock) -> Log:
    """The log of which somebody took the lease."""
    log = Log(store, lease, clock)
    try:
        log.load()
    except BaseException:
        store.release([lease])
        raise
    return log
