"""Lists of tasks: pages by the index of the store, with filters, counts and a search by text."""

from __future__ import annotations

import time
from typing import Any, get_args

from holdfast.core.state import Status
from holdfast.errors import BadInput, StoreError, TaskNotFound
from holdfast.log.reading import stream_of
from holdfast.stores.listing import TaskRecord, page_of_sessions, page_of_tasks
from holdfast.stores.port import LONGEST_PAGE
from holdfast.web.asked import PageRequest, Site
from holdfast.web.logs import event_rows, search
from holdfast.web.needs import detailed, row_of

Data = dict[str, Any]
_MOST_S = 0.08
"""How long a list is searched by text, before its caller is asked to go on."""
_AT_ONCE = 250
"""How many tasks are looked at at once for a text: all of them may hold it, and become rows."""
_DEEP_S, _COUNTING_S = 2.0, 1.5
_MOST_COUNTED = 20_000
_MATCHED = ("type", "user", "session", "parent", "origin")


def filters_of(asked: PageRequest) -> Data:
    """The filters of a list, as `hf.page` takes them."""
    labels = {}
    for pair in asked.texts("label"):
        name, equals, value = pair.partition("=")
        if not equals:
            raise BadInput(f"label={pair!a:.60} is not of the form name=value")
        labels[name] = value
    found: Data = {name: asked.text(name) or None for name in _MATCHED}
    found["status"] = asked.texts("status") or None
    found["labels"] = labels or None
    found["created_after"], found["created_before"] = asked.time("since"), asked.time("until")
    return found


def listed(site: Site, asked: PageRequest) -> Data:
    """A page of tasks, the newest first."""
    limit = int(asked.number("limit", 50, least=1, most=200) or 50)
    cursor = asked.text("cursor") or None
    text = asked.text("text").casefold()
    found, next_cursor, unreadable, partial = _page(site, filters_of(asked), text, limit, cursor)
    rows = [row_of(each) for each in found]
    if asked.flag("details"):
        rows = [row for each in found if (row := detailed(site, each)) is not None]
    return {"tasks": rows, "next": next_cursor, "unreadable": unreadable, "partial": partial}


def _page(
    site: Site, filters: Data, text: str, limit: int, cursor: str | None
) -> tuple[list[TaskRecord], str | None, list[str], bool]:
    store, found, began = site.hf.store, list[TaskRecord](), time.monotonic()
    while True:
        # A text may be rare, so more are looked at at once; then the page may be longer than asked.
        page = page_of_tasks(store, filters, max(limit, _AT_ONCE) if text else limit, cursor)
        unreadable = [str(error)[:300] for error in page.unreadable[:20]]
        if not text:
            return list(page.tasks), page.next, unreadable, False
        found += [each for each in page.tasks if holds(each, text)]
        cursor = page.next
        if cursor is None or len(found) >= limit:
            return found, cursor, unreadable, False
        if time.monotonic() - began > _MOST_S:
            return found, cursor, unreadable, True


def holds(record: TaskRecord, text: str) -> bool:
    """Whether a list that was searched for a text, in small letters, has the task."""
    words = (record.id, record.type, record.user, record.session, *record.labels.values())
    return any(text in word.casefold() for word in words)


def counted(site: Site, asked: PageRequest) -> Data:
    """How many tasks there are in each status."""
    filters, counts, looked_at = filters_of(asked), dict.fromkeys(get_args(Status), 0), 0
    until = time.monotonic() + _COUNTING_S
    text, cursor = asked.text("text").casefold(), None
    while True:
        page = page_of_tasks(site.hf.store, filters, LONGEST_PAGE, cursor)
        for record in page.tasks:
            if not text or holds(record, text):
                counts[record.status] += 1
        looked_at, cursor = looked_at + len(page.tasks), page.next
        if cursor is None or looked_at >= _MOST_COUNTED or time.monotonic() > until:
            return {
                "counts": counts,
                "total": sum(counts.values()),
                "exact": cursor is None,
                "command": site.hints.command("ls", options=_options(asked)),
            }


def _options(asked: PageRequest) -> list[str]:
    """The filters as the command line takes them. It has none for a text."""
    names = ("status", *_MATCHED, "label", "since", "until")
    return [word for name in names for each in asked.texts(name) for word in (f"--{name}", each)]


def types(site: Site, asked: PageRequest) -> Data:
    """The types of the newest tasks."""
    newest = page_of_tasks(site.hf.store, {}, LONGEST_PAGE).tasks
    return {"types": sorted({record.type for record in newest})}


def forks(site: Site, asked: PageRequest) -> Data:
    """The forks of a task, the newest first."""
    page = page_of_tasks(site.hf.store, {"origin": asked.id}, 100)
    return {"forks": [row for each in page.tasks if (row := detailed(site, each)) is not None]}


def found_anywhere(site: Site, asked: PageRequest) -> Data:
    """Tasks and sessions by a text; with `deep`, events whose lines hold it."""
    text = asked.text("q").strip()
    if not text:
        raise BadInput("say what to look for: ?q=…")
    store, limit = site.hf.store, int(asked.number("limit", 20, least=1, most=100) or 20)
    if asked.flag("deep"):
        return _found_in_logs(site, text, asked.text("cursor") or None, limit)
    found, _, _, partial = _page(site, {}, text.casefold(), limit, None)
    sessions = [
        {"id": each.id, "user": each.user, "status": each.status}
        for each in page_of_sessions(store, {}, LONGEST_PAGE).sessions
        if text.casefold() in each.id.casefold() or text.casefold() in each.user.casefold()
    ]
    is_id = text.isprintable() and len(text) < 256
    exact = is_id and next(store.read(stream_of(text)), None) is not None
    return {
        "tasks": [row_of(each) for each in found[:limit]],
        "sessions": sessions[:limit],
        "exact": text if exact else None,
        "partial": partial,
    }


def _found_in_logs(site: Site, text: str, cursor: str | None, limit: int) -> Data:
    store, hits, began, searched = site.hf.store, list[Data](), time.monotonic(), 0
    while True:
        page = page_of_tasks(store, {}, 20, cursor)
        for record in page.tasks:
            searched += 1
            try:
                seqs, _, _ = search(store, record.id, text, 0, 3, most=20_000)
                hits += [
                    {"task": record.id, "event": row}
                    for seq in seqs
                    for row in event_rows(store, record.id, seq - 1, 1)
                ]
            except (TaskNotFound, StoreError):
                continue
        cursor = page.next
        if cursor is None or len(hits) >= limit or time.monotonic() - began > _DEEP_S:
            return {"hits": hits, "next": cursor, "searched": searched}
