"""Whether logs are what was written, from the first byte to the last, and whether they are whole.

Every event of every log is read, be it of a task, of a session or of a memory: its sum and those
before it (and its signature, in a store that has the key), its place, that it follows from those
before it, the blobs that it names, and the messages that wait. A log that was cut short is still a
good log; only who knows how long it was can tell. That is what a `Head` is for: keep it elsewhere,
and compare.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast import chain
from holdfast.decoding import Illegible, decode
from holdfast.errors import LogDamaged, StoreError, TaskNotFound
from holdfast.events import AnyEvent
from holdfast.folding import empty, follow
from holdfast.kinds import KINDS, Kind, KindName, for_people, id_of, kind_of, named
from holdfast.naming import references
from holdfast.reading import base_of, read_sums, stream_of
from holdfast.values import blobs_in, raws_in
from holdfast.words import checked_id

if TYPE_CHECKING:
    from holdfast.store import Store

Progress = Callable[[int, int], None]
"""Told how many logs were checked, and of how many."""


class Head(Struct, frozen=True, omit_defaults=True):
    """How far a log went when somebody looked: the number of its last event, and its sum.

    That of a fork counts the events that it shares with its original, too.
    """

    task: str
    """The id of a task. A log of another `kind` is named by its stream: `sessions/<id>`."""
    seq: int
    sum: str
    kind: KindName = "task"

    @property
    def stream(self) -> str:
        """The stream of the log."""
        kind = named(self.kind)
        return kind.stream(kind.id_shown(self.task))


class Damage(Struct, frozen=True):
    """Something that is not as it was written. `seq` is 0 where it is about no event."""

    task: str
    """As that of a `Head`."""
    seq: int
    what: str
    kind: KindName = "task"

    @property
    def name(self) -> str:
        """The log, as people are told of it."""
        return for_people(self.task, self.kind)

    def __str__(self) -> str:
        place = f"event {self.seq}: " if self.seq else ""
        return f"{self.name}: {place}{self.what}"


class Verified(Struct):
    """What was read, and what is wrong with it: for each log the first thing that is."""

    tasks: int = 0
    events: int = 0
    blobs: int = 0
    damage: list[Damage] = []
    sessions: int = 0
    memories: int = 0

    @property
    def sound(self) -> bool:
        """Whether everything is as it was written."""
        return not self.damage


def heads(
    store: Store, ids: Iterable[str] = (), unreadable: list[StoreError] | None = None
) -> list[Head]:
    """How far the logs of some tasks go, or all logs. What is wrong with those that can't be read
    is raised, or added to `unreadable`."""
    asked = [stream_of(checked_id(id)) for id in ids]
    found = []
    for stream in asked or _all(store):
        try:
            newest = next(iter(store.tail(stream)), None)
            if newest is not None:
                found.append(_head(stream, newest, base_of(store, stream)))
            elif asked:
                raise TaskNotFound(f"no task {id_of(stream)!r} in {store.url}")
        except StoreError as error:
            if unreadable is None:
                raise
            unreadable.append(error)
    return found


def verify(
    store: Store,
    ids: Iterable[str] = (),
    against: Iterable[Head] = (),
    progress: Progress = lambda done, of: None,
) -> Verified:
    """Check some tasks, or all logs; and against the heads, if any, that they had before."""
    known = {head.stream: head for head in against}
    wanted = [stream_of(checked_id(id)) for id in ids]
    todo = wanted or _in_order({*_all(store), *known})
    found, blobs = Verified(), Blobs(store)
    for number, stream in enumerate(todo):
        progress(number, len(todo))
        seq = _check(store, stream, known.get(stream), found, blobs)
        if seq == 0 and stream in wanted and stream not in known:
            raise TaskNotFound(f"no task {id_of(stream)!r} in {store.url}")
    if not wanted and hasattr(store, "nameless"):
        for kind in KINDS:
            for folder in store.nameless(kind.plural):
                what = "the first line of its log does not tell whose it is"
                found.damage.append(Damage(folder, 1, what, kind.name))
    found.blobs = len(blobs.problems)
    progress(len(todo), len(todo))
    return found


class _Placed(Struct):
    seq: int


def _head(stream: str, newest: bytes, base: int) -> Head:
    kind = kind_of(stream)
    try:
        seq = base + decode(newest, _Placed).seq
        total = chain.sum_of(newest).decode("ascii")
    except Illegible as error:
        what = f"the last line makes no sense ({error}), so it is no head to go by"
        raise LogDamaged(stream, 0, what) from None
    return Head(kind.shown(id_of(stream)), seq, total, kind.name)


def _all(store: Store) -> list[str]:
    return _in_order(stream for kind in KINDS for stream in store.streams(kind.prefix))


def _in_order(streams: Iterable[str]) -> list[str]:
    return sorted(streams, key=lambda stream: (KINDS.index(kind_of(stream)), stream))


def _check(
    store: Store, stream: str, head: Head | None, found: Verified, blobs: Blobs
) -> int | None:
    """Read a log to its end, or to the first thing that is wrong; returns how far it goes."""
    kind, state, seen = kind_of(stream), empty(stream), head is None
    shown = kind.shown(id_of(stream))
    try:
        base = base_of(store, stream)
        for event, total in read_sums(store, stream):
            found.events += event.seq > base  # what it shares is counted in the other log
            for problem in blobs.check(event):
                raise LogDamaged(stream, event.seq, problem)
            if head is not None and event.seq == head.seq:
                seen = True
                if total.decode() != head.sum:
                    raise LogDamaged(stream, event.seq, "it is another one than when it was noted")
            follow(state, event, stream)
        if not seen and head is not None:
            raise LogDamaged(stream, head.seq, _cut(kind, state.seq, head))
        if hasattr(store, "refused") and store.refused([stream]):
            what = "a message for it was changed, or left by somebody without the key"
            raise LogDamaged(stream, 0, what)
    except LogDamaged as error:
        found.damage.append(Damage(shown, error.seq, what_in(stream, error), kind.name))
    except StoreError as error:
        found.damage.append(Damage(shown, 0, f"it can't be checked: {error}", kind.name))
    else:
        _count(found, kind, bool(state.seq))
        return state.seq
    _count(found, kind)
    return None


def what_in(stream: str, error: LogDamaged) -> str:
    """What is wrong with a log, where that may be in the log whose past it shares."""
    if error.stream == stream:
        return error.what
    return f"it shares its past with {error.stream}, which is damaged there: {error.what}"


def _count(found: Verified, kind: Kind, by: int = 1) -> None:
    setattr(found, kind.plural, getattr(found, kind.plural) + by)


def _cut(kind: Kind, seq: int, head: Head) -> str:
    if not seq:
        return f"the {kind.name} is gone, and it had {head.seq} events when they were noted"
    return f"the log was cut: it ends with event {seq}, and went up to {head.seq} when it was noted"


class Blobs:
    """Checks the blobs that events name, each one once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.problems: dict[str, str] = {}
        """What is wrong with each; '' where it is sound."""
        self._values: set[str] = set()

    def check(self, event: AnyEvent) -> Iterator[str]:
        """What is wrong with those that an event names, and with the values that stand in it."""
        for value in raws_in(event):
            data = bytes(value)
            if why := _why_no_json(data):
                yield f"it has a value that makes no sense ({why})"
                continue
            problems = [self._known_problem(digest, is_value=True) for digest in blobs_in(value)]
            problems += map(self._known_problem, parts_named(data))
            yield from (f"it has a value in a blob, and {each}" for each in problems if each)

    def _problem(self, digest: str, is_value: bool) -> str:
        if not re.fullmatch("[0-9a-f]{64}", digest):
            return f"{digest[:80]!r} names no blob"
        try:
            data = self._store.get_blob(digest)
        except LogDamaged as error:
            return f"{error.stream} is damaged: {error.what}"
        except StoreError as error:
            return str(error)
        if is_value and (why := _why_no_json(data)):
            return f"blobs/{digest} holds none ({why})"
        self.problems[digest] = ""
        return next(filter(None, map(self._known_problem, parts_named(data))), "")

    def _known_problem(self, digest: str, *, is_value: bool = False) -> str:
        """`is_value` says that it holds a value, and not the content of a file."""
        if digest not in self.problems or (is_value and digest not in self._values):
            if is_value:
                self._values.add(digest)
            self.problems[digest] = self._problem(digest, is_value)
        return self.problems[digest]


def _why_no_json(data: bytes) -> str:
    try:
        decode(data)
    except Illegible as error:
        return error.what
    return ""


def parts_named(data: bytes) -> Iterator[str]:
    """The blobs of the artifacts that some data names, or of an artifact that it lists."""
    return (each.digest for each in references(data) if each.is_sure and each.kind != "blob")
