"""`Handle`: a task that was handed to a worker, seen from outside."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast.core.events import AnyEvent
from holdfast.core.spec import Spec
from holdfast.core.state import Status
from holdfast.engines.going import LONGEST_S, Looks, await_end, looks, wait
from holdfast.engines.local.driving import recorded_end
from holdfast.errors import HoldfastError
from holdfast.log.tail import Tail, pause
from holdfast.views.task import TaskView

if TYPE_CHECKING:
    from holdfast.api.app import Holdfast

R = TypeVar("R")


class NotFinished(HoldfastError, TimeoutError):
    """The task has not ended within the time that was given to `result`.

    >>> from holdfast import Holdfast, NotFinished, task
    >>> @task
    ... def stroll() -> None: ...
    >>> with Holdfast("memory://") as hf:
    ...     try:
    ...         hf.start(stroll, id="stroll-1").result(timeout_s=0.01)
    ...     except NotFinished as error:
    ...         print(error)
    task 'stroll-1' is pending: it did not end within 0.01 s (is a worker running?)
    """


class Handle(Generic[R]):
    """A task that a worker drives: ask how it is, wait for it, tell it to stop.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def walk_home() -> str:
    ...     return "walked"
    >>> with Holdfast("memory://") as hf:
    ...     handle = hf.start(walk_home, id="walk-1")
    ...     handle.status, hf.resume("walk-1"), handle.status, handle.result()
    ('pending', 'walked', 'completed', 'walked')
    """

    def __init__(self, hf: Holdfast, id: str, spec: Spec) -> None:
        self.id = id
        self._hf = hf
        self._spec = spec

    @property
    def view(self) -> TaskView:
        """What the log says of the task now."""
        return self._hf.task(self.id)

    @property
    def status(self) -> Status:
        """Where the task is in its life."""
        return self.view.status

    def result(self, timeout_s: float | None = None) -> R:
        """What the task returned; waits for it. Raises what it ended with, or `NotFinished`."""
        wait(self._hf.store, self._looks(timeout_s))
        return self._end()

    async def aresult(self, timeout_s: float | None = None) -> R:
        """`result` for async code."""
        from holdfast.engines.threads import off_loop

        await await_end(self._looks(timeout_s))
        return await off_loop(self._end)

    def _looks(self, timeout_s: float | None) -> Looks:
        give_up_at = None if timeout_s is None else time.monotonic() + timeout_s

        def judge(tail: Tail) -> None:
            if give_up_at is not None and time.monotonic() >= give_up_at:
                raise self._not_finished(tail, timeout_s)

        return looks(self._hf.store, self.id, judge)

    def _end(self) -> R:
        result: R = recorded_end(self._hf.store, self.view.state, self._spec)
        return result

    def _not_finished(self, tail: Tail, timeout_s: float | None) -> NotFinished:
        hint = " (is a worker running?)" if tail.state.status == "pending" else ""
        return NotFinished(
            f"task {self.id!r} is {tail.state.status}: it did not end within {timeout_s:g} s{hint}"
        )

    def cancel(self, because: str = "") -> None:
        """Ask the task to end at its next step."""
        self._hf.cancel(self.id, because=because)

    def pause(self, because: str = "") -> None:
        """Ask the task to stop at its next step, and to stay so until it is resumed."""
        self._hf.pause(self.id, because=because)

    def events(self) -> Iterator[AnyEvent]:
        """The events of the task from its first on, as they come, until it has ended."""
        tail: Any = Tail(self._hf.store, self.id)
        while True:
            for _, event in tail.read():
                yield event
            if tail.finished:
                return
            pause(self._hf.store, LONGEST_S, lines=True)
