"""A task from its caller's side: `Options`, how it is to be started, and the `Handle` of one."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, overload

from msgspec import Struct

from holdfast.api.async_forms import away, off_the_loop
from holdfast.core.spec import Spec, task_spec
from holdfast.core.state import State, Status
from holdfast.engines.follow import Follow, Looks, await_end, looks, wait
from holdfast.engines.local.tasks import TaskOptions, recorded_end
from holdfast.engines.routing import waits_for
from holdfast.errors import BadInput, HoldfastError
from holdfast.log.reading import Tail
from holdfast.log.states import load
from holdfast.views.task import TaskView

if TYPE_CHECKING:
    from holdfast.api.app import Holdfast
    from holdfast.engines.local.tasks import Begin

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Options(Struct, frozen=True):
    """How a task is to be started: what `hf.options(…)` returns. It can be used many times.

    Everything after the function goes to the function, whatever its parameters are called.
    """

    hf: Holdfast
    given: TaskOptions

    @overload
    def run(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def run(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def run(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run a task, or go on with it: see `Holdfast.run`."""
        return self.hf._going.go(self._starting(fn, args, kwargs))

    @overload
    async def arun(
        self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    async def arun(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def arun(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """`run` for async code: an async task runs on this loop, a sync one in a thread."""
        return await self.hf._going.ago(self._starting(fn, args, kwargs))

    @overload
    def start(
        self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Handle[R]: ...
    @overload
    def start(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]: ...
    def start(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Handle[Any]:
        """Make a task and leave it to a worker: see `Holdfast.start`."""
        spec = task_spec(fn)
        return Handle(self.hf, self.hf._going.start(spec, args, kwargs, self.given), spec)

    @overload
    async def astart(
        self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Handle[R]: ...
    @overload
    async def astart(
        self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Handle[R]: ...
    async def astart(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Handle[Any]:
        """`start` for async code: it runs in a thread, off the event loop."""
        return await away(partial(self.start, fn), *args, **kwargs)

    def _must_not_wait(self, fn: Any) -> None:
        given = self.given
        if given.queue or given.not_before is not None:
            what = f"queue={given.queue!r}" if given.queue else "at= or delay_s="
            raise BadInput(
                f"{getattr(fn, '__name__', fn)}: a task with {what} waits for a worker: "
                f"use hf.options(…).start(…), and result() of what that returns"
            )

    def _starting(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Begin:
        self._must_not_wait(fn)
        return self.hf._driving.starting(task_spec(fn), args, kwargs, self.given)


def not_before(at: Any, delay_s: Any, now: datetime) -> datetime | None:
    """When a task may begin at the earliest, by what its options say."""
    if delay_s is not None:
        is_number = isinstance(delay_s, int | float) and not isinstance(delay_s, bool)
        if at is not None or not is_number or not 0 <= delay_s < float("inf"):
            raise BadInput(
                f"delay_s={delay_s!r:.60} must be a number of seconds, and be given without at="
            )
        return now + timedelta(seconds=delay_s)
    if at is not None and (not isinstance(at, datetime) or at.utcoffset() is None):
        raise BadInput(
            f"at={at!r:.60} must be a datetime with its time zone, such as "
            f"datetime(2026, 1, 1, 7, tzinfo=UTC)"
        )
    return None if at is None else at.astimezone(UTC)


def must_fit_engine(given: TaskOptions, name: str) -> None:
    """Refuse what only local workers keep to, for a task that another engine is to drive."""
    if (given.key or given.priority) and not given.queue:
        raise BadInput("key= and priority= are about a queue: give queue=, too")
    if given.engine and (given.queue or given.not_before is not None):
        raise BadInput(
            f"queue=, at= and delay_s= are kept by local workers, and {name} drives the tasks of "
            f"this Holdfast: use what {name} has for that (docs/how-to/queues.md has a table), or "
            f"a Holdfast without engine="
        )


class NotFinished(HoldfastError, TimeoutError):
    """The task has not ended within the time that was given to `result`. Says what it waits for.

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


class Handle(Generic[R_co]):
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

    def __init__(self, hf: Holdfast, id: str, spec: Spec | None = None) -> None:
        self.id = id
        self._hf = hf
        self._spec = spec

    def __repr__(self) -> str:
        return f"Handle({self.id!r})"

    def _repr_html_(self) -> str:
        """The task as notebooks show it: its log is read."""
        return self.view._repr_html_()

    @property
    def view(self) -> TaskView:
        """The task as its log tells it now."""
        return self._hf.task(self.id)

    @property
    def status(self) -> Status:
        """Where the task is in its life."""
        return self.view.status

    def result(self, timeout_s: float | None = None) -> R_co:
        """Wait for the task and return its result. Raises what it ended with, or `NotFinished`."""
        wait(self._hf.store, self._looks(timeout_s))
        return self._end()

    async def aresult(self, timeout_s: float | None = None) -> R_co:
        """`result` for async code."""
        from holdfast.engines.loops import off_loop

        await await_end(self._looks(timeout_s))
        return await off_loop(self._end)

    def _looks(self, timeout_s: float | None) -> Looks:
        give_up_at = None if timeout_s is None else time.monotonic() + timeout_s

        def judge(tail: Tail) -> None:
            if give_up_at is not None and time.monotonic() >= give_up_at:
                raise self._not_finished(tail, timeout_s)

        return looks(self._hf.store, self.id, judge)

    def _end(self) -> R_co:
        spec = self._spec or self._hf._driving.spec_of(self.id)
        result: R_co = recorded_end(self._hf.store, self.view.state, spec)
        return result

    def _not_finished(self, tail: Tail, timeout_s: float | None) -> NotFinished:
        state = tail.state
        told = f"task {self.id!r} is {state.status}: it did not end within {timeout_s:g} s"
        return NotFinished(f"{told}{waits_for(state, self._state_of)}")

    def _state_of(self, id: str) -> State:
        return load(self._hf.store, id, missing_ok=True)

    def cancel(self, because: str = "") -> None:
        """Ask the task to end at its next step."""
        self._hf.cancel(self.id, because=because)

    def pause(self, because: str = "") -> None:
        """Ask the task to stop at its next step, and to stay so until it is resumed."""
        self._hf.pause(self.id, because=because)

    def events(self, *, after: int = 0) -> Follow:
        """The events of the task after the event `after`, as they come, until it has ended. On an
        event loop: `async for event in handle.events()`."""
        return Follow(self._hf.store, self.id, after)

    acancel: Final = off_the_loop(cancel)
    apause: Final = off_the_loop(pause)
