"""The research agent of the examples, killed at every boundary, says the same byte for byte.

Seven calls run side by side in one turn: reads, effects, an approval, a doubt, a stream and an
agent. Each effect is made exactly once. Here on files, SQLite and PostgreSQL; `make thorough` kills
it at every boundary, and `make test` at some. That the harness catches a broken build is shown with
agents that make one call after the other: beside others, a write that is held back is soon made.
"""

from __future__ import annotations

import pytest

from holdfast.testing.crash import Report
from tests.crash.test_everywhere import kill_everywhere, report_of
from tests.stores.postgres_server import postgres_server, postgres_url
from tests.thorough import THOROUGH, every

__all__ = ["postgres_server", "postgres_url"]

AGENTS = "tests.crash.research_agents"


def must_be_the_same(report: Report) -> None:
    assert report.violations == []
    assert report.points > 0
    # Four of the agent itself (by its key, looked up, asked for, approved), and one of the agent
    # that it calls.
    assert report.boundaries["before an effect"] == report.boundaries["after an effect"] == 5
    assert report.boundaries["before a model call"] == 4


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("scenario", "options"),
    [
        ("sync_research", every(41)),
        ("sync_research", ("--crashes", "3", *every(97))),
        ("async_research", every(61)),
    ],
)
def test_one_turn_of_seven_calls_ends_with_the_same_conversation(scenario, options):
    must_be_the_same(kill_everywhere(f"{AGENTS}:{scenario}", *options))


@pytest.mark.timeout(900)
def test_so_it_does_on_postgresql(postgres_url):
    nth = "1" if THOROUGH else "97"
    place = "tests.crash.on_postgres"
    must_be_the_same(report_of(place, f"{AGENTS}:sync_research", postgres_url, nth))


@pytest.mark.timeout(900)
def test_so_it_does_on_sqlite():
    nth = "1" if THOROUGH else "97"
    must_be_the_same(report_of("tests.crash.on_sqlite", f"{AGENTS}:sync_research", nth))
