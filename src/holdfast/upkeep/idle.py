"""Sessions that nobody needs any more: which they are, and how they go.

One is needed while a task of it is in the store, whatever became of that; and it stays unless a
policy says how long it may be idle. It is not driven by anyone, so what is decided from its log is
looked at again under its lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import Struct

from holdfast.conversation import Conversation
from holdfast.errors import StoreError, TaskBusy
from holdfast.facts import facts_of_session
from holdfast.folding import read_folded
from holdfast.kinds import SESSION
from holdfast.listing import may_match
from holdfast.store import Facts, Query, Store
from holdfast.upkeep.census import Census
from holdfast.upkeep.families import Told, told_by
from holdfast.upkeep.keeping import Keeping
from holdfast.upkeep.needs import sessions_needed
from holdfast.upkeep.retention import Retention, idle
from holdfast.upkeep.swept import Kept, SweptSession


class Leaving(Struct):
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

    def chosen(self, tasks: Told, gone: Iterable[str]) -> list[Leaving]:
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

    def _looked_at(self, id: str) -> Leaving | None:
        stream = SESSION.stream(id)
        try:
            head = next(self._store.tail(stream), b"")
            state = read_folded(self._store, stream)
        except StoreError as error:
            self._keep(id, str(error))
            return None
        if not isinstance(state, Conversation) or not self._is_idle(id, facts_of_session(state)):
            return None  # what the store told of it was out of date
        return Leaving(state, head)

    def _is_idle(self, id: str, facts: Facts) -> bool:
        return bool(idle(self._policy, {id: facts}, {}, self._now))

    def delete(self, leaving: Iterable[Leaving], keeping: Keeping, owner: str) -> list[Leaving]:
        """Delete what still may go; returns what did."""
        gone: list[Leaving] = []
        tasks: Mapping[str, Facts] | None = None
        for each in leaving:
            if tasks is None:  # once, and when those that go are gone
                tasks = told_by(self._store).facts
            try:
                self._delete(each, tasks, keeping, owner)
                gone.append(each)
            except StoreError as error:
                self._census.put_back(each.stream)
                self._keep(each.state.id, str(error))
        return gone

    def _delete(
        self, leaving: Leaving, tasks: Mapping[str, Facts], keeping: Keeping, owner: str
    ) -> None:
        store, id = self._store, leaving.state.id
        lease = keeping.take(store, leaving.stream, owner)
        try:
            if next(store.tail(leaving.stream), b"") != leaving.head:
                raise TaskBusy("it has gone on meanwhile")
            if may_match(store, Query(session=id)) or id in sessions_needed(tasks):
                raise TaskBusy("a task of it is left")
            if may_match(store, Query(prefix=SESSION.prefix, origin=id)):
                raise TaskBusy("a session that shares its past is left")
            store.delete(lease)
        finally:
            keeping.release(lease)

    def told(self, leaving: Iterable[Leaving]) -> tuple[SweptSession, ...]:
        """What is said of sessions that are gone."""
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
