"""Which tasks belong together, and so are copied, moved, archived and deleted together.

A task can't do without the logs of some others: a parent asks how its children ended, and a child
tells its parent; a fork has its past in the log of the task it was made of. One function,
`pasts_needed`, says which logs a task needs; a family is the tasks that it connects. Their sessions
go along: they hold what the model calls saw.

The reports of a copy, an archive and a clean-up are here too, because each is about families.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Literal, TypedDict, get_args

from msgspec import Struct

from holdfast.core.kinds import MEMORY, SESSION, TASK, Kind, KindName, id_of, kind_of
from holdfast.core.state import Status
from holdfast.core.words import checked_id
from holdfast.errors import BadInput, HoldfastError, StoreError
from holdfast.log.reading import no_task
from holdfast.log.states import facts_in, lines_of, load_any
from holdfast.log.store_calls import facts_of_all, streams_in
from holdfast.stores.port import Facts, Leftovers, Store

# The logs that tasks and sessions need, and the order that puts needed logs first.


def sessions_needed(tasks: Mapping[str, Facts]) -> frozenset[str]:
    """The ids of the sessions that tasks may have talked in: the session of each task, and one with
    the task's own id.

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
    """Tasks that belong together: first the tasks that need no other, then those that need them."""

    ids: tuple[str, ...]

    @property
    def head(self) -> str:
        """The task that the others are there for."""
        return self.ids[0]


class Told(Struct):
    """The facts that a store tells of its logs, by id, and why others can't be read."""

    facts: dict[str, Facts] = {}
    unreadable: dict[str, HoldfastError] = {}

    def refused(self, kind: Kind = TASK) -> list[Refused]:
        """The logs that are not copied because they can't be read."""
        return [why_refused(kind.stream(id), why) for id, why in self.unreadable.items()]


def told_by(store: Store, kind: Kind = TASK) -> Told:
    """The facts of all logs of a kind; they are read only where the store does not know them."""
    told = Told()
    for stream, facts in facts_of_all(store, kind.prefix):
        id = id_of(stream)
        try:
            if facts is None:
                state = load_any(store, stream)
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
    # Tasks that need no other come first, so a walk that starts from one meets heads first.
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


# Choosing tasks by id or by filter, and the tasks that go along with them.


class Wanted(Struct, frozen=True):
    """The logs that the caller asks for: all of them by default."""

    ids: tuple[str, ...] = ()
    status: str | None = None
    type: str | None = None
    user: str | None = None
    session: str | None = None
    labels: dict[str, str] | None = None

    @property
    def is_by_name(self) -> bool:
        """Whether tasks were named, so that none of them may be left out in silence."""
        return bool(self.ids)

    @property
    def is_everything(self) -> bool:
        """Whether nothing was said."""
        return self == Wanted()


class TaskChoice(TypedDict, total=False):
    """The filters that choose tasks instead of ids; see `Wanted`."""

    status: str | None
    type: str | None
    user: str | None
    session: str | None
    labels: dict[str, str] | None


def wanted(ids: str | Iterable[str] | None, **filters: object) -> Wanted:
    """Check what the caller asks for."""
    named = (ids,) if isinstance(ids, str) else tuple(ids or ())
    given = {name: value for name, value in filters.items() if value is not None}
    if ids is not None and not named:
        raise BadInput("no task was named: leave the ids out to mean all of them")
    if named and given:
        raise BadInput(f"give ids or {', '.join(given)}, not both")
    status = given.get("status")
    if status is not None and status not in get_args(Status):
        raise BadInput(f"status={status!r:.60} is none of {', '.join(get_args(Status))}")
    return Wanted(tuple(map(checked_id, dict.fromkeys(named))), **given)  # type: ignore[arg-type]


def choose(told: Told, wanted: Wanted, url: str) -> tuple[list[TaskFamily], tuple[str, ...]]:
    """The families that are meant, and the tasks in them that were not asked for.

    A family is meant if any of it was named, or if its head is what was asked for.
    """
    for id in wanted.ids:
        if id in told.unreadable:
            raise told.unreadable[id]
        if id not in told.facts:
            raise no_task(url, id)
    named = set(wanted.ids)
    chosen = [
        family
        for family in families(told.facts)
        if (named & set(family.ids) if named else _matches(told.facts[family.head], wanted))
    ]
    along = [id for family in chosen for id in family.ids if named and id not in named]
    return chosen, tuple(along)


def others_meant(store: Store, wanted: Wanted, tasks: Mapping[str, Facts]) -> list[str]:
    """The streams of the sessions and memories that go along with these tasks."""
    told = told_by(store, SESSION)
    ids = sessions_meant(wanted, tasks, told.facts)
    needed = sessions_needed(tasks)
    unread = [id for id in told.unreadable if id in needed or not wanted.is_by_name]
    memories = sorted(streams_in(store, MEMORY.prefix)) if wanted.is_everything else []
    return [*map(SESSION.stream, (*ids, *unread)), *memories]


def sessions_meant(
    wanted: Wanted, tasks: Mapping[str, Facts], sessions: Mapping[str, Facts]
) -> list[str]:
    """The sessions of the chosen tasks, and the sessions that match by themselves: only tasks have
    a status and a type, but both have users and labels. A fork brings its original, first.

    >>> sessions = {"s-1": Facts(user="ada"), "s-2": Facts(user="bob")}
    >>> sessions_meant(Wanted(user="bob"), {"trip-1": Facts(session="s-1")}, sessions)
    ['s-1', 's-2']
    """
    needed = sessions_needed(tasks)
    of_tasks_only = wanted.ids or wanted.status is not None or wanted.type is not None
    meant = [
        id
        for id, facts in sorted(sessions.items())
        if id in needed or (not of_tasks_only and _matches(facts, wanted))
    ]
    return with_originals(meant, sessions)


def _matches(facts: Facts, wanted: Wanted) -> bool:
    given = (wanted.status, wanted.type, wanted.user, wanted.session)
    found = (facts.status, facts.task, facts.user, facts.session)
    same = all(want in (None, have) for want, have in zip(given, found, strict=True))
    return same and (wanted.labels or {}).items() <= facts.labels.items()


# The reports of a copy, an archive and a clean-up: their progress, and their result.


class CopiedLog(Struct, frozen=True):
    """One log of a copy."""

    id: str
    how: Literal["copied", "continued", "there", "ahead"]
    """`copied`: it was not there. `continued`: it was there in part. `there`: it was there, the
    same. `ahead`: it was there, and has gone on since."""
    status: str
    """In the target, when the copy was done. A memory has none."""
    events: int
    size_bytes: int
    blobs: int


class CopiedTask(CopiedLog, frozen=True):
    """One task of a copy."""


class Refused(Struct, frozen=True):
    """A task that was not copied (and with it its family), or not deleted, and why."""

    id: str
    """Of a task. A log of another `kind` is named by its stream: `sessions/<id>`."""
    why: str
    error: str
    """The class name of the error."""
    kind: KindName = "task"


def why_refused(stream: str, error: Exception, before: str = "") -> Refused:
    """The report of a log that can't be copied."""
    kind = kind_of(stream)
    why = f"{before}{error}"
    return Refused(kind.shown(id_of(stream)), why, type(error).__name__, kind.name)


class Copied(Struct, frozen=True, kw_only=True):
    """The result of a copy. Made by `Holdfast.copy_to`.

    >>> from holdfast import Holdfast
    >>> with Holdfast("memory://") as hf, Holdfast("memory://") as other:
    ...     hf.copy_to(other).tasks
    ()
    """

    source: str
    target: str
    moved: bool = False
    dry_run: bool = False
    tasks: tuple[CopiedTask, ...] = ()
    refused: tuple[Refused, ...] = ()
    along: tuple[str, ...] = ()
    """Tasks that were not asked for, and went along because they belong to one that was."""
    sessions: tuple[CopiedLog, ...] = ()
    """The sessions of the tasks, and those that were chosen themselves."""
    memories: tuple[CopiedLog, ...] = ()

    @property
    def events(self) -> int:
        """How many events there are in the logs that were copied."""
        return sum(log.events for log in self._logs)

    @property
    def size_bytes(self) -> int:
        """The size of these logs, without their blobs."""
        return sum(log.size_bytes for log in self._logs)

    @property
    def _logs(self) -> tuple[CopiedLog, ...]:
        return (*self.tasks, *self.sessions, *self.memories)


class Archived(Struct, frozen=True):
    """The result of an archive: the logs that are in it."""

    path: str
    ids: tuple[str, ...]
    """Of tasks."""
    events: int
    blobs: int
    unpacked_bytes: int
    size_bytes: int
    """Of the file."""
    refused: tuple[Refused, ...] = ()
    """The logs that can't be read, and so are not in it."""
    sessions: tuple[str, ...] = ()
    memories: tuple[str, ...] = ()


What = Literal["paused", "copying", "copied", "goes on", "deleted", "archiving", "reading"]


class CopyProgress(Struct, frozen=True):
    """How far a copy, an archive or a clean-up is."""

    what: What
    id: str
    done: int
    """How many logs are done, of `total`."""
    total: int
    events: int = 0


Tell = Callable[[CopyProgress], None]


def nothing(progress: CopyProgress) -> None:
    """Ignore the progress."""


# Clean-ups.


class SweptTask(Struct, frozen=True):
    """A task that was deleted, or would be."""

    id: str
    type: str
    status: str
    updated_at: datetime
    size_bytes: int
    why: str


class SweptSession(Struct, frozen=True):
    """A session that was deleted, or would be."""

    id: str
    user: str
    status: str
    updated_at: datetime
    size_bytes: int
    why: str


class Kept(Struct, frozen=True):
    """A task that the policy would delete, and why it stays."""

    id: str
    """Of a task. A log of another `kind` is named by its stream: `sessions/<id>`."""
    why: str
    kind: KindName = "task"


class Swept(Struct, frozen=True, kw_only=True):
    """The result of a clean-up. Made by `Holdfast.gc`.

    >>> from holdfast import Holdfast
    >>> with Holdfast("memory://") as hf:
    ...     hf.gc().freed_bytes
    0
    """

    store: str
    dry_run: bool = False
    tasks: tuple[SweptTask, ...] = ()
    kept: tuple[Kept, ...] = ()
    unreadable: tuple[Kept, ...] = ()
    """The logs that can't be read, or are damaged. While there are any, no blob is deleted, because
    they may name it, and no task goes because of `max_bytes`."""
    blobs: int = 0
    """The number of deleted blobs: no log named them any more."""
    blob_bytes: int = 0
    leftovers: Leftovers = Leftovers()
    """The removed leftovers of crashed writers."""
    archive: Archived | None = None
    compacted_bytes: int = 0
    sessions: tuple[SweptSession, ...] = ()
    size_bytes: int = 0
    """Of the logs and blobs that are left."""

    @property
    def freed_bytes(self) -> int:
        """The number of bytes that the clean-up freed."""
        tasks = sum(task.size_bytes for task in self.tasks)
        sessions = sum(session.size_bytes for session in self.sessions)
        return tasks + sessions + self.blob_bytes + self.leftovers.size_bytes
