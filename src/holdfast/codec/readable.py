"""Stored values as people read them: plain JSON, without the tags that say what a value is.

The log keeps the tags where an annotation leaves a type open, and in old logs also where it named
the class: `{"$type": "Room", "of": {"name": "attic"}}`. Views show the room. Nobody reads a value
back from here: code that needs its type decodes the stored bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.core.decoding import NONSENSE, Illegible, decode

_MARK = b'"$'
BESIDE = {"of", "set", "extra", "private", "class", "flags", "zone", "offset", "fold"}
"""Names that may stand in a tag beside its own. A user's dict with other keys is no tag."""


def readable(value: Any) -> Any:
    """Plain data without tags. A value without any is returned as it is, so values may share parts.

    >>> readable({"$type": "Room", "of": {"name": "attic", "beds": {"$tuple": [1, 2]}}})
    {'name': 'attic', 'beds': [1, 2]}
    >>> readable({"at": {"$datetime": "2026-01-01T09:00:00", "zone": "Europe/Oslo"}})
    {'at': '2026-01-01T09:00:00 Europe/Oslo'}
    >>> readable({"$ref": "#/$defs/Room"})
    {'$ref': '#/$defs/Room'}
    """
    if isinstance(value, list):
        items = [readable(each) for each in value]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    if not isinstance(value, dict):
        return value
    tag = next(iter(value), "")
    reader = _READERS.get(tag) if tag[:1] == "$" else None
    if reader is not None and value.keys() - {tag} <= BESIDE:
        try:
            return reader(value)
        except NONSENSE:  # it only looks like a tag: a person may read it as it is
            return value
    fields = {name: readable(each) for name, each in value.items()}
    return fields if any(fields[name] is not value[name] for name in value) else value


def readable_json(data: bytes) -> bytes:
    """The same for a value as JSON. A value that can't be read stays as it is.

    >>> readable_json(b'{"$type":"Room","of":{"name":"attic"}}')
    b'{"name":"attic"}'
    """
    if _MARK not in data:
        return data
    try:
        value = decode(data)
        shown = readable(value)
    except (*NONSENSE, Illegible):
        return data
    return data if shown is value else msgspec.json.encode(shown)


def _object(tag: dict[str, Any]) -> Any:
    of = readable(tag["of"])
    more = tag.get("extra")
    return {**of, **readable(more)} if isinstance(of, dict) and isinstance(more, dict) else of


def _pairs(tag: dict[str, Any]) -> Any:
    pairs = [(readable(key), readable(each)) for key, each in tag["$dict"]]
    if all(isinstance(key, str) for key, _ in pairs):
        return dict(pairs)
    return [list(pair) for pair in pairs]


def _moment(name: str) -> Callable[[dict[str, Any]], str]:
    def shown(tag: dict[str, Any]) -> str:
        zone = tag.get("zone")
        return f"{tag[name]} {zone}" if zone else str(tag[name])

    return shown


def _only(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda tag: readable(tag[name])


_READERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "$type": _object,
    "$dict": _pairs,
    "$datetime": _moment("$datetime"),
    "$time": _moment("$time"),
    "$timedelta": lambda tag: _duration(*tag["$timedelta"]),
    **{
        name: _only(name)
        for name in (
            "$tagged", "$tuple", "$set", "$frozenset", "$int", "$float", "$bytes", "$bytearray",
            "$date", "$uuid", "$decimal", "$path", "$ip", "$pattern",
        )
    },
}  # fmt: skip


def _duration(days: int, seconds: int, microseconds: int) -> str:
    from datetime import timedelta

    return str(timedelta(days, seconds, microseconds))
