"""One task's log, held open by its one writer.

`Log` gives events their place: it counts and seals them, hands the lines to the store, and keeps
the state current. Values that are too large for a line go to a blob first and the line holds a
reference. Many threads may append at once; they wait for each other's syncs together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Any, Protocol, get_args

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from holdfast import chain
from holdfast.errors import (
    BadInput,
    Conflict,
    LeaseLost,
    LogDamaged,
    NewerFormat,
    StoreError,
    TooLarge,
)
from holdfast.events import (
    FORMAT,
    AnyEvent,
    Checkpointed,
    Claimed,
    Completed,
    Event,
    Started,
    TaskCreated,
    dump_event,
    load_event,
)
from holdfast.facts import facts_of
from holdfast.fold import advance
from holdfast.scope import Scope, given_up
from holdfast.state import State
from holdfast.store import Facts, Lease, Store

Clock = Callable[[], datetime]
Appended = AnyEvent | Callable[[State], AnyEvent | None]
"""An event, or what makes one of the state as it is at that moment (or none, after all)."""

BLOB = b'{"$blob":'
"""How a reference to a blob begins. A value that begins so itself is always put in a blob."""

INLINE_BYTES = 64 * 1024
MAX_LINE_BYTES = 512 * 1024
MAX_VALUE_BYTES = 64 * 1024 * 1024


_INTERRUPTED = Conflict(
    "writing the log was interrupted half-way (by a signal handler that raised?): this run can't "
    "go on; run the task again"
)
"""Stands while the parts of a log's state do not fit each other."""

_TYPES = {kind.__struct_config__.tag for kind in get_args(AnyEvent)}


class BlobRef(msgspec.Struct):
    """What stands in a line for a value that is kept beside it."""

    digest: str = msgspec.field(name="$blob")
    size_bytes: int


def stream_of(task_id: str) -> str:
    """The stream that holds a task's log."""
    return f"tasks/{task_id}"


def read_events(store: Store, stream: str) -> Iterator[AnyEvent]:
    """The events of a stream, each checked against the one before it."""
    for event, _, _ in _checked(stream, store.read(stream)):
        yield event


def read_state(store: Store, stream: str) -> State:
    """The state that a stream's events come to; of `seq` 0 if there is none."""
    state = State()
    for event in read_events(store, stream):
        advance_checked(state, event, stream)
    return state


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
        self._broken: BaseException | None = None
        self.flushed = 0
        """Up to which event the store has been given the log."""
        self._synced = 0

    def load(self) -> None:
        """Read what the stream holds, from its last whole checkpoint on."""
        if self.lease.head == 0:
            return
        for event, total, size in since_checkpoint(self.store, self.lease.stream):
            advance_checked(self.state, event, self.lease.stream)
            self._total = total
            self.bytes_since_checkpoint += size
        self.flushed = self._synced = self.state.seq

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
            if isinstance(event, Started | Completed):
                placed: AnyEvent = replace(event, seq=state.seq + 1, at=self.clock())
                data = dump_event(placed)
            else:
                made = event if isinstance(event, Event) else event(state)
                if made is None:
                    return False
                placed = replace(made, seq=state.seq + 1, at=self.clock())
                data = _dumped(placed)
                self._is_news = True
            self._broken = _INTERRUPTED
            line, self._total = chain.seal(self._total, data)
            self._unwritten.append(line)
            self.bytes_since_checkpoint += len(line)
            if type(placed) is Checkpointed and placed.carried is not None:
                self.bytes_since_checkpoint = 0
            advance(state, placed)
            self._broken = None
            return True

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
                self.store.append(self.lease, seq - len(lines), lines, news)
            except StoreError as error:
                self._broken = error
                raise
            self.flushed = seq
            self._broken = None

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
        elif seq > self._synced:
            self._synced = seq

    def has_to_be_synced(self) -> bool:
        """Whether something was appended that may be lost yet, and can be kept."""
        return self._broken is None and self.state.seq > self._synced

    def stow(self, value: bytes) -> Raw:
        """The value as it goes into an event: itself, or a reference to a blob that holds it."""
        if len(value) <= INLINE_BYTES and not value.startswith(BLOB):
            return Raw(value)
        return stow(self.store, value, self.max_value_bytes)

    def fetch(self, value: Raw) -> bytes:
        """The bytes that `stow` was given."""
        return fetch(self.store, value)

    def close(self) -> None:
        """Give the task back. What was appended is made durable first, if it can be."""
        try:
            if self.has_to_be_synced():
                # What was acknowledged is safe; the rest belongs to who has the lease now.
                with suppress(LeaseLost):
                    self.sync()
        finally:
            self.store.release(self.lease)


def stow(store: Store, value: bytes, max_value_bytes: int = MAX_VALUE_BYTES) -> Raw:
    """A value as it goes into an event: itself, or a reference to a blob that holds it."""
    size = len(value)
    if size <= INLINE_BYTES and not value.startswith(BLOB):
        return Raw(value)
    if size > max_value_bytes:
        raise TooLarge(
            f"a value of {size:,} bytes is above the limit of {max_value_bytes:,}: keep "
            f"it in a file and pass its name, or raise Holdfast(max_value_bytes=…)"
        )
    return Raw(msgspec.json.encode(BlobRef(store.put_blob(value), size)))


def fetch(store: Store, value: Raw) -> bytes:
    """The bytes of a value in an event, from its blob where it has one."""
    data = bytes(value)
    if not data.startswith(BLOB):
        return data
    return store.get_blob(msgspec.json.decode(data, type=BlobRef).digest)


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
