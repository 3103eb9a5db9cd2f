"""Which tasks belong together, and so are copied, moved, archived and deleted together.

A task can't do without the logs of some others: a parent asks how its children ended, and a child
tells its parent; a fork has its past in the log of the task it was made of. What a task needs is
said in one place, `pasts_needed`; a family is whatever hangs together by it. Its sessions go along
with it: what its model calls saw is in their logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from holdfast.core.kinds import TASK, Kind, id_of
from holdfast.errors import HoldfastError, StoreError
from holdfast.log.folding import facts_in, lines_of, read_folded
from holdfast.stores.port import Facts, Store
from holdfast.upkeep.copied import Refused, why_refused

# Which sessions tasks and other sessions can't do without, and what comes before what needs it.


def sessions_needed(tasks: Mapping[str, Facts]) -> frozenset[str]:
    """The ids of the sessions that tasks may have talked in: that of each, and one that has the
    id of the task.

    >>> sorted(sessions_needed({"trip-1": Facts(session="s-1"), "trip-2": Facts()}))
    ['s-1', 'trip-1', 'trip-2']
    """
    return frozenset({*tasks, *(facts.session for facts in tasks.values())} - {""})


def with_originals(ids: Iterable[str], sessions: Mapping[str, Facts]) -> list[str]:
    """Sessions with those whose past they share; these come first.

    >>> with_originals(["b"], {"b": Facts(origin="z"), "z": Facts(), "c": Facts()})
    ['z', 'b']
    """
    found = [id for id in dict.fromkeys(ids) if id in sessions]
    for id in found:  # which grows while it is walked
        origin = sessions[id].origin
        if origin in sessions and origin not in found:
            found.append(origin)
    return needed_first(found, {id: [sessions[id].origin] for id in found})


def needed_first(ids: Iterable[str], needed: Mapping[str, Iterable[str]]) -> list[str]:
    """Ids in their order, but each behind those that it needs, as far as they are among them.

    >>> needed_first(["a", "b", "c"], {"a": ["c"], "b": [], "c": []})
    ['c', 'a', 'b']
    """
    wanted = dict.fromkeys(ids)
    placed: dict[str, None] = {}
    waiting = list(reversed(wanted))
    opened: set[str] = set()
    while waiting:
        id = waiting[-1]
        first = [] if id in opened else [each for each in needed[id] if each in wanted]
        opened.add(id)
        if missing := [each for each in first if each not in placed and each not in opened]:
            waiting += reversed(missing)
            continue
        placed.setdefault(waiting.pop())
    return list(placed)


def pasts_needed(facts: Facts) -> frozenset[str]:
    """The ids of the tasks whose logs a task can't do without, besides its own.

    >>> sorted(pasts_needed(Facts(parent="report-1", origin="page-2")))
    ['page-2', 'report-1']
    """
    return frozenset({facts.parent, facts.origin} - {""})


class TaskFamily(Struct, frozen=True):
    """Tasks that belong together: those that need no other first, then those that need them."""

    ids: tuple[str, ...]

    @property
    def head(self) -> str:
        """The task that the others are there for."""
        return self.ids[0]


class Told(Struct):
    """What a store tells of its logs: the facts of each by id, and why others can't be read."""

    facts: dict[str, Facts] = {}
    unreadable: dict[str, HoldfastError] = {}

    def refused(self, kind: Kind = TASK) -> list[Refused]:
        """Those that are not copied because they can't be read."""
        return [why_refused(kind.stream(id), why) for id, why in self.unreadable.items()]


def told_by(store: Store, kind: Kind = TASK) -> Told:
    """The facts of all logs of a kind; they are read only where the store does not know them."""
    told = Told()
    for stream, facts in store.facts(kind.prefix):
        id = id_of(stream)
        try:
            if facts is None:
                state = read_folded(store, stream)
                if state.seq == 0:  # taken hold of, and never written
                    continue
                facts = facts_in(state)
                store.remember(stream, facts, lines_of(state))
            told.facts[id] = facts
        except StoreError as error:
            told.unreadable[id] = error
    return told


def families(facts: Mapping[str, Facts]) -> list[TaskFamily]:
    """Tasks by family, the oldest family first.

    >>> facts = {"a.1": Facts(parent="a"), "b": Facts(parent="gone"), "a": Facts()}
    >>> [family.ids for family in families(facts)]
    [('a', 'a.1'), ('b',)]
    """
    needed = {id: sorted(pasts_needed(facts[id]) & facts.keys()) for id in facts}
    needing: dict[str, list[str]] = {}
    for id, pasts in needed.items():
        for past in pasts:
            needing.setdefault(past, []).append(id)
    found: list[TaskFamily] = []
    seen: set[str] = set()
    # Those that need nobody come first, so a walk that starts from one meets heads first.
    for id in sorted(facts, key=lambda id: (bool(needed[id]), facts[id].created_at, id)):
        if id not in seen:
            found.append(TaskFamily(_together(id, needed, needing, seen)))
    return found


def _together(
    first: str, needed: Mapping[str, list[str]], needing: Mapping[str, list[str]], seen: set[str]
) -> tuple[str, ...]:
    """Everything that hangs together with a task."""
    ids, seen_here = [first], {first}
    for id in ids:  # which grows while it is walked
        for other in (*needed[id], *sorted(needing.get(id, ()))):
            if other not in seen_here:
                seen_here.add(other)
                ids.append(other)
    seen |= seen_here
    return tuple(needed_first(ids, needed))
