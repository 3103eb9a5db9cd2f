"""The parts of a step that streams, kept beside its log while it runs.

A streaming step is recorded whole, at its end. Until then its parts stand beside the log, so that
any process can follow them, and a reader can come back. They are kept in pages of some kilobytes:

    <call><attempt><page>.parts     the parts of one attempt of one call, in order

A page is written again, with more in it, until it is full. Nothing here is durable: what a crash
takes away is streamed again, by the next attempt. Once the call has ended, its record has every
part, and the pages are dropped.

The text of a model is kept likewise, piece by piece, while its step runs. That step is recorded as
the reply that it returned, and not as a list of pieces: so a page says whether its parts are pieces
of one text, which a reader counts by their length.

A page says of which call and which attempt it is. A reader takes no other: a writer that lost its
task to another one may write a last page under a name that the other uses too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct

from holdfast.core.decoding import Illegible, decoder

if TYPE_CHECKING:
    from holdfast.core.state import Call
    from holdfast.stores.port import Store

PAGE_BYTES = 16 * 1024
"""A page with more than that is full. Until then each write of it is a write of the whole page."""

PARTS = "parts"
_MOST_SEQS, _MOST_ATTEMPTS, _MOST_PAGES = 10**9, 10**3, 10**6


class StreamAttempt(Struct, frozen=True):
    """One attempt of a call that streams: the event that the call began with, and the attempt's
    number. After a rewind the call at a path is another one, and begins with another event."""

    seq: int
    number: int

    def __str__(self) -> str:
        return f"{self.seq}-{self.number}"


class PartsPage(Struct, frozen=True, omit_defaults=True):
    """Some parts of one attempt, in order."""

    path: str
    attempt: StreamAttempt
    epoch: int
    """The lease that they were written under."""
    first: int
    """The number of the first part here; they count from 1."""
    parts: list[Raw]
    of_text: bool = False
    """Whether the parts are pieces of one text."""


_load = decoder(PartsPage)


def attempt_of(call: Call) -> StreamAttempt | None:
    """The newest attempt of a call; None if it has none."""
    return StreamAttempt(call.seq, call.attempts[-1].number) if call.attempts else None


def page_name(attempt: StreamAttempt, page: int) -> str:
    """Where a page is kept.

    >>> page_name(StreamAttempt(12, 1), 3)
    '12001000003.parts'
    """
    place = (attempt.seq % _MOST_SEQS) * _MOST_ATTEMPTS + attempt.number % _MOST_ATTEMPTS
    return f"{place * _MOST_PAGES + page}.{PARTS}"


def put_page(store: Store, stream: str, number: int, page: PartsPage) -> None:
    """Keep a page, in place of the one there was."""
    if number < _MOST_PAGES:
        data = msgspec.json.encode(page)
        store.put_side(stream, "derived", page_name(page.attempt, number), data)


def read_pages(
    store: Store, stream: str, path: str, attempt: StreamAttempt, pages: Sequence[int]
) -> Iterator[PartsPage]:
    """Those of an attempt's pages that are there and whole, in order."""
    names = [page_name(attempt, page) for page in pages]
    found = {post.name: post.data for post in store.get_side([stream], "derived", names)}
    for name in names:
        try:
            page = _load(found[name])
        except (KeyError, Illegible):  # not there yet, or torn by a power cut
            return
        if page.path != path or page.attempt != attempt:
            return
        yield page


def drop_pages(store: Store, stream: str, names: Collection[str]) -> None:
    """Remove pages that nobody needs any more."""
    for name in names:
        store.drop_side(stream, "derived", name)


def page_names(store: Store, stream: str) -> list[str]:
    """Every page beside a log."""
    found = store.get_side([stream], "derived", only_names=True)
    return [post.name for post in found if post.name.endswith(f".{PARTS}")]
