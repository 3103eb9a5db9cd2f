"""The values that JSON has no word for, each as a tag: `{"$bytes": "aGk="}`."""

from __future__ import annotations

import binascii
import functools
import math
import re
import sys
import typing
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

# The fault of a value, and where inside it that is.


MAX_DEPTH = 100
"""How deep a value may nest. One level can take three of JSON, and the stack has other users."""

TOO_DEEP = f"it is nested more than {MAX_DEPTH} deep, or contains itself{{at}}"

MAX_DIGITS = 4300
"""How long an int may be: Python and msgspec refuse to read a longer one."""

TOO_LONG = (
    f"an int of more than {MAX_DIGITS:,} digits{{at}} can't be stored: keep it as a text, hex(n), "
    f"or as bytes, n.to_bytes(…)"
)

encode: Final = msgspec.json.Encoder().encode
decode: Final = msgspec.json.Decoder().decode


class Misfit(Exception):
    """A value can't be stored: why (`{at}` stands for where), and where, from the inside out."""

    def __init__(self, why: str, *trail: str) -> None:
        self.why = why
        self.trail: list[str] = list(trail)

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


Writer = Callable[[Any, int], Any]

BARE: frozenset[type] = frozenset({str, bool, type(None)})
"""The types that are written as themselves, whatever their value."""

INT64 = range(-(2**63), 2**63)
_READABLE = range(1 - 10**MAX_DIGITS, 10**MAX_DIGITS)


def _write_int(value: int, depth: int) -> Any:
    if value in INT64:  # few readers of JSON keep more
        return value
    if value not in _READABLE:
        raise Misfit(TOO_LONG)
    return {"$int": str(value)}


def _write_float(value: float, depth: int) -> Any:
    return value if math.isfinite(value) else {"$float": repr(value)}


def _write_moment(tag: str, value: Any, depth: int) -> Any:
    zone = value.tzinfo
    if zone is None or zone is UTC:
        written: dict[str, Any] = {tag: value.isoformat()}
    elif _is_zoneinfo(zone) and zone.key:
        written = {tag: value.replace(tzinfo=None).isoformat(), "zone": zone.key}
    elif is_pydantic_offset(zone):
        written = {tag: value.isoformat()}
    elif type(zone) is timezone:
        # What a copy goes by, and the only way to tell a name that was given from a made-up one.
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
        parts = [offset.days, offset.seconds, offset.microseconds, *name]
        written = {tag: value.replace(tzinfo=None).isoformat(), "offset": parts}
        if not name and not offset % timedelta(minutes=1):
            written = {tag: value.isoformat()}
    else:
        kind = type(zone).__name__
        raise Misfit(f"a time zone of type {kind}{{at}} can't be stored; use zoneinfo, or UTC")
    return {**written, "fold": 1} if value.fold else written


def is_pydantic_offset(zone: Any) -> bool:
    """Whether a zone is an offset as pydantic has it in the times that it reads."""
    return type(zone).__name__ == "TzInfo" and type(zone).__module__.startswith("pydantic_core")


def is_fixed_offset(zone: Any) -> bool:
    """Whether a zone is nothing but an offset."""
    if type(zone) is timezone:
        return len(zone.__getinitargs__()) == 1  # type: ignore[attr-defined]  # it has no name
    return is_pydantic_offset(zone)


def _is_zoneinfo(zone: Any) -> bool:
    # A value can only be of that class once its module is loaded, and it is slow to load.
    module = sys.modules.get("zoneinfo")
    return module is not None and type(zone) is module.ZoneInfo


def _read_moment(parse: Callable[[str], Any], text: str, tag: dict[str, Any]) -> Any:
    value = parse(text)
    if "zone" in tag:
        from zoneinfo import ZoneInfo

        value = value.replace(tzinfo=ZoneInfo(tag["zone"]))
    if "offset" in tag:
        days, seconds, microseconds, *name = tag["offset"]
        value = value.replace(tzinfo=timezone(timedelta(days, seconds, microseconds), *name))
    return value.replace(fold=tag.get("fold", 0))


_PURE_PATHS = {"PurePosixPath": PurePosixPath, "PureWindowsPath": PureWindowsPath}


def _write_pure_path(value: Any, depth: int) -> Any:
    return {"$path": str(value), "class": type(value).__name__}


class TextForm(NamedTuple):
    """How values of a type are written as texts, and read."""

    write: Callable[[Any], str]
    read: Callable[[str], Any]


_IP = (
    *("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network"),
    *("IPv4Interface", "IPv6Interface"),
)


def is_ip(kind: type) -> bool:
    """Whether a type is one of the module `ipaddress`, which is slow to load."""
    return kind.__module__ == "ipaddress" and kind.__name__ in _IP


class _TextForms(dict[type, TextForm]):
    """The types that a text says all of, where an annotation names them."""

    def __contains__(self, kind: object) -> bool:
        if isinstance(kind, type) and is_ip(kind) and not super().__contains__(kind):
            self[kind] = TextForm(str, kind)
        return super().__contains__(kind)


TEXTS = _TextForms(
    {
        kind: TextForm(str, kind)
        for kind in (Path, PurePath, PurePosixPath, PureWindowsPath, type(Path()))
    }
)


def write_ip(value: Any, depth: int) -> Any:
    return {"$ip": str(value), "class": type(value).__name__}


def _read_ip(tag: dict[str, Any]) -> Any:
    import ipaddress

    if tag["class"] not in _IP:
        raise Misfit(f"it holds an address of an unknown kind, {tag['class']!r:.40}")
    return getattr(ipaddress, tag["class"])(tag["$ip"])


def _write_pattern(value: Any, depth: int) -> Any:
    if not isinstance(value.pattern, str):
        raise Misfit("a pattern of bytes{at} can't be stored: use one of text")
    return {"$pattern": value.pattern, "flags": value.flags}


def _write_base64(tag: str, value: Any, depth: int) -> Any:
    return {tag: binascii.b2a_base64(value, newline=False).decode()}


SCALARS: dict[type, Writer] = {
    **dict.fromkeys(BARE, lambda value, depth: value),
    int: _write_int,
    float: _write_float,
    bytes: functools.partial(_write_base64, "$bytes"),
    bytearray: functools.partial(_write_base64, "$bytearray"),
    datetime: functools.partial(_write_moment, "$datetime"),
    time: functools.partial(_write_moment, "$time"),
    date: lambda value, depth: {"$date": value.isoformat()},
    timedelta: lambda value, depth: {"$timedelta": [value.days, value.seconds, value.microseconds]},
    UUID: lambda value, depth: {"$uuid": str(value)},
    Decimal: lambda value, depth: {"$decimal": str(value)},
    type(Path()): lambda value, depth: {"$path": str(value)},
    **dict.fromkeys(_PURE_PATHS.values(), _write_pure_path),
    re.Pattern: _write_pattern,
    msgspec.UnsetType: lambda value, depth: {"$unset": True},
}

READERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "$int": lambda tag: int(tag["$int"]),
    "$float": lambda tag: float(tag["$float"]),
    "$bytes": lambda tag: binascii.a2b_base64(tag["$bytes"]),
    "$bytearray": lambda tag: bytearray(binascii.a2b_base64(tag["$bytearray"])),
    "$datetime": lambda tag: _read_moment(datetime.fromisoformat, tag["$datetime"], tag),
    "$time": lambda tag: _read_moment(time.fromisoformat, tag["$time"], tag),
    "$date": lambda tag: date.fromisoformat(tag["$date"]),
    "$timedelta": lambda tag: timedelta(*tag["$timedelta"]),
    "$uuid": lambda tag: UUID(tag["$uuid"]),
    "$decimal": lambda tag: Decimal(tag["$decimal"]),
    "$path": lambda tag: (_PURE_PATHS[tag["class"]] if "class" in tag else Path)(tag["$path"]),
    "$ip": _read_ip,
    "$pattern": lambda tag: re.compile(tag["$pattern"], tag["flags"]),
    "$unset": lambda tag: msgspec.UNSET,
}
