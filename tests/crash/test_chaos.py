"""A fleet stays up, whatever happens to its workers and its database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.crash.chaos import Report, on_temporal, run
from tests.stores.postgres_server import PostgresServer
from tests.thorough import THOROUGH

TASKS, FAULTS, AWAY_S = (300, 15, 15.0) if THOROUGH else (12, 2, 0.0)


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server that may be stopped: no other test uses it."""
    folder = tmp_path_factory.mktemp("chaos")
    for above in (folder, *list(folder.parents)[:3]):
        above.chmod(0o755)  # as root, the server runs as nobody
    server = PostgresServer(folder)
    server.start()
    yield server
    server.stop()


def must_have_held(report: Report) -> None:
    assert report.gave_up == [], report
    assert report.left == [], report
    assert report.twice == [], "an effect was made twice under one key"
    assert report.stuck == ["poisoned-1", "poisoned-2"], report
    assert set(report.ended) == {"completed", "stuck"}, report


@pytest.mark.timeout(1200)
def test_a_fleet_on_sqlite_stays_up(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chaos.db"
    must_have_held(run(tmp_path, url, seed=7, tasks=TASKS, faults=FAULTS))


@pytest.mark.timeout(1200)
def test_a_fleet_on_postgresql_stays_up(tmp_path: Path, own_server: PostgresServer) -> None:
    url = own_server.new_database()
    report = run(
        tmp_path, url, seed=7, tasks=TASKS, faults=max(FAULTS, 5), server=own_server, away_s=AWAY_S
    )
    must_have_held(report)


@pytest.mark.skipif(not THOROUGH, reason="it takes minutes: `make thorough` runs it")
@pytest.mark.timeout(1200)
def test_a_fleet_on_temporal_stays_up(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chaos.db"
    with ExitStack() as stack:
        engine, options, restart = on_temporal(tmp_path, stack)
        report = run(
            tmp_path, url, seed=7, tasks=TASKS, faults=FAULTS, patience_s=900.0, engine=engine,
            options=options, restart=restart,
        )  # fmt: skip
    must_have_held(report)
