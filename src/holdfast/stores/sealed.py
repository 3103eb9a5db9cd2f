"""Encryption at rest, around any store: what reaches the disk is closed, what is read is opened.

    {"seq":7,"box":"<base64>","sum":"0123456789abcdef"}

A line stays a JSON object with its place and a chained sum, so that a store can tell a torn line
from a whole one without the key. What the line says is in the box.
The first line carries the data key of its log too, closed with the root key of the store (see
`ring`), so a log is never without its key, and deleting it deletes both. The stream and the place
are bound into each box: a line that was moved does not open.

    lines     closed with the data key of their log
    blobs     closed; named by their digest, encrypted, so that equal ones are kept once
    messages  closed, and so are their names, of which the store sees a keyed digest
    facts     user, session and labels are keyed digests, which can be looked for but not read;
              the clear ones are closed, and kept as one more label
    waypoints closed, each bound to its stream, its place and its part
    names     of sessions and memories are closed (see `hidden`)

Left in the clear: the ids of tasks (they name folders), their types, the statuses of logs, when
they changed, how long each line is, and who holds a lease.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast import chain
from holdfast.decoding import Illegible, decode, decoder
from holdfast.errors import BadInput, LogDamaged, StoreError
from holdfast.keys import KEY_BYTES, KEYS, Keys, derived
from holdfast.kinds import final_name, id_of
from holdfast.store import (
    Blob,
    Facts,
    Lease,
    Page,
    Post,
    Query,
    Store,
    Waypoints,
    WaypointStore,
)
from holdfast.stores import ring
from holdfast.stores.around_waypoints import AroundWaypoints
from holdfast.stores.blobs import say_mended
from holdfast.stores.boxes import BOX_BYTES, BlobNames, Box, Digests
from holdfast.stores.hidden import HiddenNames
from holdfast.stores.sealed_facts import SealedFacts
from holdfast.stores.wrapped import Wrapped, with_older

FORMAT = 1
_MOST_KEYS = 4096


class _Line(Struct, omit_defaults=True, kw_only=True):
    """A line of a log, as the store sees it. Only the first has more than its place and its box."""

    seq: int
    id: str = ""
    sealed: int = 0
    """The format."""
    key: bytes = b""
    box: bytes


class _Message(Struct):
    name: str
    data: bytes


class _End:
    """The end of a log that is being written."""

    __slots__ = ("data_key", "total", "writing")

    def __init__(self, data_key: Box | None, total: bytes) -> None:
        self.data_key = data_key
        self.total = total
        self.writing = threading.Lock()


_decode = decoder(_Line)
_encode = msgspec.json.Encoder().encode


class SealedStore(Wrapped):
    """A store whose content is encrypted, around one that never sees it."""

    protects = "encrypted"
    """What an audit says of its lines."""

    def __init__(self, inner: Store, keys: Keys) -> None:
        root = ring.open_root(inner, keys)
        hidden = HiddenNames(inner, derived(root, b"stream names"))
        super().__init__(hidden)
        self._streams = hidden.names
        self._data_keys = Box(derived(root, b"data keys"))
        self._names = BlobNames(derived(root, b"blob names"))
        self._digests = Digests(derived(root, b"digests"))
        self._root_of_blobs = derived(root, b"blobs")
        self._root_of_posts = derived(root, b"posts")
        self._facts = SealedFacts(self._digests, derived(root, b"facts"))
        self._root_of_waypoints = derived(root, b"waypoints")
        self.engine_box = Box(derived(root, b"engines"))
        """For engines that keep values of tasks. No new master key changes it."""
        self._known: dict[str, Box] = {}
        self._ends: dict[Lease, _End] = {}

    # Leases

    def acquire(self, stream: str, owner: str, lease_s: float) -> Lease:
        _must_be_free_of_keys(stream)
        return self.inner.acquire(stream, owner, lease_s)

    def _acquire_many(
        self, streams: Sequence[str], owner: str, lease_s: float
    ) -> Sequence[Lease | StoreError]:
        for stream in streams:
            _must_be_free_of_keys(stream)
        return super()._acquire_many(streams, owner, lease_s)

    def release(self, lease: Lease) -> None:
        self._ends.pop(lease, None)
        self.inner.release(lease)

    def _release_many(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            self._ends.pop(lease, None)
        super()._release_many(leases)

    def delete(self, lease: Lease) -> None:
        self.inner.delete(lease)
        self._ends.pop(lease, None)
        self._known.pop(lease.stream, None)

    def rename(self, lease: Lease, stream: str) -> None:
        self.inner.rename(lease, stream)
        self._ends.pop(lease, None)
        self._known.pop(lease.stream, None)
        self._known.pop(stream, None)

    def close(self) -> None:
        self._ends.clear()
        self.inner.close()

    def streams(self, prefix: str) -> Iterator[str]:
        found = self.inner.streams(prefix)
        return (name for name in found if not name.startswith(KEYS))

    # Lines

    def append(
        self,
        lease: Lease,
        expected_seq: int,
        lines: Sequence[bytes],
        facts: Facts | None = None,
    ) -> None:
        stream = lease.stream
        told = None if facts is None else self._facts.closed(stream, facts)
        end = self._ends.get(lease)
        if end is None:
            self.inner.renew(lease)  # who holds it no more is told that, and nothing else
            end = self._ends.setdefault(lease, self._end_of(stream))
        with end.writing:
            data_key, total, closed_key = end.data_key, end.total, b""
            if not expected_seq or data_key is None:
                key = os.urandom(KEY_BYTES)
                data_key, total = Box(key), chain.ROOT
                closed_key = self._data_keys.close(key, "data key", final_name(stream))
            closed: list[bytes] = []
            for seq, line in enumerate(lines, expected_seq + 1):
                box = data_key.close(line, "line", FORMAT, final_name(stream), seq)
                made = _Line(seq=seq, box=box)
                if seq == 1:
                    made.id, made.sealed, made.key = self._id(stream), FORMAT, closed_key
                sealed, total = chain.seal(total, _encode(made))
                closed.append(sealed)
            self.inner.append(lease, expected_seq, closed, told)
            if lines:
                end.data_key, end.total = data_key, total

    def _id(self, stream: str) -> str:
        """The id by which the store below knows a stream."""
        return id_of(self._streams.hidden(stream))

    def _end_of(self, stream: str) -> _End:
        newest = next(iter(self.inner.tail(stream)), None)
        if newest is None:
            return _End(None, chain.ROOT)
        return _End(self._data_key(stream, anew=True), chain.sum_of(newest))

    def read(self, stream: str, after_seq: int = 0) -> Iterator[bytes]:
        seq = max(after_seq, 0)
        before = None if seq else chain.ROOT
        for line in self.inner.read(stream, after_seq):
            seq += 1
            yield self._opened(stream, seq, line, before)
            before = chain.sum_of(line)

    def tail(self, stream: str) -> Iterator[bytes]:
        seq = None
        for line, older in with_older(iter(self.inner.tail(stream))):
            seq = _parsed(stream, 0, line).seq if seq is None else seq - 1
            yield self._opened(stream, seq, line, chain.sum_of(older) if older else chain.ROOT)

    def _opened(self, stream: str, seq: int, line: bytes, before: bytes | None) -> bytes:
        if before is not None and chain.check(before, line) is None:
            raise LogDamaged(stream, seq, "its sum does not fit its bytes and the event before it")
        found = _parsed(stream, seq, line)
        if found.seq != seq:
            raise LogDamaged(stream, seq, f"it says it is event {found.seq}")
        if seq == 1:
            self._learn(stream, found)
        about = ("line", FORMAT, final_name(stream), seq)
        opened = self._data_key(stream).open(found.box, *about)
        if opened is None and seq > 1:  # the log may have been deleted and made anew
            opened = self._data_key(stream, anew=True).open(found.box, *about)
        if opened is None:
            raise LogDamaged(stream, seq, "it does not open: it was changed, or belongs elsewhere")
        return opened

    def _data_key(self, stream: str, *, anew: bool = False) -> Box:
        known = None if anew else self._known.get(stream)
        if known is not None:
            return known
        first = next(iter(self.inner.read(stream)), None)
        if first is None:
            raise LogDamaged(stream, 1, "it is gone, and with it the key to the others")
        return self._learn(stream, _parsed(stream, 1, first))

    def _learn(self, stream: str, first: _Line) -> Box:
        """Take the data key of a log from its first line."""
        if first.id != self._id(stream):
            raise LogDamaged(stream, 1, f"it is the log of {first.id!r}, copied or moved here")
        if first.sealed > FORMAT:
            raise LogDamaged(stream, 1, f"it is encrypted in a newer way ({first.sealed})")
        key = self._data_keys.open(first.key, "data key", final_name(stream))
        if key is None:
            raise LogDamaged(stream, 1, "the key in it does not open, which opens all the others")
        if len(self._known) >= _MOST_KEYS:
            self._known.clear()
        box = self._known[stream] = Box(key)
        return box

    # Facts

    def facts(self, prefix: str) -> Iterator[tuple[str, Facts | None]]:
        return self._open_facts(self.inner.facts(prefix))

    def remember(self, stream: str, facts: Facts, seq: int) -> None:
        self.inner.remember(stream, self._facts.closed(stream, facts), seq)

    def due(self, prefix: str, now: datetime) -> Iterator[tuple[str, Facts | None]]:
        return self._open_facts(self.inner.due(prefix, now))

    def find(self, query: Query) -> Page:
        page = self.inner.find(self._facts.asked(query))
        opened = list(self._open_facts(iter(page.found)))
        return Page(
            found=[(stream, facts) for stream, facts in opened if facts is not None],
            more=page.more,
            unknown=[*page.unknown, *(stream for stream, facts in opened if facts is None)],
        )

    def _open_facts(
        self, found: Iterator[tuple[str, Facts | None]]
    ) -> Iterator[tuple[str, Facts | None]]:
        for stream, facts in found:
            if not stream.startswith(KEYS):
                yield stream, facts and self._facts.opened(stream, facts)

    # Inboxes

    def post(self, stream: str, name: str, data: bytes) -> bool:
        hidden = self._digests.of("message", stream, name)
        box = Box(derived(self._root_of_posts, stream.encode()))
        return self.inner.post(
            stream, hidden, box.close(_encode(_Message(name, data)), "message", stream, hidden)
        )

    def inbox(self, streams: Collection[str]) -> Sequence[Post]:
        opened = map(self._opened_post, self.inner.inbox(streams))
        return [post for post in opened if post is not None]

    def refused(self, streams: Collection[str]) -> Sequence[Post]:
        return [post for post in self.inner.inbox(streams) if self._opened_post(post) is None]

    def _opened_post(self, post: Post) -> Post | None:
        box = Box(derived(self._root_of_posts, post.stream.encode()))
        opened = box.open(post.data, "message", post.stream, post.name)
        if opened is None:
            return None
        found = decode(opened, _Message)
        return Post(post.stream, found.name, found.data)

    def unpost(self, stream: str, name: str) -> None:
        self.inner.unpost(stream, self._digests.of("message", stream, name))

    # Waypoints

    def waypoints(self) -> Waypoints | None:
        kept = self.inner.waypoints() if isinstance(self.inner, WaypointStore) else None
        if kept is None:
            return None

        def close(stream: str, seq: int, part: str, data: bytes) -> bytes:
            return self._waypoint(stream).close(data, "waypoint", final_name(stream), seq, part)

        def opened(stream: str, seq: int, part: str, box: bytes) -> bytes | None:
            return self._waypoint(stream).open(box, "waypoint", final_name(stream), seq, part)

        return AroundWaypoints(kept, close=close, open=opened)

    def _waypoint(self, stream: str) -> Box:
        return Box(derived(self._root_of_waypoints, final_name(stream).encode()))

    # Blobs

    def put_blob(self, data: bytes, name: str = "") -> str:
        digest = name or sha256(data).hexdigest()
        box, hidden = self._blob(digest), self._names.hidden(digest)
        closed = None
        with suppress(LogDamaged):  # it is not there, or can't be read
            closed = self.inner.get_blob(hidden, checked=False)
        # What opens is put again as it is, which makes it young; closed anew it would look changed.
        if closed is not None and box.open(closed, "blob", digest) == data:
            self.inner.put_blob(closed, hidden)
        else:
            self.inner.put_blob(box.close(data, "blob", digest), hidden)
            if closed is not None and not name:
                say_mended(digest)
        return digest

    def get_blob(self, name: str, *, checked: bool = True) -> bytes:
        closed = self.inner.get_blob(self._names.hidden(name), checked=False)
        data = self._blob(name).open(closed, "blob", name)
        if data is None or (checked and sha256(data).hexdigest() != name):
            raise LogDamaged(f"blobs/{name}", 0, "it does not open: it was changed")
        return data

    def blobs(self) -> Iterator[Blob]:
        for blob in self.inner.blobs():
            name, size = self._names.shown(blob.digest), blob.size_bytes - BOX_BYTES
            yield replace(blob, digest=name, size_bytes=max(size, 0))

    def delete_blob(self, digest: str, older_than_s: float) -> bool:
        try:
            hidden = self._names.hidden(digest)
        except LogDamaged:  # it is the name of no blob
            return False
        return self.inner.delete_blob(hidden, older_than_s)

    def _blob(self, name: str) -> Box:
        return Box(derived(self._root_of_blobs, name.encode()))

    def stream_shown(self, stream: str) -> str:
        """The stream that the inner store knows by this name."""
        return self._streams.shown(stream)

    def blob_in_store(self, name: str) -> str:
        """The name by which the inner store knows a blob."""
        return self._names.hidden(name)


def _must_be_free_of_keys(stream: str) -> None:
    if stream.startswith(KEYS):
        raise BadInput(f"{stream} is where the store has its keys: it is no stream of yours")


def _parsed(stream: str, seq: int, line: bytes) -> _Line:
    try:
        return _decode(line)
    except Illegible:
        raise LogDamaged(stream, seq, "it is not encrypted, as all of this store is") from None
