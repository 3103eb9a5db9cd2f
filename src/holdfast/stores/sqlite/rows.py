"""Facts as the SQLite store keeps them: times as numbers, labels as a text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.core.decoding import NONSENSE, Illegible, decode
from holdfast.core.events import NEVER
from holdfast.stores import queries as rows
from holdfast.stores.port import Facts, Query
from holdfast.stores.queries import filters, parts_of_find

_MICROSECOND = timedelta(microseconds=1)


def columns_of(facts: Facts) -> dict[str, Any]:
    """Facts as columns."""
    found = rows.columns_of(facts)
    for name in ("created_at", "updated_at", "wake_at"):
        found[name] = None if found[name] is None else micros_of(found[name])
    if found["labels"] is not None:
        found["labels"] = msgspec.json.encode(found["labels"]).decode()
    return found


def facts_in(columns: Sequence[Any]) -> Facts | None:
    """The facts that `columns_of` made columns of; None if nobody knows the facts.

    >>> facts = Facts(task="greet", labels={"a": "1"})
    >>> facts_in(list(columns_of(facts).values())) == facts
    True
    """
    *first, labels, parent, created_at, updated_at, wake_at, origin = columns
    if first[0] is None:
        return None
    try:
        times = (_time(created_at), _time(updated_at), None if wake_at is None else _time(wake_at))
        found = rows.facts_in([*first, decode(labels or "{}"), parent, *times, origin])
        return msgspec.convert(found, Facts, from_attributes=True)  # SQLite takes any type
    except (*NONSENSE, Illegible):
        return None


def micros_of(time: datetime) -> int:
    """A time as it is kept: microseconds since 1970, which lose nothing and sort.

    >>> micros_of(NEVER + timedelta(seconds=1.5))
    1500000
    """
    return (time - NEVER) // _MICROSECOND


def _time(micros: int) -> datetime:
    return NEVER + micros * _MICROSECOND


# The statement that finds a page of a list in SQLite.
#
# SQLite does not know how many rows a value has. So those of each filter are counted along its
# index, as far as `_ENOUGH`, and the index of the one that leaves the least is walked. Most go on
# with the time of creation: their walk is in the order of the list, and ends with the page. The
# other conditions are checked row by row.


PARTS = parts_of_find("sqlite")

_ENOUGH = 1000
_TASKS = Query().prefix
"""Most streams of a store are tasks."""
_EARLIEST, _LATEST = -(1 << 62), 1 << 62

Count = Callable[[str, dict[str, Any]], int]


def find_statement(query: Query, count: Count) -> tuple[str, dict[str, Any]]:
    """The statement, and the values to bind. `count` runs one that counts."""
    parts, given = filters(query, micros_of)
    if given["most"] is None:
        given["most"] = -1
    statuses = [f"status_{number}" for number in range(len(query.status))]
    given |= dict(zip(statuses, query.status, strict=True))
    for number, (name, value) in enumerate(query.labels.items()):
        given |= {f"label_name_{number}": name, f"label_value_{number}": value}
    texts = [PARTS[name] for name in ("known", *parts)]
    if statuses:
        texts.append(PARTS["status"].format(_bound(statuses)))
    texts += [PARTS["label"].format(number) for number in range(len(query.labels))]
    given = {"updated_after": _EARLIEST, "updated_before": _LATEST, **given}
    given["beyond"] = rows.beyond(query.prefix)
    walk = _narrowest(list(_walks(query, _bound(statuses))), given, count)
    return "\n".join([PARTS["read"], walk, *texts, PARTS["in_order"]]), given


def _bound(names: list[str]) -> str:
    return ", ".join(f":{name}" for name in names)


def _walks(query: Query, statuses: str) -> Iterator[tuple[str, bool]]:
    """The indexes that may be walked, and whether that is in the order of the list.

    The narrowest first, as a rule. None of them holds an empty text.
    """
    for name in ("parent", "origin", "session"):
        if getattr(query, name):
            yield PARTS[f"by_{name}"], True
    for number in range(len(query.labels)):
        yield PARTS["by_label"].format(number), True
    if query.user:
        yield PARTS["by_user"], True
    if query.status:
        yield PARTS["by_status"].format(statuses), len(query.status) == 1
    if query.task:
        yield PARTS["by_task"], True
    if query.updated_after or query.updated_before:
        yield PARTS["by_change"], False
    if query.prefix not in ("", _TASKS):
        yield PARTS["by_name"], False


def _narrowest(walks: list[tuple[str, bool]], given: dict[str, Any], count: Count) -> str:
    ordered = [walk for walk, in_order in walks if in_order]
    widest = [*ordered, PARTS["by_age"]][0]
    if len(walks) == len(ordered) <= 1:
        return widest
    counts = [count(PARTS["count"].format(walk), {**given, "enough": _ENOUGH}) for walk, _ in walks]
    least = min(counts)
    return walks[counts.index(least)][0] if least < _ENOUGH else widest
