"""A thread of LangGraph as a session: what its log holds, and what is found in it.

Everything stands under keys in the session's log (`ValuesChanged`), one event for each `put`. The
keys are those of `views/sessions.py`, with their parts percent-quoted. A list is written as what is
new in it: a conversation of 2,000 turns costs its messages.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import field

from holdfast.api.app import Holdfast
from holdfast.core.conversation import Conversation, advance
from holdfast.core.decoding import damage_in, decode
from holdfast.core.events import (
    FORMAT,
    AnyEvent,
    SessionBegan,
    SessionRewound,
    ValueChange,
    ValuesChanged,
)
from holdfast.core.facts import facts_of_session
from holdfast.core.memories import KeptValue
from holdfast.core.words import checked_id
from holdfast.log.ledger import Ledger
from holdfast.log.namespaces import parts_of
from holdfast.log.reading import session_stream
from holdfast.log.store_calls import streams_in
from holdfast.log.values import fetch, stow
from holdfast.stores.port import Store
from holdfast.views.sessions import CHANNEL, CHECKPOINT, WRITE, parts_of_key

_MOST_THREADS = 256

Place = tuple[str, str]
"""A namespace of a graph, and the id of a checkpoint in it."""


class ThreadState(Conversation):
    """A session, with the checkpoints in it by their place."""

    checkpoints: dict[str, dict[str, KeptValue]] = field(default_factory=dict)
    """By namespace, by id."""
    channels: dict[tuple[str, str, str], KeptValue] = field(default_factory=dict)
    """By namespace, channel and version."""
    writes: dict[Place, dict[tuple[str, int], KeptValue]] = field(default_factory=dict)
    """By the place of their checkpoint, then by task and index."""


class Thread:
    """The log of one thread, as far as it was read."""

    def __init__(self, hf: Holdfast, id: str) -> None:
        held = hf._holding
        self.id = id
        self.store: Store = hf.store
        self.stream: str = session_stream(checked_id(id))
        self.lists: dict[tuple[str, str, str], list[Any]] = {}
        """Long lists as they were decoded or written last, by channel and version."""
        self._held = held
        self._ledger: Ledger[ThreadState] = Ledger(
            self.store, self.stream, held.owner, held.clock,
            new=ThreadState, advance=_advance, facts=facts_of_session, redact=held.redact,
        )  # fmt: skip

    def look(self, at: Callable[[ThreadState], Any]) -> Any:
        """The result made of the state, with what others have added, while nobody changes it."""
        return self._ledger.look(at)

    def data(self, kept: KeptValue) -> Any:
        """A value as plain data."""
        with damage_in(self.stream):
            return decode(fetch(self.store, kept.value, {}, dict))

    def put(self, values: Mapping[str, Any], unless: Iterable[str] = ()) -> None:
        """Put plain data under keys, durably: all at once, if it is not huge.

        Keys in `unless` that are there already are left as they are.
        """
        redact = self._held.redact
        changes = []
        for key, value in values.items():
            data = msgspec.json.encode(value)
            redact.must_be_free(data)
            changes.append(ValueChange(key, stow(self.store, data, self._held.max_value_bytes)))
        self._begin()
        kept = frozenset(unless)
        for part in parts_of(changes):
            self._write(part, kept)

    def _write(self, part: Sequence[ValueChange], unless: frozenset[str] = frozenset()) -> None:
        def make(state: ThreadState) -> ValuesChanged | None:
            new = [c for c in part if c.key not in unless or c.key not in state.values]
            return ValuesChanged(changes=tuple(new)) if new else None

        self._ledger.write(make)

    def _begin(self) -> None:
        if not self._ledger.state.seq:
            began = SessionBegan(format=FORMAT, id=self.id, labels={"from": "langgraph"})
            self._ledger.write(lambda state: None if state.seq else began)

    def drop(self, keys: Sequence[str]) -> None:
        """Take away what is there under these keys. The log still has it."""
        if keys:
            for part in parts_of([ValueChange(key) for key in keys]):
                self._write(part)

    def delete(self) -> None:
        """Delete the thread; also its log, unless it is a session in which something was said."""
        state = self._ledger.refresh()
        if state.turns:
            self.drop([key for key in state.values if key.split("/")[0] in _KINDS])
        elif state.seq:
            self._ledger.delete()
        self.lists.clear()


class Threads:
    """The threads of a store: those used last are kept as far as they were read."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self._known: OrderedDict[str, Thread] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, id: str) -> Thread:
        """The thread of that id."""
        with self._lock:
            found = self._known.get(id)
            if found is None:
                found = self._known[id] = Thread(self._hf, id)
                if len(self._known) > _MOST_THREADS:
                    self._known.popitem(last=False)
            self._known.move_to_end(id)
            return found

    def all(self) -> Iterator[Thread]:
        """Every session in which there are checkpoints."""
        for stream in sorted(streams_in(self._hf.store, session_stream(""))):
            thread = self.of(stream.partition("/")[2])
            if thread.look(lambda state: bool(state.checkpoints)):
                yield thread


def _advance(state: ThreadState, event: AnyEvent) -> None:
    advance(state, event)
    match event:
        case ValuesChanged():
            for change in event.changes:
                _index(state, change.key, state.values.get(change.key))
        case SessionRewound():
            state.checkpoints, state.channels, state.writes = {}, {}, {}
            for key, kept in state.values.items():
                _index(state, key, kept)


def _index(state: ThreadState, key: str, kept: KeptValue | None) -> None:
    match parts_of_key(key):
        case ["checkpoint", ns, id]:
            _set(state.checkpoints, ns, id, kept)
        case ["channel", ns, channel, version]:
            if kept is None:
                state.channels.pop((ns, channel, version), None)
            else:
                state.channels[ns, channel, version] = kept
        case ["write", ns, id, task, index]:
            _set(state.writes, (ns, id), (task, int(index)), kept)


def _set(table: dict[Any, dict[Any, KeptValue]], row: Any, column: Any, kept: Any) -> None:
    if kept is not None:
        table.setdefault(row, {})[column] = kept
    elif row in table:
        table[row].pop(column, None)
        if not table[row]:
            del table[row]


_KINDS = frozenset({CHECKPOINT, CHANNEL, WRITE})
