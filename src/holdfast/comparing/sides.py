"""The figures of a task, to be put beside those of another: what it came to, took and cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from msgspec import Raw, Struct, UnsetType

from holdfast.comparing.spans import Span, seconds, without
from holdfast.events import PlanItem
from holdfast.state import Call, State, scope_of
from holdfast.usage import used_by

Value = Callable[[Raw | UnsetType], Any]

_WAITS = ("sleep", "question", "approval", "child")


class Spent(Struct, frozen=True, omit_defaults=True):
    """What calls of models took, as the providers told. The cost is in whatever the prices are in.

    >>> Spent(1, 100, 20) + Spent(1, 50, 5, cost=0.5)
    Spent(model_calls=2, input_tokens=150, output_tokens=25, cached_tokens=0, cost=0.5)
    """

    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float = 0.0

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.model_calls + other.model_calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cost + other.cost,
        )


class Figures(Struct, frozen=True, omit_defaults=True):
    """A task in figures, from its log alone.

    Its duration is that from its first event to its last. For some of it at least one call was at
    work; for some of it, it waited: for a time, a person, a child, or before it tried again. In
    what is left it was in its own code, paused, or in nobody's hands.
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
    """How many came after one that failed."""
    duration_s: float = 0.0
    working_s: float = 0.0
    waiting_s: float = 0.0
    spent: Spent = Spent()
    plan: tuple[PlanItem, ...] = ()
    files: dict[str, str] = {}
    """Its files by name, and the SHA-256 of what is in each."""


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
        seconds(working),
        seconds(without(waiting, working)),
        _spent(calls, value),
        state.plan,
        {name: value(file.file).get("sha256", "") for name, file in sorted(state.files.items())},
    )


def _retries(call: Call) -> int:
    # Not all but the first: a step that waited inside is begun again as well.
    return sum(attempt.failure is not None for attempt in call.attempts[:-1])


def _spent(calls: list[Call], value: Value) -> Spent:
    told = (used.usage for used in used_by(calls, value).values())
    return sum(
        (Spent(1, u.input_tokens, u.output_tokens, u.cached_tokens, u.cost) for u in told), Spent()
    )


def _scopes(path: str) -> Iterator[str]:
    while path := scope_of(path):
        yield path


def _times(calls: list[Call], now: datetime) -> tuple[list[Span], list[Span]]:
    """When a call was at work, and when one waited. A step does not work while it waits inside."""
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
        # One that was let go of, or that a crash cut off: nobody knows when.
