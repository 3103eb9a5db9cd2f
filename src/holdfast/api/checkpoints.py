"""`checkpoint` and `restore`: for agents that loop over explicit state.

After a checkpoint nothing older is replayed. The calls that follow the seventh one have paths that
begin with `@7`, so they are told apart from those before; a resumed task reads its log back to the
last whole checkpoint and no further.

A checkpoint is stored as what changed since the one before. Once a resume would have to read
several times the size of the state, a whole one is written: so a resume reads a bounded multiple
of the state, and the log stays close to the size of the changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw

from holdfast.codec import shape_of_value
from holdfast.codec.change import change_between, patched_state
from holdfast.core.decoding import decode
from holdfast.core.events import Checkpointed
from holdfast.core.fold.task import carried
from holdfast.core.scope import Scope, inside
from holdfast.core.spec import Spec
from holdfast.core.state import State
from holdfast.engines.execution import must_have_made_every_call, older_code
from holdfast.engines.run import Checkpoints, Run
from holdfast.errors import BadInput, CodeChanged, HoldfastError, Undecodable

T = TypeVar("T")

WHOLE_EVERY = 8
"""How many times the size of the state a resume may have to read before it is written whole.

A state that only grows is never written whole again: its changes are no more than it is."""

_SMALL_BYTES = 4096
"""Below this a state counts as this large: a counter need not be written whole so often."""

_FILE_BYTES = 256
"""The bytes that a file of the task adds to a whole checkpoint, about."""


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
    run.must_go_on_in(scope)
    if scope.calls or scope.named:
        run.halt(BadInput("restore() comes first in a task: before any step, decision or note"))
    run.checkpoints = known = Checkpoints(shape_of_value(default))
    state = run.driver.begun(run)
    if not state.checkpoints:
        return cast("T", known.shape.settle(default)[1])
    _go_on_from(scope, f"@{state.checkpoints}")
    return cast("T", _restored(run, known, state))


def _restored(run: Run, known: Checkpoints, state: State) -> Any:
    spec = cast("Spec", run.spec)
    whole = run.log.fetch(cast("Raw", state.checkpoint))
    if state.checkpoint_version > spec.version:
        run.halt(older_code(state, spec))
    data = patched_state(_plain(whole), (_plain(run.log.fetch(raw)) for raw in state.changes))
    known.newest = data
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
    run.must_go_on_in(scope)
    known = run.checkpoints
    if known is None:
        run.halt(BadInput("checkpoint() goes with restore(default), called first in the task"))
    if run.loop.in_flight:
        run.halt(BadInput("checkpoint() was called while other branches of the task are at work"))
    must_have_made_every_call(run)
    raw, settled = known.shape.settle(state)
    if not run.driver.writes:
        _go_on_from(scope, f"{scope.path}@")
        return cast("T", settled)
    if run.checkpoints_passed == run.log.state.checkpoints:
        run.append(_event(run, known, raw), scope)
        run.sync()
    else:
        known.newest = _plain(raw)
    run.driver.pass_checkpoint()
    _go_on_from(scope, f"@{run.checkpoints_passed}")
    return cast("T", settled)


def _go_on_from(scope: Scope, path: str) -> None:
    """Count the calls of the body anew, in a place of their own."""
    scope.path, scope.calls, scope.said, scope.named = path, 0, 0, None


def _event(run: Run, known: Checkpoints, raw: bytes) -> Callable[[State], Checkpointed]:
    """The event to append, given the state at that moment: somebody may pause it just now."""
    version = cast("Spec", run.spec).version
    before, known.newest = known.newest, _plain(raw)
    if before is not UNSET:
        change = msgspec.json.encode(change_between(before, known.newest))
        carried_bytes = _FILE_BYTES * len(run.log.state.files)
        most = WHOLE_EVERY * (max(len(raw), _SMALL_BYTES) + carried_bytes)
        if len(change) < max(len(raw), 64) and run.log.bytes_since_checkpoint < most:
            stowed = run.log.stow_alone(change)
            return lambda state: Checkpointed(
                number=state.checkpoints + 1, version=version, change=stowed
            )
    stowed = run.log.stow_alone(raw)
    return lambda state: Checkpointed(
        number=state.checkpoints + 1,
        version=version,
        state=stowed,
        carried=carried(state, run.log.stow_alone),
    )


def _plain(raw: bytes) -> Any:
    return decode(raw)


def _body(what: str) -> Scope:
    scope = inside(what)
    run: Run = scope.run
    if scope is not run.root:
        raise HoldfastError(f"{what} belongs in the body of a task, not in a step or a branch")
    return scope
