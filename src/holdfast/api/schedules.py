"""Schedules: tasks that start by themselves. `ScheduleHandle` is one, `Scheduler` keeps to them.

A schedule is a value in the namespace `holdfast.schedules`; what became of its due times are values
in a namespace of its own, so the history is there to read. The task of a due time is named after
it, so however many workers look, it is started once. One worker at a time looks, under a lease.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, get_args

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from holdfast.api.async_forms import off_the_loop
from holdfast.api.batches import start_due
from holdfast.core.decoding import decoder
from holdfast.core.kinds import id_of
from holdfast.core.spec import Spec, registry, task_spec
from holdfast.core.state import FINISHED, Status
from holdfast.core.words import must_be_texts
from holdfast.engines.local.tasks import TaskOptions
from holdfast.engines.schedules import (
    DUE,
    SCHEDULE,
    Mark,
    Schedule,
    as_if_begun,
    checked_schedule,
    due_after,
    due_between,
    start_time,
    task_id,
    to_start,
)
from holdfast.engines.weather import FAULTS
from holdfast.errors import BadInput, CodeMissing, HoldfastError, TaskBusy, WrongArguments
from holdfast.log.namespaces import Namespace, OtherVersion, namespace_of
from holdfast.log.reading import stream_of
from holdfast.log.states import read_facts
from holdfast.log.store_calls import acquire_one
from holdfast.stores.port import Query

if TYPE_CHECKING:
    from holdfast.api.app import Holdfast


NAMESPACE, MARKS = "holdfast.schedules", "holdfast.schedule."
_MARK, _BY_HAND = "mark", "by hand"
_LOCK = "locks/schedules"
_MOST_AT_ONCE = 100
_MOST_BACKFILLED = 10_000
_UNFINISHED = tuple(status for status in get_args(Status) if status not in FINISHED)
_load_schedule, _load_mark = decoder(Schedule), decoder(Mark)


class ScheduleHandle:
    """A schedule: look when it is due, pause it, run it now. Made by `hf.schedule(…)`."""

    def __init__(self, hf: Holdfast, name: str) -> None:
        self.name = name
        self._hf = hf

    def __repr__(self) -> str:
        return f"ScheduleHandle({self.name!r})"

    @property
    def schedule(self) -> Schedule:
        """When and how, as it is kept in the store."""
        found = _find(self._hf, self.name)
        if found is None:
            known = ", ".join(each.name for each in all_schedules(self._hf)) or "none"
            raise BadInput(f"there is no schedule {self.name!r} (there: {known})")
        return found

    def next(self, count: int = 5) -> list[datetime]:
        """The next due times."""
        return list(islice(due_after(self.schedule, self._hf._holding.clock()), count))

    def history(self, limit: int = 20) -> list[Mark]:
        """The outcomes of due times, and the starts by hand, the newest first."""
        values = _marks(self._hf, self.name)
        found = sorted(
            (event.seq, values.bytes_of(kept))
            for key in (_MARK, _BY_HAND)
            for event, kept in values.history(key)
            if kept is not None
        )
        return [_load_mark(data) for _, data in found[::-1][:limit]]

    def pause(self, *, because: str = "", by: str = "") -> None:
        """Start nothing until `resume`. Due times meanwhile are not caught up with."""
        self._set_paused(True, because, by)

    def resume(self, *, by: str = "") -> None:
        """Go on with what is due from now on."""
        self._set_paused(False, "", by)

    def _set_paused(self, paused: bool, because: str, by: str) -> None:
        must_be_texts("a schedule", because=because, by=by)
        said = self.schedule
        now = self._hf._holding.clock()
        keep(
            self._hf,
            lambda old: replace(
                old or said, paused=paused, because=because, by=by or self._hf._holding.owner,
                start_at=(old or said).start_at if paused or said.every_s else now,
            ),
            self.name,
        )  # fmt: skip
        if not paused:
            _mark(self._hf, self.name, Mark(now, "missed", because="it was paused"))

    def run_now(self, *, by: str = "") -> str:
        """Start its task now, whatever is due; returns the id."""
        must_be_texts("a schedule", by=by)
        now = self._hf._holding.clock()
        id = start_task(self._hf, self.schedule, now, f"{task_id(self.name, now)}-now", now)
        self._note_by_hand(Mark(now, "started", id, how="run_now", by=by))
        return id

    def backfill(self, start: datetime, end: datetime, *, by: str = "") -> list[str]:
        """Start the tasks of the due times from `start` to `end`; those that exist stay."""
        must_be_texts("a schedule", by=by)
        schedule, ids = as_if_begun(self.schedule, start), list[str]()
        for due in due_between(schedule, start - timedelta(microseconds=1), end):
            if len(ids) >= _MOST_BACKFILLED:
                raise BadInput(f"more than {_MOST_BACKFILLED:,} due times: backfill a shorter time")
            ids.append(task_id(self.name, due))
            if read_facts(self._hf.store, stream_of(ids[-1])) is None:
                start_task(self._hf, schedule, due, ids[-1], None)
                self._note_by_hand(Mark(due, "started", ids[-1], how="backfill", by=by))
        return ids

    def _note_by_hand(self, mark: Mark) -> None:
        # Apart from the outcomes of due times: from the newest of those on, more is due.
        noted = replace(mark, by=mark.by or self._hf._holding.owner)
        _marks(self._hf, self.name).put({_BY_HAND: msgspec.json.encode(noted)})

    def delete(self) -> None:
        """Forget the schedule and its history. The tasks that it started stay."""
        _values(self._hf).delete([self.name])
        _marks(self._hf, self.name).drop()

    apause: Final = off_the_loop(pause)
    aresume: Final = off_the_loop(resume)
    arun_now: Final = off_the_loop(run_now)
    abackfill: Final = off_the_loop(backfill)
    ahistory: Final = off_the_loop(history)
    adelete: Final = off_the_loop(delete)


# Keeping them


def schedule_of(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, name: str, **said: Any
) -> Schedule:
    """The schedule of a task's function and its arguments."""
    spec = task_spec(fn)
    data = spec.signature.dump(args, kwargs)
    spec.signature.load(data)
    must_be_texts("a schedule", name=name, cron=said["cron"])
    at = said.pop("at")
    if at is not None and not isinstance(at, datetime):
        raise BadInput(f"schedule {name or spec.name!r}: at={at!r:.60} must be a datetime")
    return Schedule(name or spec.name, spec.name, Raw(data), at=at, **said)


def declare_schedule(hf: Holdfast, schedule: Schedule) -> ScheduleHandle:
    """Keep a schedule; one of that name is replaced, and what it was due for is not due again."""
    checked_schedule(schedule)
    if hf._going.driver and (schedule.queue or schedule.jitter_s):
        raise BadInput(
            f"schedule {schedule.name!r}: queue= and jitter_s= are kept by local workers, and "
            f"{hf.engine.name} drives the tasks of this Holdfast"
        )
    now = hf._holding.clock()

    def change(old: Schedule | None) -> Schedule:
        if old is None:
            return replace(schedule, start_at=now)
        since = old.start_at if _timing(old) == _timing(schedule) else now
        return replace(schedule, start_at=since, paused=old.paused, by=old.by, because=old.because)

    keep(hf, change, schedule.name)
    return ScheduleHandle(hf, schedule.name)


def _timing(schedule: Schedule) -> tuple[Any, ...]:
    return schedule.cron, schedule.tz, schedule.every_s, schedule.at


def keep(hf: Holdfast, change: Callable[[Schedule | None], Schedule], name: str) -> None:
    """Change a schedule, if nobody else has changed it meanwhile; else look again."""
    values = _values(hf)
    while True:
        kept = values.find([name]).get(name)
        old = None if kept is None else _load_schedule(values.bytes_of(kept))
        new = change(old)
        if new == old:
            return
        with suppress(OtherVersion):
            version = 0 if kept is None else kept.version
            values.put({name: msgspec.json.encode(new)}, expected=version)
            return


def all_schedules(hf: Holdfast) -> list[Schedule]:
    """Every schedule, by name."""
    values = _values(hf)
    return [_load_schedule(values.bytes_of(kept)) for kept in values.find_all()]


def _find(hf: Holdfast, name: str) -> Schedule | None:
    return next((each for each in all_schedules(hf) if each.name == name), None)


def _values(hf: Holdfast, name: str = NAMESPACE) -> Namespace:
    holding = hf._holding
    return namespace_of(holding.store, name, holding.owner, holding.clock)


def _marks(hf: Holdfast, name: str) -> Namespace:
    return _values(hf, f"{MARKS}{name}")


def last_mark(hf: Holdfast, name: str) -> Mark | None:
    """The outcome of the newest due time that was seen to."""
    values = _marks(hf, name)
    kept = values.find([_MARK]).get(_MARK)
    return None if kept is None else _load_mark(values.bytes_of(kept))


def _mark(hf: Holdfast, name: str, mark: Mark) -> None:
    """Record what became of a due time, unless a later one is recorded already."""
    values = _marks(hf, name)
    while True:
        kept = values.find([_MARK]).get(_MARK)
        if kept is not None and _load_mark(values.bytes_of(kept)).due >= mark.due:
            return
        with suppress(OtherVersion):
            version = 0 if kept is None else kept.version
            values.put({_MARK: msgspec.json.encode(mark)}, expected=version)
            return


# Keeping to them


def start_task(
    hf: Holdfast, schedule: Schedule, due: datetime, id: str, not_before: datetime | None
) -> str:
    """Start the task of a due time, unless it is there already."""
    spec: Spec = registry.task(schedule.task)
    args, kwargs = spec.signature.load(bytes(schedule.args))
    labels = {SCHEDULE: schedule.name, DUE: due.astimezone(UTC).isoformat()}
    later = not_before is not None and not_before > hf._holding.clock()
    given = TaskOptions(
        id=id, user=schedule.user, labels=labels, engine=hf._going.driver, queue=schedule.queue,
        key=schedule.key, priority=schedule.priority, not_before=not_before if later else None,
    )  # fmt: skip
    with suppress(WrongArguments):  # it was started before the schedule was changed
        return hf._going.start(spec, args, kwargs, given)
    return id


class Scheduler:
    """Starts what is due. Every worker has one, and one at a time of them looks."""

    def __init__(self, hf: Holdfast, say: Callable[[str], None] = lambda text: None) -> None:
        self._hf, self._say = hf, say
        self._said: set[str] = set()

    def look(self) -> int:
        """Start every task that is due now, of batches too; returns how many were."""
        now = self._hf._holding.clock()
        return self._start_batches(now) + self._start_schedules(now)

    def _start_batches(self, now: datetime) -> int:
        started = start_due(self._hf, now, self._say_once)
        for id in started:
            self._say(f"batch: started {id}")
        return len(started)

    def _start_schedules(self, now: datetime) -> int:
        waiting = [each for each in all_schedules(self._hf) if self._is_due(each, now)]
        if not waiting:
            return 0
        with suppress(TaskBusy), self._alone():
            return sum(self._see_to(each, now) for each in waiting)
        return 0

    def _is_due(self, schedule: Schedule, now: datetime) -> bool:
        if schedule.paused:
            return False
        after = self._after(schedule)
        return next(due_after(schedule, after), now + timedelta(days=1)) <= now

    def _after(self, schedule: Schedule) -> datetime:
        mark = last_mark(self._hf, schedule.name)
        start = schedule.start_at or self._hf._holding.clock()
        if schedule.at is not None:  # it may be in the past when it is declared
            start = schedule.at - timedelta(microseconds=1)
        return start if mark is None else max(start, mark.due)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        holding = self._hf._holding
        lease = acquire_one(holding.store, _LOCK, holding.owner, holding.lease_s)
        try:
            yield
        finally:
            holding.store.release([lease])

    def _see_to(self, schedule: Schedule, now: datetime) -> int:
        started, missed = 0, 0
        try:
            registry.task(schedule.task)
            found = to_start(schedule, self._after(schedule), now, _MOST_AT_ONCE)
            for due, counts in found:
                if not counts:
                    missed += 1
                    continue
                if missed:
                    self._tell_missed(schedule, due, missed)
                    missed = 0
                started += self._start(schedule, due)
            if missed:
                self._tell_missed(schedule, found[-1][0] + timedelta(microseconds=1), missed)
        except CodeMissing as error:
            self._say_once(f"schedule {schedule.name}: left to others: {error}")
        except TaskBusy:
            pass  # somebody holds its task for a moment
        except HoldfastError as error:
            self._say_once(f"schedule {schedule.name}: {error}")
        return started

    def _tell_missed(self, schedule: Schedule, before: datetime, count: int) -> None:
        many = "1 due time was" if count == 1 else f"{count:,} due times were"
        at = before - timedelta(microseconds=1)
        _mark(self._hf, schedule.name, Mark(at, "missed", because=f"{many} too late"))

    def _start(self, schedule: Schedule, due: datetime) -> int:
        id = task_id(schedule.name, due)
        running = list[str]()
        if schedule.overlap != "allow":
            running = [each for each in self._unfinished(schedule) if each != id]
        if running and schedule.overlap == "skip":
            because = f"{running[0]} has not ended"
            _mark(self._hf, schedule.name, Mark(due, "skipped", because=because))
            return 0
        if schedule.overlap == "cancel":
            for other in running:
                with suppress(BadInput):
                    self._hf.cancel(other, because=f"{id} was started in its place")
        start_task(self._hf, schedule, due, id, start_time(schedule, due))
        _mark(self._hf, schedule.name, Mark(due, "started", task=id))
        self._say(f"schedule {schedule.name}: started {id}")
        return 1

    def _unfinished(self, schedule: Schedule) -> list[str]:
        query = Query(labels={SCHEDULE: schedule.name}, status=_UNFINISHED, limit=20)
        return [id_of(stream) for stream, _ in self._hf.store.find(query).found]

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)


# The work of a worker beside driving tasks: it starts what is scheduled, looks for alerts, and
# deletes what has grown old.
#
# One thread of its own. Nothing that goes wrong here disturbs a task: it is said, and tried again.
# The clean-up is the same as `hf.gc`, which works under a lease, so one worker at a time does it.

SCHEDULES_EVERY_S = 1.0
LOOK_EVERY_S = 5.0
CLEAN_EVERY_S = 3600.0


class Background:
    """Runs the upkeep of a store in a thread, while it is entered. Made by `hf.beside()`."""

    def __init__(
        self, hf: Holdfast, say: Callable[[str], None], *, clean_every_s: float = CLEAN_EVERY_S
    ) -> None:
        self._hf, self._say = hf, say
        self._clean_every_s = clean_every_s
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._problem = ""
        self.cleaned: int = 0
        """How often this process has cleaned up."""

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="holdfast upkeep", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        # Workers that are started together don't all clean up at once.
        clean_at = time.monotonic() + random.uniform(0, min(60.0, self._clean_every_s))
        scheduler = Scheduler(self._hf, self._say)
        watch_at = time.monotonic()
        while not self._closing.is_set():
            self._try(scheduler.look)
            if self._hf.hooks and time.monotonic() >= watch_at:
                self._try(self._hf.watch)
                watch_at = time.monotonic() + LOOK_EVERY_S
            if self._hf.retention is not None and time.monotonic() >= clean_at:
                self._try(self._clean)
                clean_at = time.monotonic() + self._clean_every_s
            self._closing.wait(min(SCHEDULES_EVERY_S, LOOK_EVERY_S, self._clean_every_s))

    def _clean(self) -> None:
        swept = self._hf.gc(self._hf.retention)
        self.cleaned += 1
        if swept.tasks or swept.sessions:
            many = "1 task" if len(swept.tasks) == 1 else f"{len(swept.tasks)} tasks"
            self._say(f"upkeep: deleted {many}, as the retention says")

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
            self._problem = ""
        except TaskBusy:
            pass  # somebody else is at it
        except (HoldfastError, OSError) as error:
            # A store that is away is so in many words: refused, shutting down, starting up.
            problem = "away" if isinstance(error, FAULTS) else str(error)
            if problem != self._problem:
                self._problem = problem
                self._say(f"upkeep: {error}")
