"""Reading logs: lines as events, each checked against the one before it; now, or as they come.

`states` folds them, and `log` writes more.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain as joined
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, get_args, runtime_checkable

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from holdfast.core.decoding import NONSENSE, Illegible, damage_in, decode, decoder, shown
from holdfast.core.events import (
    NEWEST_FORMAT,
    AnyEvent,
    Checkpointed,
    Claimed,
    Fork,
    MemoryBegan,
    QueueBegan,
    Rewound,
    SessionBegan,
    TaskCreated,
    load_event,
)
from holdfast.core.fold import advance
from holdfast.core.kinds import kind_of
from holdfast.core.lists import Lists
from holdfast.core.state import FINISHED, Call, Later, Packed, Reread, State
from holdfast.errors import LogDamaged, NewerFormat, TaskNotFound, WrongKey
from holdfast.log import chain
from holdfast.log.values import fetch

if TYPE_CHECKING:
    from holdfast.stores.port import Store

_TYPES = {kind.__struct_config__.tag for kind in get_args(AnyEvent)}
_FIRST: dict[str, tuple[str, type[TaskCreated | SessionBegan | MemoryBegan | QueueBegan]]] = {
    "tasks": ("task", TaskCreated),
    "sessions": ("session", SessionBegan),
    "memories": ("memory", MemoryBegan),
    "queues": ("queue", QueueBegan),
    "limits": ("limit", QueueBegan),
}
"""The kind of a log, and its first event, by the first part of its stream's name."""
_BEGINS = frozenset(first for _, first in _FIRST.values())
_SAYS_FORMAT = (TaskCreated, Claimed, SessionBegan, MemoryBegan, QueueBegan)
_WHOLE_CHECKPOINT = b'"carried":{'
_CHECKPOINT = b'{"type":"checkpointed"'
_REWOUND = b'{"type":"rewound"'
_REWOUND_OR_CHECKPOINT = (_REWOUND, _CHECKPOINT)


class Readable(Protocol):
    """A source of logs: a store, or an archive."""

    def read(self, stream: str, after_seq: int = 0) -> Iterator[bytes]:
        """The lines after `after_seq`; none if there is no such stream."""


def stream_of(task_id: str) -> str:
    """The stream that holds a task's log."""
    return f"tasks/{task_id}"


def session_stream(session_id: str) -> str:
    """The stream that holds a session's log."""
    return f"sessions/{session_id}"


def memory_stream(memory_id: str) -> str:
    """The stream that holds a memory's log."""
    return f"memories/{memory_id}"


def read_events(store: Readable, stream: str, upto: int | None = None) -> Iterator[AnyEvent]:
    """The events of a log, each checked against the one before it; to the event `upto` if given.

    The events of a fork begin with those it shares with its original. Rewound ones are among them.
    """
    for event, _ in read_sums(store, stream, upto):
        yield event


def read_sums(
    store: Readable, stream: str, upto: int | None = None
) -> Iterator[tuple[AnyEvent, bytes]]:
    """The same, each with its sum."""
    for event, total, _ in read_lines(store, stream, upto):
        yield event, total


def read_lines(
    store: Readable, stream: str, upto: int | None = None, seen: tuple[str, ...] = ()
) -> Iterator[tuple[AnyEvent, bytes, bytes]]:
    """The same, each with its sum and its line."""
    lines = store.read(stream)
    first = next(lines, None)
    if first is None:
        return
    base = 0
    if (fork := _fork_in(stream, first)) is not None:
        yield from _past(store, stream, fork, upto, seen)
        base = fork.seq
    most = None if upto is None else max(upto - base, 0)
    yield from _checked(stream, joined((first,), lines), most=most, base=base)


def _past(
    store: Readable, stream: str, fork: Fork, upto: int | None, seen: tuple[str, ...]
) -> Iterator[tuple[AnyEvent, bytes, bytes]]:
    """The events that a fork shares with its original, unchanged since the fork was made."""
    original = kind_of(stream).stream(fork.of)
    if original in seen:
        raise LogDamaged(stream, 1, f"it goes back to itself, by way of {original}")
    last, total = 0, b""
    wanted = fork.seq if upto is None else min(fork.seq, upto)
    for event, total, line in read_lines(store, original, wanted, (*seen, stream)):
        last = event.seq
        yield event, total, line
    if last < wanted:
        what = f"it shares its past with {original} up to event {fork.seq}"
        found = f"ends with event {last}" if last else "is missing"
        raise LogDamaged(stream, last + 1, f"{what}, and that {found}")
    if wanted == fork.seq and total.decode() != fork.sum:
        what = f"it shares its past with {original}, whose event {fork.seq} is another than it was"
        raise LogDamaged(stream, fork.seq + 1, what)


def own_events(store: Readable, stream: str) -> Iterator[AnyEvent]:
    """The events that a log holds itself: for readers of every log, which see the pasts too."""
    for event, _, _ in _checked(stream, store.read(stream)):
        yield event


def own_lines(
    store: Readable, stream: str, base: int, upto: int
) -> Iterator[tuple[AnyEvent, bytes, bytes]]:
    """The events of a fork after those that it shares, each with its sum and its line."""
    return _checked(stream, store.read(stream), most=max(upto - base, 0), base=base)


def base_of(store: Readable, stream: str) -> int:
    """How many events a log shares with its original, and does not hold itself."""
    fork = fork_of(store, stream)
    return fork.seq if fork is not None else 0


def fork_of(store: Readable, stream: str) -> Fork | None:
    """A log's link to the log whose past it shares; None if it shares none, or is not there."""
    first = next(store.read(stream), None)
    return _fork_in(stream, first) if first is not None else None


def lineage(store: Readable, stream: str) -> list[str]:
    """The streams that a log can't be read without: those whose past it shares, the first one
    first, and its own at the end."""
    streams = [stream]
    while (fork := fork_of(store, streams[-1])) is not None:
        original = kind_of(stream).stream(fork.of)
        if original in streams:  # its own reader reports it
            break
        streams.append(original)
    return streams[::-1]


def must_have_its_past(store: Readable, stream: str) -> None:
    """`LogDamaged` if a log whose past this one shares is not there."""
    *originals, _ = lineage(store, stream)
    for original in originals:
        if next(store.read(original), None) is None:
            raise LogDamaged(stream, 1, f"it shares its past with {original}, which is missing")


def _fork_in(stream: str, first: bytes) -> Fork | None:
    if b'"fork":{' not in first:
        return None
    event = _decoded(stream, 1, first)
    return event.fork if isinstance(event, TaskCreated | SessionBegan) else None


def read_on(
    store: Readable, stream: str, seq: int, total: bytes, base: int = 0
) -> Iterator[tuple[AnyEvent, bytes, bytes]]:
    """The events that follow the event `seq`, which had that sum; each with its own, and its line.

    `base` is the one of the log. `LogDamaged` if that event is not there any more, or is another.
    """
    lines = store.read(stream, max(seq - base - 1, 0))
    if seq and chain.sum_of(next(lines, b"")) != total:
        raise LogDamaged(stream, seq, "it is another one than when it was read before")
    yield from _checked(stream, lines, total, seq - base, base=base)


def read_state(store: Readable, stream: str, upto: int | None = None) -> State:
    """The state that a log comes to, or came to at the event `upto`; of `seq` 0 without a log."""
    state = new_state(store, stream)
    for event in read_events(store, stream, upto):
        advance_checked(state, event, stream)
    return state


def new_state(store: Readable, stream: str) -> State:
    """The state before the first event of a log that is read, or written, by that store."""
    return State(trail=Reread(partial(read_events, store, stream)))


def all_lists(store: Store, stream: str) -> Lists:
    """Every long list of a log, those from before a checkpoint included."""
    return read_state(store, stream).lists


def value_in(store: Store, state: State, value: Raw) -> bytes:
    """The bytes of a value of a task, for those who only read."""
    stream = stream_of(state.id)
    with damage_in(stream):
        return fetch(store, value, state.lists, lambda: all_lists(store, stream))


def plain_in(store: Store, state: State, value: Raw, kind: Any = object) -> Any:
    """The same as plain data, or of a given kind."""
    with damage_in(stream_of(state.id)):
        return decode(value_in(store, state, value), kind)


def no_task(store: Store | str, id: str, hint: str = "") -> TaskNotFound:
    """The error for a task that is not in a store, given by itself or by its URL. It ends with
    the `hint`: what is there instead, or what to do."""
    url = store if isinstance(store, str) else store.url
    return TaskNotFound(f"no task {id!r} in {url}{hint}")


def first_event(store: Store, stream: str) -> TaskCreated | None:
    """The first event of a log, without reading the rest of it."""
    for event, _, _ in _checked(stream, store.read(stream), most=1):
        if isinstance(event, TaskCreated):
            return event
    return None


def newest_event(store: Store, stream: str) -> AnyEvent | None:
    """The event a log ends with; None if there is none."""
    newest = next(store.read(stream, backwards=True), None)
    return None if newest is None else _decoded(stream, 0, newest)


def since_checkpoint(store: Store, stream: str) -> Iterator[tuple[AnyEvent, bytes, int]]:
    """The first event, and those from the last whole checkpoint on; all, if there is none.

    The log is read from its end back. The events before the checkpoint are not read, so their
    sums are not checked: `verify` does that. A log that shares its past with another, or that was
    rewound since, is read whole. The lines of a long log are not held meanwhile, but read again.
    """
    newest: list[bytes] | None = []
    lines, may_begin_here, line = store.read(stream, backwards=True), True, b""
    for line in lines:
        if newest is not None:
            if not newest:
                _must_be_ours_to_write(stream, line)
            newest.append(line)
            if len(newest) > _MOST_HELD:
                newest = None
        if not may_begin_here or not line.startswith(_REWOUND_OR_CHECKPOINT):
            continue
        may_begin_here = not line.startswith(_REWOUND)
        event = _whole_checkpoint(stream, line) if may_begin_here else None
        if event is None:
            continue
        begun, begun_total, first = next(_checked(stream, store.read(stream), most=1))
        if b'"fork":{' in first:
            may_begin_here = False
            continue
        yield begun, begun_total, len(first)
        before = next(lines, None)
        total = chain.sum_of(before) if before is not None else chain.ROOT
        onward = store.read(stream, event.seq - 1) if newest is None else _oldest_first(newest)
        since = _checked(stream, onward, total, event.seq - 1)
        _, after, last = next(since)
        yield _with_files(store, event), after, len(last)
        yield from ((event, total, len(line)) for event, total, line in since)
        return
    fork = _fork_in(stream, line) if line else None
    if fork is not None:
        for shared, total, line in _past(store, stream, fork, None, ()):
            yield shared, total, len(line)
    base = fork.seq if fork is not None else 0
    whole = store.read(stream) if newest is None else _oldest_first(newest)
    for each, total, line in _checked(stream, whole, base=base):
        yield each, total, len(line)


_MOST_HELD = 32_768
"""So many lines are held while they are read back."""


def _whole_checkpoint(stream: str, line: bytes) -> Checkpointed | None:
    if not line.startswith(_CHECKPOINT) or _WHOLE_CHECKPOINT not in line:
        return None
    event = _decoded(stream, 0, line)
    is_whole = isinstance(event, Checkpointed) and event.carried is not None
    return event if is_whole else None  # type: ignore[return-value]


def _oldest_first(lines: list[bytes]) -> Iterator[bytes]:
    """The lines that were read back, each released as it is taken: a log may be large."""
    while lines:
        yield lines.pop()


def _with_files(store: Store, event: Checkpointed) -> Checkpointed:
    """A whole checkpoint with the files that it carries: many of them stand in a blob."""
    carried = event.carried
    if carried is None or not isinstance(carried.files, Raw):
        return event
    found = Raw(fetch(store, carried.files, {}, dict))
    return replace(event, carried=replace(carried, files=found))


def advance_checked(state: State, event: AnyEvent, stream: str) -> None:
    """Change a state by an event that was read: one that makes no sense after it is damage."""
    try:
        advance(state, event)
    except (*NONSENSE, Illegible) as error:
        raise senseless(stream, event, error) from error
    if event.seq % _SETTLE_EVERY == 0 and len(state.calls) > _MANY_CALLS:
        _settle(state)


_MANY_CALLS = 16_384
_SETTLE_EVERY = 4_096
_NEWEST_CALLS = 1_024
"""Those are left as they are: somebody may be about to ask for them."""


def _settle(state: State) -> None:
    """Keep the calls that have ended as bytes, and no events that can be read again."""
    calls = state.calls
    if not isinstance(calls, Later):
        calls = state.calls = Packed(calls, _dump_calls, _load_calls, has_ended)
    if isinstance(calls, Packed):
        calls.settle(_NEWEST_CALLS)
    if isinstance(state.trail, Reread):
        state.trail.thin()


def has_ended(call: Call) -> bool:
    """Whether a call was completed, or failed for good."""
    return call.status in ("completed", "failed")


_dump_calls = msgspec.json.Encoder().encode
_load_calls = decoder(list[Call])


def senseless(stream: str, event: AnyEvent, error: Exception) -> LogDamaged:
    """The error for an event that was read well, and does not follow from those before it."""
    what = f"a {type(event).__name__} that makes no sense after what came before it"
    return LogDamaged(stream, event.seq, f"{what} ({shown(error)})")


def _checked(
    stream: str,
    lines: Iterable[bytes],
    total: bytes = chain.ROOT,
    seq: int = 0,
    most: int | None = None,
    base: int = 0,
) -> Iterator[tuple[AnyEvent, bytes, bytes]]:
    """Lines as events, each with the sum after it: those that follow the line `seq` of a stream.

    Events count on from the `base` of their log, lines from 1.
    """
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
        elif type(event) in _BEGINS:
            raise LogDamaged(stream, seq, "a log begins only once")
        yield replace(event, seq=seq + base) if base else event, total, line


def _must_be_ours_to_write(stream: str, newest: bytes) -> None:
    if chain.is_signed(newest):  # a store that has the key takes the signatures off
        raise WrongKey(
            f"{stream} is signed, and no key to sign with was given, so it can only be read. "
            f"Nothing was changed: open it with Holdfast(…, sign_key=…), or holdfast "
            f"--sign-key-file FILE"
        )


def _must_begin(stream: str, event: AnyEvent) -> None:
    kind, _, id = stream.partition("/")
    what, first = _FIRST.get(kind, _FIRST["tasks"])
    if not isinstance(event, first):
        raise LogDamaged(stream, 1, f"a log begins with the making of its {what}")
    if event.id != id:
        raise LogDamaged(stream, 1, f"it is the log of {what} {event.id!r}, copied or moved here")


def _decoded(stream: str, seq: int, line: bytes) -> AnyEvent:
    try:
        event = load_event(line)
    except Illegible as error:
        # Its sum is right, so these are the bytes that were written: by somebody who knew more, if
        # they have a type that we don't know. Anything else nobody writes like that.
        kind = _type_of(line)
        if kind is not None and kind not in _TYPES:
            raise _newer(stream, seq, f"this version can't read it ({error})") from None
        what = f"it makes no sense ({error})"
        if kind is None and b'"box":"' in line:
            what = "it is encrypted, and the keys that belong to it are not in this store"
        raise LogDamaged(stream, seq, what) from None
    if isinstance(event, _SAYS_FORMAT) and event.format > NEWEST_FORMAT:
        raise _newer(
            stream, seq, f"it is of format {event.format}, this version knows {NEWEST_FORMAT}"
        )
    return event


class _Typed(Struct):
    type: str


_typed = decoder(_Typed)


def _type_of(line: bytes) -> str | None:
    try:
        return _typed(line).type
    except Illegible:
        return None


def _newer(stream: str, seq: int, what: str) -> NewerFormat:
    return NewerFormat(
        f"{stream}: event {seq} was written by a newer Holdfast: {what}. "
        f"Nothing was changed: open it with that version, or upgrade this one"
    )


# Waiting for something to happen in a store.
#
# A store that many processes share may tell of news: it then has one method more than the port
# asks for, which returns True as soon as facts have changed or a message was left, or, of `lines`,
# when anything was appended at all. With any other store one looks again from time to time, and
# with those that tell one does so too, only not so often: a process that dies tells nothing.


@runtime_checkable
class TellsNews(Protocol):
    """A store that tells of news."""

    def wait_for_news(self, timeout_s: float, *, lines: bool = False) -> bool:
        """Wait until there is news that the calling thread has not been told of; False if none."""


def pause(store: Store, seconds: float, *, lines: bool = False) -> None:
    """Wait until it is worth to look again: for so long, or until there is news."""
    if isinstance(store, TellsNews):
        store.wait_for_news(seconds, lines=lines)
    else:
        time.sleep(seconds)


# Reading a log on from where one left off, each line checked against the line before it.


class Tail:
    """The end of a task's log, as far as it was read.

    It holds no file open: the log may be replaced by a copy (when another process takes the task
    over) and is found again by its name.
    """

    def __init__(self, store: Store, task_id: str) -> None:
        self._store = store
        self._task_id = task_id
        self._stream = stream_of(task_id)
        self.state: State = new_state(store, self._stream)
        self._total = chain.ROOT
        self._base = 0
        self._is_whole = True

    def begin(self, state: State, total: bytes) -> None:
        """Begin after an event of the log's own, with the state that the log came to there, and
        the sum of the event."""
        self.state, self._total, self._is_whole = state, total, False
        self._base = base_of(self._store, self._stream)

    @property
    def finished(self) -> bool:
        """Whether the task had ended at the newest event read."""
        return self.state.status in FINISHED

    def read(self) -> Iterator[tuple[bytes, AnyEvent]]:
        """The lines that came since the last time, with their events."""
        try:
            for event, total, line in self._new():
                self._advance(event)
                self._total = total
                yield line, event
        except LogDamaged:
            if self.state.seq and next(self._store.read(self._stream), None) is None:
                raise _deleted(self._task_id) from None
            raise

    def events(self, after: int) -> Iterator[AnyEvent]:
        """The events after `after` that came since the last time."""
        for _, event in self.read():
            if event.seq > after:
                yield event
        if after and not self.state.seq:  # a caller that saw that event saw the task
            raise _deleted(self._task_id)

    def _advance(self, event: AnyEvent) -> None:
        if isinstance(event, Rewound) and not self._is_whole:
            # A rewind needs the events before it, and this state was made without them.
            self.state, self._is_whole = read_state(self._store, self._stream, event.seq), True
        else:
            advance_checked(self.state, event, self._stream)

    def _new(self) -> Iterator[tuple[AnyEvent, bytes, bytes]]:
        if self.state.seq:
            return read_on(self._store, self._stream, self.state.seq, self._total, self._base)
        self._base = base_of(self._store, self._stream)
        return read_lines(self._store, self._stream)


def _deleted(task_id: str) -> TaskNotFound:
    return TaskNotFound(f"task {task_id!r} was deleted")
