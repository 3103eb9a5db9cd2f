"""What the readable files of a workspace cost a task of durable steps.

`python -m bench.projections on|off STEPS FOLDER` is one measurement: the time of the task, the time
until the workspace is closed (the last files are written then), and the CPU of the process.
"""

import json
import sys
import time

from holdfast import Holdfast, step, task


@step
def add(x: int) -> int:
    return x + 1


@task
def count(n: int) -> int:
    x = 0
    for _ in range(n):
        x = add(x)
    return x


def main() -> None:
    which, steps, place = sys.argv[1:]
    with Holdfast(f"{place}/warm", projections=which == "on") as hf:
        hf.run(count, 20, id="warm")  # what is loaded once is not the cost of a step
    cpu, began = time.process_time(), time.perf_counter()
    with Holdfast(f"{place}/workspace", projections=which == "on") as hf:
        hf.run(count, int(steps), id="one")
        seconds = time.perf_counter() - began
    closed = time.perf_counter() - began
    print(
        json.dumps(
            {
                "seconds": seconds,
                "closed_seconds": closed,
                "cpu_seconds": time.process_time() - cpu,
            }
        )
    )


if __name__ == "__main__":
    main()
