"""Once for sync and async: small flows that run inside of a task, or outside of any.

A flow is a generator that yields what is to be called; its driver calls that and sends what
came of it back. In an async task the calls may return awaitables, which are awaited, and the flow
as a whole is one. So what the agent package does is written once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from holdfast.core.decoding import Illegible, decode
from holdfast.core.events import Observed
from holdfast.core.scope import Scope, scope_var
from holdfast.engines.execution import seen_before
from holdfast.engines.run import Run
from holdfast.errors import CodeChanged, StoreError

T = TypeVar("T")

Flow = Generator[Callable[[], Any], Any, T]


def drive(flow: Flow[T]) -> T:
    """Carry a flow out here; in an async task, return the awaitable that does."""
    scope = scope_var.get()
    if scope is not None and scope.is_async:
        return adriven(flow)  # type: ignore[return-value]
    return driven(flow)


def driven(flow: Flow[T]) -> T:
    """The result of a flow, in sync code."""
    answer: Any = None
    try:
        call = flow.send(None)
        while True:
            try:
                answer = call()
            except Exception as error:
                call = flow.throw(error)
            else:
                call = flow.send(answer)
    except StopIteration as end:
        ended: T = end.value
        return ended


async def adriven(flow: Flow[T]) -> T:
    """The same in async code."""
    answer: Any = None
    try:
        call = flow.send(None)
        while True:
            try:
                answer = call()
                if inspect.isawaitable(answer):
                    answer = await answer
            except Exception as error:
                call = flow.throw(error)
            else:
                call = flow.send(answer)
    except StopIteration as end:
        ended: T = end.value
        return ended


def once(name: str, work: Callable[[str, str], T], kind: Any) -> T:
    """The value that `work` made the first time the code came by here: it is in the log.

    `work` is given a key, the same each time, and the path of what it is done for. It may be done
    again after a crash, so it either only reads, or does what it does once for each key. In an
    async task it is done off the loop, and this returns an awaitable.
    """
    scope = scope_var.get()
    if scope is None:
        return work("", "")
    path = scope.named_path(name, "=")
    if scope.is_async:
        return _aonce(scope, path, name, work, kind)  # type: ignore[return-value]
    found, value = _recorded(scope, path, name, kind)
    return value if found else _record(scope, path, name, _done(scope, path, work))


async def _aonce(scope: Scope, path: str, name: str, work: Callable[[str, str], T], kind: Any) -> T:
    import asyncio

    found, value = _recorded(scope, path, name, kind)
    if found:
        recorded: T = value
        return recorded
    return _record(scope, path, name, await asyncio.to_thread(_done, scope, path, work))


def _done(scope: Scope, path: str, work: Callable[[str, str], T]) -> T:
    run: Run = scope.run
    try:
        return work(f"{run.log.state.name}:{path}", path)
    except StoreError as error:  # the task did not fail: it can't go on here and now
        run.halt(error)


def _recorded(scope: Scope, path: str, name: str, kind: Any) -> tuple[bool, Any]:
    run: Run = scope.run
    run.must_go_on_in(scope)
    record = seen_before(run, path)
    if record is None:
        return False, None
    data = run.log.fetch(record.result if isinstance(record.result, Raw) else Raw(b"null"))
    try:
        return True, decode(data, kind)
    except Illegible as error:
        run.halt(CodeChanged(run.task_id, path, f"a {name} of another kind", f"reads it ({error})"))


def _record(scope: Scope, path: str, name: str, value: T) -> T:
    run: Run = scope.run
    if run.driver.writes:
        # Not synced: nothing that followed from it can be durable without it.
        raw = run.log.stow_alone(msgspec.json.encode(value))
        run.append(Observed(path=path, name=name, value=raw), scope)
    return value
