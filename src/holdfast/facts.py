"""What a state says in short: for lists of tasks, and for those who look for tasks to drive."""

from __future__ import annotations

from datetime import datetime, timedelta

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


_LOOK_AFTER_CHILDREN = timedelta(seconds=30)
"""Who drove a child tells its parent when it has ended, unless it dies just then."""


def goes_on_at(state: State, now: datetime) -> datetime | None:
    """When a task that is let go of has something to do by itself."""
    times = []
    for call in state.calls.values():
        if call.status == "backing_off" and call.retry_at is not None:
            times.append(call.retry_at)
        elif call.status == "waiting" and call.kind == "child":
            times.append(now + _LOOK_AFTER_CHILDREN)
        elif call.status == "waiting" and call.until is not None:
            times.append(call.until)
    return min(times, default=None)
