"""How far a long piece of work is: a bar, lines in a log, events."""

from __future__ import annotations

import io
import logging
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast import Holdfast, each, step, task
from holdfast.api.branches import Meter

ROOT = Path(__file__).parents[2]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_rate_and_time_left_count_only_what_was_done_now(clock):
    meter = Meter("index", 100, event=lambda done, total: None, clock=clock)
    for _ in range(60):
        meter.count(fresh=False)  # recorded before a crash: that took no time now
    for _ in range(20):
        clock.now += 0.5
        meter.count()
    assert meter.text() == "index  80 of 100  2.0/s  0:10 left"


def test_failures_and_a_total_that_is_not_known(clock):
    meter = Meter("index", None, event=lambda done, total: None, clock=clock)
    clock.now += 2
    meter.count(failed=True)
    meter.count()
    assert meter.text() == "index  2  1.0/s  1 failed"


def test_events_come_once_a_second_and_at_the_end(clock):
    seen = []
    meter = Meter("index", 50, event=lambda done, total: seen.append((done, total)), clock=clock)
    for _ in range(50):
        clock.now += 0.125
        meter.count()
    meter.end()
    assert [done for done, _ in seen] == [8, 16, 24, 32, 40, 48, 50]


def test_what_is_over_at_once_says_nothing(clock, monkeypatch, caplog):
    monkeypatch.setattr(sys, "stderr", out := io.StringIO())
    seen = []
    with caplog.at_level(logging.INFO, "holdfast"):
        meter = Meter(
            "index", 3, on_terminal=True, event=lambda *given: seen.append(given), clock=clock
        )
        for _ in range(3):
            meter.count()
        meter.end()
    assert (out.getvalue(), seen, caplog.records) == ("", [], [])


def test_without_a_terminal_there_is_a_line_in_the_log_every_ten_seconds(clock, caplog):
    meter = Meter("index", 30, on_terminal=False, event=lambda *given: None, clock=clock)
    with caplog.at_level(logging.INFO, "holdfast"):
        for _ in range(25):
            clock.now += 1
            meter.count()
        meter.end()
    assert [record.message for record in caplog.records] == [
        "index  10 of 30  1.0/s  0:20 left",
        "index  20 of 30  1.0/s  0:10 left",
        "index  25 of 30  1.0/s  0:05 left",
    ]


def test_those_who_follow_a_map_see_how_far_it_is(tmp_path):
    ticking = threading.Event()

    @step
    def slow(x: int) -> int:
        ticking.wait(0.06)
        return x

    @task
    def mapping() -> int:
        return len(each(slow, range(40), workers=2))

    with Holdfast(tmp_path / "w") as hf:
        hf.run(mapping, id="m")
        ((path, said),) = hf.task("m").progress
    assert (path, said.text, said.total) == ("1", "each(slow)", 40)
    assert said.done == 40


SCRIPT = """
import time
from holdfast import Holdfast, each, step, task

@step
def nap(x: int) -> int:
    time.sleep(0.02)
    return x

@task
def mapping() -> int:
    return len(each(nap, range(30), workers=2))

with Holdfast("memory://") as hf:
    print(hf.run(mapping))
"""


def test_on_a_terminal_there_is_a_bar_that_fills():
    outer, inner = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, stdout=subprocess.PIPE, stderr=inner, check=True
    )
    os.close(inner)
    shown = os.read(outer, 100_000).decode()
    os.close(outer)
    assert done.stdout.split() == [b"30"]
    assert shown.count("\r") > 2
    assert "█" * 30 in shown.rstrip().rpartition("\r")[2]
    assert "30 of 30" in shown
