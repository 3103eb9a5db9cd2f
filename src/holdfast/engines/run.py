"""A task while it is being driven: its log, whether it must stop, and who tells it to."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Awaitable, Callable, Container, Generator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from weakref import WeakSet

import msgspec

from holdfast.codec import Shape, shape_of
from holdfast.codec.pydantic_types import is_model
from holdfast.core.decoding import is_too_deep
from holdfast.core.events import (
    AnyEvent,
    CancelRequested,
    Failure,
    Moved,
    PauseRequested,
    PlanItem,
    TaskContinued,
)
from holdfast.core.journal import Asked, Raised, Returned
from holdfast.core.scope import RunningTask, Scope, scope_var
from holdfast.core.spec import Spec
from holdfast.core.state import HALTED, State, scope_of
from holdfast.engines.clocks import Countdown
from holdfast.engines.driver import Driver
from holdfast.errors import (
    BadInput,
    Halt,
    HoldfastError,
    Signal,
    Stop,
    Suspend,
    TaskPaused,
    TaskReleased,
    TaskStuck,
    TaskWaiting,
)
from holdfast.log.log import Appended, Log

if TYPE_CHECKING:
    import asyncio

    from holdfast.engines.loops import Alarm


class Syncs(Protocol):
    """Where tasks of one loop wait for the store together."""

    def sync(self, log: Log) -> Awaitable[None]:
        """Done when everything appended to a log so far is durable."""


class Family(Protocol):
    """The questions of a run about the tasks that it starts."""

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

    def send(self, id: str, name: str, value: Any, key: str, by: str) -> bool:
        """Send a message to any task; False if it was sent before under that key."""

    def cancel(self, id: str, *, wait: bool) -> None:
        """Ask a child to end; with `wait`, see to it that it does."""


class Answers(Protocol):
    """Knows the outcomes of calls that a task has not made: those of a fork, or of a replay."""

    def passing(self, asked: Asked) -> None:
        """The code has come to a call, answered or not. An error stops the task there."""

    def find(self, asked: Asked, log: Log) -> Sequence[AnyEvent] | None:
        """The outcome of a call that has none yet, after what happened inside it; None if it is
        to be made.

        A call that must not be made, and has none, is an error, which stops the task; or its path
        is added to `run.beyond`, and only the strand that makes it is stopped.
        """

    def settle(self, path: str) -> Sequence[AnyEvent]:
        """The events that settle a call that was begun, before it is undone."""

    def seen(self, path: str) -> None:
        """The code has reached something that it reads, such as the time."""


class Checkpoints(msgspec.Struct):
    """The knowledge of a run about its checkpoints."""

    shape: Shape
    newest: Any = msgspec.UNSET
    """The last one, as plain data; unset if the next has to be whole."""


class OnLoop:
    """The knowledge of an async driver about a run: it is empty where no loop runs."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.alarm: Alarm | None = None
        """The bell for those that wait on the loop."""
        self.lines: Syncs | None = None
        """Where it waits for the store with others."""
        self.in_flight: dict[str, asyncio.Future[None]] = {}
        """The calls under way: a strand that has to stop waits for them."""
        self.branches: set[asyncio.Task[Any]] = set()
        self.cut_off: set[str] = set()
        """The branches that were cancelled before they ended; "" for the task's own body."""
        self.draining: set[str] = set()
        """The streams whose readers have left, and which run to their end."""


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
        attends: bool = True,
    ) -> None:
        self.log = log
        self.task_id = task_id
        self.driver = driver
        self.family = family
        self.patience_s = patience_s
        """How long it waits in this process; a task that has to wait for longer is released."""
        self.answers: Answers | None = None
        self.beyond: set[str] = set()
        """The calls that may not be made in this run: a strand that makes one stops there."""
        self.recorded: Container[str] | None = None
        """The calls of the log that this run only follows; None where it makes calls itself."""
        self.over: set[Scope | None] = set()
        """The strands that have been stopped."""
        self.stop: Signal | None = None
        self.doomed: dict[str, Signal] = {}
        self.root: Scope = Scope(self, "")
        self.loop: OnLoop = OnLoop()
        """The knowledge of an async driver about it."""
        self.inner: set[Run] = set()
        """The tasks that this one drives, while it waits for them."""
        self.woken: threading.Event = threading.Event()
        self.deadline: Countdown | None = None
        self.on_interrupt: Callable[[Signal], None] | None = None
        self.spec: Spec | None = None
        self.checkpoints: Checkpoints | None = None
        """The memory that `checkpoint` and `restore` share."""
        self.plan: tuple[PlanItem, ...] | None = None
        """The plan at the place that the code has come to; None while it has not spoken of it."""
        self.plan_seq = 0
        """The event that this plan is from."""
        self.is_over = False
        self.has_given_up = False
        """Whether an attempt timed out: a strand of it may still run, in its thread."""
        self.unawaited: dict[str, tuple[str, weakref.ref[Any]]] = {}
        """The async calls that were made and not awaited yet, by path: name and coroutine."""
        self.working: set[str] = set()
        """The calls that threads are making now."""
        self.admitted: dict[str, Any] = {}
        """The calls that their limit let in, and which have not ended: see `limits`."""
        self.streams: WeakSet[Generator[Any]] = WeakSet()
        """The streams that were begun in this run, and may still be read."""
        self.has_streamed = False
        """Whether there ever was one, also one that runs on the loop."""
        if not attends:  # messages reach the task by way of its engine
            return
        log.seen, log.waits = log.messages, []
        log.attended = self
        if log.state.status in HALTED:  # since somebody looked, and before we could hear it
            kind = TaskStuck if log.state.status == "stuck" else TaskPaused
            self.stop = Suspend(kind(task_id, log.state.because))

    def begin(self, spec: Spec) -> None:
        """The task's function is about to run: others may see that it does."""
        self.spec = spec
        try:
            self.log.flush()
        except HoldfastError as error:
            self.halt(error)

    def begins_to_await(self, work: Any) -> None:
        """An asyncio task is made of a coroutine, so somebody awaits it."""
        for path, (_, made) in list(self.unawaited.items()):
            if made() is work:
                del self.unawaited[path]

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
        if self.driver.has_come(self, until):
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
        """The signal that `halt` raises, for callers that have to raise it themselves."""
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
        self.over.add(scope_var.get())
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
        if scope in self.over or not self._ends_by_strand():
            self.must_go_on(f"{scope.path}.0")

    def is_failure(self, error: BaseException) -> bool:
        """Whether what a function raised is a failure of its own. An exception that ends a program,
        such as `sys.exit`, is none where this program may end; on a remote engine it may not, as
        others are driven in it."""
        if isinstance(error, Exception):
            return True
        if isinstance(error, Signal | GeneratorExit) or self.is_over:
            return False
        return self.patience_s is not None and not self.driver.may_exit

    def is_stopped(self, path: str) -> bool:
        """Whether the task is to stop at a call. Inside a tool only if it can't go on at all: a
        tool that is stopped half-way is in doubt, so it runs to its end first."""
        if self.stop is None:
            return False
        if self.recorded is not None and path in self.recorded and self._ends_by_strand():
            return False
        return isinstance(self.stop, Halt) or not self.is_in_tool(path)

    def _ends_by_strand(self) -> bool:
        """Whether a strand that stopped leaves the others alone: those of a replay go on until each
        has come to the end of the log, or it would depend on which thread came there first."""
        return self.recorded is not None and isinstance(self.stop, Suspend)

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
        """Whether what a call asks for may be done: the run may write, and goes on there."""
        return self.driver.writes and path not in self.beyond

    def must_write(self, path: str) -> None:
        """End a run here that may not add to its log."""
        if not self.driver.writes:
            self.park(path, beyond(self, path))

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


def begun_here(run: Run) -> RunningTask:
    """A run whose function begins now, in this thread."""
    return RunningTask(run.task_id, threading.current_thread(), WeakSet(threading.enumerate()))


def beyond(run: Run, path: str) -> TaskWaiting:
    """Why a run ends that may not add to its log."""
    return TaskWaiting(run.task_id, f"task {run.task_id!r}: the log ends before call {path}")


def moved(task_id: str, driver: str) -> Suspend:
    """The signal for a task that somebody gave to another engine."""
    to = driver or "local"
    return Suspend(TaskReleased(task_id, f"task {task_id!r} was moved: from here on it is {to}'s"))


def time_is_up(until: datetime) -> Stop:
    """The signal for a task that did not end in time."""
    message = f"the task did not end by {until:%Y-%m-%d %H:%M:%S %Z}"
    return Stop(message, Failure("TaskTimedOut", message, module="holdfast", timed_out=True))


# The words of a task beside its calls: how it gets into the log.


_any = shape_of(Any)


def record(scope: Scope, event: Appended) -> None:
    """Append what a task said, and wait until it is durable, if the run may write at all."""
    if not scope.run.driver.writes:
        return
    append(scope, event)
    scope.run.sync()


def append(scope: Scope, event: Appended) -> None:
    """Append it, and let the next sync make it durable."""
    try:
        scope.run.log.append(event, scope)
    except BadInput:
        raise  # the caller's mistake, and nothing was written
    except HoldfastError as error:
        scope.run.halt(error)


def plain(value: Any) -> bytes:
    """Options and data, which are for people and views: classes are shown as their fields."""
    try:
        return _any.dump(value)
    except HoldfastError:
        try:
            data = msgspec.json.encode(value, enc_hook=_as_shown)
            if is_too_deep(data):
                raise RecursionError
            return data
        except RecursionError:
            raise BadInput(f"a {type(value).__name__} is nested too deep to be recorded") from None
        except (UnicodeError, ValueError) as error:
            raise BadInput(f"{value!a:.60} can't be recorded: {error}") from None


def _as_shown(value: Any) -> Any:
    """A model as its fields; what is no data, by its own words."""
    if is_model(type(value)):
        try:
            return value.model_dump()
        except Exception:  # a serializer of the user's: what is only shown must not fail the task
            return repr(value)
    return repr(value)
