"""A server of MCP is killed at every boundary, and its client gets the one result all the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.thorough import THOROUGH, every

ENDS = {
    "a client": ((), 29),
    "an agent that is killed too": (("--agent",), 37),
    "a client that knows only sessions": (("--session",), 29),
    "the inspector": (("--inspector", "modern"), 23),
    "the inspector, by its session": (("--inspector", "legacy"), 29),
}
"""The clients, and how few of the boundaries are tried, unless all are."""


@pytest.mark.timeout(3600 if THOROUGH else 600)
@pytest.mark.parametrize(("ends", "nth"), ENDS.values(), ids=ENDS)
def test_each_effect_happens_once_wherever_the_server_is_killed(ends, nth):
    command = [sys.executable, "-m", "tests.integrations.mcp_kills", *ends, *every(nth)]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    report = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}
    assert report and not report["violations"] and report["tried"] > 2, (
        report,
        done.stderr[-3000:],
    )
    if "--session" in ends:  # most deaths come after the call: its answer must come to that call
        assert 2 * report["at_once"] > report["tried"], report
