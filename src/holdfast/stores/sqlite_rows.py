"""Facts as the SQLite store keeps them: times as numbers, labels as a text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.decoding import NONSENSE, Illegible, decode
from holdfast.events import NEVER
from holdfast.store import Facts
from holdfast.stores import rows

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
    """What `columns_of` made columns of; None if nobody knows the facts.

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
