"""The things that a fork, or a rewound task, takes from its past: results of calls, and sessions.

Tools that were called in the past which it left may answer for the same ones now: with the same
name and the same arguments. Which of them did is in the log, so that a resume takes the same ones.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from msgspec import Raw
from msgspec.structs import replace

from holdfast.core.conversation import Conversation
from holdfast.core.events import (
    FORK_FORMAT,
    Adopted,
    AnyEvent,
    Fork,
    SessionBegan,
    SessionRewound,
    dump_event,
)
from holdfast.core.facts import facts_of_session
from holdfast.core.journal import Asked
from holdfast.core.journal.task import is_open, undo_path
from holdfast.core.state import UNDO, Call, State, scope_of
from holdfast.core.words import LONGEST_ID
from holdfast.engines.holder import Holding
from holdfast.errors import Conflict, NotAnswered, TaskNotFound
from holdfast.log import chain
from holdfast.log.ledger import session_ledger
from holdfast.log.log import Log
from holdfast.log.reading import fork_of, read_sums, session_stream, value_in
from holdfast.log.states import load
from holdfast.log.store_calls import acquire_one, holder_of, sync_one
from holdfast.stores.port import Lease, Store


class Answering:
    """The answers of one run: see `holdfast.engines.run.Answers`."""

    def __init__(self, store: Store, state: State) -> None:
        self._store = store
        fork = state.fork
        self._stubs = fork.stubs if fork is not None else {}
        self._base = fork.seq if fork is not None else 0
        self._effects = state.effects
        self._pool: dict[str, list[tuple[State, Call]]] | None = None

    def passing(self, asked: Asked) -> None:
        """Nobody waits for it."""

    def find(self, asked: Asked, log: Log) -> Sequence[AnyEvent] | None:
        """A stub, or what was returned before; None if the call is to be made."""
        if asked.path in log.state.calls:  # it was begun, so it is finished
            return None
        stub = self._stubs.get(asked.spec.name)
        if stub is not None:
            return [adopted(asked, log, bytes(stub), "stub")]
        is_effect = asked.spec.is_tool or asked.spec.kind == "task"
        if not is_effect or self._effects == "live":
            return None
        for state, call in self._same(asked, log.state):
            if is_open(call):
                raise NotAnswered(asked.task_id, asked.path, str(asked), _in_doubt(state, call))
            value = value_in(self._store, state, _raw(call))
            own = state.id == log.state.id and call.seq > self._base
            event = adopted(asked, log, value, "reused", (state.id, call.path))
            undo = own and call.undo
            return [replace(event, key=call.key, child=call.child, undo=undo)]
        if self._effects == "stub":
            raise NotAnswered(asked.task_id, asked.path, str(asked))
        return None

    def seen(self, path: str) -> None:
        """A task makes its readings anew."""

    def settle(self, path: str) -> Sequence[AnyEvent]:
        """Whether a call happened is found out, as in any task."""
        return ()

    def _same(self, asked: Asked, state: State) -> Iterator[tuple[State, Call]]:
        """The calls of the same tool, or child, with the same arguments that have answered for none
        yet."""
        if self._pool is None:
            self._pool = _pooled(list(_left(self._store, state)))
        used = {effect_name(call) for call in state.calls.values()}
        for left, call in self._pool.get(asked.spec.name, ()):
            if effect_name(call) not in used and self._is_same(asked, left, call):
                yield left, call

    def _is_same(self, asked: Asked, left: State, call: Call) -> bool:
        if call.args_hash == asked.args_hash:
            return True
        recorded = value_in(self._store, left, call.args) if isinstance(call.args, Raw) else b"{}"
        return asked.spec.signature.is_same(recorded, asked.args_hash)


def _left(store: Store, state: State) -> Iterator[State]:
    """The pasts that a task left, in their order: that of its original after the fork, and those
    that it was rewound from."""
    fork = state.fork
    # A fork that called its tools itself, and was rewound since, is answered by itself only.
    if fork is not None and "live" not in (fork.effects, state.effects):
        for id in filter(None, (fork.of, fork.task)):
            with suppress(TaskNotFound):  # a fork that was forked itself need not be kept
                original = load(store, id)
                yield from pasts_left(store, original)
                yield original
    yield from pasts_left(store, state)


def pasts_left(store: Store, state: State) -> Iterator[State]:
    """The pasts that a task was rewound from, the oldest first."""
    pasts = []
    id = state.id
    while state.left_at:
        state = load(store, id, state.left_at)
        pasts.append(state)
    return reversed(pasts)


def _pooled(pasts: Sequence[State]) -> dict[str, list[tuple[State, Call]]]:
    """The calls that can answer, by the name of what they called.

    A call that several pasts know of is one call, and has one name."""
    undone = undone_in(pasts)
    found = {
        effect_name(call): (past, call)
        for past in pasts
        for call in past.calls.values()
        if _can_answer(call) and effect_name(call) not in undone
    }
    pool: dict[str, list[tuple[State, Call]]] = {}
    for past, call in sorted(found.values(), key=lambda each: is_open(each[1])):
        pool.setdefault(call.name, []).append((past, call))
    return pool


def undone_in(pasts: Iterable[State]) -> set[str]:
    """The effects that were undone in any of the pasts, by name."""
    return {effect_name(c) for past in pasts for c in past.calls.values() if is_undone(past, c)}


def _can_answer(call: Call) -> bool:
    """A call that was made can stand for making it, and so can one that may have been made, once
    that is known. An undo counts for that one only."""
    if call.kind == "child":
        return call.status == "completed"
    is_done = call.status == "completed" or is_open(call)
    return call.kind == "tool" and is_done and scope_of(call.path) != UNDO


def effect_name(call: Call) -> str:
    """The identity of a call, in whichever past it is met: its key, or the child's id."""
    return call.key or call.child


def _in_doubt(state: State, call: Call) -> str:
    return (
        f"perhaps done already: nobody knows if step {call.path} of task {state.id!r} happened "
        f"(key {call.key}). Settle that first (holdfast resolve), or leave with effects='live'"
    )


def is_undone(state: State, call: Call) -> bool:
    """Whether somebody set out to undo a call."""
    return undo_path(call.path) in state.calls


def _raw(call: Call) -> Raw:
    return call.result if isinstance(call.result, Raw) else Raw(b"null")


def adopted(
    asked: Asked, log: Log, value: bytes, how: str, of: tuple[str, str] = ("", "")
) -> Adopted:
    """The event of a call that has this outcome without having been made."""
    return Adopted(
        path=asked.path,
        name=asked.spec.name,
        kind="child" if asked.spec.kind == "task" else "tool" if asked.spec.is_tool else "step",
        how=how,  # type: ignore[arg-type]
        args=asked.args,
        args_hash=asked.args_hash,
        result=log.stow(value),
        of=of[0],
        of_path=of[1],
    )


# Which conversations go with a task, and how they branch or are rewound along with it.
#
# A task talks in its session, or in one of its own that has the task's id. The conversation at an
# event is all that was said there by its time.


_DELETES = re.compile(r" \((gc|copying), [0-9a-f]{8}\)$")
"""The name by which a clean-up or a move holds what it may delete."""
_PATIENCE_S, _MOMENT_S = 10.0, 0.005


def sessions_of(store: Store, state: State) -> Iterator[str]:
    """The ids of the sessions that a task talks in, as far as they are there."""
    for id in dict.fromkeys((state.session, state.id)):
        if id and next(store.read(session_stream(id)), None) is not None:
            yield id


def said_by(store: Store, session: str, state: State) -> list[tuple[AnyEvent, bytes]]:
    """The messages of a session at the newest event of a state: its events, each with its sum.

    Where the task was just rewound, the conversation is rewound a moment later: it counts as
    rewound already.
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
    """The key by which a session knows that it was rewound along with a task."""
    return f"{state.id}~{state.rewinds}"


def must_be_left(store: Store, original: str, fork: Lease) -> None:
    """See to it that the log whose past a new one shares was not deleted meanwhile; if it was,
    there is no new one either.

    A process that deletes a log holds it, and then looks for forks of it. The fork was written
    before this, so either that one has seen it, or this sees that one.
    """
    give_up_at = time.monotonic() + _PATIENCE_S
    while _DELETES.search(holder_of(store, original) or "") and time.monotonic() < give_up_at:
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

    The caller holds the task that it is for, which has no log yet.
    """
    store, now = holding.store, holding.clock()
    began = SessionBegan(seq=1, at=now, format=FORK_FORMAT, id=new, user=user, fork=fork)
    line, _ = chain.seal(chain.ROOT, dump_event(began))
    lease = _lease_of_new(holding, session_stream(new), fork.of)
    try:
        state = Conversation(id=new, user=user, created_at=now, updated_at=now, fork=fork)
        store.append(lease, 0, [line], facts_of_session(state))
        sync_one(store, lease)
        must_be_left(store, session_stream(fork.of), lease)
    finally:
        store.release([lease])


def _lease_of_new(holding: Holding, stream: str, original: str) -> Lease:
    """A session in which nothing was said is what somebody left who died before the task was made:
    it makes room for the new one."""
    store = holding.store
    lease = acquire_one(store, stream, holding.owner, holding.lease_s)
    try:
        lines = list(islice(store.read(stream), 2))
        if not lines:
            return lease
        fork = fork_of(store, stream)
        if len(lines) > 1 or fork is None or fork.of != original:
            raise Conflict(f"{stream} exists already: give the fork another id")
        store.delete(lease)
    except BaseException:
        store.release([lease])
        raise
    return acquire_one(store, stream, holding.owner, holding.lease_s)


def rewind_sessions(holding: Holding, state: State) -> None:
    """Rewind the conversations of a task along with it, each once.

    The task's log says that they are to be rewound, so a crash in between leaves no half of it:
    the next driver of the task does the rest.
    """
    key = rewind_key(state)
    for session, seq in state.sessions_to_rewind.items():
        ledger = session_ledger(holding.store, session, holding.owner, holding.clock)

        def make(there: Conversation, seq: int = seq) -> SessionRewound | None:
            if key in there.rewinds or not there.seq:
                return None
            return SessionRewound(to=seq, key=key, by=f"task {state.id}")

        ledger.write(make)
