"""The course of a task on a remote engine: from where the engine begins to its end.

An engine runs `drive` in whichever way it runs code that it can run again. Everything that is not
the same each time is behind the carrier, or in the log.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast.codec.secret import provider
from holdfast.core.events import AnyEvent, CancelRequested, Moved, PauseRequested, TaskContinued
from holdfast.core.journal import conduct
from holdfast.core.kinds import id_of
from holdfast.core.spec import Spec, registry
from holdfast.core.state import FINISHED, State
from holdfast.engines import async_driver as aio
from holdfast.engines import sync_driver as local
from holdfast.engines.execution import older_code
from holdfast.engines.loops import Alarm
from holdfast.engines.mail import applies, deliver
from holdfast.engines.remote.carrier import Carrier, Pending
from holdfast.engines.remote.host import Host, Relatives
from holdfast.engines.remote.remote import Remote
from holdfast.engines.remote.strands import BodyLoop, Strand
from holdfast.engines.routing import CANCEL, halted, is_to_end, must_be_log
from holdfast.engines.run import Run, time_is_up
from holdfast.errors import Halt, HoldfastError, Signal, Stop, Suspend, TaskPaused
from holdfast.log.log import Log
from holdfast.log.reading import no_task
from holdfast.log.states import load
from holdfast.log.store_calls import inbox_of


class RunEnd(Struct, frozen=True):
    """The outcome of a run: the task ended, or it goes on in another run, or on another engine."""

    how: Literal["ended", "again", "moved"]
    status: str
    seq: int
    """Where the next run begins."""
    text: str = ""
    """Why the task ended so, if it failed or was cancelled."""
    result: Raw | UnsetType = UNSET


async def drive(host: Host, carrier: Carrier, task_id: str, seq: int, log: str = "") -> RunEnd:
    """Drive a task from the event `seq` on. Run again, it asks the carrier for the same.

    With `log` (see `Job`) it must be the task with that one: under the same id another store has
    another one, which is not touched.
    """
    if log:
        must_be_log(host.holding.store, task_id, log)
    course = Course(host, carrier, task_id, seq)
    try:
        return await course.run()
    finally:
        course.leave()


class Course:
    """One run of a task."""

    def __init__(self, host: Host, carrier: Carrier, task_id: str, seq: int) -> None:
        self._host = host
        self._carrier = carrier
        self._id = task_id
        self._told: list[AnyEvent] = []
        self._since = seq
        with self._hold() as log:
            if log.state.seq == 0:
                log.store.delete(log.lease)
                raise no_task(log.store, task_id)
            if log.state.status == "stuck":  # unless somebody said that it goes on
                deliver(log, inbox_of(log.store, [log.lease.stream]))
                if log.state.status == "stuck":
                    raise halted(log.state)
            log.flush()
            self._begun = load(log.store, task_id, seq)
            self._spec = registry.task(self._begun.task)
            if max(log.state.version, log.state.checkpoint_version) > self._spec.version:
                raise older_code(log.state, self._spec)
            family = Relatives(host)
            # It waits for nothing in this process; what stops it, stops the task and no more.
            self._remote = Remote(carrier, self._begun)
            self._run = Run(
                log, task_id, self._remote, family=family, patience_s=0.0, attends=False
            )
            self._remote.run = self._run
            self._log: Log | None = None
            self._use(log)
            host.driver.prepare(self._run)
        host.bodies[task_id] = self._run

    def _hold(self) -> AbstractContextManager[Log]:
        return self._host.hub.hold(self._id, self._since, self._host.patience_s)

    async def run(self) -> RunEnd:
        """Drive the task until it ends, or this run does."""
        begun = self._begun
        if begun.status in FINISHED:
            return self._end("ended")
        if begun.driver != self._host.engine:
            return self._end("moved")
        if begun.status == "paused":
            return await self._paused()
        deadline: Pending | None = None
        if begun.until is not None and not begun.ending:
            deadline = self._carrier.sleep(begun.until)
        root = self._remote.strands.begin(self._conduct)
        return await self._steer(root, deadline) or await self._stopped(root)

    async def _steer(self, root: Strand, deadline: Pending | None) -> RunEnd | None:
        """Let the strands of the task go on whenever something has come, until it ends; None if
        it was stopped."""
        while True:
            with self._hold() as log:
                self._use(log)
                self._hear()
                if deadline is not None and deadline.done() and self._begun.until is not None:
                    self._run.interrupt(time_is_up(self._begun.until))
                    deadline = None
                self._remote.strands.run()
                if root.done():
                    # Held until then: releasing a task that has ended closes its log.
                    return self._end("ended") if _is_over(root) else None
                if log.newest_word > log.flushed:
                    log.flush()
            pendings = self._remote.strands.pendings()
            await self._carrier.first([*pendings, deadline] if deadline else pendings)

    async def _stopped(self, root: Strand) -> RunEnd:
        if isinstance(root.error, Halt):
            raise root.error.error from root.error.__cause__
        if any(isinstance(event, Moved) for event in self._told):
            return self._end("moved")
        if isinstance(root.error, Suspend) and isinstance(root.error.waiting, TaskPaused):
            return await self._paused()
        return self._end("again")

    async def _paused(self) -> RunEnd:
        """Wait until somebody lets the task go on, ends it, or gives it to another engine."""
        # The messages since it was paused: a strand may have stopped long before the last did.
        pauses = [n for n, event in enumerate(self._told, 1) if isinstance(event, PauseRequested)]
        heard = max(pauses, default=0)
        while True:
            with self._hold() as log:
                self._use(log)
                self._hear()
            for event in self._told[heard:]:
                if isinstance(event, Moved):
                    return self._end("moved")
                if isinstance(event, TaskContinued | CancelRequested):
                    return self._end("again")
            await self._carrier.first([])

    def _end(self, how: Literal["ended", "again", "moved"]) -> RunEnd:
        with self._hold() as log:
            self._use(log)
            self._hear()  # the next run is not told again
            log.sync()
            state = log.state
            if how == "ended":
                self._host.driver.tell_parent(state)
            text = state.failure.summary() if state.failure is not None else state.because
            return RunEnd(how, state.status, state.seq, text, state.result)

    # What is heard

    def _hear(self) -> None:
        for name in self._carrier.messages():
            event = self._taken(name)
            # An engine may be told of a message more than once; a task is not.
            if event is not None and event not in self._told:
                self._told.append(event)
                self._remote.told(event)

    def _taken(self, name: str) -> AnyEvent | None:
        """The event that a message is in the log; None if it meant nothing any more."""
        log = self._run.log
        posts = [p for p in inbox_of(log.store, [log.lease.stream]) if _is_named(p.name, name)]
        deliver(log, posts)
        found = self._event(name)
        if found is None and name == CANCEL:  # by means of the engine itself
            asked = CancelRequested(by=self._host.engine, because="", post=CANCEL)
            if log.append(lambda state: asked if applies(state, asked) else None):
                log.sync()
                found = self._event(name)
        return found

    def _event(self, name: str) -> AnyEvent | None:
        for event in reversed(self._run.log.state.trail):
            if event.seq <= self._begun.seq:
                return None
            if _is_named(getattr(event, "post", ""), name):
                return event
        return None

    def _use(self, log: Log) -> None:
        """Go on with a log that may have been released, and taken hold of again, meanwhile."""
        self._run.log = log
        if log is self._log:
            return
        self._log = log
        if log.state.checkpoints > self._begun.checkpoints:
            # It was read from its newest checkpoint on; the function runs from an older one.
            log.flush()
            everything = load(log.store, id_of(log.lease.stream), missing_ok=True)
            for field in State.__struct_fields__:
                setattr(log.state, field, getattr(everything, field))

    # What is driven

    def _conduct(self) -> Any:
        run, spec, remote = self._run, self._spec, self._remote
        provider.set(self._host.holding.secrets)
        flow = conduct(None, _Live(run), spec.undo_when, self._begun)  # type: ignore[arg-type]
        if not spec.is_async:
            return local.drive(flow, run, "", self._once, local.nothing)
        remote.loop = loop = BodyLoop(self._carrier, remote.strands)  # type: ignore[abstract]
        loop.keep = remote.keep_what_was_said
        loop.left_with = lambda: run.stop if isinstance(run.stop, Suspend) else None
        try:
            return loop.run(_aconduct(run, spec, flow, loop, remote))
        except Suspend:
            remote.wait(remote.landing())
            raise

    def _once(self) -> Any:
        try:
            outcome = local.run_function(self._run, self._spec)
        except Suspend:
            self._remote.wait(self._remote.landing())
            raise
        self._remote.wait(self._remote.landing())
        return outcome

    def leave(self) -> None:
        """End what the task does in this process."""
        if self._run.stop is None:
            self._run.stop = Halt(HoldfastError(f"task {self._id!r} goes on elsewhere"))
        self._remote.leave()
        if self._host.bodies.get(self._id) is self._run:
            del self._host.bodies[self._id]


def _is_over(root: Strand) -> bool:
    """Whether a task ended; raises what is no error of its own."""
    if isinstance(root.error, Signal):
        return False
    root.result()
    return True


async def _aconduct(run: Run, spec: Spec, flow: Any, loop: BodyLoop, remote: Remote) -> Any:
    alarm = _Alarm(run)
    run.loop.loop, run.loop.lines = loop, _Lines()
    loop.is_to_end = lambda: isinstance(run.stop, Stop) and not alarm.cancels and alarm.may_cancel
    loop.end = lambda: alarm.wake(run.stop or Stop(""))

    async def once() -> Any:
        try:
            outcome = await aio.run_function(run, spec, alarm)
        except Suspend:
            await remote.awaited(remote.landing())
            raise
        await remote.awaited(remote.landing())
        return outcome

    return await aio.drive(flow, run, "", once, aio.nothing)


class _Alarm(Alarm):
    """The engine of a call wakes what the call waits for; a call under way runs to its end."""

    def _ring(self, signal: Signal) -> None: ...

    def leave_soon(self, signal: Signal) -> None: ...


class _Lines:
    """Where async code waits for the store: here it does not, as nothing else could run."""

    async def sync(self, log: Log) -> None:
        log.sync()


class _Live:
    """The state of a run's log as it is now, whichever log that is."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run.log.state, name)


def _is_named(post: str, name: str) -> bool:
    return post == name or (name == CANCEL and is_to_end(post))
