"""A store around another one: every call handed on as it is. What a wrapper changes, it overrides.

Nothing is handed on that is not written here. A wrapper that passed on whatever it did not know
would, with the next method of the port, write in the clear what it is there to encrypt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from holdfast.errors import StoreError
from holdfast.stores.port import (
    Blob,
    Facts,
    Lease,
    Leftovers,
    ManyAtOnce,
    Page,
    Post,
    Query,
    Store,
    Waypoints,
)

T = TypeVar("T")

_HARMLESS = ("compact", "wait_for_news", "nameless")
"""What some stores offer beyond the port, and tells nothing that a wrapper would have to change."""


class Wrapped:
    """A store that does what another one does."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        for name in _HARMLESS:
            if hasattr(inner, name):
                setattr(self, name, getattr(inner, name))
        if isinstance(inner, ManyAtOnce):
            self._many: ManyAtOnce = inner
            # Only then: who finds these methods relies on it that they cost no more than one call.
            self.acquire_many = self._acquire_many
            self.sync_many = inner.sync_many
            self.release_many = self._release_many

    @property
    def url(self) -> str:
        return self.inner.url

    def acquire(self, stream: str, owner: str, lease_s: float) -> Lease:
        return self.inner.acquire(stream, owner, lease_s)

    def holder(self, stream: str) -> str | None:
        return self.inner.holder(stream)

    def renew(self, lease: Lease) -> None:
        self.inner.renew(lease)

    def release(self, lease: Lease) -> None:
        self.inner.release(lease)

    def _acquire_many(
        self, streams: Sequence[str], owner: str, lease_s: float
    ) -> Sequence[Lease | StoreError]:
        return self._many.acquire_many(streams, owner, lease_s)

    def _release_many(self, leases: Sequence[Lease]) -> None:
        self._many.release_many(leases)

    def append(
        self,
        lease: Lease,
        expected_seq: int,
        lines: Sequence[bytes],
        facts: Facts | None = None,
    ) -> None:
        self.inner.append(lease, expected_seq, lines, facts)

    def sync(self, lease: Lease) -> None:
        self.inner.sync(lease)

    def read(self, stream: str, after_seq: int = 0) -> Iterator[bytes]:
        return self.inner.read(stream, after_seq)

    def tail(self, stream: str) -> Iterator[bytes]:
        return self.inner.tail(stream)

    def facts(self, prefix: str) -> Iterator[tuple[str, Facts | None]]:
        return self.inner.facts(prefix)

    def remember(self, stream: str, facts: Facts, seq: int) -> None:
        self.inner.remember(stream, facts, seq)

    def due(self, prefix: str, now: datetime) -> Iterator[tuple[str, Facts | None]]:
        return self.inner.due(prefix, now)

    def find(self, query: Query) -> Page:
        return self.inner.find(query)

    def post(self, stream: str, name: str, data: bytes) -> bool:
        return self.inner.post(stream, name, data)

    def inbox(self, streams: Collection[str]) -> Sequence[Post]:
        return self.inner.inbox(streams)

    def refused(self, streams: Collection[str]) -> Sequence[Post]:
        """The messages that are there, and that `inbox` keeps from the holder: they were changed,
        or left by somebody without the key. To be told of, not to be taken."""
        return []

    def unpost(self, stream: str, name: str) -> None:
        self.inner.unpost(stream, name)

    def streams(self, prefix: str) -> Iterator[str]:
        return self.inner.streams(prefix)

    def delete(self, lease: Lease) -> None:
        self.inner.delete(lease)

    def rename(self, lease: Lease, stream: str) -> None:
        self.inner.rename(lease, stream)

    def put_blob(self, data: bytes, name: str = "") -> str:
        return self.inner.put_blob(data, name)

    def get_blob(self, name: str, *, checked: bool = True) -> bytes:
        return self.inner.get_blob(name, checked=checked)

    def blobs(self) -> Iterator[Blob]:
        return self.inner.blobs()

    def delete_blob(self, digest: str, older_than_s: float) -> bool:
        return self.inner.delete_blob(digest, older_than_s)

    def sweep(
        self, older_than_s: float, torn_older_than_s: float | None = None, *, dry_run: bool = False
    ) -> Leftovers:
        return self.inner.sweep(older_than_s, torn_older_than_s, dry_run=dry_run)

    def close(self) -> None:
        self.inner.close()


def with_older(lines: Iterator[T]) -> Iterator[tuple[T, T | None]]:
    """Each of the lines that come newest first, with the one before it in the log."""
    for newer in lines:
        for older in lines:
            yield newer, older
            newer = older
        yield newer, None


# Waypoints of a store around another one: under other names, and closed in some way.


Turn = Callable[[str, int, str, bytes], bytes | None]
"""Makes one form of a part of another: of a stream, an event and a part. None if it can't."""


def _as_it_is(stream: str, seq: int, part: str, data: bytes) -> bytes | None:
    return data


def _same(stream: str) -> str:
    return stream


class AroundWaypoints:
    """What is put is closed, what is got is opened; what does not open is as good as gone."""

    def __init__(
        self,
        inner: Waypoints,
        *,
        close: Turn = _as_it_is,
        open: Turn = _as_it_is,
        named: Callable[[str], str] = _same,
    ) -> None:
        self._inner = inner
        self._close = close
        self._open = open
        self._named = named

    def put(self, stream: str, seq: int, part: str, data: bytes) -> None:
        closed = self._close(stream, seq, part, data)
        if closed is not None:
            self._inner.put(self._named(stream), seq, part, closed)

    def get(self, stream: str, seqs: Sequence[int], part: str) -> Mapping[int, bytes]:
        found = self._inner.get(self._named(stream), seqs, part)
        opened = {seq: self._open(stream, seq, part, data) for seq, data in found.items()}
        return {seq: data for seq, data in opened.items() if data is not None}

    def seqs(self, stream: str) -> Sequence[int]:
        return self._inner.seqs(self._named(stream))

    def drop(self, stream: str) -> None:
        self._inner.drop(self._named(stream))
