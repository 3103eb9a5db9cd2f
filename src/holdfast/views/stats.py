"""Where time, tokens, money and retries go, and what resuming saved: from the logs alone.

`measures` follows one task; here those of many are added up, by the type of the task, by call and
by model.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from statistics import median
from typing import Any

from msgspec import Raw, Struct

from holdfast.core.kinds import id_of
from holdfast.core.state import State
from holdfast.core.usage import Prices, Spent, spent
from holdfast.errors import StoreError
from holdfast.log.reading import advance_checked, base_of, read_events
from holdfast.stores.listing import streams_of_tasks
from holdfast.stores.port import Store
from holdfast.views.measures import (
    WAYS,
    Measured,
    Measuring,
    Saved,
    checked_prices,
    usage_in,
    whole_result,
)


class Durations(Struct, frozen=True):
    """How long some things took: together, in the middle, and all but the slowest twentieth."""

    total_s: float = 0.0
    median_s: float = 0.0
    p95_s: float = 0.0


class TypeStats(Struct, frozen=True):
    """The tasks of a type, and where their time went. See `WAYS` for the parts of it."""

    type: str
    tasks: int
    statuses: dict[str, int]
    durations: Durations
    working_s: float
    people_s: float
    backoff_s: float
    asleep_s: float
    children_s: float
    between_s: float
    idle_s: float
    calls: int
    failures: int
    retries: int
    spent: Spent
    saved: Saved


class CallStats(Struct, frozen=True):
    """The calls of a name."""

    name: str
    kind: str
    calls: int
    completed: int
    failed: int
    """For good, after all their attempts."""
    attempts: int
    failures: int
    """Attempts that failed."""
    retries: int
    """Attempts after the first."""
    interrupted: int
    """Attempts of which nobody knows how they ended: the process was gone."""
    reused: int
    """Calls that were not made: answered by an earlier read, by the record of another call or by
    a stub."""
    durations: Durations
    backoff_s: float
    waiting_s: float
    """For people: approvals, doubts and answers; for a sleep or a child, its length."""
    spent: Spent


class ModelStats(Struct, frozen=True):
    """The calls of a model; '' for those that don't say of which."""

    model: str
    spent: Spent


class Stats(Struct, frozen=True):
    """Where time, tokens, money and retries went. The result of `hf.stats()`."""

    tasks: int
    events: int
    types: tuple[TypeStats, ...]
    calls: tuple[CallStats, ...]
    models: tuple[ModelStats, ...]
    spent: Spent
    saved: Saved
    unreadable: tuple[str, ...] = ()
    """Why tasks are missing: their logs can't be read."""


class _Calls:
    def __init__(self) -> None:
        self.counts = dict.fromkeys(
            ("completed", "failed", "attempts", "failures", "retries", "interrupted", "reused"), 0
        )
        self.durations = array("d")
        self.calls = 0
        self.backoff_s = self.waiting_s = 0.0
        self.spent = Spent()

    def add(self, call: Measured) -> None:
        counts = self.counts
        self.calls += 1
        if call.ended:
            counts[call.ended] += 1
            if not call.reused:
                self.durations.append(call.duration_s)
        counts["attempts"] += call.attempts
        counts["failures"] += call.failures
        counts["retries"] += call.retries
        counts["interrupted"] += call.interrupted
        counts["reused"] += call.reused
        self.backoff_s += call.backoff_s
        self.waiting_s += call.waited_s
        if call.spent is not None:
            self.spent += call.spent

    def stats(self, name: str, kind: str) -> CallStats:
        return CallStats(
            name=name,
            kind=kind,
            calls=self.calls,
            **self.counts,
            durations=durations(self.durations),
            backoff_s=self.backoff_s,
            waiting_s=self.waiting_s,
            spent=self.spent,
        )


class _Tasks:
    def __init__(self) -> None:
        self.statuses: dict[str, int] = {}
        self.durations = array("d")
        self.spans = dict.fromkeys(WAYS, 0.0)
        self.calls = self.failures = self.retries = 0
        self.spent, self.saved = Spent(), Saved()

    def add(self, status: str, task: Measuring) -> None:
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.durations.append(sum(task.spans.values()))
        for way, span in task.spans.items():
            self.spans[way] += span
        for call in (*task.left, *task.calls.values()):
            self.calls += 1
            self.failures += call.failures
            self.retries += call.retries
            if call.spent is not None:
                self.spent += call.spent
        self.saved.add(task.saved)

    def stats(self, type: str) -> TypeStats:
        return TypeStats(
            type=type,
            tasks=len(self.durations),
            statuses=self.statuses,
            durations=durations(self.durations),
            **{f"{way}_s": span for way, span in self.spans.items()},
            calls=self.calls,
            failures=self.failures,
            retries=self.retries,
            spent=self.spent,
            saved=self.saved,
        )


class Totals:
    """The measures of tasks, added up one task at a time."""

    def __init__(self) -> None:
        self.tasks: int = 0
        self.events: int = 0
        self._types: dict[str, _Tasks] = {}
        self._calls: dict[tuple[str, str], _Calls] = {}
        self._models: dict[str, Spent] = {}

    def add(self, type: str, status: str, task: Measuring, models: dict[str, Spent]) -> None:
        """Count a task, whole."""
        self.tasks += 1
        self.events += task.events
        self._types.setdefault(type, _Tasks()).add(status, task)
        for call in (*task.left, *task.calls.values()):
            self._calls.setdefault((call.name, call.kind), _Calls()).add(call)
        for model, taken in models.items():
            self._models[model] = self._models.get(model, Spent()) + taken

    def stats(self, unreadable: Iterable[str] = ()) -> Stats:
        """The totals, the longest first."""
        types = [found.stats(type) for type, found in self._types.items()]
        calls = [found.stats(*key) for key, found in self._calls.items()]
        models = [ModelStats(model, spent) for model, spent in self._models.items()]
        spent, saved = Spent(), Saved()
        for each in types:
            spent += each.spent
            saved.add(each.saved)
        return Stats(
            tasks=self.tasks,
            events=self.events,
            types=tuple(sorted(types, key=lambda t: (-t.durations.total_s, t.type))),
            calls=tuple(sorted(calls, key=lambda c: (-c.durations.total_s, c.name, c.kind))),
            models=tuple(sorted(models, key=lambda m: (-m.spent.cost, m.model))),
            spent=spent,
            saved=saved,
            unreadable=tuple(unreadable),
        )


def durations(values: array[float]) -> Durations:
    """How long some things took.

    >>> durations(array("d", [1.0, 3.0, 2.0]))
    Durations(total_s=6.0, median_s=2.0, p95_s=3.0)
    """
    if not values:
        return Durations()
    ordered = sorted(values)
    p95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
    return Durations(sum(ordered), median(ordered), p95)


# The stats of the tasks in a store that match: one log after the other, each read once.


Progress = Callable[[int, int, str], None]
"""Told how many tasks were read, of how many, and which one comes next."""


def stats(store: Store, filters: Mapping[str, Any], prices: Any, progress: Progress) -> Stats:
    """Where time, tokens, money and retries went in the tasks that match."""
    known, totals = checked_prices(prices), Totals()
    streams, failed = streams_of_tasks(store, filters)
    unreadable = {str(error): None for error in failed}
    for number, stream in enumerate(streams):
        progress(number, len(streams), id_of(stream))
        try:
            _count(store, stream, known, totals)
        except StoreError as error:
            unreadable[str(error)] = None
    return totals.stats(unreadable)


SpentAt = Callable[[datetime, Spent], None]
"""Told what a model call took, and when it ended."""


def count_in(
    store: Store, stream: str, totals: Totals, told: SpentAt, go_on: Callable[[], object]
) -> None:
    """Count one task, without prices. `go_on` is asked before each event, and may raise."""
    _count(store, stream, {}, totals, told, go_on)


def _count(
    store: Store,
    stream: str,
    prices: Mapping[str, Prices],
    totals: Totals,
    told: SpentAt = lambda at, spent: None,
    go_on: Callable[[], object] = lambda: None,
) -> None:
    models: dict[str, Spent] = {}

    def usage(result: Raw) -> Spent | None:
        used = usage_in(whole_result(store, result))
        if used is None:
            return None
        found = spent(used, prices)
        models[used.model] = models.get(used.model, Spent()) + found
        told(state.updated_at, found)
        return found

    task, state = Measuring(usage), State()
    shared = base_of(store, stream)  # what a fork shares was spent once, by its original
    for event in read_events(store, stream):
        go_on()
        advance_checked(state, event, stream)
        if event.seq > shared:
            task.take(event)
    if state.seq:  # else it was deleted meanwhile
        totals.add(state.task, state.status, task, models)
