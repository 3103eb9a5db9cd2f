"""Forks and rewinds: ways back into the past of a task.

A fork is a new task that shares its past with another one, and goes its own way from there.

Nothing of the past is copied. The log of a fork begins with the making of the task, which says
whose past it shares, up to which event, and with what changes; what follows are its own events.
The effects of the original stay its own, and so do their keys and undos.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from holdfast.codec import Shape, args_hash, unchecked
from holdfast.codec.secret import provider
from holdfast.core.events import (
    FORK_FORMAT,
    Adopted,
    AnyEvent,
    Checkpointed,
    Effects,
    Fork,
    Rewound,
    TaskCreated,
)
from holdfast.core.fold.task import carried
from holdfast.core.journal.task import is_open, undo_path
from holdfast.core.queues import KEY, QUEUE
from holdfast.core.spec import Spec, registry, task_spec
from holdfast.core.state import Call, State
from holdfast.core.words import checked_id, must_be_texts
from holdfast.engines.here import HERE
from holdfast.engines.holder import Holding
from holdfast.engines.local.tasks import Driving, new_id
from holdfast.engines.origins import (
    branch_at,
    branch_name,
    branch_session,
    effect_name,
    is_undone,
    must_be_left,
    pasts_left,
    rewind_sessions,
    said_by,
    sessions_of,
    undone_in,
)
from holdfast.engines.routing import must_be_here
from holdfast.engines.run import Run
from holdfast.engines.undo import undo_all
from holdfast.errors import (
    BadInput,
    CodeMissing,
    HoldfastError,
    TaskBusy,
    Undecodable,
)
from holdfast.log.log import Log
from holdfast.log.places import (
    PastPlace,
    When,
    must_be_still,
    open_calls,
    place_in,
    place_of,
)
from holdfast.log.reading import plain_in, read_events, session_stream, stream_of
from holdfast.log.states import load, load_sound, sum_at
from holdfast.stores.port import Store

_EFFECTS = ("live", "reuse", "stub")


EFFECTS = {
    "live": "the tools that it calls are called",
    "reuse": "a tool that the original called with the same arguments is not called again; others "
    "are",
    "stub": "no tool is called: the original's results and your stubs answer, and a call without "
    "either stops the fork",
}
"""The treatment of the tools that a fork calls, in words."""


class ForkChanges(Struct, frozen=True, kw_only=True):
    """The changes that a fork makes to its original."""

    input: Mapping[str, Any] = {}
    results: Mapping[str, Any] = {}
    state: Any = UNSET
    task: Callable[..., Any] | str | None = None
    arguments: Mapping[str, Mapping[str, Any]] = {}
    stubs: Mapping[str, Any] = {}


def by_path(results: Any) -> Any:
    """Results by the paths of their steps, which may be given as numbers.

    >>> by_path({6: "attic"})
    {'6': 'attic'}
    """
    return {str(k): v for k, v in results.items()} if isinstance(results, Mapping) else results


class WantedFork(Struct, frozen=True, kw_only=True):
    """Where a fork leaves its original, and its id, user and reason."""

    at: str | int | None = None
    when: When | None = None
    seq: int | None = None
    effects: Effects
    new_id: str | None = None
    user: str | None = None
    labels: Mapping[str, str] | None = None
    by: str = ""
    because: str = ""


def fork(holding: Holding, id: str, wanted: WantedFork, changes: ForkChanges) -> State:
    """Make a fork of a task; returns its state. Nothing is run."""
    store = holding.store
    _must_be_sensible(id, wanted, changes)
    place = place_in(store, checked_id(id), wanted.at, _when(wanted, changes), wanted.seq)
    past, total = load(store, id, place.seq), sum_at(store, id, place.seq)
    must_be_still(past, place, "forked")
    new = checked_id(wanted.new_id) if wanted.new_id else new_id(f"{id}-fork", holding.clock())
    _must_be_editable(past, changes)
    if changes.stubs or changes.arguments:
        _must_be_called(load_sound(store, id), changes)
    branches = {
        new if original == past.id else branch_name(original, new): branch_at(store, original, past)
        for original in sessions_of(store, past)
    }
    origin = Fork(
        of=past.id,  # whose own log holds that event, where the task is a fork itself
        task="" if id == past.id else id,
        seq=place.seq,
        sum=total,
        path=place.path,
        when=place.when,
        by=wanted.by or holding.owner,
        because=holding.redact.text(wanted.because),
        effects=wanted.effects,
        stubs=_free(holding, _stubs(changes)),
        arguments={
            name: _free(holding, _arguments(_known(registry.call, name), name, given))
            for name, given in changes.arguments.items()
        },
        sessions={fork.of: name for name, fork in branches.items()},
    )
    args = _input(store, past, changes)
    created = TaskCreated(
        format=FORK_FORMAT,
        id=new,
        task=_function(past, changes),
        args=raw_args(past) if args is None else Raw(args),
        args_hash=past.args_hash if args is None else _digest(past, changes, args),
        user=past.user if wanted.user is None else wanted.user,
        session=origin.sessions.get(past.session, past.session),
        labels=_labels(past) if wanted.labels is None else dict(wanted.labels),
        version=past.version,
        timeout_s=past.timeout_s,
        fork=origin,
    )
    return _made(holding, past, created, changes, branches)


def _labels(past: State) -> dict[str, str]:
    """Those of the original. A fork is in no queue, so those that name one stay behind."""
    return {name: text for name, text in past.labels.items() if name not in (QUEUE, KEY)}


def _made(
    holding: Holding,
    past: State,
    created: TaskCreated,
    changes: ForkChanges,
    branches: Mapping[str, Fork],
) -> State:
    """Write the log of a fork, and those of its sessions: all of it, or nothing."""
    store, origin = holding.store, cast("Fork", created.fork)
    exists = BadInput(f"task {created.id!r} exists already: give the fork another id")
    if next(store.read(stream_of(created.id)), None) is not None:
        raise exists
    with holding.hold(created.id) as log:
        if log.state.seq:
            raise exists
        log.begin_with(past)
        if changes.input:
            created = replace(created, args=log.stow_alone(bytes(created.args)))
        try:
            log.append(created)
            for event in _edits(log, changes, origin.by):
                log.append(event)
            for name, fork in branches.items():
                branch_session(holding, fork, name, log.state.user)
        except BaseException:
            log.abandon()
            # Somebody may have handed its first event to the store already: see `Heartbeat`.
            if next(store.read(log.lease.stream), None) is not None:
                store.delete(log.lease)
            raise
        log.sync()
        must_be_left(store, stream_of(origin.of), log.lease)
        return log.state


def _must_be_sensible(id: str, wanted: WantedFork, changes: ForkChanges) -> None:
    if wanted.effects not in _EFFECTS:
        raise BadInput(
            f"fork({id!r}, effects={wanted.effects!a:.40}): say what becomes of the tools that are "
            f"called after the fork: 'live' (they are called), 'reuse' (where the original called "
            f"the same one with the same arguments, its result is taken) or 'stub' (none is called)"
        )
    must_be_texts(f"fork({id!r})", by=wanted.by, because=wanted.because)
    _must_be_by_name(wanted, changes)


def _must_be_by_name(wanted: WantedFork, changes: ForkChanges) -> None:
    """Refuse keys that are no names: types in Python are only a promise."""
    given = {name: getattr(changes, name) for name in ("input", "results", "arguments", "stubs")}
    given["labels"] = wanted.labels or {}
    if isinstance(changes.arguments, Mapping):
        given |= {f"arguments of {name}": each for name, each in changes.arguments.items()}
    for what, value in given.items():
        if not isinstance(value, Mapping):
            raise BadInput(f"fork(): {what} must be a dict, by name, not {value!a:.60}")


def _when(wanted: WantedFork, changes: ForkChanges) -> When | None:
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


def _function(past: State, changes: ForkChanges) -> str:
    if changes.task is None:
        return past.task
    return (
        registry.task(changes.task).name
        if isinstance(changes.task, str)
        else task_spec(changes.task).name
    )


def _input(store: Store, past: State, changes: ForkChanges) -> bytes | None:
    """The changed arguments of the task; None if they stay."""
    if not changes.input:
        return None
    name = _function(past, changes)
    given = plain_in(store, past, raw_args(past), dict[str, Raw])
    spec = _known(registry.task, name)
    data = msgspec.json.encode(given | _arguments(spec, name, changes.input))
    if spec is not None:  # else the process that runs it has the code, and checks it then
        try:
            spec.signature.load(data)
        except Undecodable as error:
            raise BadInput(f"fork({past.id!r}, input=…) does not fit {name}: {error}") from None
    return data


def _digest(past: State, changes: ForkChanges, args: bytes) -> str:
    spec = _known(registry.task, _function(past, changes))
    return args_hash(args) if spec is None else spec.signature.digest(args)


def _known(find: Callable[[str], Spec], name: str) -> Spec | None:
    try:
        return find(name)
    except CodeMissing:
        return None


def _arguments(spec: Spec | None, name: str, given: Mapping[str, Any]) -> dict[str, Raw]:
    """Arguments by name, each as the function takes it, where the code is at hand."""
    unknown = [] if spec is None else sorted(given.keys() - {*spec.signature.names})
    if unknown and spec is not None:
        known = ", ".join(spec.signature.names) or "none"
        raise BadInput(f"fork(): {name} has no argument {unknown[0]!r}; it has {known}")
    return {
        key: _encoded(f"{name}({key}=…)", value, spec.signature.shape(key) if spec else None)
        for key, value in given.items()
    }


def _encoded(what: str, value: Any, shape: Shape | None = None) -> Raw:
    """A value as it goes into the log: of the type that is asked for there, or plain data of it."""
    try:
        if shape is None:
            return Raw(unchecked(value))
        return Raw(shape.given(value))
    except HoldfastError as error:
        raise BadInput(f"fork(): {what} can't be that: {error}") from None


def _stubs(changes: ForkChanges) -> dict[str, Raw]:
    return {name: _returned(name, value) for name, value in changes.stubs.items()}


def _returned(name: str, value: Any) -> Raw:
    """A value as the step returns it, if the code is at hand."""
    spec = registry.surely(name)
    return _encoded(f"the result of {name}", value, spec.signature.returns if spec else None)


def _free(holding: Holding, given: dict[str, Raw]) -> dict[str, Raw]:
    for value in given.values():
        holding.redact.must_be_free(bytes(value))
    return given


def _must_be_editable(past: State, changes: ForkChanges) -> None:
    for path in changes.results:
        call = past.calls.get(path)
        if call is None or call.status not in ("completed", "failed"):
            raise BadInput(
                f"fork(results=…): there is no step {path!a:.60} before the fork that has ended"
            )
    if changes.state is not UNSET and not past.checkpoints:
        raise BadInput(
            f"fork(state=…): task {past.id!r} had made no checkpoint there, so it has no state to "
            f"be edited: give other results (results=…) or another input (input=…)"
        )


def _must_be_called(newest: State, changes: ForkChanges) -> None:
    """Refuse names that no step has, neither in the code nor in the log: they would do nothing."""
    for what in ("arguments", "stubs"):
        for name in getattr(changes, what):
            loaded = _known(registry.call, name) or _known(registry.task, name)
            if loaded is None and all(call.name != name for call in newest.calls.values()):
                raise BadInput(
                    f"fork({what}=…): no step or tool {name!a:.60} is loaded, and "
                    f"{newest.id!r} has called none: mend its name, or load the code that has it "
                    f"(holdfast --app MODULE)"
                )


def _edits(log: Log, changes: ForkChanges, by: str) -> Iterator[AnyEvent]:
    """The events by which the state of a fork differs from that of its original."""
    for path, value in changes.results.items():
        call = log.state.calls[path]
        yield Adopted(
            path=call.path,
            name=call.name,
            kind=call.kind,
            how="edited",
            result=log.stow(bytes(_returned(call.name, value))),
            by=by,
        )
    if changes.state is not UNSET:
        yield Checkpointed(
            number=log.state.checkpoints + 1,
            version=log.state.checkpoint_version,
            state=log.stow_alone(bytes(_encoded("state", changes.state))),
            carried=carried(log.state, log.stow_alone),
        )


# Rewinding: a task goes back to a place in its past, with its conversation and its files.
#
# Nothing is deleted. One event says to where. Later events are no part of the task's past any more,
# until somebody rewinds that event. Effects outside stay: they are listed, and those that have an
# undo can be undone along with the rewind.


class Effect(Struct, frozen=True):
    """An effect outside that the task made after the place it was rewound to."""

    path: str
    name: str
    kind: str
    status: str
    key: str
    undo: str
    """`none`: it has no undo. `possible`: it can be undone. `undone`, `failed`: it was, or not."""
    child: str = ""


UNDO_WORDS = {
    "none": "has none",
    "possible": "left",
    "undone": "undone",
    "failed": "could not be undone",
}
"""The states of an effect's undo, in words."""


class WantedRewind(Struct, frozen=True, kw_only=True):
    """To where, and how."""

    to: str | int | None = None
    when: When | None = None
    seq: int | None = None
    undo: bool = False
    effects: Effects = "reuse"
    by: str = ""
    because: str = ""


def rewind(driving: Driving, id: str, wanted: WantedRewind) -> tuple[Effect, ...]:
    """Rewind a task; returns its effects outside since then."""
    holding = driving.holding
    if wanted.effects not in ("live", "reuse", "stub"):
        raise BadInput(f"rewind(effects={wanted.effects!a:.40}) must be 'live', 'reuse' or 'stub'")
    must_be_texts(f"rewind({id!r})", by=wanted.by, because=wanted.because)
    must_be_here(load(holding.store, checked_id(id)), "rewound")
    try:
        with holding.hold(id) as log:
            log.state = load(holding.store, id)
            place = place_of(log.state, wanted.to, wanted.when, wanted.seq)
            past = load(holding.store, id, place.seq)
            must_be_still(past, place, "rewound")
            _must_be_settled(log.state, past, wanted)
            _must_stand(holding.store, log.state, past, place)
            if wanted.undo:
                _undo(driving, log, past)
            effects = tuple(effects_since(log.state, past))
            state = log.state
            log.append(
                Rewound(
                    to=place.seq,
                    number=state.rewinds + 1,
                    epoch=state.epoch,
                    claims=state.claims,
                    posts=state.posts,
                    path=place.path,
                    when=place.when,
                    by=wanted.by or holding.owner,
                    because=wanted.because,
                    effects=wanted.effects,
                    sessions=_cuts(holding, state, past),
                )
            )
            log.sync()
            rewind_sessions(holding, log.state)
    except TaskBusy as error:
        raise TaskBusy(
            f"{error} A task that runs can't be rewound: pause it first "
            f"(hf.pause({id!r}), holdfast pause)"
        ) from None
    return effects


def _must_be_settled(state: State, past: State, wanted: WantedRewind) -> None:
    """Refuse to drop a call that is in doubt: it would be made again. With `undo`, calls that have
    an undo are settled first."""
    if wanted.effects != "reuse":
        return
    for call in open_calls(state):
        is_left = call.kind == "tool" and is_open(call) and call.path not in past.calls
        if is_left and not (wanted.undo and call.undo):
            raise BadInput(
                f"task {state.id!r}: nobody knows whether step {call.path}, {call.name}, happened, "
                f"and it would be done again: settle it first (holdfast resolve {state.id} "
                f"{call.path}), or say effects='live' to have it called anew"
            )


def _must_stand(store: Store, state: State, past: State, place: PastPlace) -> None:
    """Refuse a past with an effect that has been undone since: the task would go on as if the
    effect still existed."""
    undone = undone_in([*pasts_left(store, state), state])
    for call in past.calls.values() if undone else ():
        if effect_name(call) in undone and not is_undone(past, call):
            raise BadInput(
                f"task {state.id!r}: {place} it had done step {call.path}, {call.name}, which was "
                f"undone since, and would go on as if that stood: take a place before that step"
            )


def effects_since(state: State, past: State) -> Iterator[Effect]:
    """The effects outside that a task made after that past, the newest first."""
    for call in reversed(list(state.calls.values())):
        if call.path in past.calls or call.kind not in ("tool", "child"):
            continue
        if call.path.startswith("undo.") or not _is_its_own(state, call):
            continue
        yield Effect(
            call.path,
            call.name,
            call.kind,
            call.status,
            call.key,
            _undo_of(state, call),
            call.child,
        )


def _is_its_own(state: State, call: Call) -> bool:
    """Whether the task made the call, perhaps before it was rewound, and not its original."""
    if call.adopted:
        return call.adopted_of is not None and call.adopted_of[0] == state.id
    return state.fork is None or call.seq > state.fork.seq


def _undo_of(state: State, call: Call) -> str:
    undone = state.calls.get(undo_path(call.path))
    if undone is not None:
        return "undone" if undone.status == "completed" else "failed"
    return "possible" if call.undo else "none"


def _undo(driving: Driving, log: Log, past: State) -> None:
    """Undo the effects since then that have an undo, the last first."""
    from holdfast.engines.local.tasks import Children

    run = Run(log, log.state.id, HERE, family=Children(driving))
    token = provider.set(driving.holding.secrets)
    try:
        undo_all(run, lambda call: call.path not in past.calls)
    finally:
        provider.reset(token)
        log.attended = None
    log.sync()


def _cuts(holding: Holding, state: State, past: State) -> dict[str, int]:
    """The sessions of a task that have gone on since, and their seqs then."""
    cuts: dict[str, int] = {}
    for session in sessions_of(holding.store, state):
        # A session that had not begun yet is rewound to its beginning.
        seq = max((event.seq for event, _ in said_by(holding.store, session, past)), default=1)
        *_, newest = read_events(holding.store, session_stream(session))
        if newest.seq > seq:
            cuts[session] = seq
    return cuts
