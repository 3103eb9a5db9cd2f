"""The statement that appends to many streams of PostgreSQL at once, and the values it is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from holdfast.errors import StoreError
from holdfast.stores.held import Held, HeldLines
from holdfast.stores.port import Facts, Query
from holdfast.stores.queries import columns_of, filters, packed, parts_of_find

Appends = tuple[Held, list[HeldLines]]
"""The lines for one stream."""


def by_stream(jobs: Sequence[HeldLines]) -> Iterator[Appends]:
    """The appends of each stream together: a statement moves a head once."""
    found: dict[int, Appends] = {}
    for job in jobs:
        try:
            job.held.must_be_sound()
        except StoreError as error:
            job.fail(error)
        else:
            found.setdefault(id(job.held), (job.held, []))[1].append(job)
    # In an order that is the same for everybody, so that two of them do not wait for each other.
    yield from sorted(found.values(), key=lambda pair: pair[0].id)


def statement_of(appends: list[Appends], *, tell: bool) -> tuple[str, dict[str, Any]]:
    """The name of the statement that makes appends, and the values to bind.

    It wakes the waiters for news if facts have changed, and otherwise if it is to `tell`.
    """
    if not tell and (alone := _alone(appends)) is not None:
        return alone
    given = _parameters(appends)
    given["news"] = given["news"] or tell
    return "append", given


def _alone(appends: list[Appends]) -> tuple[str, dict[str, Any]] | None:
    """The simpler statement, if it is about one stream and its lines alone."""
    ((held, jobs), *others) = appends
    if others or any(job.facts is not None for job in jobs):
        return None
    lines = [packed(line) for job in jobs for line in job.lines]
    given = {"id": held.id, "epoch": held.lease.epoch, "seq": jobs[0].seq, "count": len(lines)}
    return "append_one", {**given, "lines": lines}


def _parameters(appends: list[Appends]) -> dict[str, Any]:
    asked: list[dict[str, Any]] = []
    placed: list[dict[str, int]] = []
    lines: list[bytes] = []
    start, news = 1, False
    for held, jobs in appends:
        given = {"id": held.id, "epoch": held.lease.epoch, "seq": jobs[0].seq}
        facts = [job.facts for job in jobs if job.facts is not None]
        if facts:
            news = True
            given |= {"told": True, **told_as(facts[-1])}
        seq = jobs[0].seq
        for line in (packed(line) for job in jobs for line in job.lines):
            seq += 1
            placed.append({"id": held.id, "seq": seq, "start": start, "size": len(line)})
            start += len(line)
            lines.append(line)
        asked.append({**given, "count": seq - jobs[0].seq})
    return {
        "appends": msgspec.json.encode(asked).decode(),
        "lines": msgspec.json.encode(placed).decode(),
        "block": b"".join(lines),
        "news": news,
    }


def told_as(facts: Facts) -> dict[str, Any]:
    """Facts as PostgreSQL keeps them."""
    columns = columns_of(facts)
    texts = (*columns.values(), *facts.labels, *facts.labels.values())
    if any("\0" in text for text in texts if isinstance(text, str)):
        return {}  # PostgreSQL keeps no such text: so the log has to be read
    return columns


# Lists in PostgreSQL: the statement that finds a page of one.


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
