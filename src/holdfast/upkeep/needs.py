"""Which sessions tasks and other sessions can't do without, and what comes before what needs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.store import Facts


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
