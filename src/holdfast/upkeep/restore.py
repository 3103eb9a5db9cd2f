"""`Holdfast.restore_from`: logs from an archive into a store."""

from __future__ import annotations

from msgspec import Struct

from holdfast.core.facts import facts_of
from holdfast.core.kinds import MEMORY, SESSION, TASK, Kind, id_of, kind_of
from holdfast.core.state import FINISHED, HALTED, State
from holdfast.core.words import checked_id
from holdfast.engines.holder import Holding
from holdfast.errors import BadInput, HoldfastError
from holdfast.log.states import Folded, facts_in, lines_of, load, load_any
from holdfast.log.store_calls import post_to
from holdfast.stores.port import Facts, Store
from holdfast.upkeep.archive import Archive
from holdfast.upkeep.copies import REFUSALS, of_kind
from holdfast.upkeep.families import (
    Copied,
    CopiedLog,
    CopiedTask,
    CopyProgress,
    Refused,
    Tell,
    Told,
    Wanted,
    choose,
    sessions_meant,
    why_refused,
)
from holdfast.upkeep.transfer import Keeping, Transfer, arrived, compared, planned


def restore_tasks(
    source: Archive, target: Holding, wanted: Wanted, *, dry_run: bool, tell: Tell
) -> Copied:
    """Bring tasks from an archive, or anything else that only reads, into a store.

    Unfinished tasks arrive paused: the original may have gone on after the archive was made, and
    the archive lacks what it did since. Sessions come first: no task comes without its own.
    """
    inside = {kind: _inside(source, kind) for kind in (TASK, SESSION, MEMORY)}
    told = inside[TASK].told
    chosen, along = choose(told, wanted, source.url)
    ids = [id for family in chosen for id in family.ids]
    sessions = sessions_meant(
        wanted, {id: told.facts[id] for id in ids}, inside[SESSION].told.facts
    )
    memories = sorted(inside[MEMORY].logs) if wanted.is_everything else []
    streams = [*map(SESSION.stream, sessions), *map(MEMORY.stream, memories)]
    streams += map(TASK.stream, ids)
    refused: list[Refused] = []
    if not wanted.is_by_name:
        refused = [why for kind, each in inside.items() for why in each.told.refused(kind)]
    with Keeping(target.lease_s) as keeping:
        restoring = _Restoring(source, target, keeping, len(streams), dry_run, tell)
        for stream in streams:
            try:
                restoring.bring(stream, inside[kind_of(stream)].logs[id_of(stream)])
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


class _Log(Struct, frozen=True):
    """The facts that are needed before a log is brought. It has no state: the states of all logs
    together may exceed the memory."""

    id: str
    facts: Facts
    seq: int
    lines: int
    is_ending: bool


class _Inside(Struct):
    """The logs of one kind in a source."""

    told: Told
    logs: dict[str, _Log]


def _inside(source: Archive, kind: Kind) -> _Inside:
    found = _Inside(Told(), {})
    for stream in source.streams(kind.prefix):
        id = id_of(stream)
        try:
            found.logs[checked_id(id)] = log = _log_of(load_any(source, stream), id)
            found.told.facts[id] = log.facts
        except REFUSALS as error:
            found.told.unreadable[id] = error
    return found


def _log_of(state: Folded, id: str) -> _Log:
    is_ending = isinstance(state, State) and bool(state.cancelling or state.ending)
    return _Log(id, facts_in(state), state.seq, lines_of(state), is_ending)


class _Restoring:
    def __init__(
        self,
        source: Archive,
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
        self._tell(CopyProgress("copying", id, self._done, self._total, events))

    def bring(self, stream: str, log: _Log) -> None:
        """Bring one log, or report what that would do."""
        try:
            if kind_of(stream) is TASK:
                self.tasks.append(self._task(stream, log))
            else:
                self.others[stream] = self._other(stream)
        finally:
            self._done += 1
            shown = kind_of(stream).shown(id_of(stream))
            self._tell(CopyProgress("copied", shown, self._done, self._total, log.seq))

    def _other(self, stream: str) -> CopiedLog:
        if self._dry_run:
            return planned(self._source, self._target, stream)
        return arrived(self._target, stream, self._transfer.bring(stream))

    def _task(self, stream: str, log: _Log) -> CopiedTask:
        for session in (log.facts.session, log.id):
            if (error := self.refused.get(SESSION.stream(session))) is not None:
                raise BadInput(f"task {log.id!r} is not brought without its session: {error}")
        if self._dry_run:
            return _planned(self._source, self._target, log)
        return self._restored(stream, log)

    def _restored(self, stream: str, log: _Log) -> CopiedTask:
        source, target, transfer = self._source, self._target, self._transfer
        status = log.facts.status
        if status not in FINISHED and log.is_ending:
            raise BadInput(f"task {log.id!r} was being ended, and can't be paused as it arrives")
        is_open = status not in (*FINISHED, *HALTED)
        brought = transfer.bring(stream, arrives_paused=is_open)
        there = load(target, id_of(stream), missing_ok=True)
        target.remember(stream, facts_of(there), lines_of(there))
        if there.status not in FINISHED:
            for post in source.inbox([stream]):
                transfer.carry(post.data)
                post_to(target, stream, post.name, post.data)
        return CopiedTask(
            log.id, brought.how, there.status, brought.events, brought.size_bytes, brought.blobs
        )


def _planned(source: Archive, target: Store, log: _Log) -> CopiedTask:
    stream = TASK.stream(log.id)
    how = compared(source, target, stream)
    size = sum(len(line) + 1 for line in source.read(stream))
    return CopiedTask(log.id, how, log.facts.status, log.lines, size, 0)
