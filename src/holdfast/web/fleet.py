"""The whole at a glance: who is at work, what waits, how much is done, and missions as boards.

Facts in the index of the store are counted at once. Times and money stand in the logs: they are
read for as many of the newest tasks as a few seconds allow, and the answer says how many those are.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, get_args

import msgspec

from holdfast.core.plan import ready
from holdfast.core.queues import QUEUE
from holdfast.core.state import FINISHED, State, Status
from holdfast.core.usage import Spent
from holdfast.core.words import cut
from holdfast.errors import HoldfastError, StoreError
from holdfast.log.reading import stream_of
from holdfast.log.store_calls import holder_of
from holdfast.stores.listing import TaskRecord, page_of_tasks
from holdfast.stores.port import LONGEST_PAGE, Store
from holdfast.views.stats import Stats, Totals, count_in
from holdfast.views.task import TaskView
from holdfast.web.asked import PageRequest, Site
from holdfast.web.logs import view_at
from holdfast.web.needs import row_of
from holdfast.web.past import files_of
from holdfast.workspace.missions import last_try, mission_text

Data = dict[str, Any]
_MOST_COUNTED, _MOST_LOOKED_AT, _BUCKETS = 20_000, 1000, 48
_FIGURES_S, _ONE_LOG_S, _COUNTING_S = 2.0, 0.5, 1.5
"""How long logs are read for figures, how long any one of them, and how long tasks are counted."""
_ALWAYS_TASKS, _ALWAYS_EVENTS = 20, 1000
"""So much is read however long it takes: a few tasks, and logs that are short."""


def now() -> datetime:
    """The time."""
    return datetime.now(UTC)


def fleet(site: Site, asked: PageRequest) -> Data:
    """Workers, what waits, and what was done of late. The index is asked for few lists, each of
    several statuses: a store of files looks at all its logs for each."""
    hours = int(asked.number("hours", 24, least=1, most=24 * 90) or 24)
    store, current = site.hf.store, now()
    since = current - timedelta(hours=hours)
    unfinished, whole = _listed(store, status=[s for s in get_args(Status) if s not in FINISHED])
    failures, all_failed = _listed(store, status="failed")
    ended, all_ended = _listed(store, status=["completed", "cancelled"])
    recent, all_recent = _listed(store, updated_after=since)
    statuses = Counter(each.status for each in (*unfinished, *failures, *ended))
    workers, waiting = _workers(store, [t for t in unfinished if t.status == "in_progress"])
    bucket_s = hours * 3600 / _BUCKETS
    return {
        "workers": workers,
        "statuses": {status: statuses[status] for status in get_args(Status)},
        "queues": _queues(site, [t for t in unfinished if t.status == "pending"], current),
        "limits": [
            {
                "name": each.name,
                "key": each.key,
                "held": each.held,
                "paused_until": each.paused_until,
                "ready_at": each.ready_at,
            }
            for each in site.hf.limits()
        ],
        "waiting": waiting,
        "throughput": _buckets(recent, since, bucket_s),
        "bucket_s": bucket_s,
        "failures": [row_of(each) for each in failures[:20]],
        "exact": whole and all_failed and all_ended and all_recent,
    }


def _listed(store: Store, **filters: Any) -> tuple[list[TaskRecord], bool]:
    """The newest tasks that match, as many as are counted, and whether those are all."""
    found, cursor, until = list[TaskRecord](), None, time.monotonic() + _COUNTING_S
    while True:
        page = page_of_tasks(store, filters, LONGEST_PAGE, cursor)
        found += page.tasks
        cursor = page.next
        if cursor is None or len(found) >= _MOST_COUNTED or time.monotonic() > until:
            return found, cursor is None


def _queues(site: Site, pending: list[TaskRecord], current: datetime) -> list[Data]:
    """What waits: in each queue that was declared, and in none."""
    loose = [each.created_at for each in pending if QUEUE not in each.labels]
    rows = [_queue("", len(loose), min(loose, default=None), current)]
    for handle in site.hf.queues():
        with suppress(HoldfastError):  # it was dropped meanwhile
            info = handle.info()
            row = _queue(info.name, info.waiting, info.oldest_at, current)
            row |= {"running": info.running, "concurrency": info.queue.concurrency}
            row |= {"paused": info.paused, "by": info.by, "because": cut(info.because, 300)}
            rows.append(row)
    return rows


def _queue(name: str, pending: int, oldest_at: datetime | None, current: datetime) -> Data:
    waits_s = None if oldest_at is None else (current - oldest_at).total_seconds()
    return {
        "name": name,
        "pending": pending,
        "oldest_at": oldest_at,
        "oldest_s": waits_s,
        "running": None,
        "concurrency": None,
        "paused": False,
        "by": "",
        "because": "",
    }


def _workers(store: Store, at_work: list[TaskRecord]) -> tuple[list[Data], Data]:
    """The holders of tasks now, by what they call themselves; and the tasks that nobody holds."""
    held: dict[str, list[str]] = {}
    stopped = sleeping = 0
    for record in at_work[:_MOST_LOOKED_AT]:
        with suppress(StoreError):
            owner = holder_of(store, stream_of(record.id))
            if owner is not None:
                held.setdefault(owner, []).append(record.id)
            elif stopped + sleeping < 200 and view_at(store, record.id).state.parked:
                sleeping += 1
            else:
                stopped += 1
    workers = [
        {"owner": owner, "tasks": len(ids), "ids": ids[:20]} for owner, ids in sorted(held.items())
    ]
    return workers, {"stopped": stopped, "sleeping": sleeping}


def _buckets(records: Iterable[TaskRecord], since: datetime, bucket_s: float) -> list[Data]:
    counts = [Counter[str]() for _ in range(_BUCKETS)]

    def add(what: str, at: datetime) -> None:
        place = int((at - since).total_seconds() // bucket_s)
        if 0 <= place < _BUCKETS:
            counts[place][what] += 1

    for record in records:
        add("started", record.created_at)
        if record.status in FINISHED:
            add(record.status, record.updated_at)
    return [
        {
            "at": since + timedelta(seconds=place * bucket_s),
            **{what: each[what] for what in ("started", "completed", "failed", "cancelled")},
        }
        for place, each in enumerate(counts)
    ]


class _OutOfTime(Exception):
    """The rest of this log would take too long."""


def figures(site: Site, asked: PageRequest) -> Data:
    """Where time and money went: of the newest tasks, as many as there is time to read."""
    hours = int(asked.number("hours", 24, least=1, most=24 * 90) or 24)
    limit = int(asked.number("limit", 300, least=1, most=2000) or 300)
    store, since = site.hf.store, now() - timedelta(hours=hours)
    records = page_of_tasks(store, {"updated_after": since}, min(limit, LONGEST_PAGE)).tasks
    bucket_s, ends_at = hours * 3600 / _BUCKETS, time.monotonic() + _FIGURES_S
    cost, totals = [Counter[str]() for _ in range(_BUCKETS)], Totals()
    for number, record in enumerate(records):
        if number >= _ALWAYS_TASKS and time.monotonic() > ends_at:
            break
        with suppress(StoreError, _OutOfTime):
            for at, spent in _spent_in(store, record, totals, ends_at):
                place = int((at - since).total_seconds() // bucket_s)
                into = cost[min(max(place, 0), _BUCKETS - 1)]
                into["tokens"] += spent.tokens
                into["cost"] += round(spent.cost * 1e9)
    return {
        "tasks": totals.tasks,
        "of": len(records),
        "complete": totals.tasks == len(records),
        "cost": [
            {
                "at": since + timedelta(seconds=place * bucket_s),
                "cost_usd": each["cost"] / 1e9,
                "tokens": each["tokens"],
            }
            for place, each in enumerate(cost)
        ],
        **_told(totals.stats()),
    }


def _spent_in(
    store: Store, record: TaskRecord, totals: Totals, ends_at: float
) -> list[tuple[datetime, Spent]]:
    """What the model calls of a task took, and when. One long log leaves time for the others."""
    found: list[tuple[datetime, Spent]] = []
    stop_at, events = min(ends_at, time.monotonic() + _ONE_LOG_S), count(1)

    def go_on() -> None:
        if next(events) % _ALWAYS_EVENTS == 0 and time.monotonic() > stop_at:
            raise _OutOfTime

    count_in(
        store, stream_of(record.id), totals, lambda at, spent: found.append((at, spent)), go_on
    )
    return found


def _told(made: Stats) -> Data:
    return {
        "types": [
            {
                **{n: getattr(t, n) for n in ("type", "tasks", "statuses", "calls", "failures")},
                **{n: getattr(t, n) for n in ("retries", "working_s", "people_s", "backoff_s")},
                "duration_median_s": t.durations.median_s,
                "duration_p95_s": t.durations.p95_s,
                "tokens": t.spent.tokens,
                "cost_usd": t.spent.cost,
            }
            for t in made.types[:200]
        ],
        "calls": [
            {
                **{n: getattr(c, n) for n in ("name", "kind", "calls", "failed", "retries")},
                "median_s": c.durations.median_s,
                "p95_s": c.durations.p95_s,
                "cost_usd": c.spent.cost,
            }
            for c in made.calls[:200]
        ],
        "models": [
            {
                "model": m.model,
                "calls": m.spent.model_calls,
                "input_tokens": m.spent.input_tokens,
                "output_tokens": m.spent.output_tokens,
                "cost_usd": m.spent.cost,
            }
            for m in made.models[:200]
        ],
        "saved": msgspec.to_builtins(made.saved),
    }


# Missions.


def missions(site: Site, asked: PageRequest) -> Data:
    """The newest missions, and how far each is."""
    found = []
    for record in site.hf.page(type="mission", limit=100).tasks:
        with suppress(StoreError):
            view = view_at(site.hf.store, record.id)
            plan = Counter(item.status for item in view.state.plan)
            found.append(
                {
                    "id": record.id,
                    "text": cut(mission_text(view), 500),
                    "status": view.status,
                    "items": len(view.state.plan),
                    "done": plan["done"] + plan["skipped"],
                    "failed": plan["failed"],
                    "user": view.user,
                    "updated_at": view.state.updated_at,
                }
            )
    return {"missions": found}


def mission(site: Site, asked: PageRequest) -> Data:
    """A plan as a board: what became of each item, and who works on it."""
    view = view_at(site.hf.store, asked.id)
    plan = view.state.plan
    can_begin = {item.id for item in ready(plan)}
    reasons = {v.marked: v.because for v in view.state.plans if v.marked and v.because}
    items, artifacts = [], []
    for number, item in enumerate(plan, 1):
        id = item.id or str(number)
        tried = last_try(site.hf, view.id, item)[1] if view.type == "mission" else State()
        items.append(
            {
                "id": id,
                "text": item.text,
                "status": item.status,
                "after": item.after,
                "because": reasons.get(id, ""),
                "ready": item.id in can_begin,
                **_tried(site.hf.store, tried),
            }
        )
        if tried.files:
            artifacts.append({"item": id, "task": tried.id, "files": files_of(tried)})
    return {
        "id": view.id,
        "text": mission_text(view),
        "status": view.status,
        "seq": view.seq,
        "items": items,
        "files": files_of(view.state),
        "artifacts": artifacts,
        "progress": _progress(view),
    }


def _tried(store: Store, tried: State) -> Data:
    if not tried.seq:
        return {"task": None, "task_status": None, "at_work": None, "updated_at": None}
    holder = None if tried.status in FINISHED else holder_of(store, stream_of(tried.id))
    return {
        "task": tried.id,
        "task_status": tried.status,
        "at_work": holder,
        "updated_at": tried.updated_at,
    }


def _progress(view: TaskView) -> list[Data]:
    return [
        {"scope": scope, "at": said.at, "text": said.text, "done": said.done, "total": said.total}
        for scope, said in view.progress[-100:]
    ]
