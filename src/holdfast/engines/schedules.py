"""Schedules: when a task is to start by itself. Which times are due, and nothing that acts.

A due time is an instant. For `cron` it is found by the clock on the wall of a time zone, as
Debian's cron does: a time that daylight saving skips is due at the moment of the change, one that
comes twice is due once. Schedules whose minute or hour begins with `*` go by what has passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import takewhile
from math import inf
from typing import Literal
from zoneinfo import ZoneInfo

from msgspec import Raw, Struct
from msgspec.structs import replace

from holdfast.core.words import must_be_texts
from holdfast.errors import BadInput

Overlap = Literal["skip", "allow", "cancel"]
CatchUp = Literal["last", "all", "none"]

LATE_S = 60.0
"""How late a start may be without being one that has to be caught up with."""
LONGEST_NAME = 200
SCHEDULE, DUE = "schedule", "due"
"""The labels of every task that a schedule started."""


class Schedule(Struct, frozen=True, omit_defaults=True):
    """When, what and how: a schedule as it is kept in the store."""

    name: str
    task: str
    args: Raw
    cron: str = ""
    tz: str = "UTC"
    every_s: float | None = None
    at: datetime | None = None
    start_at: datetime | None = None
    """Since when it counts: nothing before it is due. Intervals are counted from it."""
    overlap: Overlap = "skip"
    catch_up: CatchUp = "last"
    window_s: float = 86400.0
    jitter_s: float = 0.0
    user: str = ""
    queue: str = ""
    key: str = ""
    priority: int = 0
    paused: bool = False
    by: str = ""
    because: str = ""


class Mark(Struct, frozen=True, omit_defaults=True):
    """The outcome of a due time, or of a start by hand.

    `how` says which: what was due, `run_now`, or `backfill`. `by` is who started it by hand.
    """

    due: datetime
    what: Literal["started", "skipped", "missed"]
    task: str = ""
    because: str = ""
    how: Literal["due", "run_now", "backfill"] = "due"
    by: str = ""


def checked_schedule(schedule: Schedule) -> Schedule:
    """The schedule, if it can be kept to."""
    must_be_texts("a schedule", name=schedule.name, user=schedule.user)
    name = schedule.name
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
        raise BadInput(f"a schedule: name={name!a:.60} must be 1 to {LONGEST_NAME} characters")
    ways = [bool(schedule.cron), schedule.every_s is not None, schedule.at is not None]
    if sum(ways) != 1:
        raise BadInput(f"schedule {name!r}: give one of cron=, every_s= and at=")
    for field, most in (("every_s", 1.0), ("jitter_s", 0.0), ("window_s", 0.0)):
        seconds = getattr(schedule, field)
        if seconds is None:
            continue
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not most <= seconds < inf:
            raise BadInput(
                f"schedule {name!r}: {field}={seconds!r:.60} must be seconds, {most:g} or more"
            )
    if schedule.overlap not in ("skip", "allow", "cancel"):
        raise BadInput(
            f"schedule {name!r}: overlap={schedule.overlap!r:.60} must be skip, allow or cancel"
        )
    if schedule.catch_up not in ("last", "all", "none"):
        raise BadInput(
            f"schedule {name!r}: catch_up={schedule.catch_up!r:.60} must be last, all or none"
        )
    zone_of(schedule)
    if schedule.cron:
        next(_cron(schedule, datetime(2026, 1, 1, tzinfo=UTC)), None)
    if schedule.at is not None and schedule.at.utcoffset() is None:
        raise BadInput(f"schedule {name!r}: at={schedule.at} must have its time zone")
    return schedule


def zone_of(schedule: Schedule) -> ZoneInfo:
    """Its time zone."""
    try:
        return ZoneInfo(schedule.tz)
    except (KeyError, ValueError, OSError, TypeError):
        raise BadInput(
            f"schedule {schedule.name!r}: tz={schedule.tz!r:.60} is no time zone known here: give "
            f"a name such as 'Europe/Oslo' (pip install tzdata if there are none)"
        ) from None


def due_after(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    """The due times after a moment, in UTC, without end for what has none.

    >>> every = Schedule(
    ...     "s", "t", Raw(b"{}"), every_s=3600.0, start_at=datetime(2026, 1, 1, tzinfo=UTC)
    ... )
    >>> str(next(due_after(every, datetime(2026, 1, 1, 7, 30, tzinfo=UTC))))
    '2026-01-01 08:00:00+00:00'
    """
    start = schedule.start_at or after
    if schedule.at is not None:
        at = schedule.at.astimezone(UTC)
        return iter([at] if at > after else [])
    if schedule.every_s is not None:
        return _interval(start, schedule.every_s, max(after, start))
    return _cron(schedule, max(after, start))


def as_if_begun(schedule: Schedule, by: datetime) -> Schedule:
    """The schedule as if it had counted at a time before it did, with the same due times."""
    if schedule.every_s is None or schedule.start_at is None:
        return replace(schedule, start_at=None)
    every = timedelta(seconds=schedule.every_s)
    before = max((schedule.start_at - by) // every + 1, 0)
    return replace(schedule, start_at=schedule.start_at - before * every)


def due_between(schedule: Schedule, after: datetime, until: datetime) -> Iterator[datetime]:
    """The due times after a moment, up to and with another."""
    return takewhile(lambda due: due <= until, due_after(schedule, after))


def _interval(start: datetime, every_s: float, after: datetime) -> Iterator[datetime]:
    every = timedelta(seconds=every_s)
    number = (after - start) // every
    while True:
        number += 1
        yield start + number * every


def _cron(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    try:
        from cronsim import CronSim, CronSimError
    except ModuleNotFoundError:
        raise BadInput(
            f"schedule {schedule.name!r}: cron= needs cronsim: pip install 'holdfast[schedules]'"
        ) from None
    try:
        # A time that the clock passes twice would be told of twice.
        found = CronSim(schedule.cron, after.astimezone(zone_of(schedule)))
    except CronSimError as error:
        raise BadInput(
            f"schedule {schedule.name!r}: cron={schedule.cron!r:.60}: {error}. It has five fields, "
            f"such as '0 7 * * 1-5' for 7:00 from Monday to Friday"
        ) from None
    last = after
    for due in found:
        instant = due.astimezone(UTC)
        if instant > last:
            last = instant
            yield instant


def task_id(name: str, due: datetime) -> str:
    """The id of the task of a due time: there is one.

    >>> task_id("nightly", datetime(2026, 3, 1, 7, tzinfo=UTC))
    'nightly@2026-03-01T07:00:00Z'
    """
    moment = due.astimezone(UTC)
    return f"{name}@{moment.isoformat().replace('+00:00', 'Z')}"


def start_time(schedule: Schedule, due: datetime) -> datetime:
    """When the task of a due time begins: later by a part of the jitter that is always the same."""
    digest = sha256(f"{schedule.name}\0{due.isoformat()}".encode()).digest()
    share = int.from_bytes(digest[:4]) / (1 << 32)
    return due + timedelta(seconds=share * schedule.jitter_s)


def to_start(
    schedule: Schedule, after: datetime, now: datetime, most: int
) -> list[tuple[datetime, bool]]:
    """The due times since the last one that was seen to, and whether each is to be started.

    Late times are caught up with as the schedule says: all of it, the last, or none.
    """
    found = []
    for due in due_between(schedule, after, now):
        found.append(due)
        if len(found) >= most and schedule.catch_up == "all":
            break
        if len(found) > 2 * most:  # of the others only the newest counts
            del found[:-most]
    oldest = now - timedelta(seconds=schedule.window_s)
    on_time = now - timedelta(seconds=LATE_S)

    def counts(index: int, due: datetime) -> bool:
        if due >= on_time:
            return True
        if schedule.catch_up == "none" or due < oldest:
            return False
        return schedule.catch_up == "all" or index == len(found) - 1

    return [(due, counts(index, due)) for index, due in enumerate(found)]
