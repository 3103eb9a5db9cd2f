"""Commands that are run for a script: what they hear of the signals that we are sent."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.workspace import process
from holdfast.workspace.process import Signals, run_command

CATCHES = "trap 'echo caught; exit 3' TERM; touch ready; while :; do sleep 0.05; done"


@pytest.fixture
def told_at_once(monkeypatch, tmp_path):
    """We are told to end when the command runs already, and `Popen` has not returned yet."""
    monkeypatch.chdir(tmp_path)
    start = subprocess.Popen

    def started(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        try:
            made = start(*args, **options)
            while not Path("ready").exists():
                time.sleep(0.01)
            return made
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(process.subprocess, "Popen", started)


def test_a_signal_that_comes_while_the_command_starts_is_sent_on(told_at_once):
    signals = Signals()
    with signals.heard(), run_command(["sh", "-c", CATCHES], signals=signals) as ran:
        ran.stdout.file.seek(0)
        assert (ran.stdout.file.read(), ran.exit_code) == (b"caught\n", 3)
        assert ran.interrupted == signal.SIGTERM


def test_without_a_command_that_could_hear_it_it_interrupts_us(told_at_once):
    signals = Signals()
    with signals.heard(), pytest.raises(KeyboardInterrupt):
        run_command(["./no-such-command"], signals=signals)
    assert signals.got == signal.SIGTERM
