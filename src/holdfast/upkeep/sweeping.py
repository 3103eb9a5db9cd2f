"""`Holdfast.gc`: deletes what a policy says, and what nobody needs.

Only one clean-up at a time works on a store, under a lease of its own. It decides from what the
store tells, looks at each log before it believes that, archives, and then deletes family by family
under their leases, if nothing has happened to them since. Blobs come last (see `census`).
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path

from msgspec import Struct

from holdfast.core.kinds import KINDS, SESSION, kind_of
from holdfast.core.state import State
from holdfast.engines.holding import Holding
from holdfast.errors import StoreError, TaskBusy
from holdfast.log.reading import fork_of, lineage, read_state, stream_of
from holdfast.stores.listing import forks_of
from holdfast.stores.port import BLOB_AGE_S, Lease, Leftovers, Store
from holdfast.upkeep.archiving import Archived, place_for, write_archive
from holdfast.upkeep.census import Census
from holdfast.upkeep.copied import CopyProgress, Tell
from holdfast.upkeep.families import Told, families, pasts_needed, told_by
from holdfast.upkeep.idle import Idle, SessionToDelete
from holdfast.upkeep.retention import Candidate, Retention, candidates, why_it_stays
from holdfast.upkeep.swept import Kept, Swept, SweptTask
from holdfast.upkeep.transfer import Keeping

LOCK = "housekeeping/gc"
_DRAFTS_STAY = timedelta(days=1)
"""How long what an interrupted copy has written waits for the copy to be made again."""


class FamilyToDelete(Struct):
    """A family that is to be deleted, as its logs say."""

    why: str
    states: list[State]
    heads: dict[str, bytes]


class Sweep:
    """A clean-up of one store."""

    def __init__(self, holding: Holding, policy: Retention, *, dry_run: bool, tell: Tell) -> None:
        self._holding = holding
        self._store: Store = holding.store
        self._policy = policy
        self._dry_run = dry_run
        self._tell = tell
        self._owner = f"{holding.owner} (gc, {os.urandom(4).hex()})"
        self._now = holding.clock()
        # Ages of blobs are known to the minute.
        self._grace_s = policy.grace.total_seconds() + (BLOB_AGE_S if policy.grace else 0.0)
        self._keeping = Keeping(holding.lease_s)
        self._kept: list[Kept] = []
        self._unread: set[str] | None = None

    def run(self, archive: Path | None, version: str, *, compact: bool) -> Swept:
        """Do it, or say what it would come to."""
        place = place_for(archive, self._now) if archive is not None else None
        with self._keeping, ExitStack() as held:
            lock: Lease | None = None
            if not self._dry_run:
                lock = self._keeping.take(self._store, LOCK, self._owner)
                held.callback(self._keeping.release, lock)
                held.callback(self._give_back, lock)
            told = told_by(self._store)
            census = Census(self._store, self._grace_s, self._tell)
            going = self._chosen(told, census)
            idle = Idle(self._store, self._policy, census, self._now)
            leaving = idle.chosen(told, [state.id for each in going for state in each.states])
            archived = self._archived(going, leaving, place, version)
            tasks = self._delete_tasks(going, census)
            if not self._dry_run:
                leaving = idle.delete(leaving, self._keeping, self._owner)
            if lock is not None:
                self._store.renew(lock)  # or another clean-up may be at work by now
            blobs = self._delete_blobs(census)
            return Swept(
                store=self._store.url,
                dry_run=self._dry_run,
                tasks=tuple(tasks),
                kept=(*self._kept, *idle.kept),
                blobs=len(blobs),
                blob_bytes=sum(blobs),
                leftovers=self._delete_leftovers(),
                archive=archived,
                compacted_bytes=self._compacted() if compact and not self._dry_run else 0,
                size_bytes=census.left_bytes,
                unreadable=tuple(
                    Kept(stream, why, kind_of(stream).name)
                    for stream, why in census.unreadable.items()
                ),
                sessions=idle.told(leaving),
            )

    def _give_back(self, lock: Lease) -> None:
        with suppress(StoreError):
            self._store.delete(lock)

    # What goes

    def _chosen(self, told: Told, census: Census) -> list[FamilyToDelete]:
        """The families that go. Those that the policy takes, and that stay, are `kept`."""
        policy = self._policy
        if not policy.deletes_tasks:
            return []
        go, spare = candidates(policy, told.facts, families(told.facts), self._now)
        found = [going for candidate in go if (going := self._looked_at(candidate, told, census))]
        if census.unreadable:  # no blob goes, so it would be of little use that tasks do
            return found
        for candidate in spare:
            # A blob that is too young to go now goes later: no other task need go for it.
            if census.needed_bytes <= (policy.max_bytes or 0):
                break
            if going := self._looked_at(candidate, told, census):
                found.append(going)
        return found

    def _looked_at(self, candidate: Candidate, told: Told, census: Census) -> FamilyToDelete | None:
        """A family whose logs say what was told of it; counted as gone from here on."""
        going = FamilyToDelete(candidate.why, [], {})
        for id in candidate.family.ids:
            try:
                going.heads[id] = next(self._store.tail(stream_of(id)), b"")
                state = read_state(self._store, stream_of(id))
                why = self._why_it_stays(state, told)
            except StoreError as error:
                state, why = State(), str(error)
            if why:
                self._kept.append(Kept(id, why))
                return None
            going.states.append(state)
        for id in candidate.family.ids:
            census.remove(stream_of(id))
        return going

    def _why_it_stays(self, state: State, told: Told) -> str:
        if pasts_needed(told.facts[state.id]) & told.unreadable.keys():
            return "it belongs to a task whose log can't be read"
        if state.id in self._pasts_unread(told):
            return "a fork of it can't be read"
        if self._store.holder(stream_of(state.id)) is not None:
            return "somebody holds it"
        return why_it_stays(state)

    def _pasts_unread(self, told: Told) -> set[str]:
        """The tasks whose past is that of a log which can't be read, and may be mended."""
        if self._unread is None:
            self._unread = set()
            for id in told.unreadable:
                with suppress(StoreError):
                    fork = fork_of(self._store, stream_of(id))
                    self._unread |= {fork.of} if fork is not None else set()
        return self._unread

    def _archived(
        self,
        going: list[FamilyToDelete],
        leaving: list[SessionToDelete],
        place: Path | None,
        version: str,
    ) -> Archived | None:
        """Archive what goes, with the sessions of the tasks, also of those that stay."""
        states = [state for family in going for state in family.states]
        if place is None or not (states or leaving) or self._dry_run:
            return None
        needed = {SESSION.stream(id) for state in states for id in (state.session, state.id)}
        needed |= {each.stream for each in leaving}
        talks = sorted(needed & {*self._store.streams(SESSION.prefix)})
        sessions = dict.fromkeys(each for talk in talks for each in lineage(self._store, talk))
        streams = [*(stream_of(state.id) for state in states), *sessions]
        return write_archive(self._store, streams, place, self._now, version, self._tell)

    # Deleting

    def _delete_tasks(self, going: list[FamilyToDelete], census: Census) -> list[SweptTask]:
        gone: list[SweptTask] = []
        total = sum(len(family.states) for family in going)
        for family in going:
            if not self._dry_run and not self._delete_family(family):
                for state in family.states:
                    census.put_back(stream_of(state.id))
                continue
            for state in family.states:
                size = census.sizes[stream_of(state.id)]
                gone.append(SweptTask(
                    state.id, state.task, state.status, state.updated_at, size, family.why
                ))  # fmt: skip
                self._tell(CopyProgress("deleted", state.id, len(gone), total, state.seq))
        return gone

    def _delete_family(self, family: FamilyToDelete) -> bool:
        with ExitStack() as held:
            leases = []
            for state in family.states:
                try:
                    stream = stream_of(state.id)
                    lease = self._keeping.take(self._store, stream, self._owner)
                    held.callback(self._keeping.release, lease)
                    if next(self._store.tail(stream), b"") != family.heads[state.id]:
                        raise TaskBusy("it has gone on meanwhile")
                    leases.append(lease)
                except StoreError as error:
                    self._kept.append(Kept(state.id, str(error)))
                    return False
            if self._was_forked(family):
                return False
            for lease in reversed(leases):  # its head last, and its head has ended
                self._store.delete(lease)
        return True

    def _was_forked(self, family: FamilyToDelete) -> bool:
        """Whether one of them was forked since it was chosen: a fork has its past there."""
        ids = {state.id for state in family.states}
        for id in ids:
            found = forks_of(self._store, id, len(ids) + 1)
            if forks := [fork for fork in found if fork not in ids]:
                self._kept.append(Kept(id, f"it was forked meanwhile: {forks[0]}"))
                return True
        return False

    def _delete_blobs(self, census: Census) -> list[int]:
        """Delete what nobody names; returns their sizes."""
        return [
            blob.size_bytes
            for blob in census.spare()
            if self._dry_run or self._store.delete_blob(blob.digest, self._grace_s)
        ]

    def _delete_leftovers(self) -> Leftovers:
        policy, count, size = self._policy, 0, 0
        drafts = [each for kind in KINDS for each in self._store.facts(kind.drafts)]
        for stream, facts in drafts:
            if facts is None or self._now - facts.updated_at < max(_DRAFTS_STAY, policy.grace):
                continue
            count += 1
            size += sum(len(line) + 1 for line in self._store.read(stream))
            if not self._dry_run:
                with suppress(TaskBusy):
                    self._store.delete(self._keeping.take(self._store, stream, self._owner))
        torn_s = policy.older_than.total_seconds() if policy.older_than is not None else None
        left = self._store.sweep(self._grace_s, torn_s, dry_run=self._dry_run)
        return Leftovers(left.count + count, left.size_bytes + size)

    def _compacted(self) -> int:
        compact = getattr(self._store, "compact", None)
        return int(compact()) if compact is not None else 0
