"""Tasks that a remote engine drives: who may do what to them, and how their engine is told.

The log names the driver of a task (`State.driver`), so every process sees the same, whatever engine
it was given. Nobody but the engine writes to such a task while it is under way: what is said to it
is left in its inbox, and the engine brings it in.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from shlex import quote

from holdfast.core.events import Checkpointed, Claimed, Moved
from holdfast.core.fold.waits import perhaps_open
from holdfast.core.journal.requests import in_doubt, unanswered
from holdfast.core.state import FINISHED, HALTED, UNDO, Call, State, scope_of
from holdfast.engines.execution import is_open_child
from holdfast.engines.port import Engine, Job, RunOver, job_of
from holdfast.errors import (
    DrivenElsewhere,
    EngineConflict,
    EngineError,
    TaskBusy,
    TaskPaused,
    TaskStuck,
    TaskWaiting,
)
from holdfast.log.log import Log, open_log
from holdfast.log.reading import first_event, no_task, stream_of
from holdfast.log.states import load
from holdfast.stores.port import Store

LOCAL = "local"
"""The people's name for the engine that the log has no name for."""

CANCEL = "cancel"
"""The name of the message that asks a task to end; a later one has a number after it. An engine
that was asked for that by its own means says so by the same name."""


def driven_by(state: State) -> str:
    """The remote engine that drives a task now; '' if none does, or it has ended.

    >>> driven_by(State(driver="temporal")), driven_by(State(driver="temporal", status="failed"))
    ('temporal', '')
    """
    return "" if state.status in FINISHED else state.driver


def driver_of(engine: Engine | None) -> str:
    """The name of an engine in the log: '' for the local one."""
    return "" if engine is None or engine.name == LOCAL else engine.name


def called(driver: str) -> str:
    """The name that people use."""
    return driver or LOCAL


def job_for(state: State) -> Job:
    """The task as its engine knows it. When its log was begun tells it from all of the same id.

    >>> job_for(State(id="trip-42", task="plan_trip", driven_since=7)).seq
    7
    """
    return job_of(state, log_of(state.created_at))


def log_of(created_at: datetime) -> str:
    """The mark that tells a log from every other one with the same id."""
    return f"{created_at:%Y%m%dT%H%M%S.%f}"


def log_in(store: Store, task_id: str) -> str:
    """The same, of the task that a store has by that id; '' if it has none."""
    first = first_event(store, stream_of(task_id))
    return "" if first is None else log_of(first.at)


def must_be_log(store: Store, task_id: str, log: str) -> None:
    """Raise unless the task of that id in a store is the one that its engine means."""
    found = log_in(store, task_id)
    if not found:
        raise no_task(store, task_id, f", but its engine has one. {_QUEUE}")
    if found != log:
        raise EngineConflict(
            f"task {task_id!r}: the one its engine has driven here is not that of {store.url}, "
            f"which has another under the same id. Nothing was changed. {_QUEUE}"
        )


_QUEUE = (
    "Do the workers of two stores share a queue? Let each store have a queue, and a namespace, of "
    "its own"
)


def elsewhere(state: State) -> DrivenElsewhere:
    """The error raised when this process drives or writes a task that another engine owns."""
    driver, id = called(state.driver), quote(state.id)
    force = " --force" if state.status in FINISHED else ""
    if driver == LOCAL:
        return DrivenElsewhere(
            f"task {state.id!r} exists, and is driven locally: go on with it without an engine, "
            f"give the new task another id, or move it (holdfast move {id} --engine ENGINE)"
        )
    return DrivenElsewhere(
        f"task {state.id!r} is driven by {driver}, and by nobody else: open the store with "
        f"engine={driver.capitalize()}(…) (holdfast … --engine {driver}), or move the task "
        f"(holdfast move {id} --engine {LOCAL}{force})"
    )


def must_be_driven_by(state: State, driver: str) -> None:
    """Raise `DrivenElsewhere` for a task that is under way with another engine."""
    if state.seq and state.status not in FINISHED and state.driver != driver:
        raise elsewhere(state)


def must_be_here(state: State, to_be: str) -> None:
    """Raise `DrivenElsewhere` for a task that a remote engine drives, whatever engine the store was
    opened with: what it is `to_be` can't be done to it there."""
    if driver := driven_by(state):
        raise DrivenElsewhere(
            f"task {state.id!r} is under way on {driver}, where it can't be {to_be}: wait until "
            f"it has ended, or take it from there first (hf.move({state.id!r}, {LOCAL!r}), "
            f"holdfast move {quote(state.id)} --engine {LOCAL})"
        )


class Taken(DrivenElsewhere):
    """Somebody took a task from its engine, which was not asked (`holdfast move --force`)."""


def must_not_be_taken(state: State, engine: str, since: int) -> None:
    """Raise `Taken` for who drives a task from an event on if it was taken from him since then: he
    has missed that, and may write no more."""
    if state.taken_at > since:
        raise Taken(
            f"task {state.id!r} was taken from {engine} by force, and is driven by "
            f"{called(state.driver)} from event {state.driven_since} on. The run of it that began "
            f"before does nothing more, and is ended"
        )


def is_to_end(message: str) -> bool:
    """Whether a message of that name asks a task to end.

    >>> is_to_end("cancel"), is_to_end("cancel-2"), is_to_end("answer-1")
    (True, True, False)
    """
    return message.partition("-")[0] == CANCEL


def let_know(engine: Engine, state: State, message: str) -> None:
    """Tell an engine that a message was left for a task of its."""
    if is_to_end(message):
        engine.cancel(job_for(state))
    else:
        engine.tell(job_for(state), message)


def warn(text: str) -> None:
    """Say what a person should know, and nothing depends on."""
    import logging

    logging.getLogger("holdfast").warning(text)


# Handing tasks to their engine, and telling it of their messages.
#
# An engine knows a run of a task by the event that it drives it from, and drives it from there
# once: where a run left timers and calls behind, these would ring in the next one of the same
# name. So a task whose run is over, and which is not, goes on from a new event. It is written
# before anybody is told, so that every process means the same run by then.


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
            newest = load(store, job.id, missing_ok=True)
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


# Whether a task can go on by itself, from its state alone.
#
# The driver of a task sees it stop. A process that watches the task of a remote engine has to tell
# from the log that nothing more will happen before a person has done something.


OfChild = Callable[[str], State]
"""The state of a child, by its id."""


def standstill(state: State, of_child: OfChild) -> TaskWaiting | None:
    """Why a task can't go on before a person has done something; None while it can.

    The error that it would have raised here. A strand that still sleeps, backs off or runs
    something goes on first; a child that waits for a person holds up its parent, if nothing else
    goes on.

    >>> print(standstill(State(id="trip-42", status="paused", because="lunch"), lambda id: State()))
    task 'trip-42' is paused (lunch). To let it go on: ...
    """
    if state.status in FINISHED:
        return None
    if state.status in HALTED:
        return halted(state)
    if state.cancelling and not state.ending:
        return None
    ends = _innermost(state)
    asked = [_asked(state, call) for call in ends if not is_open_child(call)]
    if asked:
        first, others = asked[0], asked[1:]
        return first if first is not None and None not in others else None
    return _of_children([call for call in ends if is_open_child(call)], of_child)


def halted(state: State) -> TaskPaused | TaskStuck:
    """The error for a task that goes on only when somebody says so."""
    kind = TaskStuck if state.status == "stuck" else TaskPaused
    return kind(state.id, state.because)


def waits_for(state: State, of_child: OfChild) -> str:
    """The thing that an unfinished task waits for, as the end of a sentence; '' if the log does not
    tell.

    >>> waits_for(State(id="trip-42", status="pending"), lambda id: State())
    ' (is a worker running?)'
    """
    if state.status == "pending":
        return " (is a worker running?)"
    waiting = standstill(state, of_child)
    if waiting is not None:
        return f". {waiting}"
    return "".join(f"; {_in_words(call)}" for call in _innermost(state)[:3])


def _in_words(call: Call) -> str:
    if is_open_child(call):
        return f"it waits for task {call.child!r}"
    if call.kind == "sleep":
        return f"it sleeps until {call.until}"
    if call.kind == "limit":
        return f"call {call.approves} waits for the limit {call.name!r} until {call.until}"
    if call.status == "backing_off":
        return f"call {call.path}, {call.name}, is tried again at {call.retry_at}"
    if call.status == "waiting":
        return f"question {call.key!r} waits for an answer"
    return f"call {call.path}, {call.name}, is {call.status.replace('_', ' ')}"


def _asked(state: State, call: Call) -> TaskWaiting | None:
    if call.status == "in_doubt":
        return in_doubt(state.id, call)
    if call.status == "waiting" and call.kind in ("question", "approval"):
        return unanswered(state.id, call)
    return None


def _innermost(state: State) -> list[Call]:
    """The calls that have not ended, without those that wait for one of these."""
    opened = [
        call for call in perhaps_open(state.calls) if call.status not in ("completed", "failed")
    ]
    if state.ending:  # what the function waited for does not matter any more
        opened = [call for call in opened if _is_undo(call)]
    outer: set[str] = {call.approves for call in opened if call.approves}
    for call in opened:
        scope = scope_of(call.path)
        while scope:
            outer.add(scope)
            scope = scope_of(scope)
    return [call for call in opened if call.path not in outer]


def _is_undo(call: Call) -> bool:
    return f"{call.approves or call.path}.".startswith(f"{UNDO}.")


def _of_children(calls: list[Call], of_child: OfChild) -> TaskWaiting | None:
    found = None
    for call in calls:
        child = of_child(call.child)
        if child.status in FINISHED:
            continue  # its parent has yet to hear of it, or does not care
        waiting = standstill(child, of_child)
        if waiting is None:
            return None
        found = found or waiting
    return found
