"""A log that many write to, one event at a time: of a session, or of a memory.

A task has one writer for as long as it runs. Sessions are different: a web server adds what the
user says while a worker adds what a task answers. So each writer takes the lease
for a moment, reads what others added, decides, appends, syncs, and gives the lease back. The
promises are the same: nothing acknowledged is lost, and a stale writer is refused.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from msgspec.structs import replace

from holdfast.codec.redact import DEFAULT, Redact
from holdfast.core.conversation import Conversation, advance
from holdfast.core.decoding import NONSENSE, Illegible
from holdfast.core.events import AnyEvent, SessionRewound, dump_event, load_event
from holdfast.core.facts import Facts, facts_of_session
from holdfast.errors import BadInput, LogDamaged, TaskBusy
from holdfast.log import chain
from holdfast.log.reading import base_of, read_lines, read_on, session_stream
from holdfast.log.store_calls import acquire_one, sync_one

if TYPE_CHECKING:
    from holdfast.stores.port import Lease, Store

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.001, 0.05
_PATIENCE_S = 30.0
_FACTS_EVERY_S = 60.0
MAX_LINE_BYTES = 512 * 1024


class Folded(Protocol):
    """The fold of a ledger's events."""

    seq: int


S = TypeVar("S", bound=Folded)
T = TypeVar("T")


class Ledger(Generic[S]):
    """One stream, its state as far as it was read, and the way to add to it."""

    def __init__(
        self,
        store: Store,
        stream: str,
        owner: str,
        clock: Callable[[], datetime],
        *,
        new: Callable[[], S],
        advance: Callable[[S, AnyEvent], None],
        facts: Callable[[S], Facts],
        redact: Redact = DEFAULT,
        lease_s: float = 30.0,
    ) -> None:
        self.store = store
        self.stream = stream
        self.state: S = new()
        self.redact = redact
        self._owner = owner
        self._clock = clock
        self._new, self._advance, self._facts = new, advance, facts
        self._lease_s = lease_s
        self._total = chain.ROOT
        self._base = 0
        """How many of its events are those of the log that it is a fork of."""
        self._told: Facts | None = None
        self._lock = threading.RLock()
        # Apart from the lock of the state: who waits for another process keeps no reader waiting.
        self._writing = threading.Lock()
        self._is_kept = False
        self.beginnings: int = 0
        """How often it was read anew: what was made of it before may be of another log."""

    def refresh(self) -> S:
        """The state with what others have added since."""
        with self._lock:
            if self._is_kept:
                return self.state
            try:
                self._read_on()
            except LogDamaged:
                # It may have been deleted and begun anew: only a log that is read whole and does
                # not fit is damaged.
                if self.state.seq == 0:
                    raise
                self._start_over()
                self._read_on()
            return self.state

    def keep(self, events: Iterable[AnyEvent]) -> None:
        """Stay with what these events come to, whatever is added later."""
        with self._lock:
            for event in events:
                self._advance(self.state, event)
            self._is_kept = True

    def look(self, at: Callable[[S], T]) -> T:
        """The value that `make` gives for the newest state, while nobody changes it."""
        with self._lock:
            return at(self.refresh())

    def _read_on(self) -> None:
        if self.state.seq:
            found = read_on(self.store, self.stream, self.state.seq, self._total, self._base)
        else:
            self._base = base_of(self.store, self.stream)
            found = read_lines(self.store, self.stream)
        for event, total, _ in found:
            self._advance(self.state, event)
            self._total = total
            self._notice(event)

    def _notice(self, event: AnyEvent) -> None:
        if isinstance(event, SessionRewound):
            self.beginnings += 1

    def _start_over(self) -> None:
        self.state, self._total, self._told = self._new(), chain.ROOT, None
        self.beginnings += 1

    def write(
        self, make: Callable[[S], AnyEvent | None], *, patience_s: float = _PATIENCE_S
    ) -> bool:
        """Add the event that is made of the state as it is now; False if it makes none.

        When this returns, the event is durable. `TaskBusy` if others hold the lease for longer
        than `patience_s`.
        """
        with self._writing:
            lease = self._lease(patience_s)
            try:
                return self._write(lease, make)
            finally:
                self.store.release([lease])

    def _write(self, lease: Lease, make: Callable[[S], AnyEvent | None]) -> bool:
        with self._lock:
            here = self.state.seq - self._base
            if lease.head is None or lease.head != here:
                if lease.head is not None and lease.head < here:
                    self._start_over()
                self.refresh()
            made = make(self.state)
            if made is None:
                return False
            self._append(lease, made)
            return True

    def _append(self, lease: Lease, made: AnyEvent) -> None:
        clean = self.redact.event(made)
        before = self.state.seq - self._base
        event = replace(clean, seq=before + 1, at=self._clock())
        # The first line of a log is chained to none, also where it shares the past of another.
        line, total = chain.seal(self._total if before else chain.ROOT, _dumped(event))
        try:
            self._advance(self.state, replace(event, seq=self.state.seq + 1))
            self._notice(event)
            self._total = total
            self.store.append(lease, before, [line], self._news())
            sync_one(self.store, lease)
        except BaseException:
            self._start_over()  # nobody knows what is on the disk: it is read anew
            raise

    def delete(self) -> None:
        """Delete the log for good. What is added later begins a new one."""
        with self._writing:
            lease = self._lease()
            try:
                if lease.head != 0 and next(self.store.read(self.stream), None) is not None:
                    self.store.delete(lease)
            finally:
                self.store.release([lease])
            with self._lock:
                self._start_over()

    def _news(self) -> Facts | None:
        """The facts for the store: when they changed, and at most once a minute for the time."""
        facts, told = self._facts(self.state), self._told
        if told is not None and facts == replace(told, updated_at=facts.updated_at):
            is_news = (facts.updated_at - told.updated_at).total_seconds() >= _FACTS_EVERY_S
            if not is_news:
                return None
        self._told = facts
        return facts

    def _lease(self, patience_s: float = _PATIENCE_S) -> Lease:
        """The lease, when those who came before have given it back."""
        give_up_at, wait_s = time.monotonic() + patience_s, _FIRST_WAIT_S
        while True:
            try:
                return acquire_one(self.store, self.stream, self._owner, self._lease_s)
            except TaskBusy:
                if time.monotonic() >= give_up_at:
                    raise
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def session_ledger(
    store: Store, id: str, owner: str, clock: Callable[[], datetime], redact: Redact = DEFAULT
) -> Ledger[Conversation]:
    """The ledger of a session."""
    return Ledger(
        store,
        session_stream(id),
        owner,
        clock,
        new=Conversation,
        advance=advance,
        facts=facts_of_session,
        redact=redact,
    )


def _dumped(event: AnyEvent) -> bytes:
    # Everything written must be readable: types in Python are only a promise.
    try:
        data = dump_event(event)
        load_event(data)
    except (*NONSENSE, Illegible) as error:
        raise BadInput(f"a {type(event).__name__} can't be recorded: {error}") from None
    if len(data) > MAX_LINE_BYTES:
        raise BadInput(f"a {type(event).__name__} of {len(data):,} bytes is too long for one line")
    return data
