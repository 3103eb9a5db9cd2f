"""What a worker costs while nothing is to be done: many tasks wait, and a process looks after them.

    python -m bench.idle sqlite --tasks 10000 --seconds 30

The store is `sqlite`, `postgres`, a URL, or SQLite with the engine `temporal` or `restate`;
servers are started for it. Prints the share of a core that the worker uses, and its memory, files
and threads at the beginning and at the end. The tasks are made first, if there are not as many.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from holdfast import Holdfast, Worker, sleep, task
from holdfast.engines.port import Engine
from tests.crash.chaos import ON
from tests.stores.postgres_server import PostgresServer

AT_ONCE = 8
"""How many tasks are handed to an engine at a time, which does not answer at once."""

_TICKS = os.sysconf("SC_CLK_TCK")


@task
def waiting_long() -> None:
    sleep(7 * 24 * 3600)


def make(url: str, count: int, engine: Engine | None) -> None:
    """See to it that so many tasks wait."""
    with Holdfast(url, engine=engine) as hf:
        there = len(list(hf.tasks(limit=None)))

        def start(number: int) -> None:
            hf.start(waiting_long, id=f"waiting-{number}")

        with ThreadPoolExecutor(AT_ONCE if engine else 1) as starters:
            for _ in starters.map(start, range(there, count)):
                pass
        if engine is None:
            Worker(hf, concurrency=64).run_until_idle()


def settled(url: str) -> None:
    """Wait until every task sleeps: the worker has driven it there."""
    with Holdfast(url) as hf:
        while True:
            waiting = hf.page(status=["pending", "in_progress"], limit=1000)
            late = [one for one in waiting.tasks if not hf.task(one.id).calls]
            if not late and waiting.next is None:
                return
            if not late and not hf.page(status="pending", limit=1).tasks:
                return
            time.sleep(10)


def until_it_drives(worker: subprocess.Popen[str], said: str) -> None:
    """Wait until a worker says that it has begun; what it says later goes nowhere."""
    assert worker.stderr is not None
    for line in worker.stderr:
        if said in line:
            break
    threading.Thread(target=worker.stderr.read, daemon=True).start()


def used(pid: int) -> tuple[float, int, int, int]:
    """Seconds of processor time, resident kB, open files and threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS
    rss_kb = int(fields[21]) * os.sysconf("SC_PAGE_SIZE") // 1024
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return cpu_s, rss_kb, files, int(fields[17])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", metavar="STORE")
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="idle-") as name, ExitStack() as stack:
        folder, engine, options, url = Path(name), None, tuple[str, ...](), given.url
        os.chmod(folder, 0o755)
        if given.url in ("sqlite", *ON):
            url = f"sqlite:///{folder}/idle.db"
        if given.url in ON:
            engine, options, _ = ON[given.url](folder, stack)
        if given.url == "postgres":
            (folder / "server").mkdir()
            server = PostgresServer(folder / "server")
            server.start()
            stack.callback(server.stop)
            url = server.new_database()
        measure(url, given.tasks, given.seconds, engine, options)


def measure(
    url: str, tasks: int, seconds: float, engine: Engine | None, options: Sequence[str]
) -> None:
    """Print what a worker costs that has nothing to do."""
    began = time.monotonic()
    if engine is None:
        make(url, tasks, engine)
    command = [sys.executable, "-m", "holdfast", "worker", "--app", "bench.idle"]
    worker = subprocess.Popen([*command, "--url", url, *options], stderr=subprocess.PIPE, text=True)
    until_it_drives(worker, "drives tasks" if engine else "looks for tasks")
    try:
        if engine is not None:  # some take a task only if it is known who drives it
            make(url, tasks, engine)
            print(f"{tasks} tasks started in {time.monotonic() - began:.0f} s", flush=True)
        settled(url)
        print(f"{tasks} tasks wait, made in {time.monotonic() - began:.0f} s", flush=True)
        time.sleep(45)  # it starts, and looks around
        before = used(worker.pid)
        time.sleep(seconds)
        after = used(worker.pid)
    finally:
        worker.terminate()
        worker.wait()
    share = (after[0] - before[0]) / seconds
    print(f"{share:.2%} of a core; memory {before[1]} → {after[1]} kB, files {before[2]} → "
          f"{after[2]}, threads {before[3]} → {after[3]}")  # fmt: skip


if __name__ == "__main__":
    main()
