"""Branches: `gather` runs a few strands side by side, `each` maps a step over many items.

Both take one number in the strand that calls them; what happens in branch 2 of call 6 has a path
that begins with `6.2`, in whatever order they run. In a sync task branches are threads. In an async
task they are asyncio tasks, and `gather` and `each` are awaited.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, TypeVar, overload

from msgspec import Struct

from holdfast.core.events import Failure, Progressed
from holdfast.core.journal import describe
from holdfast.core.scope import Scope, inside, scope_var
from holdfast.core.spec import Spec
from holdfast.engines import sync_driver as local
from holdfast.engines.execution import (
    must_be_open,
    must_hold_no_call,
    recorded_result,
    taken_again,
)
from holdfast.engines.functions import make_spec
from holdfast.engines.run import Run
from holdfast.errors import (
    BadInput,
    CodeChanged,
    EachFailed,
    Signal,
    StepFailed,
    Suspend,
    Unserializable,
)

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
T = TypeVar("T")
R = TypeVar("R")


@overload
def gather(a: Awaitable[A], b: Awaitable[B], /) -> Awaitable[tuple[A, B]]: ...
@overload
def gather(a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], /) -> Awaitable[tuple[A, B, C]]: ...
@overload
def gather(
    a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], d: Awaitable[D], /
) -> Awaitable[tuple[A, B, C, D]]: ...
@overload
def gather(
    a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], d: Awaitable[D], e: Awaitable[E], /
) -> Awaitable[tuple[A, B, C, D, E]]: ...
@overload
def gather(*branches: Awaitable[T]) -> Awaitable[list[T]]: ...
@overload
def gather(a: Callable[[], A], b: Callable[[], B], /) -> tuple[A, B]: ...
@overload
def gather(a: Callable[[], A], b: Callable[[], B], c: Callable[[], C], /) -> tuple[A, B, C]: ...
@overload
def gather(
    a: Callable[[], A], b: Callable[[], B], c: Callable[[], C], d: Callable[[], D], /
) -> tuple[A, B, C, D]: ...
@overload
def gather(
    a: Callable[[], A], b: Callable[[], B], c: Callable[[], C], d: Callable[[], D],
    e: Callable[[], E], /
) -> tuple[A, B, C, D, E]: ...  # fmt: skip
@overload
def gather(*branches: Callable[[], T]) -> list[T]: ...
def gather(*branches: Any) -> Any:
    """Run branches side by side; returns their results in order, as a list.

    Type checkers see a tuple of up to five types, so that `a, b = gather(f, g)` keeps each; it may
    be returned where the annotation says `list` or `tuple`.

    In a sync task give functions of no arguments, in an async task coroutines, and await it. Every
    branch runs to its end; if any failed, the first of them in order raises.

    >>> from holdfast import Holdfast, step, task
    >>> @step
    ... def double(x: int) -> int:
    ...     return 2 * x
    >>> @task
    ... def both() -> tuple[int, int]:
    ...     return gather(lambda: double(1), lambda: double(double(2)))
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(both)
    (2, 8)
    """
    scope, path, strands = _split("gather()", len(branches))
    if scope.is_async:
        return _gathered(scope.run, path, strands, branches)
    for branch in branches:
        if not callable(branch):
            raise BadInput(
                f"gather() in a sync task takes functions, not {branch!r:.60}: lambda: step(…)"
            )
    results = ended(scope.run, path, _outcomes(scope.run, strands, branches))
    _must_have_made_every_call(scope.run, path, strands)
    return results


def gather_in_turn(groups: Sequence[Sequence[Callable[[], Any]]]) -> Any:
    """Run groups of branches one after the other, and the branches of a group side by side.

    The branches are numbered through, so that another division into groups finds the same calls at
    the same paths. They are functions, in an async task of something to be awaited. A group begins
    when the one before it has ended without an exception.
    """
    scope, path, strands = _split("gather()", sum(map(len, groups)))
    if scope.is_async:
        return _gathered_in_turn(scope.run, path, strands, groups)
    results: Results[Any] = Results()
    for group in groups:
        own = strands[len(results) : len(results) + len(group)]
        results += ended(scope.run, path, _outcomes(scope.run, own, group))
    _must_have_made_every_call(scope.run, path, strands)
    return results


def _split(what: str, count: int) -> tuple[Scope, str, list[Scope]]:
    """The scope that splits here, at which path, and a strand for each branch."""
    scope = _strand(what)
    must_be_open(scope)
    path = scope.next_path()
    must_hold_no_call(scope.run, path, what)
    return scope, path, [scope.strand(f"{path}.{n}") for n in range(1, count + 1)]


def _outcomes(
    run: Run, strands: Sequence[Scope], branches: Sequence[Callable[[], Any]]
) -> Iterator[Any]:
    work = [_in_scope(strand, branch) for strand, branch in zip(strands, branches, strict=True)]
    return run.driver.side_by_side(iter(work), len(work) or 1)


class ItemFailed(Struct, Generic[T], frozen=True):
    """One item of `each` that failed: which, and why.

    >>> ItemFailed(3, "row 3", Failure("ValueError", "no amount")).failure.summary()
    'ValueError: no amount'
    """

    index: int
    item: T
    failure: Failure


class Results(list[R]):
    """The list that `each` and `gather` return, in order; `each` puts None for an item that failed.

    Stored, as part of a result or a state, it is a plain list.

    >>> Results([1, 2]).failures
    []
    """

    holdfast_plain = list

    def __init__(self, results: Iterable[R] = (), failures: Iterable[ItemFailed[Any]] = ()) -> None:
        super().__init__(results)
        self.failures: list[ItemFailed[Any]] = list(failures)


@overload
def each(  # type: ignore[overload-overlap]
    fn: Callable[[T], Awaitable[R]],
    items: Iterable[T] | Callable[[int], Iterable[T]],
    *,
    workers: int = ...,
    tolerate: float = ...,
    progress: bool | None = ...,
) -> Awaitable[Results[R]]: ...
@overload
def each(
    fn: Callable[[T], R],
    items: Iterable[T] | Callable[[int], Iterable[T]],
    *,
    workers: int = ...,
    tolerate: float = ...,
    progress: bool | None = ...,
) -> Results[R]: ...
def each(
    fn: Callable[[Any], Any],
    items: Iterable[Any] | Callable[[int], Iterable[Any]],
    *,
    workers: int = 8,
    tolerate: float = 0,
    progress: bool | None = None,
) -> Any:
    """Map a step over items, `workers` at a time. Every item that ended is a checkpoint.

    After a crash only the unfinished ones run. `tolerate` is how many may fail: a number, or a
    share below 1; beyond it `EachFailed` is raised, when all have been tried. `items` may also be
    a function of an offset, so that a long input is not read again from its beginning.

    How far it is can be followed (`holdfast log -f`); on a terminal there is a bar, with rate and
    time left, and elsewhere a line in the log of `holdfast` (Python's `logging`) every ten
    seconds. `progress` says whether there is to be a bar.

    >>> from holdfast import Holdfast, step, task
    >>> @step
    ... def square(x: int) -> int:
    ...     return x * x
    >>> @task
    ... def squares(n: int) -> list[int]:
    ...     return each(square, range(n))
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(squares, 4)
    [0, 1, 4, 9]
    """
    if type(workers) is not int or workers < 1:
        raise BadInput(f"each(workers={workers!r:.60}): give a number, 1 or more")
    if not tolerate >= 0:
        raise BadInput(f"each(tolerate={tolerate}): give a number, 0 or more, or a share below 1")
    if not callable(items) and not isinstance(items, Iterable):
        raise BadInput(f"each(items={items!r:.60}): give a list, or a function of an offset")
    scope = _strand("each()")
    must_be_open(scope)
    path = scope.next_path()
    must_hold_no_call(scope.run, path, "each()")
    batch = Each(scope, path, _spec_of(fn), tolerate, _size(items), progress)
    source = batch.unfinished(items)
    if scope.is_async:
        from holdfast.engines import async_driver as aio

        return aio.each(batch, batch.calls(source), workers)
    strand = scope.strand(path)
    work = (_call(batch, strand, call, data) for call, data in batch.calls(source))
    try:
        for outcome in batch.run.driver.side_by_side(work, workers):
            batch.note(outcome)
    finally:
        batch.meter.end()
        stop_if_doomed(batch.run, path)
    return batch.end()


class Each:
    """One `each`: what is done, what is left, and what came of it."""

    def __init__(
        self,
        scope: Scope,
        path: str,
        spec: Spec,
        tolerate: float,
        total: int | None,
        on_terminal: bool | None,
    ) -> None:
        self.run: Run = scope.run
        self.path = path
        self.spec = spec
        self.tolerate = tolerate
        self.meter: Meter = Meter(spec.name, total, on_terminal=on_terminal, event=self._say)
        self.items: dict[int, Any] = {}
        self.count: int = 0
        self.replayed: int = 0
        """How many of the items that are still to be counted were recorded before."""

    def unfinished(self, items: Any) -> Iterator[Any]:
        """The items from the first one that has not ended."""
        if not callable(items):
            return iter(items)
        calls = self.run.driver.begun(self.run).calls
        while (call := calls.get(f"{self.path}.{self.count + 1}")) and call.status == "completed":
            self.count += 1
        self.meter.begin_at(self.count)
        return iter(items(self.count))

    def calls(self, source: Iterator[Any]) -> Iterator[tuple[str, bytes]]:
        """Path and encoded arguments of each call, as the items come."""
        for item in source:
            self.count += 1
            path = f"{self.path}.{self.count}"
            record = self.run.log.state.calls.get(path)
            if record is None or record.status != "completed":
                self.items[self.count] = item
            else:
                self.replayed += 1
            yield path, self._arguments(path, item)

    def _arguments(self, path: str, item: Any) -> bytes:
        dump = partial(self.spec.signature.dump_call, (item,), {}, self.run.log.growing)
        try:
            return dump()
        except Unserializable as refused:
            return taken_again(self.run, path, refused, dump)

    def _say(self, done: int, total: int | None) -> None:
        said = self.run.log.state.progress.get(self.path)
        if (said is None or said.number < done) and self.run.driver.writes:
            text = f"each({self.spec.name})"
            self.run.append(
                Progressed(scope=self.path, number=done, text=text, done=done, total=total)
            )

    def note(self, outcome: Any) -> None:
        """Take notice of how an item ended. Failures are in the log; others work on meanwhile."""
        if isinstance(outcome, BaseException) and not isinstance(outcome, StepFailed | Suspend):
            raise outcome
        if not isinstance(outcome, Suspend):
            fresh = self.replayed == 0
            self.replayed -= not fresh
            self.meter.count(failed=isinstance(outcome, StepFailed), fresh=fresh)

    def stop_if_doomed(self) -> None:
        """Raise the signal that stopped an item."""
        stop_if_doomed(self.run, self.path)

    def end(self) -> Results[Any]:
        """The results, from the log: the same whether they were made now or before a crash."""
        self.stop_if_doomed()
        self._must_have_had_every_item()
        results: Results[Any] = Results()
        for n in range(1, self.count + 1):
            record = self.run.log.state.calls[f"{self.path}.{n}"]
            if record.status == "completed":
                results.append(recorded_result(self.run, self.spec, record))
                continue
            failure = record.failure or Failure("Unknown", "")
            results.append(None)
            results.failures.append(ItemFailed(n - 1, self.items.get(n), failure))
        allowed = self.tolerate if self.tolerate >= 1 else int(self.tolerate * self.count)
        if len(results.failures) > allowed:
            raise EachFailed(self.path, self.spec.name, results, int(allowed))
        return results

    def _must_have_had_every_item(self) -> None:
        extra = self.run.log.state.calls.get(f"{self.path}.{self.count + 1}")
        if extra is not None:
            asked = f"has only {self.count} items"
            self.run.halt(CodeChanged(self.run.task_id, extra.path, describe(extra), asked))


def _call(batch: Each, strand: Scope, path: str, data: bytes) -> Callable[[], Any]:
    context = copy_context()
    context.run(scope_var.set, strand)
    return lambda: context.run(local.call_at, batch.run, path, batch.spec, data)


def _in_scope(strand: Scope, branch: Callable[[], Any]) -> Callable[[], Any]:
    context = copy_context()
    context.run(scope_var.set, strand)
    return lambda: context.run(branch)


def stop_if_doomed(run: Run, path: str) -> None:
    """Raise the signal that stopped a branch of the call at `path`, whatever became of it there."""
    if signal := run.doomed.get(path):
        run.stop = run.stop or signal
        run.raise_in(path, run.stop)


async def _gathered(
    run: Run, path: str, strands: Sequence[Scope], branches: Iterable[Any]
) -> list[Any]:
    from holdfast.engines import async_driver as aio

    results = ended(run, path, await aio.gather(strands, branches))
    _must_have_made_every_call(run, path, strands)
    return results


async def _gathered_in_turn(
    run: Run, path: str, strands: Sequence[Scope], groups: Sequence[Sequence[Callable[[], Any]]]
) -> list[Any]:
    from holdfast.engines import async_driver as aio

    results: Results[Any] = Results()
    for group in groups:
        own = strands[len(results) : len(results) + len(group)]
        results += ended(run, path, await aio.gather(own, [branch() for branch in group]))
    _must_have_made_every_call(run, path, strands)
    return results


def ended(run: Run, path: str, outcomes: Iterable[Any]) -> Results[Any]:
    """The results of branches that have all run to their end, or what the first one raised."""
    results = Results(outcomes)
    stop_if_doomed(run, path)
    signals = [outcome for outcome in results if isinstance(outcome, Signal)]
    if signals and run.stop is None:
        run.stop = signals[0]
    for outcome in (*signals, *results):
        if isinstance(outcome, BaseException):
            raise outcome
    return results


def _must_have_made_every_call(run: Run, path: str, strands: Sequence[Scope]) -> None:
    last = run.log.state.last
    made = {strand.path: strand.calls for strand in strands}
    one_more = f"{path}.{len(strands) + 1}"
    for scope in (*made, one_more):
        newest = last.get(scope, "")
        number = newest.rpartition(".")[2]
        if number.isdigit() and int(number) > made.get(scope, 0):
            record = run.log.state.calls[newest]
            asked = f"ends branch {scope} without that call"
            run.halt(CodeChanged(run.task_id, newest, describe(record), asked))


def _size(items: Any) -> int | None:
    try:
        return len(items)
    except TypeError:
        return None


_specs: dict[Any, Spec] = {}


def _spec_of(fn: Any) -> Spec:
    spec = getattr(fn, "holdfast_spec", None)
    if isinstance(spec, Spec):
        if spec.streams:
            raise BadInput(f"each({spec.name}): a step that streams can't be mapped; return a list")
        if spec.kind == "task":
            raise BadInput(f"each({spec.name}): a task can't be mapped; give a step or a tool")
        return spec
    if fn not in _specs:
        _specs[fn] = make_spec(fn, "step", name=getattr(fn, "__name__", "item").strip("<>"))
    return _specs[fn]


def _strand(what: str) -> Scope:
    scope = inside(what)
    run: Run = scope.run
    if not scope.is_async:
        run.must_go_on_in(scope)
    return scope


# How far a long piece of work is: a bar on a terminal, lines in a log, events for followers.
#
# All three are for people, so they come a few times a second, or every few seconds, and no more.


_BAR_S, _EVENT_S, _LINE_S = 0.1, 1.0, 10.0
_BAR_WIDTH = 30
_PARTS = " ▏▎▍▌▋▊▉█"


class Meter:
    """Counts what is done, and says so."""

    def __init__(
        self,
        name: str,
        total: int | None,
        *,
        on_terminal: bool | None = None,
        event: Callable[[int, int | None], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._total = total
        self._event = event
        self._clock = clock
        self._out: Any = sys.stderr
        has_terminal = self._out is not None and self._out.isatty()
        self._on_terminal = has_terminal if on_terminal is None else on_terminal
        self._done = self._failed = self._fresh = 0
        self._began = self._drawn = self._told = self._logged = clock()

    def begin_at(self, done: int) -> None:
        """So many were done before, in an earlier run."""
        self._done = done

    def count(self, *, failed: bool = False, fresh: bool = True) -> None:
        """One more is done. `fresh` if it was done now, and not in an earlier run."""
        self._done += 1
        self._failed += failed
        self._fresh += fresh
        now = self._clock()
        if self._on_terminal and now - self._drawn >= _BAR_S:
            self._drawn = now
            self._out.write(f"\r\033[K{self.text(bar=True)}")
            self._out.flush()
        if now - self._told >= _EVENT_S:
            self._told = now
            self._event(self._done, self._total)
        if not self._on_terminal and now - self._logged >= _LINE_S:
            self._logged = now
            self._log()

    def end(self) -> None:
        """Nothing more comes."""
        if self._on_terminal and self._drawn != self._began:
            self._out.write(f"\r\033[K{self.text(bar=True)}\n")
            self._out.flush()
        if self._told != self._began:
            self._event(self._done, self._total)
        if self._logged != self._began:
            self._log()

    def text(self, *, bar: bool = False) -> str:
        """How far it is, in one line."""
        words = [self._name]
        if bar and self._total:
            words.append(_bar(self._done / self._total))
        words.append(f"{self._done:,}" + (f" of {self._total:,}" if self._total else ""))
        passed_s = self._clock() - self._began
        rate = self._fresh / passed_s if passed_s > 0 else 0.0
        words.append(f"{rate:,.1f}/s")
        if self._total and rate > 0:
            words.append(f"{_duration((self._total - self._done) / rate)} left")
        if self._failed:
            words.append(f"{self._failed:,} failed")
        return "  ".join(words)

    def _log(self) -> None:
        import logging

        logging.getLogger("holdfast").info("%s", self.text())


def _bar(share: float) -> str:
    """A bar that is full at 1.

    >>> _bar(0.5)
    '███████████████               '
    """
    eighths = round(min(max(share, 0.0), 1.0) * _BAR_WIDTH * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (_PARTS[part] if part else "")).ljust(_BAR_WIDTH)


def _duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> _duration(75), _duration(3675)
    ('1:15', '1:01:15')
    """
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
