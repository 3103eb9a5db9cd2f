"""The task of a script: which steps it has begun, and how each of them ended.

Each step is a task of its own, a child of this one, so that two can run at once; here they are in
order, each a call by the number of its first run. Nobody drives the task of a script. Whoever runs
a step takes hold of it for a moment before and after.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from msgspec import Raw
from msgspec.structs import replace

from holdfast.api.app import Holdfast
from holdfast.codec import args_hash
from holdfast.core.events import (
    FORMAT,
    ChildEnded,
    ChildStarted,
    Claimed,
    Parked,
    TaskCompleted,
    TaskCreated,
)
from holdfast.core.journal import Returned
from holdfast.core.state import FINISHED, Call, State
from holdfast.engines.control import end_of
from holdfast.engines.holding import Holding
from holdfast.errors import BadInput, TaskBusy, TaskCancelled, TaskNotFound, TaskPaused
from holdfast.log.log import Log
from holdfast.log.reading import first_event, read_state, stream_of

SCRIPT, STEP = "script", "once"
"""The types of the two tasks."""

_PATIENCE_S, _FIRST_WAIT_S, _LONGEST_WAIT_S = 30.0, 0.002, 0.05


def child_of(hf: Holdfast, script: str, name: str) -> str:
    """The id of the task of a step, or of the one that it will have."""
    call = _call_of(read_state(hf.store, stream_of(script)), name)
    return f"{script}:{name}" if call is None else call.child


def begin_step(hf: Holdfast, script: str, name: str, child: str, args: bytes) -> str:
    """Record that a step of a script begins (again); returns its number."""
    with _held(hf._holding, script) as log:
        _begin(log, script, hf._holding.owner)
        call = _call_of(log.state, name)
        if call is not None and call.child == child and call.status == "running":
            return call.path
        path = call.path if call is not None else str(len(log.state.calls) + 1)
        raw, digest = log.stow_alone(args), args_hash(args)
        log.append(ChildStarted(path=path, id=child, name=name, args=raw, args_hash=digest))
        log.sync()
        return path


def end_step(hf: Holdfast, step: State) -> None:
    """See to it that it is recorded how a step of a script ended.

    Whoever drove the step has said so, unless it died just then.
    """
    outcome = end_of(step)
    known = read_state(hf.store, stream_of(step.parent))
    if (
        outcome is None
        or known.status in FINISHED
        or (known.parked and not _open_call(known, step.id))
    ):
        return
    with _held(hf._holding, step.parent) as log:
        if call := _open_call(log.state, step.id):
            ended = ChildEnded(path=call.path)
            if isinstance(outcome, Returned):
                log.append(replace(ended, result=outcome.raw))
            else:
                log.append(replace(ended, failure=outcome.failure))
        log.append(_waits())
        log.sync()


def end_script(hf: Holdfast, script: str) -> None:
    """Record that a script has come to its end. Of one that has, nothing changes."""
    if first_event(hf.store, stream_of(script)) is None:
        raise TaskNotFound(f"no task {script!r} in {hf.store.url}: no step of it was ever run")
    with _held(hf._holding, script) as log:
        _must_be_a_script(log.state)
        if log.state.status == "completed":
            return
        for call in log.state.calls.values():
            if call.status == "running" and hf.store.holder(stream_of(call.child)) is not None:
                raise BadInput(
                    f"task {script!r} can't be done yet: its step {call.name!r} is running"
                )
        log.append(TaskCompleted(result=Raw(b"null")))
        log.sync()


def _begin(log: Log, script: str, owner: str) -> None:
    """Make the task of a script, or see whether another step may be run in it."""
    state = log.state
    if state.seq == 0:
        nothing = b"{}"
        log.append(
            TaskCreated(
                format=FORMAT,
                id=script,
                task=SCRIPT,
                args=Raw(nothing),
                args_hash=args_hash(nothing),
            )
        )
        log.append(Claimed(format=FORMAT, epoch=log.lease.epoch, owner=owner))
        log.append(_waits())
        return
    _must_be_a_script(state)
    if state.status == "paused":
        raise TaskPaused(script, state.because)
    if state.status == "cancelled" or state.cancelling:
        raise TaskCancelled(script, state.because)
    if state.status == "completed":
        raise BadInput(
            f"task {script!r} was ended with `holdfast once --done`, and this step was never "
            f"recorded in it: run the script under another id (HOLDFAST_TASK, or --task)"
        )


def _must_be_a_script(state: State) -> None:
    if state.task != SCRIPT:
        raise BadInput(
            f"task {state.id!r} is a {state.task}, and no script: give the script an id of its own "
            f"(HOLDFAST_TASK, or --task)"
        )


def _call_of(state: State, name: str) -> Call | None:
    return next((call for call in state.calls.values() if call.name == name), None)


def _open_call(state: State, child: str) -> Call | None:
    calls = state.calls.values()
    return next((call for call in calls if call.child == child and call.status == "running"), None)


def _waits() -> Parked:
    return Parked(why="the script runs its steps")  # so that no worker takes it for an orphan


@contextmanager
def _held(holding: Holding, id: str) -> Iterator[Log]:
    """Hold the task of a script for a moment; others do so too, and are waited for."""
    with ExitStack() as stack:
        give_up_at, wait_s = time.monotonic() + _PATIENCE_S, _FIRST_WAIT_S
        log: Log | None = None
        while log is None:
            try:
                log = stack.enter_context(holding.hold(id))
            except TaskBusy:
                if time.monotonic() > give_up_at:
                    raise
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        yield log
