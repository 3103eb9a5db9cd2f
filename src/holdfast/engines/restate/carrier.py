"""The requests of a task to Restate: each thing is an entry in the journal of its invocation.

The journal holds acknowledgements, and the times when they came: values stay in the store. The time
of a task is the latest that its journal knows, so it is the same each time it is read.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import restate
from restate import RestateDurableFuture, RunOptions, TerminalError, WorkflowContext
from restate.exceptions import RetryableError
from restate.serde import JsonSerde
from restate.vm import VMException  # type: ignore[attr-defined]

from holdfast.core.events import Moved
from holdfast.core.journal import Asked
from holdfast.core.state import State
from holdfast.engines.port import Driven, Job, RunOver
from holdfast.engines.remote.carrier import Pending, Waits
from holdfast.engines.remote.host import Host
from holdfast.engines.restate.calls import Calls
from holdfast.engines.restate.http import RUN, key_of, service_of
from holdfast.engines.routing import CANCEL, driven_by, is_to_end, job_for, renew
from holdfast.errors import EngineError, Halt
from holdfast.log.states import load
from holdfast.log.store_calls import inbox_of

if TYPE_CHECKING:
    from holdfast.engines.restate.engine import Restate

JSON: RunOptions[Any] = RunOptions(serde=JsonSerde())
ENDED = "ended"
"""The handler that waits for the end of a task."""

LEFT = "left"
"""The handler that answers who waits there, in place of a run that was killed."""

END = "end"
"""The promise that is kept then."""

MAIL = "mail"
"""Where a workflow keeps how many of its messages it has taken, now and then."""
MAIL_STEP = 16

_LOOK_S, _LOOKS = 0.05, 100
"""How often a new run looks whether the one before it has ended."""


class Coming:
    """Something that was asked for, and has come or not."""

    def __init__(self) -> None:
        self.said: Any = None
        self._is_done = False

    def done(self) -> bool:
        """Whether it has come."""
        return self._is_done

    def come(self, said: Any) -> None:
        """It has come."""
        self.said, self._is_done = said, True


class RestateCall(Coming):
    """A call that was asked for."""

    def give_up(self) -> None:
        """Nothing: a call that is being made runs to its end, and attempts to come are timers."""

    def result(self) -> Waits | None:
        """What it waits for; None if it has ended."""
        found = self.said.get("waits")
        return None if found is None else Waits(found["seq"], _time(found["until"]))


class RestateTimer(Coming):
    """A time that is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.forget: Callable[[], object] = lambda: None

    def give_up(self) -> None:
        """Wait for it no longer. Restate takes no timer back; but each that is waited for costs
        whenever something comes."""
        self.forget()


class RestateChild(Coming):
    """Another task that was started."""

    def has_ended(self) -> bool:
        """Whether it ended here; else it was moved, or nobody waits for it any more."""
        return isinstance(self.said, dict) and self.said.get("how") == "ended"


class RestateCarrier:
    """The work of one invocation for a task."""

    def __init__(
        self, ctx: WorkflowContext, host: Host, calls: Calls, job: Job, engine: Restate
    ) -> None:
        self._ctx = ctx
        self._host = host
        self._calls = calls
        self._job = job
        self._id, self._since = job.id, job.seq
        self._engine = engine
        self._most = engine.renew_after
        self._now = datetime.min.replace(tzinfo=UTC)
        self._coming: dict[RestateDurableFuture[Any], Callable[[Any], None]] = {}
        self._messages: list[str] = []
        self._heard: set[str] = set()
        self._asked = 0
        self._mail = 0
        self._mismatch: EngineError | None = None

    async def begin(self) -> int:
        """Begin to listen to messages; returns the event that the task goes on from.

        That is the newest in its log: of an earlier invocation that was killed, nothing is left
        here that could tell the task what it was told then.
        """

        async def begin() -> dict[str, Any]:
            killed = await self._last_run_is_over()
            return {**await asyncio.to_thread(self._newest), "killed": killed}

        begun = await self.surely(self._ctx.run_typed("begin", begin, JSON))
        self._hear_time(begun)
        self._most = int(begun["most"])
        if killed := begun.get("killed"):
            service = service_of(self._job.task, self._engine.prefix)
            self._ctx.generic_send(service, LEFT, b"null", key=killed)
        for message in begun["posts"]:
            self._hear(message)
        self._listen()
        return int(begun["seq"])

    async def _last_run_is_over(self) -> str:
        """Wait for the run that this one follows: its worker may have died after it wrote that the
        task goes on here, and it is about to find that out, by running the function again. Returns
        its key if it was killed: then nobody who waits for its end was told of it."""
        for _ in range(_LOOKS):
            last = await asyncio.to_thread(self._last_run)
            if last is None or last[1].status != "running":
                return "" if last is None or last[1].status == "ended" else key_of(last[0])
            await asyncio.sleep(_LOOK_S)
        raise RetryableError(f"task {self._id!r}: the run before this one has not ended yet")

    def _last_run(self) -> tuple[Job, Driven] | None:
        state = load(self._host.holding.store, self._id, missing_ok=True)
        for job in _runs_before(state, self._job):
            known = self._engine.query(job)
            if known is not None:  # if it was never started, the one before it counts
                return job, known
        return None

    def _newest(self) -> dict[str, Any]:
        """Where the log is, what is in the inbox, and how long the journal may grow."""
        with self._host.hub.hold(self._id, self._since) as log:
            log.sync()
            return {
                "at": self._host.holding.clock().isoformat(),
                "seq": log.state.seq,
                "posts": [heard(post.name) for post in inbox_of(log.store, [log.lease.stream])],
                "most": self._most,
            }

    async def go_on_at(self, seq: int) -> int:
        """Where the task goes on, as it was when that was first asked: its log may be longer by
        now."""

        async def go_on() -> int:
            return seq

        found: int = await self.surely(self._ctx.run_typed("go on", go_on, JSON))
        return found

    async def renew(self) -> None:
        """Have the task go on in a new run, with an empty journal and a key of its own."""

        async def begin_anew() -> None:
            await asyncio.to_thread(self._begin_anew)

        await self.surely(self._ctx.run_typed("renew", begin_anew, JSON))
        if CANCEL in self._messages:  # since the function stopped
            await asyncio.to_thread(self._cancel_newest)

    def _begin_anew(self) -> None:
        # Not sent by this invocation: who kills one kills what it sent.
        with self._host.hub.hold(self._id, self._since) as log:
            renew(log, self._engine.name, self._job, self._host.holding.owner)
            state = log.state
        if driven_by(state) == self._engine.name:
            with suppress(RunOver):  # we run again, long after that
                self._engine.start(job_for(state))

    def _cancel_newest(self) -> None:
        state = load(self._host.holding.store, self._id, missing_ok=True)
        if driven_by(state) == self._engine.name:
            self._engine.cancel(job_for(state))

    async def end(self, how: str) -> None:
        """Let those know who wait for the end of the task."""
        promise: Any = self._ctx.promise(END, JsonSerde())
        if await self.surely(promise.peek()) is None:
            # The value must be the same each time, too.
            await self.surely(promise.resolve({"how": how, "at": self._now.isoformat()}))

    async def surely(self, asked: Any) -> Any:
        """Wait for something, also if the invocation is cancelled meanwhile."""
        while True:
            try:
                await restate.wait_completed(asked)
                return await asked
            except TerminalError:
                if asked.is_completed():
                    raise
                self._hear(CANCEL)

    # What a task asks for

    def call(self, asked: Asked, data: bytes) -> RestateCall:
        """Make a call, shown under the name of the step."""
        return self._run(asked.spec.name, lambda: self._calls.call(asked, data))

    def settle(self) -> RestateCall:
        """Find out about the calls in doubt."""
        return self._run("settle", lambda: self._calls.settle(self._id))

    def _run(self, name: str, make: Callable[[], Any]) -> RestateCall:
        call = RestateCall()

        async def closure() -> Any:
            return await make()

        self._ask(lambda: self._ctx.run_typed(name, closure, JSON), call)
        return call

    def sleep(self, until: datetime) -> RestateTimer:
        """A durable timer."""
        # When it rings is in the journal: what is left from now on counts the first time only.
        left_s = max((until - self._host.holding.clock()).total_seconds(), 0.0)
        left = timedelta(milliseconds=math.ceil(left_s * 1000))
        timer = RestateTimer()
        future = self._ask(
            lambda: self._ctx.sleep(left), timer, lambda _: {"at": until.isoformat()}
        )
        # From then on it waits for the same each time: the function gives it up where it has heard
        # the same of its journal.
        timer.forget = partial(self._coming.pop, future, None)
        return timer

    def start_child(self, id: str, task: str) -> RestateChild:
        """Start the workflow of another task, and wait for its end."""
        job = Job(id, task, 1)
        service, key = service_of(task, self._engine.prefix), key_of(job)
        begin = json.dumps({"id": id, "task": task, "seq": job.seq, "log": ""}).encode()
        child = RestateChild()

        def ask() -> RestateDurableFuture[bytes]:
            # Not by a call of its `run`: that would be cancelled together with this one.
            self._ctx.generic_send(service, RUN, begin, key=key)
            return self._ctx.generic_call(service, ENDED, b"null", key=key)

        self._ask(ask, child, lambda said: json.loads(said) if said else None)
        return child

    def is_full(self) -> bool:
        """Whether the journal has grown long: Restate reads all of it whenever it wakes a task."""
        return self._asked >= self._most

    def now(self) -> datetime:
        """The latest time in the journal, as far as it was read."""
        return self._now

    def _ask(
        self,
        make: Callable[[], RestateDurableFuture[Any]],
        coming: Coming,
        read: Callable[[Any], Any] = lambda said: said,
    ) -> RestateDurableFuture[Any]:
        try:
            if self._mismatch is not None:
                raise self._mismatch
            future = make()
        except (VMException, EngineError) as error:
            raise self._halt(error) from error

        def come(said: Any) -> None:
            found = read(said)
            self._hear_time(found)
            coming.come(found)

        self._asked += 1
        self._coming[future] = come
        return future

    def _halt(self, error: Exception) -> Halt:
        """Stop the task's function for good, whatever it catches: the journal does not fit it."""
        self._mismatch = self._mismatch or EngineError(
            f"task {self._id!r}: what its function asks for is not what it asked for when Restate "
            f"first ran it ({error!s:.300})"
        )
        body = self._host.bodies.get(self._id)
        return Halt(self._mismatch) if body is None else body.halted(self._mismatch)

    # What comes

    async def first(self, pendings: Sequence[Pending]) -> None:
        """Wait until one of these has come, or a message."""
        while not self._messages and not any(pending.done() for pending in pendings):
            if self._mismatch is not None:
                raise self._mismatch
            await self._next()
        await self.hold()

    async def _next(self) -> None:
        """Wait for the next thing to come: one at a time, in the order of the journal."""
        try:
            # All of them, each time: which is the first is the same only among the same.
            done, _ = await restate.wait_completed(*self._coming)
        except TerminalError:  # the invocation was cancelled
            self._hear(CANCEL)
            return
        come = self._coming.pop(done[0])
        try:
            said = await done[0]
        except TerminalError:
            said = None
        come(said)

    async def hold(self) -> None:
        """Take hold of the task's log where the loop does not have to wait for it."""
        await self._host.hub.taken(self._id, self._since)

    def messages(self) -> Sequence[str]:
        """The messages that have come since."""
        messages, self._messages = self._messages, []
        return messages

    def _listen(self) -> None:
        """Wait for the next message."""
        self._mail += 1
        if self._mail % MAIL_STEP == 0:
            self._ctx.set(MAIL, self._mail, JsonSerde())
        mail: RestateDurableFuture[Any] = self._ctx.promise(
            f"{MAIL}-{self._mail}", JsonSerde()
        ).value()
        self._coming[mail] = self._told

    def _hear(self, message: str) -> None:
        """A message has come. Each counts once, however often Restate is told of it."""
        if message not in self._heard:
            self._heard.add(message)
            self._messages.append(message)

    def _told(self, said: Any) -> None:
        self._hear_time(said)
        if isinstance(said, dict):
            self._hear(str(said.get("name")))
        self._listen()

    def _hear_time(self, said: Any) -> None:
        at = _time(said.get("at")) if isinstance(said, dict) else None
        if at is not None:
            self._now = max(self._now, at)


def _runs_before(state: State, job: Job) -> Iterator[Job]:
    """The runs that one follows, the newest first."""
    moves = {event.seq: event.since for event in state.trail if isinstance(event, Moved)}
    while since := moves.get(job.seq, 0):
        job = Job(job.id, job.task, since, job.log)
        yield job


def heard(post: str) -> str:
    """The message in its inbox, as the task hears it."""
    return CANCEL if is_to_end(post) else post


def _time(text: Any) -> datetime | None:
    return None if text is None else datetime.fromisoformat(str(text))
