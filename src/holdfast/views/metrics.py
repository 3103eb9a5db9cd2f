"""The figures of a fleet: how many tasks there are of each status, and what this process did.

Two sources, and no bookkeeping beside them. `standing` counts tasks by the index of the store, so
every worker tells the same. `WriteMeter` counts the events that this process writes to logs, as
they are written, so the figures of all workers add up to those of the fleet. A process that starts
begins at nothing, as a counter of Prometheus does.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from msgspec import Raw, Struct

from holdfast.core import events as e
from holdfast.core.events import NEVER, AnyEvent, load_event
from holdfast.core.queues import QUEUE
from holdfast.core.state import FINISHED, State, scope_of
from holdfast.core.usage import Prices, Spent, spent
from holdfast.engines.holder import Holding
from holdfast.engines.limits import all_limits
from holdfast.errors import LeaseLost
from holdfast.log.store_calls import due_in
from holdfast.stores.listing import page_of_tasks
from holdfast.stores.port import LONGEST_PAGE, Store
from holdfast.views.measures import usage_in, whole_result

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
"""The upper bounds of the buckets of a duration, in seconds: a query is quick, an agent is not."""

_MOST_SERIES = 2000
"""Of one metric. All beyond these is counted under OTHER: a name made of data can't fill us up."""
OTHER = "(other)"
_MOST_TASKS = 10_000
_MANY = 1000
_MOST_DUE = 10_000

Labels = tuple[tuple[str, str], ...]


class Histogram(Struct):
    """How many durations were at most as long as each of the bounds, and their sum."""

    counts: list[int]
    sum: float = 0.0
    count: int = 0

    def add(self, seconds: float) -> None:
        """Count a duration."""
        at = bisect_left(BOUNDS_S, seconds)
        if at < len(BOUNDS_S):
            self.counts[at] += 1
        self.sum += seconds
        self.count += 1

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Each bound with how many were at most as long."""
        total = 0
        for bound, count in zip(BOUNDS_S, self.counts, strict=True):
            total += count
            yield bound, total


class Metric(Struct, frozen=True):
    """One metric, and its values by their labels."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    values: dict[Labels, float | Histogram]


class CallEnded(Struct, frozen=True):
    """An attempt of a call that this process made, and how it ended."""

    name: str
    kind: str
    outcome: Literal["completed", "failed"]
    seconds: float
    model: str = ""
    spent: Spent | None = None


COUNTERS = {
    "holdfast_tasks_created_total": "Tasks that this process made.",
    "holdfast_tasks_ended_total": "Tasks that ended here, by how they did.",
    "holdfast_claims_total": "How often this process took hold of a task.",
    "holdfast_calls_total": "Attempts of steps and tools that ended here, by how they did.",
    "holdfast_retries_total": "Attempts that failed here and are followed by another.",
    "holdfast_doubts_total": "Calls that only a person can settle.",
    "holdfast_questions_total": "Questions that tasks asked people.",
    "holdfast_crashes_total": "Processes found to have died while they drove a task.",
    "holdfast_stuck_total": "Tasks that were set aside because their processes kept dying.",
    "holdfast_tokens_total": "Tokens that models took and gave, by direction.",
    "holdfast_cost_total": "What calls of models cost, as recorded, or by the given prices.",
    "holdfast_lease_losses_total": "Tasks that another process took over while this one drove.",
    "holdfast_store_errors_total": "Writes that the store refused, by the type of the error.",
}

DURATION = "holdfast_call_duration_seconds"


class _Doing(Struct):
    """The facts about a task while this process writes its log."""

    began: dict[str, tuple[str, str, datetime]] = {}
    """By the path of a call at work: its name, its kind, and when its attempt began."""
    counted: set[str] = set()
    """The calls in which a call of a model was counted: what they return may be its reply."""


class WriteMeter:
    """Counts what this process writes to logs. Made by `meter_of`."""

    def __init__(self, store: Store, prices: Mapping[str, Prices] | None = None) -> None:
        self._store = store
        self._prices = prices or {}
        self._news: deque[tuple[str, str, Sequence[bytes]]] = deque()
        self._lock = threading.Lock()
        self._counts: dict[str, dict[Labels, float]] = {name: {} for name in COUNTERS}
        self._durations: dict[Labels, Histogram] = {}
        self._doing: OrderedDict[str, _Doing] = OrderedDict()
        self.on_call: Callable[[CallEnded], None] | None = None
        """Told of every attempt that ended, for those who keep durations themselves."""
        self.on_news: Callable[[str], None] | None = None
        """Told at once of the id of a task whose log has grown."""

    def wrote(self, state: State, lines: Sequence[bytes]) -> None:
        """The store was given these lines. They are counted by the next one who asks."""
        self._news.append((state.id, state.task, lines))
        if self.on_news is not None:
            self.on_news(state.id)
        if len(self._news) > _MANY:
            self.count()

    def refused(self, state: State, error: BaseException) -> None:
        """The store refused what was written."""
        with self._lock:
            if isinstance(error, LeaseLost):
                self._add("holdfast_lease_losses_total", type=state.task)
            else:
                self._add("holdfast_store_errors_total", error=type(error).__name__)

    def metrics(self) -> Iterator[Metric]:
        """Everything that was counted so far."""
        self.count()
        with self._lock:
            for name, help in COUNTERS.items():
                yield Metric(name, "counter", help, dict(self._counts[name]))
            durations: dict[Labels, float | Histogram] = {
                labels: Histogram(list(each.counts), each.sum, each.count)
                for labels, each in self._durations.items()
            }
        yield Metric(DURATION, "histogram", "How long attempts of steps and tools took.", durations)

    def count(self) -> None:
        """Count what was written and not counted yet."""
        if self._lock.locked():
            return  # another thread is at it
        with self._lock:
            self._count_news()

    def _count_news(self) -> None:
        while self._news:
            task_id, kind, lines = self._news.popleft()
            for line in lines:
                for event in e.parts_of(load_event(line)):
                    self._take(task_id, kind, event)

    def _add(self, metric: str, by: float = 1, **labels: str) -> None:
        values = self._counts[metric]
        key = _key(labels, values)
        values[key] = values.get(key, 0) + by

    def _take(self, task_id: str, type: str, event: AnyEvent) -> None:
        match event:
            case e.TaskCreated():
                self._add("holdfast_tasks_created_total", type=type)
            case e.Claimed():
                self._add("holdfast_claims_total", type=type)
            case e.Parked() | e.Rewound():
                self._doing.pop(task_id, None)
            case e.TaskCompleted():
                self._ended(task_id, type, "completed")
            case e.TaskErrored():
                self._ended(task_id, type, "failed")
            case e.TaskStopped():
                self._ended(task_id, type, "cancelled")
            case e.QuestionAsked():
                self._add("holdfast_questions_total", type=type)
            case e.Started() | e.AttemptFailed() | e.Completed() | e.Doubted():
                self._call(self._task(task_id), event)
            case _:
                self._trouble(type, event)

    def _trouble(self, type: str, event: AnyEvent) -> None:
        tag = event.__struct_config__.tag
        if tag == "driver_died":
            self._add("holdfast_crashes_total", type=type)
        elif tag == "task_stuck":
            self._add("holdfast_stuck_total", type=type)

    def _task(self, task_id: str) -> _Doing:
        found = self._doing.setdefault(task_id, _Doing())
        self._doing.move_to_end(task_id)
        if len(self._doing) > _MOST_TASKS:
            self._doing.popitem(last=False)
        return found

    def _ended(self, task_id: str, type: str, status: str) -> None:
        self._doing.pop(task_id, None)
        self._add("holdfast_tasks_ended_total", type=type, status=status)

    def _call(
        self, doing: _Doing, event: e.Started | e.AttemptFailed | e.Completed | e.Doubted
    ) -> None:
        path = event.path
        if isinstance(event, e.Started):
            known = doing.began.get(path)
            # Only the first attempt carries the name of the call.
            name, kind = (event.name, event.kind) if event.name or not known else known[:2]
            doing.began[path] = (name, kind, event.at)
            return
        name, kind, since = doing.began.get(path, (OTHER, "step", event.at))
        if isinstance(event, e.Doubted):
            self._add("holdfast_doubts_total", name=name)
            return
        seconds = max((event.at - since).total_seconds(), 0.0)
        if isinstance(event, e.AttemptFailed):
            if event.retry_at is not None:
                self._add("holdfast_retries_total", name=name)
            self._attempted(CallEnded(name, kind, "failed", seconds))
            return
        doing.began.pop(path, None)
        self._attempted(self._completed(doing, path, name, kind, seconds, event.result))

    def _completed(
        self, doing: _Doing, path: str, name: str, kind: str, seconds: float, result: Raw
    ) -> CallEnded:
        used = None if path in doing.counted else usage_in(whole_result(self._store, result))
        if used is None:
            return CallEnded(name, kind, "completed", seconds)
        scope = path
        while scope := scope_of(scope):
            doing.counted.add(scope)
        return CallEnded(name, kind, "completed", seconds, used.model, spent(used, self._prices))

    def _attempted(self, call: CallEnded) -> None:
        self._add("holdfast_calls_total", name=call.name, kind=call.kind, outcome=call.outcome)
        key = _key({"name": call.name, "kind": call.kind}, self._durations)
        found = self._durations.setdefault(key, Histogram([0] * len(BOUNDS_S)))
        found.add(call.seconds)
        if call.spent is not None:
            taken = call.spent
            tokens = {"input": taken.input_tokens, "output": taken.output_tokens}
            tokens["cached"] = taken.cached_tokens
            for direction, count in tokens.items():
                self._add("holdfast_tokens_total", count, model=call.model, direction=direction)
            self._add("holdfast_cost_total", taken.cost, model=call.model)
        if self.on_call is not None:
            self.on_call(call)


def meter_of(holding: Holding, prices: Mapping[str, Prices] | None = None) -> WriteMeter:
    """The counter of the writes of a `Holdfast`: one for all who ask."""
    if not isinstance(holding.watched, WriteMeter):
        holding.watched = WriteMeter(holding.store, prices)
    return holding.watched


def _key(labels: dict[str, str], known: Mapping[Labels, object]) -> Labels:
    key = tuple(labels.items())
    if key not in known and len(known) >= _MOST_SERIES:
        return tuple((name, OTHER) for name in labels)
    return key


# How the tasks of a store stand, by its index. No log is read, except where the store lost a fact.


def standing(store: Store, now: datetime) -> Iterable[Metric]:
    """How many tasks there are by type and status, and how long the longest due one has waited."""
    counts: dict[Labels, float | Histogram] = {}
    queued: dict[Labels, float | Histogram] = {}
    cursor: str | None = None
    while True:
        page = page_of_tasks(store, {}, limit=LONGEST_PAGE, cursor=cursor)
        for record in page.tasks:
            key = _key({"type": record.type, "status": record.status}, counts)
            counts[key] = counts.get(key, 0) + 1  # type: ignore[operator]
            if QUEUE in record.labels and record.status not in FINISHED:
                key = _key({"queue": record.labels[QUEUE], "status": record.status}, queued)
                queued[key] = queued.get(key, 0) + 1  # type: ignore[operator]
        cursor = page.next
        if cursor is None:
            break
    due, age_s = _due(store, now)
    text = "Unfinished tasks of queues; those that are pending wait for their first place."
    of_queues = (Metric("holdfast_queue_tasks", "gauge", text, queued),) if queued else ()
    return (
        *of_queues,
        *_of_limits(store),
        Metric("holdfast_tasks", "gauge", "Tasks in the store, by type and status.", counts),
        Metric("holdfast_due_tasks", "gauge", "Tasks that wait for a worker now.", {(): due}),
        Metric(
            "holdfast_queue_age_seconds",
            "gauge",
            "How long the task has waited for a worker that has waited longest.",
            {(): age_s},
        ),
    )


def _of_limits(store: Store) -> Iterable[Metric]:
    held: dict[Labels, float | Histogram] = {}
    paused: dict[Labels, float | Histogram] = {}
    ready: dict[Labels, float | Histogram] = {}
    for each in all_limits(store, "metrics", lambda: datetime.now(UTC)):
        key = _key({"limit": each.name, "key": each.key}, held)
        held[key] = each.held
        paused[key] = _seconds_until(each.paused_until)
        ready[key] = _seconds_until(each.ready_at)
    if held:
        yield Metric("holdfast_limit_calls", "gauge", "Calls under way, by limit.", held)
        text = "For how long a provider refuses all calls of a limit."
        yield Metric("holdfast_limit_paused_seconds", "gauge", text, paused)
        text = "How long a call of a limit that comes now has to wait."
        yield Metric("holdfast_limit_wait_seconds", "gauge", text, ready)


def _seconds_until(time: datetime | None) -> float:
    return 0.0 if time is None else max((time - datetime.now(UTC)).total_seconds(), 0.0)


def _due(store: Store, now: datetime) -> tuple[int, float]:
    due, age_s = 0, 0.0
    for _, facts in due_in(store, "tasks/", now):
        # NEVER stands for one that somebody drives, or drove when its process died.
        if facts is None or facts.wake_at is None or facts.wake_at <= NEVER:
            continue
        due += 1
        age_s = max(age_s, (now - facts.wake_at).total_seconds())
        if due >= _MOST_DUE:
            break
    return due, age_s
