"""How long a fresh process needs to get past n recorded steps.

`python -m bench.resume record N FOLDER` runs a task that does n steps and then fails;
`python -m bench.resume resume N FOLDER` retries it and prints the seconds as JSON.
"""

import json
import sys
import time
from pathlib import Path

from holdfast import Holdfast, TaskFailed, step, task

calls: list[int] = []


@step
def add(x: int) -> int:
    calls.append(x)
    return x + 1


@task
def count_then_fail(n: int, flag: str) -> int:
    x = 0
    for _ in range(n):
        x = add(x)
    if Path(flag).exists():
        raise RuntimeError("told to fail, so that there is something to resume")
    return x


def record(n: int, folder: Path) -> None:
    flag = folder / "fail"
    flag.touch()
    with Holdfast(folder / "workspace") as hf:
        try:
            hf.run(count_then_fail, n, str(flag), id="bench")
        except TaskFailed:
            flag.unlink()
            return
    raise AssertionError("the task was to fail and did not")


def resume(n: int, folder: Path) -> float:
    start = time.perf_counter()
    with Holdfast(folder / "workspace") as hf:
        result = hf.retry("bench")
        seconds = time.perf_counter() - start
    assert result == n
    assert not calls, f"{len(calls)} recorded steps ran again"
    return seconds


def main() -> None:
    what, n, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    if what == "record":
        record(n, folder)
    else:
        print(json.dumps({"seconds": resume(n, folder)}))


if __name__ == "__main__":
    main()
