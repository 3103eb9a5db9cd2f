"""Handing tasks to their engine, and telling it of their messages.

An engine knows a run of a task by the event that it drives it from, and drives it from there once:
where a run left timers and calls behind, these would ring in the next one of the same name. So a
task whose run is over, and which is not, goes on from a new event. It is written before anybody is
told, so that every process means the same run by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime

from holdfast.engines.elsewhere import driven_by, is_to_end, job_for, let_know, warn
from holdfast.engines.port import Engine, Job, RunOver
from holdfast.errors import EngineError, TaskBusy
from holdfast.events import Checkpointed, Claimed, Moved
from holdfast.log import Log, open_log
from holdfast.reading import read_state, stream_of
from holdfast.state import State
from holdfast.store import Store

LETS_GO_S = 30.0
"""How long somebody who wants a task to go on waits for a worker that has a step of it in hand,
and was not told that its run is over."""

_LEASE_S, _POLL_S = 30.0, 0.05


def hand_over(
    store: Store,
    engine: Engine,
    state: State,
    by: str,
    patience_s: float = 0.0,
    first: Callable[[State], None] = lambda state: None,
) -> State:
    """See to it that an engine drives a task, in a new run if the one that it had is over; returns
    the task as it is driven. `first` is done before it has a new run. `TaskBusy` if somebody who
    had the run that is over still has the task in hand."""
    job = job_for(state)
    try:
        if driven_by(state) == engine.name and _has_begun(state):
            known = engine.query(job)
            if known is None:
                raise RunOver(f"{engine.name} has forgotten the run of task {job.id!r}")
            if known.status == "running":
                return state
        engine.start(job)
        return state
    except RunOver:
        first(state)
        newest = _renewed(store, engine.name, job, by, patience_s)
        if driven_by(newest) == engine.name:
            engine.start(job_for(newest))
        return newest


def renew(log: Log, engine: str, job: Job, by: str) -> None:
    """Have a task go on from a new event, unless it does already."""

    def moved(state: State) -> Moved | None:
        if driven_by(state) != engine or state.driven_since != job.seq:
            return None
        return Moved(engine=engine, by=by, since=job.seq)

    log.append(moved)
    log.sync()


def _renewed(store: Store, engine: str, job: Job, by: str, patience_s: float) -> State:
    give_up_at = time.monotonic() + patience_s
    while True:
        try:
            log = open_log(store, job.id, by, _LEASE_S, lambda: datetime.now(UTC))
        except TaskBusy:
            newest = read_state(store, stream_of(job.id))
            if job_for(newest) != job or driven_by(newest) != engine:
                return newest
            if time.monotonic() >= give_up_at:
                raise
            time.sleep(_POLL_S)
            continue
        with closing(log):
            renew(log, engine, job, by)
            return log.state


def _has_begun(state: State) -> bool:
    """Whether its engine has driven a task since the event that it knows its run by."""
    return any(
        isinstance(event, Checkpointed)
        or (isinstance(event, Claimed) and event.engine == state.driver)
        for event in state.trail
        if event.seq > state.driven_since
    )


def try_to_let_know(store: Store, engine: Engine, by: str, state: State, message: str) -> bool:
    """Tell an engine of a message; False if it is not this one's task, or can't be told: its
    workers will see."""
    if engine.name != state.driver:
        return False
    try:
        if is_to_end(message):  # somebody may have ended its run, and it has something to undo
            state = hand_over(store, engine, state, by)
        let_know(engine, state, message)
    except (EngineError, TaskBusy) as error:
        warn(
            f"task {state.id!r}: {engine.name} was not told of {message!r}, which is safe in the "
            f"task's inbox: a worker of {engine.name} tells it as soon as it can ({error})"
        )
        return False
    return True


def try_to_start(store: Store, engine: Engine, by: str, state: State) -> None:
    """Have an engine drive a task of its; if it can't be told, its workers will see."""
    if engine.name != driven_by(state):
        return
    try:
        hand_over(store, engine, state, by)
    except (EngineError, TaskBusy) as error:
        warn(f"task {state.id!r} is not started yet: {error}")
