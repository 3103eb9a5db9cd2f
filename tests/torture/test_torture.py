"""A bounded run of every part of the torture: `make torture` is the long one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.torture.parts import parts

ROOT = Path(__file__).parents[2]
TOGETHER = ["postgres", "seeded bug, damage", "seeded bug, modelled"]
"""Those that share a server, or a process because they are short."""
EACH = [part.name for part in parts() if not any(each in part.name for each in TOGETHER)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [*EACH, *TOGETHER])
def test_nothing_acknowledged_is_lost_and_every_seeded_bug_is_caught(name, tmp_path):
    report = tmp_path / "report.json"
    # A process of its own: it forks, which one with threads had better not.
    command = [sys.executable, "-m", "tests.torture", "--bounded", "--seed", "1", "--only", name]
    done = subprocess.run(
        [*command, "--json", str(report)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(report.read_text())["parts"]
    if all("skipped" in part for part in found):
        pytest.skip(found[0]["skipped"])
    assert sum(part["rounds"] for part in found if "rounds" in part) > 0
