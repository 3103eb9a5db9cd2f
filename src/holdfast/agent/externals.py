"""`@external`: reads of the outside world, which changes while an agent is at work.

The readings of an agent are in its log, and a replay sees them again. But what was read an hour ago
is no longer what is there, so a read that is made anew asks anew: always, or once its lifetime is
over, or once a tool of the task changed what was read. The agent may keep what it makes of it for
as long as it likes, together with how old it is: `fact`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from msgspec import Struct
from msgspec.structs import replace

from holdfast.api.steps import decorate, wrapped
from holdfast.codec import shape_of_value
from holdfast.core.events import Derived
from holdfast.core.scope import inside
from holdfast.core.spec import Retry, Spec
from holdfast.core.state import Call
from holdfast.core.words import must_be_texts
from holdfast.engines.execution import must_have_restored
from holdfast.engines.run import Run
from holdfast.errors import BadInput, CodeChanged, Undecodable

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Reading(Struct, Generic[T], frozen=True):
    """A reading of the outside world, and its age.

    `as_of` is when the read began that asked: the world may have changed since then. `source` is
    the path of that call; `fresh` says whether it was this one, and not an earlier one.

    >>> from datetime import UTC, datetime
    >>> Reading(7, datetime(2026, 1, 1, tzinfo=UTC), "3", fresh=True).source
    '3'
    """

    value: T
    as_of: datetime
    source: str
    fresh: bool


class External(Protocol[P, T]):
    """A read of the outside world: a function, with two more ways to call it."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """The value, no older than the lifetime."""

    def fresh(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """The value now: read in any case."""

    def reading(self, *args: P.args, **kwargs: P.kwargs) -> Reading[T]:
        """The value, and its time."""


class AsyncExternal(Protocol[P, T]):
    """The same of an `async def`: what it returns is awaited."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        """The value, no older than the lifetime."""

    def fresh(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        """The value now: read in any case."""

    def reading(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Reading[T]]:
        """The value, and its time."""


class _Decorator(Protocol):
    @overload  # the first is the narrower one
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[P, Coroutine[Any, Any, T]], /
    ) -> AsyncExternal[P, T]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> External[P, R]: ...


@overload
def external(  # type: ignore[overload-overlap]
    fn: Callable[P, Coroutine[Any, Any, T]], /
) -> AsyncExternal[P, T]: ...
@overload
def external(fn: Callable[P, R], /) -> External[P, R]: ...
@overload
def external(
    *,
    ttl_s: float = 0,
    name: str | None = None,
    retry: Retry | None = None,
    timeout_s: float | None = None,
    redact: Iterable[str] = (),
) -> _Decorator: ...
def external(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    ttl_s: float = 0,
    name: str | None = None,
    retry: Retry | None = None,
    timeout_s: float | None = None,
    redact: Iterable[str] = (),
) -> Any:
    """Make a function a read of the outside world: a step that may answer for itself for a while.

    Inside a task each call of it is recorded. One with the same arguments is answered by the last
    one if that began no longer than `ttl_s` ago, and no tool of the task that `invalidates` it was
    under way or ended since; else the outside is asked again. Without a `ttl_s` it always is;
    `float("inf")` is until a tool says otherwise. A replay sees what the first run saw.

    `reading(…)` says how old the answer is, `fresh(…)` asks in any case. Outside a task it is the
    plain function.

    >>> from holdfast import Holdfast, task, tool
    >>> shares = {"ada": 3}
    >>> @external(ttl_s=60)
    ... def holdings(user: str) -> int:
    ...     return shares[user]
    >>> @tool(invalidates=[holdings])
    ... def buy(user: str) -> None:
    ...     shares[user] += 1
    >>> @task
    ... def invest(who: str) -> list[int]:
    ...     seen = [holdings(who), holdings(who)]  # asked once
    ...     buy(who)
    ...     return [*seen, holdings(who)]  # asked again
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(invest, "ada", id="invest-1")
    ...     [call.of for call in hf.task("invest-1").calls]
    [3, 3, 4]
    ['', '1', '', '']
    """
    options = {"name": name, "retry": retry, "timeout_s": timeout_s, "redact": redact}
    if fn is None:
        return lambda given: _external(given, ttl_s=ttl_s, **options)
    return _external(fn, ttl_s=ttl_s, **options)


def _external(fn: Callable[..., Any], **options: Any) -> Any:
    read = decorate(fn, "external", **options)
    spec: Spec = read.holdfast_spec
    read.fresh = wrapped(replace(spec, ttl_s=0))
    read.reading = wrapped(replace(spec, answer=_reading), _outside(spec))
    return read


def _reading(record: Call, value: Any) -> Reading[Any]:
    as_of = record.as_of or record.at  # of a log in which it was a plain step
    return Reading(value, as_of, record.of or record.path, not record.of)


def _outside(spec: Spec) -> Callable[..., Any]:
    """`reading` outside a task, where there is no call to name."""

    def reading(*args: Any, **kwargs: Any) -> Any:
        as_of = datetime.now(UTC)
        value = spec.fn(*args, **kwargs)
        return _awaited(value, as_of) if spec.is_async else Reading(value, as_of, "", fresh=True)

    return reading


async def _awaited(value: Awaitable[Any], as_of: datetime) -> Reading[Any]:
    return Reading(await value, as_of, "", fresh=True)


def fact(name: str, value: T, *, of: Reading[Any] | Sequence[Reading[Any]]) -> T:
    """Keep what was made of readings, and as of when it holds: the oldest of them; returns it.

    A fact stays true for what it is: "as of then". On a replay the recorded one is returned.
    `hf.task(id).facts` lists them.

    >>> from holdfast import Holdfast, task
    >>> @external
    ... def balance(user: str) -> int:
    ...     return 250
    >>> @task
    ... def assess(who: str) -> str:
    ...     seen = balance.reading(who)
    ...     return fact("risk", "low" if seen.value > 100 else "high", of=seen)
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(assess, "ada", id="assess-1")
    ...     hf.task("assess-1").facts[0].sources
    'low'
    ('1',)
    """
    must_be_texts("fact()", name=name)
    readings = _checked(name, of)
    scope = inside("fact()")
    run: Run = scope.run
    run.must_go_on_in(scope)
    path = scope.named_path(name, "+")
    must_have_restored(run, path, f"derives {name!r}")
    shape = shape_of_value(value)
    record = run.log.state.calls.get(path)
    if record is not None:
        try:
            return cast("T", shape.load(run.log.fetch(cast("Any", record.result))))
        except Undecodable as error:
            asked = f"derives something of another type ({error})"
            run.halt(CodeChanged(run.task_id, path, f"the fact {name!r}", asked))
    run.must_write(path)
    raw, settled = shape.settle(value)
    event = Derived(
        path=path,
        name=name,
        value=run.log.stow(raw),
        as_of=min(reading.as_of for reading in readings),
        sources=tuple(dict.fromkeys(reading.source for reading in readings)),
    )
    run.append(event, scope)
    run.sync()
    return cast("T", settled)


def _checked(name: str, of: Any) -> Sequence[Reading[Any]]:
    readings = [of] if isinstance(of, Reading) else of
    if not isinstance(readings, Sequence) or not readings:
        raise BadInput(f"fact({name!r}, of={of!r:.60}): give the readings that it was made of")
    for each in readings:
        if not isinstance(each, Reading):
            raise BadInput(
                f"fact({name!r}, of=…): {each!r:.60} is no Reading; have one with "
                f"portfolio.reading(…) where portfolio is @external"
            )
    return readings
