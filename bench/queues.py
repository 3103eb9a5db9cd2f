"""Queues: what limits cost a worker, and whether a long line makes anything slower.

    python -m bench.queues [tasks] [line]

The throughput of a worker on SQLite without a queue, with one, and with all limits on; then
starting a task and taking places with a short and with a long line. `make bench ARGS="--aims"`
asks for one of these at a time: `drive KIND TASKS FOLDER`, `line LENGTH URL`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from holdfast import Holdfast, Queue, Rate, Worker, step, task
from holdfast.engines.local.desk import Desk

LIMITS = Queue("q", concurrency=16, key_concurrency=8, rate=Rate(1e6), key_rate=Rate(1e6))
KINDS = {"no queue": None, "a queue": Queue("plain"), "all limits": LIMITS}


@step
def look(n: int) -> int:
    return n


@task(name="bench_queued")
def queued(n: int) -> int:
    return sum(look(n) for _ in range(10))


def throughput(folder: Path, tasks: int, queue: Queue | None) -> float:
    """Tasks of ten steps a second, by one worker that has them all in front of it."""
    with Holdfast(f"sqlite:///{folder}/{queue.name if queue else 'none'}.db") as hf:
        options = hf.options()
        for n in range(tasks):
            if queue is not None:
                hf.queue(queue)
                options = hf.options(queue=queue.name, key=f"k{n % 4}")
            options.start(queued, n)
        began = time.perf_counter()
        Worker(hf).run_until_idle()
        return tasks / (time.perf_counter() - began)


def in_line(url: str, line: int) -> tuple[float, float]:
    """Milliseconds of a start, and of taking ten places, with so many tasks in line."""
    with Holdfast(url, sync=False) as hf:
        hf.queue(Queue("q", concurrency=10))
        options = hf.options(queue="q")
        for n in range(line):
            options.start(queued, n)
        started, took = list[float](), list[float]()
        for n in range(20):
            began = time.perf_counter()
            options.start(queued, n)
            started.append(time.perf_counter() - began)
        desk = Desk(hf._holding, lambda text: None)
        for _ in range(10):
            began = time.perf_counter()
            taken = desk.take(10, lambda id, facts: True)
            took.append(time.perf_counter() - began)
            for id, _facts in taken:
                desk.ended(id)
                options.start(queued, 0)  # the line stays as long as it is
        return median(started) * 1000, median(took) * 1000


def main(given: list[str]) -> None:
    if given[:1] == ["drive"]:
        per_s = throughput(Path(given[3]), int(given[2]), KINDS[given[1]])
        print(json.dumps({"tasks_per_s": per_s}))
        return
    if given[:1] == ["line"]:
        start_ms, take_ms = in_line(given[2], int(given[1]))
        print(json.dumps({"start_ms": start_ms, "take_ms": take_ms}))
        return
    tasks = int(given[0]) if given else 200
    longest = int(given[1]) if len(given) > 1 else 5_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = {kind: throughput(folder, tasks, queue) for kind, queue in KINDS.items()}
        for kind, per_s in found.items():
            print(f"{kind:12} {per_s:7.0f} tasks/s  {per_s / found['no queue']:.2f} of no queue")
        for line in (100, longest):
            start_ms, take_ms = in_line(f"sqlite:///{folder}/line{line}.db", line)
            print(f"{line:7,} in line: start {start_ms:.2f} ms, take ten places {take_ms:.2f} ms")


if __name__ == "__main__":
    main(sys.argv[1:])
