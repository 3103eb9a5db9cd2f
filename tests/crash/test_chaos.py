"""A fleet stays up, whatever happens to its workers and its database."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.crash.chaos import ON, Report, run
from tests.stores.postgres_server import own_server
from tests.thorough import THOROUGH

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


@pytest.mark.skipif(not THOROUGH, reason="it waits for what never comes: `make thorough` runs it")
def test_a_fleet_without_a_crash_limit_is_caught(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chaos.db"
    report = run(
        tmp_path, url, seed=7, tasks=6, faults=0, patience_s=30.0, app="tests.engines.broken_fleet"
    )
    with pytest.raises(AssertionError):
        must_have_held(report)
    assert {"poisoned-1", "poisoned-2"} <= set(report.left), report
