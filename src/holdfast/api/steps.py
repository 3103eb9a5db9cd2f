"""`@step` and `@tool`: functions whose calls a task journals. `decide` journals a choice."""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from hashlib import sha256
from types import MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)
from weakref import WeakSet

from msgspec import UNSET, Raw
from msgspec.structs import replace

from holdfast.codec import Signature, canonical, shape_of_value
from holdfast.core.events import Decided
from holdfast.core.scope import Scope, inside, running, scope_var
from holdfast.core.spec import (
    Doubt,
    FunctionKind,
    Happened,
    IdempotencyKey,
    Retry,
    Spec,
    is_async,
    is_method,
    is_streaming,
    registry,
)
from holdfast.core.state import State
from holdfast.core.words import must_be_texts
from holdfast.engines import sync_driver as local
from holdfast.engines.execution import must_have_restored
from holdfast.engines.functions import make_spec, undo_of
from holdfast.engines.run import Run, plain, record
from holdfast.errors import BadInput, CodeChanged, NotDurable, Undecodable
from holdfast.log.states import load

if TYPE_CHECKING:
    from holdfast.core.limits import Limit, Limited
    from holdfast.log.namespaces import Namespace


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@overload
def step(fn: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: Retry | None = None,
    timeout_s: float | None = None,
    redact: Iterable[str] = (),
    cache: float | None = None,
    limit: Limit | Limited | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def step(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retry: Retry | None = None,
    timeout_s: float | None = None,
    redact: Iterable[str] = (),
    cache: float | None = None,
    limit: Limit | Limited | None = None,
) -> Any:
    """Make a function a step: inside a task its result is recorded before the task goes on.

    Outside a task it stays the plain function. `def` and `async def` both work. The recorded
    result is what the task gets, on the first run and on every replay. A generator (also an async
    one) streams to its caller and is recorded whole at its end; a replay streams it again. The
    arguments of the parameters in `redact` are not written to the log. With `cache` (seconds, or
    True) tasks share its results: a call with the same arguments is not made again for that time.
    With a `limit` all tasks and workers of the store share how many are made, and how often.

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
    options: dict[str, Any] = {
        "name": name, "retry": retry, "timeout_s": timeout_s, "redact": redact, "limit": limit,
    }  # fmt: skip
    if cache is None:
        return decorate(fn, "step", **options)

    def remembering(given: Any) -> Any:

        called = str(name or getattr(given, "__name__", ""))
        return decorate(cached(given, called, cache), "step", **options)

    return remembering if fn is None else remembering(fn)


class ToolOptions(TypedDict, total=False):
    """The options of `@tool` that have nothing to do with what it returns."""

    name: str | None
    retry: Retry | None
    timeout_s: float | None
    in_doubt: Doubt | None
    approve: bool
    key_ttl_s: float | None
    invalidates: Iterable[Any]
    parallel: bool
    redact: Iterable[str]
    limit: Limit | Limited | None


class ToolThatReturns(Protocol[T]):
    """Decorates a function that returns what its `check` finds and its `undo` takes."""

    @overload
    def __call__(
        self, fn: Callable[P, Coroutine[Any, Any, T]], /
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __call__(self, fn: Callable[P, T], /) -> Callable[P, T]: ...


@overload
def tool(fn: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def tool(
    *,
    check: Callable[[IdempotencyKey], None],
    undo: Callable[..., Any] | None = None,
    **options: Unpack[ToolOptions],
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
@overload
def tool(
    *,
    check: Callable[[IdempotencyKey], Happened[T] | None],
    undo: Callable[Concatenate[T, ...], Any] | None = None,
    **options: Unpack[ToolOptions],
) -> ToolThatReturns[T]: ...
@overload
def tool(
    *,
    check: Callable[[IdempotencyKey], Awaitable[Happened[T] | None]],
    undo: Callable[Concatenate[T, ...], Any] | None = None,
    **options: Unpack[ToolOptions],
) -> ToolThatReturns[T]: ...
@overload
def tool(
    *, undo: Callable[Concatenate[T, ...], Any], **options: Unpack[ToolOptions]
) -> ToolThatReturns[T]: ...
@overload
def tool(
    *,
    check: Callable[..., Any] | None = None,
    undo: Callable[..., Any] | None = None,
    **options: Unpack[ToolOptions],
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
    parallel: bool = True,
    redact: Iterable[str] = (),
    limit: Limit | Limited | None = None,
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
    arguments, before it is made: `hf.answer(id, True)`. With `parallel=False` an agent
    whose model asks for several calls at once makes this one alone. The arguments of the parameters
    in `redact` are not written to the log. With a `limit` all tasks and workers of the store share
    how many of its calls are made at once, and how often.

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
        parallel=parallel,
        redact=redact,
        limit=limit,
    )


def decorate(fn: Callable[..., Any] | None, kind: FunctionKind, **options: Any) -> Any:
    """Make a function one whose calls are journaled; without one, what does so."""
    if fn is None:
        return lambda given: decorate(given, kind, **options)
    if isinstance(fn, staticmethod | classmethod):
        return type(fn)(decorate(fn.__func__, kind, **options))
    if isinstance(fn, type) or not callable(fn):
        raise BadInput(f"@{kind} decorates a function, not {fn!r:.100}")
    if inspect.isfunction(fn) and fn in _wrappers:
        already = getattr(fn, "holdfast_spec")  # noqa: B009 (no type checker knows of it)
        raise BadInput(f"{already.name} is a {already.kind} already: one decorator is enough")
    spec = make_spec(fn, kind, **options)
    if spec.undo is not None:
        undo_of(spec)  # so that what is wrong with it shows now
    registry.add(replace(spec, fn=_without_object(spec)) if spec.is_method else spec)
    return wrapped(spec)


_wrappers: WeakSet[Any] = WeakSet()


def _without_object(spec: Spec) -> Callable[..., Any]:
    """The function that stands for a method where only its name and arguments are known."""

    @functools.wraps(spec.fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        raise BadInput(
            f"{spec.name} is a method, and there is no object here to call it on: only a task that "
            f"runs in this process has it. Make it a function for a remote engine"
        )

    return call


def wrapped(spec: Spec, outside: Callable[..., Any] | None = None) -> Any:
    """The function as it is outside a task, or `outside`; inside one its calls are journaled."""
    in_task = _stream if spec.streams else _acall if spec.is_async else local.call
    plain = outside or spec.fn

    def plain_call(*args: Any, **kwargs: Any) -> Any:
        scope = scope_var.get()
        if scope is None:
            if running:
                _warn_outside(spec.name)
            return plain(*args, **kwargs)
        return in_task(scope, spec, args, kwargs)

    def call_on(owner: Any, /, *args: Any, **kwargs: Any) -> Any:
        scope = scope_var.get()
        if scope is None:
            return plain_call(owner, *args, **kwargs)
        return in_task(scope, replace(spec, fn=MethodType(spec.fn, owner)), args, kwargs)

    call: Any = functools.wraps(spec.fn)(call_on if spec.is_method else plain_call)
    _wrappers.add(call)
    call.holdfast_spec = spec
    if spec.is_async and not spec.streams:
        mark_async(call)
    return call


def _acall(scope: Scope, spec: Spec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _async_driver().call(scope, spec, args, kwargs)


@functools.cache
def _async_driver() -> Any:
    from holdfast.engines import (
        async_driver as aio,  # asyncio is slow to import, and half the tasks are sync
    )

    return aio


def _stream(scope: Scope, spec: Spec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from holdfast.engines import streams

    return streams.stream(scope, spec, args, kwargs)


def mark_async(fn: Any) -> None:
    """Let frameworks see that a plain function returns a coroutine."""
    if hasattr(inspect, "markcoroutinefunction"):
        inspect.markcoroutinefunction(fn)
    else:  # before Python 3.12 only asyncio's own test can be told
        from asyncio import coroutines

        fn._is_coroutine = coroutines._is_coroutine  # type: ignore[attr-defined]


def _warn_outside(name: str) -> None:
    """Warn of a step in a thread that knows of no task, if a task may have started the thread.

    Nothing says who started a thread. A thread that was there before the task, such as a web
    server's, is ignored. A thread that is newer than the task may still be a stranger's.
    """
    thread = threading.current_thread()
    if thread is threading.main_thread() or thread.name.startswith("holdfast"):
        return
    ids = {
        here.task_id
        for run, here in list(running.items())
        # A remote engine may leave a function where it waits, for good, and end its thread.
        if not run.is_over and here.thread.is_alive() and thread not in here.before
    }
    if not ids:
        return
    tasks = ", ".join(map(repr, sorted(ids)[:3]))
    warnings.warn(
        f"{name} was called in the thread {thread.name!r}, outside of any task, while {tasks} runs "
        f"here: it is not recorded, and a resumed task calls it again. If it belongs to a task, "
        f"call it with gather() or each(), or start the thread with "
        f"contextvars.copy_context().run",
        NotDurable,
        stacklevel=3,
    )


# `@step(cache=…)`: results that tasks share, by the arguments of the call, for a time.
#
# The result of a step is put under the hash of its arguments in a namespace of its own
# (`hf.values("cache/<step>")`). The next call with the same arguments, in any task and any process,
# takes it from there while it lives. Each task's log holds the result as always, so a replay does
# not look into the cache. Two tasks that ask at once may both make the call.


def cached(fn: Callable[..., Any], name: str, cache: Any) -> Callable[..., Any]:
    """The function with its results kept for `cache` seconds; with True for good."""
    lifetime_s = _lifetime(name, cache)
    if is_streaming(fn) or is_method(fn):
        raise BadInput(f"{name}: cache=… is for functions, not for generators or methods")
    signature, plain = Signature.of(fn), inspect.signature(fn)

    def place(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Namespace, str]:
        scope = scope_var.get()
        if scope is None:
            raise BadInput(f"{name}: its cache is asked for outside of a task")
        log = scope.run.log
        from holdfast.log.namespaces import namespace_of

        found = namespace_of(
            log.store, f"cache/{name}", log.lease.owner, log.clock, log.redact, log.max_value_bytes
        )
        given = plain.bind(*args, **kwargs)
        given.apply_defaults()
        data = signature.dump_call(given.args, given.kwargs)
        return found, sha256(canonical(bytes(data))).hexdigest()

    def known(namespace: Namespace, key: str) -> tuple[bool, Any]:
        kept = namespace.find([key]).get(key)
        if kept is None:
            return False, None
        return True, signature.returns.load(namespace.bytes_of(kept))

    def keep(namespace: Namespace, key: str, result: Any) -> None:
        namespace.put({key: signature.returns.dump(result)}, lifetime_s)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if scope_var.get() is None:
            return fn(*args, **kwargs)
        where = place(args, kwargs)
        is_known, result = known(*where)
        if not is_known:
            result = fn(*args, **kwargs)
            keep(*where, result)
        return result

    @functools.wraps(fn)
    async def acall(*args: Any, **kwargs: Any) -> Any:
        if scope_var.get() is None:
            return await fn(*args, **kwargs)
        from holdfast.api.async_forms import away

        where = place(args, kwargs)
        is_known, result = await away(known, *where)
        if not is_known:
            result = await fn(*args, **kwargs)
            await away(keep, *where, result)
        return result

    return acall if is_async(fn) else call


def _lifetime(name: str, cache: Any) -> float | None:
    if cache is True:
        return None
    is_number = isinstance(cache, int | float) and not isinstance(cache, bool)
    if not is_number or not 0 < cache <= 3.2e9:
        raise BadInput(f"{name}: cache={cache!a:.60} must be a number of seconds, or True for good")
    return float(cache)


# `decide`: what an agent chose at a branch point, from what, and why.


def decide(
    name: str, choice: T, *, options: Any = UNSET, because: str = "", supersedes: str = ""
) -> T:
    """Record what was chosen at a branch point, from what, and why; returns the choice.

    On a replay the recorded choice is returned, so a choice that a model or a person made stays.
    A decision that takes the place of an earlier one says so: `supersedes` is its name (the newest
    of that name counts) or its path. `holdfast why` prints the chain.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def pick() -> str:
    ...     return decide("room", "attic", options=["attic", "cellar"], because="has a window")
    >>> with Holdfast("memory://") as hf:
    ...     _ = hf.run(pick, id="pick-1")
    ...     hf.task("pick-1").decisions[0].because
    'has a window'
    """
    must_be_texts("decide()", name=name, because=because, supersedes=supersedes)
    scope = inside("decide()")
    run: Run = scope.run
    run.must_go_on_in(scope)
    path = scope.named_path(name, "?")
    must_have_restored(run, path, f"decides {name!r}")
    shape = shape_of_value(choice)
    known = run.log.state.calls.get(path)
    if known is None:
        run.must_write(path)
        raw, choice = shape.settle(choice)
        event = Decided(
            path=path,
            name=name,
            choice=run.log.stow(raw),
            options=UNSET
            if options is UNSET
            else run.log.stow(run.log.redact.data(plain(options))),
            because=because,
            supersedes=_path_of(run, supersedes) if supersedes else "",
        )
        record(scope, event)
        return choice
    try:
        return cast("T", shape.load(run.log.fetch(cast("Raw", known.result))))
    except Undecodable as error:
        asked = f"chooses something of another type ({error})"
        raise run.halted(CodeChanged(run.task_id, path, f"the decision {name!r}", asked)) from None


def _path_of(run: Run, wanted: str) -> str:
    """The path of the decision that is superseded."""
    log = run.log
    found = _newest(log.state, wanted)
    if not found and log.state.checkpoints:  # what was decided before is not in the state
        found = _newest(load(log.store, run.task_id, missing_ok=True), wanted)
    if found:
        return found
    # It halts the run: a function that caught this might find the decision on a replay, when the
    # log knows what comes later.
    run.halt(
        BadInput(
            f"task {run.task_id!r}: decide(supersedes={wanted!a:.60}): the task has made no "
            f"decision of that name or path. Name one that it has made before this one"
        )
    )


def _newest(state: State, wanted: str) -> str:
    names = (d.path for d in reversed(state.decisions) if wanted in (d.path, d.name))
    return next(names, "")
