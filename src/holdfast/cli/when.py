"""Times on the command line: how long ago, or a date."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import click

_AGO = re.compile(r"(\d{1,9})\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def time_of(text: str, now: datetime) -> datetime | None:
    """The time that is meant; None if none is. A date without a zone is one where we are.

    >>> noon = datetime(2026, 5, 8, 12, tzinfo=UTC)
    >>> print(time_of("7d", noon), time_of("2026-05-01T10:00Z", noon), time_of("soon", noon))
    2026-05-01 12:00:00+00:00 2026-05-01 10:00:00+00:00 None
    """
    try:
        if ago := _AGO.fullmatch(text.strip()):
            return now - timedelta(seconds=int(ago[1]) * _SECONDS[ago[2]])
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
