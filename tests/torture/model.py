"""Modelled crashes of the file store: record a few hands at work, crash everywhere, recover.

The recording is made by a process that is gone by the time of the "crash", as it would be.

    python -m tests.torture.model SEED ACTS BUG FOLDER     record, onto stdout
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec

from holdfast.errors import HoldfastError
from holdfast.stores.files import FileStore
from tests.torture.crashes import Medium, State, states
from tests.torture.hand import Hand
from tests.torture.promises import Promises, broken
from tests.torture.recording import Operation, Recorder, Said

ROOT = Path(__file__).parents[2]
WORKSPACE = "made/by us"
"""Below the folder that is there: that the way to it lasts is part of the promise."""


def fast_folder() -> Path:
    """A new folder, in memory where there is such a place."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="holdfast-torture-", dir=memory if memory.is_dir() else None))


def record(seed: str, acts: int, bug: str = "") -> list[Operation]:
    """What hands do to a disk: three streams, two hands that take them from each other."""
    folder = fast_folder()
    try:
        command = [sys.executable, "-m", "tests.torture.model", seed, str(acts), bug, str(folder)]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=60)
        return msgspec.msgpack.decode(done.stdout, type=list[Operation])
    finally:
        shutil.rmtree(folder)


def _work(seed: str, acts: int, bug: str, folder: Path) -> list[Operation]:
    chance = Random(seed)
    disk = Recorder(folder, bug)
    stores = [FileStore(folder / WORKSPACE, disk=disk) for _ in range(2)]
    # A lease of no length may be taken over at once: that is how the two get in each other's way.
    hands = [Hand(store, f"hand {n}", chance, disk.say, 0.0) for n, store in enumerate(stores)]
    streams = ["tasks/a", "tasks/b", "tasks/c"]
    for _ in range(acts):
        chance.choices(hands, (3, 1))[0].act(streams)
    return disk.operations


class Crash(msgspec.Struct):
    """A state in which something that was acknowledged is not there, or nobody can go on."""

    after: int
    promises: Promises
    state: State
    broken: list[str]


def crash_states(
    operations: list[Operation], chance: Random, sampled: int
) -> Iterator[tuple[int, list[list[str | int]], State]]:
    """Every state that a crash may leave, once: with the marks that were said by then."""
    medium, marks = Medium(), list[list[str | int]]()
    seen: set[tuple[bytes, int]] = set()
    for number, operation in enumerate(operations, 1):
        medium.do(operation)
        if isinstance(operation, Said):
            marks.append(operation.mark)
        for state in states(medium, chance, sampled):
            key = (state.digest(), len(marks))
            if key not in seen:
                seen.add(key)
                yield number, marks, state


def recover(state: State, marks: list[list[str | int]], place: Path) -> list[str]:
    """What is broken when a store is opened on a state."""
    state.make(place)
    try:
        store = FileStore(place / WORKSPACE)
        try:
            return broken(store, Promises(marks))
        finally:
            store.close()
    except HoldfastError as error:
        return [f"the store does not open: {error}"]
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    found = _work(sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
    sys.stdout.buffer.write(msgspec.msgpack.encode(found))
