"""What a worker costs while nothing is to be done: many tasks wait, and a process looks after them.

    python -m bench.idle sqlite:////tmp/idle.db --tasks 10000 --seconds 30

Prints the share of a core that the worker uses, and its memory, files and threads at the beginning
and at the end. The tasks are made first, if the store has not as many.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from holdfast import Holdfast, Worker, sleep, task

_TICKS = os.sysconf("SC_CLK_TCK")


@task
def waiting_long() -> None:
    sleep(7 * 24 * 3600)


def make(url: str, count: int) -> None:
    """See to it that so many tasks wait."""
    with Holdfast(url) as hf:
        there = len(list(hf.tasks(limit=None)))
        for number in range(there, count):
            hf.start(waiting_long, id=f"waiting-{number}")
        Worker(hf, concurrency=64).run_until_idle()


def used(pid: int) -> tuple[float, int, int, int]:
    """Seconds of processor time, resident kB, open files and threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS
    rss_kb = int(fields[21]) * os.sysconf("SC_PAGE_SIZE") // 1024
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return cpu_s, rss_kb, files, int(fields[17])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args()
    began = time.monotonic()
    make(given.url, given.tasks)
    print(f"{given.tasks} tasks wait, made in {time.monotonic() - began:.0f} s", flush=True)
    command = [sys.executable, "-m", "holdfast", "worker", "--app", "bench.idle", "-q"]
    worker = subprocess.Popen([*command, "--url", given.url])
    try:
        time.sleep(8)  # it starts, and looks around
        before = used(worker.pid)
        time.sleep(given.seconds)
        after = used(worker.pid)
    finally:
        worker.terminate()
        worker.wait()
    share = (after[0] - before[0]) / given.seconds
    print(f"{share:.2%} of a core; memory {before[1]} → {after[1]} kB, files {before[2]} → "
          f"{after[2]}, threads {before[3]} → {after[3]}")  # fmt: skip


if __name__ == "__main__":
    main()
