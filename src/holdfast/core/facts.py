"""A state in short: for lists of tasks and sessions, and for workers that look for work."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from holdfast.core.conversation import Conversation
from holdfast.core.events import NEVER
from holdfast.core.queues import line_time
from holdfast.core.state import FINISHED, HALTED, State
from holdfast.core.words import must_be_texts
from holdfast.errors import BadInput

Time = Annotated[datetime, Meta(tz=True)]


class Facts(Struct, frozen=True, omit_defaults=True, gc=False):
    """The facts of a stream that are asked for most: kept beside the log, to save reading it.

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


# Asking for streams by their facts.


LONGEST_PAGE = 1000
MOST_LABELS = 100
"""In one query: a database has its limits."""


class PagePlace(NamedTuple):
    """Where a stream stands in a list: the order of a page, and where the next one begins."""

    at: datetime
    """When it was created; in a list of what is due, when it wakes."""
    stream: str


class Query(Struct, frozen=True, kw_only=True):
    """Which streams, and how many of them. A field left out (None, or empty) matches everything.

    Texts match what is equal to them and nothing else. Of two times, `after` is included and
    `before` is not, so that neither a task is missed between two spans nor counted in both.
    """

    prefix: str = "tasks/"
    status: tuple[str, ...] = ()
    """Any of these."""
    task: str | None = None
    user: str | None = None
    session: str | None = None
    parent: str | None = None
    origin: str | None = None
    labels: dict[str, str] = {}
    """All of these."""
    created_after: datetime | None = None
    created_before: datetime | None = None
    updated_after: datetime | None = None
    updated_before: datetime | None = None
    due_by: datetime | None = None
    """Only what somebody should drive by then, the longest due first, in place of the newest."""
    unheld: bool = False
    """Of what is due, leave out what another process holds. A store that tells of holders as
    cheaply one by one may leave it in."""
    limit: int | None = 50
    """The length of the page; None for all there are."""
    beyond: PagePlace | None = None
    """Only what comes after this place: the last one of the page before."""

    def __post_init__(self) -> None:
        # Here, so that whatever a store is given to bind to its SQL is of the right kind.
        for name in ("task", "user", "session", "parent", "origin"):
            if getattr(self, name) is not None:
                must_be_texts("a query", **{name: getattr(self, name)})
        for status in self.status:
            must_be_texts("a query", status=status)
        _must_be_labels(self.labels)
        for name in (
            "created_after",
            "created_before",
            "updated_after",
            "updated_before",
            "due_by",
        ):
            _must_be_a_time(name, getattr(self, name))
        if self.limit is None:
            return
        if type(self.limit) is not int or not 1 <= self.limit <= LONGEST_PAGE:
            raise BadInput(
                f"a query: limit={self.limit!a:.60} must be 1 to {LONGEST_PAGE}, the longest page: "
                f"for more, take the next page by its cursor"
            )


def _must_be_labels(labels: object) -> None:
    if not isinstance(labels, dict) or len(labels) > MOST_LABELS:
        raise BadInput(
            f"a query: labels={labels!a:.60} must be a dict of at most {MOST_LABELS} texts"
        )
    for name, value in labels.items():
        must_be_texts("a query", **{"the name of a label": name, "a label": value})


def _must_be_a_time(name: str, time: object) -> None:
    if time is None or (isinstance(time, datetime) and time.utcoffset() is not None):
        return
    raise BadInput(
        f"a query: {name}={time!a:.60} must be a datetime with its time zone, such as "
        f"datetime(2026, 1, 1, tzinfo=UTC)"
    )


class Page(Struct, frozen=True):
    """The streams that a store found, in order, and those whose facts only their logs can tell."""

    found: Sequence[tuple[str, Facts]] = ()
    more: bool = False
    """Whether there are others that match, after those found."""
    unknown: Sequence[str] = ()


BY_ENGINE = datetime(9000, 1, 1, tzinfo=UTC)
"""When a task wakes that a remote engine drives, for those who look for work themselves: never.
The process that looks after an engine's tasks finds them by it."""


TRIED_ONCE = datetime(8999, 1, 1, tzinfo=UTC)
"""When a task wakes that could not go on where it was last tried: when a worker starts, which may
have other code. Every worker finds such tasks by it, and tries each once."""


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
    if state.status in HALTED:
        return None
    if state.in_line and state.ticket is not None:
        return line_time(state.ticket, state.not_before or state.created_at)
    if state.status == "pending":
        return max(state.created_at, state.not_before or NEVER)
    if not state.parked:
        return NEVER
    tried = None if state.hindrance is None else TRIED_ONCE
    times = [time for time in (state.wake_at, state.until, tried) if time is not None]
    return min(times, default=None)
