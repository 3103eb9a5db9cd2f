"""The log of a session as the agent package reads and writes it: turns in, messages out.

A book is shared by all who use the session in this process: it remembers how far it has read, the
messages it has decoded and how many tokens they are, so that a context costs what is in it and not
what was ever said.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from holdfast.codec.redact import DEFAULT, Redact
from holdfast.core.conversation import Conversation, as_it_is
from holdfast.core.decoding import damage_in, decode
from holdfast.core.events import FORMAT, Pinned, Said, SessionBegan, SessionEnded, Summarized
from holdfast.core.words import checked_id
from holdfast.errors import BadInput, Conflict, LogDamaged, SessionNotFound
from holdfast.log.ledger import session_ledger
from holdfast.log.messages import Message, Turn, load_turn
from holdfast.log.reading import read_events, session_stream
from holdfast.log.tokens import Counter, calibrate
from holdfast.log.values import MAX_VALUE_BYTES, fetch, stow
from holdfast.stores.port import Store

_MOST_BOOKS = 256
_MOST_DECODED = 4096
_LOOKED_AT = 24
"""How many turns back the usage that providers reported is looked for."""


class BookMeans:
    """The means to write to the sessions of a store."""

    __slots__ = ("clock", "max_value_bytes", "owner", "redact", "store")

    def __init__(
        self,
        store: Store,
        owner: str,
        clock: Callable[[], datetime],
        redact: Redact = DEFAULT,
        max_value_bytes: int = MAX_VALUE_BYTES,
    ) -> None:
        self.store: Store = store
        self.owner: str = owner
        self.clock: Callable[[], datetime] = clock
        self.redact: Redact = redact
        self.max_value_bytes: int = max_value_bytes


_books: WeakKeyDictionary[Store, OrderedDict[str, Book]] = WeakKeyDictionary()
_lock = threading.Lock()


def book_of(means: BookMeans, id: str) -> Book:
    """The book of a session: the same one for all who ask in this process."""
    checked_id(id)
    with _lock:
        known = _books.setdefault(means.store, OrderedDict())
        book = known.get(id)
        if book is None:
            book = known[id] = Book(means, id)
            if len(known) > _MOST_BOOKS:
                known.popitem(last=False)
        known.move_to_end(id)
        return book


class Book:
    """A session's log, as far as it was read."""

    def __init__(self, means: BookMeans, id: str) -> None:
        self.id = id
        self.means = means
        self._ledger = session_ledger(means.store, id, means.owner, means.clock, means.redact)
        self._lock = threading.RLock()
        self._beginnings = 0
        self._forget()

    def _forget(self) -> None:
        self._decoded: OrderedDict[int, Turn] = OrderedDict()
        self._tokens: dict[str, dict[int, int]] = {}
        self._sums: dict[str, list[int]] = {}

    @property
    def store(self) -> Store:
        """Where it is kept."""
        return self.means.store

    def refresh(self) -> Conversation:
        """The state with what others have added; `SessionNotFound` if there is none."""
        return self._seen(self._ledger.refresh())

    def now(self) -> Conversation:
        """The same as it is at this moment: what other threads add meanwhile is not in it."""
        return self._seen(self._ledger.look(as_it_is))

    def _seen(self, state: Conversation) -> Conversation:
        if self._beginnings != self._ledger.beginnings:
            with self._lock:
                self._beginnings = self._ledger.beginnings
                self._forget()
        return self._must_be(state)

    # Writing

    def begin(self, user: str, labels: dict[str, str]) -> Conversation:
        """Begin the session, if nobody has."""
        state = self._ledger.refresh()
        if state.seq == 0:
            began = SessionBegan(format=FORMAT, id=self.id, user=user, labels=labels)
            self._ledger.write(lambda state: began if state.seq == 0 else None)
        return self._ledger.state

    def say(self, form: bytes, said: Said) -> int:
        """Add a turn, unless it was said under its key before; the event that has it."""
        self.means.redact.must_be_free(form)
        raw = stow(self.store, form, self.means.max_value_bytes)
        found = 0

        def make(state: Conversation) -> Said | None:
            nonlocal found
            self._must_be(state)
            turn = state.keys.get(said.key) if said.key else None
            if turn is None:
                found = state.seq + 1
                return replace(said, messages=raw)
            if state.turns[turn].digest != said.digest:
                raise Conflict(
                    f"session {self.id!r}: something else was said under the key {said.key!r} "
                    f"before. A key stands for one thing that is said"
                )
            found = state.turns[turn].seq
            return None

        self._ledger.write(make)
        return found

    def pin(self, number: int, pinned: bool, by: str) -> None:
        """Keep a message in every context, or no longer."""

        def make(state: Conversation) -> Pinned | None:
            self._must_be(state)
            if type(number) is not int or not 1 <= number <= state.messages:
                raise BadInput(
                    f"session {self.id!r} has no message {number!r:.20}: it has {state.messages}"
                )
            if (number in state.pinned) == pinned:
                return None
            return Pinned(number=number, pinned=pinned, by=by)

        self._ledger.write(make)

    def summarize(self, text: bytes, summary: Summarized) -> bool:
        """Add a summary, unless another one came first; whether it is there."""
        self.means.redact.must_be_free(text)
        raw = stow(self.store, text, self.means.max_value_bytes)

        def make(state: Conversation) -> Summarized | None:
            self._must_be(state)
            newest = state.summary.seq if state.summary is not None else 0
            return replace(summary, text=raw) if newest == summary.base else None

        if self._ledger.write(make):
            return True
        return any(each.key == summary.key for each in self._ledger.state.summaries if each.key)

    def end(self, because: str) -> None:
        """Say that the session is over, if it is not."""
        ended = SessionEnded(because=because)
        self._ledger.write(lambda state: ended if self._must_be(state).status == "open" else None)

    def as_of(self, seq: int) -> Book:
        """The book as it was after an event, for reading: also in a past that was left since."""
        past = Book(self.means, self.id)
        past._ledger.keep(read_events(self.store, session_stream(self.id), seq))
        return past

    def _must_be(self, state: Conversation) -> Conversation:
        if state.seq == 0:
            raise SessionNotFound(f"no session {self.id!r} in {self.store.url}")
        return state

    # Reading

    def turn(self, index: int) -> Turn:
        """The messages of a turn."""
        with self._lock:
            found = self._decoded.get(index)
            if found is None:
                state = self._ledger.state
                said = state.turns[index]
                with damage_in(session_stream(self.id), said.seq):
                    found = load_turn(self.store, said, state.firsts[index])
                self._decoded[index] = found
                if len(self._decoded) > _MOST_DECODED:
                    self._decoded.popitem(last=False)
            return found

    def turn_at(self, seq: int) -> Turn:
        """The messages of the turn that an event added."""
        if self._ledger.state.seq < seq:
            self.refresh()
        said = self._ledger.state.turns
        return self.turn(bisect_left(said, seq, key=lambda each: each.seq))

    def messages(self, first: int, last: int | None) -> Iterator[Message]:
        """The messages of these numbers."""
        state = self._ledger.state
        last = state.messages if last is None else min(last, state.messages)
        first = max(first, 1)
        for index in range(state.turn_of(first), len(state.turns)) if first <= last else ():
            for message in self.turn(index):
                if message.number > last:
                    return
                if message.number >= first:
                    yield message

    def summary_text(self, summary: Summarized) -> str:
        """The text of a summary."""
        with damage_in(session_stream(self.id), summary.seq):
            return decode(fetch(self.store, summary.text, {}, dict), str)

    def summary_shown(self, seq: int) -> str:
        """The summary of an event, as a model reads it."""
        for summary in reversed(self._ledger.state.summaries):
            if summary.seq == seq:
                said = self.summary_text(summary)
                return f"Summary of the conversation up to message {summary.upto}:\n{said}"
        raise LogDamaged(
            session_stream(self.id), seq, "a context names a summary that is not there"
        )

    # Counting

    def tokens(self, turn: int, counter: Counter) -> int:
        """How many tokens a turn is. Counted once."""
        known = self._tokens.setdefault(counter.name, {})
        if turn not in known:
            known[turn] = sum(map(counter.count, self.turn(turn)))
        return known[turn]

    def tokens_of(self, first: int, last: int, counter: Counter) -> int:
        """How many tokens some turns are. Sums are kept, and not made again."""
        with self._lock:
            sums = self._sums.setdefault(counter.name, [0])
            for turn in range(len(sums) - 1, last + 1):
                sums.append(sums[-1] + self.tokens(turn, counter))
            return sums[last + 1] - sums[first]

    def ratio(self, counter: Counter) -> float:
        """By how much the counter is off, by what a provider reported of the newest calls."""
        turns = range(len(self._ledger.state.turns) - 1, -1, -1)
        pairs = []
        for turn in islice(turns, _LOOKED_AT):
            meta = self.turn(turn)[0].meta.get("usage")
            if isinstance(meta, dict) and meta.get("counter") == counter.name:
                # Anybody may have written it: only what can be a report is taken for one.
                counted, reported = meta.get("counted_tokens"), meta.get("input_tokens")
                if type(counted) is int and type(reported) is int:
                    pairs.append((counted, reported))
        return calibrate(pairs)
