"""What the workflows and activities of a worker find each other by.

Temporal makes workflows and activities by their names, so what they need is looked up: by the
queue that they were taken from.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from holdfast.engines.remote.host import Host
from holdfast.spec import Spec

if TYPE_CHECKING:
    from holdfast.engines.temporal.engine import Temporal

SHOWN_BYTES = 16 * 1024
"""Values up to that size are shown to Temporal; of longer ones only the size. It keeps none: they
are in the store."""


def begin_at(seq: int, log: str = "") -> dict[str, Any]:
    """What a workflow begins with: the event it goes on from, and of which log."""
    return {"seq": seq, "log": log}


class Served:
    """One worker: where its activities are sent, and which calls it was asked to make."""

    def __init__(self, host: Host, engine: Temporal, own_queue: str) -> None:
        self.host = host
        self.own_queue = own_queue
        """Calls are made by the worker that runs the function of their task: it holds the log."""
        self.lost_after = timedelta(seconds=engine.lost_after_s)
        self.longest_history = engine.longest_history
        self.offers: dict[tuple[str, str], tuple[Spec, bytes]] = {}


serving: dict[str, Served] = {}
"""The workers of this process, by each of their queues."""


def shown(value: Any) -> Any:
    """A value as Temporal shows it."""
    if not isinstance(value, Raw):
        return None
    data = bytes(value)
    if len(data) > SHOWN_BYTES:
        return f"({len(data):,} bytes, in the store)"
    return msgspec.json.decode(data)
