"""A remote engine in a thread: as far away from a `Holdfast` as any other, and as small as can be.

It knows what the port tells it and nothing else. `serve` makes it drive what it knows, with the
normal journal; without, its tasks stay as they are, as with an engine that has no workers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any

from holdfast import Holdfast
from holdfast.core.state import State
from holdfast.engines.local.tasks import Begin, Driving
from holdfast.engines.mail import deliver
from holdfast.engines.port import Driven, EngineWorker, Job
from holdfast.engines.remote.sweep import SweepMemory, sweep
from holdfast.engines.run import Run
from holdfast.errors import (
    EngineConflict,
    EngineError,
    LeaseLost,
    TaskBusy,
    TaskCancelled,
    TaskFailed,
    TaskWaiting,
)
from holdfast.log.log import open_log
from holdfast.log.reading import stream_of
from holdfast.log.states import load
from holdfast.log.store_calls import inbox_of


class Toy:
    def __init__(self, name: str = "toy") -> None:
        self._name = name
        self.jobs: dict[str, Job] = {}
        self.started: list[str] = []
        self.told: list[tuple[str, str]] = []
        self.is_down = False
        self.refuses: set[str] = set()
        """Ids under which it has something else."""
        self.to_do: SimpleQueue[str] = SimpleQueue()

    @property
    def name(self) -> str:
        return self._name

    def start(self, job: Job) -> None:
        self._must_be_up()
        self._must_be_free(job)
        self.started.append(job.id)
        self.jobs[job.id] = job
        self.to_do.put(job.id)

    def tell(self, job: Job, message: str) -> None:
        self._must_be_up()
        self.told.append((job.id, message))
        self.to_do.put(job.id)

    def cancel(self, job: Job) -> None:
        self.tell(job, "to end")

    def query(self, job: Job) -> Driven | None:
        self._must_be_up()
        self._must_be_free(job)
        known = self.jobs.get(job.id)
        return Driven(job.id, "running", self.name) if known == job else None

    def stop(self, job: Job) -> None:
        self._must_be_up()
        if self.jobs.get(job.id) == job:
            del self.jobs[job.id]

    def worker(
        self, hf: Any, *, concurrency: int = 16, say: Callable[[str], None] | None = None
    ) -> EngineWorker:
        return ToyWorker(self, hf)

    def close(self) -> None: ...

    def _must_be_free(self, job: Job) -> None:
        if job.id in self.refuses:
            raise EngineConflict(f"{self.name} has something else under the id {job.id!r}")

    def _must_be_up(self) -> None:
        if self.is_down:
            raise EngineError(f"{self.name} can't be reached")

    @contextmanager
    def serve(self, hf: Holdfast) -> Iterator[None]:
        """Drive what it is told of, until the block ends."""
        worker = ToyWorker(self, hf)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            yield
        finally:
            worker.stop()
            thread.join()


class ToyWorker:
    def __init__(self, toy: Toy, hf: Holdfast) -> None:
        self._toy = toy
        self._hf = hf

    def run(self) -> None:
        memory = SweepMemory()
        while id := self._next():
            try:
                drive(self._toy.name, self._hf, id)
            except (TaskBusy, LeaseLost):
                self._toy.to_do.put(id)
            sweep(self._hf.store, self._toy, memory, time.monotonic())

    def _next(self) -> str:
        while True:
            with suppress(Empty):
                return self._toy.to_do.get(timeout=0.1)
            sweep(self._hf.store, self._toy, SweepMemory(), time.monotonic())

    def stop(self) -> None:
        self._toy.to_do.put("")


def bring(hf: Holdfast, id: str) -> State:
    """Bring the messages in that were left for a task."""
    holding = hf._holding
    log = open_log(hf.store, id, "toy", holding.lease_s, holding.clock)
    try:
        deliver(log, inbox_of(hf.store, [stream_of(id)]))
        log.sync()
        return log.state
    finally:
        log.close()


def drive(name: str, hf: Holdfast, id: str) -> None:
    """Bring messages in, and drive a task as far as it goes without waiting."""
    if bring(hf, id).driver != name:
        return
    driving = _Driving(hf._holding)
    with suppress(TaskWaiting, TaskFailed, TaskCancelled):
        driving.drive(driving.taking(id, driving.spec_of(id)), patience_s=0.0)
    if inbox_of(hf.store, [stream_of(id)]) and not load(hf.store, id, missing_ok=True).parked:
        drive(name, hf, id)


class _Driving(Driving):
    def _must_be_ours(self, task: Begin, state: State) -> None: ...

    def _heed(self, run: Run) -> None: ...


SHARED = Toy()
"""For the command line, which finds an engine by where it stands: tests.engines.toy:SHARED."""
