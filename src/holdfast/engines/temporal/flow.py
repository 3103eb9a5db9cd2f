"""The workflow that a task is. Its type is the name of the task, so one class serves all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, CancelledError

from holdfast.engines.remote.course import End, drive
from holdfast.engines.temporal.carrier import TemporalCarrier
from holdfast.engines.temporal.served import begin_at, serving, shown


@workflow.defn(dynamic=True)
class TaskFlow:
    """A task, as Temporal runs it."""

    def __init__(self) -> None:
        self._carrier: TemporalCarrier | None = None
        self._early: list[str] = []

    @workflow.run
    async def run(self, args: Sequence[RawValue]) -> Any:
        info = workflow.info()
        begin = workflow.payload_converter().from_payload(args[0].payload, dict)
        served = serving[info.task_queue]
        self._carrier = TemporalCarrier(served)
        for name in self._early:
            self._carrier.tell(name)
        try:
            end = await drive(served.host, self._carrier, info.workflow_id, begin["seq"])
        finally:
            self._carrier.leave()
        return _finish(end, begin)

    @workflow.signal
    def tell(self, name: str) -> None:
        """A message was left for the task."""
        if self._carrier is None:
            self._early.append(name)
        else:
            self._carrier.tell(name)


def _finish(end: End, begin: dict[str, Any]) -> Any:
    if end.how == "again":
        workflow.continue_as_new(begin_at(end.seq, begin["log"]))
    if end.how == "ended" and end.status == "failed":
        raise ApplicationError(end.text, type="TaskFailed", non_retryable=True)
    if end.how == "ended" and end.status == "cancelled":
        raise CancelledError(end.text or "cancelled")
    return {"how": end.how, "status": end.status, "result": shown(end.result)}
