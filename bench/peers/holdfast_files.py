"""Holdfast in a folder of files, every result synced: a task of n steps."""

import time
from pathlib import Path

from holdfast import Holdfast, step, task

notes = ["files, one fdatasync a step"]


@step
def add(x: int) -> int:
    return x + 1


@task
def count(n: int) -> int:
    x = 0
    for _ in range(n):
        x = add(x)
    return x


def run(n: int, folder: Path, *, sync: bool = True) -> float:
    with Holdfast(folder / "workspace", sync=sync) as hf:
        start = time.perf_counter()
        result = hf.run(count, n, id="bench")
        seconds = time.perf_counter() - start
    assert result == n
    return seconds
