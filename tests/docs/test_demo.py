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
