"""Times and sizes as people write them: `30d`, `10GB`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
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


class AgeParam(click.ParamType[timedelta]):
    """A length of time."""

    name = "age"

    def convert(self, value: Any, param: Any, ctx: Any) -> timedelta:
        """
        >>> AgeParam().convert("36h", None, None)
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


# Times on the command line: how long ago, or a date.


_AGO = re.compile(r"(\d{1,9})\s*([smhdw])")
_AGO_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def time_of(text: str, now: datetime) -> datetime | None:
    """The time that is meant; None if none is. A date without a zone is one where we are.

    >>> noon = datetime(2026, 5, 8, 12, tzinfo=UTC)
    >>> print(time_of("7d", noon), time_of("2026-05-01T10:00Z", noon), time_of("soon", noon))
    2026-05-01 12:00:00+00:00 2026-05-01 10:00:00+00:00 None
    """
    try:
        if ago := _AGO.fullmatch(text.strip()):
            return now - timedelta(seconds=int(ago[1]) * _AGO_SECONDS[ago[2]])
        return datetime.fromisoformat(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def when(ctx: click.Context, param: click.Parameter, given: str | None) -> datetime | None:
    """An option that is a time."""
    if given is None:
        return None
    found = time_of(given, datetime.now(UTC))
    if found is None:
        raise click.BadParameter(
            f"{given!r} is no time: give how long ago (30m, 12h, 7d, 2w), or a date such as "
            f"2026-01-31 or 2026-01-31T18:00",
            ctx,
            param,
        )
    return found
