"""Everyday calls to a store, each made of the port's few methods (see `holdfast.stores.port`).

The port serves many streams in one call, because that costs a store no more than one. Most callers
have one stream, and want an error raised: they call these functions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.core.events import NEVER
from holdfast.core.facts import Facts, PagePlace, Query
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from holdfast.stores.port import Lease, Post, Store

_DUE_AT_ONCE = 200


def acquire_one(store: Store, stream: str, owner: str, lease_s: float) -> Lease:
    """Take the lease of one stream, or raise why not."""
    (outcome,) = store.acquire([stream], owner, lease_s)
    if isinstance(outcome, StoreError):
        raise outcome
    return outcome


def sync_one(store: Store, lease: Lease) -> None:
    """Make what was appended under one lease durable, or raise why not."""
    for error in store.sync((lease,)):
        if error is not None:
            raise error


def holder_of(store: Store, stream: str) -> str | None:
    """The name of the holder at work on a stream now; None if nobody is."""
    held = store.holder(stream)
    return None if held is None else held.name


# Streams, by what the store knows of them without reading a log.


def streams_in(store: Store, prefix: str) -> list[str]:
    """The names of the streams that begin with `prefix`, the newest first."""
    page = store.find(Query(prefix=prefix, limit=None))
    return [*(stream for stream, _ in page.found), *page.unknown]


def facts_of_all(store: Store, prefix: str) -> list[tuple[str, Facts | None]]:
    """The streams that begin with `prefix`, with their facts; None where a log has to be read."""
    page = store.find(Query(prefix=prefix, limit=None))
    return [*page.found, *((stream, None) for stream in page.unknown)]


def due_in(
    store: Store, prefix: str, now: datetime, *, unheld: bool = False
) -> Iterator[tuple[str, Facts | None]]:
    """The streams that somebody should drive now, the longest due first, asked for page by page.

    Those whose log has to be read come last. Some may be held; with `unheld`, fewer are.
    """
    query = Query(prefix=prefix, due_by=now, unheld=unheld, limit=_DUE_AT_ONCE)
    page = store.find(query)
    unknown = page.unknown
    while True:
        yield from page.found
        if not page.more:
            break
        stream, facts = page.found[-1]
        query = replace(query, beyond=PagePlace(facts.wake_at or NEVER, stream))
        page = store.find(query)
    yield from ((stream, None) for stream in unknown)


# Inboxes: messages for the holder of a stream.


def post_to(store: Store, stream: str, name: str, data: bytes) -> bool:
    """Leave a message for the holder of a stream; False if there is one of that name."""
    return store.put_side(stream, "inbox", name, data)


def inbox_of(store: Store, streams: Collection[str]) -> Sequence[Post]:
    """The messages that were left for streams, the oldest first."""
    return store.get_side(streams, "inbox")


def unpost(store: Store, stream: str, name: str) -> None:
    """Take a message out of the inbox. It may be gone already."""
    store.drop_side(stream, "inbox", name)
