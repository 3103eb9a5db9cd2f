"""The activity that a call is. Its type is the name of the step, so one function serves all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from holdfast.engines.remote.attempt import attempt, settle
from holdfast.engines.remote.carrier import Waits
from holdfast.engines.temporal.carrier import ENDED
from holdfast.engines.temporal.served import Served, Trouble, serving, shown
from holdfast.events import Failure
from holdfast.state import Call

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
