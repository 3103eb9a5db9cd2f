"""The memory store: the contract and nothing else. For tests, examples and trying things out."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from hashlib import sha256

from holdfast.errors import Conflict, LeaseLost, LogDamaged, StoreError, TaskBusy
from holdfast.stores import finding
from holdfast.stores.files.leftovers import NothingLeft
from holdfast.stores.held import each
from holdfast.stores.port import (
    DERIVED_NAME,
    Blob,
    Facts,
    Holder,
    Lease,
    Page,
    Post,
    Query,
    SideKind,
    Store,
    held_for,
)


class MemoryStore(NothingLeft):
    """Streams in a dict, which end with the object.

    A store opened `beside` another shares its streams, as two processes share a folder.
    """

    url = "memory://"

    def __init__(self, beside: MemoryStore | None = None) -> None:
        self._mine: set[Lease] = set()
        if beside is not None:
            vars(self).update(vars(beside) | vars(self))
            return
        self._lock = threading.Lock()
        self._streams: dict[str, list[bytes]] = {}
        self._epochs: dict[str, int] = {}
        self._held: dict[str, tuple[Lease, float, float]] = {}
        self._blobs: dict[str, bytes] = {}
        self._put_at: dict[str, float] = {}
        self._facts: dict[str, Facts] = {}
        self._posts: dict[tuple[str, str], bytes] = {}
        self._derived: dict[tuple[str, str], bytes] = {}

    def acquire(
        self, streams: Sequence[str], owner: str, lease_s: float
    ) -> Sequence[Lease | StoreError]:
        return each(partial(self._take, owner=owner, lease_s=lease_s), streams)

    def _take(self, stream: str, owner: str, lease_s: float) -> Lease:
        with self._lock:
            held = self._held.get(stream)
            if held and time.monotonic() < held[1]:
                raise TaskBusy(f"{stream} is being driven by {held[0].owner}: wait for it to end")
            epoch = self._epochs[stream] = self._epochs.get(stream, 0) + 1
            lease = Lease(stream, owner, epoch, len(self._streams.get(stream, ())))
            self._held[stream] = (lease, time.monotonic() + lease_s, lease_s)
            self._mine.add(lease)
            return lease

    def holder(self, stream: str) -> Holder | None:
        with self._lock:
            held = self._held.get(stream)
            left_s = held[1] - time.monotonic() if held else 0.0
            return held_for(held[0].owner, left_s) if held and left_s > 0 else None

    def renew(self, lease: Lease) -> None:
        with self._lock:
            self._must_hold(lease)
            lease_s = self._held[lease.stream][2]
            self._held[lease.stream] = (lease, time.monotonic() + lease_s, lease_s)

    def release(self, leases: Sequence[Lease]) -> None:
        with self._lock:
            for lease in leases:
                self._release(lease)

    def append(
        self,
        lease: Lease,
        expected_seq: int,
        lines: Sequence[bytes],
        facts: Facts | None = None,
    ) -> None:
        with self._lock:
            self._must_hold(lease)
            head = len(self._streams.get(lease.stream, ()))
            if head != expected_seq:
                raise Conflict(
                    f"{lease.stream} is at event {head}, the writer thought {expected_seq}"
                )
            if lines:
                self._streams.setdefault(lease.stream, []).extend(lines)
            if facts is not None:
                self._facts[lease.stream] = facts

    def sync(self, leases: Sequence[Lease]) -> Sequence[StoreError | None]:
        with self._lock:
            return each(self._must_hold, leases)

    def read(self, stream: str, after_seq: int = 0, *, backwards: bool = False) -> Iterator[bytes]:
        with self._lock:
            lines = self._streams.get(stream, [])[max(after_seq, 0) :]
        return reversed(lines) if backwards else iter(lines)

    def remember(self, stream: str, facts: Facts, seq: int) -> None:
        with self._lock:
            if 0 < seq == len(self._streams.get(stream, ())):
                self._facts[stream] = facts

    def find(self, query: Query) -> Page:
        with self._lock:
            told = [(name, self._facts.get(name)) for name in self._streams]
        return finding.find(query, [each for each in told if each[0].startswith(query.prefix)])

    def put_side(self, stream: str, kind: SideKind, name: str, data: bytes) -> bool:
        with self._lock:
            if kind == "derived":
                may_be_kept = stream in self._streams and bool(DERIVED_NAME.fullmatch(name))
            else:
                may_be_kept = (stream, name) not in self._posts
            if not may_be_kept:
                return False
            self._side(kind)[stream, name] = bytes(data)
            return True

    def get_side(
        self,
        streams: Collection[str],
        kind: SideKind,
        names: Collection[str] | None = None,
        *,
        only_names: bool = False,
    ) -> Sequence[Post]:
        with self._lock:
            rows = list(self._side(kind).items())
        return [
            Post(stream, name, b"" if only_names else data)
            for (stream, name), data in rows
            if stream in streams and (names is None or name in names)
        ]

    def drop_side(self, stream: str, kind: SideKind, name: str | None = None) -> None:
        with self._lock:
            _drop(self._side(kind), stream, name)

    def _side(self, kind: SideKind) -> dict[tuple[str, str], bytes]:
        return self._derived if kind == "derived" else self._posts

    def delete(self, lease: Lease) -> None:
        with self._lock:
            self._must_hold(lease)
            self._streams.pop(lease.stream, None)
            self._facts.pop(lease.stream, None)
            _drop(self._posts, lease.stream)
            _drop(self._derived, lease.stream)
            self._release(lease)

    def rename(self, lease: Lease, stream: str) -> None:
        with self._lock:
            self._must_hold(lease)
            held = self._held.get(stream)
            if stream in self._streams:
                raise Conflict(f"{stream} is there already")
            if held and time.monotonic() < held[1]:
                raise TaskBusy(f"{stream} is being driven by {held[0].owner}: wait for it to end")
            del self._held[lease.stream]
            if lease.stream in self._streams:
                self._streams[stream] = self._streams.pop(lease.stream)
            if lease.stream in self._facts:
                self._facts[stream] = self._facts.pop(lease.stream)
            _rename(self._derived, lease.stream, stream)
            # An earlier holder of a stream of that name holds this one no more than that one.
            self._epochs[stream] = max(self._epochs.get(stream, 0), lease.epoch)
            self._held.pop(stream, None)

    def put_blob(self, data: bytes, name: str = "") -> str:
        name = name or sha256(data).hexdigest()
        with self._lock:
            self._blobs[name] = bytes(data)
            self._put_at[name] = time.monotonic()
        return name

    def get_blob(self, name: str, *, checked: bool = True) -> bytes:
        if name not in self._blobs:
            raise LogDamaged(f"blobs/{name}", 0, "the blob is gone")
        if checked and sha256(self._blobs[name]).hexdigest() != name:
            raise LogDamaged(f"blobs/{name}", 0, "the blob's bytes do not fit its name")
        return self._blobs[name]

    def blobs(self) -> Iterator[Blob]:
        now = time.monotonic()
        with self._lock:
            found = [
                Blob(digest, len(data), now - self._put_at[digest])
                for digest, data in self._blobs.items()
            ]
        return iter(found)

    def delete_blob(self, digest: str, older_than_s: float) -> bool:
        with self._lock:
            put_at = self._put_at.get(digest)
            if put_at is None or time.monotonic() - put_at < older_than_s:
                return False
            del self._blobs[digest], self._put_at[digest]
            return True

    def close(self) -> None:
        with self._lock:
            for lease in list(self._mine):
                self._release(lease)

    def _release(self, lease: Lease) -> None:
        self._mine.discard(lease)
        held = self._held.get(lease.stream)
        if held is not None and held[0] == lease:
            del self._held[lease.stream]

    def _must_hold(self, lease: Lease) -> None:
        held = self._held.get(lease.stream)
        if held is None or held[0] != lease:
            raise LeaseLost(f"{lease.stream} was taken over from {lease.owner}")


# Loops that choose, which must not stand under a lock (an interrupt there would not release it).


def _drop(rows: dict[tuple[str, str], bytes], stream: str, name: str | None = None) -> None:
    for key in [key for key in rows if key[0] == stream and name in (None, key[1])]:
        del rows[key]


def _rename(rows: dict[tuple[str, str], bytes], old: str, new: str) -> None:
    for key in [key for key in rows if key[0] == old]:
        rows[new, key[1]] = rows.pop(key)


class Aside(MemoryStore):
    """A store that reads through to another one and keeps every write to itself.

    A replay drives a task over it, and nothing of that reaches the store below.

    The holder of a stream gets a copy of it. `take` gives it other lines than it has there.
    It finds and lists the streams that were taken; leases and inboxes are its own.

    >>> below = MemoryStore()
    >>> aside = Aside(below)
    >>> [lease] = aside.acquire(["tasks/trip-42"], "ada", 10)
    >>> aside.append(lease, 0, [b"a line"])
    >>> list(aside.read("tasks/trip-42")), list(below.read("tasks/trip-42"))
    ([b'a line'], [])
    """

    def __init__(self, below: Store) -> None:
        super().__init__()
        self._below = below
        self.url: str = below.url

    def take(self, stream: str, lines: Sequence[bytes]) -> None:
        """Let a stream have these lines, whatever it has below."""
        with self._lock:
            self._streams[stream] = list(lines)

    def _take(self, stream: str, owner: str, lease_s: float) -> Lease:
        if stream not in self._streams:
            self.take(stream, list(self._below.read(stream)))
        return super()._take(stream, owner, lease_s)

    def read(self, stream: str, after_seq: int = 0, *, backwards: bool = False) -> Iterator[bytes]:
        if stream in self._streams:
            return super().read(stream, after_seq, backwards=backwards)
        return self._below.read(stream, after_seq, backwards=backwards)

    def get_blob(self, name: str, *, checked: bool = True) -> bytes:
        if name not in self._blobs:
            return self._below.get_blob(name, checked=checked)
        return super().get_blob(name, checked=checked)
