"""The line that ends every page: of which event it is, and whether it is still what we wrote.

    <!-- holdfast 1: event 12, 2026-01-01T00:00:00Z, sum 0123456789abcdef -->

The sum is over everything above that line. So a file alone tells whether somebody edited it (the
sum does not fit), and which version of it they began with. `state.json` has the same as its last
field.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Raw, Struct, UnsetType

from holdfast.core.decoding import NONSENSE, Illegible, decode
from holdfast.core.lists import BLOB, REFERENCES, BlobRef, in_short
from holdfast.views.markdown import one_line

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


# Values of a log as readable files show them: whole while they are small, else their beginning.
#
# Nothing is fetched for this: a value that is kept in a blob is named by it.


WHOLE_BYTES = 4096
"""What is longer than this is cut."""

_BEGINNING = 400


def as_json(raw: Raw | UnsetType) -> Any:
    """A value for a JSON file: itself, or an object that says what was cut.

    >>> bytes(as_json(Raw(b'{"city":"Oslo"}')))
    b'{"city":"Oslo"}'
    >>> as_json(Raw(b'{"$blob":"abc","size_bytes":70000}'))
    {'$cut': {'size_bytes': 70000, 'blob': 'abc'}}
    """
    if not isinstance(raw, Raw):
        return None
    data = bytes(raw)
    if (kept := _kept_aside(data)) is not None:
        return {"$cut": {"size_bytes": kept.size_bytes, "blob": kept.digest}}
    data = in_short(data)
    if len(data) <= WHOLE_BYTES:
        return Raw(data)
    begins = data[:_BEGINNING].decode(errors="ignore")
    return {"$cut": {"size_bytes": len(data), "begins": begins}}


def as_line(raw: Raw | UnsetType, most: int = 160) -> str:
    """A value on one line, for people.

    >>> as_line(Raw(b'{"city":"Oslo"}')), as_line(Raw(b'{"$blob":"abc","size_bytes":70000}'))
    ('{"city":"Oslo"}', '(70,000 bytes, kept aside)')
    """
    if not isinstance(raw, Raw):
        return ""
    data = bytes(raw)
    if len(data) <= most and data.isascii() and not data.startswith(REFERENCES):
        text = data.decode()  # nearly always
        return text if text.isprintable() else one_line(text, most)
    if data.startswith(REFERENCES):
        if (kept := _kept_aside(data)) is not None:
            return f"({kept.size_bytes:,} bytes, kept aside)"
        data = in_short(data)
    return one_line(data[: 4 * most].decode(errors="ignore"), most)


def as_text(raw: Raw | UnsetType, most: int = 4000) -> str:
    """A value on several lines, for people."""
    if not isinstance(raw, Raw):
        return ""
    data = bytes(raw)
    if (kept := _kept_aside(data)) is not None:
        return f"({kept.size_bytes:,} bytes, kept aside)"
    with suppress(*NONSENSE, Illegible):
        data = msgspec.json.format(in_short(data), indent=2)
    text = data.decode(errors="replace")
    return text if len(text) <= most else f"{text[:most]}… ({len(data):,} bytes)"


def _kept_aside(data: bytes) -> BlobRef | None:
    if data.startswith(BLOB):
        with suppress(Illegible):
            return decode(data, BlobRef)
    return None
