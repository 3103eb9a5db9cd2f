"""The statement that finds a page of a list in SQLite.

SQLite does not know how many rows a value has. So those of each filter are counted along its
index, as far as `_ENOUGH`, and the index of the one that leaves the least is walked. Most go on
with the time of creation: their walk is in the order of the list, and ends with the page. What
else was asked for is checked row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from holdfast.store import Query
from holdfast.stores.filters import filters
from holdfast.stores.queries import parts_of_find
from holdfast.stores.sqlite_rows import micros_of

PARTS = parts_of_find("sqlite")

_ENOUGH = 1000
_EARLIEST, _LATEST = -(1 << 62), 1 << 62

Count = Callable[[str, dict[str, Any]], int]


def find_statement(query: Query, count: Count) -> tuple[str, dict[str, Any]]:
    """The statement, and the values to bind. `count` runs one that counts."""
    parts, given = filters(query, micros_of)
    statuses = [f"status_{number}" for number in range(len(query.status))]
    given |= dict(zip(statuses, query.status, strict=True))
    for number, (name, value) in enumerate(query.labels.items()):
        given |= {f"label_name_{number}": name, f"label_value_{number}": value}
    texts = [PARTS[name] for name in ("known", *parts)]
    if statuses:
        texts.append(PARTS["status"].format(_bound(statuses)))
    texts += [PARTS["label"].format(number) for number in range(len(query.labels))]
    given = {"updated_after": _EARLIEST, "updated_before": _LATEST, **given}
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


def _narrowest(walks: list[tuple[str, bool]], given: dict[str, Any], count: Count) -> str:
    ordered = [walk for walk, in_order in walks if in_order]
    widest = [*ordered, PARTS["by_age"]][0]
    if len(walks) == len(ordered) <= 1:
        return widest
    counts = [count(PARTS["count"].format(walk), {**given, "enough": _ENOUGH}) for walk, _ in walks]
    least = min(counts)
    return walks[counts.index(least)][0] if least < _ENOUGH else widest
