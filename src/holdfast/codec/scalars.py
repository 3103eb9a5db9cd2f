"""The values that JSON has no word for, each as a tag: `{"$bytes": "aGk="}`."""

from __future__ import annotations

import binascii
import functools
import math
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID

import msgspec

from holdfast.codec.misfit import MAX_DIGITS, TOO_LONG, Misfit

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
    "$unset": lambda tag: msgspec.UNSET,
}
