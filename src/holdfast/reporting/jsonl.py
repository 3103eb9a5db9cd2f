"""An audit as JSON lines: the head on the first, and each entry on one of its own, whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from holdfast.audit import Audit

VERSION = 1
"""Of the fields. One that is added does not change it; one that changes its meaning does."""


def to_jsonl(audit: Audit) -> Iterator[str]:
    """The lines, without what ends them."""
    head: dict[str, Any] = asdict(replace(audit, entries=()))
    del head["entries"]
    yield _line({"record": "audit", "format": VERSION, **head, "count": len(audit.entries)})
    for entry in audit.entries:
        # Not by `asdict`: what is left out of an entry is to be left out here too.
        yield _line({"record": "entry"} | msgspec.to_builtins(entry))


def _line(value: Any) -> str:
    return msgspec.json.encode(value).decode()
