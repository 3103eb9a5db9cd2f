"""Giving a task that is under way to another engine, which goes on with it at its next step.

The log has all that a task has done, asked, set and started, so moving it is one event there. The
driver releases the task when it reads that event, and the engine named in it is told to go on. Its
open children go first, the innermost before all others. So wherever a move is cut short, every task
has somebody who drives it: those that were moved have, by the workers of the new engine, who look
for tasks that it was not told of; those that were not, have whom they had before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from shlex import quote

from msgspec import Raw

from holdfast.core.events import Claimed, Moved
from holdfast.core.fold.waits import perhaps_open
from holdfast.core.state import FINISHED, State
from holdfast.core.words import checked_id, must_be_texts
from holdfast.engines.control import must_be_there
from holdfast.engines.execution import is_open_child
from holdfast.engines.holder import Holding
from holdfast.engines.local.worker import Local
from holdfast.engines.port import Engine, Job
from holdfast.engines.routing import LOCAL, called, driven_by, driver_of, hand_over, job_for, warn
from holdfast.errors import BadInput, EngineConflict, EngineError, TaskBusy
from holdfast.log.reading import pause, stream_of
from holdfast.log.states import load
from holdfast.log.store_calls import holder_of, inbox_of, unpost

_MOVED = "moved-"
"""How the names of the messages begin that ask a task to go elsewhere."""

_POLL_S = 0.05


def move(
    holding: Holding,
    ours: Engine,
    id: str,
    engine: Engine | str | None,
    *,
    by: str,
    timeout_s: float,
    force: bool,
) -> tuple[str, ...]:
    """Give a task that is under way to another engine, or to ours: see `Holdfast.move`."""
    if engine == LOCAL:
        engine = Local()
    if isinstance(engine, str):
        raise BadInput(
            f"move({id!r}, {engine!r:.60}): give the engine itself, such as "
            f"Temporal('host:port'), or 'local'"
        )
    must_be_texts(f"move({id!r})", by=by)
    must_be_there(holding.store, checked_id(id))
    kind = _ForcedMove if force else _Move
    wanted = kind(holding, ours, engine or ours, by, time.monotonic() + timeout_s)
    return wanted.carry_out(id)


class _Move:
    """A task and its open children on their way to an engine, moved by a process that was given
    another."""

    def __init__(
        self, holding: Holding, given: Engine, engine: Engine, by: str, give_up_at: float
    ) -> None:
        self._holding = holding
        self._given = given
        self._engine = engine
        self._driver = driver_of(engine)
        self._by = by or holding.owner
        self._give_up_at = give_up_at
        self._moved: list[str] = []

    def carry_out(self, id: str) -> tuple[str, ...]:
        """Move them; returns the ids of those that were not there yet."""
        state = self._state_of(id)
        self._must_be_sensible(state)
        _must_be_welcome(state, self._engine)
        try:
            self._move(id)
        except EngineError as error:
            if not self._moved:
                raise
            raise type(error)(f"{error}. Moved so far: {', '.join(self._moved)}") from error
        return tuple(self._moved)

    def _must_be_sensible(self, state: State) -> None:
        _must_be_open(state)
        there, here = repr(self._given), repr(self._engine)
        is_there = bool(state.driver) and state.driver == self._driver
        if is_there and self._given.name == self._driver and there != here:
            raise BadInput(
                f"task {state.id!r} is {self._driver}'s, and the log does not say of which one: to "
                f"take it from {there} to {here}, use force"
            )

    def _move(self, id: str) -> None:
        state = self._state_of(id)
        if state.seq == 0 or state.status in FINISHED or id in self._moved:
            return
        self._move_children(state)
        if self._has_to_leave(state):
            state = self._left(id)
            if state.driver == self._driver:
                self._moved.append(id)
            if state.status in FINISHED:
                return
            # Also the children that it started until it was released.
            self._move_children(state)
        # Also if it is there already: the process that moved it may have died before this.
        left_s = max(self._give_up_at - time.monotonic(), 0.0)
        hand_over(self._holding.store, self._engine, state, self._by, left_s)

    def _move_children(self, state: State) -> None:
        for child in _open_children(state):
            self._move(child)

    def _has_to_leave(self, state: State) -> bool:
        return state.driver != self._driver

    def _left(self, id: str) -> State:
        """Tell a task whose it is now, and wait until its present driver has released it."""
        holding, driver = self._holding, self._driver

        def make(state: State, stow: Callable[[bytes], Raw]) -> Moved:
            _must_be_open(state)
            return Moved(engine=driver, by=self._by)

        holding.tell(id, f"{_MOVED}{os.urandom(6).hex()}", make)
        while (state := self._state_of(id)).driver != driver and state.status not in FINISHED:
            self._wait(_not_heard(state, driver))
        # Its driver finishes a step. Others may have taken it up by now.
        while holding.store.holder(stream_of(id)) is not None and not _is_taken_up(state):
            if time.monotonic() >= self._give_up_at:
                break
            pause(holding.store, _POLL_S)
            state = self._state_of(id)
        return self._state_of(id)

    def _wait(self, error: EngineError) -> None:
        if time.monotonic() >= self._give_up_at:
            raise error
        pause(self._holding.store, _POLL_S)

    def _state_of(self, id: str) -> State:
        return load(self._holding.store, id, missing_ok=True)


class _ForcedMove(_Move):
    """The same, without a word to the engine that has them. From the event on that says so, nobody
    who drives a task for that engine may write to its log: see `must_not_be_taken`."""

    def carry_out(self, id: str) -> tuple[str, ...]:
        """Move them all, or none if somebody is at work on one of them."""
        state = self._state_of(id)
        if state.status == "failed" and state.driver:
            self._take(id)  # so that it can be tried again elsewhere
            return (id,)
        self._must_all_be_free(state)
        return super().carry_out(id)

    def _must_all_be_free(self, state: State) -> None:
        stream = stream_of(state.id)
        while driven_by(state) and (holder := holder_of(self._holding.store, stream)) is not None:
            self._wait(_is_held(state, holder))
        for child in _open_children(state):
            self._must_all_be_free(self._state_of(child))

    def _must_be_sensible(self, state: State) -> None:
        _must_be_open(state)

    def _has_to_leave(self, state: State) -> bool:
        return bool(state.driver) or super()._has_to_leave(state)

    def _left(self, id: str) -> State:
        if self._state_of(id).driver:
            state = self._take(id)
            if state.driver == self._driver or state.status in FINISHED:
                return state
        return super()._left(id)  # its driver here hears of it as ever

    def _take(self, id: str) -> State:
        """Take a task from the engine that has it, when nobody has it in hand."""
        store, stream = self._holding.store, stream_of(id)
        while True:
            try:
                with self._holding.hold(id) as log:
                    driver, job = log.state.driver, job_for(log.state)
                    if not driver or log.state.status in ("completed", "cancelled"):
                        return log.state
                    log.append(Moved(engine=self._driver, by=self._by, forced=True))
                    log.sync()
                    # Older wishes, which nobody has heard, are not to undo this one.
                    for post in inbox_of(store, [stream]):
                        if post.name.startswith(_MOVED):
                            unpost(store, stream, post.name)
            except TaskBusy as error:
                state = self._state_of(id)
                if not state.driver:  # it was moved meanwhile
                    return state
                self._wait(_is_held(state, str(error)))
            else:
                self._stop(driver, job)
                return log.state

    def _stop(self, driver: str, job: Job) -> None:
        """End what the engine that had a task still has of it, if it can be told."""
        known = [each for each in (self._given, self._engine) if each.name == driver]
        try:
            if not known:
                raise EngineError("nobody said where it is: see HOLDFAST_ENGINE, or engine=…")
            known[0].stop(job)
        except EngineError as error:
            warn(
                f"task {job.id!r} was taken from {driver}, which was not told ({error}). What it "
                f"still has of it is refused by the log, and ended as soon as a worker of {driver} "
                f"comes upon it"
            )


def _is_taken_up(state: State) -> bool:
    """Whether a task that was moved has been driven by whom it was moved to."""
    return any(
        event.seq > state.driven_since and event.engine == called(state.driver)
        for event in state.trail
        if isinstance(event, Claimed)
    )


def _open_children(state: State) -> list[str]:
    return [call.child for call in perhaps_open(state.calls) if is_open_child(call)]


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
        force = (
            f". If {now} is gone for good, or can't go on with it, take it: "
            f"holdfast move {quote(state.id)} --engine {called(driver)} --force"
        )
    else:
        who, force = "who holds it has not heard of it", ""
    return EngineError(
        f"task {state.id!r} was to be moved from {called(now)} to {called(driver)}, and {who}. "
        f"The message stays in its inbox: it moves as soon as one has{force}"
    )


def _is_held(state: State, holder: str) -> EngineError:
    return EngineError(
        f"task {state.id!r} can't be taken from {called(state.driver)} while a worker has it in "
        f"hand ({holder}). Move it without force, or end that worker"
    )


def _must_be_open(state: State) -> None:
    if state.status in FINISHED:
        raise BadInput(
            f"task {state.id!r} is {state.status}: there is nothing left of it to be driven, so "
            f"it can't be moved"
        )
