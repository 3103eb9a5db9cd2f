"""Sessions and memories in a copy: they go along with tasks, and nobody drives them.

So there is no pause. A log is held in the source while it is brought, by who else would add to it
for a moment. If the target has a part of it, that goes on; if the target has more, it is left; if
both went on, it is a `Conflict`, and nothing was changed. A session that can't be brought keeps its
tasks from being copied, because what they said and saw is in there.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from holdfast.core.kinds import SESSION, id_of, kind_of
from holdfast.core.state import State
from holdfast.errors import BadInput, TaskBusy, TaskNotFound
from holdfast.log.folding import facts_in, lines_of, read_folded, status_in
from holdfast.log.reading import lineage, must_have_its_past
from holdfast.stores.port import Store
from holdfast.upkeep.copied import CopiedLog, What
from holdfast.upkeep.families import Told, sessions_needed, told_by
from holdfast.upkeep.transfer import Brought, Keeping, Source, Transfer, compared

Say = Callable[[What, str, int], None]


class Along:
    """What goes along from one store to another."""

    def __init__(
        self,
        source: Store,
        target: Store,
        transfer: Transfer,
        keeping: Keeping,
        owner: str,
        say: Say,
    ) -> None:
        self._source = source
        self._target = target
        self._transfer = transfer
        self._keeping = keeping
        self._owner = owner
        self._say = say
        self._brought: dict[str, Brought] = {}
        self._compared: dict[str, tuple[bytes, bytes]] = {}
        self.logs: dict[str, CopiedLog] = {}
        """What was brought, or would be, by stream."""

    def sessions_of(self, *states: State) -> list[str]:
        """The streams of the sessions that tasks talk in, as far as they are there; those whose
        past they share come first."""
        ids = {id for state in states for id in (state.session, state.id) if id}
        streams = [lineage(self._source, SESSION.stream(id)) for id in sorted(ids)]
        found = dict.fromkeys(stream for line in streams for stream in line)
        return [stream for stream in found if self._head(self._source, stream)]

    def check(self, stream: str) -> None:
        """Raise what would keep a log from being brought now."""
        heads = self._head(self._source, stream), self._head(self._target, stream)
        if self._compared.get(stream) != heads:  # a session may have a thousand tasks
            must_have_its_past(self._source, stream)
            compared(self._source, self._target, stream)
            self._compared[stream] = heads

    def plan(self, stream: str) -> None:
        """What bringing it would come to now."""
        self.logs[stream] = planned(self._source, self._target, stream)

    def bring(self, stream: str) -> None:
        """Bring a log, with what was added to it since it was last brought."""
        before = self._brought.get(stream)
        if before is not None and self._head(self._source, stream) == before.head:
            return
        must_have_its_past(self._source, stream)
        lease = self._keeping.take_in_turn(self._source, stream, self._owner)
        try:
            self._must_be_two_stores(stream)
            brought = self._brought[stream] = self._transfer.bring(stream)
        finally:
            self._keeping.release(lease)
        log = arrived(self._target, stream, brought)
        if before is not None:  # how it was when this copy began
            log = replace(log, how=self.logs[stream].how)
        self.logs[stream] = log
        self._say("copied", kind_of(stream).shown(log.id), brought.events)

    def delete_spare(self) -> list[tuple[str, Exception]]:
        """Remove from the source what is in the target, and no task there needs any more.

        Returns what could not be deleted, and why.
        """
        told, sessions = told_by(self._source), told_by(self._source, SESSION)
        failed: list[tuple[str, Exception]] = []
        for stream in reversed(self._brought):  # forks before those whose past they share
            is_session = kind_of(stream) is SESSION
            if is_session and _is_needed(id_of(stream), told, sessions):
                continue
            try:
                self._delete(stream)
                sessions.facts.pop(id_of(stream), None)
            except (TaskBusy, TaskNotFound, BadInput) as error:
                failed.append((stream, error))
        return failed

    def _delete(self, stream: str) -> None:
        brought = self._brought[stream]
        lease = self._keeping.take_in_turn(self._source, stream, self._owner)
        try:
            self._must_be_two_stores(stream)
            if self._head(self._source, stream) != brought.head:
                raise TaskBusy(f"{stream} has gone on since: copy it again")
            if next(self._target.read(stream, brought.events - 1), b"") != brought.head:
                raise TaskNotFound(f"{stream} is not in {self._target.url} any more")
            self._source.delete(lease)
        finally:
            self._keeping.release(lease)
        self._say("deleted", kind_of(stream).shown(id_of(stream)), brought.events)

    def _must_be_two_stores(self, stream: str) -> None:
        must_be_two(self._source, self._target, stream, self._owner)

    def _head(self, store: Store, stream: str) -> bytes:
        return next(iter(store.tail(stream)), b"")


def _is_needed(id: str, tasks: Told, sessions: Told) -> bool:
    """Whether a task of a session is left, or another one that shares its past."""
    if tasks.unreadable or sessions.unreadable or id in sessions_needed(tasks.facts):
        return True
    return any(facts.origin == id for facts in sessions.facts.values())


def must_be_two(source: Store, target: Store, stream: str, owner: str) -> None:
    """For two names of one store: there, who holds a log here holds it too."""
    if target.holder(stream) == owner:
        raise BadInput(f"{source.url} and {target.url} are one and the same store")


def planned(source: Source, target: Store, stream: str) -> CopiedLog:
    """What bringing a session or a memory would come to now."""
    how = compared(source, target, stream)
    state = read_folded(source, stream)
    size = sum(len(line) + 1 for line in source.read(stream))
    return CopiedLog(id_of(stream), how, status_in(state), lines_of(state), size, 0)


def arrived(target: Store, stream: str, brought: Brought) -> CopiedLog:
    """What came of bringing one; its facts are known in the target from here on."""
    state = read_folded(target, stream)
    target.remember(stream, facts_in(state), lines_of(state))
    return CopiedLog(
        id_of(stream), brought.how, status_in(state), brought.events, brought.size_bytes,
        brought.blobs,
    )  # fmt: skip
