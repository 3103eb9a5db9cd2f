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
from holdfast.engines.elsewhere import LOCAL, called, driven_by, driver_of, job_for
from holdfast.engines.execution import is_open_child
from holdfast.engines.holding import Holding
from holdfast.engines.port import Engine
from holdfast.errors import BadInput, EngineConflict, EngineError
from holdfast.events import Moved
from holdfast.fold.waits import perhaps_open
from holdfast.locally import Local
from holdfast.news import pause
from holdfast.reading import read_state, stream_of
from holdfast.state import FINISHED, State
from holdfast.words import checked_id, must_be_texts

_POLL_S = 0.05


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
    ) -> tuple[str, ...]:
        """Give a task that is under way to another engine; returns the ids of what was moved.

        To that of this object if none is named, or with "local" to this process and any worker.
        Whoever drives the task finishes the step in hand first. What it waits for (answers, times,
        retries, children) goes along, and so do its open children. None are returned if it is
        there already. `EngineError` if nobody who drives it has heard of it after `timeout_s`.

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
            return move(self._holding, checked_id(id), Local(), by, timeout_s)
        if isinstance(engine, str):
            raise BadInput(
                f"move({id!r}, {engine!r:.60}): give the engine itself, such as "
                f"Temporal('host:port'), or 'local'"
            )
        return move(self._holding, checked_id(id), engine or self.engine, by, timeout_s)


def move(holding: Holding, id: str, engine: Engine, by: str, timeout_s: float) -> tuple[str, ...]:
    """Give a task and its open children to an engine; the ids of those that were not its yet."""
    must_be_texts(f"move({id!r})", by=by)
    must_be_there(holding.store, id)
    state = _state_of(holding, id)
    _must_be_open(state)
    _must_be_welcome(state, engine)
    give_up_at = time.monotonic() + timeout_s
    moved = list(_moved(holding, id, engine, by, give_up_at))
    return tuple(dict.fromkeys(moved))


def _must_be_welcome(state: State, engine: Engine) -> None:
    """Leave a task where it is that the engine would not take: its id is taken there."""
    try:
        engine.query(job_for(state))
    except EngineConflict:
        raise
    except EngineError as error:
        who = called(driven_by(state))
        raise EngineError(f"{error}. Task {state.id!r} was not moved: it is {who}'s") from error


def _moved(holding: Holding, id: str, engine: Engine, by: str, give_up_at: float) -> Iterator[str]:
    state = _state_of(holding, id)
    if state.seq == 0 or state.status in FINISHED:
        return
    yield from _children(holding, state, engine, by, give_up_at)
    if state.driver != driver_of(engine):
        state = _told(holding, id, engine, by, give_up_at)
        if state.status in FINISHED:
            return
        yield id
        # Those that it started until it was let go of.
        yield from _children(holding, state, engine, by, give_up_at)
    engine.start(job_for(state))  # also if it is there: who moved it may have died before this


def _children(
    holding: Holding, state: State, engine: Engine, by: str, give_up_at: float
) -> Iterator[str]:
    for call in list(perhaps_open(state.calls)):
        if is_open_child(call):
            yield from _moved(holding, call.child, engine, by, give_up_at)


def _told(holding: Holding, id: str, engine: Engine, by: str, give_up_at: float) -> State:
    """Tell a task whose it is now, and wait until whoever has it in hand has let go of it."""
    driver, stream = driver_of(engine), stream_of(id)

    def make(state: State, stow: Callable[[bytes], Raw]) -> Moved:
        _must_be_open(state)
        return Moved(engine=driver, by=by or holding.owner)

    name = f"moved-{os.urandom(6).hex()}"
    holding.tell(id, name, make)
    while (state := _state_of(holding, id)).driver != driver and state.status not in FINISHED:
        _wait(holding, give_up_at, _not_heard(state, driver))
    while holding.store.holder(stream) is not None and time.monotonic() < give_up_at:
        pause(holding.store, _POLL_S)
    return _state_of(holding, id)


def _wait(holding: Holding, give_up_at: float, error: EngineError) -> None:
    if time.monotonic() >= give_up_at:
        raise error
    pause(holding.store, _POLL_S)


def _not_heard(state: State, driver: str) -> EngineError:
    now = driven_by(state)
    if now:
        who = f"no worker of {now} has heard of it (holdfast worker --engine {now} …)"
    else:
        who = "who holds it has not heard of it"
    return EngineError(
        f"task {state.id!r} was to be moved from {called(now)} to {called(driver)}, and {who}. "
        f"The message stays in its inbox: it moves as soon as one has"
    )


def _state_of(holding: Holding, id: str) -> State:
    return read_state(holding.store, stream_of(id))


def _must_be_open(state: State) -> None:
    if state.status in FINISHED:
        raise BadInput(
            f"task {state.id!r} is {state.status}: there is nothing left of it to be driven, so "
            f"it can't be moved"
        )
