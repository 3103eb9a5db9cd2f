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


def named_by(pieces: Iterable[bytes], get_blob: GetBlob, known: set[str]) -> set[str]:
    """The blobs that are named by pieces of data, and by what those name.

    `known` are lists that were followed before, by whomever; those of this call are added.
    """
    found: set[str] = set()
    lists: list[str] = []
    for data in pieces:
        _note(data, found, lists)
    while lists:
        digest = lists.pop()
        if digest not in known:
            known.add(digest)
            _note(get_blob(digest), found, lists)
    return found


def _note(data: bytes, found: set[str], lists: list[str]) -> None:
    for digest, is_list in references(data):
        found.add(digest)
        if is_list:
            lists.append(digest)
