"""The support agent of the examples, killed at every boundary, says the same byte for byte.

Three tasks of one session, over HTTP with the clients of both providers; every refund and email is
made exactly once, on files, SQLite and PostgreSQL. And the harness that says so is run on builds
that are broken, where it must not.
"""

from __future__ import annotations

import pytest

from holdfast.testing.crash import Report
from tests.crash.test_everywhere import kill_everywhere, must_be_unharmed, report_of
from tests.stores.postgres_server import postgres_server, postgres_url
from tests.thorough import THOROUGH, every

__all__ = ["postgres_server", "postgres_url"]

AGENTS = "tests.crash.support_agents"


def must_be_the_same(report: Report) -> None:
    must_be_unharmed(report, 200)
    assert report.boundaries["before an effect"] == report.boundaries["after an effect"] == 2
    # Ten to answer, and one to summarize.
    assert report.boundaries["before a model call"] == report.boundaries["after a model call"] == 11


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("scenario", "options"),
    [
        ("openai_support", every(29)),
        ("openai_support", ("--crashes", "3", "--every", "83")),
        ("anthropic_support", ("--every", "71")),
        ("async_support", ("--every", "73")),
    ],
)
def test_three_tasks_of_a_session_end_with_the_same_conversation(scenario, options):
    must_be_the_same(kill_everywhere(f"{AGENTS}:{scenario}", *options))


@pytest.mark.timeout(900)
def test_so_they_do_on_postgresql(postgres_url):
    nth = "1" if THOROUGH else "97"
    place = "tests.crash.on_postgres"
    must_be_the_same(report_of(place, f"{AGENTS}:openai_support", postgres_url, nth))


@pytest.mark.timeout(900)
def test_so_they_do_on_sqlite():
    nth = "1" if THOROUGH else "83"
    must_be_the_same(report_of("tests.crash.on_sqlite", f"{AGENTS}:openai_support", nth))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("scenario", "options"),
    # Each harm can be done at several boundaries in a row, so one of them is hit.
    [("one_email", ("--no-intent", "--every", "3")), ("keyless_email", ("--every", "2"))],
)
def test_the_harness_catches_a_build_that_does_or_says_something_twice(scenario, options):
    report = kill_everywhere(f"{AGENTS}:{scenario}", "--fail-fast", *options)
    assert report.violations
    assert all("found" in violation.problem for violation in report.violations)
