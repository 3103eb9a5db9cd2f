"""Chained sums: how a line of a log proves that it is the line that was written.

A line is a JSON object whose last field is a sum over its own bytes and the sum of the line
before it, so a changed byte, a missing line or a swapped pair shows at once and stays local.
The sum covers the bytes as stored, never a re-encoding of them.

    {"seq":7,"at":"…","type":"completed", … ,"sum":"0123456789abcdef"}
"""

from __future__ import annotations

from hashlib import sha256

ROOT = b"0" * 16
"""The sum that stands before the first line."""

_MARK = b',"sum":"'
_TAIL = len(_MARK) + len(ROOT) + len(b'"}')


def seal(before: bytes, body: bytes) -> tuple[bytes, bytes]:
    """The line for a JSON object `body`, and its sum: what the next line is sealed with.

    >>> line, total = seal(ROOT, b'{"seq":1}')
    >>> line
    b'{"seq":1,"sum":"5f4b193007112d12"}'
    """
    body = body[:-1]
    total = sha256(before + body).hexdigest()[:16].encode()
    return b'%b,"sum":"%b"}' % (body, total), total


def check(before: bytes, line: bytes) -> bytes | None:
    """The sum of a line that follows the sum `before`, or None if the line is damaged.

    >>> line, total = seal(ROOT, b'{"seq":1}')
    >>> check(ROOT, line) == total, check(total, line)
    (True, None)
    """
    body, tail = line[:-_TAIL], line[-_TAIL:]
    total = sha256(before + body).hexdigest()[:16].encode()
    return total if tail == _MARK + total + b'"}' else None


def sum_of(line: bytes) -> bytes:
    """The sum a line claims to have: what the line after it was sealed with."""
    return line[-len(ROOT) - 2 : -2]
