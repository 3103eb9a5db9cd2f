"""The engine port: what drives tasks, seen from outside.

An engine has the whole of a task's life in its hands, and nothing of its log: that stays in the
store, where whatever the engine runs writes it. So an engine is asked for little:

    start     see to it that a task is driven, from an event on
    drive     run workers that do so: the task's function from its top, each call made once
    sleep     wake a task when its time has come
    wait      hold a task that waits for a message, at no cost
    signal    let it know that a message has come
    cancel    let it know that it is to end
    query     say what it knows of a task
    stop      forget a task, which somebody took from it

`start`, `tell`, `cancel`, `query` and `stop` are the methods of `Engine`; `worker` makes what
drives. A driven task asks its engine (for calls, sleeping, waiting) by a `Carrier`, in the package
that remote engines share.

Every message for a task is in the store before an engine is told of it, and every task before it is
started. So an engine that can't be reached, or is told twice, loses and repeats nothing: each
of its workers looks after its tasks, and tells it again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from holdfast.core.state import State
from holdfast.errors import EngineError


class RunOver(EngineError):
    """An engine had a run of a task from an event on, and it is over: it begins no other there."""


class NotServed(EngineError):
    """An engine knows of nobody who has the code of a type of task."""

    def __init__(self, message: str, task: str) -> None:
        super().__init__(message)
        self.task = task


class Job(Struct, frozen=True):
    """A task as an engine knows it: which, of what type, and from which event on it drives it."""

    id: str
    task: str
    seq: int
    log: str = ""
    """The mark that tells its log from every other one with the same id, in another store."""


class Driven(Struct, frozen=True):
    """The knowledge of an engine about a task."""

    id: str
    status: Literal["running", "ended", "stopped"]
    """It is stopped if somebody ended it by the engine's own means, so that the task could do
    nothing more: to go on is for a person to say."""
    engine: str
    run: str = ""
    """The name of the engine itself for it, for its own tools."""
    started_at: datetime | None = None
    detail: str = ""


class EngineWorker(Protocol):
    """Drives the tasks of an engine in this process, until it is told to stop."""

    def run(self) -> None:
        """Drive tasks until `stop` is called; then finish the steps in hand and return."""

    def stop(self) -> None:
        """Take no more tasks. May be called from another thread, or from a signal handler."""


class Engine(Protocol):
    """The driver of tasks. The methods raise `EngineError` where it can't be reached."""

    @property
    def name(self) -> str:
        """What the log calls it: 'temporal'."""

    def start(self, job: Job) -> None:
        """See to it that a task is driven from an event on. Harmless if it is already, or if it is
        driven from a later one; a run from an earlier one is ended. `RunOver` from one that can't
        begin anew from the same event."""

    def tell(self, job: Job, message: str) -> None:
        """A message of that name was left for a task."""

    def cancel(self, job: Job) -> None:
        """A message that asks it to end was left for a task."""

    def query(self, job: Job) -> Driven | None:
        """The knowledge of the engine about a task; None if nothing, or only of an earlier time."""

    def stop(self, job: Job) -> None:
        """Drive a task no longer, whatever it is doing: it is somebody else's. Harmless if the
        engine does not. (Where this can't be said to it, its workers find the log closed to them.)
        """

    def worker(
        self, hf: Any, *, concurrency: int = 16, say: Callable[[str], None] | None = None
    ) -> EngineWorker:
        """The worker that drives its tasks in this process, for those in the store of `hf`."""

    def close(self) -> None:
        """Let go of what it holds: connections, threads."""


class Closes(Protocol):
    """Closes and opens bytes with a key of an encrypted store: see `stores.sealed.boxes.Box`."""

    def close(self, data: bytes, *about: str | int) -> bytes:
        """The bytes, encrypted; to be opened with the same `about` only."""

    def open(self, box: bytes, *about: str | int) -> bytes | None:
        """The opened content; None if it was changed, or closed with another key or `about`."""


@runtime_checkable
class KeepsValues(Protocol):
    """An engine that keeps some of the values of tasks itself, and so has to encrypt them."""

    def encrypt_with(self, box: Closes | None) -> None:
        """Keep nothing readable, if there is a box. Called by the `Holdfast` it is given to."""


def job_of(state: State, log: str = "") -> Job:
    """The facts that an engine has to know of a task.

    >>> job_of(State(id="trip-42", task="plan_trip", driven_since=7))
    Job(id='trip-42', task='plan_trip', seq=7, log='')
    """
    return Job(state.id, state.task, state.driven_since, log)
