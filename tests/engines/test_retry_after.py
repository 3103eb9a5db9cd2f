"""An exception may say how long to wait: the next attempt is not made before that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Holdfast, Retry, current, step, task, tool
from holdfast.engines.run import Run
from tests.flavors import Crash

START = datetime(2026, 1, 1, tzinfo=UTC)


class Busy(Exception):
    """What a service says that is asked too often."""

    def __init__(self, retry_after_s: Any) -> None:
        super().__init__("busy")
        self.retry_after_s = retry_after_s


class Sullen(Exception):
    """One that can't even be asked."""

    @property
    def retry_after_s(self) -> float:
        raise RuntimeError("no")


class Waits:
    """A clock that moves on by the waits of a task, and keeps them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = START
        self.seen: list[float] = []
        monkeypatch.setattr(Run, "wait", lambda run, seconds: self.wait(seconds))

    def wait(self, seconds: float) -> None:
        self.seen.append(seconds)
        self.now += timedelta(seconds=seconds)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def waits(monkeypatch):
    return Waits(monkeypatch)


@pytest.mark.parametrize("decorate", [step, tool], ids=["step", "tool"])
@pytest.mark.parametrize(
    ("asked", "waited"),
    [
        (20, 20),
        (0.5, 2),  # our own wait is longer
        (7200, 3600),  # no more than an hour
        (10**400, 3600),
        (float("inf"), 3600),
        (float("nan"), 2),
        (-5, 2),
        (True, 2),
        ("30", 2),
        (None, 2),
    ],
)
def test_the_next_attempt_waits_as_long_as_the_exception_asks(decorate, asked, waited, waits):
    options = {"in_doubt": "retry"} if decorate is tool else {}

    @decorate(retry=Retry(attempts=2, delay_s=2, jitter=0), **options)
    def ask_service() -> str:
        if current().attempt == 1:
            raise Busy(asked)
        return "here"

    @task
    def asking_service() -> str:
        return ask_service()

    with Holdfast("memory://", clock=waits) as hf:
        assert hf.run(asking_service, id="t") == "here"
        (failed,) = hf.task("t").failures
    assert failed.failure.message == "busy"
    assert sum(waits.seen) == pytest.approx(waited)


def test_an_exception_that_can_not_be_asked_waits_as_any_other(waits):
    @step(retry=Retry(attempts=2, delay_s=2, jitter=0))
    def sulk() -> str:
        if current().attempt == 1:
            raise Sullen
        return "well"

    @task
    def sulking() -> str:
        return sulk()

    with Holdfast("memory://", clock=waits) as hf:
        assert hf.run(sulking, id="t") == "well"
    assert sum(waits.seen) == pytest.approx(2)


def test_the_time_of_the_next_attempt_is_recorded(tmp_path, monkeypatch):
    def fall(run: Run, seconds: float) -> None:
        raise Crash

    @step(retry=Retry(attempts=2, delay_s=2, jitter=0))
    def ask_once() -> str:
        raise Busy(600)

    @task
    def asking_once() -> str:
        return ask_once()

    monkeypatch.setattr(Run, "wait", fall)
    with Holdfast(tmp_path / "w", clock=lambda: START) as hf:
        with pytest.raises(Crash):
            hf.run(asking_once, id="t")
        (retried,) = hf.task("t").retries
    assert retried.retry_at == START + timedelta(seconds=600)
