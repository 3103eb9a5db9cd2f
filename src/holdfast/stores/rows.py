"""Facts as columns of a row, and names by prefix: what the stores in databases have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.store import Facts

GONE = "events were recorded here, and this one and those after it are gone"
"""What is wrong with a log whose row says that it is longer."""


def columns_of(facts: Facts) -> dict[str, Any]:
    """Facts as columns. Only `status` is never NULL: it shows that the others are known."""
    return {
        "status": facts.status,
        "task": facts.task or None,
        "user": facts.user or None,
        "session": facts.session or None,
        "labels": facts.labels or None,
        "parent": facts.parent or None,
        "created_at": facts.created_at,
        "updated_at": facts.updated_at,
        "wake_at": facts.wake_at,
        "origin": facts.origin or None,
    }


def facts_in(columns: Sequence[Any]) -> Facts | None:
    """What `columns_of` made columns of; None if nobody knows the facts.

    >>> facts = Facts(task="greet", labels={"a": "1"})
    >>> facts_in(list(columns_of(facts).values())) == facts
    True
    """
    status, task, user, session, labels, parent, created_at, updated_at, wake_at, origin = columns
    if status is None:
        return None
    return Facts(
        task or "",
        status,
        user or "",
        session or "",
        labels or {},
        parent or "",
        created_at,
        updated_at,
        wake_at,
        origin or "",
    )


def beyond(prefix: str) -> str:
    """A name that sorts after all that begin with `prefix`, and before most others.

    >>> beyond("tasks/")
    'tasks0'
    """
    last = prefix[-1:]
    return prefix[:-1] + chr(ord(last) + 1) if "" < last < "\x7f" else "\U0010ffff" * 8
