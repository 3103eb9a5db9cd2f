"""A Temporal cluster, seen from outside, and what it is shown if the store is encrypted."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import cache
from hashlib import sha256
from shlex import quote
from typing import Any, TypeVar

from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    SignalWorkflowExecutionRequest,
)
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    DefaultPayloadConverter,
    EncodingPayloadConverter,
    PayloadCodec,
    WorkflowSerializationContext,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)
from temporalio.service import RPCError, RPCStatusCode

from holdfast.engines.loops import LoopThread
from holdfast.engines.port import Closes, Driven, EngineWorker, Job
from holdfast.engines.temporal.served import LOG, SEQ, TELL, Unreachable, begin_at, memo_of
from holdfast.engines.temporal.worker import TemporalWorker
from holdfast.errors import BadInput, EngineConflict, EngineError, WrongKey

T = TypeVar("T")

_ADDRESS = re.compile(r"[^\s/:]+:\d{1,5}|\[[0-9a-fA-F:.]+\]:\d{1,5}")
_PATIENCE_S = 10.0
_ENDS_S = 0.5
"""How long a run that the task has left is given to end by itself."""


class Temporal:
    """Tasks as workflows on a Temporal cluster. Give it to `Holdfast(…, engine=…)`.

    `queue` is the task queue that workers take tasks from; all that share a store and their code
    use the same one. A worker keeps up to `kept` tasks in memory, others begin at their top when
    they go on. A history of `longest_history` events is continued as a new one (0: when Temporal
    suggests it). The tasks of a worker that does not answer go on elsewhere within `lost_after_s`.
    `deployment` is the name and the build of the code that a worker has, for Temporal's worker
    versioning: with `pinned`, a task stays with the build that it began on. `options` go to
    `temporalio.client.Client.connect` (`tls`, `api_key`, …).
    Needs `pip install 'holdfast[temporal]'`.

    >>> Temporal("127.0.0.1:7233", namespace="agents", queue="trips").name
    'temporal'
    """

    name = "temporal"

    def __init__(
        self,
        address: str = "127.0.0.1:7233",
        *,
        namespace: str = "default",
        queue: str = "holdfast",
        lost_after_s: float = 5.0,
        kept: int = 1000,
        longest_history: int = 0,
        deployment: tuple[str, str] | None = None,
        pinned: bool = True,
        **options: Any,
    ) -> None:
        if not _ADDRESS.fullmatch(address):
            raise BadInput(f"Temporal({address!r:.200}) must be like '127.0.0.1:7233'")
        if not lost_after_s > 0:
            raise BadInput(f"Temporal(lost_after_s={lost_after_s}) must be more than 0")
        self.address = address
        self.namespace = namespace
        self.queue = queue
        self.lost_after_s = lost_after_s
        self.kept = kept
        self.longest_history = longest_history
        self.deployment = deployment
        self.pinned = pinned
        self.options = options
        self._box: Closes | None = None
        self._has_store = False
        self._connected: Client | None = None
        self._loop: LoopThread | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Temporal({self.address!r}, namespace={self.namespace!r}, queue={self.queue!r})"

    def encrypt_with(self, box: Closes | None) -> None:
        """Keep nothing readable of the values of tasks, if their store has a key."""
        if self._has_store and not _is_same(self._box, box):
            raise BadInput(
                f"{self!r} was given to a store with another key, or with none: give each store a "
                f"Temporal(…, queue=…) of its own"
            )
        self._box, self._has_store = box, True

    # What tasks are told

    def start(self, job: Job) -> None:
        """See to it that a task is driven."""
        self._do(self._start(job))

    async def _start(self, job: Job) -> None:
        try:
            await self._start_run(job)
        except WorkflowAlreadyStartedError:
            handle = await self._handle(job)
            found = await handle.describe()
            await self._must_be_ours(job, found)
            if await _began_with(found) < job.seq:
                # The run of an earlier time, which the task left: it ends in a moment, unless the
                # task was taken from it, or nobody is there to end it.
                with suppress(WorkflowFailureError, TimeoutError):
                    await asyncio.wait_for(handle.result(), _ENDS_S)
                await self._terminate(found.id, found.run_id)
                with suppress(WorkflowAlreadyStartedError):  # by somebody else, meanwhile
                    await self._start_run(job)

    async def _start_run(self, job: Job) -> None:
        client = await self.client()
        await client.start_workflow(
            job.task,
            begin_at(job.seq, job.log),
            id=job.id,
            task_queue=self.queue,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            memo=memo_of(job),
            task_timeout=timedelta(seconds=self.lost_after_s),
        )

    def tell(self, job: Job, message: str) -> None:
        """A message was left for a task."""
        self._do(self._tell(job, message))

    async def _tell(self, job: Job, message: str) -> None:
        await self._its_run(job)
        client = await self.client()
        data = client.data_converter.with_context(
            WorkflowSerializationContext(namespace=self.namespace, workflow_id=job.id)
        )
        # Temporal keeps one signal of a message in a run, however often workers tell of it.
        # (The SDK's own call gives each signal an id of its own.)
        once = sha256(f"{job.log}\0{job.seq}\0{message}".encode()).hexdigest()
        request = SignalWorkflowExecutionRequest(
            namespace=self.namespace,
            workflow_execution=WorkflowExecution(workflow_id=job.id),
            signal_name=TELL,
            input=Payloads(payloads=await data.encode([message])),
            identity=client.identity,
            request_id=once,
        )
        await client.workflow_service.signal_workflow_execution(request, retry=True)

    def cancel(self, job: Job) -> None:
        """A message that asks it to end was left for a task."""
        self._do(self._cancel(job))

    async def _cancel(self, job: Job) -> None:
        await (await self._its_run(job)).cancel()

    async def _its_run(self, job: Job) -> Any:
        """The workflow of a task, to be told something: not that of another under the same id."""
        if await self._found(job) is None:
            raise EngineError(f"Temporal at {self.address} has no workflow {job.id!r} yet")
        return await self._handle(job)

    def stop(self, job: Job) -> None:
        """Drive a task no longer."""
        self._do(self._stop(job))

    async def _stop(self, job: Job) -> None:
        found = await self._found(job)
        if found is not None and await _is_of(job, found):
            await self._terminate(found.id, found.run_id)

    def end_run(self, id: str, run_id: str) -> None:
        """End one run of a workflow, by force, if Temporal can be reached."""
        with suppress(EngineError):
            self._do(self._terminate(id, run_id))

    async def _terminate(self, id: str, run_id: str) -> None:
        """End one run, by force; harmless if it has ended."""
        run = (await self.client()).get_workflow_handle(id, run_id=run_id)
        try:
            await run.terminate("the task goes on elsewhere")
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise

    def query(self, job: Job) -> Driven | None:
        """The knowledge of the cluster about a task; None if nothing, or only of an earlier
        time."""
        return self._do(self._query(job))

    async def _query(self, job: Job) -> Driven | None:
        found = await self._found(job)
        if found is None or not await _is_of(job, found):
            return None
        is_running = found.status == WorkflowExecutionStatus.RUNNING
        is_stopped = found.status == WorkflowExecutionStatus.TERMINATED
        return Driven(
            job.id,
            "running" if is_running else "stopped" if is_stopped else "ended",
            self.name,
            run=found.run_id,
            started_at=found.start_time,
            detail=found.status.name.lower() if found.status is not None else "",
        )

    async def _found(self, job: Job) -> WorkflowExecutionDescription | None:
        """The newest run of a task; None if there is none. A workflow of another store blocks the
        id only while it runs."""
        try:
            found: WorkflowExecutionDescription = await (await self._handle(job)).describe()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return None
            raise
        if found.status != WorkflowExecutionStatus.RUNNING and not await _is_ours(job, found):
            return None
        await self._must_be_ours(job, found)
        return found

    async def _must_be_ours(self, job: Job, found: WorkflowExecutionDescription) -> None:
        if not await _is_ours(job, found):
            raise EngineConflict(
                f"task {job.id!r}: namespace {self.namespace!r} of Temporal at {self.address} has "
                f"a workflow {job.id!r} that is not this task's ({found.workflow_type}, of "
                f"another store?). Start the task under another id, or use another namespace; one "
                f"that is in the store already can go on here (holdfast move {quote(job.id)} "
                f"--engine local --force)"
            )

    async def _handle(self, job: Job) -> Any:
        return (await self.client()).get_workflow_handle(job.id)

    # Driving

    def worker(
        self, hf: Any, *, concurrency: int = 16, say: Callable[[str], None] | None = None
    ) -> EngineWorker:
        """The worker that drives its tasks in this process."""
        return TemporalWorker(self, hf, concurrency=concurrency, say=say)

    # The connection

    async def client(self) -> Client:
        """The client of this engine's own loop, connected."""
        if self._connected is None:
            self._connected = await self.connect()
        return self._connected

    async def connect(self) -> Client:
        """A client, connected on the running loop."""
        try:
            options = dict(self.options)
            options["data_converter"] = converter(self._box, options.get("data_converter"))
            options.setdefault("runtime", _runtime())
            client = await Client.connect(self.address, namespace=self.namespace, **options)
            request = DescribeNamespaceRequest(namespace=self.namespace)
            await client.workflow_service.describe_namespace(request)
        except BadInput:
            raise
        except Exception as error:
            raise self._trouble(error) from error
        return client

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on this engine's own loop, from whichever thread."""
        with self._lock:
            self._loop = self._loop or LoopThread("holdfast temporal")
            future = self._loop.submit(work)
        try:
            return future.result(_PATIENCE_S)
        except (EngineError, BadInput):
            raise
        except TimeoutError as error:
            future.cancel()
            raise self._trouble(error) from error
        except Exception as error:
            raise self._trouble(error) from error

    def _trouble(self, error: Exception) -> EngineError:
        if isinstance(error, EngineError):
            return error
        if isinstance(error, RPCError) and error.status == RPCStatusCode.NOT_FOUND:
            if "amespace" in error.message:
                return EngineError(
                    f"Temporal at {self.address} has no namespace {self.namespace!r}: make it "
                    f"(temporal operator namespace create {self.namespace}), or name another"
                )
            return EngineError(f"Temporal at {self.address}: {error.message}")
        said = _in_words(f"{error}") or f"no answer within {_PATIENCE_S:g} s"
        return Unreachable(
            f"Temporal at {self.address} can't be reached ({said:.300}): start its server, or "
            f"correct the address"
        )

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            loop, self._loop, self._connected = self._loop, None, None
        if loop is not None:
            loop.close()


@cache
def _runtime() -> Runtime:
    """Temporal's own part of this process. Its messages go where Python's logs go: by itself it
    prints, among what a program prints for others to read."""
    forwarding = LogForwardingConfig(logging.getLogger("temporalio.core"))
    levels = TelemetryFilter(core_level="WARN", other_level="ERROR")
    return Runtime(
        telemetry=TelemetryConfig(logging=LoggingConfig(filter=levels, forwarding=forwarding))
    )


def _in_words(said: str) -> str:
    """The words of Temporal's core about a connection, without the names of its types around it.

    >>> _in_words('Error(ConnectError(Os { code: 111, message: "Connection refused" }))')
    'Connection refused'
    """
    found = re.search(r'(?:message|error): "([^"]+)"', said)
    return found[1] if found else said


def _is_same(one: Closes | None, two: Closes | None) -> bool:
    """Whether two boxes are closed with the same key."""
    if one is None or two is None:
        return one is two
    return one.open(two.close(b"", "same"), "same") is not None


async def _began_with(found: WorkflowExecutionDescription) -> int:
    """The event that a run, or that which it continues, began with."""
    return int((await found.memo()).get(SEQ, 0))


async def _is_ours(job: Job, found: WorkflowExecutionDescription) -> bool:
    """Whether a run is of the log that a task has, and not of another under the same id."""
    try:
        return (await found.memo()).get(LOG) == job.log
    except WrongKey:
        return False


async def _is_of(job: Job, found: WorkflowExecutionDescription) -> bool:
    """Whether a run is the one that drives a task now, and not that of an earlier time."""
    return await _began_with(found) == job.seq


# The data that Temporal keeps of tasks, encrypted: for a store that has a key.
#
# Temporal is shown the arguments and results of calls, and why they failed. If the store is
# encrypted, so is all of that: each payload is a box (see `stores.sealed.boxes`), closed with a
# key that follows from the root key of the store. A new master key changes nothing here, as the
# root key stays. Readable remain the ids and types of tasks, the names of steps and the types of
# errors, by which Temporal finds them.
#
# Temporal's own page shows boxes: it could open them only by asking a server that has the key (a
# "codec server"), and there is none here. `holdfast show` and `holdfast log` read the store.


ENCODING = "binary/holdfast-box"


def converter(box: Closes | None, given: DataConverter | None = None) -> DataConverter:
    """How values are turned into what Temporal keeps, with a key or without."""
    plain = given or DataConverter(payload_converter_class=_Plain)
    if box is None:
        return plain
    if given is not None:
        raise BadInput(
            "Temporal(data_converter=…) can't be had with an encrypted store: what Temporal keeps "
            "of its tasks is encrypted by Holdfast(…, key=…). Leave data_converter out"
        )
    return replace(
        plain,
        payload_codec=BoxCodec(box),
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
    )


class BoxCodec(PayloadCodec):
    """Closes what Temporal is given, and opens what it gives back."""

    def __init__(self, box: Closes) -> None:
        self._box = box

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Payloads, each in a box."""
        return [self._closed(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """The content of the boxes. Others are left as they are: who would read them is refused."""
        return [self._opened(payload) for payload in payloads]

    def _closed(self, payload: Payload) -> Payload:
        box = self._box.close(payload.SerializeToString(), "payload")
        return Payload(metadata={"encoding": ENCODING.encode()}, data=box)

    def _opened(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != ENCODING.encode():
            return payload
        opened = self._box.open(payload.data, "payload")
        return payload if opened is None else Payload.FromString(opened)


class _Closed(EncodingPayloadConverter):
    """Says why a box was not opened."""

    @property
    def encoding(self) -> str:
        return ENCODING

    def to_payload(self, value: Any) -> Payload | None:
        return None

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        raise WrongKey(
            "what Temporal keeps of this task is encrypted with the key of a store that is not "
            "open here: open that store with Holdfast(…, key=…). The workers of each store need a "
            "queue of their own, Temporal(…, queue=…)"
        )


class _Plain(CompositePayloadConverter):
    def __init__(self) -> None:
        super().__init__(*DefaultPayloadConverter.default_encoding_payload_converters, _Closed())
