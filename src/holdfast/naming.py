"""Which blobs are named: found in raw bytes, so that no name is ever overlooked.

    {"$blob":"<64 hex>", …}     a value that is kept in a blob, and may itself name others
    {"$parts":"<64 hex>", …}    an artifact: a blob that names its parts
    {"$part":"<64 hex>", …}     a part of one, which is content and nothing else
    {"$type":"Artifact","of":{"digest":"<64 hex>", …     an artifact in a value that has tags

They are looked for in the bytes, wherever they stand and however deep. A text of a user that looks
like one (it stands in a JSON string, with its quotes escaped) counts too, if there is such a blob:
that keeps a blob alive that nobody needs, and does no harm. If there is none, nothing is missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from msgspec import Struct

from holdfast.errors import ArchiveDamaged, LogDamaged

_REFERENCE = re.compile(rb'(\\*)(?:"\$*)?\$(blob|parts?)(\\*)"\s*:\s*\\*"([0-9a-f]{64})')

_TAGGED = re.compile(
    rb'\$type\\*"\s*:\s*\\*"Artifact\\*"\s*,\s*\\*"of\\*"\s*:\s*\{\s*'
    rb'\\*"digest\\*"\s*:\s*\\*"([0-9a-f]{64})'
)

GetBlob = Callable[[str], bytes]


class Reference(Struct, frozen=True, array_like=True):
    """A name of a blob."""

    digest: str
    kind: Literal["blob", "parts", "part"]
    is_sure: bool
    """Whether it is one, and does not only look like it."""

    @property
    def names_more(self) -> bool:
        """Whether the blob may name others in turn."""
        return self.kind != "part"


def references(data: bytes) -> Iterator[Reference]:
    """The blobs that bytes name.

    >>> list(references(b'{"args":{"$part":"%s","size_bytes":9}}' % (b"0" * 64)))
    [Reference(digest='0000...', kind='part', is_sure=True)]
    """
    for before, kind, after, digest in _REFERENCE.findall(data):
        yield Reference(digest.decode(), kind.decode(), not before and not after)
    for digest in _TAGGED.findall(data):  # a class of a user's may have the same name
        yield Reference(digest.decode(), "parts", False)


def may_name(data: bytes) -> bool:
    """Whether there is anything to look for. Quick, and right if it says no.

    >>> may_name(b'{"a":1}')
    False
    """
    return b"$blob" in data or b"$part" in data or b'"Artifact' in data


def blob_of(reference: Reference, get_blob: GetBlob) -> bytes | None:
    """The blob that is named; None if there is none, and it was not sure that there is one."""
    try:
        return get_blob(reference.digest)
    except (LogDamaged, ArchiveDamaged):
        if reference.is_sure:
            raise
        return None


class Naming:
    """Follows references to the end. What a blob names is read once, whoever names the blob."""

    def __init__(self, get_blob: GetBlob) -> None:
        self._get_blob = get_blob
        self._in_blob: dict[str, list[Reference]] = {}

    def named_by(self, pieces: Iterable[bytes]) -> set[str]:
        """The blobs that are named by pieces of data, and by the blobs among them."""
        found: set[str] = set()
        followed: set[str] = set()
        waiting = [reference for data in pieces for reference in references(data)]
        while waiting:
            reference = waiting.pop()
            found.add(reference.digest)
            if reference.names_more and reference.digest not in followed:
                followed.add(reference.digest)
                waiting += self._names_in(reference)
        return found

    def _names_in(self, reference: Reference) -> list[Reference]:
        if reference.digest not in self._in_blob:
            blob = blob_of(reference, self._get_blob)
            if blob is None:
                return []
            self._in_blob[reference.digest] = list(references(blob))
        return self._in_blob[reference.digest]
