"""`Holdfast.copy_to` and `restore_from`: from one store to another, and from an archive."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from holdfast.engines.holding import Holding
from holdfast.errors import BadInput, TaskNotFound
from holdfast.facts import facts_of
from holdfast.reading import read_state, stream_of
from holdfast.state import FINISHED, State
from holdfast.store import Store
from holdfast.stores import open_store
from holdfast.stores.memory import MemoryStore
from holdfast.upkeep.choosing import Wanted, choose
from holdfast.upkeep.copied import Copied, CopiedTask, Progress, Refused, Tell
from holdfast.upkeep.copying import REFUSALS, Copying, place_of
from holdfast.upkeep.families import Told, told_by
from holdfast.upkeep.keeping import Keeping
from holdfast.upkeep.transfer import Source, Transfer, compared
from holdfast.values import MAX_VALUE_BYTES
from holdfast.words import checked_id


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
        copying = Copying(source, holding, chosen, move=move, paused=paused, tell=tell)
        if wanted.is_by_name:
            copying.check()  # nothing is done if not everything can be
        tasks, refused = copying.plan() if dry_run else copying.run()
        return Copied(
            source=source.store.url,
            target=holding.store.url,
            moved=move,
            dry_run=dry_run,
            tasks=tuple(tasks),
            refused=tuple(refused + ([] if wanted.is_by_name else _unreadable(told))),
            along=along,
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


def _unreadable(told: Told) -> list[Refused]:
    return [Refused(id, str(why), type(why).__name__) for id, why in told.unreadable.items()]


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


def restore_tasks(
    source: Source, target: Holding, wanted: Wanted, *, dry_run: bool, tell: Tell
) -> Copied:
    """Bring tasks from an archive, or anything else that only reads, into a store.

    What is unfinished arrives paused: the original may have gone on after the archive was made,
    and what it did since is not in there.
    """
    told, states = _told_by(source)
    chosen, along = choose(told, wanted, source.url)
    ids = [id for family in chosen for id in family.ids]
    tasks: list[CopiedTask] = []
    refused: list[Refused] = [] if wanted.is_by_name else _unreadable(told)
    with Keeping(target.lease_s) as keeping:
        done = 0

        def written(id: str, events: int) -> None:
            tell(Progress("copying", id, done, len(ids), events))

        transfer = Transfer(source, target.store, target.owner, keeping, target.clock, written)
        for id in ids:
            try:
                if dry_run:
                    tasks.append(_planned(source, target.store, states[id]))
                else:
                    tasks.append(_restored(source, target.store, transfer, states[id]))
            except REFUSALS as error:
                if wanted.is_by_name:
                    raise
                refused.append(Refused(id, str(error), type(error).__name__))
            done += 1
            tell(Progress("copied", id, done, len(ids), states[id].seq))
    return Copied(
        source=source.url,
        target=target.store.url,
        dry_run=dry_run,
        tasks=tuple(tasks),
        refused=tuple(refused),
        along=along,
    )


def _told_by(source: Source) -> tuple[Told, dict[str, State]]:
    told, states = Told(), {}
    for stream in source.streams("tasks/"):
        id = stream.removeprefix("tasks/")
        try:
            states[checked_id(id)] = read_state(source, stream)
            told.facts[id] = facts_of(states[id])
        except REFUSALS as error:
            told.unreadable[id] = error
    return told, states


def _planned(source: Source, target: Store, state: State) -> CopiedTask:
    stream = stream_of(state.id)
    how = compared(source, target, stream)
    size = sum(len(line) + 1 for line in source.read(stream))
    return CopiedTask(state.id, how, state.status, state.seq, size, 0)


def _restored(source: Source, target: Store, transfer: Transfer, state: State) -> CopiedTask:
    stream = stream_of(state.id)
    if state.status not in FINISHED and (state.cancelling or state.ending):
        raise BadInput(f"task {state.id!r} was being ended, and can't be paused as it arrives")
    is_open = state.status not in (*FINISHED, "paused")
    brought = transfer.bring(state.id, arrives_paused=state if is_open else None)
    there = read_state(target, stream)
    target.remember(stream, facts_of(there), there.seq)
    if there.status not in FINISHED:
        for post in source.inbox([stream]):
            transfer.carry(post.data)
            target.post(stream, post.name, post.data)
    return CopiedTask(
        state.id, brought.how, there.status, brought.events, brought.size_bytes, brought.blobs
    )
