"""The workflows that Restate knows: one for each type of task, with four handlers.

run     the course of a task, once for each key
tell    a message was left for it
ended   waits for its end, for the task that started it
left    its run was killed, and the task goes on under another key
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from restate import TerminalError, Workflow, WorkflowContext, WorkflowSharedContext
from restate.exceptions import RetryableError
from restate.retry_policy import InvocationRetryPolicy
from restate.serde import JsonSerde
from restate.server_context import DisconnectedException

from holdfast.engines.elsewhere import Taken, log_in
from holdfast.engines.port import Job
from holdfast.engines.remote.course import End, drive
from holdfast.engines.remote.host import Host
from holdfast.engines.restate.calls import Calls, trouble
from holdfast.engines.restate.carrier import END, ENDED, JSON, LEFT, MAIL, RestateCarrier
from holdfast.engines.restate.names import LOG, RUN, TELL, service_of
from holdfast.errors import BadInput, EngineConflict, EngineError, TaskBusy, TaskNotFound

if TYPE_CHECKING:
    from holdfast.engines.restate.engine import Restate

_logger = logging.getLogger("holdfast")

_AGAIN = InvocationRetryPolicy(
    initial_interval=timedelta(milliseconds=50),
    exponentiation_factor=2.0,
    max_interval=timedelta(seconds=2),
    max_attempts=1_000_000,  # a task is never given up: its worker, store or code comes back
    on_max_attempts="pause",
)
_INACTIVE = timedelta(minutes=5)
"""How long a task that waits stays in its worker; then Restate wakes it when something comes."""
_ABORT = timedelta(days=7)
"""How long a step may take beyond that, before Restate turns away from the worker that runs it."""
_TOLD = timedelta(minutes=1)
"""How long Restate knows that it was told of a message: one that stays in the inbox it hears of
again."""


class Courses:
    """The courses of tasks, as Restate runs them."""

    def __init__(self, host: Host, calls: Calls, engine: Restate) -> None:
        self._host = host
        self._calls = calls
        self._engine = engine
        self._said: dict[str, str] = {}

    async def run(self, ctx: WorkflowContext, asked: dict[str, Any]) -> dict[str, Any]:
        """Drive a task to its end."""
        id = str(asked["id"])
        job = Job(id, str(asked["task"]), int(asked["seq"]), str(asked.get("log", "")))
        try:
            found = await asyncio.to_thread(self._log_of, id)
            _must_be_the_same(id, found, job.log)
            await asyncio.to_thread(self._host.hub.take, id, job.seq)
            ctx.set(LOG, found, JsonSerde())
            end = await self._driven(ctx, job)
        except (RetryableError, DisconnectedException):
            raise
        except Taken as error:
            self._say_once(id, str(error))
            with suppress(EngineError):
                await asyncio.to_thread(self._engine.end, ctx.request().id, "kill")
            raise trouble(id, error) from error
        except TaskBusy as error:  # with whom it was before, who finishes a step
            self._say_once(id, "another worker has it in hand")
            raise trouble(id, error) from error
        except Exception as error:
            self._say_once(id, str(error))
            raise trouble(id, error) from error
        if end.how == "ended" and end.status != "completed":
            # Shown as failed; why is in the log.
            raise TerminalError(f"{end.status}: see `holdfast show`", _CODES.get(end.status, 500))
        return {"how": end.how, "status": end.status}

    async def _driven(self, ctx: WorkflowContext, job: Job) -> End:
        carrier = RestateCarrier(ctx, self._host, self._calls, job, self._engine)
        seq = await carrier.begin()
        while True:
            await carrier.hold()
            end = await drive(self._host, carrier, job.id, seq)
            if end.how != "again" or carrier.is_full():
                # First of all: from the moment on when the task has a new run nobody waits here.
                await carrier.end(end.how)
                if end.how == "again":
                    await carrier.renew()
                return end
            seq = await carrier.go_on_at(end.seq)

    def _say_once(self, id: str, text: str) -> None:
        """Say why a task can't go on; Restate asks again every second or two."""
        if self._said.get(id) != text:
            self._said[id] = text
            _logger.warning("task %r can't go on: %s", id, text)

    def _log_of(self, id: str) -> str:
        # Without taking hold of it, which would be written to a log that may be another's.
        store = self._host.holding.store
        log = log_in(store, id)
        if not log:
            raise TaskNotFound(f"no task {id!r} in {store.url}")
        return log

    async def tell(self, ctx: WorkflowSharedContext, said: dict[str, Any]) -> None:
        """Put a message where the task looks for its next one."""

        async def now() -> str:
            return self._host.holding.clock().isoformat()

        at = await ctx.run_typed("now", now, JSON)  # recorded: tried again, it must say the same
        taken: Any = ctx.get(MAIL, JsonSerde())
        number = await taken or 1
        while True:
            promise: Any = ctx.promise(f"{MAIL}-{number}", JsonSerde())
            if await promise.peek() is None:
                try:
                    await promise.resolve({"name": said["name"], "at": at})
                    return
                except TerminalError:
                    pass  # another was quicker
            number += 1

    async def ended(self, ctx: WorkflowSharedContext, said: Any) -> Any:
        """Wait for the end of a task."""
        return await ctx.promise(END, JsonSerde()).value()

    async def left(self, ctx: WorkflowSharedContext, said: Any) -> None:
        """Answer who waits for the end of a run that was killed: the task goes on in another."""
        promise: Any = ctx.promise(END, JsonSerde())
        if await promise.peek() is None:
            with suppress(TerminalError):  # it ended after all
                await promise.resolve({"how": "again"})


def _must_be_the_same(id: str, found: str, log: str) -> None:
    if log and log != found:
        raise EngineConflict(
            f"task {id!r} of this worker's store is not the one that Restate was given, but "
            f"another with the same id: workers of two stores serve its type of task here. "
            f"Give the stores prefixes of their own (Restate(prefix=…))"
        )


_CODES = {"cancelled": 409}


def workflows(courses: Courses, tasks: Iterable[str], prefix: str) -> list[Workflow]:
    """The workflow of each type of task."""
    made: dict[str, tuple[str, Workflow]] = {}
    for task in sorted(tasks):
        name = service_of(task, prefix)
        if name in made:
            raise BadInput(
                f"the tasks {made[name][0]!r} and {task!r} would both be called {name!r} at "
                f"Restate: rename one of them (@task(name=…))"
            )
        made[name] = (task, _workflow(courses, name))
    return [workflow for _, workflow in made.values()]


def _workflow(courses: Courses, name: str) -> Workflow:
    workflow = Workflow(
        name,
        invocation_retry_policy=_AGAIN,
        inactivity_timeout=_INACTIVE,
        abort_timeout=_ABORT,
        idempotency_retention=_TOLD,
    )
    serde: Any = {"input_serde": JsonSerde(), "output_serde": JsonSerde()}

    @workflow.main(name=RUN, **serde)
    async def run(ctx: WorkflowContext, job: dict[str, Any]) -> dict[str, Any]:
        return await courses.run(ctx, job)

    @workflow.handler(name=TELL, **serde)
    async def tell(ctx: WorkflowSharedContext, said: dict[str, Any]) -> None:
        await courses.tell(ctx, said)

    @workflow.handler(name=ENDED, **serde)
    async def ended(ctx: WorkflowSharedContext, said: Any) -> Any:
        return await courses.ended(ctx, said)

    @workflow.handler(name=LEFT, **serde)
    async def left(ctx: WorkflowSharedContext, said: Any) -> None:
        await courses.left(ctx, said)

    return workflow
