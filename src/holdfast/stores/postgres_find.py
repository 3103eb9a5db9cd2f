"""Lists in PostgreSQL: the statement that finds a page of one, and the bounds of a prefix."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.store import Query
from holdfast.stores.filters import filters
from holdfast.stores.queries import parts_of_find
from holdfast.stores.rows import beyond

PARTS = parts_of_find("postgres")
PAGE = 500


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


def bounds(prefix: str) -> dict[str, Any]:
    """What the queries are given that go through the streams of a prefix."""
    return {"prefix": prefix, "beyond": beyond(prefix), "page": PAGE}
