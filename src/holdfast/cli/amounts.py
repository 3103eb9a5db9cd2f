"""Times and sizes as people write them: `30d`, `10GB`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import click

_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
}
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.ASCII)


def _amount(text: str, units: dict[str, int]) -> float | None:
    found = _AMOUNT.fullmatch(text.lower())
    if found is None or found[2] not in units:
        return None
    return float(found[1]) * units[found[2]]


class Age(click.ParamType[timedelta]):
    """A length of time."""

    name = "age"

    def convert(self, value: Any, param: Any, ctx: Any) -> timedelta:
        """
        >>> Age().convert("36h", None, None)
        datetime.timedelta(days=1, seconds=43200)
        """
        if isinstance(value, timedelta):
            return value
        seconds = _amount(value, _SECONDS)
        try:
            if seconds is not None:
                return timedelta(seconds=seconds)
        except OverflowError:
            pass
        self.fail(f"{value!r} is no length of time: give 30d, 12h, 45m, 2w or 90s", param, ctx)


class Size(click.ParamType[int]):
    """A number of bytes."""

    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """
        >>> Size().convert("1.5 GB", None, None), Size().convert("2MiB", None, None)
        (1500000000, 2097152)
        """
        if isinstance(value, int):
            return value
        size = _amount(value, _BYTES)
        if size is None:
            self.fail(f"{value!r} is no size: give 500MB, 10GB, 2GiB or bytes", param, ctx)
        return int(size)


def bytes_text(size: int) -> str:
    """A number of bytes, for people.

    >>> bytes_text(999), bytes_text(1_234_567)
    ('999 bytes', '1.2 MB')
    """
    for unit, least in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= least:
            return f"{size / least:.1f} {unit}"
    return f"{size} byte{'' if size == 1 else 's'}"
