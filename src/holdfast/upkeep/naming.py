"""Which blobs are named: found in raw bytes, so that no name is ever overlooked.

A line names a blob by a reference (see `holdfast.log`), `{"$blob":"<64 hex>", …}`. It is looked
for in the bytes, wherever it stands and however deep: a text of a user that only looks like one
keeps a blob alive that nobody needs, which does no harm. A reference with `"list":true` is to a
blob whose own bytes name more blobs in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

_REFERENCE = re.compile(rb'\$blob\\*"\s*:\s*\\*"([0-9a-f]{64})\\*"([^{}]{0,500})')
_IS_LIST = re.compile(rb'list\\*"\s*:\s*true')

GetBlob = Callable[[str], bytes]


def references(data: bytes) -> Iterator[tuple[str, bool]]:
    """The blobs that bytes name, and whether each of them names more.

    >>> list(references(b'{"args":{"$blob":"%s","size_bytes":9}}' % (b"0" * 64)))
    [('0000000000000000000000000000000000000000000000000000000000000000', False)]
    """
    if b"$blob" in data:
        for digest, rest in _REFERENCE.findall(data):
            yield digest.decode(), _IS_LIST.search(rest) is not None


class Naming:
    """Follows references to the end. What a list names is read once, whoever names the list."""

    def __init__(self, get_blob: GetBlob) -> None:
        self._get_blob = get_blob
        self._in_list: dict[str, list[tuple[str, bool]]] = {}

    def named_by(self, pieces: Iterable[bytes]) -> set[str]:
        """The blobs that are named by pieces of data, and by the lists among them."""
        found: set[str] = set()
        waiting = [reference for data in pieces for reference in references(data)]
        while waiting:
            digest, is_list = waiting.pop()
            if is_list and digest not in self._in_list:
                self._in_list[digest] = list(references(self._get_blob(digest)))
            if digest not in found:
                found.add(digest)
                waiting += self._in_list.get(digest, ())
        return found
