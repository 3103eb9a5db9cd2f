"""What is wrong with a value, and where inside it."""

from __future__ import annotations

import re
import typing
from typing import Any

import msgspec

MAX_DEPTH = 100
"""How deep a value may nest. One level can take three of JSON, and the stack has other users."""

TOO_DEEP = f"it is nested more than {MAX_DEPTH} deep, or contains itself{{at}}"

MAX_DIGITS = 4300
"""How long an int may be: Python and msgspec refuse to read a longer one."""

TOO_LONG = (
    f"an int of more than {MAX_DIGITS:,} digits{{at}} can't be stored: keep it as a text, hex(n), "
    f"or as bytes, n.to_bytes(…)"
)

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


class Misfit(Exception):
    """A value can't be stored: why (`{at}` stands for where), and where, from the inside out."""

    def __init__(self, why: str, *trail: str) -> None:
        self.why = why
        self.trail = list(trail)

    def under(self, label: str) -> Misfit:
        """The same, seen from one level further out."""
        self.trail.append(label)
        return self

    def __str__(self) -> str:
        labels = self.trail[::-1]
        place = "".join(labels[:12]) + ("…" if len(labels) > 12 else "")
        return self.why.replace("{at}", f" at {place}" if place else "")


def label(key: Any) -> str:
    """A key as it stands in the place of an error: `.rooms`, `['two words']`, `[3]`."""
    if type(key) is str and key.isidentifier():
        return f".{key}"
    is_short = type(key) is str or (type(key) is int and abs(key) < 10**18)
    return f"[{key!r:.40}]" if is_short else f"[a {type(key).__name__}]"


def name_of(annotation: Any) -> str:
    """An annotation as it stands in the code."""
    if annotation is None:
        return "None"
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__name__
    return re.sub(r"[\w.]+\.(?=\w)", "", str(annotation))  # without the modules
