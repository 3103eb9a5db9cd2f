"""A policy for deleting tasks, and its result for the tasks of a store. It only decides.

The unit is the family: a parent with its children goes as a whole or stays as a whole, because
either may ask for the other's log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast.core.state import FINISHED, UNDO, State, scope_of
from holdfast.errors import BadInput
from holdfast.stores.port import Facts
from holdfast.upkeep.families import needed_first, sessions_needed, with_originals

if TYPE_CHECKING:
    from holdfast.upkeep.families import TaskFamily


class Retention(Struct, frozen=True, kw_only=True):
    """Which finished tasks may be deleted. `Holdfast.gc` takes one.

    A task goes because it is `older_than` that, or because the store is larger than `max_bytes`
    (the oldest go first, until it is not). The newest `keep_last` of each type stay in any case;
    `keep_last` alone deletes all other tasks. `status` and `type` limit the policy to some tasks.
    An empty policy deletes no task. Sessions go only after `sessions_after`. Memories stay.

    >>> from datetime import timedelta
    >>> Retention(older_than=timedelta(days=30), keep_last=10).keep_last
    10
    """

    older_than: timedelta | None = None
    """Since its last event."""
    keep_last: int | None = None
    max_bytes: int | None = None
    """The most bytes that the logs and blobs of the store may take."""
    status: str | Collection[str] = ("completed", "failed", "cancelled")
    type: str | Collection[str] = ()
    """The names of task functions; all, if none is named."""
    sessions_after: timedelta | None = None
    """The age of its last event at which a session goes, ended or not; but only if it has no task
    left."""
    grace: timedelta = timedelta(hours=1)
    """The least age at which unnamed blobs and leftovers of crashes go: a writer may be about to
    name them. Take less only while nobody writes."""

    def __post_init__(self) -> None:
        for name in ("status", "type"):
            given = getattr(self, name)
            several = given if isinstance(given, Collection) else (None,)
            if not all(isinstance(one, str) for one in several):
                raise BadInput(f"Retention({name}={given!r:.60}) must be a text, or several")
        if not self.statuses or not self.statuses <= FINISHED:
            raise BadInput(
                f"Retention(status={self.status!r:.80}): only what has ended may be deleted; give "
                f"some of {', '.join(sorted(FINISHED))}"
            )
        for name in ("keep_last", "max_bytes"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 0):
                raise BadInput(f"Retention({name}={value!r:.60}) must be 0 or more")
        for name in ("older_than", "sessions_after", "grace"):
            span = getattr(self, name)
            if span is not None and (not isinstance(span, timedelta) or span < timedelta()):
                raise BadInput(f"Retention({name}={span!r:.60}) must be a timedelta of 0 or more")

    @property
    def statuses(self) -> frozenset[str]:
        """`status`, whether it was one or several."""
        return frozenset([self.status] if isinstance(self.status, str) else self.status)

    @property
    def types(self) -> frozenset[str]:
        """`type`, whether it was one or several."""
        return frozenset([self.type] if isinstance(self.type, str) else self.type)

    @property
    def deletes_tasks(self) -> bool:
        """Whether it may delete any task."""
        return any(v is not None for v in (self.older_than, self.keep_last, self.max_bytes))


class Candidate(Struct, frozen=True):
    """A family that may go, and why."""

    family: TaskFamily
    at: datetime
    """Of its last event."""
    why: str


def candidates(
    policy: Retention, facts: Mapping[str, Facts], found: Iterable[TaskFamily], now: datetime
) -> tuple[list[Candidate], list[Candidate]]:
    """The families that go in any case, and those that go if the store is too large, oldest first.

    It goes by the facts that the store tells; the logs are read before anything is deleted.
    """
    eligible = sorted(
        (family for family in found if _is_about(policy, facts, family)),
        key=lambda family: (_at(facts, family), family.head),
        reverse=True,
    )
    newest: dict[str, int] = {}
    go: list[Candidate] = []
    spare: list[Candidate] = []
    for family in eligible:
        kind = facts[family.head].task
        newest[kind] = newest.get(kind, 0) + 1
        if newest[kind] <= (policy.keep_last or 0):
            continue
        at = _at(facts, family)
        if policy.older_than is not None and now - at > policy.older_than:
            go.append(Candidate(family, at, f"older than {_span(policy.older_than)}"))
        elif policy.max_bytes is not None:
            spare.append(Candidate(family, at, "the store is too large"))
        elif policy.older_than is None and policy.keep_last is not None:
            go.append(Candidate(family, at, f"not among the last {policy.keep_last}"))
    return go[::-1], spare[::-1]


def idle(
    policy: Retention, sessions: Mapping[str, Facts], tasks: Mapping[str, Facts], now: datetime
) -> list[str]:
    """The sessions that may go, the oldest first; `tasks` are the tasks that stay.

    A session that was forked stays as long as its fork, and is deleted after it.

    >>> from datetime import UTC
    >>> old, new = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
    >>> known = {"s-1": Facts(updated_at=old), "s-2": Facts(updated_at=old)}
    >>> idle(Retention(sessions_after=timedelta(30)), known, {"a": Facts(session="s-2")}, new)
    ['s-1']
    """
    if policy.sessions_after is None:
        return []
    needed = sessions_needed(tasks)
    stay = [
        id
        for id, facts in sessions.items()
        if id in needed or now - facts.updated_at <= policy.sessions_after
    ]
    left = sessions.keys() - set(with_originals(stay, sessions))
    found = sorted(left, key=lambda id: (sessions[id].updated_at, id))
    forks: dict[str, list[str]] = {id: [] for id in found}
    for id in found:
        forks.get(sessions[id].origin, []).append(id)
    return needed_first(found, forks)


def _is_about(policy: Retention, facts: Mapping[str, Facts], family: TaskFamily) -> bool:
    if any(facts[id].status not in FINISHED for id in family.ids):
        return False
    head = facts[family.head]
    return head.status in policy.statuses and (not policy.types or head.task in policy.types)


def _at(facts: Mapping[str, Facts], family: TaskFamily) -> datetime:
    return max(facts[id].updated_at for id in family.ids)


def _span(span: timedelta) -> str:
    return f"{span.days} days" if span.days >= 2 and not span.seconds else str(span)


def why_it_stays(state: State) -> str:
    """The reason to keep a task, whatever the policy says; '' if there is none."""
    if state.status not in FINISHED:
        return f"it is {state.status}"
    undos = [call for call in state.calls.values() if scope_of(call.path) == UNDO]
    if state.ending or any(call.status != "completed" for call in undos):
        return "something that it did is still to be undone"
    return ""
