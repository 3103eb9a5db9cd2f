"""What the tests of many open tasks run in processes of their own.

python -m tests.stores.open_tasks <what> <folder> …
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from pathlib import Path

from holdfast import Holdfast, HoldfastError, step, task
from holdfast.log.store_calls import acquire_one, sync_one
from holdfast.stores.files.store import FileStore


def with_few_files() -> None:
    """Let this process open no more than 1,024 files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))


def hold_many(folder: str, count: str) -> None:
    """Hold many streams at once, and write to each of them twice."""
    with_few_files()
    store = FileStore(Path(folder))
    streams = [f"tasks/t-{n}" for n in range(int(count))]
    leases = [acquire_one(store, stream, "me", 600) for stream in streams]
    for seq in range(2):
        for lease in leases:
            store.append(lease, seq, [b'{"id":"%s","n":%d}' % (lease.stream[6:].encode(), seq)])
        for lease in leases:
            sync_one(store, lease)
            store.renew(lease)
    print("open files:", len(os.listdir("/proc/self/fd")), flush=True)
    sys.stdin.read()
    store.close()


@step(name="open_tasks_one")
async def one(n: int) -> int:
    return n


@task(name="open_tasks_meeting")
async def meeting(n: int) -> int:
    """Wait until all are here."""
    first = await one(n)
    arrived.append(n)
    if len(arrived) == expected:
        print("open files:", len(os.listdir("/proc/self/fd")), flush=True)
        everybody.set()
    await everybody.wait()
    return first + await one(n)


arrived: list[int] = []
everybody = asyncio.Event()
expected = 0


def run_many(folder: str, count: str) -> None:
    """Run many tasks that are all under way at the same time."""
    global expected
    with_few_files()
    expected = int(count)

    async def main(hf: Holdfast) -> list[int]:
        return await asyncio.gather(*(hf.arun(meeting, n, id=f"m-{n}") for n in range(expected)))

    with Holdfast(folder) as hf:
        print(asyncio.run(main(hf)) == [2 * n for n in range(expected)], flush=True)


def write_when_told(folder: str, others: str) -> None:
    """Hold a stream for a moment and some others for long, and write whenever a line comes in."""
    if int(others):  # so few files that the first log is closed again
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 1024))
    store = FileStore(Path(folder))
    lease = acquire_one(store, "tasks/t", "the one that freezes", 0.2)
    store.append(lease, 0, [b'{"id":"t"}'])
    sync_one(store, lease)
    for n in range(int(others)):
        acquire_one(store, f"tasks/other-{n}", "me", 600)
    print("ready", flush=True)
    for seq, _ in enumerate(sys.stdin, 1):
        try:
            store.append(lease, seq, [b"from the frozen one"])
            sync_one(store, lease)
            print("acknowledged", flush=True)
        except HoldfastError as error:
            print(type(error).__name__, flush=True)


def hold_and_fork(folder: str) -> None:
    """Hold a stream, and leave a child behind that lives on."""
    store = FileStore(Path(folder))
    acquire_one(store, "tasks/t", "the parent", 600)
    child = os.fork()
    if child == 0:
        acquire_one(store, "tasks/of-the-child", "the child", 600)
        print(os.getpid(), flush=True)
    time.sleep(60)


if __name__ == "__main__":
    {f.__name__: f for f in (hold_many, run_many, write_when_told, hold_and_fork)}[sys.argv[1]](
        *sys.argv[2:]
    )
