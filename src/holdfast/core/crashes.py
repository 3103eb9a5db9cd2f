"""When the process that drives a task dies: who it was, during which call, and how often by then.

A driver says in the log that it claims a task, and later that it released it. Another
process that finds a claim without that word knows that the process died (or hung for
longer than its lease). Deaths are counted by place: during the same call, or between calls. A call
that ends takes its deaths with it, so a task that gets on is never blamed for the company it kept.
When drivers have died too often at one place, the task is set aside.
"""

from __future__ import annotations

from holdfast.core.events import DriverDied, SetAside
from holdfast.core.fold.waits import perhaps_open
from holdfast.core.state import FINISHED, HALTED, Call, State, scope_of

MAX_CRASHES = 5
"""How many drivers may die at one place of a task before it is set aside."""

SUSPECTED = 2
"""From how many deaths on a task may be what ends its drivers."""

_MOST = 20


def death_of_driver(state: State, process: str) -> DriverDied | None:
    """The record for the last driver of a task, by the `process` that takes it now; None if that
    one released it, or is the same process.

    >>> left = State(claims=1, status="in_progress", is_held=True, owner="w-1", process="a")
    >>> death_of_driver(left, "b")
    DriverDied(seq=0, ..., owner='w-1', path='', name='', deaths=1, beside=())
    >>> death_of_driver(left, "a") is None
    True
    """
    if not state.is_held or state.status in FINISHED or state.status in HALTED:
        return None
    if state.process == process and process:
        return None
    at_work = _at_work(state)
    if not at_work:
        return DriverDied(owner=state.owner, deaths=deaths_at(state, "") + 1)
    # The one that was there most often is the likeliest.
    at_work.sort(key=lambda call: -deaths_at(state, call.path))
    first, *others = at_work
    return DriverDied(
        owner=state.owner,
        path=first.path,
        name=first.name,
        deaths=deaths_at(state, first.path) + 1,
        beside=tuple(call.path for call in others[:_MOST]),
    )


def set_aside(state: State, most: int) -> SetAside | None:
    """How a task is set aside whose drivers died `most` times at one place; None if not so often.

    >>> from holdfast.core.events import NEVER
    >>> from holdfast.core.state import Death
    >>> died = State(deaths={"3": 5}, death=Death(NEVER, "w-1", "3", "book", 5))
    >>> set_aside(died, 5).deaths, set_aside(died, 6)
    (5, None)
    """
    death = state.death
    if death is None or state.status in FINISHED or state.status in HALTED:
        return None
    if max(state.deaths.values(), default=0) < most:
        return None
    return SetAside(owner=death.owner, path=death.path, name=death.name, deaths=death.count)


def is_suspect(state: State) -> bool:
    """Whether a task may be what ended its drivers.

    >>> is_suspect(State(deaths={"3": 2})), is_suspect(State(deaths={"3": 1}))
    (True, False)
    """
    return max(state.deaths.values(), default=0) >= SUSPECTED


def deaths_at(state: State, path: str) -> int:
    """How often drivers died during a call. The start of a plain step may have been lost with its
    driver, so the deaths since the last call ended count for it too."""
    return state.deaths.get(path, state.deaths.get("", 0))


def died_in_words(owner: str, path: str, name: str, deaths: int) -> str:
    """The drivers that died, where, and how often.

    >>> died_in_words("w-1", "3", "book", 1)
    'its driver, w-1, died during call 3, book'
    >>> died_in_words("w-1", "", "", 5)
    '5 drivers died between calls, the last one was w-1'
    """
    where = f"during call {path}, {name}" if path else "between calls"
    if deaths == 1:
        return f"its driver, {owner}, died {where}"
    return f"{deaths} drivers died {where}, the last one was {owner}"


def _at_work(state: State) -> list[Call]:
    """The calls that were being made, without those that only waited for one of these."""
    made = [
        call
        for call in perhaps_open(state.calls)
        if call.status == "running" and call.kind in ("step", "tool")
    ]
    outer: set[str] = set()
    for call in made:
        scope = scope_of(call.path)
        while scope:
            outer.add(scope)
            scope = scope_of(scope)
    return [call for call in made if call.path not in outer]
