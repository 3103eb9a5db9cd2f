"""`Worker`: one process that drives many tasks.

It looks for tasks that have something to do (new, due, answered, orphaned), takes hold of as many
as it may, and drives sync ones in threads and async ones on one event loop. A task that has to
wait for longer than a moment is released, and costs nothing until its time has come: what it
waits for is in the log, so any worker can go on with it.

Several workers may share a store: a lease decides who drives a task. A worker that dies leaves its
tasks to the others at once; one that hangs, when its lease has run out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.core.events import NEVER
from holdfast.core.facts import TRIED_ONCE, PagePlace, Query
from holdfast.core.kinds import id_of
from holdfast.core.queues import QUEUE, REGION
from holdfast.core.spec import Spec, registry
from holdfast.core.state import FINISHED
from holdfast.engines.clocks import OwnTime
from holdfast.engines.deaths import record_hindrance
from holdfast.engines.local.tasks import Begin
from holdfast.engines.port import Driven, EngineWorker, Job
from holdfast.engines.routing import LOCAL
from holdfast.engines.weather import FAULTS, WakeUps, Weather, must_take_writes
from holdfast.errors import (
    BadInput,
    CodeMissing,
    DrivenElsewhere,
    HoldfastError,
    LeaseLost,
    StorageFailed,
    Suspend,
    TaskBusy,
    TaskCancelled,
    TaskFailed,
    TaskNotFound,
    TaskReleased,
    TaskWaiting,
)
from holdfast.log.reading import TellsNews, first_event, stream_of
from holdfast.log.states import load, read_facts
from holdfast.log.store_calls import due_in, holder_of
from holdfast.stores.port import Facts, Store

if TYPE_CHECKING:
    from concurrent.futures import Future

    from holdfast.api.app import Holdfast
    from holdfast.engines.holder import Holding
    from holdfast.engines.local.desk import Desk


_TASKS = "tasks/"
_TOLD_S, _HELD_S, _TROUBLE_S = 0.02, 0.5, 30.0
"""When to look again at a task that somebody else drives, and at one that could not go on."""
_MISSED_S = 60.0
"""How long a task may wait for somebody with its code before its log says so."""
_MOST_LOST = 10
"""How often the store may fail one task while it answers otherwise, before we pass the task by."""
_TRY_AGAIN = 200
_MOST_PUT_OFF = 1000
_LISTEN_S, _CALM_S = 0.5, 0.05
"""How long to listen for news at a time, and how much to let come together before a look."""


class Worker:
    """Drives the tasks of a store that have something to do, many at a time.

    `concurrency` is how many it drives at once, `limits` how many of one type. A task that would
    wait for longer than `patience_s` is released meanwhile. `say` is told what happens.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def greet_by_worker(name: str) -> str:
    ...     return f"hi {name}"
    >>> with Holdfast("memory://") as hf:
    ...     handles = [hf.start(greet_by_worker, name) for name in ("Ada", "Bob")]
    ...     Worker(hf).run_until_idle()
    ...     [handle.result() for handle in handles]
    ['hi Ada', 'hi Bob']
    """

    def __init__(
        self,
        hf: Holdfast,
        *,
        concurrency: int = 16,
        limits: Mapping[str, int] | None = None,
        poll_s: float = 0.2,
        patience_s: float = 1.0,
        say: Callable[[str], None] | None = None,
    ) -> None:
        given: dict[str, Any] = {"concurrency": concurrency, **(limits or {})}
        for name, number in given.items():
            if type(number) is not int or number < 1:
                raise BadInput(f"a worker's limit of {name} must be 1 or more, not {number!r:.60}")
        if not (poll_s > 0 and patience_s >= 0):
            raise BadInput(
                f"a worker's poll_s={poll_s!r:.60} and patience_s={patience_s!r:.60} "
                f"are seconds, above 0 and 0 or more"
            )
        self._driving = hf._driving
        self._beside = hf._beside
        self._holding = hf._holding
        self._store = hf.store
        self._patrol = _new_patrol(hf)
        self._concurrency = concurrency
        self._limits = dict(limits or {})
        self._poll_s = poll_s
        self._patience_s = patience_s
        self._say: Callable[[str], None] = say if say is not None else _say_nothing
        self._active: dict[str, tuple[Spec, Future[Any]]] = {}
        self._not_before: dict[str, float] = {}
        self._unknown: set[str] = set()
        self._trouble: dict[str, str] = {}
        """Why tasks could not go on, as it was last said."""
        self._lost: dict[str, Spec] = {}
        """The tasks in hand when the store failed: we take them up first when it is back."""
        self._failed: dict[str, tuple[float, int]] = {}
        """When and how often the store failed a task, while it answered otherwise."""
        self.weather: Weather = Weather(self._say)
        """How the store does, as this worker sees it."""
        self._wake_ups = WakeUps(self._holding)
        self._desk = _new_desk(self._holding, self._say)
        self._is_new = True
        self._shuffles = isinstance(self._store, TellsNews)
        """Whether many machines may share the store, and look for work at the same moment."""
        self._began = self._holding.clock()
        self._noted: set[str] = set()
        """The tasks of which we recorded that their code is missing here."""
        self._news: SimpleQueue[None] = SimpleQueue()
        self._stopping = False
        self._newest = NEVER
        self._is_told = False
        self._told: set[str] = set()
        """A task put off only because our own process held it to tell it something."""
        self._loop: Any = None

    def run(self) -> None:
        """Drive tasks until `stop` is called; then finish the steps in hand and return."""
        with self._beside(self._say):
            self._work(until_idle=False)

    def run_until_idle(self) -> None:
        """Drive tasks until none has anything to do: what is left waits, or is finished."""
        self._work(until_idle=True)

    def stop(self) -> None:
        """Take no more tasks, and release those in hand after the step they are in.

        May be called from another thread, or from a signal handler.
        """
        self._stopping = True
        self._wake()

    def _wake(self) -> None:
        # Not an event: setting one takes a lock, which the interrupted code may hold.
        self._news.put(None)

    def _wait(self, seconds: float) -> None:
        with suppress(Empty):
            self._news.get(timeout=seconds)
        while not self._news.empty():
            self._news.get()

    def _until_next_look(self) -> float:
        now = time.monotonic()
        put_off = [at - now for at in self._not_before.values() if at > now]
        soon = self._desk.wait_s()
        return min([self._poll_s, *put_off, *([] if soon is None else [soon])])

    def _listen(self, store: TellsNews, ended: threading.Event) -> None:
        """Look at once when there is news; by a thread, which ends soon after the worker."""
        while not ended.is_set():
            try:
                if store.wait_for_news(_LISTEN_S):
                    self._wake()
            except HoldfastError:  # the store can't be reached: the search for work says so
                ended.wait(_LISTEN_S)
            ended.wait(_CALM_S)

    def _skips(self, is_idle: bool) -> bool:
        """Whether the clock of a test went on, as there is nothing to do before a later time."""
        clock = self._holding.clock
        if not isinstance(clock, OwnTime):
            return False
        if not is_idle:
            clock.works(self)
            return False
        later = (
            facts.wake_at
            for _, facts in due_in(self._store, _TASKS, REGION)
            if facts is not None and facts.wake_at is not None and facts.wake_at > clock.now
        )
        waits = [] if self._desk.waits_until is None else [self._desk.waits_until]
        return clock.idle(self, min([*later, *waits], default=None))

    def _waits_for_a_rate(self) -> bool:
        """Whether a task of a queue starts soon by itself. The clock of a test does not go on."""
        own = isinstance(self._holding.clock, OwnTime)
        return self._desk.waits_until is not None and not own

    @property
    def active(self) -> tuple[str, ...]:
        """The ids of the tasks that it drives now."""
        return tuple(self._active)

    def _work(self, *, until_idle: bool) -> None:
        from concurrent.futures import ThreadPoolExecutor

        threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix="holdfast task")
        ended = threading.Event()
        if isinstance(self._store, TellsNews) and not until_idle:
            listening = (self._store, ended)
            threading.Thread(
                target=self._listen, args=listening, name="holdfast news", daemon=True
            ).start()
        try:
            while not self._stopping:
                try:
                    self._reap()
                    if not self.weather.is_fair:
                        must_take_writes(self._store)
                    self._is_told = False
                    taken = self._take_up(threads)
                except FAULTS as error:
                    if until_idle:
                        raise
                    self._wait(self.weather.fails(error))
                    continue
                if self.weather.clears():
                    self._wake_ups.look_far_back()
                is_idle = not (taken or self._active or self._is_told or self._desk.is_busy)
                if self._skips(is_idle):
                    continue
                if until_idle and is_idle and not self._waits_for_a_rate():
                    break
                self._wait(self._until_next_look())
        finally:
            ended.set()
            self._skips(is_idle=False)
            self._drain()
            self._desk.close()
            threads.shutdown()
            if self._loop is not None:
                self._loop.close()
                self._loop = None

    # Taking tasks up

    def _take_up(self, threads: Any) -> int:
        for wrong in self._patrol.step():
            self._say(wrong)
        now, taken = self._now(), 0
        self._wake_ups.step()
        for task_id, lost in list(self._lost.items()):
            if self._not_before.get(task_id, 0) > time.monotonic():
                continue
            if task_id not in self._active and len(self._active) < self._concurrency:
                del self._lost[task_id]
                self._begin(task_id, lost, threads)
                taken += 1
        for stream, facts in self._due(now):
            if self._stopping or len(self._active) >= self._concurrency:
                break
            task_id = stream.removeprefix(_TASKS)
            if task_id in self._active:
                continue
            if self._not_before.get(task_id, 0) > time.monotonic():
                # An end that was seen before it was told wakes us early.
                self._is_told = self._is_told or task_id in self._told
                continue
            self._told.discard(task_id)
            spec = self._wanted(stream, facts, now)
            if spec is not None:
                self._begin(task_id, spec, threads)
                taken += 1
        return taken + self._take_places(threads)

    def _take_places(self, threads: Any) -> int:
        """Begin tasks of queues, as far as there is room here and there."""
        room = 0 if self._stopping else self._concurrency - len(self._active)
        taken = 0
        for task_id, facts in self._desk.take(room, self._is_for_us):
            spec = self._known(facts.task)
            if spec is None or task_id in self._active:
                continue
            self._begin(task_id, spec, threads)
            taken += 1
        return taken

    def _is_for_us(self, task_id: str, facts: Facts) -> bool:
        """Whether a task that waits in a queue could be driven here now."""
        if self._not_before.get(task_id, 0) > time.monotonic() or task_id in self._active:
            return False
        limit = self._limits.get(facts.task)
        if limit is not None and self._count(facts.task) >= limit:
            return False
        return self._known(facts.task) is not None

    def _known(self, name: str) -> Spec | None:
        try:
            return registry.task(name)
        except CodeMissing as error:
            if name not in self._unknown:
                self._unknown.add(name)
                self._say(f"leaves tasks of type {name} to others: {error}")
            return None

    def _due(self, now: datetime) -> Iterator[tuple[str, Facts | None]]:
        """The tasks that have something to do. A worker that is new also tries what others could
        not."""
        due = due_in(self._store, _TASKS, now, unheld=True)
        # Not all workers begin with the same task: only one of them would have it.
        first = list(islice(due, 2 * self._concurrency)) if self._shuffles else []
        from random import shuffle  # not before there is something to drive

        shuffle(first)
        yield from first
        yield from due
        if self._is_new:
            place = PagePlace(TRIED_ONCE - timedelta(microseconds=1), "")
            query = Query(prefix=_TASKS, due_by=TRIED_ONCE, beyond=place, limit=_TRY_AGAIN)
            for stream, facts in self._store.find(query).found:
                yield stream, replace(facts, wake_at=now)
            self._is_new = False

    def _now(self) -> datetime:
        """The time, by which tasks are woken; a word if it was set back."""
        now = self._holding.clock()
        if now < self._newest:
            behind_s = (self._newest - now).total_seconds()
            self._say(
                f"the clock was set back by at least {behind_s:.1f} s: tasks that were put aside "
                f"until a time are taken up when the clock gets there, and so by that much later"
            )
        self._newest = now
        return now

    def _wanted(self, stream: str, facts: Facts | None, now: datetime) -> Spec | None:
        """The code of a task, if it is ours to drive."""
        found = facts
        try:
            found = found if found is not None else read_facts(self._store, stream)
            if found is None or found.wake_at is None or found.wake_at > now:
                return None
            limit = self._limits.get(found.task)
            if limit is not None and self._count(found.task) >= limit:
                return None
            spec = registry.task(found.task)
            if spec.lacks is not None and (why := spec.lacks(found.labels)):
                raise CodeMissing(why)
        except CodeMissing as error:
            if found is not None and found.wake_at is not None:
                self._note_missing(stream.removeprefix(_TASKS), found.wake_at, now, error)
            if found is not None and found.task not in self._unknown:
                self._unknown.add(found.task)
                self._say(f"leaves tasks of type {found.task} to others: {error}")
            return None
        except HoldfastError as error:
            self._pass_by(stream.removeprefix(_TASKS), f"{error}")
            return None
        holder = holder_of(self._store, stream)
        if holder is not None:
            # Our own process holds it for a moment only, to tell it something.
            ours = holder == self._holding.owner
            if ours:
                self._is_told = True
                self._told.add(stream.removeprefix(_TASKS))
            self._put_off(stream.removeprefix(_TASKS), _TOLD_S if ours else _HELD_S)
            return None
        if QUEUE in found.labels and not self._desk.has(stream.removeprefix(_TASKS)):
            return self._line_up(stream.removeprefix(_TASKS), found, spec)
        return spec

    def _line_up(self, task_id: str, facts: Facts, spec: Spec) -> Spec | None:
        """Have a task of a queue wait for its place; one that only has the label is driven."""
        try:
            created = first_event(self._store, stream_of(task_id))
            if created is None or created.ticket is None:
                return spec
            why = self._desk.admit(task_id, facts)
        except FAULTS:
            raise
        except TaskBusy:
            self._put_off(task_id, _TOLD_S)
            why = ""
        except HoldfastError as error:
            why = f"{error}"
        if why:
            self._pass_by(task_id, why)
        self._is_told = self._is_told or not why
        return None

    def _note_missing(self, task_id: str, due: datetime, now: datetime, error: CodeMissing) -> None:
        """Record that a task waits for somebody who has its code, once it has waited for long."""
        if max(due, self._began) > now - timedelta(seconds=_MISSED_S) or task_id in self._noted:
            return
        self._noted.add(task_id)
        with suppress(TaskBusy), self._holding.hold(task_id) as log:
            if log.state.seq:
                record_hindrance(log, "CodeMissing", str(error), self._holding.owner)

    def _count(self, kind: str) -> int:
        return sum(other.name == kind for other, _ in self._active.values())

    def _put_off(self, task_id: str, seconds: float) -> None:
        now = time.monotonic()
        if len(self._not_before) > _MOST_PUT_OFF:
            self._not_before = {id: at for id, at in self._not_before.items() if at > now}
            self._trouble = {
                id: self._trouble[id] for id in self._not_before if id in self._trouble
            }
        self._not_before[task_id] = now + seconds

    def _pass_by(self, task_id: str, why: str) -> None:
        """Leave a task for a while that can't go on here. It is looked at again and again, and
        why not is said once."""
        self._put_off(task_id, _TROUBLE_S)
        if self._trouble.get(task_id) != why:
            self._trouble[task_id] = why
            self._say(f"{task_id}: {why}")

    # Driving them

    def _begin(self, task_id: str, spec: Spec, threads: Any) -> None:
        task = self._driving.taking(task_id, spec, self._desk.confirm)
        if task_id not in self._trouble:
            self._say(f"{task_id}: taken up ({spec.name})")
        if spec.is_async:
            self._loop = self._loop or _new_loop()
            future = self._loop.submit(_contained(self._driving.adrive(task, self._patience_s)))
        else:
            future = threads.submit(self._drive, task)
        self._active[task_id] = (spec, future)
        future.add_done_callback(lambda done: self._wake())

    def _drive(self, task: Begin) -> Any:
        return self._driving.drive(task, self._patience_s)

    def _reap(self) -> None:
        from concurrent.futures import CancelledError

        for task_id, (spec, future) in list(self._active.items()):
            if future.done():
                del self._active[task_id]
                self._not_before.pop(task_id, None)
                cancelled = CancelledError() if future.cancelled() else None
                error = cancelled or future.exception()
                if isinstance(error, FAULTS):
                    self._lose(task_id, spec, error)
                else:
                    self._tell_end(task_id, error)

    def _lose(self, task_id: str, spec: Spec, error: OSError | StorageFailed) -> None:
        """Take note that the store failed a task. If it fails this one again and again while it
        answers otherwise, the trouble is that of the task."""
        self._lost[task_id] = spec
        self._driving.lost[task_id] = str(error)
        if not self.weather.is_fair:
            self._put_off(task_id, self.weather.fails(error))
            return
        now = time.monotonic()
        since, times = self._failed.get(task_id, (now, 0))
        times = times + 1 if now - since < _MISSED_S else 1
        self._failed[task_id] = (now, times)
        if times > _MOST_LOST:
            self._pass_by(task_id, f"{type(error).__name__}: {error}")
        else:
            self._put_off(task_id, max(self.weather.fails(error), 0.02 * times**2))

    def _tell_end(self, task_id: str, error: BaseException | None) -> None:
        self._failed.pop(task_id, None)
        if type(error) is TaskBusy:
            self._desk.again(task_id)
        else:
            self._desk.ended(task_id)
        is_elsewhere = isinstance(error, DrivenElsewhere)
        went_on = (TaskFailed, TaskCancelled, TaskWaiting, TaskBusy, LeaseLost)
        if error is None or (isinstance(error, went_on) and not is_elsewhere):
            self._trouble.pop(task_id, None)
        if error is None or isinstance(error, TaskFailed | TaskCancelled):
            # This holds whatever the store still thinks of it.
            self._put_off(task_id, _TROUBLE_S)
            self._say(f"{task_id}: {error or 'completed'}")
        elif isinstance(error, TaskReleased):  # it waits for its turn, so there is work left
            self._told.add(task_id)
            self._put_off(task_id, _HELD_S)
        elif isinstance(error, TaskNotFound):  # it may be made again at this moment
            self._put_off(task_id, _HELD_S)
        elif isinstance(error, TaskWaiting):
            self._say(f"{task_id}: released: {str(error).partition(chr(10))[0]}")
        elif isinstance(error, TaskBusy | LeaseLost) and not is_elsewhere:
            # Held for a moment, or driven by others now: the next look tells which.
            self._say(f"{task_id}: {error}")
        else:
            # The task can't go on here: its code changed, an engine has it, or something is wrong
            # with the store.
            self._pass_by(task_id, f"{type(error).__name__}: {error}")

    def _drain(self) -> None:
        """Let go of what is in hand, each after the step it is in."""
        self._stopping = True
        if self._active:
            many = "1 task" if len(self._active) == 1 else f"{len(self._active)} tasks"
            self._say(f"finishing the steps in hand of {many}")
        while self._active:
            for run in list(self._driving.runs):
                if run.task_id in self._active and run.stop is None:
                    released = f"task {run.task_id!r}: its worker was asked to end"
                    run.interrupt(Suspend(TaskReleased(run.task_id, released)))
            self._reap()
            self._wait(0.05)
        self._stopping = False


def _say_nothing(text: str) -> None: ...


async def _contained(drive: Coroutine[Any, Any, Any]) -> Any:
    """A task that tries to end the program ends itself: the others go on."""
    try:
        return await drive
    except (SystemExit, KeyboardInterrupt) as error:
        raise HoldfastError(f"its function raised {type(error).__name__}") from error


def _new_patrol(hf: Holdfast) -> Any:
    from holdfast.stores.patrol import Patrol  # only a worker has one

    return Patrol(hf.store)


def _new_desk(holding: Holding, say: Callable[[str], None]) -> Desk:
    from holdfast.engines.local.desk import Desk  # the same

    return Desk(holding, say)


def _new_loop() -> Any:
    from holdfast.engines.loops import LoopThread  # asyncio is slow to import

    return LoopThread()


# The local engine: this process, and every `holdfast worker` on the same store.
#
# Local workers look for work by themselves, so there is nobody to be told of it.


class Local:
    """The engine that a `Holdfast` has if it is given none: see `holdfast.engines.port`.

    >>> from holdfast import Holdfast
    >>> Holdfast("memory://").engine.name
    'local'
    """

    name = LOCAL

    def __init__(self, store: Store | None = None) -> None:
        self.store = store
        """Where its tasks are; a `Holdfast` that is given a `Local` says so."""

    def start(self, job: Job) -> None:
        """Nothing: workers see the task in the store."""

    def tell(self, job: Job, message: str) -> None:
        """Nothing: who holds the task, or takes hold of it next, looks into its inbox."""

    def cancel(self, job: Job) -> None:
        """Nothing: the same."""

    def query(self, job: Job) -> Driven | None:
        """The driver at work on a task; None if nobody is, or it is another engine's."""
        if self.store is None:
            return None
        stream = stream_of(job.id)
        state = load(self.store, id_of(stream), missing_ok=True)
        if state.seq == 0 or state.driver:
            return None
        if state.status in FINISHED:
            return Driven(job.id, "ended", LOCAL, started_at=state.created_at)
        holder = holder_of(self.store, stream)
        if holder is None:
            return None
        return Driven(job.id, "running", LOCAL, started_at=state.created_at, detail=holder)

    def stop(self, job: Job) -> None:
        """Do nothing: the holder of the task releases it when it is told."""

    def worker(
        self, hf: Any, *, concurrency: int = 16, say: Callable[[str], None] | None = None
    ) -> EngineWorker:
        """A `Worker`."""
        from holdfast.engines.local.worker import Worker

        return Worker(hf, concurrency=concurrency, say=say)

    def close(self) -> None:
        """Nothing: it holds nothing."""
