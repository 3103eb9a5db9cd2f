"""The scripted model of the support agent, in a process of its own: until its stdin closes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from examples.support.script import script
from examples.trip.client import ROOT
from holdfast.testing.scripted import ScriptedModel


@contextmanager
def start_model() -> Iterator[str]:
    """Start it; yields its URL. It ends with the block, or with us."""
    command = [sys.executable, "-m", "tests.crash.support_model"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


if __name__ == "__main__":
    with ScriptedModel(script) as server:
        print(server.url, flush=True)
        sys.stdin.read()
