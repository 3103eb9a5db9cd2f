"""`start`, inside a task: another task, which is its child."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar, overload

from holdfast.core.events import OnCancel
from holdfast.core.journal import Asked, Flow, await_child, start_child
from holdfast.core.scope import Scope, inside
from holdfast.core.spec import Spec, task_spec
from holdfast.core.state import Call
from holdfast.core.words import checked_id
from holdfast.engines import sync_driver as local
from holdfast.engines.execution import conclude, must_be_open
from holdfast.engines.run import Run
from holdfast.errors import BadInput

R = TypeVar("R")


class Child(Generic[R]):
    """A task that was started by another. In a sync task `result()`, in an async one `await` it.

    >>> Child.__name__
    'Child'
    """

    def __init__(self, scope: Scope, path: str, id: str, spec: Spec, starting: Any) -> None:
        self.id = id
        self._scope = scope
        self._path = path
        self._spec = spec
        self._starting = starting
        self._has_started: Any = None

    def result(self) -> R:
        """Wait for the child and return its result. A child that failed raises `StepFailed`."""
        if self._scope.is_async:
            raise BadInput(f"task {self.id!r}: in an async task a child is awaited")
        run: Run = self._scope.run
        run.must_go_on(self._path)
        run.driver.end_child(run, self._path)
        record = local.drive(await_child(self._path), run, self._path, local.nothing, local.nothing)
        return self._end(run, record)

    def __await__(self) -> Generator[Any, Any, R]:
        return self._aresult().__await__()

    async def _aresult(self) -> R:
        from holdfast.engines import async_driver as aio

        run: Run = self._scope.run
        await self.started()
        run.must_go_on(self._path)
        await run.driver.aend_child(run, self._path)
        flow = await_child(self._path)
        return self._end(run, await aio.drive(flow, run, self._path, aio.nothing, aio.nothing))

    async def started(self) -> Child[R]:
        """The child, when it was started. `await` does that too; this starts it and goes on."""
        import asyncio

        if self._starting is not None:
            starting, self._starting = self._starting, None
            self._has_started = asyncio.get_running_loop().create_future()
            try:
                await starting
            finally:
                self._has_started.set_result(None)
        elif self._has_started is not None:  # somebody else awaits it too
            await asyncio.wait([self._has_started])
        return self

    def _end(self, run: Run, record: Any) -> R:
        result: R = conclude(run, self._spec, record)
        return result


@overload
def start(
    fn: Callable[..., Awaitable[R]], /, *args: Any, id: str | None = ...,
    on_cancel: OnCancel = ..., **kwargs: Any
) -> Child[R]: ...  # fmt: skip
@overload
def start(
    fn: Callable[..., R], /, *args: Any, id: str | None = ..., on_cancel: OnCancel = ...,
    **kwargs: Any
) -> Child[R]: ...  # fmt: skip
def start(
    fn: Callable[..., Any],
    /,
    *args: Any,
    id: str | None = None,
    on_cancel: OnCancel = "cancel",
    **kwargs: Any,
) -> Child[Any]:
    """Start another task from inside a task: a child, with a log of its own.

    A worker drives it, or the parent does while it waits: `start(f, x).result()`, in an async task
    `await start(f, x)`. Left without an id it is called after its parent and its place there. When
    the parent is cancelled its children are too, unless `on_cancel="leave"`.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def research(topic: str) -> str:
    ...     return f"all about {topic}"
    >>> @task
    ... def report(topics: list[str]) -> list[str]:
    ...     children = [start(research, topic) for topic in topics]
    ...     return [child.result() for child in children]
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(report, ["eels", "tides"], id="report-1"), [t.id for t in hf.tasks()]
    (['all about eels', 'all about tides'], ['report-1', 'report-1.1', 'report-1.2'])
    """
    spec = task_spec(fn)
    if on_cancel not in ("cancel", "leave"):
        raise BadInput(f"start(on_cancel={on_cancel!r:.60}) must be 'cancel' or 'leave'")
    scope = inside("start()")
    run: Run = scope.run
    must_be_open(scope)
    path = scope.next_path()
    data = spec.signature.dump(args, kwargs)
    child = checked_id(id if id is not None else f"{run.log.state.name}.{path}")
    if path not in run.log.state.calls:
        run.log.redact.must_be_readable(spec.name, spec.signature, data)
    if scope.is_async:
        return Child(scope, path, child, spec, _astart(run, path, spec, data, child, on_cancel))

    def flow(asked: Asked, record: Call | None) -> Flow:
        return start_child(asked, record, child, data, on_cancel)

    record = _record(local.operate(run, path, spec, data, flow))
    return Child(scope, path, record.child, spec, None)


async def _astart(
    run: Run, path: str, spec: Spec, data: bytes, child: str, on_cancel: OnCancel
) -> None:
    from holdfast.engines import async_driver as aio

    def flow(asked: Any, record: Call | None) -> Any:
        return start_child(asked, record, child, data, on_cancel)

    await aio.operate(run, path, spec, data, flow, lambda run, record: None)


def _record(ended: Any) -> Call:
    if not isinstance(ended, Call):
        raise TypeError(f"starting a child ended with {ended!r}")
    return ended
