"""What a state says in short: for lists of tasks, and for those who look for tasks to drive."""

from __future__ import annotations

from datetime import datetime

from holdfast.events import NEVER
from holdfast.state import FINISHED, State
from holdfast.store import Facts


def facts_of(state: State) -> Facts:
    """The facts of a task after its newest event."""
    return Facts(
        state.task,
        state.status,
        state.user,
        state.session,
        state.labels,
        state.parent,
        state.created_at,
        state.updated_at,
        wake_at(state),
    )


def wake_at(state: State) -> datetime | None:
    """From when on somebody should drive a task; None while there is nothing to do for anyone.

    A task that nobody parked is being driven, or was when its process died: who looks for work
    tries to take hold of it, and is told if the process is alive.
    """
    if state.status in FINISHED or state.status == "paused":
        return None
    if state.status == "pending":
        return state.created_at
    if not state.parked:
        return NEVER
    times = [time for time in (state.wake_at, state.until) if time is not None]
    return min(times, default=None)
