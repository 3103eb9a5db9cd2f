"""A task whose worker is stopped in the middle of a step, and comes back."""

from __future__ import annotations

import os
import time
from pathlib import Path

from holdfast import step, task, tool


def _write(folder: str, name: str) -> None:
    with Path(folder, name).open("a") as file:
        file.write(f"{os.getpid()}\n")


@step
def stopping_step(folder: str) -> int:
    _write(folder, "begun")
    while not Path(folder, "go").exists():
        time.sleep(0.02)
    _write(folder, "ended")
    return os.getpid()


@tool
def stopping_effect(folder: str, who: int) -> int:
    _write(folder, "effects")
    return who


@task
def stopping(folder: str) -> int:
    return stopping_effect(folder, stopping_step(folder))
