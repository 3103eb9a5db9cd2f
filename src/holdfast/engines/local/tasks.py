"""Tasks driven in this process: taken hold of, run to their end or to where they wait, released.

The common part of the methods of `Holdfast` that drive a task: `run` makes it first, `resume` takes
it as it is, `retry` and `compensate` open it again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast.codec.secret import provider
from holdfast.core.events import (
    FORMAT,
    NEWEST_FORMAT,
    Claimed,
    Compensating,
    Failure,
    QueueTicket,
    TaskContinued,
    TaskCreated,
    TaskRetried,
)
from holdfast.core.facts import facts_of, wake_at
from holdfast.core.journal import Raised, Returned, Stopped
from holdfast.core.queues import KEY, QUEUE
from holdfast.core.scope import scope_var
from holdfast.core.spec import Spec, registry
from holdfast.core.state import FINISHED, HALTED, UNDO, State
from holdfast.core.words import checked_id, must_be_texts
from holdfast.engines import sync_driver as local
from holdfast.engines.clocks import OwnTime
from holdfast.engines.control import cancel, end_of, must_not_be_undone, send, tell_parent
from holdfast.engines.deaths import Suspects, record_death, record_hindrance
from holdfast.engines.driver import Driver
from holdfast.engines.execution import older_code
from holdfast.engines.here import HERE
from holdfast.engines.holder import Holding
from holdfast.engines.routing import driven_by, elsewhere, halted, must_be_driven_by
from holdfast.engines.run import Family, Run, moved
from holdfast.errors import (
    BadInput,
    DrivenElsewhere,
    Halt,
    HoldfastError,
    StorageFailed,
    StoreError,
    TaskBusy,
    TaskCancelled,
    TaskFailed,
    TaskWaiting,
    Undecodable,
    Unserializable,
    WrongArguments,
)
from holdfast.log.log import Log
from holdfast.log.reading import first_event, no_task, stream_of, value_in
from holdfast.log.states import load
from holdfast.stores.port import Store

_MADE_S, _POLL_S = 1.0, 0.05
"""How long a child is waited for whose name somebody holds, and how often it is looked for."""

R = TypeVar("R")
Outcome = Returned | Raised | Stopped


class Begin(Struct, frozen=True):
    """A task that is to be driven, and what is done to it first."""

    task_id: str
    spec: Spec
    begin: Callable[[Log], None]
    ends_with: Callable[[State], bool]
    """Whether the recorded end of a task is what the caller asked for."""
    args_hash: str = ""
    engine: str | None = None
    """Its driver; None for whatever its log says."""
    continues: bool = False
    """Whether it is let go on if it is paused."""
    reopens: bool = False
    """Whether one that has ended is opened again."""
    confirm: Callable[[Log], None] | None = None
    """For a task of a queue: makes sure that it has a place."""


class TaskOptions(Struct, frozen=True, kw_only=True):
    """The options of `run` and `start` for a task, besides its arguments."""

    id: str | None = None
    user: str = ""
    session: str = ""
    labels: dict[str, str] | None = None
    timeout_s: float | None = None
    """How long it may take; None for what `@task` says."""
    parent: str = ""
    parent_path: str = ""
    engine: str = ""
    """The remote engine that is to drive it; '' for none."""
    queue: str = ""
    key: str = ""
    priority: int = 0
    not_before: datetime | None = None
    ticket: QueueTicket | None = None
    """Where it stands in its queue, which `engines.queues` decides."""


class Driving:
    """The tasks that this process drives of one store."""

    driver: Driver = HERE
    """The driver of their calls."""

    def __init__(self, holding: Holding) -> None:
        self.holding = holding
        self.store: Store = holding.store
        self.runs: set[Run] = set()
        self.suspects: Suspects = Suspects()
        self.lost: dict[str, str] = {}
        """Why a worker lost the tasks that it was driving when the store failed."""
        if isinstance(holding.clock, OwnTime):
            holding.clock.watch(lambda: list(self.runs))

    # Before a task is driven

    def starting(
        self, spec: Spec, args: tuple[Any, ...], kwargs: dict[str, Any], given: TaskOptions
    ) -> Begin:
        """Make the task, or go on with the one of that id."""
        try:
            data = spec.signature.dump(args, kwargs)
            spec.signature.load(data)
        except Undecodable as error:
            raise Unserializable(f"{spec.name} can't be started: {error}") from None
        return self.starting_with(spec, data, given)

    def starting_with(self, spec: Spec, data: bytes, given: TaskOptions) -> Begin:
        """The same, with encoded arguments."""
        digest = spec.signature.digest(data)
        clock = self.holding.clock
        task_id = checked_id(given.id) if given.id is not None else new_id(spec.name, clock())
        _must_be_words(spec, given)
        self._must_show_no_secret(task_id, spec, data)

        def begin(log: Log) -> None:
            if log.state.seq:
                _must_be_the_same(log, spec, data, digest)
                return
            log.append(
                TaskCreated(
                    format=FORMAT,
                    id=task_id,
                    task=spec.name,
                    args=log.stow_alone(data),
                    args_hash=digest,
                    user=given.user,
                    session=given.session,
                    labels=given.labels or {},
                    version=spec.version,
                    timeout_s=spec.timeout_s if given.timeout_s is None else given.timeout_s,
                    parent=given.parent,
                    parent_path=given.parent_path,
                    engine=given.engine,
                    ticket=given.ticket,
                    not_before=given.not_before,
                )
            )

        def ends_with(state: State) -> bool:
            return state.status in FINISHED and is_start_of(self.store, state, spec, digest)

        return Begin(task_id, spec, begin, ends_with, digest, engine=given.engine)

    def _must_show_no_secret(self, task_id: str, spec: Spec, data: bytes) -> None:
        try:
            self.holding.redact.must_be_readable(spec.name, spec.signature, data)
        except BadInput:
            if first_event(self.store, stream_of(task_id)) is None:
                raise  # else it was started when that was no secret yet

    def start(
        self, spec: Spec, args: tuple[Any, ...], kwargs: dict[str, Any], given: TaskOptions
    ) -> str:
        """Make the task and leave it to a worker; returns its id."""
        task = self.starting(spec, args, kwargs, given)
        try:
            with self.holding.hold(task.task_id) as log:
                self._must_be_ours(task, log.state)
                task.begin(log)
                log.sync()
        except DrivenElsewhere:
            raise
        except TaskBusy:  # somebody has it in hand already
            state = load(self.store, task.task_id, missing_ok=True)
            if not is_start_of(self.store, state, spec, task.args_hash):
                raise
            must_be_driven_by(state, "")
        return task.task_id

    def resuming(self, id: str) -> Begin:
        """Take the task as it is; one that is paused or stuck goes on."""
        spec = self.spec_of(id)

        def begin(log: Log) -> None:
            if log.state.status in HALTED and not driven_by(log.state):
                log.append(TaskContinued(by=self.holding.owner))

        return Begin(id, spec, begin, lambda state: state.status in FINISHED, continues=True)

    def taking(self, id: str, spec: Spec, confirm: Callable[[Log], None] | None = None) -> Begin:
        """Take the task as it is; one that was paused meanwhile stays so."""

        def begin(log: Log) -> None:
            if log.state.seq == 0:  # it was removed, and taking hold of it made it anew
                log.store.delete(log.lease)
                raise no_task(log.store, id)
            due = wake_at(log.state)
            if log.state.task != spec.name or due is None or due > log.clock():
                # The caller did not know, and would at once send us here again.
                log.store.remember(log.lease.stream, facts_of(log.state), log.state.seq - log.base)
            if log.state.task != spec.name:
                raise BadInput(f"task {id!r} is a {log.state.task}, not a {spec.name}")
            self._heed_deaths(log)

        ends = lambda state: state.status in FINISHED  # noqa: E731
        return Begin(id, spec, begin, ends, confirm=confirm)

    def _heed_deaths(self, log: Log) -> None:
        """Record that the last driver died, and set the task aside if that was once too often."""
        if driven_by(log.state):
            return
        if why := self.lost.pop(log.state.id, ""):
            record_hindrance(log, "StorageFailed", why, self.holding.owner)
        record_death(log, self.holding)
        if log.state.status not in HALTED:
            self.suspects.must_be_free(log.state)

    def spec_of(self, id: str) -> Spec:
        """The code of a task, by what its log begins with."""
        created = first_event(self.store, stream_of(checked_id(id)))
        if created is None:
            raise no_task(self.store, id)
        return registry.task(created.task)

    def retrying(self, id: str) -> Begin:
        """Open a failed task again."""
        spec = self.spec_of(id)

        def begin(log: Log) -> None:
            state = log.state
            if state.status in ("completed", "cancelled"):
                raise BadInput(f"task {id!r} is {state.status}: there is nothing to retry")
            must_not_be_undone(state)
            if state.status == "failed":
                log.append(TaskRetried(by=self.holding.owner))
                log.sync()
            elif state.status == "stuck":
                log.append(TaskContinued(by=self.holding.owner))

        return Begin(id, spec, begin, lambda state: False, reopens=True)

    def compensating(self, id: str) -> Begin:
        """Open a task that ended badly, in order to undo what it did."""
        spec = self.spec_of(id)

        def begin(log: Log) -> None:
            state = log.state
            if state.status in ("failed", "cancelled"):
                log.append(
                    Compensating(
                        ending=state.status,
                        by=self.holding.owner,
                        failure=state.failure,
                        causes=state.causes,
                    )
                )
                log.sync()
            elif not state.ending:
                raise BadInput(
                    f"task {id!r} is {state.status}: only what failed or was cancelled is undone"
                    + ("" if state.status == "completed" else f" (hf.cancel({id!r}) does both)")
                )

        return Begin(id, spec, begin, lambda state: False, reopens=True)

    # Driving it

    def _begin(self, task: Begin, log: Log) -> None:
        """The first thing done to a task, if it is ours to drive."""
        self._must_be_ours(task, log.state)
        if log.state.ticket is not None and log.state.status not in FINISHED:
            if task.confirm is None:
                raise _has_a_queue(log.state)
            task.confirm(log)
        task.begin(log)

    def _must_be_ours(self, task: Begin, state: State) -> None:
        """Refuse what a remote engine drives, or will when it is opened again."""
        if driven_by(state) or (state.driver and task.reopens):
            raise elsewhere(state)

    def drive(self, task: Begin, patience_s: float | None = None) -> Any:
        """Drive a task in this thread; returns or raises what it ends with."""
        if task.spec.is_async:
            return in_own_loop(self.adrive(task, patience_s))
        try:
            with self.holding.hold(task.task_id) as log:
                self._begin(task, log)
                self._must_be_drivable(log, task.spec, patience_s)
                if log.state.status in FINISHED:
                    return recorded_end(log.store, log.state, task.spec)
                with self._running(log, patience_s) as run, self.suspects.watched(log):
                    outcome = local.run_task(run, task.spec, self._claim(log))
        except (TaskBusy, StorageFailed) as error:
            return self._end_of_finished(task, error)
        self.tell_parent(log.state)
        return live_end(log.state, outcome)

    async def adrive(self, task: Begin, patience_s: float | None = None) -> Any:
        """The same on the running loop; a sync task in a thread."""
        from holdfast.engines import async_driver as aio
        from holdfast.engines.loops import HeldLog, in_own_thread, off_loop

        if not task.spec.is_async:
            return await in_own_thread(self.drive, task, patience_s)
        try:
            held = HeldLog(self.holding, task.task_id, partial(self._begin, task))
            async with held as log:
                self._must_be_drivable(log, task.spec, patience_s)
                if log.state.status in FINISHED:
                    return recorded_end(log.store, log.state, task.spec)
                with self._running(log, patience_s) as run, self.suspects.watched(log):
                    outcome = await aio.run_task(run, task.spec, self._claim(log), held.lines)
        except (TaskBusy, StorageFailed) as error:
            return await off_loop(self._end_of_finished, task, error)
        if log.state.parent:
            await off_loop(self.tell_parent, log.state)
        return live_end(log.state, outcome)

    @contextmanager
    def _running(self, log: Log, patience_s: float | None) -> Iterator[Run]:
        run = Run(log, log.state.id, self.driver, family=self.family(), patience_s=patience_s)
        self.prepare(run)
        self._heed(run)
        outer = scope_var.get()
        inside = {run} if outer is None else outer.run.inner
        self.runs.add(run)
        inside.add(run)
        token = provider.set(self.holding.secrets)
        try:
            yield run
        except Halt as signal:
            if patience_s is not None:
                self._hindered(log, signal.error)
            raise
        finally:
            provider.reset(token)
            inside.discard(run)
            self.runs.discard(run)
            run.is_over = True
            log.attended = None

    def _heed(self, run: Run) -> None:
        """Stop a task that was moved since somebody looked, and before the run could hear it."""
        if driver := driven_by(run.log.state):
            run.stop = moved(run.task_id, driver)

    def family(self) -> Family:
        """The part that looks after the tasks that a task starts."""
        return Children(self)

    def prepare(self, run: Run) -> None:
        """Do what a fork, or a rewound task, needs to go its own way."""
        if run.log.state.fork is None and not run.log.state.rewinds:
            return
        from holdfast.engines.origins import Answering, rewind_sessions

        run.answers = Answering(self.store, run.log.state)
        rewind_sessions(self.holding, run.log.state)

    def _must_be_drivable(self, log: Log, spec: Spec, patience_s: float | None) -> None:
        state = log.state
        if state.status in HALTED:
            raise halted(state)
        newest = max(state.version, state.checkpoint_version)
        if newest > spec.version and state.status not in FINISHED:
            error = older_code(state, spec)
            if patience_s is not None:
                self._hindered(log, error)
            raise error

    def _hindered(self, log: Log, error: HoldfastError) -> None:
        """Record why a worker can't go on with a task; what the store refuses it can't record."""
        if not isinstance(error, StoreError | TaskWaiting) and not log.is_broken:
            with suppress(StoreError):
                record_hindrance(log, type(error).__name__, str(error), self.holding.owner)

    def _end_of_finished(self, task: Begin, error: StoreError) -> Any:
        """The end of a finished task, which takes no lease to tell; else the error stands."""
        state = load(self.store, task.task_id, missing_ok=True)
        if not task.ends_with(state):
            if not isinstance(error, DrivenElsewhere):
                self._must_be_ours(task, state)
            raise error
        return recorded_end(self.store, state, task.spec)

    def start_elsewhere(self, id: str) -> None:
        """Have the engine drive a task whose log is there."""
        if self.holding.start is not None:
            self.holding.start(load(self.store, id, missing_ok=True))

    def tell_parent(self, state: State) -> None:
        """Let the parent of a task that has ended go on."""
        # A task that waits here, for a child that it drove itself, looks at once anyway.
        if all(
            run.task_id != state.parent or run.patience_s is not None for run in list(self.runs)
        ):
            tell_parent(self.holding, state)

    def _claim(self, log: Log) -> Claimed:
        epoch = max(log.lease.epoch, log.state.epoch + 1)
        return Claimed(
            format=NEWEST_FORMAT,
            epoch=epoch,
            owner=self.holding.owner,
            process=self.holding.process,
        )


def _has_a_queue(state: State) -> BadInput:
    name = state.ticket.queue if state.ticket is not None else ""
    return BadInput(
        f"task {state.id!r} is in queue {name!r}, and so only a worker drives it, when it has a "
        f"place: wait for it by hf.handle({state.id!r}).result(), let it go on by "
        f"hf.unpause({state.id!r}) or hf.retry({state.id!r}, worker=True)"
    )


def recorded_end(store: Store, state: State, spec: Spec) -> Any:
    """The result or the error of a finished task, from its log."""
    if state.status == "cancelled":
        raise TaskCancelled(state.id, state.because)
    if state.failure is not None:
        raise TaskFailed(state.id, state.failure, undone=is_undone(state))
    return spec.signature.returns.load(value_in(store, state, _raw(state.result)))


def is_undone(state: State) -> bool:
    """Whether what a task did was undone, all of it."""
    undos = [call for path, call in state.calls.items() if path.startswith(f"{UNDO}.")]
    return state.compensated and all(call.status == "completed" for call in undos)


def live_end(state: State, outcome: Outcome) -> Any:
    """The result or the error of a task that ended just now."""
    if isinstance(outcome, Stopped):
        raise TaskCancelled(state.id, state.because)
    if isinstance(outcome, Raised):
        raise TaskFailed(state.id, outcome.failure, undone=is_undone(state))
    return outcome.value


def _raw(raw: Raw | UnsetType) -> Raw:
    return Raw(b"null") if raw is UNSET else raw


def in_own_loop(drive: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine on a loop of its own, if there is none yet."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(drive)
    drive.close()
    raise BadInput("this is an async task, and an event loop runs here: use await hf.arun(…)")


def new_id(name: str, now: datetime) -> str:
    """An id for a task that was given none: sorts by time, and says what it is."""
    readable = "".join(c if c.isalnum() else "-" for c in name.lower())[:60].strip("-")
    return f"{readable or 'task'}-{now:%Y%m%d-%H%M%S}-{os.urandom(6).hex()}"


def _must_be_words(spec: Spec, given: TaskOptions) -> None:
    must_be_texts(spec.name, user=given.user, session=given.session)
    limit: Any = given.timeout_s
    if limit is not None and not (type(limit) in (int, float) and 0 < limit < float("inf")):
        raise BadInput(f"{spec.name}: timeout_s={limit!r:.60} must be a number of seconds above 0")
    if given.labels is not None and not isinstance(given.labels, dict):
        raise BadInput(f"{spec.name}: labels={given.labels!r:.60} must be a dict of texts")
    for name, text in (given.labels or {}).items():
        must_be_texts(f"{spec.name}: labels", name=name, **{str(name): text})


def is_start_of(store: Store, state: State, spec: Spec, digest: str) -> bool:
    """Whether a task was started by a function with the arguments of a digest."""
    if state.task != spec.name or state.args_hash == digest:
        return state.task == spec.name
    recorded = value_in(store, state, _raw(state.args)) if state.args is not UNSET else b"{}"
    return spec.signature.is_same(recorded, digest)


def _must_be_the_same(log: Log, spec: Spec, data: bytes, digest: str) -> None:
    state = log.state
    if is_start_of(log.store, state, spec, digest):
        return
    started = bytes(state.args).decode() if isinstance(state.args, Raw) else ""
    given = log.redact.arguments(spec.signature, spec.redact, data)[0].decode()
    raise WrongArguments(
        f"task {state.id!r} was started as {state.task}({started:.300}), not "
        f"{spec.name}({given:.300}): go on with it as it was (hf.resume({state.id!r})), "
        f"or give the new task another id"
    )


# The tasks that a task starts: made, looked at, driven and cancelled for it.


class Children:
    """The tasks that another one starts: see `holdfast.engines.run.Family`."""

    def __init__(self, driving: Driving) -> None:
        self._driving = driving
        self._store = driving.store

    def must_be_free(self, id: str, parent: str) -> None:
        found = first_event(self._store, stream_of(id))
        if found is not None and found.parent != parent:
            raise BadInput(
                f"task {id!r} exists, and is no child of {parent!r}: start it under another id"
            )

    def create(self, id: str, name: str, args: bytes, parent: State, path: str) -> None:
        spec = registry.task(name)
        given = TaskOptions(
            id=id,
            user=parent.user,
            session=parent.session,
            labels={k: v for k, v in parent.labels.items() if k not in (QUEUE, KEY)},
            parent=parent.id,
            parent_path=path,
            engine=parent.driver,
        )
        child = self._driving.starting_with(spec, args, given)
        give_up_at = time.monotonic() + _MADE_S
        while True:
            try:
                with self._driving.holding.hold(id) as log:
                    child.begin(log)
                    log.sync()
                return
            except TaskBusy:
                # Somebody has it in hand already; or took hold of it, and died before it was made.
                if first_event(self._store, stream_of(id)) is not None:
                    return
                if time.monotonic() > give_up_at:
                    raise
            time.sleep(_POLL_S)

    def outcome(self, id: str) -> Returned | Raised | None:
        state = load(self._store, id, missing_ok=True)
        if state.seq == 0:
            gone = f"its log is not in {self._store.url} any more"
            return Raised(Failure("ChildGone", f"task {id!r} was started, and {gone}"))
        return end_of(state)

    def drive(self, id: str) -> None:
        self._must_be_local(id)
        with suppress(TaskFailed, TaskCancelled):
            self._driving.drive(self._driving.taking(id, self._driving.spec_of(id)))

    async def adrive(self, id: str) -> None:
        self._must_be_local(id)
        with suppress(TaskFailed, TaskCancelled):
            await self._driving.adrive(self._driving.taking(id, self._driving.spec_of(id)))

    def _must_be_local(self, id: str) -> None:
        # Without taking hold of it: its engine would find it held, time and again.
        state = load(self._store, id, missing_ok=True)
        if driven_by(state):
            raise elsewhere(state)

    def send(self, id: str, name: str, value: Any, key: str, by: str) -> bool:
        return send(self._driving.holding, id, name, value, key, by)

    def cancel(self, id: str, *, wait: bool) -> None:
        why = "its parent was cancelled"
        status = cancel(self._driving.holding, id, why, by="", wait=wait)
        if wait and status != "cancelled":
            self.drive(id)  # it has something to undo
