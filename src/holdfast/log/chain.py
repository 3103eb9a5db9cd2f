"""Chained sums: how a line of a log proves that it is the line that was written.

A line is a JSON object whose last field is a sum over its own bytes and the sum of the line
before it, so a changed byte, a missing line or a swapped pair shows at once and stays local.
The sum covers the bytes as stored, never a re-encoding of them.

    {"seq":7,"at":"…","type":"completed", … ,"sum":"0123456789abcdef"}

In a signed store (see `stores.sealed.signed`) a line has one more field, its MAC. It stands after
the sum and covers it, so a log can be read and its sums checked without the key.
"""

from __future__ import annotations

from hashlib import sha256

ROOT = b"0" * 16
"""The sum that stands before the first line."""

_MARK = b',"sum":"'
_TAIL = len(_MARK) + len(ROOT) + len(b'"}')

MAC_CHARS = 32
_MAC = b',"mac":"'
_MAC_TAIL = len(_MAC) + MAC_CHARS + len(b'"}')


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
    total = sha256(before + line[:-_TAIL]).hexdigest()[:16].encode()
    if line[-_TAIL:] == b'%b%b"}' % (_MARK, total):
        return total
    return check(before, without_mac(line)[0]) if is_signed(line) else None


def sum_of(line: bytes) -> bytes:
    """The sum a line claims to have: what the line after it was sealed with."""
    if is_signed(line):
        line = without_mac(line)[0]
    return line[-len(ROOT) - 2 : -2]


def is_signed(line: bytes) -> bool:
    """Whether a line has a MAC."""
    return line[-_MAC_TAIL : len(_MAC) - _MAC_TAIL] == _MAC and line[-2:] in (b'"}', b'" ')


def with_mac(line: bytes, mac: bytes) -> bytes:
    """A line with its MAC.

    >>> with_mac(b'{"seq":1}', b"0" * 32)
    b'{"seq":1,"mac":"00000000000000000000000000000000"}'
    """
    if line[-1:] == b"}":
        return b'%b%b%b"}' % (line[:-1], _MAC, mac)
    return b'%b%b%b" ' % (line, _MAC, mac)  # no event, but what is in a line is not ours to judge


def without_mac(line: bytes) -> tuple[bytes, bytes]:
    """A line as it was before it got its MAC, and that; an empty one if it has none.

    >>> without_mac(with_mac(b'{"seq":1}', b"0" * 32))
    (b'{"seq":1}', b'00000000000000000000000000000000')
    """
    if not is_signed(line):
        return line, b""
    end = b"}" if line[-1:] == b"}" else b""
    return line[:-_MAC_TAIL] + end, line[len(_MAC) - _MAC_TAIL : -2]
