"""An agent whose chat grows to 200,000 tokens, on Temporal: what its history holds, and what we do.

An agent goes on with a conversation of 209,000 tokens and makes 100 calls of a model, each with
all that was said so far, and 100 calls of a tool that returns 5 KB. The SDK alone, used in the
usual way, hands the conversation to an activity each time, and so the server's history grows with
the square of the calls, until the server ends the workflow at 50 MB.

`python -m bench.history WHO CALLS FOLDER`, in which WHO is `holdfast` or `bare`, starts a server
and a worker and prints JSON: how many calls of the model there were, whether the agent came to its
end, and the bytes of the engine's history and of our store.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from bench import engines
from bench.conversation import bytes_of
from bench.running import Json


def main() -> None:
    who, calls, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    print(json.dumps(measure(who, calls, folder)))


def measure(who: str, calls: int, folder: Path) -> Json:
    from holdfast.testing.servers import TemporalServer

    with TemporalServer(folder / "server") as server:
        url = f"sqlite:///{folder}/store.db"
        start = time.perf_counter()
        if who == "holdfast":
            with (
                engines.worker(folder, "holdfast", "temporal", url, server.address),
                engines.holdfast(url, "temporal", server.address) as do,
            ):
                start = time.perf_counter()
                made, ended = do("converse", calls, "agent")["calls"], True
        else:
            with engines.worker(folder, "bare", "temporal", server.address):
                start = time.perf_counter()
                made, ended = asyncio.run(_alone(server.address, calls))
        seconds = time.perf_counter() - start
        history = asyncio.run(_history_bytes(server.address))
    ours = (bytes_of(url) or 0) if who == "holdfast" else 0
    return {
        "calls": made,
        "ended": ended,
        "seconds": seconds,
        "history_bytes": history,
        "store_bytes": ours,
    }


async def _alone(address: str, calls: int) -> tuple[int, bool]:
    from temporalio.api.enums.v1 import EventType
    from temporalio.client import Client, WorkflowFailureError

    from bench import bare_temporal

    client = await Client.connect(address)
    handle: Any = await client.start_workflow(
        "Converse", calls, id="agent", task_queue=bare_temporal.QUEUE
    )
    try:
        await handle.result()
        return calls, True
    except WorkflowFailureError:  # the server has ended it
        asked = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
        named = [
            event.activity_task_scheduled_event_attributes.activity_type.name
            async for event in handle.fetch_history_events(page_size=8)
            if event.event_type == asked
        ]
        return named.count("model"), False


async def _history_bytes(address: str) -> int:
    """Of all that the server ran."""
    from temporalio.client import Client

    client = await Client.connect(address)
    return sum(
        [
            (
                await client.get_workflow_handle(each.id, run_id=each.run_id).describe()
            ).raw_description.workflow_execution_info.history_size_bytes
            async for each in client.list_workflows("")
        ]
    )


if __name__ == "__main__":
    main()
