"""The things that the function of a task waits for on a remote engine, and when it may see them.

The log may be ahead of what the engine has heard of: it crashed before it was told, or runs the
function again from its top. Calls that have ended by the event `begun.seq`, where the engine
begins, are known. Everything else is waited for by what the engine does: a call, a time, a message.
So the engine is asked for the same things each time.

Each operation is a generator that yields what it waits for, one of several: sync code waits for it
in its strand, async code by a future.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NoReturn

from holdfast.core.events import AnyEvent, MessageSent, TaskContinued
from holdfast.core.fold.waits import taker_of
from holdfast.core.journal import (
    Asked,
    Await,
    CancelChildren,
    DriveChild,
    Now,
    Park,
    Raised,
    Request,
    Returned,
    Sleep,
    StartChild,
)
from holdfast.core.journal.calls import approval_path, not_approved
from holdfast.core.journal.requests import REMOTE
from holdfast.core.scope import Scope
from holdfast.core.state import Call, State
from holdfast.engines import async_driver as aio
from holdfast.engines import sync_driver as local
from holdfast.engines import undo
from holdfast.engines.driver import Work
from holdfast.engines.execution import Body, create_child, family_of, is_open_child
from holdfast.engines.here import HERE
from holdfast.engines.loops import UnderWay
from holdfast.engines.remote.carrier import (
    Called,
    Carrier,
    ChildRun,
    Lost,
    Pending,
    Timer,
    Until,
)
from holdfast.engines.remote.strands import BodyLoop, Strands
from holdfast.engines.run import Run
from holdfast.errors import HoldfastError, Suspend, TaskReleased
from holdfast.log.places import ended_at_seq

Waiting = Generator[tuple[Pending, ...], None, None]


class Remote:
    """The driver of one run of a task on a remote engine."""

    may_exit = False
    has_threads = False
    streams = False
    writes = True
    acts = True

    run: Run
    """The run that it drives, which is made with it."""

    def __init__(self, carrier: Carrier, begun: State) -> None:
        self.carrier = carrier
        self._begun = begun
        self.horizon: int = begun.seq
        """The newest message that the engine has told of: later ones are not there yet."""
        self._checkpoints = begun.checkpoints
        """How many of them the function has passed."""
        self._is_ending = bool(begun.ending)
        self.strands: Strands = Strands()
        self.loop: BodyLoop | None = None
        self._news: list[tuple[int, str]] = []
        self._timers: dict[str, Timer] = {}
        self._children: dict[str, ChildRun] = {}
        self._looked_at: set[str] = set()
        """The calls whose children were looked at because the engine said that they had ended."""
        self._calls: list[Called] = []
        """The calls that are being made, also if nobody waits for them any more."""
        self._has_moved = False
        """Whether something has ended in this run. A new one that is as long before anything has
        would bring the task no further."""

    # What a run asks of its driver

    def has_come(self, run: Run, until: datetime) -> bool:
        return HERE.has_come(run, until)

    def begun(self, run: Run) -> State:
        # An engine runs the function again from where it began, however far the log is by now.
        return self._begun

    def checkpoints_passed(self, run: Run) -> int:
        return self._checkpoints

    def pass_checkpoint(self) -> None:
        self._checkpoints += 1

    def is_ending(self, run: Run) -> bool:
        return self._is_ending

    def begin_to_end(self) -> None:
        self._is_ending = True

    def make(self, run: Run, asked: Asked, record: Call | None, data: bytes) -> Returned | Call:
        self.wait(self.calling(asked, record, data))
        return self.made(asked)

    async def amake(
        self, run: Run, asked: Asked, record: Call | None, data: bytes
    ) -> Returned | Call:
        with UnderWay(run, asked.path):
            await self.awaited(self.calling(asked, record, data))
            return self.made(asked)

    def repeat(self, run: Run, path: str, record: Call | None) -> Call | None:
        self.wait(self._repeating(path, record))
        return run.log.state.calls.get(path)

    async def arepeat(self, run: Run, path: str, record: Call | None) -> Call | None:
        await self.awaited(self._repeating(path, record))
        return run.log.state.calls.get(path)

    def end_child(self, run: Run, path: str) -> None:
        self.wait(self._ending_child(path))

    async def aend_child(self, run: Run, path: str) -> None:
        await self.awaited(self._ending_child(path))

    def carry_out(
        self,
        request: Request,
        run: Run,
        path: str,
        strand: Scope | None,
        check: Callable[[], Returned | Raised | None],
    ) -> Any:
        if isinstance(request, Now):
            return self._time(path)
        if isinstance(request, REMOTE) and run.may_act(path):
            return self.wait(self._carrying_out(request, path))
        return local.carry_out(request, run, path, strand, check)

    async def acarry_out(
        self, request: Request, run: Run, path: str, strand: Scope | None, check: Any
    ) -> Any:
        if isinstance(request, Now):
            return self._time(path)
        if isinstance(request, REMOTE) and run.may_act(path):
            return await self.awaited(self._carrying_out(request, path))
        return await aio.carry_out(request, run, path, strand, check)

    def side_by_side(self, work: Work, workers: int) -> Iterator[Any]:
        return self.strands.side_by_side(work, workers)

    # Waiting

    def wait(self, waiting: Waiting) -> None:
        """Carry out an operation from sync code, in its strand."""
        if not self.strands.are_here():
            self._refuse("makes a call in a thread of its own")
        for pendings in waiting:
            self.strands.wait(*pendings)

    async def awaited(self, waiting: Waiting) -> None:
        """Carry out an operation from async code."""
        if self.loop is None:
            self._refuse("is not async, and makes an async call (by asyncio.run?)")
        for pendings in waiting:
            if not any(pending.done() for pending in pendings):
                await self.loop.until(*pendings)

    def _refuse(self, what: str) -> NoReturn:
        """Stop a function that does what works here, and not on an engine."""
        self.run.halt(
            HoldfastError(
                f"task {self.run.task_id!r}: its function {what}. A remote engine can't hold that "
                f"where it waits: use gather() or each() of holdfast, or make the task async"
            )
        )

    def _until(self, path: str, is_over: Callable[[], bool], *pendings: Pending) -> Waiting:
        """Wait for a condition, or for the task to be told to stop."""
        while not is_over():
            self.run.must_go_on(path)
            # An event that has come and did not end it, such as a child that moved, is no news.
            still = (pending for pending in pendings if not pending.done())
            yield (*still, Until(lambda: is_over() or self.run.is_stopped(path)))

    # Being told

    def told(self, event: AnyEvent) -> None:
        """A message that is in the log: from now on it may be seen."""
        self.horizon = max(self.horizon, event.seq)
        about = getattr(event, "path", "")
        if isinstance(event, MessageSent):
            about = taker_of(self.run.log.state, event.seq)
        self._news.append((event.seq, about))
        if not isinstance(event, TaskContinued):  # some of its strands may have stopped: all do,
            self.run.hear(event)  # and then it begins anew

    def _is_told_of(self, path: str, since: int) -> bool:
        """Whether a message has come about a call, or about one that was made in it."""
        return any(
            seq > since and (about == path or about.startswith((f"{path}.", f"{path}!")))
            for seq, about in self._news
        )

    def knew(self, path: str) -> bool:
        """Whether a call had ended where the engine began."""
        call = self._begun.calls.get(path)
        return call is not None and call.status in ("completed", "failed")

    def _has_seen_the_end(self, path: str) -> bool:
        call = self.run.log.state.calls[path]
        return 0 < ended_at_seq(call) <= self.horizon

    # Calls

    def calling(self, asked: Asked, record: Call | None, data: bytes) -> Waiting:
        """Have a call made, unless it was known to have ended."""
        path = asked.path
        if self.knew(path):
            return
        if record is None or record.status not in ("completed", "failed"):
            Body(self.run, asked, asked.spec, data).must_fit()
        self._renew_if_full(path)
        yield from self._made(path, lambda: self.carrier.call(asked, data), self._is_told_of)

    def made(self, asked: Asked) -> Call:
        """How a call ended."""
        calls = self.run.log.state.calls
        record = calls.get(asked.path)
        return record if record is not None else not_approved(asked, calls[approval_path(asked)])

    def _made(
        self, path: str, make: Callable[[], Called], is_told: Callable[[str, int], bool]
    ) -> Waiting:
        while True:
            self.keep_what_was_said()
            call = make()
            self._calls = [each for each in self._calls if not each.done()]
            self._calls.append(call)
            yield call, Until(lambda: self.run.is_stopped(path))
            if not call.done():
                call.give_up()
                yield (call,)
            waits = call.result()
            if waits is None:
                self._has_moved = True
                return
            if isinstance(waits, Lost):
                self.run.must_go_on(path)
                continue
            timer = () if waits.until is None else (self.carrier.sleep(waits.until),)
            told = partial(is_told, path, waits.seq)
            yield from self._until(path, partial(_any, timer, told), *timer)
            _give_up(timer)

    def keep_what_was_said(self) -> None:
        """The words of the function so far decide what it asks for: it must be there next time."""
        # Not what others began meanwhile: the calls of many branches would each wait for the disk
        # here, where nothing else can run.
        if self.run.log.newest_word > self.run.log.synced:
            self.run.sync()

    def _renew_if_full(self, path: str) -> None:
        if self.run.stop is None and self._has_moved and self.carrier.is_full():
            again = TaskReleased(self.run.task_id, "its engine goes on in a new run")
            self.run.interrupt(Suspend(again))
        self.run.must_go_on(path)

    # Waiting for times, people and other tasks

    def _carrying_out(self, request: Request, path: str) -> Waiting:
        """Do what a flow asks for."""
        if isinstance(request, Sleep):
            return self._sleeping(path, request.until)
        if isinstance(request, Park):
            return self._parked(path, request.waiting.until)
        if isinstance(request, Await):
            return self._awaiting(path, request.waiting.until)
        if isinstance(request, DriveChild):
            return self._child_ended(path)
        if isinstance(request, StartChild):
            return self._starting(request)
        if isinstance(request, CancelChildren):
            return self._cancelling()
        return self._undoing()

    def _repeating(self, path: str, record: Call | None) -> Waiting:
        """Wait again for what a call waited for that has ended since the engine began."""
        if self.knew(path):
            return
        self._renew_if_full(path)
        if record is None:
            return
        if record.kind == "child":
            before = self._begun.calls.get(path)
            if record.status != "running" and (before is None or before.status == "running"):
                self._start(record.child, record.name)
            return
        if record.status not in ("completed", "failed"):
            return
        if record.kind == "sleep" and record.until is not None:
            yield from self._sleeping(path, record.until)
        while record.kind in ("question", "message") and not self._has_seen_the_end(path):
            wait = self._parked if record.kind == "question" else self._awaiting
            yield from wait(path, record.until)
            if any(timer.done() for timer in self._timer(path, record.until)):
                return

    def _timer(self, path: str, until: datetime | None) -> tuple[Timer, ...]:
        """The timer of a call: one, however often it is waited for."""
        if until is None:
            return ()
        if path not in self._timers:
            self.keep_what_was_said()
            self._timers[path] = self.carrier.sleep(until)
        return (self._timers[path],)

    def _time(self, path: str) -> datetime:
        """The time. That of a call which waits for one comes when its timer does, by whatever
        clock."""
        now, call = self.run.log.clock(), self.run.log.state.calls.get(path)
        if call is None or call.until is None or call.status != "waiting":
            return now
        timer = self._timers.get(path)
        if timer is not None and timer.done():
            return max(now, call.until)
        return min(now, call.until - timedelta.resolution)

    def _sleeping(self, path: str, until: datetime) -> Waiting:
        timer = self._timer(path, until)
        yield from self._until(path, timer[0].done, *timer)
        self._has_moved = True

    def _parked(self, path: str, until: datetime | None) -> Waiting:
        """Wait for a message about a call, or for its time to be up."""
        timer = self._timer(path, until)
        self.keep_what_was_said()
        told = partial(self._is_told_of, path, self.horizon)
        yield from self._until(path, partial(_any, timer, told), *timer)
        self._has_moved = True
        if self._has_seen_the_end(path):
            _give_up(timer)

    def _awaiting(self, path: str, until: datetime | None) -> Waiting:
        """Wait for the message that a call takes, or for its time to be up."""
        timer = self._timer(path, until)
        self.keep_what_was_said()
        seen = partial(self._has_seen_the_end, path)
        yield from self._until(path, partial(_any, timer, seen), *timer)
        self._has_moved = True
        if seen():
            _give_up(timer)

    def _starting(self, request: StartChild) -> Waiting:
        create_child(self.run, request)
        self._start(request.id, request.name)
        yield from ()

    def _start(self, id: str, task: str) -> None:
        self.keep_what_was_said()
        if id not in self._children:
            self._children[id] = self.carrier.start_child(id, task)

    def _ending_child(self, path: str) -> Waiting:
        """Wait for a child that had not ended where the engine began, whatever its log says now."""
        if not self.knew(path):
            yield from self._child_ended(path)

    def _child_ended(self, path: str) -> Waiting:
        child = self.run.log.state.calls[path].child
        pending = (self._children[child],) if child in self._children else ()

        def is_over() -> bool:
            # The engine says so once: if the child is found not to have ended, its log will say.
            call = self.run.log.state.calls[path]
            is_news = path not in self._looked_at or not is_open_child(call)
            if is_news and any(run.done() and run.has_ended() for run in pending):
                return True
            return self._has_seen_the_end(path)

        yield from self._until(path, is_over, *pending)
        self._looked_at.add(path)

    # The end

    def landing(self) -> Waiting:
        """Wait for calls that were left (by `asyncio.timeout`, or a `TaskGroup`) and are still
        made. Nobody can stop them, and before they have run to their end nobody can say what the
        task did, or undo it."""
        for call in self._calls:
            if not call.done():
                call.give_up()
                yield (call,)

    def _cancelling(self) -> Waiting:
        self.run.begin_to_end()
        for call in list(self.run.log.state.calls.values()):
            if call.kind != "child" or call.on_cancel != "cancel" or self.knew(call.path):
                continue
            if self._has_seen_the_end(call.path) or not self._is_started(call):
                continue
            with suppress(HoldfastError):  # it has ended, or is gone
                family_of(self.run).cancel(call.child, wait=False)
            yield from self._child_ended(call.path)

    def _is_started(self, call: Call) -> bool:
        return call.child in self._children or call.path in self._begun.calls

    def _undoing(self) -> Waiting:
        undo.begin(self.run)
        yield from self._made("", self.carrier.settle, lambda _, seq: self.horizon > seq)
        for asked, record, data in undo.undos(self.run):
            yield from self.calling(asked, record, data)

    def leave(self) -> None:
        """End what the task does here: its engine goes on with it elsewhere, or again."""
        self.run.is_over = True
        self.strands.leave()


def _give_up(timers: tuple[Timer, ...]) -> None:
    """Let the engine forget timers that nobody waits for any more."""
    for timer in timers:
        if not timer.done():
            timer.give_up()


def _any(pendings: tuple[Pending, ...], told: Callable[[], bool]) -> bool:
    return told() or any(pending.done() for pending in pendings)
