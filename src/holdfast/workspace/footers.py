"""The line that ends every page: of which event it is, and whether it is still what we wrote.

    <!-- holdfast 1: event 12, 2026-01-01T00:00:00Z, sum 0123456789abcdef -->

The sum is over everything above that line. So a file alone tells whether somebody edited it (the
sum does not fit), and which version of it they began with. `state.json` has the same as its last
field.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from hashlib import sha256

from msgspec import Struct

PAGE_FORMAT = 1
"""The format of the files. A file of another one is replaced, whoever wrote it."""

_LINE = re.compile(
    rb"<!-- holdfast (\d{1,9}): event (\d{1,18}), ([0-9T:Z-]{20}), sum ([0-9a-f]{16}) -->\s*\Z"
)
_JSON_SUM = re.compile(rb',\n  "sum": "([0-9a-f]{16})"\n\}\n\Z')


class Footer(Struct, frozen=True):
    """What the last line of a page says."""

    format: int
    seq: int
    at: str
    sum: str


def time_text(at: datetime) -> str:
    """A time as all files have it, wherever they are made.

    >>> time_text(datetime(2026, 1, 1, tzinfo=UTC))
    '2026-01-01T00:00:00Z'
    """
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}Z"


def with_footer(body: str, seq: int, at: datetime) -> bytes:
    """A page with its last line.

    >>> print(with_footer("# Plan\\n", 3, datetime(2026, 1, 1, tzinfo=UTC)).decode())
    # Plan
    <BLANKLINE>
    <!-- holdfast 1: event 3, 2026-01-01T00:00:00Z, sum 587ec3a439d617a1 -->
    <BLANKLINE>
    """
    above = body.rstrip("\n").encode(errors="backslashreplace") + b"\n\n"
    line = f"<!-- holdfast {PAGE_FORMAT}: event {seq}, {time_text(at)}, sum {_sum(above)} -->\n"
    return above + line.encode()


def footer_of(page: bytes) -> tuple[Footer, bytes] | None:
    """What the last line of a page says, and what stands above it; None if it has no such line."""
    found = _LINE.search(page)
    if found is None:
        return None
    format, seq, at, total = (part.decode() for part in found.groups())
    return Footer(int(format), int(seq), at, total), page[: found.start()]


def with_sum(pretty: bytes) -> bytes:
    """A JSON object on several lines, with a sum as its last field."""
    above = pretty.rstrip().removesuffix(b"}").rstrip()
    return above + b',\n  "sum": "%b"\n}\n' % _sum(above).encode()


def is_untouched(name: str, data: bytes) -> bool:
    r"""Whether a file is still what was written to it.

    >>> page = with_footer("# Plan\n", 3, datetime(2026, 1, 1, tzinfo=UTC))
    >>> is_untouched("plan.md", page), is_untouched("plan.md", page.replace(b"Plan", b"New plan"))
    (True, False)
    """
    if name.endswith(".json"):
        sum_found = _JSON_SUM.search(data)
        return sum_found is not None and sum_found[1].decode() == _sum(data[: sum_found.start()])
    found = footer_of(data)
    return found is not None and found[0].sum == _sum(found[1])


def _sum(data: bytes) -> str:
    return sha256(data).hexdigest()[:16]
