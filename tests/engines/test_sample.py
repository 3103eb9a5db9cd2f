"""`make engine` is what who tries an engine sees first: it runs, and ends by itself if told to."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.testing.servers import (
    RestateServer,
    TemporalServer,
    restate_server,
    temporal_server,
)
from tests.engines.servers import need

ROOT = Path(__file__).parents[2]


def need_server_of(engine: str) -> None:
    if engine == "temporal":
        need(TemporalServer, temporal_server())
    else:
        need(RestateServer, restate_server())


@pytest.mark.parametrize("engine", ["temporal", "restate"])
def test_the_sample_agent_asks_is_answered_and_publishes(engine: str, tmp_path: Path) -> None:
    need_server_of(engine)
    folder = tmp_path / "sample"
    done = subprocess.run(
        [sys.executable, "-m", "examples.cluster", engine, "--once", "--folder", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "published as report-1.md" in done.stdout
    assert re.search(r"look_up +step +completed, 2 tries", done.stdout), "it fails once"
    assert re.search(r"runs, with its data in .*\n  http://127.0.0.1:\d+/", done.stdout)
    assert "says the harbour" in (folder / "report-1.md").read_text()
    with Holdfast(f"sqlite:///{folder}/store.db") as hf:
        state = hf.task("report-1").state
        assert (state.status, state.driver) == ("completed", engine)
