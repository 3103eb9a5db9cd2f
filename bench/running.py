"""A measurement is a process of its own: this starts it, and reads what it found.

A failed measurement raises `Failed`, so that it loses itself and not the run.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

Json = dict[str, Any]


class Failed(Exception):
    """A measurement did not come to its end."""


def child(module: str, *arguments: str, at_most_s: float = 300) -> Json:
    """Run a module of ours in a new process; its last line of output is the answer."""
    command = [sys.executable, "-m", module, *arguments]
    name = f"{module} {' '.join(arguments)}"
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=at_most_s
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{name} took more than {at_most_s:.0f} s") from None
    if done.returncode:
        raise Failed(f"{name} failed:\n{done.stderr}")
    answer: Json = json.loads((done.stdout.splitlines() or ["{}"])[-1])
    return answer


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
