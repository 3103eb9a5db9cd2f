"""What a task did, as it is compared with what another did: its calls, and how it ended.

Plain data, so that a recorded log, a replay and a fork are compared the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Raw, Struct, UnsetType

from holdfast.state import FINISHED, State, scope_of


class Made(Struct, frozen=True, omit_defaults=True):
    """One call that a task made. `failure` is in words, and '' if it did not fail.

    >>> Made("6", "book", output={"room": 7}).has_ended
    True
    """

    path: str
    name: str
    kind: str = "step"
    args_hash: str = ""
    input: Any = None
    outcome: str = "completed"
    output: Any = None
    failure: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether anything came of it yet."""
        return self.outcome in ("completed", "failed")


class Ran(Struct, frozen=True, omit_defaults=True):
    """A task: its calls in the order they were begun, and how it ended, if it did."""

    id: str
    calls: tuple[Made, ...] = ()
    input: Any = None
    status: str = "completed"
    result: Any = None
    failure: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes of it."""
        return self.status in FINISHED


def ran(state: State, value: Callable[[Raw | UnsetType], Any]) -> Ran:
    """What a task did, from its state. `value` gives a stored value as plain data.

    >>> from holdfast import Holdfast, step, task
    >>> @step
    ... def measured(room: str) -> int:
    ...     return len(room)
    >>> @task
    ... def measuring(room: str) -> int:
    ...     return measured(room)
    >>> with Holdfast("memory://") as hf:
    ...     _ = hf.run(measuring, "attic", id="measuring-1")
    ...     view = hf.task("measuring-1")
    ...     found = ran(view.state, view.value)
    >>> [(call.path, call.name, call.output) for call in found.calls], found.result
    ([('1', 'measured', 5)], 5)
    """
    return Ran(
        state.id,
        tuple(
            Made(
                call.path,
                call.name,
                call.kind,
                call.args_hash,
                value(call.args),
                call.status,
                value(call.result),
                call.failure.summary() if call.failure and call.status == "failed" else "",
            )
            for call in state.calls.values()
        ),
        value(state.args),
        state.status,
        value(state.result),
        state.failure.summary() if state.failure else "",
    )


def in_tree(calls: Iterable[Made]) -> list[Made]:
    """The calls scope by scope, each before those made in it, whichever branch ran first.

    Within a scope they stand as they were begun, but those that are counted alike (`6.1` and `6.2`,
    `fetch~1` and `fetch~2`) in the order of their numbers.

    >>> [call.path for call in in_tree(Made(path, "") for path in ("2.2.1", "1", "2.1.1", "1.1"))]
    ['1', '1.1', '2.1.1', '2.2.1']
    """
    known: dict[str, Made] = {}
    inside: dict[str, list[str]] = {"": []}
    for call in calls:
        known[call.path] = call
        path = call.path
        missing = []
        while path not in inside:
            missing.append(path)
            path = scope_of(path)
        for inner in reversed(missing):
            inside[scope_of(inner)].append(inner)
            inside[inner] = []
    found = []
    left = [""]
    while left:
        path = left.pop()
        if path in known:
            found.append(known[path])
        left += reversed(_counted(inside[path]))
    return found


def _counted(paths: list[str]) -> list[str]:
    """The paths, with those that are counted alike in the order of their numbers."""
    alike: dict[str, list[tuple[int, str]]] = {}
    labels = []
    for path in paths:
        label, number = _parts(path)
        labels.append(label)
        alike.setdefault(label, []).append((number, path))
    for group in alike.values():
        group.sort(reverse=True)
    return [alike[label].pop()[1] for label in labels]


def _parts(path: str) -> tuple[str, int]:
    label = path.rstrip("0123456789")
    return label, int(path[len(label) :] or 0)
