"""Giving a task that is under way to another engine, which goes on with it at its next step.

What a task has done, asked, set and started is in its log, so moving it is one event there: whoever
drives the task lets go of it when he has read that, and the engine named in it is told to go on.
Its open children go first, the innermost before all others. So wherever a move is cut short, every
task has somebody who drives it: those that were moved have, by the workers of the new engine, who
look for tasks that it was not told of; those that were not, have whom they had before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Literal

from msgspec import Raw

from holdfast.control import must_be_there
from holdfast.engines.elsewhere import LOCAL, called, driven_by, driver_of, job_for, warn
from holdfast.engines.execution import is_open_child
from holdfast.engines.holding import Holding
from holdfast.engines.port import Engine, Job
from holdfast.errors import BadInput, EngineConflict, EngineError, TaskBusy
from holdfast.events import Moved
from holdfast.fold.waits import perhaps_open
from holdfast.locally import Local
from holdfast.news import pause
from holdfast.reading import read_state, stream_of
from holdfast.state import FINISHED, State
from holdfast.words import checked_id, must_be_texts

_POLL_S, _STOP_S = 0.05, 1.0


class Moving:
    """The part of `Holdfast` that gives tasks from one engine to another."""

    engine: Engine
    _holding: Holding

    def move(
        self,
        id: str,
        engine: Engine | Literal["local"] | None = None,
        *,
        by: str = "",
        timeout_s: float = 30.0,
        force: bool = False,
    ) -> tuple[str, ...]:
        """Give a task that is under way to another engine; returns the ids of what was moved.

        To that of this object if none is named, or with "local" to this process and any worker.
        Whoever drives the task finishes the step in hand first. What it waits for (answers, times,
        retries, children) goes along, and so do its open children. None are returned if it is
        there already. `EngineError` if nobody who drives it has heard of it after `timeout_s`.

        With `force` the engine that drives it is not asked: for one that is gone, or that can't go
        on with the task because its code no longer fits. What is left of it there may do nothing
        more for the task, and is ended if that engine is the one of this object. Given the engine
        that has it, it begins anew there.

        >>> from holdfast import Holdfast, ask, task
        >>> @task
        ... def moving_house() -> bool:
        ...     return ask("Ready?", bool)
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.start(moving_house, id="moving_house-1")
        ...     hf.move("moving_house-1", "local")
        ()
        """
        if engine == LOCAL:
            engine = Local()
        if isinstance(engine, str):
            raise BadInput(
                f"move({id!r}, {engine!r:.60}): give the engine itself, such as "
                f"Temporal('host:port'), or 'local'"
            )
        must_be_texts(f"move({id!r})", by=by)
        must_be_there(self._holding.store, checked_id(id))
        target, give_up_at = engine or self.engine, time.monotonic() + timeout_s
        if force:
            return _ForcedMove(self._holding, target, by, give_up_at, self.engine).carry_out(id)
        return _Move(self._holding, target, by, give_up_at).carry_out(id)


class _Move:
    """A task and its open children on their way to an engine."""

    def __init__(self, holding: Holding, engine: Engine, by: str, give_up_at: float) -> None:
        self._holding = holding
        self._engine = engine
        self._driver = driver_of(engine)
        self._by = by or holding.owner
        self._give_up_at = give_up_at

    def carry_out(self, id: str) -> tuple[str, ...]:
        """Move them; returns the ids of those that were not there yet."""
        state = self._state_of(id)
        _must_be_open(state)
        _must_be_welcome(state, self._engine)
        return tuple(dict.fromkeys(self._moved(id)))

    def _moved(self, id: str) -> Iterator[str]:
        state = self._state_of(id)
        if state.seq == 0 or state.status in FINISHED:
            return
        yield from self._children(state)
        if self._has_to_leave(state):
            state = self._left(id)
            if state.status in FINISHED:
                return
            yield id
            # Those that it started until it was let go of.
            yield from self._children(state)
        # Also if it is there already: who moved it may have died before this.
        self._engine.start(job_for(state))

    def _children(self, state: State) -> Iterator[str]:
        for call in list(perhaps_open(state.calls)):
            if is_open_child(call):
                yield from self._moved(call.child)

    def _has_to_leave(self, state: State) -> bool:
        return state.driver != self._driver

    def _left(self, id: str) -> State:
        """Tell a task whose it is now, and wait until whoever has it in hand has let go of it."""
        holding, driver = self._holding, self._driver

        def make(state: State, stow: Callable[[bytes], Raw]) -> Moved:
            _must_be_open(state)
            return Moved(engine=driver, by=self._by)

        holding.tell(id, f"moved-{os.urandom(6).hex()}", make)
        while (state := self._state_of(id)).driver != driver and state.status not in FINISHED:
            self._wait(_not_heard(state, driver))
        stream = stream_of(id)
        while holding.store.holder(stream) is not None and time.monotonic() < self._give_up_at:
            pause(holding.store, _POLL_S)
        return self._state_of(id)

    def _wait(self, error: EngineError) -> None:
        if time.monotonic() >= self._give_up_at:
            raise error
        pause(self._holding.store, _POLL_S)

    def _state_of(self, id: str) -> State:
        return read_state(self._holding.store, stream_of(id))


class _ForcedMove(_Move):
    """The same, without a word to the engine that has them. From the event on that says so, nobody
    who drives a task for that engine may write to its log: see `must_not_be_taken`."""

    def __init__(
        self, holding: Holding, engine: Engine, by: str, give_up_at: float, present: Engine
    ) -> None:
        super().__init__(holding, engine, by, give_up_at)
        self._present = present

    def _has_to_leave(self, state: State) -> bool:
        return bool(state.driver) or super()._has_to_leave(state)

    def _left(self, id: str) -> State:
        stop_at = time.monotonic()
        while driver := driven_by(state := self._state_of(id)):
            job = job_for(state)
            try:
                with self._holding.hold(id) as log:
                    if job_for(log.state) != job:
                        continue  # it was moved meanwhile
                    log.append(Moved(engine=self._driver, by=self._by, forced=True))
                    log.sync()
            except TaskBusy as error:
                if time.monotonic() >= self._give_up_at:
                    self._have(driver, self._present.start, job)
                    raise _is_held(id, driver, error) from error
                if time.monotonic() >= stop_at:
                    # A run that fails, and is tried again at once, would hold it for ever.
                    self._have(driver, self._present.stop, job)
                    stop_at = time.monotonic() + _STOP_S
                pause(self._holding.store, _POLL_S)
            else:
                if trouble := self._have(driver, self._present.stop, job):
                    warn(
                        f"task {id!r} was taken from {driver}, which was not told ({trouble}). "
                        f"What it still has of it can do nothing more: end that there, by hand"
                    )
                return log.state
        if state.status in FINISHED:
            return state
        return super()._left(id)  # whoever drives it here hears of it as ever

    def _have(self, driver: str, do: Callable[[Job], None], job: Job) -> EngineError | None:
        """Have the present engine do something, if it is the one; returns why it did not."""
        if self._present.name == driver:
            try:
                do(job)
            except EngineError as error:
                return error
        return None


def _must_be_welcome(state: State, engine: Engine) -> None:
    """Leave a task where it is that the engine would not take: its id is taken there."""
    try:
        engine.query(job_for(state))
    except EngineConflict:
        raise
    except EngineError as error:
        who = called(driven_by(state))
        raise EngineError(f"{error}. Task {state.id!r} was not moved: it is {who}'s") from error


def _not_heard(state: State, driver: str) -> EngineError:
    now = driven_by(state)
    if now:
        who = f"no worker of {now} has heard of it (holdfast worker --engine {now} …)"
        force = f". If {now} is gone for good, take it: holdfast move --force, or force=True"
    else:
        who, force = "who holds it has not heard of it", ""
    return EngineError(
        f"task {state.id!r} was to be moved from {called(now)} to {called(driver)}, and {who}. "
        f"The message stays in its inbox: it moves as soon as one has{force}"
    )


def _is_held(id: str, driver: str, error: TaskBusy) -> EngineError:
    return EngineError(
        f"task {id!r} can't be taken from {driver} while one of its workers is at work "
        f"on it ({error}). Try again when it has finished its step, or end that worker"
    )


def _must_be_open(state: State) -> None:
    if state.status in FINISHED:
        raise BadInput(
            f"task {state.id!r} is {state.status}: there is nothing left of it to be driven, so "
            f"it can't be moved"
        )
