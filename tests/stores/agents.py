"""Agents for the tests of stores, and the processes that run them.

python -m tests.stores.agents <what> <url> …
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from holdfast import Artifact, Holdfast, HoldfastError, ask, each, keep, start, step, task, tool
from holdfast.log.store_calls import acquire_one, sync_one
from holdfast.stores import open_store
from holdfast.stores.port import Store


@step(name="stored_add")
def add(a: int, b: int) -> int:
    return a + b


@step(name="stored_double")
async def double(x: int) -> int:
    await asyncio.sleep(0)
    return 2 * x


@task(name="stored_adding")
def adding(upto: int) -> int:
    total = 0
    for n in range(1, upto + 1):
        total = add(total, n)
    return total


@task(name="stored_doubling")
async def doubling(upto: int) -> list[int]:
    first = await asyncio.gather(*(double(x) for x in range(upto)))
    return list(await each(double, first, workers=3))


@task(name="stored_echoing")
def echoing(text: str) -> str:
    return text


@step(name="stored_keep")
def kept(megabytes: int) -> Artifact:
    return keep(b"0123456789abcdef" * (1 << 16) for _ in range(megabytes))


@task(name="stored_keeping")
def keeping(megabytes: int) -> list[Artifact]:
    """One artifact many times: the result is too large for a line, and names it in a blob."""
    return [kept(megabytes)] * 500


@task(name="stored_family")
def family(sizes: list[int]) -> list[int]:
    children = [start(adding, size) for size in sizes]
    return [child.result() for child in children]


@task(name="stored_careful")
def careful(what: str) -> str:
    return f"{what}: {'yes' if ask(f'{what}?', bool) else 'no'}"


@step(name="stored_large")
def large(megabytes: int) -> str:
    return "0123456789abcdef" * (megabytes << 16)


@task(name="stored_hoarding")
def hoarding(megabytes: int) -> int:
    return len(large(megabytes))


def write_mark(folder: str, name: str) -> None:
    with open(Path(folder) / "marks", "a") as marks:
        marks.write(f"{name}\n")


@tool(in_doubt="retry", name="stored_mark")
def mark(folder: str, name: str) -> str:
    write_mark(folder, name)
    return name


@tool(in_doubt="retry", name="stored_wait_for")
def wait_for(folder: str, name: str) -> str:
    """Say that it waits, and wait until somebody makes a file of that name."""
    write_mark(folder, f"waits for {name}")
    while not (Path(folder) / name).exists():
        time.sleep(0.01)
    return name


@task(name="stored_patient")
def patient(folder: str) -> list[str]:
    return [mark(folder, "first"), wait_for(folder, "go"), mark(folder, "last")]


@task(name="stored_watched")
def watched(folder: str) -> list[str]:
    return [wait_for(folder, "one"), wait_for(folder, "two")]


@step(name="stored_forever")
async def forever() -> None:
    print("at work", flush=True)
    await asyncio.sleep(600)


@task(name="stored_endless")
async def endless() -> None:
    await forever()


def run_patient(url: str, folder: str) -> None:
    """Run a task until it is told to go on, or killed."""
    with Holdfast(url) as hf:
        print(hf.run(patient, folder, id="patient"), flush=True)


def run_endless(url: str) -> None:
    """Run a task that only somebody else ends."""
    with Holdfast(url) as hf:
        try:
            hf.run(endless, id="endless")
        except HoldfastError as error:
            print(type(error).__name__, flush=True)


def run_many(url: str, name: str) -> None:
    """Run 50 tasks at once."""

    async def main(hf: Holdfast) -> list[list[int]]:
        runs = [hf.arun(doubling, 4, id=f"{name}-{n}") for n in range(50)]
        return await asyncio.gather(*runs)

    with Holdfast(url) as hf:
        print(asyncio.run(main(hf)) == [[0, 4, 8, 12]] * 50, flush=True)


def start_adding(url: str, id: str) -> None:
    """Make a task, and leave it to a worker."""
    with Holdfast(url) as hf:
        hf.start(adding, 3, id=id)
        print("started", flush=True)


def answer(url: str, id: str, given: str) -> None:
    """Answer a question."""
    with Holdfast(url) as hf:
        hf.answer(id, given == "yes")


def write_when_told(url: str) -> None:
    """Hold a stream for a moment, and write to it again whenever a line comes in."""
    store: Store = open_store(url)
    lease = acquire_one(store, "tasks/t", "the one that freezes", 0.2)
    store.append(lease, 0, [b'{"id":"t"}'])
    sync_one(store, lease)
    print("ready", flush=True)
    for seq, _ in enumerate(sys.stdin, 1):
        try:
            store.append(lease, seq, [b"from the frozen one"])
            sync_one(store, lease)
            print("acknowledged", flush=True)
        except HoldfastError as error:
            print(type(error).__name__, flush=True)


if __name__ == "__main__":
    commands = (run_patient, run_endless, run_many, start_adding, answer, write_when_told)
    {command.__name__: command for command in commands}[sys.argv[1]](*sys.argv[2:])
