"""`holdfast.testing.Clock`: time passes when a test says so, or whenever everything waits."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import (
    BadInput,
    Holdfast,
    Retry,
    TaskFailed,
    TaskWaiting,
    Worker,
    ask,
    gather,
    now,
    sleep,
    step,
    task,
)
from holdfast.testing import Clock

DAY_S = 86_400.0
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def clock(holdfast_clock):
    return holdfast_clock


@task
def ck_nap(seconds: float) -> datetime:
    sleep(seconds)
    return now()


@task
async def ck_anap(seconds: float) -> datetime:
    await sleep(seconds)
    return now()


@pytest.mark.parametrize("fn", [ck_nap, ck_anap])
def test_a_sleep_of_a_day_ends_at_once_and_a_day_later(hf, fn):
    began = time.monotonic()
    assert hf.run(fn, DAY_S) == START + timedelta(days=1)
    assert time.monotonic() - began < 60


def test_backoffs_are_skipped_and_none_of_them_is_shortened(hf, clock):
    tries = []

    @step(retry=Retry(attempts=4, delay_s=600, backoff=2, jitter=0, max_delay_s=86_400))
    def ck_flaky() -> str:
        tries.append((clock.now - START).total_seconds())
        if len(tries) < 4:
            raise ConnectionError("down")
        return "up"

    @task
    def ck_retries() -> str:
        return ck_flaky()

    assert hf.run(ck_retries) == "up"
    assert tries == [0, 600, 1800, 4200]


@pytest.mark.parametrize("flavor", ["sync", "async"])
def test_branches_wake_in_the_order_of_their_times(hf, flavor):
    woken = []

    @step
    def ck_says(what: str) -> None:
        woken.append(what)

    def branch(hours: int):
        def strand() -> None:
            sleep(3600.0 * hours)
            ck_says(f"{hours} h")

        return strand

    @task(name=f"ck_branches_{flavor}")
    def ck_branches() -> None:
        gather(*(branch(hours) for hours in (3, 1, 2)))

    async def astrand(hours: int) -> None:
        await sleep(3600.0 * hours)
        ck_says(f"{hours} h")

    @task(name=f"ck_abranches_{flavor}")
    async def ck_abranches() -> None:
        await asyncio.gather(*(astrand(hours) for hours in (3, 1, 2)))

    hf.run(ck_branches if flavor == "sync" else ck_abranches)
    assert woken == ["1 h", "2 h", "3 h"]


@pytest.mark.parametrize("flavor", ["sync", "async"])
def test_no_time_is_skipped_while_a_body_runs(hf, clock, flavor):
    """The body takes much longer than the clock needs to find that nothing happens."""

    @step(name=f"ck_long_{flavor}")
    def ck_long() -> str:
        before = clock.now
        time.sleep(0.3)
        return f"took {clock.now - before}"

    @task(name=f"ck_both_{flavor}")
    def ck_both() -> list[str]:
        return list(gather(ck_long, lambda: str(sleep(DAY_S))))

    @step(name=f"ck_along_{flavor}")
    async def ck_along() -> str:
        before = clock.now
        await asyncio.sleep(0.3)
        return f"took {clock.now - before}"

    async def asleep() -> str:
        await sleep(DAY_S)
        return "None"

    @task(name=f"ck_aboth_{flavor}")
    async def ck_aboth() -> list[str]:
        return list(await asyncio.gather(ck_along(), asleep()))

    assert hf.run(ck_both if flavor == "sync" else ck_aboth)[0] == "took 0:00:00"
    assert clock.now == START + timedelta(days=1)


def test_a_deadline_comes_before_the_sleep_that_outlasts_it(hf, clock):
    @task(timeout_s=3600)
    def ck_late() -> None:
        sleep(DAY_S)

    with pytest.raises(TaskFailed, match="did not end by 2026-01-01 01:00:00"):
        hf.run(ck_late)
    assert clock.now == START + timedelta(hours=1)


def test_a_worker_skips_to_the_next_task_that_has_something_to_do(hf, clock):
    @task
    def ck_asks() -> str:
        return str(ask("Go on?", str, timeout_s=7200, default="nobody said"))

    naps = [hf.start(fn, 3600.0 * hours) for fn, hours in ((ck_nap, 5), (ck_anap, 1))]
    asked = hf.start(ck_asks)
    Worker(hf).run_until_idle()
    assert [nap.result(timeout_s=0) for nap in naps] == [
        START + timedelta(hours=hours) for hours in (5, 1)
    ]
    assert asked.result(timeout_s=0) == "nobody said"
    assert clock.now == START + timedelta(hours=5)


def test_a_question_without_a_limit_is_not_skipped(hf, clock):
    @task
    def ck_asks_for_ever() -> str:
        return str(ask("Go on?", str))

    handle = hf.start(ck_asks_for_ever)
    Worker(hf).run_until_idle()
    assert (handle.status, clock.now) == ("awaiting_user", START)


def test_a_parent_sleeps_with_its_child(hf, clock):
    @task
    def ck_parent() -> datetime:
        return ck_nap(DAY_S)

    assert hf.run(ck_parent) == START + timedelta(days=1)


@pytest.mark.parametrize("fn", [ck_nap, ck_anap])
def test_by_hand_time_passes_only_when_told_to(tmp_path, fn):
    clock, ended = Clock(), []
    with Holdfast(tmp_path / "w", clock=clock) as hf:
        hf.start(fn, DAY_S, id="nap")
        driven = threading.Thread(target=lambda: ended.append(hf.resume("nap")))
        driven.start()
        while not any(call.status == "waiting" for call in hf.task("nap").state.calls.values()):
            time.sleep(0.01)
        clock.advance(DAY_S - 1)
        driven.join(0.2)
        assert driven.is_alive() and not ended
        clock.advance(timedelta(seconds=1))
        driven.join(60)
        assert ended == [START + timedelta(days=1)]


def test_by_hand_a_worker_takes_up_what_is_due(tmp_path):
    clock = Clock()
    with Holdfast(tmp_path / "w", clock=clock) as hf:
        handle, worker = hf.start(ck_nap, DAY_S), Worker(hf)
        worker.run_until_idle()
        assert handle.status == "in_progress"
        clock.advance(DAY_S)
        worker.run_until_idle()
        assert handle.result(timeout_s=0) == START + timedelta(days=1)


def test_by_hand_a_question_times_out(tmp_path):
    clock = Clock()

    @task
    def ck_asks_for_an_hour() -> str:
        return str(ask("Go on?", str, timeout_s=3600, default="no"))

    with Holdfast(tmp_path / "w", clock=clock) as hf:
        with pytest.raises(TaskWaiting):
            hf.run(ck_asks_for_an_hour, id="q")
        clock.advance(3600)
        assert hf.resume("q") == "no"


def test_each_event_may_be_later_than_the_one_before():
    clock = Clock(tick_s=0.001)
    with Holdfast("memory://", clock=clock) as hf:
        hf.run(ck_nap, 0.0, id="t")
        times = [event.at for event in hf.task("t").events()]
    assert times == sorted(set(times)) and times[0] > START


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(BadInput, match="needs a zone"):
        Clock(datetime(2026, 1, 1))  # noqa: DTZ001
