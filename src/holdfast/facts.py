"""What a state says in short: for lists of tasks and sessions, and for who looks for work."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta, Struct

from holdfast.conversation import Conversation
from holdfast.events import NEVER
from holdfast.state import FINISHED, State

Time = Annotated[datetime, Meta(tz=True)]


class Facts(Struct, frozen=True, omit_defaults=True):
    """What is asked of a stream most often: kept beside the log, so that nobody has to read it.

    The status and the times of change and of waking change; the others are those of its beginning.
    """

    task: str = ""
    status: str = ""
    user: str = ""
    session: str = ""
    labels: dict[str, str] = {}
    parent: str = ""
    created_at: Time = NEVER
    updated_at: Time = NEVER
    wake_at: Time | None = None
    """From when on somebody should drive it; None while there is nothing to do."""
    origin: str = ""
    """The id of the task whose past it shares, if it is a fork of one."""


BY_ENGINE = datetime(9000, 1, 1, tzinfo=UTC)
"""When a task wakes that a remote engine drives, for those who look for work themselves: never.
Who looks after the tasks of an engine finds them by it."""


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
        origin=state.fork.of if state.fork is not None else "",
    )


def facts_of_session(conversation: Conversation) -> Facts:
    """The facts of a session after its newest event. Nobody drives it, so nothing wakes it.

    >>> facts_of_session(Conversation(id="s-1", user="ada")).session
    's-1'
    """
    return Facts(
        status=conversation.status,
        user=conversation.user,
        session=conversation.id,
        labels=conversation.labels,
        created_at=conversation.created_at,
        updated_at=conversation.updated_at,
        origin=conversation.fork.of if conversation.fork is not None else "",
    )


def wake_at(state: State) -> datetime | None:
    """From when on somebody should drive a task; None while there is nothing to do for anyone.

    A task that nobody parked is being driven, or was when its process died: who looks for work
    tries to take hold of it, and is told if the process is alive.
    """
    if state.status in FINISHED:
        return None
    if state.driver:
        return BY_ENGINE
    if state.status == "paused":
        return None
    if state.status == "pending":
        return state.created_at
    if not state.parked:
        return NEVER
    times = [time for time in (state.wake_at, state.until) if time is not None]
    return min(times, default=None)
