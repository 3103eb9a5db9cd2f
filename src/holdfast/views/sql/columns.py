"""Tables: their columns, what each says, and how a log gives it.

The tables are declared once, here and in the modules named `of_…`. The database that a query runs
on, the help of the command line and the reference page are all made of these declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw, Struct, UnsetType

from holdfast.core.conversation import Conversation
from holdfast.core.decoding import decode
from holdfast.core.events import AnyEvent, Failure, Said, Summarized
from holdfast.core.lists import REFERENCES, Lists
from holdfast.core.memories import Memories
from holdfast.core.state import FINISHED, Decision, State
from holdfast.errors import StoreError
from holdfast.log.artifacts import File, file_of
from holdfast.log.messages import Message, load_turn
from holdfast.log.reading import base_of, read_events, stream_of
from holdfast.log.states import load
from holdfast.log.values import fetch
from holdfast.stores.port import Holder, Store
from holdfast.views.task import TaskView

Kind = Literal["text", "integer", "real", "time", "json", "value"]
"""The content of a column. `value` is JSON as well: that of a log, which may be large, and is only
had when a query comes to it."""
Source = Literal["task", "session", "memory"]

STORED_AS = {
    "text": "text",
    "integer": "integer",
    "real": "real",
    "time": "text",
    "json": "text",
    "value": "",
}
"""The type that a column is declared with in SQLite."""

_LEAST, _MOST = -(2**63), 2**63


class Column(Struct, frozen=True):
    """One column. `of` makes its value of a log and of what a row is about."""

    name: str
    kind: Kind
    about: str
    of: Callable[[Any, Any], Any]


class Table(Struct, frozen=True):
    """One table. `each` gives what its rows are about, of one log."""

    name: str
    about: str
    source: Source
    each: Callable[[Any], Iterable[Any]]
    columns: tuple[Column, ...]

    def chosen(self, names: Iterable[str]) -> tuple[Column, ...]:
        """The columns of these names, in the order they are declared in."""
        wanted = set(names)
        return tuple(column for column in self.columns if column.name in wanted)


def text(name: str, about: str, of: Callable[[Any, Any], str | None]) -> Column:
    """A column of text."""
    return Column(name, "text", about, of)


def integer(name: str, about: str, of: Callable[[Any, Any], int | None]) -> Column:
    """A column of whole numbers; 0 and 1 for what is or is not so."""
    return Column(name, "integer", about, of)


def real(name: str, about: str, of: Callable[[Any, Any], float | None]) -> Column:
    """A column of numbers."""
    return Column(name, "real", about, of)


def time(name: str, about: str, of: Callable[[Any, Any], datetime | None]) -> Column:
    """A column of times."""
    return Column(name, "time", about, of)


def json(name: str, about: str, of: Callable[[Any, Any], Any]) -> Column:
    """A column of JSON that is made here, of plain data."""
    return Column(name, "json", about, of)


def value(name: str, about: str, of: Callable[[Any, Any], Any]) -> Column:
    """A column of values as the log has them."""
    return Column(name, "value", about, of)


def seconds(began: datetime, ended: datetime | None) -> float | None:
    """How long something took, if it has ended."""
    return None if ended is None else (ended - began).total_seconds()


def stamp(at: datetime) -> str:
    """A time as SQLite's own functions write it, so that it compares with what they give: in UTC.

    >>> stamp(datetime(2026, 1, 31, 18, 0, tzinfo=UTC))
    '2026-01-31 18:00:00.000000'
    """
    return at.astimezone(UTC).isoformat(" ", "microseconds")[:26]


def _whole(number: int) -> int:
    if not _LEAST <= number < _MOST:
        raise OverflowError(f"{number:.3e} is too large a number")
    return int(number)


def _encoded(data: Any) -> str:
    return msgspec.json.encode(data).decode()


def _same(given: Any) -> Any:
    return given


AS_STORED: dict[str, Callable[[Any], Any]] = {
    "text": _same,
    "integer": _whole,
    "real": float,
    "time": stamp,
    "json": _encoded,
    "value": _same,
}
"""How what a column gives becomes what SQLite takes. None stays what it is."""


# The logs as the tables see them: a state, and what is had of the store only when it is asked for.
#
# A value that stands in its event is text at once. A value that is kept beside it, in a blob or as
# a long list, is numbered here, and fetched when a query comes to it: a column that no query reads
# costs nothing, and neither do the rows that a `where` leaves out.


class Broken(NamedTuple):
    """Something that broke, and what it was called with."""

    path: str
    name: str
    attempt: int
    at: object
    failure: Failure
    args: Raw | UnsetType


class Chosen(NamedTuple):
    """A decision, the step before it, and the one that took its place."""

    decision: Decision
    step: str
    superseded_by: str


class FileVersion(NamedTuple):
    """A version of a file, and whether the file is like that now."""

    file: File
    is_newest: bool


class SqlValues:
    """The values that are kept beside their events, numbered in the order they were met."""

    def __init__(self, store: Store, unreadable: list[StoreError]) -> None:
        self._store = store
        self._unreadable = unreadable
        self._met: list[tuple[str, Raw, Lists]] = []
        self._last: tuple[int, str | None] = (-1, None)

    def stored(self, stream: str, value: Raw | UnsetType, lists: Lists) -> str | int | None:
        """A value as a table has it: its JSON, or its number."""
        if not isinstance(value, Raw):
            return None
        data = bytes(value)
        if not data.startswith(REFERENCES):
            return data.decode("utf-8", "replace")
        self._met.append((stream, value, lists))
        return len(self._met) - 1

    def fetch(self, number: object) -> str | None:
        """The JSON of a value. A value that can't be read is NULL, and is reported."""
        if type(number) is not int or not 0 <= number < len(self._met):
            return None
        if self._last[0] != number:  # a query often names a column twice
            self._last = (number, self._fetched(*self._met[number]))
        return self._last[1]

    def _fetched(self, stream: str, value: Raw, lists: Lists) -> str | None:
        try:
            return fetch(self._store, value, lists, dict).decode("utf-8", "replace")
        except StoreError as error:
            told = str(error) if stream in str(error) else f"{stream}: {error}"
            if told not in map(str, self._unreadable):
                self._unreadable.append(StoreError(told))
            return None


class TaskLog:
    """The log of a task."""

    def __init__(
        self, store: Store, values: SqlValues, id: str, known: State | None = None
    ) -> None:
        self._store = store
        self._values = values
        self._known = known
        self.id = id

    @cached_property
    def state(self) -> State:
        """Its state; of `seq` 0 if it was deleted meanwhile."""
        return self._known or load(self._store, self.id, missing_ok=True)

    @cached_property
    def view(self) -> TaskView:
        """The view of the task."""
        return TaskView(self._store, self.state)

    def value(self, raw: Raw | UnsetType) -> str | int | None:
        """A value of the log."""
        return self._values.stored(stream_of(self.id), raw, self.state.lists)

    def whole(self, raw: Raw) -> bytes:
        """The bytes of a value, wherever they are."""
        return fetch(self._store, raw, self.state.lists, dict)

    def events(self) -> Iterator[AnyEvent]:
        """The log itself."""
        return read_events(self._store, stream_of(self.id))

    @property
    def origin(self) -> str:
        """The task whose past it shares, or ''."""
        return self.state.fork.of if self.state.fork is not None else ""

    def is_shared(self, seq: int) -> bool:
        """Whether an event is of the past that it has from another task."""
        return seq <= self._base

    @cached_property
    def _base(self) -> int:
        return base_of(self._store, stream_of(self.id))

    def itself(self) -> Iterator[TaskLog]:
        """The task, if it is there."""
        if self._known is not None or self.state.seq:
            yield self

    @cached_property
    def holder(self) -> Holder | None:
        """The holder of the task now, and the end of its lease."""
        if self.state.status in FINISHED:
            return None
        return self._store.holder(stream_of(self.id))

    @property
    def failed_attempts(self) -> int:
        """How many attempts failed."""
        calls = self.state.calls.values()
        return sum(a.failure is not None for call in calls for a in call.attempts)

    def failures(self) -> Iterator[Broken]:
        """Everything that broke."""
        for c in self.state.calls.values():
            for a in c.attempts:
                if a.failure is not None:
                    at = a.ended_at or a.at
                    yield Broken(c.path, c.name, a.number, at, a.failure, c.args)
        state = self.state
        if state.failure is not None:
            yield Broken("", state.task, 0, state.updated_at, state.failure, state.args)

    def choices(self) -> Iterator[Chosen]:
        """The decisions, in their order."""
        decisions = self.state.decisions
        later = {each.supersedes: each.path for each in decisions if each.supersedes}
        steps = self.view.steps_before()
        for each in decisions:
            yield Chosen(each, steps.get(each.path, ""), later.get(each.path, ""))

    def files(self) -> Iterator[FileVersion]:
        """Every version of its files."""
        now = self.state.files
        for known in self.state.kept:
            newest = now.get(known.name)
            yield FileVersion(file_of(known), newest is not None and newest.seq == known.seq)


class SessionLog:
    """The log of a session."""

    def __init__(self, store: Store, state: Conversation) -> None:
        self._store = store
        self.state = state
        self.id: str = state.id

    def messages(self) -> Iterator[Heard]:
        """The turns. A turn is decoded when something of it is asked for."""
        for said, first in zip(self.state.turns, self.state.firsts, strict=True):
            turn = _Turn(self._store, said, first)
            for index in range(said.count):
                yield Heard(turn, index)

    def summary(self) -> str | None:
        """The newest summary."""
        newest = self.state.summary
        return None if newest is None else self.text_of(newest)

    def text_of(self, summary: Summarized) -> str:
        """The text of a summary."""
        return decode(fetch(self._store, summary.text, {}, dict), str)


class _Turn:
    def __init__(self, store: Store, said: Said, first: int) -> None:
        self._store = store
        self.said = said
        self.first = first

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        return load_turn(self._store, self.said, self.first)


class Heard:
    """One message of a turn."""

    def __init__(self, turn: _Turn, index: int) -> None:
        self._turn = turn
        self._index = index

    @property
    def said(self) -> Said:
        """The event that has it."""
        return self._turn.said

    @property
    def number(self) -> int:
        """Its place in the conversation."""
        return self._turn.first + self._index

    @property
    def message(self) -> Message:
        """The message itself."""
        return self._turn.messages[self._index]


class MemoryLog:
    """The log of a memory."""

    def __init__(self, state: Memories) -> None:
        self.state = state
        self.id: str = state.id
