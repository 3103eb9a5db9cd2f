"""A store with something of everything in it, to be damaged: made once, and copied for each case.

Its logs are the golden ones, which have every type of event, and some that were made just now:
tasks for a worker to drive, one that waits, messages in inboxes, values in blobs. Most of them are
good in each case, so it shows if a damaged log hides another.
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

from holdfast import Artifact, Holdfast, TaskWaiting, Worker, ask, decide, keep, note, step, task
from holdfast.agent import user
from holdfast.core.events import PauseRequested, dump_event
from holdfast.log.store_calls import post_to
from holdfast.stores.files.folder import safe_name

GOLDEN = Path(__file__).parents[1] / "golden"
LONG, PENDING, ASKED, MAILED, LARGE = "long", ("job-1", "job-2"), "asks", "mailed", "large"
_LOGS = {
    "task_created": "tasks",
    "session_began": "sessions",
    "memory_began": "memories",
    "queue_began": "queues",
}
_MANY = 1030
"""Events, for a waypoint stands after each 1,024."""


@step
def fuzz_double(n: int) -> int:
    return 2 * n


@task
def fuzz_job(n: int) -> int:
    """What a worker drives."""
    return fuzz_double(fuzz_double(n))


@task
def fuzz_long(n: int) -> int:
    for number in range(n):
        note(f"note {number}", {"long": "x" * 300} if number % 100 == 0 else None)
    return fuzz_double(n)


@task
def fuzz_asks(city: str) -> str:
    decide("city", city, options=["Oslo", "Bergen"], because="it is near")
    return str(ask("Which room?", id="room"))


@step
def fuzz_report() -> Artifact:
    return keep([b"a report" * 100], name="report.txt")


@task
def fuzz_large(size: int) -> str:
    """Values in blobs, a file, and a long list that grows."""
    note("large", {"text": "x" * size, "list": list(range(300))})
    fuzz_report()
    return "y" * size


def make(folder: Path) -> None:
    """Make the store."""
    with Holdfast(folder) as hf:
        hf.run(fuzz_large, 70_000, id=LARGE)
        hf.session("talk-now", user="ada").say(user("hello"))
        for id in (ASKED, MAILED):
            with suppress(TaskWaiting):
                hf.run(fuzz_asks, "Oslo", id=id)
        _start(hf)
        _post(hf)
    _add_golden(folder)
    with Holdfast(folder) as hf:
        assert hf.verify().sound, hf.verify().damage
        hf.page()  # which fills the index


def make_long(folder: Path) -> None:
    """Make one with waypoints, which only a long log has, and little else."""
    with Holdfast(folder) as hf:
        hf.run(fuzz_long, _MANY, id=LONG)
        hf.session("talk-now", user="ada").say(user("hello"))
        _start(hf)
        hf.task(LONG).at(seq=_MANY)
    assert list(folder.glob("tasks/*/waypoints/*")), "nobody left a waypoint"


def into_a_database(folder: Path, url: str) -> None:
    """The same store in a database."""
    with Holdfast(folder) as hf:
        hf.copy_to(url, paused=True)
    with Holdfast(url) as hf:
        for id in PENDING:
            hf.unpause(id)
        _post(hf)


def _post(hf: Holdfast) -> None:
    post_to(hf.store, f"tasks/{MAILED}", "by hand", dump_event(PauseRequested(by="ada")))


def _start(hf: Holdfast) -> None:
    for number, id in enumerate(PENDING):
        hf.start(fuzz_job, number, id=id)


def _add_golden(folder: Path) -> None:
    for log in sorted(GOLDEN.glob("*/*.jsonl")):
        first = json.loads(log.read_bytes().partition(b"\n")[0])
        kind = "limits" if log.name == "limit.jsonl" else _LOGS[first["type"]]
        place = folder / kind / safe_name(first["id"])
        place.mkdir(parents=True, mode=0o700)
        shutil.copyfile(log, place / "events.jsonl")
    for blobs in GOLDEN.glob("*/blobs"):
        shutil.copytree(blobs, folder / "blobs", dirs_exist_ok=True)


def drive(hf: Holdfast, say: list[str]) -> None:
    """A worker, until there is nothing left to do."""
    Worker(hf, concurrency=2, poll_s=0.01, say=say.append).run_until_idle()
