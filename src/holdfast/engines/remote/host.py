"""The common part of all tasks that a worker of a remote engine drives."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from time import thread_time
from typing import Any, Protocol

from holdfast.core.events import NEWEST_FORMAT, Claimed, Parked
from holdfast.core.journal import Raised, Returned
from holdfast.core.state import FINISHED, HALTED, State
from holdfast.engines.deaths import is_one_driven, must_be_alone, record_death
from holdfast.engines.holder import Holding
from holdfast.engines.loops import LoopThread, off_loop
from holdfast.engines.port import Engine
from holdfast.engines.remote.sweep import SweepMemory, SweepResult, sweep
from holdfast.engines.routing import Taken, driven_by, must_not_be_taken
from holdfast.engines.run import Family, Run
from holdfast.errors import HoldfastError, StoreError, TaskBusy, TaskReleased
from holdfast.log.log import Log
from holdfast.stores.patrol import Patrol
from holdfast.stores.port import Store

# How many calls a worker makes at a time.
#
# A call takes a place before it takes a thread. A call that only waits for another task gives its
# place away meanwhile: that task needs places as well, and would else wait for ever.


THREADS = 10_000
"""Of a pool for calls: more than there are places, as some wait without one."""


LINGER_S = 1.0
BUSY_S = 1.0
"""How long somebody waits for a log that another process, or a suspect, keeps from him."""


class Places:
    """So many places, on the running loop; those who hold one may be in any thread."""

    def __init__(self, count: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._free = asyncio.Semaphore(count)

    async def acquire(self) -> None:
        """Wait for a place, on the loop."""
        await self._free.acquire()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *error: object) -> None:
        self._free.release()

    def give_away(self) -> None:
        """Let somebody else have a place. From any thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody wants one
            self._loop.call_soon_threadsafe(self._free.release)

    def take(self) -> Future[Any]:
        """The same from any thread: done when there is a place, which is taken then."""
        return asyncio.run_coroutine_threadsafe(self._free.acquire(), self._loop)


_CHILD_POLL_S = 0.1


class Application(Protocol):
    """The knowledge of the application about its tasks: see
    `holdfast.engines.local.tasks.Driving`."""

    holding: Holding

    def family(self) -> Family:
        """The part that looks after the tasks that a task starts."""

    def prepare(self, run: Run) -> None:
        """Do what a fork, or a rewound task, needs to go its own way."""

    def tell_parent(self, state: State) -> None:
        """Let the parent of a task that has ended go on."""

    def start_elsewhere(self, id: str) -> None:
        """Have the engine drive a task whose log is there."""


class Host:
    """One worker: its logs, the loop that its async steps run on, and the runs of its tasks."""

    def __init__(self, driver: Application, engine: str, linger_s: float = LINGER_S) -> None:
        self.driver = driver
        self.engine = engine
        self.holding: Holding = driver.holding
        self.hub: Hub = Hub(driver.holding, engine, linger_s)
        self.bodies: dict[str, Run] = {}
        """The runs of the functions of tasks, by task."""
        self.places: Places | None = None
        """Where calls are made; None if there is no end of them."""
        self.patience_s: float = BUSY_S
        """How long the function of a task waits for its log: little if others wait behind it."""
        self.is_ending: threading.Event = threading.Event()
        """Set when the worker is to end: nobody waits for another task any more."""
        self._loop: LoopThread | None = None
        self._lock = threading.Lock()

    def run_async(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the loop of the async steps, and wait for it in this thread."""
        with self._lock:
            self._loop = self._loop or LoopThread("holdfast steps")
            future = self._loop.submit(work)
        return future.result()

    def close(self) -> None:
        """Let go of everything."""
        if self._loop is not None:
            self._loop.close()
        self.hub.close()


class Relatives:
    """The children of a task on a remote engine: they are driven by it too.

    The carrier of a task hands the tasks that its function starts to the engine.
    """

    def __init__(self, host: Host) -> None:
        self._family = host.driver.family()

    def must_be_free(self, id: str, parent: str) -> None:
        self._family.must_be_free(id, parent)

    def create(self, id: str, name: str, args: bytes, parent: State, path: str) -> None:
        self._family.create(id, name, args, parent, path)

    def outcome(self, id: str) -> Returned | Raised | None:
        return self._family.outcome(id)

    def drive(self, id: str) -> None:
        raise NotImplementedError("the engine drives it, and says when it has ended")

    async def adrive(self, id: str) -> None:
        self.drive(id)

    def send(self, id: str, name: str, value: Any, key: str, by: str) -> bool:
        return self._family.send(id, name, value, key, by)

    def cancel(self, id: str, *, wait: bool) -> None:
        self._family.cancel(id, wait=False)


class RelativesOfCall(Relatives):
    """The children that a call starts, and may wait for in its place."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._host = host

    def create(self, id: str, name: str, args: bytes, parent: State, path: str) -> None:
        super().create(id, name, args, parent, path)
        self._host.driver.start_elsewhere(id)

    def drive(self, id: str) -> None:
        """Wait a moment: the engine drives it."""
        if self._host.places is not None:
            self._host.places.give_away()
        is_ending = self._host.is_ending.wait(_CHILD_POLL_S)
        if self._host.places is not None:
            self._host.places.take().result()
        _must_go_on(id, is_ending)

    async def adrive(self, id: str) -> None:
        if self._host.places is not None:
            self._host.places.give_away()
        await asyncio.sleep(_CHILD_POLL_S)
        if self._host.places is not None:
            await asyncio.wrap_future(self._host.places.take())
        _must_go_on(id, self._host.is_ending.is_set())


def _must_go_on(child: str, is_ending: bool) -> None:
    if is_ending:
        raise TaskReleased(child, f"the worker ends, whose step waits for task {child!r}")


# Looking after the tasks of an engine, for as long as a worker of it runs.


_EVERY_S, _SELDOM_S, _SHARE = 1.0, 10.0, 0.005
"""How often a pass is made: each second, or more seldom if the tasks are so many that it would cost
more than that share of a core."""


async def look_after(
    store: Store,
    engine: Engine,
    say: Callable[[str], None],
    serve: Callable[[str], None] = lambda task: None,
) -> None:
    """Make a pass over the tasks of an engine about once a second. An obstacle is said once, until
    it changes or is gone. With `serve` the engine is told which worker has the code of a type of
    task: it may have forgotten."""
    memory, said, patrol = SweepMemory(), set[str](), Patrol(store)

    def swept_at_cost() -> tuple[SweepResult, float]:
        began = thread_time()
        return sweep(store, engine, memory, time.monotonic()), thread_time() - began

    while True:
        cost_s = 0.0
        try:
            for wrong in await off_loop(patrol.step):
                say(wrong)
            swept, cost_s = await off_loop(swept_at_cost)
            trouble = list(swept.trouble)
            for id in swept.started:
                say(f"{id}: started, as {engine.name} did not drive it")
            if swept.unserved:
                await off_loop(serve, swept.unserved)
        except (HoldfastError, OSError) as error:
            trouble = [str(error)]
        # Of a task that was not looked at this time, it is still what it was.
        trouble += memory.trouble.values()
        for text in dict.fromkeys(trouble):
            if text not in said:
                say(text)
        said = set(trouble)
        await asyncio.sleep(min(max(_EVERY_S, cost_s / _SHARE), _SELDOM_S))


# The logs that a worker holds for the tasks it drives on a remote engine.
#
# A task has one writer, and a remote engine has many things done for it at once: its function goes
# on, three of its calls are made. All of them are done in one process, and share one log here,
# which is held while any of them is at work and for a moment longer. Then it is released: a task
# that waits costs nothing, and the worker that is told to go on with it takes hold of it.


_logger = logging.getLogger("holdfast")

_TICK_S = 0.1
_SOON = 0.1
"""The part of that moment after which a log is released whose claim could do harm. It is still
longer than the pauses of a replay."""
_POLL_S, _SELDOM_POLL_S = 0.02, 0.16


def _may_be_counted(state: State) -> bool:
    return state.status not in FINISHED and state.status not in HALTED


class _Held:
    """The place of a task's log: who opens or releases it, and who is at work on it."""

    def __init__(self) -> None:
        self.moving = threading.Lock()
        """Held while the log is opened or released, which nobody waits for but who wants it."""
        self.log: Log | None = None
        self.callers = 0
        """How many want the log, or have it."""
        self.users = 0
        """How many have it."""
        self.since = self.idle_since = time.monotonic()


class Hub:
    """The logs that this process holds, by task."""

    def __init__(self, holding: Holding, engine: str, linger_s: float = LINGER_S) -> None:
        self.holding = holding
        self.engine = engine
        self._linger_s = linger_s
        self._held: dict[str, _Held] = {}
        self._refused: dict[str, str] = {}
        """The suspects that wait for their turn here, and what they were told."""
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._tidy, name="holdfast hub", daemon=True)
        self._thread.start()

    @contextmanager
    def hold(
        self, task_id: str, since: int | None = None, patience_s: float | None = None
    ) -> Iterator[Log]:
        """The log of a task, held at least until the block ends, by a run of it that began with the
        event `since`. `Taken` if the task was taken from that run."""
        patience_s = BUSY_S if patience_s is None else patience_s
        held, log = self._entered_soon(task_id, since, patience_s)
        try:
            yield log
        finally:
            with self._lock:
                held.users -= 1
                held.idle_since = time.monotonic()
            if driven_by(log.state) != self.engine:
                # It has ended, or was moved: who waited for that may want to open it at once.
                self._release(held)
            self._leave(task_id, held)

    def holds(self, task_id: str) -> bool:
        """Whether a log is held now: then `hold` does not have to wait for anything."""
        held = self._held.get(task_id)
        return held is not None and held.log is not None

    def take(self, task_id: str, since: int | None) -> None:
        """Take hold of a log for a moment, for a caller that could not wait for that in `hold`."""
        with self.hold(task_id, since):
            pass

    async def taken(self, task_id: str, since: int | None, patience_s: float | None = None) -> None:
        """The same for a caller on a loop: no thread waits while another one has the log."""

        def take() -> None:
            held, _ = self._entered(task_id, since)
            with self._lock:
                held.users -= 1
                held.idle_since = time.monotonic()
            self._leave(task_id, held)

        patience_s = BUSY_S if patience_s is None else patience_s
        give_up_at, pauses = time.monotonic() + patience_s, _pauses()
        while not self.holds(task_id):
            try:
                self._must_have_its_turn(task_id)
                await asyncio.to_thread(take)
                return
            except Taken:
                raise
            except TaskBusy:
                if time.monotonic() > give_up_at:
                    raise
            await asyncio.sleep(next(pauses))

    def _entered_soon(
        self, task_id: str, since: int | None, patience_s: float
    ) -> tuple[_Held, Log]:
        give_up_at, pauses = time.monotonic() + patience_s, _pauses()
        while True:
            try:
                return self._entered(task_id, since)
            except Taken:
                raise
            except TaskBusy:
                if time.monotonic() > give_up_at:
                    raise
            # Its last holder may just be releasing it.
            time.sleep(next(pauses))

    def _entered(self, task_id: str, since: int | None) -> tuple[_Held, Log]:
        self._must_have_its_turn(task_id)
        with self._lock:
            held = self._held.get(task_id)
            if held is None:
                held = self._held[task_id] = _Held()
            held.callers += 1
        try:
            with held.moving:
                if held.log is not None and held.log.is_broken and not held.users:
                    self._let_go(held)
                log = held.log or self._take(task_id, held, since)
                self._must_be_ours(log.state, since)
                with self._lock:
                    held.users += 1
                return held, log
        except BaseException:
            self._leave(task_id, held)
            raise

    def _leave(self, task_id: str, held: _Held) -> None:
        with self._lock:
            held.callers -= 1
            self._forget_if_empty(task_id, held)

    def _forget_if_empty(self, task_id: str, held: _Held) -> None:
        if held.log is None and not held.callers and self._held.get(task_id) is held:
            del self._held[task_id]

    def _must_be_ours(self, state: State, since: int | None) -> None:
        if since is None:
            # Of a run that nobody knows here: it is an older one if the task is elsewhere now.
            is_away = state.driver != self.engine and state.taken_at == state.driven_since
            since = 0 if is_away else state.seq
        must_not_be_taken(state, self.engine, since)

    def _must_have_its_turn(self, task_id: str) -> None:
        """Refuse a suspect that has to wait for another one, without opening its log again: many
        of them ask many times a second."""
        if task_id not in self._refused:
            return
        with self._lock:
            if is_one_driven(self._in_hand()):
                raise TaskBusy(self._refused[task_id])

    def _in_hand(self) -> Iterator[tuple[Log, float]]:
        return ((each.log, each.since) for each in self._held.values() if each.log is not None)

    def _take(self, task_id: str, held: _Held, since: int | None) -> Log:
        holding = self.holding
        log = holding.open(task_id)
        is_here = driven_by(log.state) == self.engine
        try:
            self._must_be_ours(log.state, since)
            if is_here:  # who only looks at one that has left says nothing
                record_death(log, holding)
            with self._lock:
                self._refused.pop(task_id, None)
                if is_here:
                    must_be_alone(log.state, self._in_hand())
                held.log, held.since = log, time.monotonic()
        except TaskReleased as error:
            self._refused[task_id] = str(error)
            holding.release(log)
            raise TaskBusy(str(error)) from None
        except BaseException:
            holding.release(log)
            raise
        if is_here:
            epoch = max(log.lease.epoch, log.state.epoch + 1)
            log.append(
                Claimed(
                    format=NEWEST_FORMAT,
                    epoch=epoch,
                    owner=holding.owner,
                    engine=self.engine,
                    process=holding.process,
                )
            )
            if _may_be_counted(log.state):
                log.sync()  # what is done now may end this process, and the next one has to know
        return log

    def _release(self, held: _Held) -> None:
        """Release a log, unless somebody is at work on it by now."""
        with held.moving:
            if not held.users:
                self._let_go(held)

    def _let_go(self, held: _Held) -> None:
        log = held.log
        if log is None:
            return
        with suppress(StoreError, OSError):  # who goes on with it reads what there is
            if driven_by(log.state) == self.engine:
                log.append(Parked(why=f"it waits on {self.engine}"))
        with suppress(StoreError, OSError):
            self.holding.release(log)
        held.log = None

    def _tidy(self) -> None:
        while not self._closing.wait(_TICK_S):
            try:
                self._release_idle(self._linger_s)
            except Exception:  # a log that is not released would be held for ever, and by nobody
                _logger.exception("a log could not be released; trying again")

    def _release_idle(self, linger_s: float) -> None:
        now = time.monotonic()

        def is_idle(held: _Held) -> bool:
            if held.log is None or held.users:
                return False
            state = held.log.state
            # While a task only waits, nothing of it can end this process; but a claim that is not
            # released counts as a death of its driver if anything else does.
            soon = bool(state.deaths) or state.status == "awaiting_user"
            return now - held.idle_since >= (linger_s * _SOON if soon else linger_s)

        with self._lock:
            idle = list((task_id, held) for task_id, held in self._held.items() if is_idle(held))  # noqa: C400
            if self._refused and not is_one_driven(self._in_hand()):
                self._refused.clear()
        for task_id, held in idle:
            self._release(held)
            with self._lock:
                self._forget_if_empty(task_id, held)

    def close(self) -> None:
        """Let go of everything that nobody is at work on."""
        self._closing.set()
        self._thread.join()
        self._release_idle(0.0)


def _pauses() -> Iterator[float]:
    """How long to wait for a log before each look: its last holder may just be releasing it, or
    may keep it for long."""
    pause_s = _POLL_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, _SELDOM_POLL_S)
