"""Which blobs are named: found in raw bytes, so that no name is ever overlooked.

    {"$blob":"<64 hex>", …}     a value that is kept in a blob, and may itself name others
    {"$parts":"<64 hex>", …}    an artifact: a blob that names its parts
    {"$part":"<64 hex>", …}     a part of one, which is content and nothing else

They are looked for in the bytes, wherever they stand and however deep: a text of a user that only
looks like one keeps a blob alive that nobody needs, which does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

_REFERENCE = re.compile(rb'\$(blob|parts?)\\*"\s*:\s*\\*"([0-9a-f]{64})')
_NAMES_NOTHING = b"part"

GetBlob = Callable[[str], bytes]


def references(data: bytes) -> Iterator[tuple[str, bool]]:
    """The blobs that bytes name, and whether each of them may name more.

    >>> list(references(b'{"args":{"$blob":"%s","size_bytes":9}}' % (b"0" * 64)))
    [('0000000000000000000000000000000000000000000000000000000000000000', True)]
    """
    for kind, digest in _REFERENCE.findall(data):
        yield digest.decode(), kind != _NAMES_NOTHING


def may_name(data: bytes) -> bool:
    """Whether there is anything to look for. Quick, and right if it says no.

    >>> may_name(b'{"a":1}')
    False
    """
    return b"$blob" in data or b"$part" in data


class Naming:
    """Follows references to the end. What a blob names is read once, whoever names the blob."""

    def __init__(self, get_blob: GetBlob) -> None:
        self._get_blob = get_blob
        self._in_blob: dict[str, list[tuple[str, bool]]] = {}

    def named_by(self, pieces: Iterable[bytes]) -> set[str]:
        """The blobs that are named by pieces of data, and by the blobs among them."""
        found: set[str] = set()
        waiting = [reference for data in pieces for reference in references(data)]
        while waiting:
            digest, names_more = waiting.pop()
            if names_more and digest not in self._in_blob:
                self._in_blob[digest] = list(references(self._get_blob(digest)))
            if digest not in found:
                found.add(digest)
                waiting += self._in_blob.get(digest, ())
        return found
