"""The demo is what a newcomer sees first: it must run, and tell the truth."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_demo_shows_two_invites_without_us_and_one_with_us():
    done = subprocess.run(
        [sys.executable, "-m", "examples.trip"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"calendar invites +2 +1\b", done.stdout)
    assert "step 6 of 9; steps 1 to 5 are committed" in done.stdout
    assert done.stdout.count("killed (SIGKILL)") == 2
    after = done.stdout.partition("started again, with the same command")[2]
    assert "step 5: pay" not in after
    assert "step 7: send_mail" in after


def test_holdfast_demo_is_the_same_and_leaves_a_store(tmp_path):
    holdfast = [sys.executable, "-m", "holdfast"]
    done = subprocess.run(
        [*holdfast, "demo", "--dir", str(tmp_path / "d")], cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"calendar invites +2 +1\b", done.stdout)
    listed = subprocess.run(
        [*holdfast, "--url", str(tmp_path / "d"), "ls"], cwd=tmp_path, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert "trip-42" in listed.stdout
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine")
    refused = subprocess.run(
        [*holdfast, "demo", "--dir", str(tmp_path / "other")], cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert refused.returncode == 2
    assert (tmp_path / "other" / "mine.txt").read_text() == "mine"
