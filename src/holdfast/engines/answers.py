"""What is known of calls that a fork, or a task that was put back, need not make again.

Tools that were called in the past which it left may answer for the same ones now: with the same
name and the same arguments. Which of them did is in the log, so that a resume takes the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from msgspec import Raw
from msgspec.structs import replace

from holdfast.core.events import Adopted, AnyEvent
from holdfast.core.journal import Asked
from holdfast.core.journal.task import is_open, undo_path
from holdfast.core.state import UNDO, Call, State, scope_of
from holdfast.errors import NotAnswered, TaskNotFound
from holdfast.log.log import Log
from holdfast.log.past import newest_state, state_at
from holdfast.log.reading import value_in
from holdfast.stores.port import Store


class Answering:
    """The answers of one run: see `holdfast.engines.run.Answers`."""

    def __init__(self, store: Store, state: State) -> None:
        self._store = store
        fork = state.fork
        self._stubs = fork.stubs if fork is not None else {}
        self._base = fork.seq if fork is not None else 0
        self._effects = state.effects
        self._pool: dict[tuple[str, str], list[tuple[State, Call]]] | None = None

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
        """What a task reads, it reads anew."""

    def settle(self, path: str) -> Sequence[AnyEvent]:
        """Whether a call happened is found out, as in any task."""
        return ()

    def _same(self, asked: Asked, state: State) -> Iterator[tuple[State, Call]]:
        """The calls of the same tool, or child, with the same arguments that have answered for none
        yet."""
        if self._pool is None:
            self._pool = _pooled(list(_left(self._store, state)))
        used = {effect_name(call) for call in state.calls.values()}
        for left, call in self._pool.get((asked.spec.name, asked.args_hash), ()):
            if effect_name(call) not in used:
                yield left, call


def _left(store: Store, state: State) -> Iterator[State]:
    """The pasts that a task left, in their order: that of its original after the fork, and those
    that it was put back from."""
    fork = state.fork
    # A fork that called its tools itself, and was put back since, is answered by itself only.
    if fork is not None and "live" not in (fork.effects, state.effects):
        for id in filter(None, (fork.of, fork.task)):
            with suppress(TaskNotFound):  # a fork that was forked itself need not be kept
                original = newest_state(store, id)
                yield from pasts_left(store, original)
                yield original
    yield from pasts_left(store, state)


def pasts_left(store: Store, state: State) -> Iterator[State]:
    """The pasts that a task was put back from, the oldest first."""
    pasts = []
    id = state.id
    while state.left_at:
        state = state_at(store, id, state.left_at)
        pasts.append(state)
    return reversed(pasts)


def _pooled(pasts: Sequence[State]) -> dict[tuple[str, str], list[tuple[State, Call]]]:
    """The calls that can answer. What several pasts know of is one call, and has one name."""
    undone = undone_in(pasts)
    found = {
        effect_name(call): (past, call)
        for past in pasts
        for call in past.calls.values()
        if _can_answer(call) and effect_name(call) not in undone
    }
    pool: dict[tuple[str, str], list[tuple[State, Call]]] = {}
    for past, call in sorted(found.values(), key=lambda each: is_open(each[1])):
        pool.setdefault((call.name, call.args_hash), []).append((past, call))
    return pool


def undone_in(pasts: Iterable[State]) -> set[str]:
    """The effects that were undone in any of the pasts, by name."""
    return {effect_name(c) for past in pasts for c in past.calls.values() if is_undone(past, c)}


def _can_answer(call: Call) -> bool:
    """What was done can stand for doing it, and what may have been done as well, once that is
    known. That something was undone stands for that one only."""
    if call.kind == "child":
        return call.status == "completed"
    is_done = call.status == "completed" or is_open(call)
    return call.kind == "tool" and is_done and scope_of(call.path) != UNDO


def effect_name(call: Call) -> str:
    """What a call has for itself, in whichever past it is met: its key, or the child's id."""
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
