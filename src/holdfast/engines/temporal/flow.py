"""The workflow that a task is. Its type is the name of the task, so one class serves all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio import activity, workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, CancelledError

from holdfast.core.events import Failure
from holdfast.core.state import Call
from holdfast.engines.remote.attempt import attempt, settle
from holdfast.engines.remote.carrier import Waits
from holdfast.engines.remote.course import RunEnd, drive
from holdfast.engines.routing import Taken
from holdfast.engines.temporal.carrier import ENDED, TemporalCarrier
from holdfast.engines.temporal.served import (
    TELL,
    Served,
    Trouble,
    begin_at,
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
        await asyncio.sleep(lost_after_s / 3)
        activity.heartbeat()
