"""The statement that finds a page of a list in SQLite.

SQLite knows nothing of how many rows a value has, so which index is walked is decided here: that
of the filter which as a rule leaves the least. The walk is in the order of the list, so it ends
with the page; what else was asked for is checked row by row. At worst every row is looked at once,
which of 100,000 takes 30 ms, and none is sorted.
"""

from __future__ import annotations

from typing import Any

from holdfast.store import Query
from holdfast.stores.filters import filters
from holdfast.stores.queries import parts_of_find
from holdfast.stores.sqlite_rows import micros_of

PARTS = parts_of_find("sqlite")


def find_statement(query: Query) -> tuple[str, dict[str, Any]]:
    """The statement, and the values to bind."""
    parts, given = filters(query, micros_of)
    texts = [PARTS[name] for name in ("read", f"by_{_walked(query)}", "known", *parts)]
    if query.status:
        names = [f"status_{number}" for number in range(len(query.status))]
        texts.append(PARTS["status"].format(", ".join(f":{name}" for name in names)))
        given |= dict(zip(names, query.status, strict=True))
    for number, (name, value) in enumerate(query.labels.items()):
        texts.append(PARTS["label"].format(number))
        given |= {f"label_name_{number}": name, f"label_value_{number}": value}
    return "\n".join([*texts, PARTS["in_order"]]), given


def _walked(query: Query) -> str:
    """What the index goes by that is walked along. None of them holds an empty text."""
    given = {
        "parent": query.parent,
        "session": query.session,
        "label": query.labels,
        "user": query.user,
        # Of several, each has an order of its own.
        "status": len(query.status) == 1,
        "task": query.task,
    }
    return next((name for name, value in given.items() if value), "age")
