"""The driver: what runs a task's function and its calls.

A `Run` is data: a log, a scope, what it was told. Its driver acts on it. Code that
waits is written in two ways, sync and async, so what may wait has two forms; apart from that a
driver decides where a call is made, and what has to happen before the function may know of it.
`here.Here` drives a run in this process, in its thread or on its loop; `remote` has the driver of
a run whose calls an engine makes. The journal, and everything that users touch, know only this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from holdfast.core.journal import Asked, Raised, Request, Returned
    from holdfast.core.scope import Scope
    from holdfast.core.state import Call, State
    from holdfast.engines.run import Run

Work = Iterator[Callable[[], Any]]


class Driver(Protocol):
    """The requests of a run."""

    may_exit: bool
    """Whether what ends a program, such as `sys.exit`, may end this one."""
    has_threads: bool
    """Whether calls of an async task may be made in threads."""
    streams: bool
    """Whether the parts of a stream reach its reader as they come; else it is read when whole."""
    writes: bool
    """Whether the run may add to its log. If not, it ends where the log does."""
    acts: bool
    """Whether what the code does beside its calls may have an effect outside."""

    def has_come(self, run: Run, until: datetime) -> bool:
        """Whether a time of day has come for a run."""

    def begun(self, run: Run) -> State:
        """The record as the function began, as far as it may rely on it."""

    def checkpoints_passed(self, run: Run) -> int:
        """How many checkpoints lie behind the place that the function has come to."""

    def pass_checkpoint(self) -> None:
        """The function has reached one more."""

    def is_ending(self, run: Run) -> bool:
        """Whether what the task did is being undone, at the place that it has come to."""

    def begin_to_end(self) -> None:
        """From here on it is."""

    def make(self, run: Run, asked: Asked, record: Call | None, data: bytes) -> Returned | Call:
        """Make a call, or find that it was made; how it ended."""

    async def amake(
        self, run: Run, asked: Asked, record: Call | None, data: bytes
    ) -> Returned | Call:
        """The same, awaited."""

    def repeat(self, run: Run, path: str, record: Call | None) -> Call | None:
        """Wait again for what a sleep or a question waited for; the record after that."""

    async def arepeat(self, run: Run, path: str, record: Call | None) -> Call | None:
        """The same, awaited."""

    def end_child(self, run: Run, path: str) -> None:
        """Wait for the end of a child that the function may not know of yet."""

    async def aend_child(self, run: Run, path: str) -> None:
        """The same, awaited."""

    def carry_out(
        self,
        request: Request,
        run: Run,
        path: str,
        strand: Scope | None,
        check: Callable[[], Returned | Raised | None],
    ) -> Any:
        """Do what a flow asks for, apart from running a body."""

    async def acarry_out(
        self, request: Request, run: Run, path: str, strand: Scope | None, check: Any
    ) -> Any:
        """The same, awaited; so is `check`."""

    def side_by_side(self, work: Work, workers: int) -> Iterator[Any]:
        """Do work, so much at a time; yields, in order, what each returned or raised."""
