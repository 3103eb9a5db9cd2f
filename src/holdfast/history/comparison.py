"""Tasks beside each other: where they diverge, how each ended, and its time and cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct, UnsetType

from holdfast.core.events import PlanItem
from holdfast.core.state import Call, State, scope_of
from holdfast.core.usage import Spent, spent, used_by
from holdfast.core.words import checked_id, html_table, must_be_texts
from holdfast.errors import BadInput, HoldfastError, TaskBusy
from holdfast.history.alignment import Alignment, align_all, ran
from holdfast.history.differences import Diff, diff
from holdfast.history.known import Known
from holdfast.history.snapshots import Snapshot, snapshot_of
from holdfast.log.reading import pause
from holdfast.log.states import load
from holdfast.stores.port import Store

if TYPE_CHECKING:
    from holdfast.api.app import Holdfast


# Spans of time, and how long they are together.


Span = tuple[datetime, datetime]


def joined(spans: Iterable[Span]) -> list[Span]:
    """The time that is in any of the spans, as spans that don't touch.

    >>> noon, hour = datetime(2024, 5, 1, 12), timedelta(hours=1)
    >>> [end.hour for _, end in joined([(noon, noon + hour), (noon, noon + 2 * hour)])]
    [14]
    """
    found: list[Span] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def without(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """The time that is in the spans, and in none of the others.

    >>> noon, hour = datetime(2024, 5, 1, 12), timedelta(hours=1)
    >>> left = without([(noon, noon + 3 * hour)], [(noon + hour, noon + 2 * hour)])
    >>> [(begin.hour, end.hour) for begin, end in left]
    [(12, 13), (14, 15)]
    """
    gone = joined(others)
    found: list[Span] = []
    at = 0
    for begin, end in joined(spans):
        while at < len(gone) and gone[at][1] <= begin:
            at += 1
        for from_, to in gone[at:]:
            if from_ >= end:
                break
            found.append((begin, from_))
            begin = max(begin, to)
        found.append((begin, end))
    return joined(found)


def seconds(spans: Iterable[Span]) -> float:
    """How long the spans are together.

    >>> noon = datetime(2024, 5, 1, 12)
    >>> seconds([(noon, noon + timedelta(minutes=1))] * 2)
    60.0
    """
    return sum((end - begin for begin, end in joined(spans)), timedelta()).total_seconds()


# The figures of a task, to compare with another's: its result, time and cost.


Value = Callable[[Raw | UnsetType], Any]

_WAITS = ("sleep", "question", "approval", "child", "limit")


class Figures(Struct, frozen=True, omit_defaults=True):
    """A task in figures, from its log alone.

    Its duration runs from its first event to its last. In part of it at least one call worked; in
    part the task waited: for a time, a person, a child, or before a retry. In the rest it was in
    its own code, paused, or without a driver.
    """

    id: str
    type: str
    status: str
    result: Any = None
    failure: str = ""
    calls: dict[str, int] = {}
    """How many calls of each name it made, in the order of the first of each."""
    failures: int = 0
    """How many attempts failed."""
    retries: int = 0
    """How many attempts followed a failed one."""
    duration_s: float = 0.0
    working_s: float = 0.0
    waiting_s: float = 0.0
    spent: Spent = Spent()
    plan: tuple[PlanItem, ...] = ()
    files: dict[str, str] = {}
    """Its files by name, each with the SHA-256 of its content."""


def figures(state: State, value: Value) -> Figures:
    """A task in figures. `value` gives a stored value as plain data.

    >>> from holdfast import Holdfast, step, task
    >>> @step
    ... def weighed(room: str) -> int:
    ...     return len(room)
    >>> @task
    ... def weighing(room: str) -> int:
    ...     return weighed(room) + weighed("hall")
    >>> with Holdfast("memory://") as hf:
    ...     _ = hf.run(weighing, "attic", id="weighing-1")
    ...     view = hf.task("weighing-1")
    ...     found = figures(view.state, view.value)
    >>> found.status, found.result, found.calls, found.retries
    ('completed', 9, {'weighed': 2}, 0)
    """
    calls = list(state.calls.values())
    tries = [attempt for call in calls for attempt in call.attempts]
    working, waiting = _times(calls, state.updated_at)
    # What a fork shares with its original took the original's time.
    shared = [(calls[0].at, state.created_at)] if calls and state.fork else []
    return Figures(
        state.id,
        state.task,
        state.status,
        value(state.result),
        state.failure.summary() if state.failure else "",
        dict(Counter(call.name for call in calls)),
        sum(attempt.failure is not None for attempt in tries),
        sum(_retries(call) for call in calls),
        max((state.updated_at - state.created_at).total_seconds(), 0.0),
        seconds(without(working, shared)),
        seconds(without(waiting, working + shared)),
        sum(map(spent, used_by(calls, value).values()), Spent()),
        state.plan,
        {name: value(file.file).get("sha256", "") for name, file in sorted(state.files.items())},
    )


def _retries(call: Call) -> int:
    # Not all but the first: a step that waited inside is begun again as well.
    return sum(attempt.failure is not None for attempt in call.attempts[:-1])


def _scopes(path: str) -> Iterator[str]:
    while path := scope_of(path):
        yield path


def _times(calls: list[Call], now: datetime) -> tuple[list[Span], list[Span]]:
    """The times in which a call worked, and in which one waited. A waiting step does not work."""
    waits: list[Span] = []
    inside: dict[str, list[Span]] = {}
    for call in calls:
        mine = list(_waits(call, now))
        waits += mine
        for scope in _scopes(call.path) if mine else ():
            inside.setdefault(scope, []).extend(mine)
    working: list[Span] = []
    for call in calls:
        working += without(_tries(call, now), inside.get(call.path, ()))
    return working, waits


def _waits(call: Call, now: datetime) -> Iterator[Span]:
    if call.kind in _WAITS:
        yield call.at, call.ended_at or now
    for one, following in zip(call.attempts, call.attempts[1:], strict=False):
        if one.failure is not None and one.ended_at:
            yield one.ended_at, following.at


def _tries(call: Call, now: datetime) -> Iterator[Span]:
    for attempt in call.attempts:
        if attempt.ended_at:
            yield attempt.at, attempt.ended_at
        elif attempt is call.attempts[-1] and call.status == "running":
            yield attempt.at, now
        # It was released, or a crash cut it off: nobody knows when.


_MOST = 20
_MOMENT_S = 0.05


class Comparison(Struct, frozen=True):
    """Tasks beside each other; each but the first is compared with the first one."""

    ids: tuple[str, ...]
    alignments: tuple[Alignment, ...]
    """Call by call, with the first divergence."""
    figures: tuple[Figures, ...]
    knows: tuple[Diff, ...]
    """How their final knowledge differs from that of the first task, without the calls."""
    types: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        """Whether none of them diverges from the first."""
        return all(alignment.first is None for alignment in self.alignments)

    def __repr__(self) -> str:
        parts = [self._parting(number) for number in range(1, len(self.ids))]
        told = ", ".join(f"{id!r} {part}" for id, part in zip(self.ids[1:], parts, strict=True))
        return f"Comparison({self.ids[0]!r}: {told:.300})"

    def _repr_html_(self) -> str:
        """The comparison as notebooks show it, a task in each line."""
        rows = [
            (f.id, f.status, sum(f.calls.values()), f"{f.duration_s:.1f} s", self._parting(number))
            for number, f in enumerate(self.figures)
        ]
        return html_table(rows, ("task", "status", "calls", "took", "diverges"))

    def _parting(self, number: int) -> str:
        first = self.alignments[number - 1].first if number else None
        if first is None:
            return "is the same" if number else ""
        return f"diverges at step {first.path}: {first.what}" if first.path else first.what


def compare(store: Store, ids: Sequence[str]) -> Comparison:
    """Compare two tasks or more."""
    if len(ids) < 2 or len(set(ids)) != len(ids):
        raise BadInput(f"compare() takes two tasks or more, and each once, not {list(ids)!r:.200}")
    if len(ids) > _MOST:
        raise BadInput(f"compare() takes at most {_MOST} tasks, not {len(ids)}")
    views = [Known(store, load(store, checked_id(id))) for id in ids]
    known = [_known(snapshot_of(store, view.state, None, None, view.seq)) for view in views]
    return Comparison(
        tuple(ids),
        align_all([ran(view.state, view.value) for view in views]),
        tuple(figures(view.state, view.value) for view in views),
        tuple(diff(known[0], each) for each in known[1:]),
        tuple(view.type for view in views),
    )


def _known(snapshot: Snapshot) -> dict[str, Any]:
    return {name: value for name, value in snapshot.comparable().items() if name != "calls"}


class Variant(Struct, frozen=True):
    """One of the ways that an experiment went: the fork, and how it ended."""

    name: str
    id: str
    result: Any = None
    problem: str = ""
    """Why it has no result: it failed, waits, or could not be made."""


class Experiment(Struct, frozen=True):
    """Forks of one task at one place that went different ways, beside each other."""

    original: str
    variants: tuple[Variant, ...]
    comparison: Comparison


def experiment(
    hf: Holdfast,
    id: str,
    variants: Mapping[str, Mapping[str, Any]],
    fork: Mapping[str, Any],
    progress: Callable[[Variant], None] = lambda variant: None,
    at_once: int = 4,
) -> Experiment:
    """Fork a task once for each variant, run them side by side, and compare them."""
    if not variants or not isinstance(variants, Mapping):
        raise BadInput("experiment() takes a dict of variants by name: what is to be other in each")
    for name, given in variants.items():
        must_be_texts("experiment()", name=name)
        if not isinstance(given, Mapping):
            raise BadInput(f"experiment(): variant {name!r} must be a dict, not {given!a:.60}")
    if len(variants) >= _MOST:
        raise BadInput(f"experiment() takes at most {_MOST - 1} variants, not {len(variants)}")
    made = _made(hf, id, variants, {"because": "", **fork})

    def run(name: str) -> Variant:
        try:
            _drive(hf, made[name])
            done = Variant(name, made[name], hf.task(made[name]).result)
        except HoldfastError as error:
            done = Variant(name, made[name], problem=str(error))
        progress(done)
        return done

    with ThreadPoolExecutor(max_workers=at_once) as pool:
        ended = tuple(pool.map(run, variants))
    return Experiment(id, ended, compare(hf.store, [id, *made.values()]))


def _drive(hf: Holdfast, id: str) -> None:
    """Run a fork to its end. If a worker was quicker, wait for its result."""
    while True:
        try:
            hf.resume(id)
            return
        except TaskBusy:
            pause(hf.store, _MOMENT_S)


def _made(
    hf: Holdfast, id: str, variants: Mapping[str, Mapping[str, Any]], fork: Mapping[str, Any]
) -> dict[str, str]:
    """The forks, by name. All are made before the first one runs; after a mistake in one, none
    runs."""
    made: dict[str, str] = {}
    try:
        for name, given in variants.items():
            because = f"variant {name}" + (f": {fork['because']}" if fork["because"] else "")
            made[name] = hf.fork(id, **{**fork, "because": because, **given}).id
    except BaseException:
        for other in made.values():
            hf.cancel(other, because="the experiment that it was made for was given up")
        raise
    return made
