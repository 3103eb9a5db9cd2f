"""A worker of a Temporal cluster: drives the tasks of a store in this process.

It takes workflows from the queue that all workers share, and activities from one of its own: the
calls of a task are made where its function runs, because that process holds the log. When it dies,
both are taken up by another.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.converter import (
    PayloadCodec,
    SerializationContext,
    WithSerializationContext,
)
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkerDeploymentConfig

from holdfast.engines.loops import LoopThread
from holdfast.engines.remote.host import THREADS, Host, Places, look_after
from holdfast.engines.routing import must_be_log
from holdfast.engines.temporal.flow import TaskFlow, make_call
from holdfast.engines.temporal.served import (
    BEAT,
    Served,
    Serving,
    Trouble,
    Unreachable,
    begun_with,
    serving,
)
from holdfast.stores.system import host_name

if TYPE_CHECKING:
    from holdfast.engines.temporal.engine import Temporal

_CALM = timedelta(days=3650)
_MANY = 100_000
_AGAIN_S = 0.5
_PATIENCE_S = 0.1
_STICKY = 0.3
"""The part of `lost_after_s` that a workflow waits for the worker that kept it in memory: with that
for the heartbeats of its calls (`SILENT`) it is less than the whole."""
_UPGRADED = VersioningBehavior.AUTO_UPGRADE


_logger = logging.getLogger("holdfast")


def _is_news(record: logging.LogRecord) -> bool:
    """Whether something was not said yet: of a task that can't go on Temporal prints our stack."""
    return not (record.exc_info and isinstance(record.exc_info[1], Trouble))


logging.getLogger("temporalio.worker._workflow_instance").addFilter(_is_news)


class _Patience(PayloadCodec, WithSerializationContext):
    """Waits for the log of a task before its function runs.

    All functions run in one thread: one that had to wait there, until another worker has released
    its log, would hold up all the others, and to fail costs the time of a dead worker. The input of
    a workflow passes here before its function begins, where others go on meanwhile.
    """

    def __init__(self, inner: PayloadCodec | None, served: Served, task_id: str = "") -> None:
        self._inner, self._served, self._task_id = inner, served, task_id

    def with_context(self, context: SerializationContext) -> _Patience:
        """The same for what belongs to one workflow."""
        given: Any = self._inner
        inner = given.with_context(context) if hasattr(given, "with_context") else given
        return _Patience(inner, self._served, getattr(context, "workflow_id", None) or "")

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Nothing of its own."""
        return list(payloads) if self._inner is None else await self._inner.encode(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """The same payloads, as soon as the log of their workflow is here."""
        plain = list(payloads) if self._inner is None else await self._inner.decode(payloads)
        for payload in plain:
            begin = begun_with(payload.data)
            if begin is not None and self._task_id:
                await self._wait(*begin)
        return plain

    async def _wait(self, seq: int, log: str) -> None:
        host = self._served.host
        if host.hub.holds(self._task_id):
            return
        patience_s = self._served.lost_after.total_seconds() / 2
        with suppress(Exception):  # the function meets it too, and says so
            await asyncio.to_thread(must_be_log, host.holding.store, self._task_id, log)
            await host.hub.taken(self._task_id, seq, patience_s)


def _patient(client: Client, served: Served) -> Client:
    """A client for the functions of tasks, which wait for their logs before they begin."""
    config = client.config()
    codec = _Patience(config["data_converter"].payload_codec, served)
    config["data_converter"] = replace(config["data_converter"], payload_codec=codec)
    return Client(**config)


class TemporalWorker:
    """Drives tasks until it is told to stop."""

    def __init__(
        self,
        engine: Temporal,
        hf: Any,
        *,
        concurrency: int = 16,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._engine = engine
        self._hf = hf
        self._concurrency = concurrency
        self._say: Callable[[str], None] = say if say is not None else lambda text: None
        self._complain = say if say is not None else partial(_logger.warning, "%s")
        self._stopping: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_stopped = False
        self.hindered: str = f"it has not reached {engine!r} yet"
        """Why it drives no tasks now; '' if it does."""

    def run(self) -> None:
        """Drive tasks until `stop` is called; then finish the calls in hand and return."""
        asyncio.run(self._run())

    def stop(self) -> None:
        """Take no more tasks."""
        self._is_stopped = True
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)

    async def _run(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        if self._is_stopped:
            return
        engine = self._engine
        client = await self._connected()
        if client is None:
            return
        own = f"{engine.queue}/{host_name()}-{os.getpid()}-{os.urandom(3).hex()}"
        host = Host(self._hf._driving, engine.name)
        served = serving[own] = Served(host, engine, own, self._complain)
        host.places = Places(self._concurrency)
        host.patience_s = _PATIENCE_S
        threads = ThreadPoolExecutor(THREADS, thread_name_prefix="holdfast step")
        self._loop.set_default_executor(threads)
        try:
            async with self._calls(client, own), self._flows_apart(served) as flows:
                self.hindered = ""
                self._say(f"drives tasks of {engine!r}")
                looking = asyncio.ensure_future(look_after(self._hf.store, engine, self._say))
                stopping: asyncio.Future[Any] = asyncio.ensure_future(self._stopping.wait())
                await asyncio.wait([stopping, flows], return_when=asyncio.FIRST_COMPLETED)
                stopping.cancel()
                looking.cancel()
                host.is_ending.set()
                self._say("finishing the steps in hand")
        finally:
            del serving[own]
            host.close()

    async def _connected(self) -> Client | None:
        """A client, as soon as its server is there; None if the worker is stopped before."""
        is_said = False
        while not self._is_stopped:
            try:
                return await self._engine.connect()
            except Unreachable as error:
                self.hindered = str(error)
                if not is_said:
                    self._say(f"{error}. This worker waits for it")
                is_said = True
            await asyncio.sleep(_AGAIN_S)
        return None

    @asynccontextmanager
    async def _flows_apart(self, served: Served) -> AsyncIterator[asyncio.Future[Any]]:
        """The functions of tasks, run by a thread of their own.

        They write to the store as they go, and may have to wait for it; those who show that this
        worker is alive must not.
        """
        loop = LoopThread("holdfast tasks")
        stop, has_begun = asyncio.Event(), Future[None]()

        async def run() -> None:
            client = await self._connected()
            if client is None:
                return
            async with self._flows(client, served):
                has_begun.set_result(None)
                await stop.wait()

        flows: asyncio.Future[Any] = asyncio.wrap_future(loop.submit(run()))
        begun = asyncio.wrap_future(has_begun)
        try:
            await asyncio.wait([flows, begun], return_when=asyncio.FIRST_COMPLETED)
            yield flows
        finally:
            loop.call_soon(stop.set)
            await asyncio.wait([flows])
            begun.cancel()
            loop.close()
            flows.result()

    def _flows(self, client: Any, served: Served) -> Any:
        """The part that runs the functions of tasks: all in one thread, which greenlets need."""
        return Worker(
            _patient(client, served),
            task_queue=self._engine.queue,
            workflows=[TaskFlow],
            interceptors=[Serving(served)],
            # Our own code is as deterministic as it gets, and users' modules are imported once.
            workflow_runner=UnsandboxedWorkflowRunner(),
            # A store may take its time; that is no deadlock.
            debug_mode=True,
            max_cached_workflows=self._engine.kept,
            deployment_config=self._deployment(),
            sticky_queue_schedule_to_start_timeout=served.lost_after * _STICKY,
            graceful_shutdown_timeout=_CALM,
        )

    def _deployment(self) -> WorkerDeploymentConfig | None:
        if self._engine.deployment is None:
            return None
        name, build = self._engine.deployment
        pinned = VersioningBehavior.PINNED if self._engine.pinned else _UPGRADED
        return WorkerDeploymentConfig(
            version=WorkerDeploymentVersion(deployment_name=name, build_id=build),
            use_worker_versioning=True,
            default_versioning_behavior=pinned,
        )

    def _calls(self, client: Any, queue: str) -> Any:
        """The part that makes the calls of tasks whose functions run here."""
        return Worker(
            client,
            task_queue=queue,
            activities=[make_call],
            # They wait for a thread here: Temporal would take those that it can't hand out for
            # lost, and its worker for dead.
            max_concurrent_activities=_MANY,
            # By itself it keeps signs of life back until they are almost too late.
            max_heartbeat_throttle_interval=timedelta(seconds=self._engine.lost_after_s) * BEAT,
            graceful_shutdown_timeout=_CALM,
        )
