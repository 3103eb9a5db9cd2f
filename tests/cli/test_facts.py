"""What `show` and `log` tell of what was read outside, and of what was made of it."""

from __future__ import annotations

import json
import re

import pytest

from holdfast import Holdfast, task
from holdfast.agent import external, fact

from .conftest import run


@external(ttl_s=60)
def cli_rates() -> dict[str, float]:
    return {"EUR": 1.25}


@task
def cli_assess() -> float:
    cli_rates()
    rates = cli_rates.reading()
    return fact("risk score", 2 * rates.value["EUR"], of=rates)


@pytest.fixture
def folder(tmp_path):
    with Holdfast(tmp_path / "workspace") as hf:
        hf.run(cli_assess, id="a-1")
    return tmp_path


def test_facts_are_shown_with_their_age_and_source(folder):
    out = run("show", "a-1", cwd=folder).out
    assert re.search(
        r"^Facts\n +risk_score\+1  risk score = 2\.5\n +as of \S+ \S+.*, by 1$", out, re.M
    )
    assert re.search(r"^2 +cli_rates +step +completed \(as 1 said\)", out, re.M)
    (kept,) = json.loads(run("show", "a-1", "--json", cwd=folder).out)["facts"]
    assert (kept["name"], kept["value"], kept["sources"]) == ("risk score", 2.5, ["1"])


def test_the_log_says_who_answered(folder):
    out = run("log", "a-1", cwd=folder).out
    assert re.search(r"reused +2 +cli_rates +as 1 said$", out, re.M)
    assert re.search(
        r"derived +risk_score\+1 +risk score +risk score = 2\.5, as of .*, by 1$", out, re.M
    )
