"""Whether an earlier read of the outside world may answer for one that is asked for now."""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime
from functools import partial
from typing import Any

from holdfast.events import Reused
from holdfast.journal.requests import Append, Asked, Now, Request
from holdfast.state import Call, State, read_key


def reuse(asked: Asked) -> Generator[Request, Any, Call | None]:
    """Answer a read by an earlier one, if one will do; the record of that, or None.

    That it was is recorded, so a replay need not know what time it is. The record is not synced:
    it says nothing that the log did not hold before, and what follows from it can't be durable
    without it. Whether one will do is found out in the same moment: a tool in another branch may
    begin or end just now.
    """
    now = yield Now()
    record: Call | None = yield Append(partial(_reused, asked, now), False)
    return record


def _reused(asked: Asked, now: datetime, state: State) -> Reused | None:
    name, digest = asked.spec.name, asked.args_hash
    seen = state.calls.get(state.reads.get(read_key(name, digest), ""))
    if seen is None or not is_usable(seen, state, asked.ttl_s, now):
        return None
    return Reused(path=asked.path, name=name, args_hash=digest, of=seen.path)


def is_usable(seen: Call, state: State, ttl_s: float, now: datetime) -> bool:
    """Whether what a read saw may still be used: it is young enough, and nothing speaks against it.

    Its age counts from when it began: the value may be of any moment since then, and this is the
    oldest. A clock that stands before what the log has seen was set back, and tells no age.
    """
    if seen.as_of is None or now < state.updated_at:
        return False
    if (now - seen.as_of).total_seconds() > ttl_s:
        return False
    if any(state.invalidated.get(name, 0) > seen.seq for name in ("", *seen.reads)):
        return False
    return not any(name in names for names in state.writers.values() for name in seen.reads)
