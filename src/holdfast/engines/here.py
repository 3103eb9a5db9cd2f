"""The driver of this process: a sync task runs in its thread, an async one on its loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime
from functools import cache
from typing import Any, Final

from holdfast.core.journal import Asked, Raised, Request, Returned, Undo
from holdfast.core.scope import Scope
from holdfast.core.state import Call, State
from holdfast.engines import sync_driver as local
from holdfast.engines import undo
from holdfast.engines.clocks import Countdown
from holdfast.engines.driver import Work
from holdfast.engines.run import Run


class Here:
    """Makes the calls of a run where the run is. It keeps nothing: one serves all."""

    may_exit = True
    has_threads = True
    streams = True
    writes = True
    acts = True

    def has_come(self, run: Run, until: datetime) -> bool:
        if run.deadline is None or run.deadline.until != until:
            run.deadline = Countdown(until, run.log.clock)
        return run.deadline.left_s() <= 0

    def begun(self, run: Run) -> State:
        return run.log.state

    def checkpoints_passed(self, run: Run) -> int:
        return run.log.state.checkpoints

    def pass_checkpoint(self) -> None: ...

    def is_ending(self, run: Run) -> bool:
        return bool(run.log.state.ending)

    def begin_to_end(self) -> None: ...

    make: Final = staticmethod(local.perform_here)

    def amake(
        self, run: Run, asked: Asked, record: Call | None, data: bytes
    ) -> Coroutine[Any, Any, Returned | Call]:
        made: Coroutine[Any, Any, Returned | Call]
        made = _async_driver().perform_here(run, asked, record, data)
        return made

    def repeat(self, run: Run, path: str, record: Call | None) -> Call | None:
        return record

    async def arepeat(self, run: Run, path: str, record: Call | None) -> Call | None:
        return record

    def end_child(self, run: Run, path: str) -> None: ...

    async def aend_child(self, run: Run, path: str) -> None: ...

    def carry_out(
        self,
        request: Request,
        run: Run,
        path: str,
        strand: Scope | None,
        check: Callable[[], Returned | Raised | None],
    ) -> Any:
        if isinstance(request, Undo) and run.may_act(path):
            return undo.undo_all(run)
        return local.carry_out(request, run, path, strand, check)

    async def acarry_out(
        self, request: Request, run: Run, path: str, strand: Scope | None, check: Any
    ) -> Any:
        if isinstance(request, Undo) and run.may_act(path):
            return await undo.aundo_all(run)
        return await _async_driver().carry_out(request, run, path, strand, check)

    def side_by_side(self, work: Work, workers: int) -> Iterator[Any]:
        return local.side_by_side(work, workers)


@cache
def _async_driver() -> Any:
    from holdfast.engines import async_driver  # asyncio is slow to import

    return async_driver


class OneCall(Here):
    """Makes a single call for a remote engine: no function runs around it."""

    may_exit = False

    def checkpoints_passed(self, run: Run) -> int:
        return 0


class Replaying(Here):
    """Runs the code over a log that answers for it, in which time stands still."""

    acts = False

    def has_come(self, run: Run, until: datetime) -> bool:
        return run.log.clock() >= until


class Rehearsing(Here):
    """Finds out whether the code fits its log: nothing is called, and nothing is written."""

    writes = False
    acts = False


HERE = Here()
REPLAYING = Replaying()
REHEARSING = Rehearsing()
