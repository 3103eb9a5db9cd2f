"""The statement that finds a page of a list in PostgreSQL."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.store import Query
from holdfast.stores.filters import filters
from holdfast.stores.queries import parts_of_find

PARTS = parts_of_find("postgres")


def find_statement(query: Query) -> tuple[str, dict[str, Any]] | None:
    """The statement, and the values to bind; None if no row can match."""
    parts, given = filters(query, lambda time: time)
    if query.status:
        parts.append("status")
        given["status"] = list(query.status)
    if query.labels:
        parts.append("labels")
        given["labels"] = msgspec.json.encode(query.labels).decode()
    texts = (*given.values(), *query.status, *query.labels, *query.labels.values())
    if any("\0" in text for text in texts if isinstance(text, str)):
        return None  # PostgreSQL keeps no such text: the facts that have one are unknown
    return "\n".join(PARTS[name] for name in ("read", *parts, "in_order")), given
