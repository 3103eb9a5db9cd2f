"""An integration without its framework, or with a version that nobody tried, says what to do."""

from __future__ import annotations

import importlib
import re
import sqlite3
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from holdfast.integrations.frameworks import FrameworkMissing, FrameworkUntested
from tests.thorough import THOROUGH

ROOT = Path(__file__).parents[2]

INTEGRATIONS = {
    "langchain": ("langchain", ">=1.4,<1.6", ("1.3.9", "1.6.0")),
    "langgraph": ("langgraph", ">=1.2,<1.3", ("1.1.9", "1.3.0")),
    "pydantic_ai": ("pydantic-ai-slim", ">=2.66,<3", ("2.65.9", "3.0.0")),
    "adk": ("google-adk", ">=2.13,<3", ("2.12.1", "3.0")),
    "mcp": ("mcp", ">=2.3,<3", ("2.2.9", "3.0")),
    "openai_agents": ("openai-agents", ">=0.24,<0.25", ("0.23.4", "0.25.0")),
}


def imported(name: str):
    sys.modules.pop(f"holdfast.integrations.{name}", None)
    return importlib.import_module(f"holdfast.integrations.{name}")


@pytest.mark.parametrize("name", INTEGRATIONS)
def test_without_its_framework_an_integration_names_the_extra(name, monkeypatch):
    package, tested, _ = INTEGRATIONS[name]
    version = metadata.version

    def missing(asked: str) -> str:
        if asked == package:
            raise metadata.PackageNotFoundError(asked)
        return version(asked)

    monkeypatch.setattr(metadata, "version", missing)
    monkeypatch.delitem(sys.modules, f"holdfast.integrations.{name}", raising=False)
    with pytest.raises(FrameworkMissing) as refused:
        imported(name)
    assert f"{package}{tested}" in str(refused.value)
    assert f"pip install 'holdfast[{name}]'" in str(refused.value)


@pytest.mark.parametrize("name", INTEGRATIONS)
@pytest.mark.parametrize("which", [0, 1])
def test_an_untried_version_is_refused_with_the_range_that_was_tested(name, which, monkeypatch):
    package, tested, versions = INTEGRATIONS[name]
    version = metadata.version
    monkeypatch.setattr(
        metadata, "version", lambda asked: versions[which] if asked == package else version(asked)
    )
    monkeypatch.delitem(sys.modules, f"holdfast.integrations.{name}", raising=False)
    with pytest.raises(FrameworkUntested) as refused:
        imported(name)
    assert tested in str(refused.value) and versions[which] in str(refused.value)


# A moment at which the framework alone repeats an effect: right after the first one.
REPEATS = "2"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name in INTEGRATIONS if name != "mcp"])  # no framework
def test_killed_at_the_same_moments_a_framework_alone_repeats_effects_and_ours_does_not(name):
    needs_newer = sys.version_info >= (3, 12) and sqlite3.sqlite_version_info < (3, 42)
    if name == "pydantic_ai" and needs_newer:
        pytest.skip("DBOS, which it is compared with, needs SQLite 3.42 from Python 3.12 on")
    script = f"examples.frameworks.{name}_killed"
    words = [] if THOROUGH else [REPEATS]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", script, *words],
        check=False, capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = re.search(
        r"(\d+) effects were to be made; .* made (\d+), .* made (\d+)$", done.stdout, re.M
    )
    assert said is not None, done.stdout
    needed, alone, ours = map(int, said.groups())
    assert ours == needed < alone
