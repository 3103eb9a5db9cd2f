"""Which conversations go with a task, and how they branch or are put back along with it.

A task talks in its session, or in one of its own that has the task's id. What was said there by
the time of an event is the conversation at that event.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from itertools import islice

from holdfast import chain
from holdfast.conversation import Conversation
from holdfast.engines.holding import Holding
from holdfast.errors import Conflict, TaskNotFound
from holdfast.events import (
    NEWEST_FORMAT,
    AnyEvent,
    Fork,
    SessionBegan,
    SessionRewound,
    dump_event,
)
from holdfast.facts import facts_of_session
from holdfast.ledger import session_ledger
from holdfast.reading import fork_of, read_sums, session_stream
from holdfast.state import State
from holdfast.store import Lease, Store
from holdfast.words import LONGEST_ID

_DELETES = re.compile(r" \((gc|copying), [0-9a-f]{8}\)$")
"""The name by which a clean-up or a move holds what it may delete."""
_PATIENCE_S, _MOMENT_S = 10.0, 0.005


def sessions_of(store: Store, state: State) -> Iterator[str]:
    """The ids of the sessions that a task talks in, as far as they are there."""
    for id in dict.fromkeys((state.session, state.id)):
        if id and next(store.read(session_stream(id)), None) is not None:
            yield id


def said_by(store: Store, session: str, state: State) -> list[tuple[AnyEvent, bytes]]:
    """What a session held at the newest event of a state: its events, each with its sum.

    Where the task was just put back, the conversation is put back a moment later: it counts as
    having been.
    """
    said = []
    for event, total in read_sums(store, session_stream(session)):
        if event.at > state.updated_at:
            break
        said.append((event, total))
    cut, key = state.sessions_to_rewind.get(session), rewind_key(state)
    if cut is None or any(isinstance(e, SessionRewound) and e.key == key for e, _ in said):
        return said
    return [each for each in said if each[0].seq <= cut]


def rewind_key(state: State) -> str:
    """By what a session knows that it was put back along with a task."""
    return f"{state.id}~{state.rewinds}"


def must_be_left(store: Store, original: str, fork: Lease) -> None:
    """See to it that the log whose past a new one shares was not deleted meanwhile; if it was,
    there is no new one either.

    Who deletes a log holds it, and then looks for forks of it. The fork was written before this, so
    either that one has seen it, or this sees that one.
    """
    give_up_at = time.monotonic() + _PATIENCE_S
    while _DELETES.search(store.holder(original) or "") and time.monotonic() < give_up_at:
        time.sleep(_MOMENT_S)
    if next(store.read(original), None) is None:
        store.delete(fork)
        raise TaskNotFound(f"{original} was deleted while it was forked: nothing was made")


def branch_name(original: str, new: str) -> str:
    """The id of the session of a fork, by that of its original and that of the fork.

    >>> branch_name("ada", "trip-42-fork"), len(branch_name("a" * 255, "b" * 255))
    ('ada~trip-42-fork', 137)
    """
    name = f"{original}~{new}"
    if len(name) <= LONGEST_ID:
        return name
    return f"{original[:120]}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def branch_at(store: Store, original: str, past: State) -> Fork:
    """Where the session of a fork leaves that of its original: at what the task knew of it then."""
    said = said_by(store, original, past)
    if not said:  # it had not begun, so nothing was said
        said = list(read_sums(store, session_stream(original), 1))
    event, total = said[-1]
    return Fork(of=original, seq=event.seq, sum=total.decode())


def branch_session(holding: Holding, fork: Fork, new: str, user: str) -> None:
    """Make the session `new`, which shares the past of another one.

    Whoever does holds the task that it is for, and that has no log yet.
    """
    store, now = holding.store, holding.clock()
    began = SessionBegan(seq=1, at=now, format=NEWEST_FORMAT, id=new, user=user, fork=fork)
    line, _ = chain.seal(chain.ROOT, dump_event(began))
    lease = _lease_of_new(holding, session_stream(new), fork.of)
    try:
        state = Conversation(id=new, user=user, created_at=now, updated_at=now, fork=fork)
        store.append(lease, 0, [line], facts_of_session(state))
        store.sync(lease)
        must_be_left(store, session_stream(fork.of), lease)
    finally:
        store.release(lease)


def _lease_of_new(holding: Holding, stream: str, original: str) -> Lease:
    """A session in which nothing was said is what somebody left who died before the task was made:
    it makes room for the new one."""
    store = holding.store
    lease = store.acquire(stream, holding.owner, holding.lease_s)
    try:
        lines = list(islice(store.read(stream), 2))
        if not lines:
            return lease
        fork = fork_of(store, stream)
        if len(lines) > 1 or fork is None or fork.of != original:
            raise Conflict(f"{stream} exists already: give the fork another id")
        store.delete(lease)
    except BaseException:
        store.release(lease)
        raise
    return store.acquire(stream, holding.owner, holding.lease_s)


def rewind_sessions(holding: Holding, state: State) -> None:
    """Put the conversations of a task back along with it, each once.

    That they are to be is in the task's log, so a crash in between leaves no half of it: whoever
    goes on with the task does the rest.
    """
    key = rewind_key(state)
    for session, seq in state.sessions_to_rewind.items():
        ledger = session_ledger(holding.store, session, holding.owner, holding.clock)

        def make(there: Conversation, seq: int = seq) -> SessionRewound | None:
            if key in there.rewinds or not there.seq:
                return None
            return SessionRewound(to=seq, key=key, by=f"task {state.id}")

        ledger.write(make)
