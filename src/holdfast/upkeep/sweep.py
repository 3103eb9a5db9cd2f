"""`Holdfast.gc`: deletes the tasks that a policy names, and data that nobody needs.

Only one clean-up at a time works on a store, under a lease of its own. It decides from what the
store tells, looks at each log before it believes that, archives, and then deletes family by family
under their leases, if nothing has happened to them since. Blobs come last (see the census below).
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from pathlib import Path

from msgspec import Struct

from holdfast.core.conversation import Conversation
from holdfast.core.facts import facts_of_session
from holdfast.core.kinds import KINDS, SESSION, final_name, id_of, kind_of, prefixes
from holdfast.core.state import State
from holdfast.engines.holder import Holding
from holdfast.errors import StoreError, TaskBusy
from holdfast.log.reading import (
    fork_of,
    lineage,
    must_have_its_past,
    own_events,
    stream_of,
)
from holdfast.log.states import load, load_any
from holdfast.log.store_calls import facts_of_all, inbox_of, streams_in
from holdfast.log.values import Naming, may_name
from holdfast.stores.listing import forks_of, may_match
from holdfast.stores.port import BLOB_AGE_S, Blob, Facts, Lease, Leftovers, Query, Store
from holdfast.upkeep.archive import place_for, write_archive
from holdfast.upkeep.families import (
    Archived,
    CopyProgress,
    Kept,
    Swept,
    SweptSession,
    SweptTask,
    Tell,
    Told,
    families,
    pasts_needed,
    sessions_needed,
    told_by,
)
from holdfast.upkeep.retention import Candidate, Retention, candidates, idle, why_it_stays
from holdfast.upkeep.transfer import Keeping

# The census: how large each log is, and which blobs it names.
#
# The census lists the blobs before it reads any log. An old blob that no log names is not needed: a
# writer that is about to name it has put it again meanwhile, which made it young. The census checks
# each log as it reads it, because a damaged log may have named any blob.


class _Lines(Struct):
    """A log that is being read, whatever its name."""

    lines: Iterator[bytes]

    def read(self, stream: str, after_seq: int = 0) -> Iterator[bytes]:
        return self.lines


class Census:
    """The sizes of a store's streams and blobs, also without some of the streams."""

    def __init__(self, store: Store, grace_s: float, tell: Tell) -> None:
        self._blobs = {blob.digest: blob for blob in store.blobs()}
        self._grace_s = grace_s
        self.sizes: Counter[str] = Counter()
        self.unreadable: dict[str, str] = {}
        """The streams that could not be read. While there are any, no blob is spare."""
        self._names: dict[str, set[str]] = {}
        self._naming = Naming(store.get_blob)
        self._named: Counter[str] = Counter()
        streams = [stream for prefix in prefixes() for stream in streams_in(store, prefix)]
        for number, stream in enumerate(streams):
            try:
                self._read(store, stream)
            except StoreError as error:
                self.unreadable[stream] = str(error)
            shown = kind_of(stream).shown(id_of(stream))
            tell(CopyProgress("reading", shown, number + 1, len(streams)))
        self._named.update(digest for names in self._names.values() for digest in names)
        self._log_bytes = self.sizes.total()
        self.needed_bytes: int = self._log_bytes + sum(
            blob.size_bytes for digest, blob in self._blobs.items() if self._named[digest]
        )
        """The size of the remaining logs, with the blobs that they name."""

    @property
    def left_bytes(self) -> int:
        """The size of all logs and blobs, without the deleted and the spare ones."""
        blobs = sum(blob.size_bytes for blob in self._blobs.values())
        return self._log_bytes + blobs - sum(blob.size_bytes for blob in self.spare())

    def _read(self, store: Store, stream: str) -> None:
        naming = [post.data for post in inbox_of(store, [stream])]

        def lines() -> Iterator[bytes]:
            for line in store.read(stream):
                self.sizes[stream] += len(line) + 1
                if may_name(line):
                    naming.append(line)
                yield line

        # A draft has the lines of the log that it becomes.
        deque(own_events(_Lines(lines()), final_name(stream)), maxlen=0)
        if stream == final_name(stream):
            # Restoring a log that shares another's past needs the blobs of that log, too.
            must_have_its_past(store, stream)
        if names := self._naming.named_by(naming):
            self._names[stream] = names

    def spare(self) -> list[Blob]:
        """The blobs that nobody names, and that are old enough to go."""
        if self.unreadable:
            return []
        return [
            blob
            for digest, blob in self._blobs.items()
            if blob.age_s >= self._grace_s and not self._named[digest]
        ]

    def remove(self, stream: str) -> None:
        """Count as if a stream were gone."""
        self._count(stream, -1)

    def keep_after_all(self, stream: str) -> None:
        """Count a stream again."""
        self._count(stream, 1)

    def _count(self, stream: str, by: int) -> None:
        self._log_bytes += by * self.sizes[stream]
        self.needed_bytes += by * self.sizes[stream]
        for digest in self._names.get(stream, ()):
            before, self._named[digest] = self._named[digest], self._named[digest] + by
            if digest in self._blobs and 0 in (before, before + by):
                self.needed_bytes += by * self._blobs[digest].size_bytes


# Idle sessions.
#
# A session is needed while the store holds one of its tasks, whatever its status. Otherwise a
# policy says how long it may be idle. Nobody drives a session, so the clean-up decides again
# under its lease.


class SessionToDelete(Struct):
    """A session that is to be deleted, as its log says."""

    state: Conversation
    head: bytes

    @property
    def stream(self) -> str:
        """Its stream."""
        return SESSION.stream(self.state.id)


class Idle:
    """The idle sessions of one store."""

    def __init__(self, store: Store, policy: Retention, census: Census, now: datetime) -> None:
        self._store = store
        self._policy = policy
        self._census = census
        self._now = now
        self.kept: list[Kept] = []

    def chosen(self, tasks: Told, gone: Iterable[str]) -> list[SessionToDelete]:
        """The sessions that go if these tasks are gone; counted as gone from here on."""
        if self._policy.sessions_after is None:
            return []
        left = {id: facts for id, facts in tasks.facts.items() if id not in set(gone)}
        found = []
        told = told_by(self._store, SESSION)
        for id in idle(self._policy, told.facts, left, self._now):
            if tasks.unreadable:
                self._keep(id, "a task whose log can't be read may be one of it")
            elif told.unreadable:
                self._keep(id, "a session whose log can't be read may share its past")
            elif leaving := self._looked_at(id):
                self._census.remove(leaving.stream)
                found.append(leaving)
        return found

    def _looked_at(self, id: str) -> SessionToDelete | None:
        stream = SESSION.stream(id)
        try:
            head = next(self._store.read(stream, backwards=True), b"")
            state = load_any(self._store, stream)
        except StoreError as error:
            self._keep(id, str(error))
            return None
        if not isinstance(state, Conversation) or not self._is_idle(id, facts_of_session(state)):
            return None  # what the store told of it was out of date
        return SessionToDelete(state, head)

    def _is_idle(self, id: str, facts: Facts) -> bool:
        return bool(idle(self._policy, {id: facts}, {}, self._now))

    def delete(
        self, leaving: Iterable[SessionToDelete], keeping: Keeping, owner: str
    ) -> list[SessionToDelete]:
        """Delete the sessions that still may go; returns those that went."""
        gone: list[SessionToDelete] = []
        tasks: Mapping[str, Facts] | None = None
        for each in leaving:
            if tasks is None:  # once, and when those that go are gone
                tasks = told_by(self._store).facts
            try:
                self._delete(each, tasks, keeping, owner)
                gone.append(each)
            except StoreError as error:
                self._census.keep_after_all(each.stream)
                self._keep(each.state.id, str(error))
        return gone

    def _delete(
        self, leaving: SessionToDelete, tasks: Mapping[str, Facts], keeping: Keeping, owner: str
    ) -> None:
        store, id = self._store, leaving.state.id
        lease = keeping.take(store, leaving.stream, owner)
        try:
            if next(store.read(leaving.stream, backwards=True), b"") != leaving.head:
                raise TaskBusy("it has gone on meanwhile")
            if may_match(store, Query(session=id)) or id in sessions_needed(tasks):
                raise TaskBusy("a task of it is left")
            if may_match(store, Query(prefix=SESSION.prefix, origin=id)):
                raise TaskBusy("a session that shares its past is left")
            store.delete(lease)
        finally:
            keeping.release(lease)

    def told(self, leaving: Iterable[SessionToDelete]) -> tuple[SweptSession, ...]:
        """The report of deleted sessions."""
        return tuple(
            SweptSession(
                each.state.id,
                each.state.user,
                each.state.status,
                each.state.updated_at,
                self._census.sizes[each.stream],
                "no task of it is left",
            )
            for each in leaving
        )

    def _keep(self, id: str, why: str) -> None:
        self.kept.append(Kept(SESSION.shown(id), why, SESSION.name))


LOCK = "housekeeping/gc"
_DRAFTS_STAY = timedelta(days=1)
"""How long the lines of an interrupted copy wait for the copy to run again."""


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
        """Clean up, or report what a clean-up would do."""
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

    # Choosing

    def _chosen(self, told: Told, census: Census) -> list[FamilyToDelete]:
        """The families that go. `kept` lists those that the policy names and that stay."""
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
        """A family whose logs confirm what the store told; it counts as gone from here on."""
        going = FamilyToDelete(candidate.why, [], {})
        for id in candidate.family.ids:
            try:
                going.heads[id] = next(self._store.read(stream_of(id), backwards=True), b"")
                state = load(self._store, id, missing_ok=True)
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
        """The tasks that unreadable logs were forked from: somebody may mend those logs."""
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
        """Archive what goes, with the sessions of the tasks, also sessions that stay."""
        states = [state for family in going for state in family.states]
        if place is None or not (states or leaving) or self._dry_run:
            return None
        needed = {SESSION.stream(id) for state in states for id in (state.session, state.id)}
        needed |= {each.stream for each in leaving}
        talks = sorted(needed & {*streams_in(self._store, SESSION.prefix)})
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
                    census.keep_after_all(stream_of(state.id))
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
                    if (
                        next(self._store.read(stream, backwards=True), b"")
                        != family.heads[state.id]
                    ):
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
        """Delete the blobs that no log names; returns their sizes."""
        return [
            blob.size_bytes
            for blob in census.spare()
            if self._dry_run or self._store.delete_blob(blob.digest, self._grace_s)
        ]

    def _delete_leftovers(self) -> Leftovers:
        policy, count, size = self._policy, 0, 0
        drafts = [each for kind in KINDS for each in facts_of_all(self._store, kind.drafts)]
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
