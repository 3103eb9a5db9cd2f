"""Which conversations go with a task, and how they branch or are put back along with it.

A task talks in its session, or in one of its own that has the task's id. What was said there by
the time of an event is the conversation at that event.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from holdfast import chain
from holdfast.conversation import Conversation
from holdfast.engines.holding import Holding
from holdfast.errors import Conflict
from holdfast.events import NEWEST_FORMAT, Fork, SessionBegan, dump_event
from holdfast.facts import facts_of_session
from holdfast.reading import read_sums, session_stream
from holdfast.state import State
from holdfast.store import Store


def sessions_of(store: Store, state: State) -> Iterator[str]:
    """The ids of the sessions that a task talks in, as far as they are there."""
    for id in dict.fromkeys((state.session, state.id)):
        if id and next(store.read(session_stream(id)), None) is not None:
            yield id


def said_by(store: Store, session: str, time: datetime) -> tuple[int, bytes]:
    """The last event of a session by a time, and its sum; 0 if it had not begun."""
    seq, total = 0, chain.ROOT
    for event, after in read_sums(store, session_stream(session)):
        if event.at > time:
            break
        seq, total = event.seq, after
    return seq, total


def branch_session(holding: Holding, past: State, original: str, new: str) -> bool:
    """Make the session `new`, which shares the past of another one; False if that had none yet."""
    store = holding.store
    seq, total = said_by(store, original, past.updated_at)
    if not seq:
        return False
    fork = Fork(of=original, seq=seq, sum=total.decode())
    now = holding.clock()
    began = SessionBegan(seq=1, at=now, format=NEWEST_FORMAT, id=new, user=past.user, fork=fork)
    line, _ = chain.seal(chain.ROOT, dump_event(began))
    stream = session_stream(new)
    lease = store.acquire(stream, holding.owner, holding.lease_s)
    try:
        if next(store.read(stream), None) is not None:
            raise Conflict(f"session {new!r} exists already: give the fork another id")
        state = Conversation(id=new, user=past.user, created_at=now, updated_at=now, fork=fork)
        store.append(lease, 0, [line], facts_of_session(state))
        store.sync(lease)
    finally:
        store.release(lease)
    return True
