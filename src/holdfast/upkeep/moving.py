"""`Holdfast.copy_to`: from one store to another."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.engines.holding import Holding
from holdfast.errors import BadInput, TaskNotFound
from holdfast.kinds import MEMORY, SESSION, Kind, kind_of
from holdfast.reading import stream_of
from holdfast.store import Store
from holdfast.stores import open_store
from holdfast.stores.memory import MemoryStore
from holdfast.upkeep.choosing import Wanted, choose, others_meant
from holdfast.upkeep.copied import Copied, CopiedLog, Tell
from holdfast.upkeep.copying import Copying, place_of
from holdfast.upkeep.families import Told, told_by
from holdfast.values import MAX_VALUE_BYTES


def copy_tasks(
    source: Holding,
    url: str | os.PathLike[str] | Store,
    wanted: Wanted,
    *,
    move: bool,
    paused: bool,
    dry_run: bool,
    tell: Tell,
    secure: Callable[[Store], Store],
) -> Copied:
    """Copy tasks to another store: see `Holdfast.copy_to`. `secure` is for one that is opened."""
    if move and paused:
        raise BadInput("a task that is moved does not arrive paused: leave out one of the two")
    named = isinstance(url, str | os.PathLike)
    target: Store = url  # type: ignore[assignment]
    if named:
        must_last(url)  # type: ignore[arg-type]
        target = secure(stand_in(url) if dry_run else open_store(url))  # type: ignore[arg-type]
    holding = Holding(target, source.owner, source.lease_s, source.clock, MAX_VALUE_BYTES)
    try:
        _must_be_another(source.store, holding.store)
        told = told_by(source.store)
        _must_not_be_gone(wanted, told, source.store, holding.store)
        chosen, along = choose(told, wanted, source.store.url)
        meant = {id: told.facts[id] for family in chosen for id in family.ids}
        others = others_meant(source.store, wanted, meant)
        copying = Copying(source, holding, chosen, others, move=move, paused=paused, tell=tell)
        if wanted.is_by_name:
            copying.check()  # nothing is done if not everything can be
        tasks, refused = copying.plan() if dry_run else copying.run()
        return Copied(
            source=source.store.url,
            target=holding.store.url,
            moved=move,
            dry_run=dry_run,
            tasks=tuple(tasks),
            refused=tuple(refused + ([] if wanted.is_by_name else told.refused())),
            along=along,
            sessions=of_kind(SESSION, copying.others),
            memories=of_kind(MEMORY, copying.others),
        )
    finally:
        holding.close()
        if named:
            holding.store.close()


def must_last(url: str | os.PathLike[str]) -> None:
    """Refuse to copy to what ends with the copy."""
    if os.fspath(url) == "memory://":
        raise BadInput(
            "memory:// is a new store in this process, and would be gone with all that is copied "
            "to it: name a store that lasts (in Python, an open Holdfast('memory://') will do)"
        )


def stand_in(url: str | os.PathLike[str]) -> Store:
    """A store, opened; one that is not there is not made: an empty one stands in for it."""
    text = os.fspath(url)
    scheme, found, rest = text.partition("://")
    place = rest.removeprefix("/") if scheme == "sqlite" else rest if found else text
    if (scheme in ("sqlite", "file") or not found) and not Path(place).exists():
        empty = MemoryStore()
        empty.url = text
        return empty
    return open_store(url)


def of_kind(kind: Kind, logs: Mapping[str, CopiedLog]) -> tuple[CopiedLog, ...]:
    """What was copied of a kind."""
    return tuple(log for stream, log in sorted(logs.items()) if kind_of(stream) is kind)


def _must_not_be_gone(wanted: Wanted, told: Told, source: Store, target: Store) -> None:
    """For who makes a move again that was done."""
    for id in wanted.ids:
        known = id in told.facts or id in told.unreadable
        if not known and next(target.read(stream_of(id)), None) is not None:
            raise TaskNotFound(f"task {id!r} is in {target.url}, and in {source.url} no more")


def _must_be_another(source: Store, target: Store) -> None:
    """One store under two names is found later too, before anything is deleted."""
    ours, theirs = place_of(source), place_of(target)
    if source is target or (ours == theirs and ours != "memory://"):
        raise BadInput(f"{target.url} is where the tasks are: name another store to copy them to")
