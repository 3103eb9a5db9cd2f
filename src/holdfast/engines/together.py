"""What the many tasks of one event loop ask of the store, asked together.

The store blocks, so it is asked in threads. If each task went to a thread of its own, a step would
cost two changes of threads, and the disk as many syncs as there are tasks. So tasks that take hold
of a log, wait for a sync or let go stand in line here, and one thread does it for all of them at
once. Who comes meanwhile is in the next group, together with those that this one has just woken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from holdfast.engines.holding import Ending, Holding, Wanted, sync_together
from holdfast.engines.threads import off_loop
from holdfast.errors import Halt, Suspend
from holdfast.log.log import Log

T = TypeVar("T")
R = TypeVar("R")


class WaitingLine(Generic[T, R]):
    """A line of those who want the same thing done, and a function that does it for many.

    The function is called in a thread. It returns, for each in order, the result or an exception.
    """

    def __init__(
        self, do: Callable[[Sequence[T]], Sequence[R | BaseException]], most_groups: int = 1
    ) -> None:
        self._do = do
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._groups = 0
        self._most_groups = most_groups
        self._is_called = False

    def wait(self, wanted: T) -> asyncio.Future[R]:
        """Stand in line; done when it is done."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((wanted, future))
        self._go_on(loop)
        return future

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._waiting and not self._is_called and self._groups < self._most_groups:
            self._is_called = True
            # Not at once: the tasks that are about to run may want the same.
            loop.call_soon(self._start)

    def _start(self) -> None:
        self._is_called = False
        self._groups += 1
        group, self._waiting = self._waiting, []
        try:
            done = off_loop(self._do, [wanted for wanted, _ in group])
        except RuntimeError as error:  # the interpreter is ending, and starts no more threads
            done = asyncio.get_running_loop().create_future()
            done.set_exception(error)
        done.add_done_callback(partial(self._tell, [future for _, future in group]))

    def _tell(
        self,
        futures: list[asyncio.Future[R]],
        done: asyncio.Future[Sequence[R | BaseException]],
    ) -> None:
        failed = done.exception()
        outcomes = [failed] * len(futures) if failed is not None else done.result()
        for future, outcome in zip(futures, outcomes, strict=True):
            if future.done():
                continue  # it was cancelled meanwhile
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        self._groups -= 1
        self._go_on(done.get_loop())


class Lines:
    """Where the tasks of one loop wait for one store."""

    def __init__(self, holding: Holding) -> None:
        # Reading a long log takes a while, for which the others need not wait.
        self.take: WaitingLine[Wanted, Log] = WaitingLine(holding.take_many, most_groups=4)
        self.let_go: WaitingLine[Ending, None] = WaitingLine(holding.let_go_many, most_groups=4)
        self._sync: WaitingLine[Log, None] = WaitingLine(sync_together)

    def sync(self, log: Log) -> asyncio.Future[None]:
        """Done when everything appended to a log so far is durable."""
        log.flush()
        return self._sync.wait(log)


def lines_of(holding: Holding) -> Lines:
    """Where the tasks of the running loop wait for a store."""
    loop = asyncio.get_running_loop()
    lines = holding.of_loop.get(loop)
    if lines is None:
        lines = holding.of_loop[loop] = Lines(holding)
    return lines


class HeldLog:
    """A task's log, held until the block ends. Signals leave it as the errors they carry."""

    def __init__(self, holding: Holding, task_id: str, begin: Callable[[Log], None]) -> None:
        self.lines = lines_of(holding)
        self._wanted = (task_id, begin)
        self._log: Log

    async def __aenter__(self) -> Log:
        taking = self.lines.take.wait(self._wanted)
        try:
            self._log = await asyncio.shield(taking)
        except asyncio.CancelledError:
            await asyncio.wait([taking])
            if taking.exception() is None:
                await self.lines.let_go.wait((taking.result(), None))
            raise
        return self._log

    async def __aexit__(self, kind: Any, error: BaseException | None, *_: Any) -> None:
        waiting = error.waiting if isinstance(error, Suspend) else None
        await self.lines.let_go.wait((self._log, waiting))
        if waiting is not None:
            raise waiting from None
        if isinstance(error, Halt):
            raise error.error from error.__cause__
