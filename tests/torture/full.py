"""Full disks, files that may not grow, and writes that the system cuts short."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

from msgspec import Struct

from holdfast.errors import StoreError
from holdfast.stores.files.disk import Disk
from holdfast.stores.port import Store
from tests.torture.hand import Hand
from tests.torture.model import fast_folder
from tests.torture.power import STORES, Mounted
from tests.torture.process import Process, Tell, is_clear
from tests.torture.promises import Promises, broken

_STREAMS = [f"tasks/{number}" for number in range(4)]


class Filled(Struct):
    """What a disk was left with that had no room any more."""

    acknowledged: int
    refused: int
    """How often the writer was told so."""
    broken: list[str]


def full_disks(system: str, kind: str, seed: str) -> Iterator[Filled]:
    """Fill a file system under a writer, which goes on trying; make room, and look."""
    chance, number = Random(seed), 0
    with Mounted(system) as mounted:
        while True:
            folder = mounted.folder / str(number)
            folder.mkdir()
            left_bytes = chance.randint(100_000, 1_500_000)
            store = STORES[kind](folder, "")  # its first bytes are there, as they would be
            store.close()
            ballast = mounted.folder / "ballast"
            _fill(ballast, left_bytes)
            writer = Process(lambda tell: _try(folder, kind, f"{seed} {number}", tell))  # noqa: B023
            writer.end()
            ballast.unlink()
            yield _judged(folder, kind, writer)
            shutil.rmtree(folder)
            number += 1


def files_that_may_not_grow(kind: str, seed: str) -> Iterator[Filled]:
    """Let a file grow to some size only: the write that reaches it is cut short, the next fails."""
    chance = Random(seed)
    while True:
        folder = fast_folder()
        try:
            store = STORES[kind](folder, "")
            store.close()
            most_bytes = chance.randint(2_000, 60_000) * (20 if kind == "sqlite" else 1)
            words = f"{seed} {most_bytes}"
            writer = Process(lambda tell: _try(folder, kind, words, tell, most_bytes))  # noqa: B023
            writer.end()
            yield _judged(folder, kind, writer)
        finally:
            shutil.rmtree(folder)


def _fill(ballast: Path, left_bytes: int) -> None:
    """Fill a disk with the largest file that fits, and cut that to make some room."""
    fd = os.open(ballast, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        room = os.fstatvfs(fd)
        size = room.f_bfree * room.f_frsize
        while True:
            try:
                os.posix_fallocate(fd, 0, size)
                break
            except OSError:  # some of it is for the file system's own use
                size -= 16 << 10
        os.ftruncate(fd, max(0, size - left_bytes))
        os.fsync(fd)
    finally:
        os.close(fd)


def _try(folder: Path, kind: str, seed: str, tell: Tell, most_bytes: int = 0) -> None:
    """Write until it was refused a few times, and a little more."""
    if most_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    store = STORES[kind](folder, "")
    chance = Random(seed)
    hand = Hand(store, "hand", chance, tell, 0.5)
    refused = 0
    for _ in range(3000):
        try:
            hand.act(_STREAMS)
        except StoreError as error:
            refused += 1
            tell(["failed", f"{type(error).__name__}: {error}"])
            for stream in list(hand.held):
                store.release([hand.held.pop(stream).lease])
        if refused == 8:
            break
    store.close()


def _judged(folder: Path, kind: str, writer: Process) -> Filled:
    promises = Promises(writer.marks)
    count = promises.count
    store: Store = STORES[kind](folder, "")
    try:
        found = broken(store, promises)
    finally:
        store.close()
    said = [*promises.failures, *([writer.last_words] if writer.last_words else [])]
    found += [f"it was not told what failed: {words}" for words in said if not is_clear(words)]
    return Filled(count, len(promises.failures), found)


class Short(Disk):
    """A disk that takes only a part of what it is given, as the system may."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def write_some(self, fd: int, data: bytes) -> int:
        return super().write_some(fd, data[: self._chance.randint(1, len(data))])
