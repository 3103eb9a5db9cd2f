"""A query as SQL: which of the parts in `find.sql` the statement has, and the values to bind.

The parts are ours and the values are bound, so nothing that a user gives becomes SQL.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from holdfast.store import Query

_TEXTS = ("parent", "origin", "session", "user", "task")
_TIMES = ("created_after", "created_before", "updated_after", "updated_before")


def filters(query: Query, kept: Callable[[datetime], Any]) -> tuple[list[str], dict[str, Any]]:
    """The parts that both dialects have, and their values; `kept` is how a time is kept.

    >>> filters(Query(user="ada", session=""), str)
    (['no_session', 'user'], {'prefix': 'tasks/', 'most': 51, 'user': 'ada'})
    """
    parts: list[str] = []
    # One more than was asked for shows that there are more.
    given: dict[str, Any] = {"prefix": query.prefix, "most": query.limit + 1}
    for name in _TEXTS:
        text = getattr(query, name)
        if text:
            parts.append(name)
            given[name] = text
        elif text is not None:
            parts.append(f"no_{name}")  # an empty one is kept as NULL
    for name in _TIMES:
        time = getattr(query, name)
        if time is not None:
            parts.append(name)
            given[name] = kept(time)
    if query.beyond is not None:
        parts.append("beyond")
        given |= {"beyond_at": kept(query.beyond[0]), "beyond_name": query.beyond[1]}
    return parts, given
