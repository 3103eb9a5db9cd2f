"""Writes the golden log of today's format: `python -m tests.golden.record`.

Run it once per format and never again for the same one: the logs that are kept are what users
have on their disks. It uses every type of event there is.
"""

from __future__ import annotations

import sys
import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec

from holdfast import (
    Happened,
    Holdfast,
    InDoubt,
    Retry,
    StepFailed,
    TaskFailed,
    Unanswered,
    ask,
    current,
    decide,
    note,
    now,
    sleep,
    step,
    task,
    tool,
)
from holdfast.events import FORMAT

FOLDER = Path(__file__).parent
tries = {"answer": 0, "flaky": 0, "letter": 0, "invite": 0, "body": 0}


class Crash(BaseException):
    """The process ends here."""


class Clock:
    """Each look at it is a millisecond later, so that the same run gives the same log."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now


@step(retry=Retry(attempts=3, delay_s=0, jitter=0))
def flaky(city: str) -> list[str]:
    tries["flaky"] += 1
    if tries["flaky"] < 2:
        raise ConnectionError("no route")
    return [f"{city} Inn", "Ünïcødé ✓"]


@step
def never_works() -> None:
    raise ValueError("closed on Mondays")


@tool(check=lambda key: Happened({"id": 7}))
def invite(guest: str) -> dict[str, int]:
    tries["invite"] += 1
    raise Crash


@tool
def letter(to: str) -> str:
    tries["letter"] += 1
    if tries["letter"] == 1:
        raise Crash
    return "sent"


@task
def golden(city: str) -> str:
    current().plan(["flaky", "never_works", "invite", "letter"])
    room = decide("room", flaky(city)[0], options=["a", "b"], because="it is the first")
    note("chose a room", {"room": room})
    try:
        never_works()
    except StepFailed:
        note("carried on")
    invite("ada")
    sent = letter("ada")
    sleep(0.001)
    note(f"asked at {now()}")
    if ask("Go on?", Literal["yes", "no"], id="go") == "no":
        return "no"
    try:
        ask("Anybody?", timeout_s=0.001)
    except StepFailed:
        note("nobody")
    tries["body"] += 1
    if tries["body"] == 1:
        raise RuntimeError("failed once")
    return f"{room}: {sent}"


def run_it(hf: Holdfast) -> None:
    for _ in range(10):
        try:
            hf.run(golden, "Oslo", id="golden", user="ada", session="s-1", labels={"team": "x"})
            return
        except Crash:
            continue
        except InDoubt:
            hf.resolve("golden", "4", happened=False, because="looked", by="a person")
        except Unanswered as waiting:
            if waiting.id == "go":
                hf.answer("golden", "yes" if tries["answer"] else "maybe", by="a person")
                tries["answer"] += 1
        except TaskFailed:
            hf.retry("golden")
    raise AssertionError("it never ended")


def main() -> None:
    folder = FOLDER / f"format-{FORMAT}"
    if folder.exists():
        sys.exit(f"{folder} exists, and what is golden stays as it is")
    # A golden log must not depend on where the project was checked out.
    setattr(traceback, "format_exception", lambda error: [f"Traceback: {type(error).__name__}"])
    with Holdfast(folder / "w", clock=Clock()) as hf:
        hf._owner = hf._holding.owner = "host process 1"
        run_it(hf)
        state = msgspec.json.format(msgspec.json.encode(hf.task("golden").state), indent=1)
    (folder / "state.json").write_bytes(state + b"\n")
    (folder / "w/tasks/golden/events.jsonl").rename(folder / "events.jsonl")


if __name__ == "__main__":
    main()
