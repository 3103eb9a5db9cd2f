"""Values of a log as readable files show them: whole while they are small, else their beginning.

Nothing is fetched for this: a value that is kept in a blob is named by it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw, UnsetType

from holdfast.decoding import NONSENSE, Illegible, decode
from holdfast.lists import BLOB, REFERENCES, BlobRef, in_short
from holdfast.workspace.markdown import one_line

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
