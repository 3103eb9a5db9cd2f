"""One task's log, held open by its one writer.

`Log` gives events their place: it counts and seals them, hands the lines to the store, and keeps
the state current. Values that are too large for a line go to a blob first and the line holds a
reference. Many threads may append at once; they wait for each other's syncs together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import datetime

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from holdfast import chain
from holdfast.errors import LogDamaged, NewerFormat, StoreError, TooLarge
from holdfast.events import (
    FORMAT,
    AnyEvent,
    Claimed,
    TaskCreated,
    dump_event,
    load_event,
)
from holdfast.fold import State, advance
from holdfast.store import Lease, Store

Clock = Callable[[], datetime]

BLOB = b'{"$blob":'
"""How a reference to a blob begins. A value that begins so itself is always put in a blob."""

INLINE_BYTES = 64 * 1024
MAX_VALUE_BYTES = 64 * 1024 * 1024


class BlobRef(msgspec.Struct):
    """What stands in a line for a value that is kept beside it."""

    digest: str = msgspec.field(name="$blob")
    size_bytes: int


def stream_of(task_id: str) -> str:
    """The stream that holds a task's log."""
    return f"tasks/{task_id}"


def read_events(store: Store, stream: str) -> Iterator[AnyEvent]:
    """The events of a stream, each checked against the one before it."""
    for event, _ in _checked(store, stream):
        yield event


def read_state(store: Store, stream: str) -> State:
    """The state that a stream's events come to; of `seq` 0 if there is none."""
    state = State()
    for event, _ in _checked(store, stream):
        _advance(state, event, stream)
    return state


def _advance(state: State, event: AnyEvent, stream: str) -> None:
    try:
        advance(state, event)
    except LookupError:
        what = f"a {type(event).__name__} of a call that was never made"
        raise LogDamaged(stream, event.seq, what) from None


def _checked(store: Store, stream: str) -> Iterator[tuple[AnyEvent, bytes]]:
    total = chain.ROOT
    for seq, line in enumerate(store.read(stream), 1):
        after = chain.check(total, line)
        if after is None:
            raise LogDamaged(stream, seq, "its sum does not fit its bytes and the event before it")
        total = after
        event = _decoded(stream, seq, line)
        if event.seq != seq:
            raise LogDamaged(stream, seq, f"it says it is event {event.seq}")
        yield event, total


def _decoded(stream: str, seq: int, line: bytes) -> AnyEvent:
    try:
        event = load_event(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        # Its sum is right, so these are the bytes that were written, by somebody who knew more.
        raise _newer(stream, seq, f"this version can't read it ({error})") from None
    if isinstance(event, TaskCreated | Claimed) and event.format > FORMAT:
        raise _newer(stream, seq, f"it is of format {event.format}, this version knows {FORMAT}")
    return event


def _newer(stream: str, seq: int, what: str) -> NewerFormat:
    return NewerFormat(
        f"{stream}: event {seq} was written by a newer Holdfast: {what}. "
        f"Nothing was changed: open it with that version, or upgrade this one"
    )


class Log:
    """A task's log while it is being written. Made by `open_log`."""

    def __init__(self, store: Store, lease: Lease, clock: Clock) -> None:
        self.store = store
        self.lease = lease
        self.state = State()
        self.clock = clock
        self.max_value_bytes = MAX_VALUE_BYTES
        self._total = chain.ROOT
        self._unwritten: list[bytes] = []
        self._lock = threading.Lock()
        self._broken: StoreError | None = None

    def load(self) -> None:
        """Read what the stream holds."""
        for event, total in _checked(self.store, self.lease.stream):
            _advance(self.state, event, self.lease.stream)
            self._total = total

    def append(self, event: AnyEvent) -> None:
        """Give an event its place in the log. It is written by the next `flush` or `sync`.

        So the start of a quick step costs no write of its own: it goes out with its result.
        """
        with self._lock:
            if self._broken is not None:
                raise self._broken
            placed = replace(event, seq=self.state.seq + 1, at=self.clock())
            line, self._total = chain.seal(self._total, dump_event(placed))
            self._unwritten.append(line)
            advance(self.state, placed)

    def flush(self) -> None:
        """Hand what was appended to the store, where others can see it."""
        with self._lock:
            if self._broken is not None:
                raise self._broken
            lines, self._unwritten = self._unwritten, []
            if lines:
                try:
                    self.store.append(self.lease, self.state.seq - len(lines), lines)
                except StoreError as error:
                    self._broken = error
                    raise

    def sync(self) -> None:
        """Return when everything appended so far is durable."""
        self.flush()
        try:
            self.store.sync(self.lease)
        except StoreError as error:
            self._broken = error
            raise

    def stow(self, value: bytes) -> Raw:
        """The value as it goes into an event: itself, or a reference to a blob that holds it."""
        size = len(value)
        if size <= INLINE_BYTES and not value.startswith(BLOB):
            return Raw(value)
        if size > self.max_value_bytes:
            raise TooLarge(
                f"a value of {size:,} bytes is above the limit of {self.max_value_bytes:,}: keep "
                f"it in a file and pass its name, or raise Holdfast(max_value_bytes=…)"
            )
        digest = self.store.put_blob(value)
        return Raw(msgspec.json.encode(BlobRef(digest, size)))

    def fetch(self, value: Raw) -> bytes:
        """The bytes that `stow` was given."""
        return fetch(self.store, value)

    def close(self) -> None:
        """Give the task back. What was appended is made durable first, if it can be."""
        try:
            if self._broken is None and self.state.seq:
                self.sync()
        finally:
            self.store.release(self.lease)


def fetch(store: Store, value: Raw) -> bytes:
    """The bytes of a value in an event, from its blob where it has one."""
    data = bytes(value)
    if not data.startswith(BLOB):
        return data
    return store.get_blob(msgspec.json.decode(data, type=BlobRef).digest)


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
