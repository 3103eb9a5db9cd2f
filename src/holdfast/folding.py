"""What the events of a log come to, whatever it is of: for those who look after all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import conversation, remembering
from holdfast.conversation import Conversation
from holdfast.decoding import NONSENSE, Illegible
from holdfast.errors import LogDamaged
from holdfast.events import AnyEvent, MemoryBegan, Pinned, SessionBegan, Summarized
from holdfast.facts import Facts, facts_of, facts_of_session
from holdfast.fold import advance
from holdfast.kinds import MEMORY, SESSION, kind_of
from holdfast.reading import Readable, read_events, senseless
from holdfast.remembering import Memories
from holdfast.state import State

if TYPE_CHECKING:
    from holdfast.store import Store

Folded = State | Conversation | Memories


def empty(stream: str) -> Folded:
    """The state of a log before its first event."""
    kind = kind_of(stream)
    return Conversation() if kind is SESSION else Memories() if kind is MEMORY else State()


def follow(state: Folded, event: AnyEvent, stream: str) -> None:
    """Change a state, which the caller alone owns, by an event. One that makes no sense there is
    damage to the log."""
    try:
        _advance(state, event)
    except (*NONSENSE, Illegible) as error:
        raise senseless(stream, event, error) from error


def _advance(state: Folded, event: AnyEvent) -> None:
    if isinstance(state, Conversation):
        if problem := _misfit(state, event):
            raise LogDamaged(SESSION.stream(state.id), event.seq, problem)
        conversation.advance(state, event)
    elif isinstance(state, Memories):
        if isinstance(event, MemoryBegan) and state.seq:
            what = "it begins the memory a second time"
            raise LogDamaged(MEMORY.stream(state.id), event.seq, what)
        remembering.advance(state, event)
    else:
        advance(state, event)


def read_folded(store: Readable, stream: str) -> Folded:
    """What a log comes to, each event checked; of `seq` 0 if there is none."""
    state = empty(stream)
    for event in read_events(store, stream):
        follow(state, event, stream)
    return state


def lines_of(state: Folded) -> int:
    """How many lines its own log has: that of a fork is without the events that it shares."""
    fork = None if isinstance(state, Memories) else state.fork
    return state.seq - (fork.seq if fork is not None else 0)


def facts_in(state: Folded) -> Facts:
    """The facts of a log after its newest event."""
    if isinstance(state, Conversation):
        return facts_of_session(state)
    if isinstance(state, Memories):
        return Facts(status="open", created_at=state.created_at, updated_at=state.updated_at)
    return facts_of(state)


def status_in(state: Folded) -> str:
    """The status of a task or of a session; a memory has none."""
    return "" if isinstance(state, Memories) else state.status


def _misfit(state: Conversation, event: AnyEvent) -> str:
    match event:
        case SessionBegan(fork=None) if state.seq:
            return "it begins the session a second time"
        case Pinned(number=number) | Summarized(upto=number) if number > state.messages:
            return f"it is about message {number}, and there are {state.messages}"
    return ""


def read_facts(store: Store, stream: str) -> Facts | None:
    """The facts of a log, read from it, which the store then remembers; None if there is none."""
    state = read_folded(store, stream)
    if state.seq == 0:
        return None
    facts = facts_in(state)
    store.remember(stream, facts, lines_of(state))
    return facts
