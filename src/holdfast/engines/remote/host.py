"""What a worker of a remote engine has in common for all the tasks that it drives."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Protocol

from holdfast.core.journal import Raised, Returned
from holdfast.core.state import State
from holdfast.engines.holding import Holding
from holdfast.engines.port import Engine
from holdfast.engines.remote.hub import LINGER_S, Hub
from holdfast.engines.run import Family, Run
from holdfast.engines.sweeping import SweepMemory, sweep
from holdfast.engines.threads import LoopThread, off_loop
from holdfast.errors import HoldfastError, TaskReleased
from holdfast.stores.patrol import Patrol
from holdfast.stores.port import Store

# How many calls a worker makes at a time.
#
# A call takes a place before it takes a thread. One that only waits for another task gives its
# place away meanwhile: that task needs places as well, and would else wait for ever.


THREADS = 10_000
"""Of a pool for calls: more than there are places, as some wait without one."""


class Places:
    """So many places, on the running loop; those who hold one may be in any thread."""

    def __init__(self, count: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._free = asyncio.Semaphore(count)

    async def acquire(self) -> None:
        """Wait for a place, on the loop."""
        await self._free.acquire()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *error: object) -> None:
        self._free.release()

    def give_away(self) -> None:
        """Let somebody else have a place. From any thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody wants one
            self._loop.call_soon_threadsafe(self._free.release)

    def take(self) -> Future[Any]:
        """The same from any thread: done when there is a place, which is taken then."""
        return asyncio.run_coroutine_threadsafe(self._free.acquire(), self._loop)


_CHILD_POLL_S = 0.1


class Application(Protocol):
    """What the application knows of its tasks: see `holdfast.engines.local.driving.Driving`."""

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

    def __init__(self, driver: Application, engine: str, linger_s: float = LINGER_S) -> None:
        self.driver = driver
        self.engine = engine
        self.holding = driver.holding
        self.hub = Hub(driver.holding, engine, linger_s)
        self.bodies: dict[str, Run] = {}
        """The runs of the functions of tasks, by task."""
        self.places: Places | None = None
        """Where calls are made; None if there is no end of them."""
        self.is_ending = threading.Event()
        """Set when the worker is to end: nobody waits for another task any more."""
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

    Those that the function of a task starts are handed to the engine by its carrier.
    """

    def __init__(self, host: Host) -> None:
        self._family = host.driver.family()

    def must_be_free(self, id: str, parent: str) -> None:
        self._family.must_be_free(id, parent)

    def create(self, id: str, name: str, args: bytes, parent: State, path: str) -> None:
        self._family.create(id, name, args, parent, path)

    def outcome(self, id: str) -> Returned | Raised | None:
        return self._family.outcome(id)

    def drive(self, id: str) -> None:
        raise NotImplementedError("the engine drives it, and says when it has ended")

    async def adrive(self, id: str) -> None:
        self.drive(id)

    def cancel(self, id: str, *, wait: bool) -> None:
        self._family.cancel(id, wait=False)


class RelativesOfCall(Relatives):
    """The children that a call starts, and may wait for in its place."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._host = host

    def create(self, id: str, name: str, args: bytes, parent: State, path: str) -> None:
        super().create(id, name, args, parent, path)
        self._host.driver.start_elsewhere(id)

    def drive(self, id: str) -> None:
        """Wait a moment: the engine drives it."""
        if self._host.places is not None:
            self._host.places.give_away()
        is_ending = self._host.is_ending.wait(_CHILD_POLL_S)
        if self._host.places is not None:
            self._host.places.take().result()
        _must_go_on(id, is_ending)

    async def adrive(self, id: str) -> None:
        if self._host.places is not None:
            self._host.places.give_away()
        await asyncio.sleep(_CHILD_POLL_S)
        if self._host.places is not None:
            await asyncio.wrap_future(self._host.places.take())
        _must_go_on(id, self._host.is_ending.is_set())


def _must_go_on(child: str, is_ending: bool) -> None:
    if is_ending:
        raise TaskReleased(child, f"the worker ends, whose step waits for task {child!r}")


# Looking after the tasks of an engine, for as long as a worker of it runs.


_EVERY_S = 1.0


async def look_after(
    store: Store,
    engine: Engine,
    say: Callable[[str], None],
    serve: Callable[[str], None] = lambda task: None,
) -> None:
    """Make a pass over the tasks of an engine about once a second. What stands in the way is said
    once, until it changes or is gone. With `serve` the engine is told who has the code of a type of
    task: it may have forgotten."""
    memory, said, patrol = SweepMemory(), set[str](), Patrol(store)
    while True:
        try:
            for wrong in await off_loop(patrol.step):
                say(wrong)
            swept = await off_loop(sweep, store, engine, memory, time.monotonic())
            trouble = list(swept.trouble)
            for id in swept.started:
                say(f"{id}: started, as {engine.name} did not drive it")
            if swept.unserved:
                await off_loop(serve, swept.unserved)
        except (HoldfastError, OSError) as error:
            trouble = [str(error)]
        # Of a task that was not looked at this time, it is still what it was.
        trouble += memory.trouble.values()
        for text in dict.fromkeys(trouble):
            if text not in said:
                say(text)
        said = set(trouble)
        await asyncio.sleep(_EVERY_S)
