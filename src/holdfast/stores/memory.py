"""The memory store: the contract and nothing else. For tests, examples and trying things out."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from hashlib import sha256

from holdfast import finding
from holdfast.errors import Conflict, LeaseLost, LogDamaged, StoreError, TaskBusy
from holdfast.store import Blob, Facts, Lease, Page, Post, Query
from holdfast.stores.held import each
from holdfast.stores.leftovers import NothingLeft


class MemoryWaypoints:
    """Waypoints in a dict."""

    def __init__(self, streams: Mapping[str, list[bytes]]) -> None:
        self._streams = streams
        self._parts: dict[str, dict[tuple[int, str], bytes]] = {}

    def put(self, stream: str, seq: int, part: str, data: bytes) -> None:
        if stream in self._streams:
            self._parts.setdefault(stream, {})[seq, part] = bytes(data)

    def get(self, stream: str, seqs: Sequence[int], part: str) -> Mapping[int, bytes]:
        parts = self._parts.get(stream, {})
        return {seq: parts[seq, part] for seq in seqs if (seq, part) in parts}

    def seqs(self, stream: str) -> Sequence[int]:
        return list({seq for seq, _ in list(self._parts.get(stream, {}))})

    def drop(self, stream: str) -> None:
        self._parts.pop(stream, None)

    def rename(self, stream: str, name: str) -> None:
        """They go with their stream."""
        if stream in self._parts:
            self._parts[name] = self._parts.pop(stream)


class MemoryStore(NothingLeft):
    """Streams in a dict. What it holds ends with the object.

    One that is opened `beside` another shares its streams, as two processes share a folder.
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
        self._waypoints = MemoryWaypoints(self._streams)

    def acquire(self, stream: str, owner: str, lease_s: float) -> Lease:
        with self._lock:
            held = self._held.get(stream)
            if held and time.monotonic() < held[1]:
                raise TaskBusy(f"{stream} is being driven by {held[0].owner}: wait for it to end")
            epoch = self._epochs[stream] = self._epochs.get(stream, 0) + 1
            lease = Lease(stream, owner, epoch, len(self._streams.get(stream, ())))
            self._held[stream] = (lease, time.monotonic() + lease_s, lease_s)
            self._mine.add(lease)
            return lease

    def holder(self, stream: str) -> str | None:
        with self._lock:
            held = self._held.get(stream)
            return held[0].owner if held and time.monotonic() < held[1] else None

    def renew(self, lease: Lease) -> None:
        with self._lock:
            self._must_hold(lease)
            lease_s = self._held[lease.stream][2]
            self._held[lease.stream] = (lease, time.monotonic() + lease_s, lease_s)

    def release(self, lease: Lease) -> None:
        with self._lock:
            self._let_go(lease)

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

    def sync(self, lease: Lease) -> None:
        with self._lock:
            self._must_hold(lease)

    def acquire_many(
        self, streams: Sequence[str], owner: str, lease_s: float
    ) -> Sequence[Lease | StoreError]:
        return each(partial(self.acquire, owner=owner, lease_s=lease_s), streams)

    def sync_many(self, leases: Sequence[Lease]) -> Sequence[StoreError | None]:
        return each(self.sync, leases)

    def release_many(self, leases: Sequence[Lease]) -> None:
        each(self.release, leases)

    def read(self, stream: str, after_seq: int = 0) -> Iterator[bytes]:
        with self._lock:
            lines = self._streams.get(stream, [])[after_seq:]
        return iter(lines)

    def tail(self, stream: str) -> Iterator[bytes]:
        with self._lock:
            return reversed(self._streams.get(stream, [])[:])

    def facts(self, prefix: str) -> Iterator[tuple[str, Facts | None]]:
        with self._lock:
            names, facts = list(self._streams), self._facts.copy()
        return iter([(name, facts.get(name)) for name in names if name.startswith(prefix)])

    def remember(self, stream: str, facts: Facts, seq: int) -> None:
        with self._lock:
            if 0 < seq == len(self._streams.get(stream, ())):
                self._facts[stream] = facts

    def due(self, prefix: str, now: datetime) -> Iterator[tuple[str, Facts | None]]:
        for name, facts in self.facts(prefix):
            if facts is None or (facts.wake_at is not None and facts.wake_at <= now):
                yield name, facts

    def find(self, query: Query) -> Page:
        return finding.find(query, self.facts(query.prefix))

    def post(self, stream: str, name: str, data: bytes) -> bool:
        with self._lock:
            if (stream, name) in self._posts:
                return False
            self._posts[stream, name] = bytes(data)
            return True

    def inbox(self, streams: Collection[str]) -> Sequence[Post]:
        with self._lock:
            posts = list(self._posts.items())
        return [Post(s, n, data) for (s, n), data in posts if s in streams]

    def unpost(self, stream: str, name: str) -> None:
        with self._lock:
            self._posts.pop((stream, name), None)

    def streams(self, prefix: str) -> Iterator[str]:
        with self._lock:
            names = list(self._streams)
        return (name for name in names if name.startswith(prefix))

    def delete(self, lease: Lease) -> None:
        with self._lock:
            self._must_hold(lease)
            self._streams.pop(lease.stream, None)
            self._facts.pop(lease.stream, None)
            self._waypoints.drop(lease.stream)
            for key in list(filter(lambda key: key[0] == lease.stream, self._posts)):
                del self._posts[key]
            self._let_go(lease)

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
            self._waypoints.rename(lease.stream, stream)
            # Whoever held a stream of that name before holds this one no more than that one.
            self._epochs[stream] = max(self._epochs.get(stream, 0), lease.epoch)
            self._held.pop(stream, None)

    def waypoints(self) -> MemoryWaypoints:
        return self._waypoints

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
                self._let_go(lease)

    def _let_go(self, lease: Lease) -> None:
        self._mine.discard(lease)
        held = self._held.get(lease.stream)
        if held is not None and held[0] == lease:
            del self._held[lease.stream]

    def _must_hold(self, lease: Lease) -> None:
        held = self._held.get(lease.stream)
        if held is None or held[0] != lease:
            raise LeaseLost(f"{lease.stream} was taken over from {lease.owner}")
