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
from holdfast.stores.files.store import FileStore
from tests.torture.crashes import Medium, State, states
from tests.torture.hand import Hand
from tests.torture.promises import STUCK, Mark, Promises, broken
from tests.torture.recording import Operation, Recorder, Said

ROOT = Path(__file__).parents[2]
WORKSPACE = "made/by us"
"""Below the folder that is there: that the way to it lasts is part of the promise."""


def fast_folder() -> Path:
    """A new folder, in memory where there is such a place."""
    memory = Path("/dev/shm")
    return Path(
        tempfile.mkdtemp(prefix="holdfast-torture-", dir=memory if memory.is_dir() else None)
    )


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
    """A state that a crash may leave, and what is broken when a store is opened on it."""

    broken: list[str]
    stuck: int = 0
    """Logs with a hole in an append that was never acknowledged: nothing is lost, and a person has
    to look. See docs/decisions/0027-what-a-crash-may-leave.md."""


def crashes(seed: str, bug: str = "", acts: int = 25, most: int = 10) -> Iterator[Crash]:
    """Crashes of one recording after the other: at each operation, up to `most` states."""
    chance, number = Random(seed), 0
    folder = fast_folder()
    try:
        while True:
            name = f"{seed} {number}"
            for after, marks, state in _sampled(record(name, acts, bug), chance, most):
                found = recover(state, marks, folder / "state")
                if state.has_holes and all(STUCK in what for what in found):
                    yield Crash([], stuck=len(found))
                else:
                    where = f"recording {name!r}, after operation {after}"
                    yield Crash([f"{where}: {what}" for what in found])
            number += 1
    finally:
        shutil.rmtree(folder)


def _sampled(
    operations: list[Operation], chance: Random, most: int
) -> Iterator[tuple[int, list[Mark], State]]:
    """States that a crash may leave, each once: after which operation, and with which marks."""
    medium, marks = Medium(), list[Mark]()
    seen: set[tuple[bytes, int]] = set()
    for number, operation in enumerate(operations, 1):
        medium.do(operation)
        if isinstance(operation, Said):
            marks.append(operation.mark)
        found = list(states(medium, chance, 2 * most))
        chance.shuffle(found)
        new = 0
        for state in found:
            key = (state.digest(), len(marks))
            if key not in seen and new < most:
                seen.add(key)
                new += 1
                yield number, marks, state


def recover(state: State, marks: list[Mark], place: Path) -> list[str]:
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
