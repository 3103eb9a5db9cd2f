"""One task's log, held open by its one writer.

`Log` gives events their place: it counts and seals them, hands the lines to the store, and keeps
the state current. Values that are too large for a line go to a blob first and the line holds a
reference. Many threads may append at once; they wait for each other's syncs together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, Protocol, get_args

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from holdfast import chain
from holdfast.codec import Growing, Listing, ListShape
from holdfast.errors import (
    BadInput,
    Conflict,
    LeaseLost,
    LogDamaged,
    NewerFormat,
    StoreError,
    WrongKey,
)
from holdfast.events import (
    FORMAT,
    AnyEvent,
    Checkpointed,
    Claimed,
    Completed,
    Event,
    ListGrew,
    QuestionAnswered,
    Started,
    TaskCreated,
    dump_event,
    load_event,
)
from holdfast.facts import facts_of
from holdfast.fold import advance
from holdfast.lists import (
    FEWEST_BYTES,
    FEWEST_COPIED,
    LISTED,
    Listed,
    Lists,
    Place,
    Version,
    count_of,
    listed,
    version_of,
    without_lists,
    without_results,
)
from holdfast.redact import DEFAULT
from holdfast.scope import Scope, given_up
from holdfast.state import State
from holdfast.store import Facts, Lease, Store
from holdfast.values import INLINE_BYTES, MAX_VALUE_BYTES, REFERENCES, fetch, items_of, stow

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

_HOT = (Started, Completed, ListGrew)
"""Made of what the codec checked, and without a word on how the task stands."""
_TYPES = {kind.__struct_config__.tag for kind in get_args(AnyEvent)}


class Readable(Protocol):
    """What logs can be read from: a store, or an archive."""

    def read(self, stream: str, after_seq: int = 0) -> Iterator[bytes]:
        """The lines after `after_seq`; none if there is no such stream."""


def stream_of(task_id: str) -> str:
    """The stream that holds a task's log."""
    return f"tasks/{task_id}"


def read_events(store: Readable, stream: str) -> Iterator[AnyEvent]:
    """The events of a stream, each checked against the one before it."""
    for event, _ in read_sums(store, stream):
        yield event


def read_sums(store: Readable, stream: str) -> Iterator[tuple[AnyEvent, bytes]]:
    """The same, each with its sum."""
    for event, total, _ in _checked(stream, store.read(stream)):
        yield event, total


def read_state(store: Readable, stream: str) -> State:
    """The state that a stream's events come to; of `seq` 0 if there is none."""
    state = State()
    for event in read_events(store, stream):
        advance_checked(state, event, stream)
    return state


def all_lists(store: Store, stream: str) -> Lists:
    """Every long list of a log, those from before a checkpoint included."""
    return read_state(store, stream).lists


def value_in(store: Store, state: State, value: Raw) -> bytes:
    """The bytes of a value of a task, for those who only read."""
    return fetch(store, value, state.lists, lambda: all_lists(store, stream_of(state.id)))


_WHOLE_CHECKPOINT = b'"carried":{'
_CHECKPOINT = b'{"type":"checkpointed"'


def first_event(store: Store, stream: str) -> TaskCreated | None:
    """What a log begins with, without reading the rest of it."""
    for event, _, _ in _checked(stream, store.read(stream), most=1):
        if isinstance(event, TaskCreated):
            return event
    return None


def since_checkpoint(store: Store, stream: str) -> Iterator[tuple[AnyEvent, bytes, int]]:
    """The first event, and those from the last whole checkpoint on; all, if there is none.

    What lies between is not read. Its sums are not checked then: `verify` does that.
    """
    newest: list[bytes] = []
    lines = store.tail(stream)
    for line in lines:
        if not newest:
            _must_be_ours_to_write(stream, line)
        newest.append(line)
        if line.startswith(_CHECKPOINT) and _WHOLE_CHECKPOINT in line:
            event = _decoded(stream, 0, line)
            if isinstance(event, Checkpointed) and event.carried is not None:
                before = next(lines, None)
                yield from _checked(stream, store.read(stream), most=1)
                total = chain.sum_of(before) if before is not None else chain.ROOT
                yield from _checked(stream, reversed(newest), total, event.seq - 1)
                return
    yield from _checked(stream, reversed(newest))


def advance_checked(state: State, event: AnyEvent, stream: str) -> None:
    """Change a state by an event that was read: one that makes no sense after it is damage."""
    try:
        advance(state, event)
    except (LookupError, TypeError):
        what = f"a {type(event).__name__} of a call that was never made"
        raise LogDamaged(stream, event.seq, what) from None


def _checked(
    stream: str,
    lines: Iterable[bytes],
    total: bytes = chain.ROOT,
    seq: int = 0,
    most: int | None = None,
) -> Iterator[tuple[AnyEvent, bytes, int]]:
    """Lines as events, with the sum after each and its size: those that follow the event `seq`."""
    for line in islice(lines, most):
        seq += 1
        after = chain.check(total, line)
        if after is None:
            raise LogDamaged(stream, seq, "its sum does not fit its bytes and the event before it")
        total = after
        event = _decoded(stream, seq, line)
        if event.seq != seq:
            raise LogDamaged(stream, seq, f"it says it is event {event.seq}")
        if seq == 1:
            _must_begin(stream, event)
        yield event, total, len(line)


def _must_be_ours_to_write(stream: str, newest: bytes) -> None:
    if chain.is_signed(newest):  # a store that has the key takes the signatures off
        raise WrongKey(
            f"{stream} is signed, and no key to sign with was given, so it can only be read. "
            f"Nothing was changed: open it with Holdfast(…, sign_key=…), or holdfast "
            f"--sign-key-file FILE"
        )


def _must_begin(stream: str, event: AnyEvent) -> None:
    if not isinstance(event, TaskCreated):
        raise LogDamaged(stream, 1, "a log begins with the making of its task")
    if stream_of(event.id) != stream:
        raise LogDamaged(stream, 1, f"it is the log of task {event.id!r}, copied or moved here")


def _decoded(stream: str, seq: int, line: bytes) -> AnyEvent:
    try:
        event = load_event(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        # Its sum is right, so these are the bytes that were written, by somebody who knew more;
        # unless it is of a type we know, which we never write like that.
        if _type_of(line) in _TYPES:
            raise LogDamaged(stream, seq, f"it makes no sense ({error})") from None
        if b'"box":"' in line:
            what = "it is encrypted, and the keys that belong to it are not in this store"
            raise LogDamaged(stream, seq, what) from None
        raise _newer(stream, seq, f"this version can't read it ({error})") from None
    if isinstance(event, TaskCreated | Claimed) and event.format > FORMAT:
        raise _newer(stream, seq, f"it is of format {event.format}, this version knows {FORMAT}")
    return event


def _type_of(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)["type"]
    except (msgspec.MsgspecError, UnicodeError, LookupError, TypeError):
        return None


def _newer(stream: str, seq: int, what: str) -> NewerFormat:
    return NewerFormat(
        f"{stream}: event {seq} was written by a newer Holdfast: {what}. "
        f"Nothing was changed: open it with that version, or upgrade this one"
    )


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
    except (msgspec.MsgspecError, UnicodeError, TypeError) as error:
        raise BadInput(f"a {type(event).__name__} can't be recorded: {error}") from None
    return data


class Attending(Protocol):
    """Who drives the task while its log is held."""

    def hear(self, event: AnyEvent) -> None:
        """An event came from outside."""

    def tick(self) -> None:
        """Time has passed."""


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
        self._broken: StoreError | None = None

    def load(self) -> None:
        """Read what the stream holds, from its last whole checkpoint on."""
        for event, total, size in since_checkpoint(self.store, self.lease.stream):
            advance_checked(self.state, event, self.lease.stream)
            self._total = total
            self.bytes_since_checkpoint += size

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
            if isinstance(event, _HOT):
                placed: AnyEvent = replace(event, seq=state.seq + 1, at=self.clock())
                data = dump_event(placed)
            else:
                made = event if isinstance(event, Event) else event(state)
                if made is None:
                    return False
                clean = self.redact.event(made)
                placed = replace(clean, seq=state.seq + 1, at=self.clock())
                data = _dumped(placed)
                self._is_news = True
            self._broken = _INTERRUPTED
            line, self._total = chain.seal(self._total, data)
            self._unwritten.append(line)
            self.bytes_since_checkpoint += len(line)
            if isinstance(placed, Checkpointed) and placed.carried is not None:
                self.bytes_since_checkpoint = 0
            advance(state, placed)
            if isinstance(placed, Completed | QuestionAnswered):
                self._remember(placed)
            self._broken = None
            return True

    def _remember(self, event: Completed | QuestionAnswered) -> None:
        """Keep a result in mind that a list may soon hold."""
        result = bytes(event.result if isinstance(event, Completed) else event.answer)
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
                self.store.append(self.lease, seq - len(lines), lines, self._news())
            except StoreError as error:
                self._broken = error
                raise
            self._broken = None

    def _news(self) -> Facts | None:
        """The facts for the store, where they differ in more than the time."""
        if not self._is_news:
            return None
        self._is_news = False
        facts = facts_of(self.state)
        if self._facts is not None and facts == replace(self._facts, updated_at=facts.updated_at):
            return None
        self._facts = facts
        return facts

    def sync(self) -> None:
        """Return when everything appended so far is durable."""
        self.flush()
        try:
            self.store.sync(self.lease)
        except StoreError as error:
            self._broken = error
            raise

    def stow(self, value: bytes) -> Raw:
        """The value as it goes into an event: itself, or what says where it is kept."""
        self.redact.must_be_free(value)
        if isinstance(value, Listing):
            form = msgspec.json.decode(value, type=Listed)
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
            parts: list[bytes] = []
            base: Version | None = version
            while base is not None and base.digest not in self.state.lists:
                parts.append(base.items)
                base = base.base
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

    def _base_of(self, base: Version | None) -> str | None:
        """How an event says which list it goes on from: not at all, if it is the newest."""
        digest = base.digest if base is not None else ""
        return None if digest and digest == next(reversed(self.state.lists), "") else digest

    def fetch(self, value: Raw) -> bytes:
        """The bytes that `stow` was given."""
        lists = self.state.lists
        return fetch(self.store, value, lists, self._all_lists)

    def recall(self, value: Raw, shape: ListShape) -> list[Any] | None:
        """A list that was stowed, made quickly of one that is remembered; None if none is."""
        data = bytes(value)
        if not data.startswith(LISTED):
            return None
        first, *others = msgspec.json.decode(data, type=Listed).places
        if others or first.path:
            return None
        lists = self.state.lists
        return self.growing.recall(first.digest, shape, lists, partial(items_of, self.store))

    def _all_lists(self) -> Lists:
        here = {k: v for k, v in self.state.lists.items() if v.items is not UNSET}
        return {**all_lists(self.store, self.lease.stream), **here}

    def close(self) -> None:
        """Give the task back. What was appended is made durable first, if it can be."""
        try:
            if self._broken is None and self.state.seq:
                # What was acknowledged is safe; the rest belongs to who has the lease now.
                with suppress(LeaseLost):
                    self.sync()
        finally:
            self.store.release(self.lease)


def open_log(store: Store, task_id: str, owner: str, lease_s: float, clock: Clock) -> Log:
    """Take hold of a task's log, or of the place where it will be."""
    lease = store.acquire(stream_of(task_id), owner, lease_s)
    log = Log(store, lease, clock)
    try:
        log.load()
    except BaseException:
        store.release(lease)
        raise
    return log
