"""An asyncio loop for the function of a task: it runs what is ready in the order it became so, and
waits for nothing but what the engine says. So plain `asyncio` code (`gather`, `TaskGroup`, `Event`)
runs in the same order each time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from datetime import timedelta
from typing import Any

from greenlet import GreenletExit

from holdfast.engines.remote.carrier import Carrier, Pending, Until
from holdfast.engines.remote.strands import Strands

_logger = logging.getLogger("holdfast")


_AbstractEventLoop: Any = asyncio.AbstractEventLoop
"""Its types want every method of a loop: sockets, pipes and processes too."""


class BodyLoop(_AbstractEventLoop):  # type: ignore[misc]
    """The loop of one task."""

    def __init__(self, carrier: Carrier, strands: Strands) -> None:
        self._carrier = carrier
        self._strands = strands
        self._ready: deque[asyncio.Handle] = deque()
        self._waits: list[tuple[Pending, asyncio.Future[None]]] = []
        self._factory: Any = None
        self.when_stuck: Callable[[], None] | None = None
        """Called when nothing is left that could ever happen."""

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its end, in a strand."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            task = self.create_task(main)
            while True:
                self._run_ready()
                if task.done():
                    return task.result()
                self._wait()
        except GreenletExit:
            self._leave()
            raise
        finally:
            asyncio._set_running_loop(outer)

    def _run_ready(self) -> None:
        while self._ready:
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _leave(self) -> None:
        """End what runs here: it goes on elsewhere."""
        for task in asyncio.all_tasks(self):
            task.cancel()
        self._run_ready()

    def _wait(self) -> None:
        self._waits = [(p, future) for p, future in self._waits if not future.done()]
        if not self._waits and self.when_stuck is not None:
            self.when_stuck()
        news = Until(lambda: bool(self._ready))
        self._strands.wait(*(pending for pending, _ in self._waits), news)
        for pending, future in self._waits:
            if pending.done() and not future.done():
                future.set_result(None)

    def until(self, *pendings: Pending) -> asyncio.Future[None]:
        """A future that is done when one of these is."""
        future: asyncio.Future[None] = self.create_future()
        self._waits.extend((pending, future) for pending in pendings)
        return future

    # What asyncio asks of a loop

    def time(self) -> float:
        return self._carrier.now().timestamp()

    def call_soon(
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        ring = self.until(self._carrier.sleep(self._carrier.now() + timedelta(seconds=delay)))
        ring.add_done_callback(lambda _: self._ready.append(handle))
        return handle

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_later(max(when - self.time(), 0), callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> Any:
        if self._factory is None:
            return asyncio.Task(coro, loop=self, **options)
        return self._factory(self, coro, **options)

    def set_task_factory(self, factory: Any) -> None:
        self._factory = factory

    def get_task_factory(self) -> Any:
        return self._factory

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        # At once, and here: in which order threads come to their end is not the same each time.
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._strands.are_left:
            _logger.error(
                "in a task: %s", context.get("message"), exc_info=context.get("exception")
            )

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    async def shutdown_asyncgens(self) -> None:
        pass


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(self: BodyLoop, *args: Any, **options: Any) -> Any:
        raise NotImplementedError(
            f"the function of a task has no connections, processes or signals on a remote engine "
            f"(asyncio's {name}): do that in a step"
        )

    return refuse


for _name in (
    "add_reader",
    "add_signal_handler",
    "connect_read_pipe",
    "connect_write_pipe",
    "create_connection",
    "create_datagram_endpoint",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "getaddrinfo",
    "sock_connect",
    "subprocess_exec",
    "subprocess_shell",
):
    setattr(BodyLoop, _name, _refusing(_name))
