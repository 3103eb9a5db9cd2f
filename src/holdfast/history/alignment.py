"""Two tasks, call by call, up to the first thing that one did otherwise than the other.

Calls are matched by their paths, so it does not count which of several branches ran first. The
first divergence is the first call, in the order of the first task, that is another, has other
arguments or another outcome, or that only one of them made. A step whose result is another because
of a call made inside of it is not the first: that call is.

After it paths say little, since one call more shifts all that follow. So the rest is matched by
what was called and with which arguments, wherever that is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from msgspec import Raw, Struct, UnsetType

from holdfast.core.state import FINISHED, State, scope_of
from holdfast.errors import BadInput
from holdfast.history.differences import Diff, diff, same
from holdfast.history.matching import canonical, common

# The calls of a task and how it ended, as data to compare with another task.
#
# Plain data, so that a recorded log, a replay and a fork are compared the same way.


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
        """Whether it has returned or failed."""
        return self.outcome in ("completed", "failed")


class RanTask(Struct, frozen=True, omit_defaults=True):
    """A task: its calls in the order they were begun, and how it ended, if it did."""

    id: str
    calls: tuple[Made, ...] = ()
    input: Any = None
    status: str = "completed"
    result: Any = None
    failure: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether the task has ended."""
        return self.status in FINISHED


def ran(state: State, value: Callable[[Raw | UnsetType], Any]) -> RanTask:
    """The calls and the end of a task, from its state. `value` gives a stored value as plain data.

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
    return RanTask(
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

    Within a scope they keep the order in which they began, but numbered ones (`6.1` and `6.2`,
    `fetch~1` and `fetch~2`) follow their numbers.

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
    """The paths, with numbered ones in the order of their numbers."""
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


What = Literal[
    "",
    "another call",
    "other arguments",
    "another result",
    "another failure",
    "another outcome",
    "another reading",
    "only in A",
    "only in B",
    "not yet",
    "ends",
]
"""How two calls differ: '' if they don't. A reading is of the clock, or of chance; "not yet" is a
call that an unfinished task may still make. Of two failures one may be "another failure"; of a
failure and a result, each is "another outcome"."""

_OUTCOMES = ("another result", "another failure", "another outcome")
_HARMLESS = ("", "another reading", "not yet")


class Row(Struct, frozen=True, omit_defaults=True):
    """A call of task A, and its counterpart in task B; None where one has none."""

    a: Made | None = None
    b: Made | None = None
    what: What = ""


class Divergence(Struct, frozen=True, omit_defaults=True):
    """Where two tasks part: which calls differ, how, and in what.

    `row` is its index among the rows. It is None if all calls are the same and the tasks
    only end otherwise.
    """

    what: What
    row: int | None = None
    a: Made | None = None
    b: Made | None = None
    diff: Diff = Diff()

    @property
    def path(self) -> str:
        """The path of the call."""
        made = self.a or self.b
        return made.path if made else ""


class Alignment(Struct, frozen=True, omit_defaults=True):
    """Two tasks side by side."""

    a: str
    b: str
    rows: tuple[Row, ...] = ()
    first: Divergence | None = None
    """None if they are the same."""
    readings: tuple[str, ...] = ()
    """The paths of readings of the clock or of chance ahead of it that differ, and may be why."""
    input: Diff = Diff()
    """The difference of their inputs."""


def align(a: RanTask, b: RanTask) -> Alignment:
    """Two tasks side by side, and where they part.

    >>> look, book = Made("1", "look", output=[7]), Made("2", "book", input=[7])
    >>> paid = RanTask("trip-2", (look, Made("2", "pay"), Made("3", "book", input=[7])))
    >>> found = align(RanTask("trip-1", (look, book)), paid)
    >>> found.first.what, found.first.path, found.first.a.name, found.first.b.name
    ('another call', '2', 'book', 'pay')
    >>> [(row.a and row.a.path, row.b and row.b.path, row.what) for row in found.rows]
    [('1', '1', ''), (None, '2', 'only in B'), ('2', '3', '')]
    """
    pairs = _by_path(a, b)
    first = _first(pairs)
    if first is None or first.what == "not yet":
        matched = [(pair.a, pair.b) for pair in pairs if pair.a and pair.b]
    else:
        matched = _matched_around(first, pairs)
    alone: dict[str, What] = {p.path: p.what for p in pairs if p.what == "not yet"}
    rows = _rows(matched, a, b, alone)
    ahead = pairs if first is None else [pair for pair in pairs if pair.key < first.key]
    return Alignment(
        a.id,
        b.id,
        rows,
        _ends(a, b) if first is None else _divergence(first, rows),
        tuple(pair.path for pair in ahead if pair.what == "another reading"),
        diff(a.input, b.input),
    )


def align_all(tasks: Sequence[RanTask]) -> tuple[Alignment, ...]:
    """Each of the tasks but the first, beside the first one.

    >>> [found.b for found in align_all([RanTask("trip-1"), RanTask("trip-2"), RanTask("trip-3")])]
    ['trip-2', 'trip-3']
    """
    if len(tasks) < 2:
        raise BadInput(f"comparing takes two tasks or more, not {len(tasks)}")
    return tuple(align(tasks[0], other) for other in tasks[1:])


class _Pair(Struct, frozen=True):
    """Calls of the same path. `key` is their place in the order of task A."""

    key: tuple[int, int]
    path: str
    a: Made | None
    b: Made | None
    what: What


def _by_path(a: RanTask, b: RanTask) -> list[_Pair]:
    mine, others = _known(a), _known(b)
    left_out_by_a, left_out_by_b = _left_out(others, mine), _left_out(mine, others)
    found = []
    for path, key in _order(mine, others).items():
        one, other = mine.get(path), others.get(path)
        if one and other:
            what = _between(one, other, a, b)
        elif one:
            what = "only in A" if b.has_ended or path in left_out_by_b else "not yet"
        else:
            what = "only in B" if a.has_ended or path in left_out_by_a else "not yet"
        found.append(_Pair(key, path, one, other, what))
    return sorted(found, key=lambda pair: pair.key)


def _left_out(made: dict[str, Made], others: dict[str, Made]) -> set[str]:
    """The calls that the other task has not made, and won't: it made a later one of the strand."""
    found, passed = set(), set()
    for path in reversed(made):
        scope = scope_of(path)
        if path in others:
            passed.add(scope)
        elif scope in passed:
            found.add(path)
    return found


def _known(task: RanTask) -> dict[str, Made]:
    known = {made.path: made for made in task.calls}
    if len(known) < len(task.calls):
        raise BadInput(f"task {task.id!r} has two calls of the same path: it can't be compared")
    return known


def _order(mine: dict[str, Made], others: dict[str, Made]) -> dict[str, tuple[int, int]]:
    """The place of each call in the order of task A. A call that only B has follows its predecessor
    in its scope, or else the call it was made in."""
    keys = {path: (number, 0) for number, path in enumerate(mine)}
    last: dict[str, tuple[int, int]] = {}
    for path in others:
        key = keys.get(path)
        if key is None:
            scope = scope_of(path)
            while scope and scope not in last and scope not in keys:
                scope = scope_of(scope)
            number, after = last.get(scope) or keys.get(scope) or (-1, 0)
            key = keys[path] = (number, after + 1)
        scope = path
        while scope:
            scope = scope_of(scope)
            last[scope] = max(last.get(scope, key), key)
    return keys


def _between(a: Made, b: Made, of_a: RanTask, of_b: RanTask) -> What:
    """How two calls differ."""
    if (a.name, a.kind) != (b.name, b.kind):
        return "another call"
    if _called(a) != _called(b):
        return "other arguments"
    if not a.has_ended and not b.has_ended:
        return ""
    if (not a.has_ended and not of_a.has_ended) or (not b.has_ended and not of_b.has_ended):
        return "not yet"
    if (a.outcome, a.failure) != (b.outcome, b.failure):
        failed = [each.outcome == "failed" for each in (a, b)]
        if all(failed):
            return "another failure"
        return "another outcome" if any(failed) else "another result"
    if same(a.output, b.output):
        return ""
    return "another reading" if a.kind == "reading" else "another result"


def _called(made: Made) -> tuple[str, str, str | bytes]:
    """The name and arguments of a call, to compare."""
    return made.name, made.kind, made.args_hash or canonical(made.input)


def _first(pairs: list[_Pair]) -> _Pair | None:
    """Where the tasks diverge; if they don't, the first call that one has not reached yet."""
    differ = [pair for pair in pairs if pair.what not in _HARMLESS]
    if not differ:
        return next((pair for pair in pairs if pair.what == "not yet"), None)
    first = differ[0]
    while first.what in _OUTCOMES:
        under = f"{first.path}."
        inner = next((pair for pair in differ if pair.path.startswith(under)), None)
        if inner is None:
            break
        first = inner
    return first


def _matched_around(first: _Pair, pairs: list[_Pair]) -> list[tuple[Made, Made]]:
    """Match by path up to the first divergence, and the rest as well as possible."""
    matched: list[tuple[Made, Made]] = []
    olds: list[Made] = []
    news: list[Made] = []
    for pair in pairs:
        is_ahead = pair.key < first.key and pair.what in (*_HARMLESS, *_OUTCOMES)
        if is_ahead and pair.a and pair.b:
            matched.append((pair.a, pair.b))
            continue
        olds += [pair.a] if pair.a else []
        news += [pair.b] if pair.b else []
    olds, news = in_tree(olds), in_tree(news)
    for find, likeness in (
        (_in_line, _called),
        (_anywhere, _called),
        (_in_line, _placed),
        (_in_line, _named),
    ):
        found = find(olds, news, likeness)
        matched += found
        known, taken = {one.path for one, _ in found}, {other.path for _, other in found}
        olds = [made for made in olds if made.path not in known]
        news = [made for made in news if made.path not in taken]
    return matched


def _placed(made: Made) -> tuple[str, str, str]:
    return made.path, made.name, made.kind


def _named(made: Made) -> tuple[str, str]:
    return made.name, made.kind


def _in_line(
    olds: list[Made], news: list[Made], likeness: Callable[[Made], Any]
) -> list[tuple[Made, Made]]:
    """The calls that are alike, as many as come one after the other on both sides."""
    pairs = common([*map(likeness, olds)], [*map(likeness, news)])
    return [(olds[i], news[j]) for i, j in pairs]


def _anywhere(
    olds: list[Made], news: list[Made], likeness: Callable[[Made], Any]
) -> list[tuple[Made, Made]]:
    """The calls that are alike, each with the first of the others that is left."""
    left: dict[Any, deque[Made]] = {}
    for made in news:
        left.setdefault(likeness(made), deque()).append(made)
    found = []
    for made in olds:
        if alike := left.get(likeness(made)):
            found.append((made, alike.popleft()))
    return found


def _rows(
    matched: list[tuple[Made, Made]], a: RanTask, b: RanTask, alone: dict[str, What]
) -> tuple[Row, ...]:
    """Rows in the order of A's tree; a call that only B has follows its predecessor in B's."""
    other_of = {one.path: other for one, other in matched}
    mine_of = {other.path: one.path for one, other in matched}
    after: dict[str, list[Row]] = {}
    place = ""
    for made in in_tree(b.calls):
        if made.path in mine_of:
            place = mine_of[made.path]
        else:
            row = Row(None, made, alone.get(made.path, "only in B"))
            after.setdefault(place, []).append(row)
    rows = after.get("", [])
    for made in in_tree(a.calls):
        other = other_of.get(made.path)
        what = _between(made, other, a, b) if other else alone.get(made.path, "only in A")
        rows.append(Row(made, other, what))
        rows += after.get(made.path, [])
    return tuple(rows)


def _divergence(first: _Pair, rows: tuple[Row, ...]) -> Divergence:
    a, b = first.a, first.b
    row = next(n for n, row in enumerate(rows) if (a and row.a is a) or (b and row.b is b))
    if a is None or b is None:
        return Divergence(first.what, row, a, b)
    if first.what == "other arguments":
        found = diff(a.input, b.input)
    elif first.what == "another result" and a.outcome == b.outcome:
        found = diff(a.output, b.output)
    elif first.what == "another call":
        found = diff({"name": a.name, "input": a.input}, {"name": b.name, "input": b.input})
    else:
        found = diff(_outcome(a), _outcome(b))
    return Divergence(first.what, row, a, b, found)


def _outcome(made: Made) -> dict[str, Any]:
    if made.outcome == "completed":
        return {"outcome": made.outcome, "output": made.output}
    return {"outcome": made.outcome} | ({"failure": made.failure} if made.failure else {})


def _ends(a: RanTask, b: RanTask) -> Divergence | None:
    """The difference of their ends, if the tasks differ in nothing else."""
    ends = [
        {"status": task.status, "result": task.result, "failure": task.failure} for task in (a, b)
    ]
    found = diff(*ends)
    if not found:
        return None
    return Divergence("ends" if a.has_ended and b.has_ended else "not yet", diff=found)
