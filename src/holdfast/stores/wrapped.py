"""A store around another one: every call handed on as it is. A wrapper overrides the calls that it
changes.

Nothing is handed on that is not written here. A wrapper that passed on whatever it did not know
would, with the next method of the port, write in the clear what it is there to encrypt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Generic, TypeVar

from holdfast.errors import StoreError
from holdfast.stores.port import (
    Blob,
    Facts,
    Holder,
    Lease,
    Leftovers,
    Page,
    Post,
    Query,
    SideKind,
    Store,
)

T = TypeVar("T")
EndT = TypeVar("EndT")

_HARMLESS = ("compact", "wait_for_news", "nameless", "ping")
"""The methods that some stores offer beyond the port, and that tell nothing a wrapper would have to
change."""


class Wrapped:
    """A store that does what another one does."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        for name in _HARMLESS:
            if hasattr(inner, name):
                setattr(self, name, getattr(inner, name))

    @property
    def url(self) -> str:
        return self.inner.url

    def acquire(
        self, streams: Sequence[str], owner: str, lease_s: float
    ) -> Sequence[Lease | StoreError]:
        return self.inner.acquire(streams, owner, lease_s)

    def holder(self, stream: str) -> Holder | None:
        return self.inner.holder(stream)

    def renew(self, lease: Lease) -> None:
        self.inner.renew(lease)

    def release(self, leases: Sequence[Lease]) -> None:
        self.inner.release(leases)

    def append(
        self,
        lease: Lease,
        expected_seq: int,
        lines: Sequence[bytes],
        facts: Facts | None = None,
    ) -> None:
        self.inner.append(lease, expected_seq, lines, facts)

    def sync(self, leases: Sequence[Lease]) -> Sequence[StoreError | None]:
        return self.inner.sync(leases)

    def read(self, stream: str, after_seq: int = 0, *, backwards: bool = False) -> Iterator[bytes]:
        return self.inner.read(stream, after_seq, backwards=backwards)

    def remember(self, stream: str, facts: Facts, seq: int) -> None:
        self.inner.remember(stream, facts, seq)

    def find(self, query: Query) -> Page:
        return self.inner.find(query)

    def put_side(self, stream: str, kind: SideKind, name: str, data: bytes) -> bool:
        return self.inner.put_side(stream, kind, name, data)

    def get_side(
        self,
        streams: Collection[str],
        kind: SideKind,
        names: Collection[str] | None = None,
        *,
        only_names: bool = False,
    ) -> Sequence[Post]:
        return self.inner.get_side(streams, kind, names, only_names=only_names)

    def refused(self, streams: Collection[str]) -> Sequence[Post]:
        """The messages in the inboxes that `get_side` keeps from the holder: they were changed, or
        left by somebody without the key. A report may name them; nobody takes them."""
        return []

    def drop_side(self, stream: str, kind: SideKind, name: str | None = None) -> None:
        self.inner.drop_side(stream, kind, name)

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


class WrappedLines(Wrapped, Generic[EndT]):
    """A store that makes each line of the one that it is given and of the line before it.

    It keeps the end of each log that is being written, for as long as the lease.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._ends: dict[Lease, EndT] = {}

    def _end(self, lease: Lease) -> EndT:
        end = self._ends.get(lease)
        if end is None:
            self.inner.renew(lease)  # a process that lost the lease is told that, and nothing else
            end = self._ends.setdefault(lease, self._end_of(lease.stream))
        return end

    def _end_of(self, stream: str) -> EndT:
        raise NotImplementedError

    def release(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            self._ends.pop(lease, None)
        self.inner.release(leases)

    def delete(self, lease: Lease) -> None:
        self.inner.delete(lease)
        self._ends.pop(lease, None)

    def rename(self, lease: Lease, stream: str) -> None:
        self.inner.rename(lease, stream)
        self._ends.pop(lease, None)

    def close(self) -> None:
        self._ends.clear()
        self.inner.close()


def with_older(lines: Iterator[T]) -> Iterator[tuple[T, T | None]]:
    """Each of the lines that come newest first, with the one before it in the log."""
    for newer in lines:
        for older in lines:
            yield newer, older
            newer = older
        yield newer, None
