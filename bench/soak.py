"""Whether a worker stays as it is while it works for long: its memory, open files and threads.

    python -m bench.soak sqlite --minutes 20
    python -m bench.soak postgres --minutes 20

One worker, as `holdfast worker --serve` starts it, drives tasks with steps, tools, children,
timers, questions and retries, so many a second, while somebody answers and reads its metrics.
Prints a line for each minute, then what it had at the beginning and at the end. Exits with 1 if
it grew.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median

from bench.idle import used
from holdfast import Holdfast, HoldfastError, Retry, ask, current, sleep, start, step, task, tool
from holdfast.testing.servers import free_ports
from tests.stores.postgres_server import PostgresServer

SAMPLE_S, WARM_S = 5.0, 300.0
MOST_OPEN = 200
GROWTH = 1.10
"""How much more the worker may have at the end than after its first minutes: caches fill first."""


@step
def soak_step(number: int) -> dict[str, object]:
    return {"number": number, "text": "as much as a page of a book " * 20}


@tool
def soak_tool(number: int) -> str:
    return f"{current().key}"


@step(retry=Retry(attempts=3, delay_s=0.05, jitter=0))
def soak_retry(number: int) -> int:
    if current().attempt < 2:
        raise ConnectionError("not the first time")
    return number


@task
def soak_plain(number: int) -> int:
    for each in range(4):
        soak_step(each)
        soak_tool(each)
    return number


@task
async def soak_async(number: int) -> int:
    soak_step(number)
    return soak_retry(number)


@task
def soak_parent(number: int) -> int:
    children = [start(soak_plain, each) for each in range(2)]
    return sum(child.result() for child in children)


@task
def soak_waits(number: int) -> str:
    sleep(1.0)
    return ask("go on?", str, id="go")


KINDS = (soak_plain, soak_async, soak_parent, soak_waits)


def feed(hf: Holdfast, made: int, wanted: int) -> int:
    """Start tasks until so many were, and be the person who is asked."""
    unfinished = len(hf.page(status=["pending", "in_progress"], limit=MOST_OPEN).tasks)
    while made < wanted and unfinished < MOST_OPEN:
        hf.start(KINDS[made % len(KINDS)], made, id=f"soak-{made}")
        made, unfinished = made + 1, unfinished + 1
    for each in hf.page(status="awaiting_user", limit=200).tasks:
        with suppress(HoldfastError):  # it is not asked yet, or any more
            hf.answer(each.id, "yes", question="go", by="ada")
    return made


def soak(url: str, minutes: float, per_s: float) -> bool:
    """Drive tasks for so long; returns whether the worker stayed as it was."""
    port = next(free_ports())
    command = [sys.executable, "-m", "holdfast", "worker", "--app", "bench.soak", "-q"]
    with Holdfast(url) as hf:
        worker = subprocess.Popen([*command, "--url", url, "--serve", f":{port}"])
        try:
            samples, made = _watch(hf, worker, port, minutes * 60, per_s)
            ended = sum(1 for _ in hf.tasks(status="completed", limit=None))
        finally:
            worker.terminate()
            worker.wait()
    quarter = max(1, len(samples) // 4)
    first, last = samples[:quarter], samples[-quarter:]
    print(f"{made:,} tasks started, {ended:,} completed (with children) in {minutes:g} minutes")
    flat = True
    for place, name, unit in ((1, "memory", " kB"), (2, "files", ""), (3, "threads", "")):
        before, after = (median(sample[place] for sample in part) for part in (first, last))
        most = max(sample[place] for sample in samples)
        flat = flat and after <= before * GROWTH
        print(f"{name}: {before:,.0f} → {after:,.0f}{unit}, at most {most:,.0f}")
    return flat


def _watch(
    hf: Holdfast, worker: subprocess.Popen[bytes], port: int, seconds: float, per_s: float
) -> tuple[list[tuple[float, int, int, int]], int]:
    began, made, samples = time.monotonic(), 0, list[tuple[float, int, int, int]]()
    sampled = said = began
    while (now := time.monotonic()) < began + seconds:
        made = feed(hf, made, int((now - began) * per_s))
        if now - sampled >= SAMPLE_S:
            sampled = now
            with suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read()
            if now - began > min(WARM_S, seconds / 4):
                samples.append(used(worker.pid))
        if now - said >= 60:
            said = now
            cpu_s, rss_kb, files, threads = used(worker.pid)
            about = f"{made:,} tasks, {rss_kb:,} kB, {files} files, {threads} threads"
            print(f"{(now - began) / 60:4.0f} min  {about}, {cpu_s:.0f} s of processor", flush=True)
        time.sleep(0.2)
    return samples, made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", choices=("files", "sqlite", "postgres"))
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--per-second", type=float, default=10.0, help="tasks that are started")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as name, ExitStack() as stack:
        folder = Path(name)
        os.chmod(folder, 0o755)
        url = f"sqlite:///{folder}/soak.db" if given.store == "sqlite" else str(folder / "store")
        if given.store == "postgres":
            (folder / "server").mkdir()
            server = PostgresServer(folder / "server", durable=True)
            server.start()
            stack.callback(server.stop)
            url = server.new_database()
        flat = soak(url, given.minutes, given.per_second)
    sys.exit(0 if flat else "the worker grew")


if __name__ == "__main__":
    main()
