"""A chain that can't be forged, around any store: each line and each message gets a MAC.

    {"seq":7, … ,"sum":"0123456789abcdef","mac":"00112233445566778899aabbccddeeff"}

The sums of a log show damage; a forger can compute them anew. The MAC is
HMAC-SHA256 over the line, its stream and the MAC of the line before it: nobody computes it without
the key. It is put on below the log and taken off above the store, so neither knows of
it, and a log without one looks as it always did.

A log in a signed store is signed from its first line to its last. A line without a MAC is refused
wherever it stands, so nothing is gained by taking them all off. A log that was begun without the
key is accepted by copying it into a store that is opened with it.

Facts are not signed. They are a copy, made anew from the log whenever it is driven.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Collection, Iterator, Sequence

from msgspec.structs import replace

from holdfast.core.kinds import final_name
from holdfast.errors import LogDamaged
from holdfast.log import chain
from holdfast.stores.files.lines import seq_of
from holdfast.stores.port import (
    Facts,
    Lease,
    Post,
    SideKind,
    Store,
)
from holdfast.stores.sealed.keys import Keys
from holdfast.stores.wrapped import WrappedLines, with_older

_MAC_BYTES = chain.MAC_CHARS // 2
_NONE = b""
"""The MAC that stands before the first line."""


class _End:
    """The end of a log that is being written."""

    __slots__ = ("mac", "writing")

    def __init__(self, mac: bytes) -> None:
        self.mac = mac
        self.writing = threading.Lock()


class SignedStore(WrappedLines[_End]):
    """A store whose logs and messages can't be changed without the key."""

    protects = "checked"
    """The word that an audit has for its lines."""

    def __init__(self, inner: Store, keys: Keys) -> None:
        super().__init__(inner)
        self._keys = keys.derive(b"sign")

    # Lines

    def append(
        self,
        lease: Lease,
        expected_seq: int,
        lines: Sequence[bytes],
        facts: Facts | None = None,
    ) -> None:
        stream = lease.stream
        end = self._end(lease)
        with end.writing:
            mac, signed = end.mac if expected_seq else _NONE, []
            for line in lines:
                mac = _mac(self._keys[0], stream, mac, line)
                signed.append(chain.with_mac(line, mac))
            self.inner.append(lease, expected_seq, signed, facts)
            end.mac = mac

    def _end_of(self, stream: str) -> _End:
        newest = next(iter(self.inner.read(stream, backwards=True)), None)
        return _End(_NONE if newest is None else chain.without_mac(newest)[1])

    def read(self, stream: str, after_seq: int = 0, *, backwards: bool = False) -> Iterator[bytes]:
        seq = max(after_seq, 0)
        return self._read_back(stream, seq) if backwards else self._read_on(stream, seq)

    def _read_on(self, stream: str, seq: int) -> Iterator[bytes]:
        lines = iter(self.inner.read(stream, max(seq - 1, 0)))
        before = _NONE
        if seq:
            newest_known = next(lines, None)
            if newest_known is None:
                return
            before = chain.without_mac(newest_known)[1]
        for line in lines:
            seq += 1
            yield self._checked(stream, seq, before, line)
            before = chain.without_mac(line)[1]

    def _read_back(self, stream: str, after_seq: int) -> Iterator[bytes]:
        for line, older in with_older(self.inner.read(stream, after_seq - 1, backwards=True)):
            if after_seq and older is None:
                return  # the line before those asked for
            before = _NONE if older is None else chain.without_mac(older)[1]
            yield self._checked(stream, seq_of(line), before, line)

    def _checked(self, stream: str, seq: int, before: bytes, line: bytes) -> bytes:
        bare, mac = chain.without_mac(line)
        if not mac:
            raise LogDamaged(stream, seq, "it is not signed, and the store is opened with a key")
        if not any(hmac.compare_digest(mac, _mac(key, stream, before, bare)) for key in self._keys):
            what = "its signature does not fit it: it was changed, or signed with another key"
            raise LogDamaged(stream, seq, what)
        return bare

    # Beside streams. Derived bytes are signed too: readers believe them without reading the log.

    def put_side(self, stream: str, kind: SideKind, name: str, data: bytes) -> bool:
        mac = _mac_beside(self._keys[0], kind, Post(stream, name, data))
        return self.inner.put_side(stream, kind, name, mac + data)

    def get_side(
        self,
        streams: Collection[str],
        kind: SideKind,
        names: Collection[str] | None = None,
        *,
        only_names: bool = False,
    ) -> Sequence[Post]:
        found = self.inner.get_side(streams, kind, names, only_names=only_names)
        if only_names and kind == "derived":
            return found
        checked = (self._checked_beside(kind, post) for post in found)
        return [post for post in checked if post is not None]

    def refused(self, streams: Collection[str]) -> Sequence[Post]:
        found = self.inner.get_side(streams, "inbox")
        return [post for post in found if self._checked_beside("inbox", post) is None]

    def _checked_beside(self, kind: SideKind, row: Post) -> Post | None:
        mac, bare = row.data[:_MAC_BYTES], replace(row, data=row.data[_MAC_BYTES:])
        for key in self._keys:
            if hmac.compare_digest(mac, _mac_beside(key, kind, bare)):
                return bare
        return None


def _mac(key: bytes, stream: str, before: bytes, line: bytes) -> bytes:
    """The MAC of a line. That of the line before it stands for its place, up to the first one."""
    signed = b"line %b %b %b" % (_sized(final_name(stream)), before, line)
    return hmac.digest(key, signed, "sha256").hex()[: chain.MAC_CHARS].encode()


def _mac_beside(key: bytes, kind: SideKind, row: Post) -> bytes:
    if kind == "inbox":
        signed = b"message %b %b %b" % (_sized(row.stream), _sized(row.name), row.data)
    else:
        seq, _, part = row.name.partition(".")
        stream = _sized(final_name(row.stream))
        signed = b"waypoint %b %b %b %b" % (stream, seq.encode(), _sized(part), row.data)
    return hmac.digest(key, signed, "sha256")[:_MAC_BYTES]


def _sized(text: str) -> bytes:
    # With its length, so that no text runs into what follows it.
    data = text.encode()
    return b"%d:%b" % (len(data), data)
