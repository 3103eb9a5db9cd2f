"""Tasks that a remote engine drives: who may do what to them, and how their engine is told.

Who drives a task is in its log (`State.driver`), so every process sees the same, whatever engine it
was given. Nobody but the engine writes to such a task while it is under way: what is said to it is
left in its inbox, and the engine brings it in.
"""

from __future__ import annotations

from datetime import datetime
from shlex import quote

from holdfast.engines.port import Engine, Job, job_of
from holdfast.errors import DrivenElsewhere, EngineConflict, TaskNotFound
from holdfast.reading import first_event, stream_of
from holdfast.state import FINISHED, State
from holdfast.store import Store

LOCAL = "local"
"""What people call the engine that the log has no name for."""

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
    """What the log calls an engine: '' for the local one."""
    return "" if engine is None or engine.name == LOCAL else engine.name


def called(driver: str) -> str:
    """What people call it."""
    return driver or LOCAL


def job_for(state: State) -> Job:
    """The task as its engine knows it. When its log was begun tells it from all of the same id.

    >>> job_for(State(id="trip-42", task="plan_trip", driven_since=7)).seq
    7
    """
    return job_of(state, log_of(state.created_at))


def log_of(created_at: datetime) -> str:
    """What tells a log from every other one with the same id."""
    return f"{created_at:%Y%m%dT%H%M%S.%f}"


def log_in(store: Store, task_id: str) -> str:
    """The same, of the task that a store has by that id; '' if it has none."""
    first = first_event(store, stream_of(task_id))
    return "" if first is None else log_of(first.at)


def must_be_log(store: Store, task_id: str, log: str) -> None:
    """Raise unless the task of that id in a store is the one that its engine means."""
    found = log_in(store, task_id)
    if not found:
        raise TaskNotFound(f"no task {task_id!r} in {store.url}, but its engine has one. {_QUEUE}")
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
    """The error for who would drive a task, or write to it, that is not his to drive."""
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
