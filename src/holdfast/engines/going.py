"""Going on with tasks, wherever they are driven: in this process, or by a remote engine.

What the log says of a task decides. One that is driven locally is driven here; one of the engine
that this process was given is left to it, and watched until it ends or needs a person. What another
engine drives is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from holdfast.core.fold.waits import perhaps_open
from holdfast.core.spec import Spec
from holdfast.core.state import FINISHED, State
from holdfast.engines import control
from holdfast.engines.execution import is_open_child
from holdfast.engines.local.driving import Driving, recorded_end
from holdfast.engines.local.family import Begin, TaskOptions
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
from holdfast.errors import EngineConflict, EngineError, TaskBusy, TaskReleased, TaskWaiting
from holdfast.log.reading import read_state, stream_of
from holdfast.log.tail import Tail, pause
from holdfast.stores.port import Store

# Waiting for the end of a task that somebody else drives, by looking at its log.


SHORTEST_S, LONGEST_S = 0.01, 0.25

Looks: TypeAlias = Iterator[float | None]
"""How long to wait until the next look; None when the task has ended."""


def looks(store: Store, id: str, judge: Callable[[Tail], None]) -> Looks:
    """Look at a task until it has ended; `judge` may raise, if there is no point in waiting on."""
    pause_s, tail = SHORTEST_S, Tail(store, id)
    while True:
        for _ in tail.read():
            pass
        if tail.finished:
            yield None
        judge(tail)
        yield pause_s
        pause_s = min(2 * pause_s, LONGEST_S)


def wait(store: Store, looking: Looks) -> None:
    """Look, and wait in between, until the task has ended."""
    while (pause_s := next(looking)) is not None:
        pause(store, pause_s)


async def await_end(looking: Looks) -> None:
    """The same for async code."""
    import asyncio

    from holdfast.engines.threads import off_loop

    while (pause_s := await off_loop(next, looking)) is not None:  # noqa: ASYNC110
        await asyncio.sleep(pause_s)


_CALM_S = 1.0
"""How long nothing may be written before a task that nobody let go of is taken to wait: between
two calls of another strand there is nothing to be seen either."""

_LETS_GO_S = 5.0


class Going:
    """The tasks of one store, and the engine that new ones are given to."""

    def __init__(self, driving: Driving, engine: Engine) -> None:
        self._driving = driving
        self._store = driving.store
        self._engine = engine
        self.driver = driver_of(engine)
        """What the log calls the engine: '' for the local one."""

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
        from holdfast.engines.threads import off_loop

        if not await off_loop(self._is_remote, task):
            return await self._driving.adrive(task)
        await off_loop(self._hand_over, task)
        await await_end(self._looks(task.task_id))
        return await off_loop(self._end, task)

    def start(
        self, spec: Spec, args: tuple[Any, ...], kwargs: dict[str, Any], given: TaskOptions
    ) -> str:
        """Make a task and leave it to who drives such tasks; returns its id."""
        if not self.driver:
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
        return read_state(self._store, stream_of(task.task_id)).driver == self.driver

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
        if task.continues and state.status == "paused":
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
                # Whoever drove it to its end is about to let go of it.
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
            state = read_state(self._store, stream_of(task.task_id))
            must_be_driven_by(state, self.driver)
            if task.reopens and state.status in FINISHED:
                raise
            if task.args_hash and (state.task, state.args_hash) != (task.spec.name, task.args_hash):
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
        if self._store.inbox([stream_of(waiting.task_id)]):
            return
        for _ in tail.read():
            pass
        waits = standstill(tail.state, self._state_of)
        if waits is not None and str(waits) == str(waiting):
            raise waiting

    def _state_of(self, id: str) -> State:
        return read_state(self._store, stream_of(id))

    def _end(self, task: Begin) -> Any:
        state = read_state(self._store, stream_of(task.task_id))
        return recorded_end(self._store, state, task.spec)
