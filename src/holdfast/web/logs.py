"""Reading a log by range: the state at a place, the events around it, and what a scan of it tells.

Neither side ever holds a whole log. A state is had by the nearest waypoint, which for a log of
100,000 events takes some 20 ms; the events of a page are folded on from there, so that each is said
in words with what was known after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core import events as e
from holdfast.core.decoding import Illegible, damage_in, decode
from holdfast.core.events import AnyEvent, load_event
from holdfast.core.state import Call, State
from holdfast.core.usage import spent, used_by
from holdfast.errors import BadInput, StoreError
from holdfast.log.reading import advance_checked, base_of, fork_of, lineage, no_task, stream_of
from holdfast.log.states import load, load_sound
from holdfast.stores.port import Store
from holdfast.views.task import MANY, TaskView
from holdfast.web.shapes import calls_by, event_row


class _Numbered(Struct):
    seq: int


def head_of(store: Store, id: str) -> int:
    """The number of the newest event; `TaskNotFound` if there is none."""
    stream = stream_of(id)
    last = next(store.read(stream, backwards=True), None)
    if last is None:
        raise no_task(store, id, ": see `holdfast ls`")
    with suppress(Illegible):
        return decode(last, _Numbered).seq + base_of(store, stream)
    return load_sound(store, id).seq


def state_at(store: Store, id: str, at: int | None) -> State:
    """The state of a task after the event `at`, or now; of a damaged log, before the damage."""
    with damage_in(stream_of(id)):
        if at is None:
            return load_sound(store, id)
        head = head_of(store, id)
        if not 1 <= at <= head:
            raise BadInput(f"task {id!r} has the events 1 to {head}, so there is none {at}")
        return load(store, id, at)


def view_at(store: Store, id: str, at: int | None = None) -> TaskView:
    """The task as of there."""
    return TaskView(store, state_at(store, id, at))


def spent_by(view: TaskView) -> tuple[int | None, float | None]:
    """The tokens and the money that the model calls of a task took; None where it is not known."""
    if len(view.state.calls) > MANY:
        return None, None
    with suppress(StoreError):
        told = [spent(used) for used in used_by(view.calls, view.value).values()]
        if told:
            cost = sum(each.cost for each in told)
            return sum(each.tokens for each in told), cost or None
    return None, None


# Events by range.


def _lines(store: Store, id: str, after: int) -> Iterator[tuple[int, bytes]]:
    """The lines after the event `after`, each with its number; those that a fork shares too."""
    *originals, own = lineage(store, stream_of(id))
    streams = [*originals, own]
    bases = [base_of(store, stream) for stream in streams]
    for place, stream in enumerate(streams):
        base = bases[place]
        end = bases[place + 1] if place + 1 < len(streams) else None
        begin = max(after, base)
        if end is not None and begin >= end:
            continue
        for seq, line in enumerate(store.read(stream, begin - base), begin + 1):
            if end is not None and seq > end:
                break
            yield seq, line


def _decoded(id: str, seq: int, line: bytes) -> AnyEvent:
    with damage_in(stream_of(id), seq):
        return replace(load_event(line), seq=seq)


def event_rows(store: Store, id: str, after: int, limit: int) -> list[dict[str, Any]]:
    """The events after `after` in words, so many of them."""
    fork = fork_of(store, stream_of(id))
    shared = fork.seq if fork is not None else 0
    state = load(store, id, after) if after else State()
    rows = []
    for seq, line in _lines(store, id, after):
        event = _decoded(id, seq, line)
        if isinstance(event, e.Rewound):  # the state before it does not know its whole past
            state = load(store, id, seq)
        else:
            advance_checked(state, event, stream_of(id))
        rows.append(event_row(event, state, shared))
        if len(rows) >= limit:
            break
    return rows


def event_at(store: Store, id: str, seq: int) -> tuple[AnyEvent, bytes]:
    """One event, and its line."""
    found = next(_lines(store, id, seq - 1), None) if seq >= 1 else None
    if found is None:
        raise BadInput(f"task {id!r} has no event {seq}")
    return _decoded(id, seq, found[1]), found[1]


def search(
    store: Store, id: str, text: str, after: int, limit: int, most: int = 200_000
) -> tuple[list[int], int | None, int]:
    """The numbers of events whose lines hold a text, whatever its case; where to go on; and how far
    was looked."""
    wanted = re.compile(re.escape(_as_json(text)).encode(), re.IGNORECASE)
    found: list[int] = []
    seq = after
    for count, (seq, line) in enumerate(_lines(store, id, after), 1):
        if wanted.search(line):
            found.append(seq)
        if len(found) >= limit or count >= most:
            return found, seq, seq
    return found, None, seq


def _as_json(text: str) -> str:
    """The text as it stands in a line, where quotes and the like are escaped."""
    return msgspec.json.encode(text).decode()[1:-1]


def row_at(store: Store, id: str, seq: int) -> dict[str, Any]:
    """One event in words."""
    rows = event_rows(store, id, seq - 1, 1)
    if not rows:
        raise BadInput(f"task {id!r} has no event {seq}")
    return rows[0]


_INSTANT = {b"decided", b"derived", b"observed"}
_LOOK_BACK, _MOST_READ = 50, 20_000


def calls_from(store: Store, state: State, paths: list[str], begin: int, end: int) -> list[Call]:
    """The calls of `paths[begin:end]`, each with the event that it began with.

    Decisions, facts and readings take no time, and a state keeps no event for them. They are looked
    up in the log, after the calls before them.
    """
    first = max(begin - _LOOK_BACK, 0)
    found = calls_by(state, paths[first:end])
    asked = found[begin - first :]
    wanted = {(call.path, call.at) for call in asked if not call.seq}
    if not wanted:
        return asked
    after = next((c.seq for c in reversed(found[: begin - first]) if c.seq), 0)
    seqs: dict[tuple[str, datetime], int] = {}
    for seq, line in islice(_lines(store, state.id, after), _MOST_READ):
        match = _LINE.match(line)
        if match and match[1] in _INSTANT:
            event: Any = _decoded(state.id, seq, line)
            if (event.path, event.at) in wanted:
                seqs[event.path, event.at] = seq
        if seq >= state.seq or len(seqs) == len(wanted):
            break
    return [
        replace(call, seq=at, ended_seq=at) if (at := seqs.get((call.path, call.at))) else call
        for call in asked
    ]


# One pass over the lines: where processes came and went, and where nothing ran.


_LINE = re.compile(
    rb'\{"type":"([a-z_]+)","seq":[0-9]+,"at":"([^"]{19,32})"'
    rb'(?:,"path":"[^"]*","began":"([^"]{19,32})")?'
)
"""How a line begins: its type, its number and its time; of a `stepped` when the step began, too."""
_BEGINS, _ENDS = {b"started", b"child_started"}, {b"completed", b"attempt_failed", b"failed"}
_LINES: dict[bytes, str] = {
    b"claimed": "begun",
    b"parked": "released",
    b"task_paused": "paused",
    b"task_continued": "continued",
    b"cancel_requested": "cancel",
    b"rewound": "rewound",
    b"task_retried": "retried",
    b"moved": "moved",
    b"checkpointed": "checkpoint",
    b"task_completed": "ended",
    b"task_failed": "ended",
    b"task_cancelled": "ended",
}
_MOST_LINES, _MOST_SPANS = 2000, 2000
_GAP_S = 2.0


class Scan:
    """The times that one pass over a log finds."""

    def __init__(self, store: Store, id: str, upto: int) -> None:
        self.lines: list[dict[str, Any]] = []
        self._every = max(1, -(-upto // _MOST_SPANS))
        self._spans: list[tuple[int, bytes, bytes]] = []
        self._first = self._last = b""
        self._idle: list[tuple[bytes, bytes]] = []
        self._claims = 0
        self._owner, self._held, self._open = "", False, 0
        before = b""
        for seq, line in _lines(store, id, 0):
            if seq > upto:
                break
            match = _LINE.match(line)
            kind, at, began = match.groups() if match else (b"", b"", b"")
            idle, until = not self._open or kind == b"claimed", began or at
            if idle and before and until and until[:19] != before[:19]:
                self._idle.append((before, until))
            if kind in _LINES:
                self._line(id, seq, line, kind, before)
            elif kind in _BEGINS:
                self._open += 1
            elif kind in _ENDS:
                self._open = max(self._open - 1, 0)
            if at:
                before = at
                self._span(seq, at)

    def _line(self, id: str, seq: int, line: bytes, kind: bytes, before: bytes) -> None:
        event: Any = _decoded(id, seq, line)
        what, owner, epoch = _LINES[kind], "", 0
        if isinstance(event, e.Claimed):
            owner, epoch = event.owner, event.epoch
            if self._held:
                at = _time(before) or event.at
                words = "the process before it was gone"
                self._add(seq, at, "died", self._owner, epoch - 1, words)
            what = "begun" if not self._claims else ("took_over" if self._held else "resumed")
            self._claims, self._held, self._owner, self._open = self._claims + 1, True, owner, 0
        elif kind in (b"parked", b"task_completed", b"task_failed", b"task_cancelled", b"rewound"):
            self._held, self._open = False, 0
        self._add(seq, event.at, what, owner, epoch, event_row(event, State())["sentence"])

    def _add(self, seq: int, at: datetime, kind: str, owner: str, epoch: int, words: str) -> None:
        if len(self.lines) < _MOST_LINES:
            self.lines.append(
                {"seq": seq, "at": at, "kind": kind, "owner": owner, "epoch": epoch, "words": words}
            )

    def times(self) -> tuple[datetime | None, datetime | None]:
        """When the log begins and ends."""
        return _time(self._first), _time(self._last)

    @property
    def processes(self) -> int:
        """How often somebody took hold of the task."""
        return self._claims

    def gaps(self) -> list[tuple[datetime, datetime]]:
        """Stretches in which nothing ran, worth folding."""
        began, ended = self.times()
        if began is None or ended is None:
            return []
        least = max(_GAP_S, 0.02 * (ended - began).total_seconds())
        found = []
        for first, last in self._idle:
            begin, end = _time(first), _time(last)
            if begin and end and (end - begin).total_seconds() >= least:
                found.append((begin, end))
        return found[:_MOST_LINES]

    def spans(self) -> list[tuple[int, datetime | None, datetime | None]]:
        """The times of the events, coarsely: of each stretch its first number, and when it began
        and ended."""
        return [(seq, _time(first), _time(last)) for seq, first, last in self._spans]

    def _span(self, seq: int, at: bytes) -> None:
        self._first = self._first or at
        self._last = at
        if not self._spans or seq >= self._spans[-1][0] + self._every:
            self._spans.append((seq, at, at))
        else:
            first, begun, _ = self._spans[-1]
            self._spans[-1] = (first, begun, at)


def _time(text: bytes) -> datetime | None:
    with suppress(ValueError):
        return datetime.fromisoformat(text.decode())
    return None
