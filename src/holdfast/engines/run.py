"""A task while it is being driven: its log, whether it must stop, and who tells it to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NoReturn, Protocol
from weakref import WeakSet

from holdfast.engines.clocks import Countdown
from holdfast.engines.driver import Driver
from holdfast.errors import (
    Halt,
    HoldfastError,
    Signal,
    Stop,
    Suspend,
    TaskPaused,
    TaskReleased,
    TaskWaiting,
)
from holdfast.events import (
    AnyEvent,
    CancelRequested,
    Failure,
    Moved,
    PauseRequested,
    PlanItem,
    TaskContinued,
)
from holdfast.journal import Asked, Raised, Returned
from holdfast.log import Appended, Log
from holdfast.scope import Scope, scope_var
from holdfast.spec import Spec
from holdfast.state import State, scope_of


class Family(Protocol):
    """What a run asks about the tasks that it starts."""

    def must_be_free(self, id: str, parent: str) -> None:
        """Raise `BadInput` if another task has the id that a child is to have."""

    def create(self, id: str, name: str, args: bytes, parent: State, path: str) -> None:
        """Make the log of a child, if it is not there yet."""

    def outcome(self, id: str) -> Returned | Raised | None:
        """How a child ended; None if it has not."""

    def drive(self, id: str) -> None:
        """Drive a child here until it ends, waits, or turns out to be driven elsewhere."""

    async def adrive(self, id: str) -> None:
        """The same on the running loop."""

    def cancel(self, id: str, *, wait: bool) -> None:
        """Ask a child to end; with `wait`, see to it that it does."""


class Answers(Protocol):
    """Who knows the outcomes of calls that a task has not made: of a fork, or of a replay."""

    def passing(self, asked: Asked) -> None:
        """The code has come to a call, answered or not. An error stops the task there."""

    def find(self, asked: Asked, log: Log) -> Sequence[AnyEvent] | None:
        """The outcome of a call that has none yet, after what happened inside it; None if it is
        to be made.

        What must not be made, and has none, is an error, which stops the task; or its path is
        added to `run.beyond`, and only the strand that makes it is stopped.
        """

    def settle(self, path: str) -> Sequence[AnyEvent]:
        """What is known of a call that was begun, and has to be settled before it is undone."""

    def seen(self, path: str) -> None:
        """The code has come to something that it reads, such as the time."""


class Run:
    """One process's time with a task."""

    def __init__(
        self,
        log: Log,
        task_id: str,
        driver: Driver,
        *,
        family: Family | None = None,
        patience_s: float | None = None,
        is_rehearsal: bool = False,
        attends: bool = True,
    ) -> None:
        self.log = log
        self.task_id = task_id
        self.driver = driver
        self.family = family
        self.patience_s = patience_s
        """How long it waits in this process; a task that has to wait for longer is let go of."""
        self.is_rehearsal = is_rehearsal
        """Whether it only finds out if the code fits the log: nothing is called or written."""
        self.is_replay = False
        """Whether a log that is written already answers: nothing but the code in between runs."""
        self.answers: Answers | None = None
        self.beyond: set[str] = set()
        """The calls that may not be made in this run: whoever makes one stops there."""
        self.stop: Signal | None = None
        self.doomed: dict[str, Signal] = {}
        self.root = Scope(self, "")
        self.in_flight: dict[str, Any] = {}
        self.branches: set[Any] = set()
        self.cut_off: set[str] = set()
        """The branches of asyncio that were cancelled before they came to their end."""
        self.inner: set[Run] = set()
        """The tasks that this one drives, while it waits for them."""
        self.woken = threading.Event()
        self._deadline: Countdown | None = None
        self.on_interrupt: Callable[[Signal], None] | None = None
        self.spec: Spec | None = None
        self.checkpoints: Any = None
        """What `checkpoint` and `restore` remember between them."""
        self.plan: tuple[PlanItem, ...] | None = None
        """The plan at the place that the code has come to; None while it has not spoken of it."""
        self.plan_seq = 0
        """The event that this plan is from."""
        self.alarm: Any = None
        """Of the async driver: what waits on its loop."""
        self.loop: Any = None
        self.lines: Any = None
        """Of the async driver: its loop, and where it waits for the store with others."""
        self.is_over = False
        self.working: set[str] = set()
        """The calls that threads are making now."""
        self.streams: WeakSet[Any] = WeakSet()
        """The streams that were begun in this run, and may still be read."""
        self.has_streamed = False
        """Whether there ever was one, also one that runs on the loop."""
        self.draining: set[str] = set()
        """The streams whose readers have left, and which run to their end."""
        if not attends:  # messages reach the task by way of its engine
            return
        log.seen, log.waits = log.messages, []
        log.attended = self
        if log.state.status == "paused":  # since somebody looked, and before we could hear it
            self.stop = Suspend(TaskPaused(task_id, log.state.because))

    def begin(self, spec: Spec) -> None:
        """The task's function is about to run: others may see that it does."""
        self.spec = spec
        try:
            self.log.flush()
        except HoldfastError as error:
            self.halt(error)

    @property
    def checkpoints_passed(self) -> int:
        """How many checkpoints lie behind the place that the function has come to."""
        return self.driver.checkpoints_passed(self)

    @property
    def is_ending(self) -> bool:
        """Whether what the task did is being undone, at the place that it has come to."""
        return self.driver.is_ending(self)

    # Being told to stop

    def hear(self, event: AnyEvent) -> None:
        """Take notice of an event that came from outside."""
        if isinstance(event, TaskContinued):
            if isinstance(self.stop, Suspend) and isinstance(self.stop.waiting, TaskPaused):
                self.stop = None
                self.woken.clear()
        elif isinstance(event, CancelRequested):
            self.interrupt(Stop(event.because))
        elif isinstance(event, PauseRequested):
            self.interrupt(Suspend(TaskPaused(self.task_id, event.because)))
        elif isinstance(event, Moved):
            self.interrupt(moved(self.task_id, event.engine))

    def tick(self) -> None:
        """Look at the clock: the task's time may be up."""
        until = self.log.state.until
        if until is None or self.stop is not None or self.is_ending:
            return
        if self.is_replay:  # its clock stands still
            is_up = self.log.clock() >= until
        else:
            if self._deadline is None or self._deadline.until != until:
                self._deadline = Countdown(until, self.log.clock)
            is_up = self._deadline.left_s() <= 0
        if is_up:
            self.interrupt(time_is_up(until))

    def interrupt(self, signal: Signal) -> None:
        """Stop the task's function at its next call, and whatever waits in it now."""
        if self.is_ending and isinstance(signal, Stop):
            return  # what is being undone is ending already
        if self.stop is None or (isinstance(signal, Stop) and isinstance(self.stop, Suspend)):
            self.stop = signal
        self.woken.set()
        if self.on_interrupt is not None:
            self.on_interrupt(signal)
        for run in list(self.inner):
            released = TaskReleased(run.task_id, f"task {run.task_id!r}: its parent was stopped")
            run.interrupt(Suspend(released))

    def wait(self, seconds: float) -> None:
        """Wait for a while, or until the task is told something."""
        self.woken.wait(seconds)

    def begin_to_end(self) -> None:
        """Forget what stopped the function: what has to be done now comes after it."""
        self.stop = None
        self.doomed.clear()
        self.woken.clear()
        self.driver.begin_to_end()

    # Stopping

    def halt(self, error: HoldfastError, path: str = "") -> NoReturn:
        """Stop the task's function here and at every later call: the run can't go on.

        It sticks because a function may catch the signal, or have other branches.
        """
        self.raise_in(path, self.halted(error))

    def halted(self, error: HoldfastError) -> Halt:
        """The signal that `halt` raises, for who has to raise it himself."""
        self.stop = Halt(error)
        return self.stop

    def park(self, path: str, waiting: TaskWaiting) -> NoReturn:
        """Stop the task's function until what the call waits for has come.

        One of several branches stops alone: the others work on, and who joins them stops the run.
        """
        signal = Suspend(waiting)
        self.log.waits.append(waiting.until)
        strand = scope_var.get()
        if strand is None or not strand.is_in_branch():
            self.stop = self.stop or signal
        self.raise_in(path, signal)

    def raise_in(self, path: str, signal: Signal) -> NoReturn:
        """Raise a signal from a call. The calls it was made in can't end in this run, even if
        their bodies catch it: they would be recorded with a result that was never right."""
        scope = scope_of(path)
        while scope:
            self.doomed[scope] = signal
            scope = scope_of(scope)
        raise signal

    def must_go_on(self, path: str) -> None:
        """Raise what the task was told meanwhile."""
        if self.is_stopped(path):
            self.raise_in(path, self.stop or Halt(HoldfastError("stopped")))

    def must_go_on_in(self, scope: Scope) -> None:
        """The same for what a strand does that is no call."""
        self.must_go_on(f"{scope.path}.0")

    def is_failure(self, error: BaseException) -> bool:
        """Whether what a function raised is a failure of its own. What ends a program, such as
        `sys.exit`, is none where this program may end; on a remote engine it may not, as others
        are driven in it."""
        if isinstance(error, Exception):
            return True
        if isinstance(error, Signal | GeneratorExit) or self.is_over:
            return False
        return self.patience_s is not None and not self.driver.may_exit

    def is_stopped(self, path: str) -> bool:
        """Whether the task is to stop at a call. Inside a tool only if it can't go on at all: a
        tool that is stopped half-way is in doubt, so it comes to its end first."""
        if self.stop is None:
            return False
        return isinstance(self.stop, Halt) or not self.is_in_tool(path)

    def is_in_tool(self, path: str) -> bool:
        """Whether a call is made by the body of a tool."""
        scope = scope_of(path)
        while scope:
            call = self.log.state.calls.get(scope)
            if call is not None and call.kind == "tool":
                return True
            scope = scope_of(scope)
        return False

    def may_act(self, path: str) -> bool:
        """Whether what a call asks for may be done: it is no rehearsal, nor where one ends."""
        return not self.is_rehearsal and path not in self.beyond

    @property
    def is_idle(self) -> bool:
        """Whether what the code does beside its calls is to have no effect outside."""
        return self.is_rehearsal or self.is_replay

    def is_patient(self, path: str) -> bool:
        """Whether a call waits here, for as long as it takes."""
        return self.patience_s is None or self.is_in_tool(path)

    def is_too_long(self, until: datetime, path: str) -> bool:
        """Whether a time is too far away for a call to wait for it here."""
        if self.patience_s is None or self.is_in_tool(path):
            return False
        return (until - self.log.clock()).total_seconds() > self.patience_s

    # Writing

    def must_hold(self) -> None:
        """Halt if another may drive the task by now. To be asked before a body runs: a process
        that was frozen does not know that its next step has been made meanwhile."""
        tenure = self.log.tenure
        while tenure is not None and not tenure.is_sure():
            try:
                tenure.confirm()
            except HoldfastError as error:
                self.halt(error)

    def append(self, event: Appended, strand: Scope | None = None) -> None:
        """Append; what the store refuses halts the run."""
        try:
            self.log.append(event, strand)
        except HoldfastError as error:
            self.halt(error)

    def sync(self) -> None:
        """Sync; what the store refuses halts the run."""
        try:
            self.log.sync()
        except HoldfastError as error:
            self.halt(error)


def moved(task_id: str, driver: str) -> Suspend:
    """The signal for a task that somebody gave to another engine."""
    to = driver or "local"
    return Suspend(TaskReleased(task_id, f"task {task_id!r} was moved: from here on it is {to}'s"))


def time_is_up(until: datetime) -> Stop:
    """The signal for a task that did not end in time."""
    message = f"the task did not end by {until:%Y-%m-%d %H:%M:%S %Z}"
    return Stop(message, Failure("TaskTimedOut", message, module="holdfast", timed_out=True))
