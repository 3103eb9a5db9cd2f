"""The workflow that a task is. Its type is the name of the task, so one class serves all."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from msgspec import Raw
from temporalio import activity, workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ApplicationErrorCategory,
    CancelledError,
    FailureError,
)

from holdfast.core.events import Failure
from holdfast.core.journal import Asked
from holdfast.core.spec import ONCE, Retry, Spec
from holdfast.core.state import Call
from holdfast.engines.port import Job
from holdfast.engines.remote.attempt import attempt, settle
from holdfast.engines.remote.carrier import Called, ChildRun, Lost, Pending, Timer, Waits
from holdfast.engines.remote.course import RunEnd, drive
from holdfast.engines.routing import CANCEL, Taken, log_in
from holdfast.engines.temporal.served import (
    BEAT,
    SHOWN_BYTES,
    SILENT,
    TELL,
    Offer,
    Served,
    Trouble,
    begin_at,
    memo_of,
    served_here,
    serving,
    shown,
)


@workflow.defn(dynamic=True)
class TaskFlow:
    """A task, as Temporal runs it."""

    def __init__(self) -> None:
        self._carrier: TemporalCarrier | None = None
        self._early: list[str] = []

    @workflow.run
    async def run(self, args: Sequence[RawValue]) -> Any:
        served, id = served_here(), workflow.info().workflow_id
        self._carrier = TemporalCarrier(served)
        for name in self._early:
            self._carrier.tell(name)
        try:
            begin = workflow.payload_converter().from_payload(args[0].payload, dict)
            end = await drive(served.host, self._carrier, id, begin["seq"], begin["log"])
        except Exception as error:
            if isinstance(error, Taken):
                served.end_run(id, workflow.info().run_id)
            # No failure of the workflow, but of this attempt to go on with it: Temporal makes
            # another, here or elsewhere. Nothing else of the error may be seen there.
            raise Trouble(served.trouble(id, error)) from None
        self._carrier.end()
        return _finish(end, begin)

    # It takes every signal, whatever comes with it: one that does not fit a handler, which anybody
    # can send from Temporal's page, would stop the workflow for good.
    @workflow.signal(dynamic=True)
    def heard(self, signal: str, args: Sequence[RawValue]) -> None:
        """A message was left for the task."""
        name = _name_in(args) if signal == TELL else None
        if name is None:
            return
        if self._carrier is None:
            self._early.append(name)
        else:
            self._carrier.tell(name)


def _name_in(args: Sequence[RawValue]) -> str | None:
    try:
        name = workflow.payload_converter().from_payload(args[0].payload)
    except Exception:
        return None
    return name if isinstance(name, str) else None


def _finish(end: RunEnd, begin: dict[str, Any]) -> Any:
    if end.how == "again":
        workflow.continue_as_new(begin_at(end.seq, begin["log"]))
    if end.how == "ended" and end.status == "failed":
        raise ApplicationError(end.text, type="TaskFailed", non_retryable=True)
    if end.how == "ended" and end.status == "cancelled":
        raise CancelledError(end.text or "cancelled")
    return {"how": end.how, "status": end.status, "result": shown(end.result)}


# The activity that a call is. Its type is the name of the step, so one function serves all.


_SAID = ApplicationErrorCategory.BENIGN
"""Failures that are in the log, or were said by the worker: Temporal's own need not be one more."""


@activity.defn(dynamic=True)
async def make_call(args: Sequence[RawValue]) -> Any:
    """Make a call of a task: from the log if it is there, else for real."""
    info = activity.info()
    served = serving[info.task_queue]
    path = activity.payload_converter().from_payload(args[0].payload, str)
    task_id = info.workflow_id or ""
    make = _attempt if path else _settle  # not by its name, which a step may have too
    work = partial(make, served, task_id, path)
    beating = asyncio.ensure_future(_beat(served.lost_after.total_seconds()))
    try:
        return await _once(served, (task_id, path), work)
    except ApplicationError:
        raise
    except Exception as error:
        said = served.trouble(task_id, error)
        raise ApplicationError(said, type=Trouble.__name__, category=_SAID) from None
    finally:
        beating.cancel()


async def _once(served: Served, key: tuple[str, str], work: Callable[[], Any]) -> Any:
    """Do what a call asks for, or wait for it where it is being done.

    Temporal has a call made again that it takes for lost: by a worker that was held up, or whose
    threads are all at work, that is this one, and the call may be under way.
    """
    doing = served.under_way.get(key)
    if doing is None:
        doing = asyncio.ensure_future(_in_a_place(served, work))
        served.under_way[key] = doing
        doing.add_done_callback(lambda _: served.under_way.pop(key, None))
    return await _to_its_end(doing)


async def _in_a_place(served: Served, work: Callable[[], Any]) -> Any:
    async with served.host.places or nullcontext():
        return await asyncio.get_running_loop().run_in_executor(None, work)


async def _to_its_end(work: asyncio.Future[Any]) -> Any:
    """Wait for work that is not to be stopped half-way, also if Temporal cancels who waits."""
    while not work.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([work])
    return work.result()


def _settle(served: Served, task_id: str, path: str) -> Any:
    return _answer(served, None, settle(served.host, task_id))


def _attempt(served: Served, task_id: str, path: str) -> Any:
    offer = served.offers.get((task_id, path))
    if offer is None:
        # The function of the task goes on in another worker by now, and asks for it there.
        raise ApplicationError("the task went on elsewhere", type="Gone", non_retryable=True)
    with served.host.hub.hold(task_id) as log:
        waits = attempt(served.host, task_id, path, offer.spec, offer.data)
        record = log.state.calls.get(path)
    if waits is None:
        served.offers.pop((task_id, path), None)
    return _answer(served, record, waits, offer.shown_bytes)


def _answer(served: Served, record: Call | None, waits: Waits | None, shown_bytes: int = 0) -> Any:
    if waits is None:
        if record is not None and record.status == "failed" and record.failure is not None:
            summary = record.failure.summary()
            raise ApplicationError(summary, type=ENDED, non_retryable=True, category=_SAID)
        return {"result": shown(record.result, shown_bytes) if record is not None else None}
    if record is not None and record.status == "backing_off" and waits.until is not None:
        raise _backing_off(served, record, waits)
    until = waits.until.isoformat() if waits.until is not None else None
    return {"waits": {"seq": waits.seq, "until": until}}


def _backing_off(served: Served, record: Call, waits: Waits) -> ApplicationError:
    """A failed attempt: Temporal makes the next one, when the journal says."""
    until = waits.until or served.host.holding.clock()
    wait = max(until - served.host.holding.clock(), timedelta(milliseconds=1))
    failure = record.attempts[-1].failure or Failure("Unknown", "")
    return ApplicationError(
        failure.message, type=failure.type, next_retry_delay=wait, category=_SAID
    )


async def _beat(lost_after_s: float) -> None:
    while True:
        await asyncio.sleep(lost_after_s * BEAT)
        activity.heartbeat()


# The requests of a workflow to Temporal for its task.


Inside = Callable[[], AbstractContextManager[None]]
"""Makes the loop of the workflow the running one."""

ENDED = "holdfast.ended"
SETTLE = "holdfast.settle"

AT_ONCE = 50
"""How many calls of a task Temporal makes at once; the others wait here. It refuses more than 2,000
of them, takes those for lost that it can't hand out in time, and has the workflow begin at its top
when more than 100 things happen while it thinks: two for each call."""
SHOWN_IN_ALL_BYTES, SHOWN_AFTER_BYTES = 1024 * 1024, 1024
"""How much of arguments a run shows Temporal, and of each when that is used up: it refuses more
than 4 MB at once."""

_SHORTEST = timedelta(milliseconds=1)
_LONGEST = timedelta(days=3650)


class TemporalCarrier:
    """One run of a workflow."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._task_id = workflow.info().workflow_id
        self._loop = asyncio.get_running_loop()
        self._messages: list[str] = []
        self._offered: set[str] = set()
        self._is_cancelled = False
        self._under_way = 0
        self._waiting: deque[_Called] = deque()
        self._shown_bytes = 0

    def end(self) -> None:
        """This run is over. A run that is only forgotten here is not: its calls are under way."""
        for path in list(self._offered):
            self._take_back(path)
        self._served.is_well(self._task_id)

    def tell(self, name: str) -> None:
        """A message has come."""
        self._messages.append(name)

    def messages(self) -> Sequence[str]:
        messages, self._messages = self._messages, []
        return messages

    async def first(self, pendings: Sequence[Pending]) -> None:
        def is_news() -> bool:
            return bool(self._messages) or any(pending.done() for pending in pendings)

        try:
            await workflow.wait_condition(is_news)
        except asyncio.CancelledError:
            # Temporal cancels what it forgets as well as what somebody cancelled.
            if self._is_cancelled or workflow.cancellation_reason() is None:
                raise
            self._is_cancelled = True
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            self.tell(CANCEL)

    def call(self, asked: Asked, data: bytes) -> Called:
        spec, path = asked.spec, asked.path
        offer = partial(self._offer, path, spec, data)
        args = self._shown(asked.args)
        return self._activity(spec.name, path, args, spec.retry, offer, timeout_s=spec.timeout_s)

    def _offer(self, path: str, spec: Spec, data: bytes) -> None:
        """Let this worker know how a call is made that it is about to be asked for."""
        # Not again for one that was asked for long ago, of this worker or of another.
        if not workflow.unsafe.is_replaying():
            is_much = len(self._waiting) > AT_ONCE or self._has_shown_much
            most = SHOWN_AFTER_BYTES if is_much else SHOWN_BYTES
            self._served.offers[self._task_id, path] = Offer(spec, data, most)
            self._offered.add(path)

    def _take_back(self, path: str) -> None:
        self._served.offers.pop((self._task_id, path), None)
        self._offered.discard(path)

    def _shown(self, args: Any) -> Any:
        most = SHOWN_AFTER_BYTES if self._has_shown_much else SHOWN_BYTES
        if isinstance(args, Raw):
            self._shown_bytes += min(len(bytes(args)), SHOWN_BYTES)
        return shown(args, most)

    @property
    def _has_shown_much(self) -> bool:
        return self._shown_bytes > SHOWN_IN_ALL_BYTES

    def settle(self) -> Called:
        return self._activity(SETTLE, "", None, ONCE, lambda: None, timeout_s=None)

    def _activity(
        self,
        name: str,
        path: str,
        args: Any,
        retry: Retry,
        offer: Callable[[], None],
        *,
        timeout_s: float | None,
    ) -> Called:
        lost_after = self._served.lost_after
        # The journal says when a call has failed for good, and gives up an attempt in time: what
        # Temporal is told comes a little later.
        limit = _LONGEST if timeout_s is None else timedelta(seconds=timeout_s) + lost_after

        def start() -> Any:
            offer()
            return workflow.start_activity(
                name,
                args=[path, args],
                task_queue=self._served.own_queue,
                start_to_close_timeout=limit,
                heartbeat_timeout=lost_after * SILENT,
                schedule_to_start_timeout=lost_after * SILENT,
                retry_policy=_policy(retry),
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                summary=path or None,
            )

        call = _Called(start, path, self._inside)
        self._waiting.append(call)
        with self._inside():
            self._begin()
        return call

    def _begin(self) -> None:
        """Have Temporal make the calls that wait, as many as it may."""
        while self._waiting and self._under_way < AT_ONCE:
            call = self._waiting.popleft()
            if not call.done():  # which it is if it was given up
                self._under_way += 1
                call.begin(partial(self._is_over, call.path))

    def _is_over(self, path: str, handle: Any) -> None:
        self._under_way -= 1
        if not workflow.unsafe.is_replaying():  # else it may have been asked for again since
            self._take_back(path)
        if not handle.cancelled():
            self._begin()

    def sleep(self, until: datetime) -> Timer:
        with self._inside():
            wait = max(until - workflow.now(), _SHORTEST)
            return _Timer(asyncio.ensure_future(workflow.sleep(wait)), self._inside)

    def start_child(self, id: str, task: str) -> ChildRun:
        with self._inside():
            log = log_in(self._served.host.holding.store, id)
            run = _run_child(Job(id, task, 1, log), self._served.lost_after)
            return _Child(asyncio.ensure_future(run))

    def is_full(self) -> bool:
        with self._inside():
            info = workflow.info()
            longest = self._served.longest_history
            if longest and info.get_current_history_length() >= longest:
                return True
            return info.is_continue_as_new_suggested()

    def now(self) -> datetime:
        with self._inside():
            return workflow.now()

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """The function of a task runs outside the loop of its workflow; what it asks for, in it."""
        loop = asyncio._get_running_loop()
        asyncio._set_running_loop(self._loop)
        try:
            yield
        finally:
            asyncio._set_running_loop(loop)


def _policy(retry: Retry) -> RetryPolicy:
    return RetryPolicy(
        initial_interval=timedelta(seconds=max(retry.delay_s, 0.001)),
        backoff_coefficient=max(retry.backoff, 1.0),
        maximum_interval=timedelta(seconds=max(retry.max_delay_s, retry.delay_s, 0.001)),
        # Its maker is dead, or hangs with its connections open, and would be given it again.
        non_retryable_error_types=["TemporalTimeout:Heartbeat"],
    )


class _Timer:
    """A timer of Temporal."""

    def __init__(self, future: asyncio.Future[None], inside: Inside) -> None:
        self._future = future
        self._inside = inside

    def done(self) -> bool:
        return self._future.done()

    def give_up(self) -> None:
        with self._inside():
            self._future.cancel()


class _Called:
    """An activity: waiting to be begun, or under way."""

    def __init__(self, start: Callable[[], Any], path: str, inside: Inside) -> None:
        self.path = path
        self._start = start
        self._inside = inside
        self._handle: Any = None
        self._is_given_up = False

    def begin(self, when_over: Callable[[Any], None]) -> None:
        self._handle = self._start()
        self._handle.add_done_callback(when_over)

    def done(self) -> bool:
        return self._is_given_up if self._handle is None else bool(self._handle.done())

    def give_up(self) -> None:
        self._is_given_up = True
        if self._handle is not None:
            with self._inside():
                self._handle.cancel()

    def result(self) -> Waits | Lost | None:
        if self._handle is None:
            return Lost()
        try:
            answer = self._handle.result()
        except asyncio.CancelledError:
            return Lost()
        except ActivityError as error:
            cause = error.cause
            has_ended = isinstance(cause, ApplicationError) and cause.type == ENDED
            return None if has_ended else Lost()
        waits = answer.get("waits")
        if waits is None:
            return None
        until = waits.get("until")
        return Waits(waits["seq"], None if until is None else datetime.fromisoformat(until))


async def _run_child(job: Job, lost_after: timedelta) -> bool:
    """Run a child; whether it ended, and not only went elsewhere."""
    try:
        answer: Any = await workflow.execute_child_workflow(
            job.task,
            begin_at(job.seq, job.log),
            id=job.id,
            memo=memo_of(job),
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            task_timeout=lost_after,
            cancellation_type=workflow.ChildWorkflowCancellationType.ABANDON,
        )
    except FailureError as error:
        # Else it was started already, by a step or in an earlier run, or somebody ended its
        # workflow, and not the task: it says itself when it ends.
        return isinstance(error.cause, ApplicationError | CancelledError)
    return bool(answer.get("how") != "moved")


class _Child:
    """A child workflow under way."""

    def __init__(self, future: asyncio.Future[bool]) -> None:
        self._future = future

    def done(self) -> bool:
        return self._future.done()

    def has_ended(self) -> bool:
        return self._future.result()
