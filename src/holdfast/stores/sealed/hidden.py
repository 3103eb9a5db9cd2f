"""Names of sessions and memories that tell nothing, for an encrypted store: see `sealed`.

The id of a task is in the clear, because people look for its folder. That of a session is often
that of a user or of a conversation elsewhere, and nobody has to find it by hand. So the store below
knows both by their id, encrypted: always to the same name, so that they are found again, and back
to the id, so that they can be listed.

    sessions/mfzxqy…     base32 of a tag of 16 bytes and the id, encrypted

The tag is a keyed digest of the kind and the id, and is what the encryption begins from: a name
that nobody gave does not open.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b32decode, b32encode, b64decode, b64encode
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache

import msgspec
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.decoding import Illegible, decode
from holdfast.core.kinds import TASK, Kind, final_name, id_of, kind_of
from holdfast.errors import StoreError
from holdfast.stores import finding
from holdfast.stores.port import Facts, Holder, Lease, Page, Post, Query, SideKind, Store
from holdfast.stores.sealed.boxes import Box, Digests
from holdfast.stores.sealed.keys import derived
from holdfast.stores.wrapped import Wrapped

_TAG_BYTES = 16
_STRANGE = "\x1a"
"""Before a name that does not open, where it is shown. No id has this character."""
_MOST_NAMES = 4096


class StreamNames:
    """The names of streams, as they are and as a store below knows them."""

    def __init__(self, key: bytes) -> None:
        self._tags, self._texts = derived(key, b"tags"), derived(key, b"texts")
        # They are asked for with every line.
        self.hidden: Callable[[str], str] = lru_cache(_MOST_NAMES)(self._hidden)

    def _hidden(self, stream: str) -> str:
        """How the store below names a stream."""
        if not _is_hidden(stream):
            return stream
        before, _, id = stream.partition("/")
        if id.startswith(_STRANGE):
            return f"{before}/{id.removeprefix(_STRANGE)}"
        tag = self._tag(kind_of(stream), id.encode())
        return f"{before}/{_text(tag + self._turned(tag, id.encode()))}"

    def shown(self, stream: str) -> str:
        """The stream that the store below names like that."""
        if not _is_hidden(stream):
            return stream
        before, _, name = stream.partition("/")
        return f"{before}/{self._opened(kind_of(stream), name)}"

    def _opened(self, kind: Kind, name: str) -> str:
        try:
            closed = b32decode(name.upper() + "=" * (-len(name) % 8))
            tag, id = closed[:_TAG_BYTES], self._turned(closed[:_TAG_BYTES], closed[_TAG_BYTES:])
            if hmac.compare_digest(tag, self._tag(kind, id)) and _text(closed) == name:
                return id.decode()
        except (binascii.Error, ValueError):
            pass
        return f"{_STRANGE}{name}"

    def _tag(self, kind: Kind, id: bytes) -> bytes:
        return hmac.digest(self._tags, kind.name.encode() + b"/" + id, "sha256")[:_TAG_BYTES]

    def _turned(self, tag: bytes, text: bytes) -> bytes:
        return Cipher(AES256(self._texts), CTR(tag)).encryptor().update(text)


def _text(closed: bytes) -> str:
    return b32encode(closed).decode().rstrip("=").lower()


def _is_hidden(stream: str) -> bool:
    return kind_of(stream) is not TASK


class HiddenNames(Wrapped):
    """A store that knows sessions and memories by other names than those who use it."""

    def __init__(self, inner: Store, key: bytes) -> None:
        super().__init__(inner)
        self.names: StreamNames = StreamNames(key)
        self._leases: dict[Lease, Lease] = {}

    # Leases: those of streams that are known by another name have a stand-in

    def acquire(
        self, streams: Sequence[str], owner: str, lease_s: float
    ) -> Sequence[Lease | StoreError]:
        names = [self.names.hidden(stream) for stream in streams]
        taken = self.inner.acquire(names, owner, lease_s)
        return [
            self._shown(stream, each) if isinstance(each, Lease) else each
            for stream, each in zip(streams, taken, strict=True)
        ]

    def _shown(self, stream: str, lease: Lease) -> Lease:
        if lease.stream == stream:
            return lease
        shown = replace(lease, stream=stream)
        self._leases[shown] = lease
        return shown

    def _below(self, lease: Lease) -> Lease:
        return self._leases.get(lease, lease)

    def holder(self, stream: str) -> Holder | None:
        return self.inner.holder(self.names.hidden(stream))

    def renew(self, lease: Lease) -> None:
        self.inner.renew(self._below(lease))

    def release(self, leases: Sequence[Lease]) -> None:
        self.inner.release([self._leases.pop(lease, lease) for lease in leases])

    def append(
        self,
        lease: Lease,
        expected_seq: int,
        lines: Sequence[bytes],
        facts: Facts | None = None,
    ) -> None:
        self.inner.append(self._below(lease), expected_seq, lines, facts)

    def sync(self, leases: Sequence[Lease]) -> Sequence[StoreError | None]:
        return self.inner.sync([self._below(lease) for lease in leases])

    def delete(self, lease: Lease) -> None:
        self.inner.delete(self._below(lease))
        self._leases.pop(lease, None)

    def rename(self, lease: Lease, stream: str) -> None:
        self.inner.rename(self._below(lease), self.names.hidden(stream))
        self._leases.pop(lease, None)

    def close(self) -> None:
        self._leases.clear()
        self.inner.close()

    # Calls that take no lease

    def read(self, stream: str, after_seq: int = 0, *, backwards: bool = False) -> Iterator[bytes]:
        return self.inner.read(self.names.hidden(stream), after_seq, backwards=backwards)

    def remember(self, stream: str, facts: Facts, seq: int) -> None:
        self.inner.remember(self.names.hidden(stream), facts, seq)

    def find(self, query: Query) -> Page:
        if not _is_hidden(query.prefix):
            return self.inner.find(query)
        # Not by the index below, which has them in the order of other names: where two were made
        # at the same moment, a page would end at another place than the next one begins.
        page = self.inner.find(Query(prefix=_prefix_below(query.prefix), limit=None))
        below = [*page.found, *((name, None) for name in page.unknown)]
        shown = ((self.names.shown(name), facts) for name, facts in below)
        return finding.find(query, [each for each in shown if each[0].startswith(query.prefix)])

    def put_side(self, stream: str, kind: SideKind, name: str, data: bytes) -> bool:
        return self.inner.put_side(self.names.hidden(stream), kind, name, data)

    def get_side(
        self,
        streams: Collection[str],
        kind: SideKind,
        names: Collection[str] | None = None,
        *,
        only_names: bool = False,
    ) -> Sequence[Post]:
        hidden = [self.names.hidden(stream) for stream in streams]
        found = self.inner.get_side(hidden, kind, names, only_names=only_names)
        return [replace(post, stream=self.names.shown(post.stream)) for post in found]

    def drop_side(self, stream: str, kind: SideKind, name: str | None = None) -> None:
        self.inner.drop_side(self.names.hidden(stream), kind, name)


def _prefix_below(prefix: str) -> str:
    """The query for a store that knows the ids by other names: a whole kind."""
    return prefix[: len(prefix) - len(id_of(prefix))] if _is_hidden(prefix) else prefix


# Facts in an encrypted store: digests that can be searched for, and a box with what they mean.
#
# Users, sessions and labels are known to the store by their digests, and so is the session that
# another one shares its past with. Tasks are known by their ids, and so is what a fork was made
# of.


_SEALED = "sealed"
"""The label with the clear facts. All others are digests, so none is called that."""


class _Clear(Struct, omit_defaults=True):
    """The facts in the clear."""

    user: str = ""
    session: str = ""
    labels: dict[str, str] = {}
    origin: str = ""


class SealedFacts:
    """Closes and opens the facts of one store."""

    def __init__(self, digests: Digests, root: bytes) -> None:
        self._digests = digests
        self._root = root

    def asked(self, query: Query) -> Query:
        """A query as the store below understands it."""
        user, session, labels = self._hidden(query.user, query.session, query.labels)
        origin = self._hidden_origin(query.prefix, query.origin)
        return replace(query, user=user, session=session, labels=labels, origin=origin)

    def closed(self, stream: str, facts: Facts) -> Facts:
        """Facts as the store below is told."""
        origin = "" if kind_of(stream) is TASK else facts.origin
        clear = _encode(_Clear(facts.user, facts.session, facts.labels, origin))
        if clear == b"{}":
            return facts
        user, session, labels = self._hidden(facts.user, facts.session, facts.labels)
        stream = final_name(stream)
        labels[_SEALED] = b64encode(self._box(stream).close(clear, "facts", stream)).decode()
        hidden = self._hidden_origin(stream, facts.origin) or ""
        return replace(facts, user=user or "", session=session or "", labels=labels, origin=hidden)

    def opened(self, stream: str, facts: Facts) -> Facts | None:
        """The facts that the store below was told. None, and so the log is read, where anything is
        wrong with it: facts are a copy."""
        if not (facts.user or facts.session or facts.labels):
            return facts
        try:
            stream = final_name(stream)
            box = b64decode(facts.labels.get(_SEALED, ""), validate=True)
            opened = self._box(stream).open(box, "facts", stream)
            clear = None if opened is None else decode(opened, _Clear)
        except (ValueError, Illegible):
            return None
        if clear is None:
            return None
        origin = facts.origin if kind_of(stream) is TASK else clear.origin
        return replace(
            facts, user=clear.user, session=clear.session, labels=clear.labels, origin=origin
        )

    def _box(self, stream: str) -> Box:
        return Box(derived(self._root, stream.encode()))

    def _hidden(
        self, user: str | None, session: str | None, labels: dict[str, str]
    ) -> tuple[str | None, str | None, dict[str, str]]:
        hidden = self._digests.of
        return (
            user and hidden("user", user),
            session and hidden("session", session),
            {hidden("label", name): hidden("label", name, value) for name, value in labels.items()},
        )

    def _hidden_origin(self, stream: str, origin: str | None) -> str | None:
        is_clear = not origin or kind_of(stream) is TASK
        return origin if is_clear else self._digests.of("origin", origin or "")


_encode = msgspec.json.Encoder().encode
