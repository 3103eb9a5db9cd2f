"""Which tasks are meant, by id or by what they are, and which go along with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from msgspec import Struct

from holdfast.errors import BadInput, TaskNotFound
from holdfast.state import Status
from holdfast.store import Facts
from holdfast.upkeep.families import Family, Told, families
from holdfast.words import checked_id


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


def choose(told: Told, wanted: Wanted, url: str) -> tuple[list[Family], tuple[str, ...]]:
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


def _matches(facts: Facts, wanted: Wanted) -> bool:
    given = (wanted.status, wanted.type, wanted.user, wanted.session)
    found = (facts.status, facts.task, facts.user, facts.session)
    same = all(want in (None, have) for want, have in zip(given, found, strict=True))
    return same and (wanted.labels or {}).items() <= facts.labels.items()
