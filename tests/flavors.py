"""One test for sync and async tasks: bodies are written as coroutines, a flavor says how they run.

In the sync flavor a body is run to its end in one go: whatever it awaits is there already. So the
calls in it are those of a plain sync task, made in the same order.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from typing import Any

import holdfast
from holdfast.agent.externals import external

BOUND_S = 60.0
"""How long a test waits for what has to happen, before it fails."""

_numbers = itertools.count(1)


class Crash(BaseException):
    """Stands for the end of the process: nothing catches it, nothing is recorded after it."""


class Ready:
    """Something to await that is there already."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, Any, Any]:
        yield from ()
        return self.value


class Flavor:
    """How the tasks of a test are written: as `def`, or as `async def`."""

    def __init__(self, kind: str) -> None:
        self.is_async = kind == "async"

    def task(self, body: Any = None, **options: Any) -> Any:
        """`@task` with a name that no other test has."""
        return self._decorate(holdfast.task, body, options)

    def step(self, body: Any = None, **options: Any) -> Any:
        """`@step`, to be awaited in either flavor."""
        return self._decorate(holdfast.step, body, options)

    def tool(self, body: Any = None, **options: Any) -> Any:
        """`@tool`, to be awaited in either flavor."""
        return self._decorate(holdfast.tool, body, options)

    def external(self, body: Any = None, **options: Any) -> Any:
        """`@external`, whose three ways to call it are to be awaited in either flavor."""
        if body is None:
            return lambda given: self.external(given, **options)
        made = external(**{"name": f"{body.__name__}_{next(_numbers)}", **options})(
            self.plain(body)
        )
        read = self._awaited(made)
        read.fresh, read.reading = self._awaited(made.fresh), self._awaited(made.reading)
        return read

    def _decorate(self, decorator: Any, body: Any, options: dict[str, Any]) -> Any:
        if body is None:
            return lambda given: self._decorate(decorator, given, options)
        named = {"name": f"{body.__name__}_{next(_numbers)}", **options}
        made = decorator(**named)(self.plain(body))
        return made if decorator is holdfast.task else self._awaited(made)

    def plain(self, body: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        """A function of the flavor's own kind: for an undo, or a check."""
        if self.is_async:
            return body

        @functools.wraps(body)
        def run(*args: Any, **kwargs: Any) -> Any:
            return finish(body(*args, **kwargs))

        return run

    def _awaited(self, made: Any) -> Any:
        if self.is_async:
            return made

        @functools.wraps(made)
        def call(*args: Any, **kwargs: Any) -> Ready:
            return Ready(made(*args, **kwargs))

        call.plain = made  # type: ignore[attr-defined]
        return call

    def sleep(self, seconds: float) -> Awaitable[None]:
        return holdfast.sleep(seconds)

    def ask(self, *args: Any, **kwargs: Any) -> Any:
        asked = holdfast.ask(*args, **kwargs)
        return asked if self.is_async else Ready(asked)

    def start(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        """A child that was started; await `outcome(child)` for its result."""
        child = holdfast.start(fn, *args, **kwargs)
        return child.started() if self.is_async else Ready(child)

    def outcome(self, child: Any) -> Any:
        return child if self.is_async else Ready(child.result())

    def gather(self, *branches: Callable[[], Awaitable[Any]]) -> Any:
        """Holdfast's own `gather`, of functions that make coroutines."""
        if self.is_async:
            return holdfast.gather(*(_coroutine(branch) for branch in branches))
        work = [functools.partial(_finish_branch, branch) for branch in branches]
        return Ready(holdfast.gather(*work))

    def each(self, fn: Any, items: Any, **options: Any) -> Any:
        if self.is_async:
            return holdfast.each(fn, items, **options)
        return Ready(holdfast.each(fn.plain, items, **options))

    async def wait(self, event: threading.Event, seconds: float = BOUND_S) -> None:
        """Wait inside a step for what another thread does."""
        if not self.is_async:
            assert event.wait(seconds), "nobody let the step go on"
            return
        give_up_at = time.monotonic() + seconds
        while not event.is_set():
            assert time.monotonic() < give_up_at, "nobody let the step go on"
            await asyncio.sleep(0.005)


def finish(body: Awaitable[Any]) -> Any:
    """Run a coroutine that waits for nothing."""
    steps = body.__await__()
    try:
        next(steps)
    except StopIteration as end:
        return end.value
    raise AssertionError("a sync body awaited something that was not there")


def _finish_branch(branch: Callable[[], Awaitable[Any]]) -> Any:
    return finish(branch())


async def _coroutine(branch: Callable[[], Awaitable[Any]]) -> Any:
    return await branch()


class Background:
    """A call in a thread of its own."""

    def __init__(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self._future: Future[Any] = Future()
        self._work = functools.partial(fn, *args, **kwargs)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._future.set_result(self._work())
        except BaseException as error:
            self._future.set_exception(error)

    def result(self, timeout_s: float = BOUND_S) -> Any:
        """What the call returned or raised."""
        return self._future.result(timeout_s)

    @property
    def done(self) -> bool:
        return self._future.done()


def eventually(holds: Callable[[], Any], seconds: float = BOUND_S) -> Any:
    """Poll until something holds, and return it; fail if it never does."""
    give_up_at = time.monotonic() + seconds
    while True:
        found = holds()
        if found:
            return found
        assert time.monotonic() < give_up_at, "it did not come about in time"
        time.sleep(0.005)
