"""A fleet stays up, whatever happens to its workers and its database."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.core.events import Claimed, Completed, Started, Woke
from holdfast.log.reading import read_events
from tests.crash.chaos import ON, Fleet, Report, run
from tests.engines import fleet_tasks
from tests.engines.working import until
from tests.stores.postgres_server import own_server
from tests.thorough import THOROUGH

WAITS_S = 5.0
"""How long nothing may happen to a task for which something is to be done."""
_GOES_ON = (Started, Completed, Woke)

TASKS, FAULTS, AWAY_S = (300, 15, 15.0) if THOROUGH else (12, 2, 0.0)


def must_have_held(report: Report) -> None:
    assert report.gave_up == [], report
    assert report.left == [], report
    assert report.failed == [], report
    assert report.twice == [], "an effect was made twice under one key"
    assert report.stuck == ["poisoned-1", "poisoned-2"], report
    assert set(report.ended) == {"completed", "stuck"}, report


@pytest.mark.timeout(1200)
def test_a_fleet_on_sqlite_stays_up(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chaos.db"
    must_have_held(run(tmp_path, url, seed=7, tasks=TASKS, faults=FAULTS))


@pytest.mark.timeout(1200)
def test_a_fleet_on_postgresql_stays_up(tmp_path: Path) -> None:
    with own_server() as server:
        report = run(
            tmp_path, server.new_database(), seed=7, tasks=TASKS, faults=max(FAULTS, 5),
            server=server, away_s=AWAY_S,
        )  # fmt: skip
    must_have_held(report)


@pytest.mark.skipif(not THOROUGH, reason="it takes minutes: `make thorough` runs it")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ON)
def test_a_fleet_on_an_engine_stays_up(tmp_path: Path, name: str) -> None:
    url = f"sqlite:///{tmp_path}/chaos.db"
    with ExitStack() as stack:
        engine, options, restart = ON[name](tmp_path, stack)
        report = run(
            tmp_path, url, seed=7, tasks=TASKS, faults=FAULTS, patience_s=900.0, engine=engine,
            options=options, restart=restart,
        )  # fmt: skip
    must_have_held(report)
    # The workers and the server compute as well, on a machine that may be slow.
    assert report.waits[0].idle_s < WAITS_S + report.to_start_s, report.waits


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ON)
@pytest.mark.parametrize("kind", [fleet_tasks.long, fleet_tasks.with_pause])
def test_a_task_whose_worker_is_killed_goes_on_elsewhere_soon(
    tmp_path: Path, name: str, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_FOLDER", str(tmp_path))
    url = f"sqlite:///{tmp_path}/chaos.db"
    with ExitStack() as stack:
        engine, options, _ = ON[name](tmp_path, stack)
        hf = stack.enter_context(Holdfast(url, engine=engine))
        began = time.monotonic()
        troop = Fleet(url, tmp_path, 2, options)
        stack.callback(troop.end)
        until(lambda: troop.at_work() == 2)
        to_start_s = time.monotonic() - began  # how fast this machine is now
        hf.start(kind, 3.0, id="trip")
        until(lambda: hf.task("trip").calls)
        events = read_events(hf.store, "tasks/trip")
        owner = next(each.owner for each in events if isinstance(each, Claimed))
        (worker,) = (one for one in troop.workers if owner.endswith(f" {one.pid}"))
        worker.kill()
        killed_at = datetime.now(UTC)

        def goes_on() -> bool:
            events = list(read_events(hf.store, "tasks/trip"))
            return any(isinstance(each, _GOES_ON) and each.at > killed_at for each in events)

        until(goes_on)
        took_s = (datetime.now(UTC) - killed_at).total_seconds()
    print(f"{took_s:.1f} s, of a worker that took {to_start_s:.1f} s to start")
    assert took_s < WAITS_S + 3.0 * (kind is fleet_tasks.with_pause) + to_start_s, name


@pytest.mark.skipif(not THOROUGH, reason="it waits for what never comes: `make thorough` runs it")
def test_a_fleet_without_a_crash_limit_is_caught(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chaos.db"
    report = run(
        tmp_path, url, seed=7, tasks=6, faults=0, patience_s=30.0, app="tests.engines.broken_fleet"
    )
    with pytest.raises(AssertionError):
        must_have_held(report)
    assert {"poisoned-1", "poisoned-2"} <= set(report.left), report
