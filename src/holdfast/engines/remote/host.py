"""What a worker of a remote engine has in common for all the tasks that it drives."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from holdfast.engines.holding import Holding
from holdfast.engines.loops import LoopThread
from holdfast.engines.remote.hub import LINGER_S, Hub
from holdfast.engines.run import Family, Run
from holdfast.journal import Raised, Returned
from holdfast.state import State

_CHILD_POLL_S = 0.1


class Driver(Protocol):
    """What the application knows of its tasks: see `holdfast.driving.Driving`."""

    holding: Holding

    def family(self) -> Family:
        """Who looks after the tasks that a task starts."""

    def prepare(self, run: Run) -> None:
        """What a fork, or a task that was put back, needs to go its own way."""

    def tell_parent(self, state: State) -> None:
        """Let the parent of a task that has ended go on."""

    def start_elsewhere(self, id: str) -> None:
        """Have the engine drive a task whose log is there."""


class Host:
    """One worker: its logs, the loop that its async steps run on, and the runs of its tasks."""

    def __init__(self, driver: Driver, engine: str, linger_s: float = LINGER_S) -> None:
        self.driver = driver
        self.engine = engine
        self.holding = driver.holding
        self.hub = Hub(driver.holding, engine, linger_s)
        self.bodies: dict[str, Run] = {}
        """The runs of the functions of tasks, by task."""
        self._loop: LoopThread | None = None
        self._lock = threading.Lock()

    def run_async(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the loop of the async steps, and wait for it in this thread."""
        with self._lock:
            self._loop = self._loop or LoopThread("holdfast steps")
            future = self._loop.submit(work)
        return future.result()

    def close(self) -> None:
        """Let go of everything."""
        if self._loop is not None:
            self._loop.close()
        self.hub.close()


class Relatives:
    """The children of a task on a remote engine: they are driven by it too.

    With `start`, which is for steps that start tasks, each is handed to the engine as it is made;
    for those that the function of a task starts, its carrier does that.
    """

    def __init__(self, family: Family, start: Callable[[str], None] | None = None) -> None:
        self._family = family
        self._start = start

    def must_be_free(self, id: str, parent: str) -> None:
        self._family.must_be_free(id, parent)

    def create(self, id: str, name: str, args: bytes, parent: State, path: str) -> None:
        self._family.create(id, name, args, parent, path)
        if self._start is not None:
            self._start(id)

    def outcome(self, id: str) -> Returned | Raised | None:
        return self._family.outcome(id)

    def drive(self, id: str) -> None:
        time.sleep(_CHILD_POLL_S)  # the engine does

    async def adrive(self, id: str) -> None:
        await asyncio.sleep(_CHILD_POLL_S)

    def cancel(self, id: str, *, wait: bool) -> None:
        self._family.cancel(id, wait=False)
