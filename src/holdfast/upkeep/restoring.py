"""`Holdfast.restore_from`: logs from an archive into a store."""

from __future__ import annotations

from msgspec import Struct

from holdfast.engines.holding import Holding
from holdfast.errors import BadInput, HoldfastError
from holdfast.facts import facts_of
from holdfast.folding import Folded, facts_in, lines_of, read_folded
from holdfast.kinds import MEMORY, SESSION, TASK, Kind, id_of, kind_of
from holdfast.reading import read_state
from holdfast.state import FINISHED, State
from holdfast.store import Store
from holdfast.upkeep.along import arrived, planned
from holdfast.upkeep.choosing import Wanted, choose, sessions_meant
from holdfast.upkeep.copied import (
    Copied,
    CopiedLog,
    CopiedTask,
    Progress,
    Refused,
    Tell,
    why_refused,
)
from holdfast.upkeep.copying import REFUSALS
from holdfast.upkeep.families import Told
from holdfast.upkeep.keeping import Keeping
from holdfast.upkeep.moving import of_kind
from holdfast.upkeep.transfer import Source, Transfer, compared
from holdfast.words import checked_id


def restore_tasks(
    source: Source, target: Holding, wanted: Wanted, *, dry_run: bool, tell: Tell
) -> Copied:
    """Bring tasks from an archive, or anything else that only reads, into a store.

    What is unfinished arrives paused: the original may have gone on after the archive was made,
    and what it did since is not in there. Sessions come first: a task does not come without its
    own.
    """
    inside = {kind: _inside(source, kind) for kind in (TASK, SESSION, MEMORY)}
    told = inside[TASK].told
    chosen, along = choose(told, wanted, source.url)
    ids = [id for family in chosen for id in family.ids]
    sessions = sessions_meant(
        wanted, {id: told.facts[id] for id in ids}, inside[SESSION].told.facts
    )
    memories = sorted(inside[MEMORY].states) if wanted.is_everything else []
    streams = [*map(SESSION.stream, sessions), *map(MEMORY.stream, memories)]
    streams += map(TASK.stream, ids)
    refused: list[Refused] = []
    if not wanted.is_by_name:
        refused = [why for kind, each in inside.items() for why in each.told.refused(kind)]
    with Keeping(target.lease_s) as keeping:
        restoring = _Restoring(source, target, keeping, len(streams), dry_run, tell)
        for stream in streams:
            try:
                restoring.bring(stream, inside[kind_of(stream)].states[id_of(stream)])
            except REFUSALS as error:
                if wanted.is_by_name:
                    raise
                refused.append(why_refused(stream, error))
                restoring.refused[stream] = error
    return Copied(
        source=source.url,
        target=target.store.url,
        dry_run=dry_run,
        tasks=tuple(restoring.tasks),
        refused=tuple(refused),
        along=along,
        sessions=of_kind(SESSION, restoring.others),
        memories=of_kind(MEMORY, restoring.others),
    )


class _Inside(Struct):
    """What a source holds of one kind."""

    told: Told
    states: dict[str, Folded]


def _inside(source: Source, kind: Kind) -> _Inside:
    found = _Inside(Told(), {})
    for stream in source.streams(kind.prefix):
        id = id_of(stream)
        try:
            found.states[checked_id(id)] = read_folded(source, stream)
            found.told.facts[id] = facts_in(found.states[id])
        except REFUSALS as error:
            found.told.unreadable[id] = error
    return found


class _Restoring:
    def __init__(
        self,
        source: Source,
        target: Holding,
        keeping: Keeping,
        total: int,
        dry_run: bool,
        tell: Tell,
    ) -> None:
        self._source = source
        self._target = target.store
        self._dry_run = dry_run
        self._tell = tell
        self._done, self._total = 0, total
        self._transfer = Transfer(
            source, target.store, target.owner, keeping, target.clock, self._written
        )
        self.tasks: list[CopiedTask] = []
        self.others: dict[str, CopiedLog] = {}
        self.refused: dict[str, HoldfastError] = {}

    def _written(self, id: str, events: int) -> None:
        self._tell(Progress("copying", id, self._done, self._total, events))

    def bring(self, stream: str, state: Folded) -> None:
        """Bring one log, or say what that would come to."""
        try:
            if isinstance(state, State):
                self.tasks.append(self._task(stream, state))
            else:
                self.others[stream] = self._other(stream)
        finally:
            self._done += 1
            shown = kind_of(stream).shown(id_of(stream))
            self._tell(Progress("copied", shown, self._done, self._total, state.seq))

    def _other(self, stream: str) -> CopiedLog:
        if self._dry_run:
            return planned(self._source, self._target, stream)
        return arrived(self._target, stream, self._transfer.bring(stream))

    def _task(self, stream: str, state: State) -> CopiedTask:
        for session in (state.session, state.id):
            if (error := self.refused.get(SESSION.stream(session))) is not None:
                raise BadInput(f"task {state.id!r} is not brought without its session: {error}")
        if self._dry_run:
            return _planned(self._source, self._target, state)
        return self._restored(stream, state)

    def _restored(self, stream: str, state: State) -> CopiedTask:
        source, target, transfer = self._source, self._target, self._transfer
        if state.status not in FINISHED and (state.cancelling or state.ending):
            raise BadInput(f"task {state.id!r} was being ended, and can't be paused as it arrives")
        is_open = state.status not in (*FINISHED, "paused")
        brought = transfer.bring(stream, arrives_paused=is_open)
        there = read_state(target, stream)
        target.remember(stream, facts_of(there), lines_of(there))
        if there.status not in FINISHED:
            for post in source.inbox([stream]):
                transfer.carry(post.data)
                target.post(stream, post.name, post.data)
        return CopiedTask(
            state.id, brought.how, there.status, brought.events, brought.size_bytes, brought.blobs
        )


def _planned(source: Source, target: Store, state: State) -> CopiedTask:
    stream = TASK.stream(state.id)
    how = compared(source, target, stream)
    size = sum(len(line) + 1 for line in source.read(stream))
    return CopiedTask(state.id, how, state.status, lines_of(state), size, 0)
