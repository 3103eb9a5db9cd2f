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

from msgspec import Raw, Struct

from holdfast.core.decoding import Illegible, decode
from holdfast.core.events import AnyEvent, ListGrew
from holdfast.core.kinds import KINDS, Kind, KindName, for_people, id_of, kind_of, named
from holdfast.core.state import State
from holdfast.core.words import checked_id
from holdfast.errors import LogDamaged, StoreError
from holdfast.log import chain
from holdfast.log.reading import base_of, no_task, read_sums, stream_of
from holdfast.log.states import Folded, empty, follow
from holdfast.log.store_calls import streams_in
from holdfast.log.values import blobs_in, lists_in, raws_in, references

if TYPE_CHECKING:
    from holdfast.stores.port import Store

Progress = Callable[[int, int], None]
"""Told how many logs were checked, and of how many."""


class Head(Struct, frozen=True, omit_defaults=True):
    """How far a log went when somebody looked: the number of its last event, and its sum.

    The head of a fork counts the events that it shares with its original, too.
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
    """The logs that were read, and the first thing that is wrong with each."""

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
    """The heads of the logs of some tasks, or of all logs. The faults of those that can't be read
    is raised, or added to `unreadable`."""
    asked = [stream_of(checked_id(id)) for id in ids]
    found = []
    for stream in asked or _all(store):
        try:
            newest = next(iter(store.read(stream, backwards=True)), None)
            if newest is not None:
                found.append(_head(stream, newest, base_of(store, stream)))
            elif asked:
                raise no_task(store, id_of(stream))
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
    found, blobs = Verified(), BlobCheck(store)
    for number, stream in enumerate(todo):
        progress(number, len(todo))
        seq = _check(store, stream, known.get(stream), found, blobs)
        if seq == 0 and stream in wanted and stream not in known:
            raise no_task(store, id_of(stream))
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
    return _in_order(stream for kind in KINDS for stream in streams_in(store, kind.prefix))


def _in_order(streams: Iterable[str]) -> list[str]:
    return sorted(streams, key=lambda stream: (KINDS.index(kind_of(stream)), stream))


def _check(
    store: Store, stream: str, head: Head | None, found: Verified, blobs: BlobCheck
) -> int | None:
    """Read a log to its end, or to the first thing that is wrong; returns how far it goes."""
    kind, state, seen = kind_of(stream), empty(store, stream), head is None
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
            must_have_items(state, event, stream)
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


def must_have_items(state: Folded, event: AnyEvent, stream: str) -> None:
    """`LogDamaged` if a list can't be made of what the log has. The state is after the event, and
    of a log that was read from its first event on."""
    if not isinstance(event, ListGrew) or not isinstance(state, State):
        return
    grown = state.lists[event.digest]
    if grown.base and grown.base not in state.lists:
        what = f"it goes on from a list that is not in its log ({grown.base:.80})"
        raise LogDamaged(stream, event.seq, what)
    if event.copied and not isinstance(grown.items, Raw):
        what = f"it has items of the call {event.copied[0][1]:.80}, whose result is not in its log"
        raise LogDamaged(stream, event.seq, what)


def what_in(stream: str, error: LogDamaged) -> str:
    """The fault of a log, which may be in the log whose past it shares."""
    if error.stream == stream:
        return error.what
    return f"it shares its past with {error.stream}, which is damaged there: {error.what}"


def _count(found: Verified, kind: Kind, by: int = 1) -> None:
    setattr(found, kind.plural, getattr(found, kind.plural) + by)


def _cut(kind: Kind, seq: int, head: Head) -> str:
    if not seq:
        return f"the {kind.name} is gone, and it had {head.seq} events when they were noted"
    return f"the log was cut: it ends with event {seq}, and went up to {head.seq} when it was noted"


class BlobCheck:
    """Checks the blobs that events name, each one once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.problems: dict[str, str] = {}
        """The fault of each; '' where it is sound."""
        self._values: set[str] = set()
        self._lists: set[str] = set()
        """The long lists that the log has so far."""

    def check(self, event: AnyEvent) -> Iterator[str]:
        """The faults of the blobs that an event names, and of the values in it.

        Events of one log come one after the other, from its first on.
        """
        if event.seq == 1:
            self._lists.clear()
        if isinstance(event, ListGrew):
            self._lists.add(event.digest)
        for value in raws_in(event):
            data = bytes(value)
            if why := _why_no_json(data):
                yield f"it has a value that makes no sense ({why})"
                continue
            problems = [self._known_problem(digest, is_value=True) for digest in blobs_in(value)]
            problems += map(self._known_problem, parts_named(data))
            if missing := [each for each in lists_in(value) if each not in self._lists]:
                yield f"it names a list that is not in its log ({missing[0]:.80})"
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
