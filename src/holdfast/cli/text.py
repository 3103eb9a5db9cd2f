"""Text from a log, made fit for a terminal.

Characters that a terminal might act on are written out as `\\x1b`. Rich markup is never
parsed: see `output`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.core.kinds import KINDS, MEMORY, SESSION
from holdfast.core.words import cut, plain

__all__ = [
    "ago",
    "clock",
    "count",
    "counts",
    "cut",
    "plain",
    "plain_json",
    "plain_lines",
    "precise_clock",
    "short",
    "shown",
    "to_json",
    "took",
]

_RARER = (SESSION.name, MEMORY.name)


def plain_lines(text: str) -> str:
    r"""`plain` for text of several lines, which stay lines.

    >>> print(plain_lines("a\r\nb\x07"))
    a
    b\x07
    """
    lines = (line.removesuffix("\r").expandtabs(4) for line in text.split("\n"))
    return "\n".join(plain(line) for line in lines)


def plain_json(text: str) -> str:
    r"""JSON of the same value with every character escaped that a terminal might act on.

    >>> print(plain_json('"\x9b31m"'))
    "\u009b31m"
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _json_escaped(c) for c in text)


def _json_escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def to_json(value: Any, *, indent: int = 0) -> str:
    """A value as JSON.

    >>> to_json({"a": [1, 2]})
    '{"a":[1,2]}'
    """
    data = msgspec.json.encode(value)
    return (msgspec.json.format(data, indent=indent) if indent else data).decode()


def short(value: Any, most: int = 60) -> str:
    """A value as JSON on one line, cut if it is long.

    >>> short(["a long text", "and more"], 12)
    '["a long te…'
    """
    return cut(plain(to_json(value)), most)


def shown(value: Any) -> str:
    """A value in full, for reading: text of several lines as it is, all else as JSON.

    >>> print(shown("one\\ntwo"))
    one
    two
    >>> shown("one")
    '"one"'
    """
    if isinstance(value, str) and "\n" in value:
        return plain_lines(value)
    brief = to_json(value)
    if len(brief) <= 72:
        return plain(brief)
    if isinstance(value, list) and all(len(to_json(item)) <= 96 for item in value):
        return "[\n" + ",\n".join(f"  {plain(to_json(item))}" for item in value) + "\n]"
    return plain_lines(to_json(value, indent=2))


def clock(at: datetime) -> str:
    """A time, where we are."""
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def precise_clock(at: datetime) -> str:
    """A time to the millisecond, where we are."""
    return at.astimezone().isoformat(" ", "milliseconds")[:23]


def ago(at: datetime, now: datetime) -> str:
    """How long ago a time was.

    >>> from datetime import UTC
    >>> noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    >>> ago(noon, noon + timedelta(minutes=3)), ago(noon, noon + timedelta(days=4))
    ('3 min ago', '4 days ago')
    """
    seconds = (now - at).total_seconds()
    if seconds < -1:
        return f"in {took(timedelta(seconds=-seconds))}"
    if seconds < 1:
        return "just now"
    for size, name in ((86400, "day"), (3600, "hour")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {name}s ago"
    return f"{seconds // 60:.0f} min ago" if seconds >= 120 else f"{seconds:.0f} s ago"


def took(span: timedelta) -> str:
    """A length of time.

    >>> [took(timedelta(seconds=s)) for s in (0.0123, 4.56, 75, 7265)]
    ['12 ms', '4.6 s', '1 min 15 s', '2 h 1 min']
    """
    seconds = span.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def count(number: int, thing: str, things: str = "") -> str:
    """A number of things.

    >>> count(1, "call"), count(3, "call"), count(2, "memory", "memories")
    ('1 call', '3 calls', '2 memories')
    """
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {things or thing + 's'}"


def counts(numbers: Mapping[str, int]) -> list[str]:
    """How many logs there are of each kind, events and blobs; of the rarer kinds, if any.

    It leaves out the kinds that `numbers` does not name.

    >>> counts({"tasks": 2, "sessions": 1, "memories": 0, "events": 9, "blobs": 0})
    ['2 tasks', '1 session', '9 events', '0 blobs']
    """
    things: list[tuple[str, str]] = [(kind.name, kind.plural) for kind in KINDS]
    things += [("event", "events"), ("blob", "blobs")]
    return [
        count(numbers[several], one, several)
        for one, several in things
        if numbers.get(several) or (several in numbers and one not in _RARER)
    ]
