"""`checkpoint` and `restore`: for agents that loop over explicit state.

After a checkpoint nothing older is replayed. The calls that follow the seventh one have paths that
begin with `@7`, so they are told apart from those before; a resumed task reads its log back to the
last whole checkpoint and no further.

A checkpoint is stored as what changed since the one before. Once those changes come to several
times the state itself, a whole one is written: so a resume reads a bounded multiple of the state,
and the log stays close to the size of the changes.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw, Struct

from holdfast.change import change_between, patched_state
from holdfast.codec import Shape, shape_of
from holdfast.engines.run import Run
from holdfast.errors import BadInput, CodeChanged, HoldfastError, Undecodable
from holdfast.events import Carried, Checkpointed
from holdfast.scope import Scope, inside
from holdfast.spec import Spec
from holdfast.task import annotation_of

T = TypeVar("T")

WHOLE_EVERY = 8
"""How many times its own size the changes of a state may come to before it is written whole."""

_SMALL_BYTES = 4096
"""Below this a state counts as this large: a counter need not be written whole so often."""


class Checkpoints(Struct):
    """What a run knows of its checkpoints."""

    shape: Shape
    newest: Any = UNSET
    """The last one, as plain data; unset if the next has to be whole."""
    whole_bytes: int = 0
    change_bytes: int = 0


def restore(default: T) -> T:
    """The state of the last `checkpoint`, or `default` while there is none.

    Call it first in a task. Where the state has changed its shape since, `@task(version=…,
    upcast=…)` says how to bring an old one up to date.

    >>> from holdfast import Holdfast, step, task
    >>> @step
    ... def think(thoughts: list[str]) -> str:
    ...     return f"thought {len(thoughts) + 1}"
    >>> @task
    ... def agent(turns: int) -> list[str]:
    ...     thoughts = restore(list[str]())
    ...     while len(thoughts) < turns:
    ...         thoughts = checkpoint([*thoughts, think(thoughts)])
    ...     return thoughts
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(agent, 3, id="agent-1"), hf.task("agent-1").state.checkpoints
    (['thought 1', 'thought 2', 'thought 3'], 3)
    """
    scope = _body("restore()")
    run: Run = scope.run
    if run.stop is not None:
        raise run.stop
    if scope.calls or scope.named:
        run.halt(BadInput("restore() comes first in a task: before any step, decision or note"))
    run.checkpoints = known = Checkpoints(shape_of(annotation_of(default)))
    state = run.log.state
    if not state.checkpoints:
        return cast("T", known.shape.settle(default)[1])
    scope.path = f"@{state.checkpoints}"
    return cast("T", _restored(run, known))


def _restored(run: Run, known: Checkpoints) -> Any:
    state, spec = run.log.state, cast("Spec", run.spec)
    whole = run.log.fetch(cast("Raw", state.checkpoint))
    data = patched_state(_plain(whole), (_plain(run.log.fetch(raw)) for raw in state.changes))
    known.newest = data
    known.whole_bytes = len(whole)
    known.change_bytes = sum(len(bytes(raw)) for raw in state.changes)
    if state.checkpoint_version != spec.version and spec.upcast is not None:
        data = spec.upcast(data, state.checkpoint_version)
        known.newest = UNSET
    try:
        return known.shape.load(msgspec.json.encode(data))
    except Undecodable as error:
        recorded = f"a checkpoint of version {state.checkpoint_version}"
        asked = f"restores a state it does not fit ({error})"
        why = "Say how it is brought up to date with @task(version=…, upcast=…)"
        run.halt(CodeChanged(run.task_id, f"@{state.checkpoints}", recorded, asked, why))


def checkpoint(state: T) -> T:
    """Record the state of the loop; returns it as a later `restore` will.

    Nothing before it is replayed any more. It costs what has changed since the last one: a list
    that grew costs its new items.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def count(upto: int) -> int:
    ...     n = restore(0)
    ...     while n < upto:
    ...         n = checkpoint(n + 1)
    ...     return n
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(count, 3, id="count-1"), hf.task("count-1").checkpoint
    (3, 3)
    """
    scope = _body("checkpoint()")
    run: Run = scope.run
    if run.stop is not None:
        raise run.stop
    known: Checkpoints | None = run.checkpoints
    if known is None:
        run.halt(BadInput("checkpoint() goes with restore(default), called first in the task"))
    if run.in_flight:
        run.halt(BadInput("checkpoint() was called while other branches of the task are at work"))
    raw, settled = known.shape.settle(state)
    if run.is_rehearsal:
        scope.path, scope.calls, scope.named = f"{scope.path}@", 0, None
        return cast("T", settled)
    event = _event(run, known, raw)
    run.append(event, scope)
    run.sync()
    scope.path, scope.calls, scope.named = f"@{event.number}", 0, None
    return cast("T", settled)


def _event(run: Run, known: Checkpoints, raw: bytes) -> Checkpointed:
    number = run.log.state.checkpoints + 1
    version = cast("Spec", run.spec).version
    data = _plain(raw)
    if known.newest is not UNSET:
        change = msgspec.json.encode(change_between(known.newest, data))
        most = WHOLE_EVERY * max(known.whole_bytes, _SMALL_BYTES)
        if len(change) < max(len(raw), 64) and known.change_bytes + len(change) < most:
            known.newest = data
            known.change_bytes += len(change)
            stowed = run.log.stow(change)
            return Checkpointed(number=number, version=version, change=stowed)
    known.newest, known.whole_bytes, known.change_bytes = data, len(raw), 0
    state = run.log.state
    carried = Carried(state.plan, state.until, state.cancelling, state.posts)
    stowed = run.log.stow(raw)
    return Checkpointed(number=number, version=version, state=stowed, carried=carried)


def _plain(raw: bytes) -> Any:
    return msgspec.json.decode(raw)


def _body(what: str) -> Scope:
    scope = inside(what)
    run: Run = scope.run
    if scope is not run.root:
        raise HoldfastError(f"{what} belongs in the body of a task, not in a step or a branch")
    return scope
