"""Longer lines, packed: PostgreSQL itself compresses only rows above a quarter of a page.

A line is JSON, which packs well, and a row of a kilobyte leaves much of a page empty. What is
packed begins with a zero byte; a line that itself begins with one is always packed.
"""

from __future__ import annotations

import zlib

_WORTH_IT = 512
_MARK = b"\0"
_MOST_BYTES = 1 << 30


def packed(line: bytes) -> bytes:
    """A line as it is kept.

    >>> packed(b'{"seq":1}'), len(packed(b"x" * 1000)) < 100
    (b'{"seq":1}', True)
    """
    if len(line) < _WORTH_IT and not line.startswith(_MARK):
        return line
    small = _MARK + zlib.compress(line, 1)
    return small if len(small) < len(line) or line.startswith(_MARK) else line


def unpacked(data: bytes) -> bytes:
    """The line again. What can't be unpacked is given as it is, and will not fit its sum.

    >>> unpacked(packed(b"x" * 1000)) == b"x" * 1000
    True
    """
    if not data.startswith(_MARK):
        return data
    try:
        return zlib.decompressobj().decompress(data[1:], _MOST_BYTES)
    except zlib.error:
        return data
