"""`@step` and `@tool`: functions whose calls a task journals."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, overload

from holdfast.engines import local
from holdfast.engines.functions import make_spec, undo_of
from holdfast.errors import BadInput
from holdfast.scope import Scope, scope_var
from holdfast.spec import Doubt, FunctionKind, Retry, Spec, registry

P = ParamSpec("P")
R = TypeVar("R")


@overload
def step(fn: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: Retry | None = None,
    timeout_s: float | None = None,
    redact: Iterable[str] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def step(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retry: Retry | None = None,
    timeout_s: float | None = None,
    redact: Iterable[str] = (),
) -> Any:
    """Make a function a step: inside a task its result is recorded before the task goes on.

    Outside a task it stays the plain function. `def` and `async def` both work. The recorded
    result is what the task gets, on the first run and on every replay. A generator (also an async
    one) streams to its caller and is recorded whole at its end; a replay streams it again. The
    arguments of the parameters in `redact` are not written to the log.

    >>> from holdfast import Holdfast, task
    >>> @step
    ... def double(x: int) -> int:
    ...     return 2 * x
    >>> @task
    ... def sum_of_doubles(n: int) -> int:
    ...     return sum(double(i) for i in range(n))
    >>> double(4)
    8
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(sum_of_doubles, 4)
    12
    """
    return decorate(fn, "step", name=name, retry=retry, timeout_s=timeout_s, redact=redact)


@overload
def tool(fn: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    retry: Retry | None = None,
    timeout_s: float | None = None,
    in_doubt: Doubt | None = None,
    check: Callable[..., Any] | None = None,
    undo: Callable[..., Any] | None = None,
    approve: bool = False,
    key_ttl_s: float | None = None,
    invalidates: Iterable[Any] = (),
    redact: Iterable[str] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def tool(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retry: Retry | None = None,
    timeout_s: float | None = None,
    in_doubt: Doubt | None = None,
    check: Callable[..., Any] | None = None,
    undo: Callable[..., Any] | None = None,
    approve: bool = False,
    key_ttl_s: float | None = None,
    invalidates: Iterable[Any] = (),
    redact: Iterable[str] = (),
) -> Any:
    """Make a function a tool: a step that touches the outside world.

    Its intent is on disk before its body starts. If the process dies in between, the call is *in
    doubt*, and one policy applies: `retry` calls it again with the same key, `check` asks the
    outside system by key (`check(key)` returns `Happened(result)` or `None`), `ask` stops the
    task for a person. Left out, the policy is `check` where there is a `check`, `retry` where the
    tool takes an `IdempotencyKey`, and `ask` otherwise.

    `invalidates` lists reads of the outside world (`@external`, or their names) that are not to
    be trusted any more once the tool may have had its effect: the next one asks again.

    `undo(result, *, key)` takes back what the tool did, when the task is cancelled or failed (see
    `@task(compensate=…)`). With `approve` a person has to say yes to each call, with exactly its
    arguments, before it is made: `hf.answer(id, True)`. The arguments of the parameters in
    `redact` are not written to the log.

    >>> from holdfast import Happened, Holdfast, IdempotencyKey, task
    >>> sent: dict[str, str] = {}
    >>> def was_it_sent(key: str) -> Happened[str] | None:
    ...     return Happened(sent[key]) if key in sent else None
    >>> @tool(check=was_it_sent)
    ... def send(to: str, *, key: IdempotencyKey = IdempotencyKey()) -> str:
    ...     sent[key] = f"mail to {to}"
    ...     return sent[key]
    >>> @task
    ... def invite() -> str:
    ...     return send("ada@example.org")
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(invite, id="i-1")
    'mail to ada@example.org'
    """
    return decorate(
        fn,
        "tool",
        name=name,
        retry=retry,
        timeout_s=timeout_s,
        in_doubt=in_doubt,
        check=check,
        undo=undo,
        key_ttl_s=key_ttl_s,
        approve=approve,
        invalidates=invalidates,
        redact=redact,
    )


def decorate(fn: Callable[..., Any] | None, kind: FunctionKind, **options: Any) -> Any:
    """Make a function one whose calls are journaled; without one, what does so."""
    if fn is None:
        return lambda given: decorate(given, kind, **options)
    if not callable(fn):
        raise BadInput(f"@{kind} decorates a function, not {fn!r:.100}")
    spec = make_spec(fn, kind, **options)
    if spec.undo is not None:
        undo_of(spec)  # so that what is wrong with it shows now
    registry.add(spec)
    return wrapped(spec)


def wrapped(spec: Spec, outside: Callable[..., Any] | None = None) -> Any:
    """The function as it is outside a task, or `outside`; inside one its calls are journaled."""
    in_task = _stream if spec.streams else _acall if spec.is_async else local.call
    plain = outside or spec.fn

    @functools.wraps(spec.fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        scope = scope_var.get()
        if scope is None:
            return plain(*args, **kwargs)
        return in_task(scope, spec, args, kwargs)

    call.holdfast_spec = spec  # type: ignore[attr-defined]
    if spec.is_async and not spec.streams:
        mark_async(call)
    return call


def _acall(scope: Scope, spec: Spec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _async_driver().call(scope, spec, args, kwargs)


@functools.cache
def _async_driver() -> Any:
    from holdfast.engines import aio  # asyncio is slow to import, and half the tasks are sync

    return aio


def _stream(scope: Scope, spec: Spec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from holdfast.engines import streaming

    return streaming.stream(scope, spec, args, kwargs)


def mark_async(fn: Any) -> None:
    """Let frameworks see that a plain function returns a coroutine."""
    if hasattr(inspect, "markcoroutinefunction"):
        inspect.markcoroutinefunction(fn)
    else:  # before Python 3.12 only asyncio's own test can be told
        from asyncio import coroutines

        fn._is_coroutine = coroutines._is_coroutine  # type: ignore[attr-defined]
