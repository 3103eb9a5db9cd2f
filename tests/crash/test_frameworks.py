"""The agents of the frameworks, killed at every boundary, say the same and do each effect once.

Their tools are settled by key, by a check and by a person; on files and on PostgreSQL.
"""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from holdfast.testing.crash import Report
from tests.crash.test_everywhere import ROOT, kill_everywhere, must_be_unharmed
from tests.stores.postgres_server import postgres_server, postgres_url
from tests.thorough import THOROUGH, every

__all__ = ["postgres_server", "postgres_url"]

AGENTS = "tests.crash.framework_agents"
NTH = {"langgraph": 97, "langchain": 97, "adk": 97}
"""How few of the boundaries are tried, unless it is every 47th."""
FRAMEWORKS = ["pydantic_ai", "openai_agents", "adk", "langgraph", "langchain"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_same_answer_and_each_effect_once_on_files(framework):
    report = kill_everywhere(f"{AGENTS}:{framework}", *every(NTH.get(framework, 47)))
    must_be_unharmed(report, 30)
    assert report.boundaries["before an effect"] == report.boundaries["after an effect"] == 3


@pytest.mark.timeout(600)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_same_answer_and_each_effect_once_on_postgresql(framework, postgres_url):
    nth = 1 if THOROUGH else NTH.get(framework, 47)
    command = [sys.executable, "-m", "tests.crash.on_postgres"]
    done = subprocess.run(
        [*command, f"{AGENTS}:{framework}", postgres_url, str(nth)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    report = msgspec.json.decode(done.stdout.splitlines()[-1], type=Report)
    must_be_unharmed(report, 20)


@pytest.mark.timeout(300)
def test_the_harness_catches_an_intent_that_comes_too_late():
    report = kill_everywhere(f"{AGENTS}:pydantic_ai", "--no-intent", "--fail-fast", *every(5))
    assert report.violations
