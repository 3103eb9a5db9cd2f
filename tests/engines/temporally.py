"""Tasks on a real Temporal for tests: its workers in this process, and what it has kept of them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.history.v1 import History
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest
from temporalio.client import Client, WorkflowExecutionStatus

from holdfast import Holdfast
from holdfast.engines.temporal import Temporal
from holdfast.testing.servers import TemporalServer

_queues = count(1)
PATIENCE_S = 20.0


def temporal_at(server: TemporalServer, queue: str = "", **options: Any) -> Temporal:
    """A Temporal with a queue of its own, whose lost workers are missed soon."""
    queue = queue or f"queue-{next(_queues)}"
    return Temporal(server.address, queue=queue, **{"lost_after_s": 2.0, **options})


@contextmanager
def working(hf: Holdfast, **options: Any) -> Iterator[list[str]]:
    """A worker in a thread; yields what it says."""
    said: list[str] = []
    worker = hf.engine.worker(hf, say=said.append, **options)
    thread = threading.Thread(target=worker.run, name="a worker")
    thread.start()
    try:
        yield said
    finally:
        worker.stop()
        thread.join()


def until(is_so: Callable[[], Any], seconds: float = PATIENCE_S) -> Any:
    """Wait for a condition; returns what it was."""
    give_up_at = time.monotonic() + seconds
    while not (found := is_so()):
        assert time.monotonic() < give_up_at, "it did not come"
        time.sleep(0.02)
    return found


def ask_temporal(server: TemporalServer, what: Callable[[Client], Any]) -> Any:
    """Do something with a client that knows nothing of Holdfast, as Temporal's page does."""

    async def main() -> Any:
        return await what(await Client.connect(server.address))

    return asyncio.run(main())


def history(server: TemporalServer, id: str) -> bytes:
    """Everything that Temporal kept of a task that has ended, in all its runs, as it has it."""

    async def fetch(client: Client) -> bytes:
        handle = client.get_workflow_handle(id)
        # Not by its result, which only who has the key could read.
        description = await handle.describe()
        if description.status == WorkflowExecutionStatus.RUNNING:
            return b""
        kept, run_id = description.raw_description.SerializeToString(), description.run_id
        while run_id:
            events = await _events(client, id, run_id)
            kept += events.SerializeToString()
            began = events.events[0].workflow_execution_started_event_attributes
            run_id = began.continued_execution_run_id
        return kept

    found: bytes = until(lambda: ask_temporal(server, fetch))
    return found


async def _events(client: Client, id: str, run_id: str) -> History:
    kept, page = History(), b""
    while True:
        request = GetWorkflowExecutionHistoryRequest(
            namespace=client.namespace,
            execution=WorkflowExecution(workflow_id=id, run_id=run_id),
            next_page_token=page,
        )
        answer = await client.workflow_service.get_workflow_execution_history(request)
        kept.MergeFrom(answer.history)
        page = answer.next_page_token
        if not page:
            return kept
