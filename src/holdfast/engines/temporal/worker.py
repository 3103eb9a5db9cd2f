"""A worker of a Temporal cluster: drives the tasks of a store in this process.

It takes workflows from the queue that all workers share, and activities from one of its own: the
calls of a task are made where its function runs, because that process holds the log. When it dies,
both are taken up by another.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkerDeploymentConfig

from holdfast.engines.loops import LoopThread
from holdfast.engines.remote.host import THREADS, Host, Places, look_after
from holdfast.engines.temporal.flow import TaskFlow, make_call
from holdfast.engines.temporal.served import Served, Serving, Trouble, Unreachable, serving
from holdfast.stores.system import host_name

if TYPE_CHECKING:
    from temporalio.client import Client

    from holdfast.engines.temporal.engine import Temporal

_CALM = timedelta(days=3650)
_MANY = 100_000
_AGAIN_S = 0.5
_UPGRADED = VersioningBehavior.AUTO_UPGRADE


_logger = logging.getLogger("holdfast")


def _is_news(record: logging.LogRecord) -> bool:
    """Whether something was not said yet: of a task that can't go on Temporal prints our stack."""
    return not (record.exc_info and isinstance(record.exc_info[1], Trouble))


logging.getLogger("temporalio.worker._workflow_instance").addFilter(_is_news)


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
        lost_after = timedelta(seconds=self._engine.lost_after_s)
        return Worker(
            client,
            task_queue=self._engine.queue,
            workflows=[TaskFlow],
            interceptors=[Serving(served)],
            # Our own code is as deterministic as it gets, and users' modules are imported once.
            workflow_runner=UnsandboxedWorkflowRunner(),
            # A store may take its time; that is no deadlock.
            debug_mode=True,
            max_cached_workflows=self._engine.kept,
            deployment_config=self._deployment(),
            sticky_queue_schedule_to_start_timeout=min(lost_after, timedelta(seconds=10)),
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
            graceful_shutdown_timeout=_CALM,
        )
