"""The workflow that a task is. Its type is the name of the task, so one class serves all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, CancelledError

from holdfast.engines.elsewhere import Taken
from holdfast.engines.remote.course import End, drive
from holdfast.engines.temporal.carrier import TemporalCarrier
from holdfast.engines.temporal.served import TELL, Trouble, begin_at, served_here, shown


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


def _finish(end: End, begin: dict[str, Any]) -> Any:
    if end.how == "again":
        workflow.continue_as_new(begin_at(end.seq, begin["log"]))
    if end.how == "ended" and end.status == "failed":
        raise ApplicationError(end.text, type="TaskFailed", non_retryable=True)
    if end.how == "ended" and end.status == "cancelled":
        raise CancelledError(end.text or "cancelled")
    return {"how": end.how, "status": end.status, "result": shown(end.result)}
