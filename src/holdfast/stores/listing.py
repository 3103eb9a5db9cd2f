"""Lists of tasks and of sessions: a page by the index of the store, or the views of all that match.

A store finds a page without reading a log (see `finding`), except of those whose facts it lost in a
crash. Their logs are read here, once, and what they say is given back to the store to
remember; where it can't, they are read for every page, so that none is ever missing from a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict, get_args

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.kinds import SESSION, TASK, Kind, id_of
from holdfast.core.state import Status
from holdfast.core.words import html_table
from holdfast.errors import BadInput, StoreError
from holdfast.log.states import read_facts
from holdfast.stores import finding
from holdfast.stores.port import LONGEST_PAGE, Facts, Page, Query, Store

SessionStatus = Literal["open", "ended"]


class Filters(TypedDict, total=False):
    """The filters for tasks. None, or left out, is everything.

    Texts are compared as they are; of `labels` all must be there. Of times, `after` is included
    and `before` is not. A task is updated when its status changes, not with each of its steps.
    """

    status: str | Sequence[str] | None
    type: str | None
    user: str | None
    session: str | None
    parent: str | None
    origin: str | None
    labels: Mapping[str, str] | None
    created_after: datetime | None
    created_before: datetime | None
    updated_after: datetime | None
    updated_before: datetime | None


class SessionFilters(TypedDict, total=False):
    """The filters for sessions: as `Filters`, as far as a session has it.

    One is updated when something is said in it, or it ends; that is known to the minute.
    """

    status: str | Sequence[str] | None
    user: str | None
    labels: Mapping[str, str] | None
    created_after: datetime | None
    created_before: datetime | None
    updated_after: datetime | None
    updated_before: datetime | None


class TaskRecord(Struct, frozen=True):
    """The facts about a task that need no reading of its log. `hf.task(record.id)` knows the
    rest."""

    id: str
    type: str
    status: Status
    user: str
    session: str
    labels: dict[str, str]
    parent: str
    created_at: datetime
    updated_at: datetime
    """When its status last changed, or later."""
    origin: str = ""
    """The id of the task whose past it shares, if it is a fork of one."""
    wake_at: datetime | None = None
    """From when on somebody should drive it; None while there is nothing to do."""


class TaskPage(Struct, frozen=True):
    """One page of a list of tasks, the newest first. The result of `hf.page(…)`.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def paged(n: int) -> int:
    ...     return n
    >>> with Holdfast("memory://") as hf:
    ...     for n in range(3):
    ...         _ = hf.run(paged, n, id=f"paged-{n}")
    ...     first = hf.page(type="paged", limit=2)
    ...     second = hf.page(type="paged", limit=2, cursor=first.next)
    >>> [task.id for task in first.tasks], [task.id for task in second.tasks], second.next
    (['paged-2', 'paged-1'], ['paged-0'], None)
    """

    tasks: tuple[TaskRecord, ...]
    next: str | None
    """The cursor of the page after this one; None if this is the last."""
    unreadable: tuple[StoreError, ...] = ()
    """Of those tasks that can't be listed, because their log has to be read and can't be."""

    def __repr__(self) -> str:
        more = f", {len(self.unreadable)} unreadable" if self.unreadable else ""
        more += ", and more" if self.next else ""
        return f"TaskPage({[task.id for task in self.tasks]!r:.200}{more})"

    def _repr_html_(self) -> str:
        """The page as notebooks show it."""
        rows: list[tuple[Any, ...]] = [
            (t.id, t.type, t.status, t.user, t.updated_at) for t in self.tasks
        ]
        rows += [("unreadable", error, "", "", "") for error in self.unreadable]
        rows += [("…", "", "", "", "")] if self.next else []
        return html_table(rows, ("id", "type", "status", "user", "updated"))


class SessionRecord(Struct, frozen=True):
    """The facts about a session that need no reading of its log."""

    id: str
    user: str
    status: SessionStatus
    labels: dict[str, str]
    created_at: datetime
    updated_at: datetime
    """Of its last event, or up to a minute before that."""


class SessionPage(Struct, frozen=True):
    """One page of a list of sessions, the newest first.

    >>> from holdfast import Holdfast
    >>> with Holdfast("memory://") as hf:
    ...     for n in range(3):
    ...         _ = hf.session(f"listed-{n}", user="ada")
    ...     page = page_of_sessions(hf.store, {"user": "ada", "status": "open"}, limit=2)
    >>> [session.id for session in page.sessions], page.next is None
    (['listed-2', 'listed-1'], False)
    """

    sessions: tuple[SessionRecord, ...]
    next: str | None
    """The cursor of the page after this one; None if this is the last."""
    unreadable: tuple[StoreError, ...] = ()
    """Of those sessions that can't be listed, because their log has to be read and can't be."""


def page_of_tasks(
    store: Store, filters: Mapping[str, Any], limit: int = 50, cursor: str | None = None
) -> TaskPage:
    """A page of the tasks that match, the newest first."""
    query = _of_length(query_of(TASK, filters, Filters, Status), limit)
    page, unreadable = _complete(store, query, cursor)
    tasks = tuple(_record(stream, facts) for stream, facts in page.found)
    return TaskPage(tasks, _next(page), tuple(unreadable))


def page_of_sessions(
    store: Store, filters: Mapping[str, Any], limit: int = 50, cursor: str | None = None
) -> SessionPage:
    """A page of the sessions that match, the newest first."""
    query = _of_length(query_of(SESSION, filters, SessionFilters, SessionStatus), limit)
    page, unreadable = _complete(store, query, cursor)
    found = tuple(_session(stream, facts) for stream, facts in page.found)
    return SessionPage(found, _next(page), tuple(unreadable))


def streams_of_tasks(
    store: Store, filters: Mapping[str, Any]
) -> tuple[list[str], list[StoreError]]:
    """The streams of the tasks that match, the newest first, and the errors of those that can't
    be read. No log is read for it, except of those whose facts the store lost."""
    failed = dict[str, StoreError]()
    found = list(walk(store, query_of(TASK, filters, Filters, Status), failed))
    return found, list(failed.values())


def walk(store: Store, query: Query, failed: dict[str, StoreError]) -> Iterator[str]:
    """The streams that match, page by page."""
    cursor: str | None = None
    while True:
        page, unreadable = _complete(store, replace(query, limit=LONGEST_PAGE), cursor)
        failed.update({str(error): error for error in unreadable})
        yield from (stream for stream, _ in page.found)
        cursor = _next(page)
        if cursor is None:
            return


def query_of(kind: Kind, filters: Mapping[str, Any], known: type, statuses: Any) -> Query:
    unknown = [name for name in filters if name not in known.__annotations__]
    if unknown:
        raise BadInput(
            f"{kind.plural} can't be looked for by {unknown[0]!a:.60}, only by "
            f"{', '.join(known.__annotations__)}"
        )
    given = {name: value for name, value in filters.items() if value is not None}
    if "type" in given:
        given["task"] = given.pop("type")
    if "status" in given:
        given["status"] = _statuses(given["status"], get_args(statuses))
    return Query(prefix=kind.prefix, **given)


def _of_length(query: Query, limit: object) -> Query:
    if not isinstance(limit, int):  # None would be all there are: users take pages
        raise BadInput(f"a query: limit={limit!a:.60} must be 1 to {LONGEST_PAGE}")
    return replace(query, limit=limit)


def _statuses(wanted: Any, known: Sequence[str]) -> tuple[str, ...]:
    several = (wanted,) if isinstance(wanted, str) else wanted
    try:
        if several and all(isinstance(each, str) and each in known for each in several):
            return tuple(several)
    except TypeError:
        pass
    raise BadInput(f"status={wanted!a:.60} is none of {', '.join(known)}")


def _complete(store: Store, query: Query, cursor: str | None) -> tuple[Page, list[StoreError]]:
    """A page with those on it whose facts the store does not know; and what can't be read."""
    if cursor is not None:
        query = replace(query, beyond=finding.place_in(cursor))
    page = store.find(query)
    if not page.unknown:
        return page, []
    matches, found, unreadable = finding.matcher(query), dict(page.found), list[StoreError]()
    for stream in page.unknown:
        try:
            facts = read_facts(store, stream)
        except StoreError as error:
            unreadable.append(error)
            continue
        if facts is not None and matches(stream, facts):
            found[stream] = facts
    whole = finding.page_of(finding.in_order(query, found.items()), query.limit)
    return replace(whole, more=page.more or whole.more), unreadable


def may_match(store: Store, query: Query) -> bool:
    """Whether any stream matches, or might, if its log could be read."""
    page, unreadable = _complete(store, replace(query, limit=1), None)
    return bool(page.found or unreadable)


def forks_of(store: Store, id: str, limit: int = 1) -> list[str]:
    """The ids of tasks that share the past of a task, the newest first."""
    return [task.id for task in page_of_tasks(store, {"origin": id}, limit=limit).tasks]


def _next(page: Page) -> str | None:
    return finding.cursor_of(finding.place_of(*page.found[-1])) if page.more else None


def _record(stream: str, facts: Facts) -> TaskRecord:
    return TaskRecord(
        id=id_of(stream),
        type=facts.task,
        status=facts.status,  # type: ignore[arg-type]
        user=facts.user,
        session=facts.session,
        labels=facts.labels,
        parent=facts.parent,
        created_at=facts.created_at,
        updated_at=facts.updated_at,
        origin=facts.origin,
        wake_at=facts.wake_at,
    )


def _session(stream: str, facts: Facts) -> SessionRecord:
    return SessionRecord(
        id=id_of(stream),
        user=facts.user,
        status=facts.status,  # type: ignore[arg-type]
        labels=facts.labels,
        created_at=facts.created_at,
        updated_at=facts.updated_at,
    )
