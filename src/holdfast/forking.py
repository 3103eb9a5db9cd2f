"""Forks: a new task that shares its past with another one, and goes its own way from there.

Nothing of the past is copied. The log of a fork begins with the making of the task, which says
whose past it shares, up to which event, and with what changes; what follows are its own events.
What the original did outside is its own, so keys and undos are too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from holdfast.branching import branch_session, must_be_left, sessions_of
from holdfast.checkpoints import carried
from holdfast.codec import args_hash
from holdfast.driving import new_id
from holdfast.engines.holding import Holding
from holdfast.errors import BadInput, CodeMissing, HoldfastError, Undecodable
from holdfast.events import (
    NEWEST_FORMAT,
    Adopted,
    AnyEvent,
    Checkpointed,
    Effects,
    Fork,
    TaskCreated,
)
from holdfast.history import When, must_be_still, place_of, state_at
from holdfast.log import Log
from holdfast.reading import read_sums, stream_of, value_in
from holdfast.saying import plain
from holdfast.spec import registry
from holdfast.state import Call, State
from holdfast.store import Store
from holdfast.task import task_spec
from holdfast.words import checked_id, must_be_texts

_EFFECTS = ("live", "reuse", "stub")


class Changes(Struct, frozen=True, kw_only=True):
    """What is to be other in a fork than in its original."""

    input: Mapping[str, Any] = {}
    results: Mapping[str, Any] = {}
    state: Any = UNSET
    task: Callable[..., Any] | str | None = None
    arguments: Mapping[str, Mapping[str, Any]] = {}
    stubs: Mapping[str, Any] = {}


class Wanted(Struct, frozen=True, kw_only=True):
    """Where a fork leaves its original, and what is said of it."""

    at: str | int | None = None
    when: When | None = None
    seq: int | None = None
    effects: Effects
    new_id: str | None = None
    user: str | None = None
    labels: Mapping[str, str] | None = None
    by: str = ""
    because: str = ""


def fork(holding: Holding, id: str, wanted: Wanted, changes: Changes) -> str:
    """Make a fork of a task; returns its id. Nothing is run."""
    store = holding.store
    if wanted.effects not in _EFFECTS:
        raise BadInput(
            f"fork({id!r}, effects={wanted.effects!a:.40}): say what becomes of the tools that are "
            f"called after the fork: 'live' (they are called), 'reuse' (where the original called "
            f"the same one with the same arguments, its result is taken) or 'stub' (none is called)"
        )
    must_be_texts(f"fork({id!r})", by=wanted.by, because=wanted.because)
    newest = state_at(store, checked_id(id))
    place = place_of(newest, wanted.at, _when(wanted, changes), wanted.seq)
    past, total = past_at(store, newest, place.seq)
    must_be_still(past, place, "forked")
    new = checked_id(wanted.new_id) if wanted.new_id else new_id(f"{id}-fork", holding.clock())
    if next(store.read(stream_of(new)), None) is not None:
        raise BadInput(f"task {new!r} exists already: give the fork another id")
    task, args = _function(past, changes), _input(store, past, changes)
    sessions = _branch_sessions(holding, past, new)
    origin = Fork(
        of=past.id,  # whose own log holds that event, where the task is a fork itself
        seq=place.seq,
        sum=total,
        path=place.path,
        when=place.when,
        by=wanted.by or holding.owner,
        because=holding.redact.text(wanted.because),
        effects=wanted.effects,
        stubs=_values(holding, changes.stubs),
        arguments={name: _values(holding, given) for name, given in changes.arguments.items()},
        sessions=sessions,
    )
    with holding.hold(new) as log:
        if log.state.seq:
            raise BadInput(f"task {new!r} exists already: give the fork another id")
        log.begin_with(past)
        created = TaskCreated(
            format=NEWEST_FORMAT,
            id=new,
            task=task,
            args=raw_args(past) if args is None else log.stow_alone(args),
            args_hash=past.args_hash if args is None else args_hash(args),
            user=past.user if wanted.user is None else wanted.user,
            session=sessions.get(past.session, past.session),
            labels=dict(past.labels if wanted.labels is None else wanted.labels),
            version=past.version,
            timeout_s=past.timeout_s,
            fork=origin,
        )
        log.append(created)
        for event in _edits(log, changes, origin.by):
            log.append(event)
        log.sync()
        must_be_left(store, stream_of(origin.of), log.lease)
    return new


def past_at(store: Store, newest: State, seq: int) -> tuple[State, str]:
    """What a task knew after an event, and the sum of that event."""
    sums = (total for _, total in read_sums(store, stream_of(newest.id), seq))
    (total,) = deque(sums, maxlen=1)
    return state_at(store, newest.id, seq), total.decode()


def _when(wanted: Wanted, changes: Changes) -> When | None:
    if wanted.at is not None and str(wanted.at) in changes.results:
        if wanted.when == "before":
            raise BadInput(
                f"fork(at={wanted.at!r}, when='before', results=…): step {wanted.at} has no result "
                f"yet before it: fork after it, or give a stub for it"
            )
        return "after"
    return wanted.when


def raw_args(state: State) -> Raw:
    """The arguments that a task was started with."""
    return state.args if isinstance(state.args, Raw) else Raw(b"{}")


def _function(past: State, changes: Changes) -> str:
    if changes.task is None:
        return past.task
    return (
        registry.task(changes.task).name
        if isinstance(changes.task, str)
        else task_spec(changes.task).name
    )


def _input(store: Store, past: State, changes: Changes) -> bytes | None:
    """The arguments of the task, where they are to be others."""
    if not changes.input:
        return None
    given = msgspec.json.decode(value_in(store, past, raw_args(past)), type=dict[str, Raw])
    given |= {name: _encoded(name, value) for name, value in changes.input.items()}
    data = msgspec.json.encode(given)
    try:
        registry.task(_function(past, changes)).signature.load(data)
    except CodeMissing:
        pass  # whoever runs it has the code, and checks it then
    except Undecodable as error:
        raise BadInput(f"fork({past.id!r}, input=…) does not fit {past.task}: {error}") from None
    return data


def _values(holding: Holding, given: Mapping[str, Any]) -> dict[str, Raw]:
    """What was given by name, to be written in the first event of the fork."""
    values = {name: _encoded(name, value) for name, value in given.items()}
    for value in values.values():
        holding.redact.must_be_free(bytes(value))
    return values


def _encoded(name: str, value: Any) -> Raw:
    try:
        return Raw(plain(value))
    except HoldfastError as error:
        raise BadInput(f"fork(): what is given for {name!r:.60} can't be stored: {error}") from None


def _branch_sessions(holding: Holding, past: State, new: str) -> dict[str, str]:
    made: dict[str, str] = {}
    for original in sessions_of(holding.store, past):
        name = new if original == past.id else f"{original}~{new}"
        if branch_session(holding, past, original, name):
            made[original] = name
    return made


def _edits(log: Log, changes: Changes, by: str) -> Iterator[AnyEvent]:
    """The events by which the state of a fork differs from that of its original."""
    for path, value in changes.results.items():
        call = log.state.calls.get(str(path))
        if call is None or call.status not in ("completed", "failed"):
            raise BadInput(
                f"fork(results=…): there is no step {path!a:.60} before the fork that has ended"
            )
        yield Adopted(
            path=call.path,
            name=call.name,
            kind=call.kind,
            how="edited",
            result=log.stow(_result(call, value)),
            by=by,
        )
    if changes.state is not UNSET:
        if not log.state.checkpoints:
            raise BadInput(
                f"fork(state=…): task {log.state.id!r} had made no checkpoint there, so it has no "
                f"state to be edited: give other results (results=…) or another input (input=…)"
            )
        yield Checkpointed(
            number=log.state.checkpoints + 1,
            version=log.state.checkpoint_version,
            state=log.stow_alone(bytes(_encoded("state", changes.state))),
            carried=carried(log.state, log.stow_alone),
        )


def _result(call: Call, value: Any) -> bytes:
    """A result as its step would have returned it, where the code is at hand."""
    try:
        spec = registry.call(call.name)
    except CodeMissing:
        return bytes(_encoded(call.path, value))
    try:
        return spec.signature.returns.settle(value)[0]
    except HoldfastError as error:
        raise BadInput(f"fork(results=…): {call.path}, {call.name}: {error}") from None
