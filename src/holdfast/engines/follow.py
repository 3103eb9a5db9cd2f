"""Going on with tasks, wherever they are driven: in this process, or by a remote engine.

The log of a task says who drives it. A local task is driven here. A task of the engine that this
process was given is left to it, and watched until it ends or needs a person. A task of another
engine is refused.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar

from holdfast.core.events import AnyEvent
from holdfast.core.fold.waits import perhaps_open
from holdfast.core.spec import Spec
from holdfast.core.state import FINISHED, HALTED, State
from holdfast.engines import control
from holdfast.engines.execution import is_open_child
from holdfast.engines.local.tasks import (
    Begin,
    Driving,
    TaskOptions,
    is_start_of,
    recorded_end,
)
from holdfast.engines.port import Engine
from holdfast.engines.routing import (
    LETS_GO_S,
    called,
    driven_by,
    driver_of,
    hand_over,
    must_be_driven_by,
    standstill,
    warn,
)
from holdfast.errors import (
    BadInput,
    EngineConflict,
    EngineError,
    TaskBusy,
    TaskNotFound,
    TaskReleased,
    TaskWaiting,
)
from holdfast.log.reading import Tail, base_of, pause, stream_of
from holdfast.log.states import load, sum_at
from holdfast.log.store_calls import inbox_of
from holdfast.stores.port import Store

# Waiting for the end of a task that somebody else drives, by looking at its log.


SHORTEST_S, LONGEST_S = 0.01, 0.25
_LATE = 0.05
"""The part of its time by which the end of a task may be seen late."""

Looks: TypeAlias = Iterator[float | None]
"""How long to wait until the next look; None when the task has ended."""


def looks(store: Store, id: str, judge: Callable[[Tail], None]) -> Looks:
    """Look at a task until it has ended; `judge` may raise, if there is no point in waiting on."""
    began, tail = time.monotonic(), Tail(store, id)
    while True:
        for _ in tail.read():
            pass
        if tail.finished:
            yield None
        judge(tail)
        yield min(max(SHORTEST_S, _LATE * (time.monotonic() - began)), LONGEST_S)


def wait(store: Store, looking: Looks) -> None:
    """Look, and wait in between, until the task has ended."""
    while (pause_s := next(looking)) is not None:
        pause(store, pause_s)


async def await_end(looking: Looks) -> None:
    """The same for async code."""
    import asyncio

    from holdfast.engines.loops import off_loop

    while (pause_s := await off_loop(next, looking)) is not None:  # noqa: ASYNC110
        await asyncio.sleep(pause_s)


_BATCH = 256
"""How many are read at once for an event loop."""

T = TypeVar("T")


def _some(news: Iterator[T]) -> list[T]:
    return list(islice(news, _BATCH))


class Following(Generic[T]):
    """Something that comes bit by bit, read from a store until it is over.

    Read it with `for`, or on an event loop with `async for`: then the store is read in a thread,
    and nothing but a timer waits for more. They differ in what they read: `_news` and `_is_over`.
    """

    def __init__(self, store: Store, poll_s: float) -> None:
        self._store = store
        self._poll_s = poll_s
        self._coming = self._as_they_come()

    def _news(self) -> Iterator[T]:
        """The news since the last look."""
        raise NotImplementedError

    def _is_over(self) -> bool:
        """Whether nothing more comes. May raise, where that is an error."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return next(self._coming)

    def _as_they_come(self) -> Iterator[T]:
        while True:
            yield from self._news()
            if self._is_over():
                return
            pause(self._store, self._poll_s, lines=True)

    async def __aiter__(self) -> AsyncIterator[T]:
        import asyncio

        from holdfast.engines.loops import call_pool, off_loop

        wait_s, longest_s = self._poll_s, max(self._poll_s, LONGEST_S)
        while True:
            news = self._news()
            while batch := await off_loop(_some, news, pool=call_pool()):
                wait_s = self._poll_s
                for each in batch:
                    yield each
            if self._is_over():
                return
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, longest_s)  # many may follow one that is idle


class Follow(Following[AnyEvent]):
    """The events of a task after `after`, as they come, until the task has ended."""

    def __init__(self, store: Store, id: str, after: int = 0, poll_s: float = 0.1) -> None:
        super().__init__(store, poll_s)
        self._id = id
        self._tail = Tail(store, id)
        self._after = after

    def _is_over(self) -> bool:
        return self._tail.finished

    def _news(self) -> Iterator[AnyEvent]:
        if self._after and not self._tail.state.seq:
            self._begin()
        yield from self._tail.events(self._after)

    def _begin(self) -> None:
        """Begin at `after`, by the nearest waypoint: what comes before is not read again. In a past
        that a fork shares, and after an event that is not there yet, read from the start."""
        id, after = self._id, self._after
        if after <= base_of(self._store, stream_of(id)):
            return
        with suppress(BadInput, TaskNotFound):
            state = load(self._store, id, after)
            self._tail.begin(state, sum_at(self._store, id, after).encode())


_CALM_S = 1.0
"""How long a task that nobody released must be silent before it counts as waiting: between two
calls of another strand the log is silent too."""

_LETS_GO_S = 5.0


class Going:
    """The tasks of one store, and the engine that new ones are given to."""

    def __init__(self, driving: Driving, engine: Engine) -> None:
        self._driving = driving
        self._store = driving.store
        self._engine = engine
        self.driver: str = driver_of(engine)
        """The name of the engine in the log: '' for the local one."""

    def go(self, task: Begin) -> Any:
        """Go on with a task until it ends; returns or raises what it ends with."""
        if not self._is_remote(task):
            return self._driving.drive(task)
        self._hand_over(task)
        wait(self._store, self._looks(task.task_id))
        return self._end(task)

    async def ago(self, task: Begin) -> Any:
        """The same for async code."""
        if not self.driver:
            return await self._driving.adrive(task)
        from holdfast.engines.loops import off_loop

        if not await off_loop(self._is_remote, task):
            return await self._driving.adrive(task)
        await off_loop(self._hand_over, task)
        await await_end(self._looks(task.task_id))
        return await off_loop(self._end, task)

    def start(
        self, spec: Spec, args: tuple[Any, ...], kwargs: dict[str, Any], given: TaskOptions
    ) -> str:
        """Make a task and leave it to the workers of its engine; returns its id."""
        if not self.driver:
            if given.queue:
                from holdfast.engines.queues import start_in_queue

                return start_in_queue(self._driving, spec, args, kwargs, given)
            return self._driving.start(spec, args, kwargs, given)
        task = self._driving.starting(spec, args, kwargs, given)
        try:
            self._hand_over(task)
        except EngineConflict:
            raise
        except EngineError as error:  # no reason to make it again, under another id
            warn(str(error))
        return task.task_id

    def _is_remote(self, task: Begin) -> bool:
        if not self.driver:
            return False
        if task.engine is not None:
            return bool(task.engine)
        return load(self._store, task.task_id, missing_ok=True).driver == self.driver

    def _hand_over(self, task: Begin) -> None:
        """See to it that the engine drives a task."""
        is_new, state = self._begun(task)
        if state.status in FINISHED:
            return
        try:
            self._drive(state)
        except EngineConflict:
            if is_new:
                self._undo(task.task_id)
            raise
        except EngineError as error:
            raise EngineError(
                f"{error}. Task {state.id!r} is safe in {self._store.url}: a worker of "
                f"{called(self.driver)} starts it as soon as it can"
            ) from error
        if task.continues and state.status in HALTED:
            control.unpause(self._driving.holding, state.id, "")

    def _drive(self, state: State) -> None:
        owner = self._driving.holding.owner
        hand_over(self._store, self._engine, state, owner, LETS_GO_S, self._drive_children)

    def _drive_children(self, state: State) -> None:
        """Go on with what a task waits for, too: where its run was ended by means of the engine,
        so were theirs, perhaps."""
        for call in perhaps_open(state.calls):
            if is_open_child(call):
                child = self._state_of(call.child)
                if driven_by(child) == self.driver:
                    self._drive(child)

    def _begun(self, task: Begin) -> tuple[bool, State]:
        """Whether the task was made just now, and its state."""
        give_up_at = time.monotonic() + _LETS_GO_S
        while True:
            try:
                return self._begin(task)
            except TaskBusy:
                # The process that drove it to its end is about to release it.
                is_over = task.reopens and self._state_of(task.task_id).status in FINISHED
                if not is_over or time.monotonic() > give_up_at:
                    raise
            pause(self._store, SHORTEST_S)

    def _begin(self, task: Begin) -> tuple[bool, State]:
        try:
            with self._driving.holding.hold(task.task_id) as log:
                is_new = log.state.seq == 0
                must_be_driven_by(log.state, self.driver)
                task.begin(log)
                log.sync()
                return is_new, log.state
        except TaskBusy:  # it is under way
            state = load(self._store, task.task_id, missing_ok=True)
            must_be_driven_by(state, self.driver)
            if task.reopens and state.status in FINISHED:
                raise
            digest = task.args_hash
            if digest and not is_start_of(self._store, state, task.spec, digest):
                raise
            return False, state

    def _undo(self, id: str) -> None:
        """Take a task back that was made for nothing: its id is taken where it was to be driven."""
        with self._driving.holding.hold(id) as log:
            if log.state.seq == 1:
                self._store.delete(log.lease)

    def _looks(self, id: str) -> Looks:
        calm = [0, 0.0]

        def judge(tail: Tail) -> None:
            if tail.state.driver != self.driver:
                to = called(tail.state.driver)
                raise TaskReleased(id, f"task {id!r} was moved: from here on it is {to}'s")
            if calm[0] != tail.state.seq:
                calm[:] = [tail.state.seq, time.monotonic() + _CALM_S]
            waiting = standstill(tail.state, self._state_of)
            if waiting is None or not (tail.state.parked or time.monotonic() >= calm[1]):
                return
            self._must_hear(tail, waiting)

        return looks(self._store, id, judge)

    def _must_hear(self, tail: Tail, waiting: TaskWaiting) -> None:
        """Raise why a task waits, unless what it waits for is under way, or has just come."""
        if inbox_of(self._store, [stream_of(waiting.task_id)]):
            return
        for _ in tail.read():
            pass
        waits = standstill(tail.state, self._state_of)
        if waits is not None and str(waits) == str(waiting):
            raise waiting

    def _state_of(self, id: str) -> State:
        return load(self._store, id, missing_ok=True)

    def _end(self, task: Begin) -> Any:
        state = load(self._store, task.task_id, missing_ok=True)
        return recorded_end(self._store, state, task.spec)
