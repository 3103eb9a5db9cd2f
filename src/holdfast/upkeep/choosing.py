"""Which tasks are meant, by id or by what they are, and which go along with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import get_args

from msgspec import Struct

from holdfast.core.kinds import MEMORY, SESSION
from holdfast.core.state import Status
from holdfast.core.words import checked_id
from holdfast.errors import BadInput, TaskNotFound
from holdfast.stores.port import Facts, Store
from holdfast.upkeep.families import (
    TaskFamily,
    Told,
    families,
    sessions_needed,
    told_by,
    with_originals,
)


class Wanted(Struct, frozen=True):
    """What was asked for: everything, unless something is said."""

    ids: tuple[str, ...] = ()
    status: str | None = None
    type: str | None = None
    user: str | None = None
    session: str | None = None
    labels: dict[str, str] | None = None

    @property
    def is_by_name(self) -> bool:
        """Whether tasks were named, so that none of them may be left out in silence."""
        return bool(self.ids)

    @property
    def is_everything(self) -> bool:
        """Whether nothing was said."""
        return self == Wanted()


def wanted(ids: str | Iterable[str] | None, **filters: object) -> Wanted:
    """What was asked for, checked."""
    named = (ids,) if isinstance(ids, str) else tuple(ids or ())
    given = {name: value for name, value in filters.items() if value is not None}
    if ids is not None and not named:
        raise BadInput("no task was named: leave the ids out to mean all of them")
    if named and given:
        raise BadInput(f"give ids or {', '.join(given)}, not both")
    status = given.get("status")
    if status is not None and status not in get_args(Status):
        raise BadInput(f"status={status!r:.60} is none of {', '.join(get_args(Status))}")
    return Wanted(tuple(map(checked_id, dict.fromkeys(named))), **given)  # type: ignore[arg-type]


def choose(told: Told, wanted: Wanted, url: str) -> tuple[list[TaskFamily], tuple[str, ...]]:
    """The families that are meant, and the tasks in them that were not asked for.

    A family is meant if any of it was named, or if its head is what was asked for.
    """
    for id in wanted.ids:
        if id in told.unreadable:
            raise told.unreadable[id]
        if id not in told.facts:
            raise TaskNotFound(f"no task {id!r} in {url}")
    named = set(wanted.ids)
    chosen = [
        family
        for family in families(told.facts)
        if (named & set(family.ids) if named else _matches(told.facts[family.head], wanted))
    ]
    along = [id for family in chosen for id in family.ids if named and id not in named]
    return chosen, tuple(along)


def others_meant(store: Store, wanted: Wanted, tasks: Mapping[str, Facts]) -> list[str]:
    """The streams of the sessions and memories that go along with these tasks."""
    told = told_by(store, SESSION)
    ids = sessions_meant(wanted, tasks, told.facts)
    needed = sessions_needed(tasks)
    unread = [id for id in told.unreadable if id in needed or not wanted.is_by_name]
    memories = sorted(store.streams(MEMORY.prefix)) if wanted.is_everything else []
    return [*map(SESSION.stream, (*ids, *unread)), *memories]


def sessions_meant(
    wanted: Wanted, tasks: Mapping[str, Facts], sessions: Mapping[str, Facts]
) -> list[str]:
    """The sessions of tasks that are meant, and those that are meant themselves: a status or a
    type is one of tasks, but users and labels have both. With a fork comes its original, first.

    >>> sessions = {"s-1": Facts(user="ada"), "s-2": Facts(user="bob")}
    >>> sessions_meant(Wanted(user="bob"), {"trip-1": Facts(session="s-1")}, sessions)
    ['s-1', 's-2']
    """
    needed = sessions_needed(tasks)
    of_tasks_only = wanted.ids or wanted.status is not None or wanted.type is not None
    meant = [
        id
        for id, facts in sorted(sessions.items())
        if id in needed or (not of_tasks_only and _matches(facts, wanted))
    ]
    return with_originals(meant, sessions)


def _matches(facts: Facts, wanted: Wanted) -> bool:
    given = (wanted.status, wanted.type, wanted.user, wanted.session)
    found = (facts.status, facts.task, facts.user, facts.session)
    same = all(want in (None, have) for want, have in zip(given, found, strict=True))
    return same and (wanted.labels or {}).items() <= facts.labels.items()
