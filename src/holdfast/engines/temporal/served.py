"""The places where the workflows and activities of a worker find each other.

Temporal makes workflows and activities by their names, so what they need is looked up: by an
activity under the queue that it was taken from, by a workflow where its worker left it, as several
workers of a process may take workflows from the same queue.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct
from temporalio import workflow
from temporalio.worker import Interceptor, WorkflowInterceptorClassInput

from holdfast.core.spec import Spec
from holdfast.engines.port import Job
from holdfast.engines.remote.host import Host
from holdfast.errors import EngineError, HoldfastError

if TYPE_CHECKING:
    from holdfast.engines.temporal.engine import Temporal

SHOWN_BYTES = 16 * 1024
"""Values up to that size are shown to Temporal; of longer ones only the size. It keeps none: they
are in the store."""


def begin_at(seq: int, log: str = "") -> dict[str, Any]:
    """The input of a workflow: the event it goes on from, and of which log."""
    return {"seq": seq, "log": log}


def begun_with(data: bytes) -> tuple[int, str] | None:
    """The event and the log in the input of a workflow; None if it is another value, or says of no
    log.

    >>> begun_with(b'{"seq": 1, "log": "a1"}'), begun_with(b'{"result": {"seq": 1}}')
    ((1, 'a1'), None)
    """
    if len(data) > _LONGEST_BEGIN_BYTES:
        return None
    with suppress(ValueError):
        value = msgspec.json.decode(data)
        if isinstance(value, dict) and value.keys() == {"seq", "log"} and value["log"]:
            return int(value["seq"]), str(value["log"])
    return None


_LONGEST_BEGIN_BYTES = 500

SILENT, BEAT = 0.5, 0.1
"""The parts of `lost_after_s` after which a call without a sign of life counts as lost, and after
which it gives one."""


TELL = "tell"
"""The signal that a message was left for a task; its name comes with it."""
LOG, SEQ = "holdfast_log", "holdfast_seq"
"""The memory of a workflow about its task."""

_SERVED = "holdfast_served"


def memo_of(job: Job) -> dict[str, Any]:
    """By what a workflow is known to be that of a task."""
    return {LOG: job.log, SEQ: job.seq}


class Unreachable(EngineError):
    """Temporal is not there, or not yet."""


class Trouble(HoldfastError):
    """The obstacle of a task, as a worker has said it. It is raised for Temporal only."""


class Offer(Struct, frozen=True):
    """How a call is made: with which function and arguments. It stays here: what is sent to
    Temporal are the names."""

    spec: Spec
    data: bytes
    shown_bytes: int
    """How much of its result is shown to Temporal."""


class Served:
    """One worker: where its activities are sent, and which calls it was asked to make."""

    def __init__(
        self, host: Host, engine: Temporal, own_queue: str, say: Callable[[str], None]
    ) -> None:
        self.host = host
        self.own_queue = own_queue
        """Calls are made by the worker that runs the function of their task: it holds the log."""
        self._say = say
        self._engine = engine
        self._said: dict[str, str] = {}
        self.lost_after: timedelta = timedelta(seconds=engine.lost_after_s)
        self.longest_history: int = engine.longest_history
        self.offers: dict[tuple[str, str], Offer] = {}
        """How the calls are made that were asked for here, by task and path."""
        self.under_way: dict[tuple[str, str], asyncio.Future[Any]] = {}
        """The calls that are being made, by task and path."""

    def trouble(self, task_id: str, error: Exception) -> str:
        """The obstacle of a task: as a text for Temporal, and said here, once.

        It comes from our own code, or from the store, and not from a call that failed: nothing of
        it is in the log, and it was not searched for what is to be hidden yet.
        """
        text = self.host.holding.redact.text(f"{type(error).__name__}: {error}")
        if self._said.get(task_id) != text:
            self._said[task_id] = text
            self._say(f"{task_id}: {text}")
        return text

    def is_well(self, task_id: str) -> None:
        """Nothing stands in the way of a task any more."""
        self._said.pop(task_id, None)

    def end_run(self, task_id: str, run_id: str) -> None:
        """End the run of a task that was taken from Temporal, soon: what it would do is refused."""
        end = partial(self._engine.end_run, task_id, run_id)
        threading.Thread(target=end, name="holdfast temporal", daemon=True).start()


serving: dict[str, Served] = {}
"""The workers of this process, by the queues of their own."""


class Serving(Interceptor):
    """Lets the workflows of a worker know of it."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> None:
        input.unsafe_extern_functions[_SERVED] = lambda: self._served


def served_here() -> Served:
    """Called in a workflow: the worker that runs it."""
    found: Served = workflow.extern_functions()[_SERVED]()
    return found


def shown(value: Any, most_bytes: int = SHOWN_BYTES) -> Any:
    """A value as Temporal shows it."""
    if not isinstance(value, Raw):
        return None
    data = bytes(value)
    if len(data) > most_bytes:
        return f"({len(data):,} bytes, in the store)"
    return msgspec.json.decode(data)
