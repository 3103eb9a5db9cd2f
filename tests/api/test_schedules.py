"""Schedules: every due time is started once, on the wall clock of its zone, after outages too."""

from __future__ import annotations

import random
import threading
import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from msgspec import Raw

from holdfast import BadInput, Holdfast, Queue, Worker, receive, task
from holdfast.api.schedules import Scheduler
from holdfast.engines.schedules import Schedule, due_between, start_time, task_id
from holdfast.testing import Clock
from tests.thorough import THOROUGH

ZONES = ("UTC", "Europe/Oslo", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata")
CRONS = ("0 7 * * 1-5", "30 2 * * *", "15 1,2,3 * * *", "*/15 * * * *", "0 0 29 2 *", "5 * 1 * *")
ran: list[int] = []


@task(name="scheduled")
def scheduled(n: int = 0) -> int:
    ran.append(n)
    return n


@task(name="scheduled_waits")
def scheduled_waits() -> str:
    return receive("word", str)


@pytest.fixture
def clock():
    ran.clear()
    return Clock(datetime(2026, 3, 1, tzinfo=UTC))


def ids(hf: Holdfast) -> list[str]:
    return sorted(record.id for record in hf.tasks(limit=None))


# An oracle of its own: every minute of the wall clock, one by one.


def oracle(cron: str, zone: str, start: datetime, days: int) -> list[datetime]:
    minute, hour, day, month, weekday = (
        _field(f, *r) for f, r in zip(cron.split(), RANGES, strict=True)
    )
    by_what_passed = cron.split()[0].startswith("*") or cron.split()[1].startswith("*")
    tz, found = ZoneInfo(zone), set[datetime]()
    fields = cron.split()

    def fits(at: datetime) -> bool:
        days_fit = at.day in day, (at.isoweekday() % 7) in weekday
        both = fields[2].startswith("*") or fields[4].startswith("*")
        return (
            at.minute in minute and at.hour in hour and at.month in month
            and (all(days_fit) if both else any(days_fit))
        )  # fmt: skip

    end = start + timedelta(days=days)
    if by_what_passed:
        at = start
        while at <= end:
            if fits(at.astimezone(tz)):
                found.add(at)
            at += timedelta(minutes=1)
    else:
        wall = start.astimezone(tz).replace(tzinfo=None) - timedelta(days=1)
        while wall <= end.astimezone(tz).replace(tzinfo=None) + timedelta(days=1):
            if fits(wall):
                found.add(_instant(wall, tz))
            wall += timedelta(minutes=1)
    return sorted(at for at in found if start < at <= end)


RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


def _field(text: str, first: int, last: int) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        numbers = range(first, last + 1) if low == "*" else range(int(low), int(high or low) + 1)
        found |= set(numbers[:: int(step or 1)])
    return found


def _instant(wall: datetime, tz: ZoneInfo) -> datetime:
    """The first moment at which a clock on the wall shows a time, or has gone past it."""
    at = wall.replace(tzinfo=tz, fold=0).astimezone(UTC)
    if at.astimezone(tz).replace(tzinfo=None) == wall:
        return at
    before = at - timedelta(hours=3)  # the clock was put forward over it: when?
    while before.astimezone(tz).replace(tzinfo=None) < wall:
        before += timedelta(minutes=1)
    return before


@pytest.mark.timeout(1800 if THOROUGH else 300)  # ten years of minutes, one by one
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("cron", CRONS)
def test_due_times_are_those_of_an_oracle_that_walks_along_the_wall_clock(cron, zone):
    years = range(2020, 2030) if THOROUGH else (2024,)
    for year in years:
        spans = [(1, 366)] if THOROUGH else [(2, 3), (3, 31), (10, 10), (10, 33)]
        for month, days in spans:
            start = datetime(year, month, 1 if THOROUGH else 5, tzinfo=UTC) - timedelta(
                days=days // 9
            )
            schedule = Schedule("s", "t", Raw(b"{}"), cron=cron, tz=zone)
            found = list(due_between(schedule, start, start + timedelta(days=days)))
            assert found == oracle(cron, zone, start, days)


def test_each_due_time_is_started_once_with_outages_and_clocks_set_back(clock):
    chance = random.Random(4)
    with Holdfast("memory://", clock=clock) as hf:
        hf.schedule(scheduled, 7, cron="0 * * * *", name="hourly", catch_up="all", overlap="allow",
                    window_s=10**9)  # fmt: skip
        first = clock.now
        for _ in range(60):
            clock.advance(chance.choice((60, 600, 3600, 5 * 3600, -1800)))
            Scheduler(hf).look()
        Worker(hf).run_until_idle()
        due = due_between(hf.schedule("hourly").schedule, first, clock.now)
        assert ids(hf) == [f"hourly@{at.isoformat().replace('+00:00', 'Z')}" for at in due]
        assert ran == [7] * len(ids(hf))


@pytest.mark.timeout(1800 if THOROUGH else 300)
@pytest.mark.parametrize("zone", ZONES if THOROUGH else ["Europe/Oslo", "Australia/Lord_Howe"])
def test_each_due_time_of_years_is_started_once_whatever_outages_and_daylight_saving_do(zone):
    """Three workers, one of which looks when none has for hours, or for weeks."""
    years, chance = 10 if THOROUGH else 1, random.Random(zone)
    began, cron = datetime(2020, 1, 1, tzinfo=UTC), "30 2 * * *"
    clock = Clock(began)
    with Holdfast("memory://", clock=clock) as hf:
        workers = [Scheduler(hf) for _ in range(3)]
        given = {"catch_up": "all", "overlap": "allow", "window_s": 10**9}
        hf.schedule(scheduled, cron=cron, tz=zone, name="s", **given)
        while clock.now < began + timedelta(days=365 * years):
            hours = chance.uniform(1, 40) if chance.random() < 0.9 else chance.uniform(40, 700)
            clock.advance(3600 * hours)
            while chance.choice(workers).look():
                pass
        due = oracle(cron, zone, began, (clock.now - began).days + 1)
        assert ids(hf) == [task_id("s", at) for at in due if at <= clock.now]


def test_three_workers_at_once_start_each_due_time_once(tmp_path):
    url, clock = f"sqlite:///{tmp_path}/s.db", Clock(datetime(2026, 3, 1, tzinfo=UTC))
    with Holdfast(url, clock=clock) as hf:
        hf.schedule(scheduled, every_s=60, name="often", catch_up="all", overlap="allow")
        clock.advance(20 * 60)
        others = [Holdfast(url, clock=clock) for _ in range(3)]
        started: list[int] = []

        def look(each: Holdfast) -> None:
            give_up_at = time.monotonic() + 60
            while len(hf.schedule("often").history(100)) < 20 and time.monotonic() < give_up_at:
                started.append(Scheduler(each).look())

        threads = [threading.Thread(target=look, args=(each,)) for each in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for each in others:
            each.close()
        assert sum(started) == 20 == len(ids(hf))


@pytest.mark.parametrize(("catch_up", "expected"), [("all", 5), ("last", 1), ("none", 0)])
def test_what_was_missed_in_an_outage_is_caught_up_with_as_said(clock, catch_up, expected):
    with Holdfast("memory://", clock=clock) as hf:
        hf.schedule(scheduled, cron="0 * * * *", name="s", catch_up=catch_up, overlap="allow")
        clock.advance(5 * 3600 + 1800)
        assert Scheduler(hf).look() == expected
        assert Scheduler(hf).look() == 0
        clock.advance(1801)
        assert Scheduler(hf).look() == 1


def test_what_is_older_than_the_window_is_never_caught_up_with(clock):
    with Holdfast("memory://", clock=clock) as hf:
        hf.schedule(scheduled, cron="0 * * * *", name="s", catch_up="all", overlap="allow",
                    window_s=2 * 3600)  # fmt: skip
        clock.advance(10 * 3600 + 60)
        assert Scheduler(hf).look() == 2
        assert [mark.what for mark in hf.schedule("s").history()] == ["started"] * 2 + ["missed"]


def test_an_overlap_is_skipped_allowed_or_ends_the_one_before(clock):
    with Holdfast("memory://", clock=clock) as hf:
        for overlap in ("skip", "allow", "cancel"):
            hf.schedule(scheduled_waits, every_s=60, name=overlap, overlap=overlap)
        for _ in range(2):
            clock.advance(60)
            Scheduler(hf).look()
            Worker(hf, patience_s=0).run_until_idle()
        statuses = {
            name: [record.status for record in hf.page(labels={"schedule": name}).tasks]
            for name in ("skip", "allow", "cancel")
        }
        assert statuses == {
            "skip": ["in_progress"],
            "allow": ["in_progress", "in_progress"],
            "cancel": ["in_progress", "cancelled"],
        }
        assert hf.schedule("skip").history()[0].what == "skipped"


def test_a_schedule_is_paused_resumed_run_now_backfilled_and_deleted(clock):
    with Holdfast("memory://", clock=clock) as hf:
        handle = hf.schedule(scheduled, cron="0 7 * * *", tz="Europe/Oslo", name="daily")
        handle.pause(because="rain")
        clock.advance(timedelta(days=2))
        assert Scheduler(hf).look() == 0
        handle.resume()
        assert Scheduler(hf).look() == 0  # what was due while it was paused stays undone
        assert handle.next(1) == [datetime(2026, 3, 3, 6, tzinfo=UTC)]
        assert handle.run_now().endswith("-now")
        filled = handle.backfill(datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 2, 4, tzinfo=UTC))
        assert filled == [f"daily@2026-02-0{day}T06:00:00Z" for day in (1, 2, 3)]
        assert (
            handle.backfill(datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 2, 4, tzinfo=UTC))
            == filled
        )
        handle.delete()
        assert hf.schedules() == [] and len(ids(hf)) == 4


def test_the_history_lists_starts_by_hand_and_they_change_nothing_about_what_is_due(clock):
    with Holdfast("memory://", clock=clock) as hf:
        handle = hf.schedule(scheduled, every_s=3600, name="s", overlap="allow")
        clock.advance(3600)
        assert Scheduler(hf).look() == 1
        clock.advance(3601)  # due, and not seen to yet
        now = handle.run_now(by="ada")
        start = datetime(2026, 3, 1, tzinfo=UTC)
        filled = handle.backfill(start, start + timedelta(hours=2))
        assert Scheduler(hf).look() == 1
        assert filled == handle.backfill(start, start + timedelta(hours=2), by="bob")
        found = [(mark.how, mark.what, mark.task, mark.by) for mark in handle.history()]
        ours = hf._holding.owner
        first, second, third = (f"s@2026-03-01T0{hour}:00:00Z" for hour in range(3))
        assert filled == [first, second, third]
        assert found == [
            ("due", "started", third, ""),  # it was there already: by the backfill
            ("backfill", "started", third, ours),
            ("backfill", "started", first, ours),
            ("run_now", "started", now, "ada"),
            ("due", "started", second, ""),
        ]
        assert [mark.how for mark in handle.history(2)] == ["due", "backfill"]


def test_one_time_is_due_once_and_jitter_is_the_same_for_everybody(clock):
    with Holdfast("memory://", clock=clock) as hf:
        hf.queue(Queue("q"))
        at = clock.now + timedelta(hours=1)
        hf.schedule(scheduled, at=at, name="once", queue="q", jitter_s=600)
        clock.advance(3601)
        assert (Scheduler(hf).look(), Scheduler(hf).look()) == (1, 0)
        said = hf.schedule("once").schedule
        begins = start_time(said, at)
        assert at <= begins < at + timedelta(seconds=600) and begins == start_time(said, at)
        (task_,) = hf.page().tasks
        state = hf.task(task_.id).state
        assert state.not_before == begins and state.ticket.queue == "q"


def test_declaring_a_schedule_again_changes_it_and_starts_nothing_twice(clock):
    with Holdfast("memory://", clock=clock) as hf:
        hf.schedule(scheduled, 1, cron="0 * * * *", name="s")
        clock.advance(3600)
        Scheduler(hf).look()
        hf.schedule(scheduled, 2, cron="0 * * * *", name="s")
        assert Scheduler(hf).look() == 0
        clock.advance(3600)
        assert Scheduler(hf).look() == 0  # the first one has not ended
        Worker(hf).run_until_idle()
        clock.advance(3600)
        Scheduler(hf).look()
        Worker(hf).run_until_idle()
        assert ran == [1, 2]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "give one of cron=, every_s= and at="),
        ({"cron": "* * *"}, "five fields"),
        ({"cron": "0 7 * * *", "tz": "Mars/Olympus"}, "no time zone"),
        ({"every_s": 0.1}, "1 or more"),
        ({"every_s": 60, "overlap": "wait"}, "skip, allow or cancel"),
        ({"every_s": 60, "catch_up": "some"}, "last, all or none"),
    ],
)
def test_what_can_not_be_is_refused_with_what_to_do(given, said):
    with Holdfast("memory://") as hf, pytest.raises(BadInput, match=said):
        hf.schedule(scheduled, name="s", **given)
