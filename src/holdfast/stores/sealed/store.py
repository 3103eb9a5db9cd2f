"""Encryption at rest, around any store: what reaches the disk is closed, what is read is opened.

    {"seq":7,"box":"<base64>","sum":"0123456789abcdef"}

A line stays a JSON object with its place and a chained sum, so that a store can tell a torn line
from a whole one without the key. The text of the line is in the box. The first line carries the
data key of its log too, closed with the root key of the store (see `ring`), so a log is never
without its key, and deleting it deletes both. The stream and the place are bound into each box: a
line that was moved does not open.

    lines     closed with the data key of their log
    blobs     closed; named by their digest, encrypted, so that equal ones are kept once
    messages  closed, and so are their names, of which the store sees a keyed digest
    facts     user, session and labels are keyed digests, which can be looked for but not read;
              the clear ones are closed, and kept as one more label
    derived   closed, each bound to its stream and its name
    names     of sessions and memories are closed (see `hidden`)

Left in the clear: the ids of tasks (they name folders), their types, the statuses of logs, when
they changed, how long each line is, and who holds a lease.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.decoding import Illegible, decode, decoder
from holdfast.core.kinds import final_name, id_of
from holdfast.errors import BadInput, LogDamaged, StoreError
from holdfast.log import chain
from holdfast.stores.files.blobs import say_mended
from holdfast.stores.port import (
    Blob,
    Facts,
    Lease,
    Page,
    Post,
    Query,
    SideKind,
    Store,
)
from holdfast.stores.sealed import ring
from holdfast.stores.sealed.boxes import BOX_BYTES, BlobNames, Box, Digests
from holdfast.stores.sealed.hidden import HiddenNames, SealedFacts
from holdfast.stores.sealed.keys import KEY_BYTES, KEYS, Keys, derived
from holdfast.stores.wrapped import WrappedLines, with_older

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


class SealedStore(WrappedLines[_End]):
    """A store whose content is encrypted, around one that never sees it."""

    protects = "encrypted"
    """The word that an audit has for its lines."""

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
        self._root_of_derived = derived(root, b"waypoints")
        self.engine_box: Box = Box(derived(root, b"engines"))
        """For engines that keep values of tasks. No new master key changes it."""
        self._known: dict[str, Box] = {}

    # Leases

    def acquire(
        self, streams: Sequence[str], owner: str, lease_s: float
    ) -> Sequence[Lease | StoreError]:
        for stream in streams:
            _must_be_free_of_keys(stream)
        return self.inner.acquire(streams, owner, lease_s)

    def delete(self, lease: Lease) -> None:
        super().delete(lease)
        self._known.pop(lease.stream, None)

    def rename(self, lease: Lease, stream: str) -> None:
        super().rename(lease, stream)
        self._known.pop(lease.stream, None)
        self._known.pop(stream, None)

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
        end = self._end(lease)
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
        newest = next(iter(self.inner.read(stream, backwards=True)), None)
        if newest is None:
            return _End(None, chain.ROOT)
        return _End(self._data_key(stream, anew=True), chain.sum_of(newest))

    def read(self, stream: str, after_seq: int = 0, *, backwards: bool = False) -> Iterator[bytes]:
        seq = max(after_seq, 0)
        return self._read_back(stream, seq) if backwards else self._read_on(stream, seq)

    def _read_on(self, stream: str, seq: int) -> Iterator[bytes]:
        before = None if seq else chain.ROOT
        for line in self.inner.read(stream, seq):
            seq += 1
            yield self._opened(stream, seq, line, before)
            before = chain.sum_of(line)

    def _read_back(self, stream: str, after_seq: int) -> Iterator[bytes]:
        seq = None
        for line, older in with_older(self.inner.read(stream, after_seq - 1, backwards=True)):
            seq = _parsed(stream, 0, line).seq if seq is None else seq - 1
            if seq <= after_seq:
                return
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

    def remember(self, stream: str, facts: Facts, seq: int) -> None:
        self.inner.remember(stream, self._facts.closed(stream, facts), seq)

    def find(self, query: Query) -> Page:
        page = self.inner.find(self._facts.asked(query))
        found: list[tuple[str, Facts]] = []
        unknown = [stream for stream in page.unknown if not stream.startswith(KEYS)]
        for stream, facts in page.found:
            opened = self._facts.opened(stream, facts)
            if opened is not None:
                found.append((stream, opened))
            else:
                unknown.append(stream)
        return Page(found, page.more, unknown)

    # Beside streams

    def put_side(self, stream: str, kind: SideKind, name: str, data: bytes) -> bool:
        if kind == "derived":
            return self.inner.put_side(stream, kind, name, self._close_derived(stream, name, data))
        hidden = self._digests.of("message", stream, name)
        box = Box(derived(self._root_of_posts, stream.encode()))
        closed = box.close(_encode(_Message(name, data)), "message", stream, hidden)
        return self.inner.put_side(stream, kind, hidden, closed)

    def get_side(
        self,
        streams: Collection[str],
        kind: SideKind,
        names: Collection[str] | None = None,
        *,
        only_names: bool = False,
    ) -> Sequence[Post]:
        if only_names and kind == "derived":
            return self.inner.get_side(streams, kind, names, only_names=True)
        if names is not None and kind == "inbox":
            return [p for p in self.get_side(streams, kind) if p.name in names]
        opened = self._opened_derived if kind == "derived" else self._opened_post
        found = map(opened, self.inner.get_side(streams, kind, names))
        return [post for post in found if post is not None]

    def refused(self, streams: Collection[str]) -> Sequence[Post]:
        found = self.inner.get_side(streams, "inbox")
        return [post for post in found if self._opened_post(post) is None]

    def _opened_post(self, post: Post) -> Post | None:
        box = Box(derived(self._root_of_posts, post.stream.encode()))
        opened = box.open(post.data, "message", post.stream, post.name)
        if opened is None:
            return None
        found = decode(opened, _Message)
        return Post(post.stream, found.name, found.data)

    def drop_side(self, stream: str, kind: SideKind, name: str | None = None) -> None:
        if kind == "inbox" and name is not None:
            name = self._digests.of("message", stream, name)
        self.inner.drop_side(stream, kind, name)

    def _close_derived(self, stream: str, name: str, data: bytes) -> bytes:
        seq, _, part = name.partition(".")
        return self._derived(stream).close(data, "waypoint", final_name(stream), seq, part)

    def _opened_derived(self, row: Post) -> Post | None:
        seq, _, part = row.name.partition(".")
        stream = final_name(row.stream)
        opened = self._derived(row.stream).open(row.data, "waypoint", stream, seq, part)
        return None if opened is None else replace(row, data=opened)

    def _derived(self, stream: str) -> Box:
        return Box(derived(self._root_of_derived, final_name(stream).encode()))

    # Blobs

    def put_blob(self, data: bytes, name: str = "") -> str:
        digest = name or sha256(data).hexdigest()
        box, hidden = self._blob(digest), self._names.hidden(digest)
        closed = None
        with suppress(LogDamaged):  # it is not there, or can't be read
            closed = self.inner.get_blob(hidden, checked=False)
        # A blob that opens is put again as it is, which makes it young; closed anew it would look
        # changed.
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
