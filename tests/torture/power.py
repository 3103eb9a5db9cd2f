"""Real power cuts: a file system of its own on a loop device, shut down under a writer.

The ioctl makes the file system forget everything that is not on its disk, its own journal buffers
included, as a power cut would. The image lies in memory, so a cut takes milliseconds; what is cut
off is the page cache of the mounted file system, and that is the real one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from msgspec import Struct

from holdfast.stores.files.store import FileStore
from holdfast.stores.port import Store
from holdfast.stores.sqlite.store import SqliteStore
from tests.torture.model import fast_folder
from tests.torture.process import Process, at_work
from tests.torture.promises import Promises, broken
from tests.torture.recording import Broken

_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN are the same number
_WITHOUT_FLUSH = struct.pack("I", 2)

SYSTEMS = {"ext4": ("-F", 96), "xfs": ("-f", 320)}
"""How each is told to take any file, and the size of its image in MiB (xfs takes no smaller)."""

STORES: dict[str, Callable[[Path, str], Store]] = {
    "files": lambda folder, bug: FileStore(folder / "workspace", disk=Broken(bug)),
    "sqlite": lambda folder, bug: SqliteStore(folder / "store.db", sync=not bug),
}

_CUTS_A_FOLDER = 20


def why_not(system: str) -> str:
    """Why there can be no power cuts here; empty if there can."""
    if os.geteuid() != 0:
        return "mounting a file system takes root"
    if not _mkfs(system) or not os.path.exists("/dev/loop-control"):
        return f"there is no mkfs.{system} or no loop device here (see .ci/tools)"
    try:
        with Mounted(system):
            return ""
    except (OSError, subprocess.CalledProcessError) as error:
        return f"can't mount {system} here: {error}"


class Mounted:
    """A file system, mounted while the `with` lasts."""

    def __init__(self, system: str) -> None:
        self._base = fast_folder()
        self._image, self.folder = self._base / "image", self._base / "mounted"
        option, size_mib = SYSTEMS[system]
        self._make = [_mkfs(system) or f"mkfs.{system}", "-q", option, str(self._image)]
        self._size_bytes = size_mib << 20

    def __enter__(self) -> Mounted:
        try:
            self.folder.mkdir()
            with open(self._image, "wb") as image:
                image.truncate(self._size_bytes)
            _run(*self._make)
            self._mount()
        except BaseException:
            shutil.rmtree(self._base)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._unmount()
        shutil.rmtree(self._base)

    def cut(self) -> None:
        """Cut the power, here and now."""
        fd = os.open(self.folder, os.O_RDONLY)
        fcntl.ioctl(fd, _SHUTDOWN, _WITHOUT_FLUSH)
        os.close(fd)

    def come_back(self) -> None:
        """Start again with what is on the disk."""
        self._unmount()
        self._mount()

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.folder))

    def _unmount(self) -> None:
        for left in reversed(range(100)):
            try:
                _run("umount", str(self.folder))
                return
            except subprocess.CalledProcessError:
                if not left:
                    raise
                time.sleep(0.02)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=60)


class Cut(Struct):
    """What a power cut left."""

    acknowledged: int
    """How much was acknowledged before it, since the cut before."""
    broken: list[str]


def cuts(system: str, kind: str, seed: str, bug: str = "") -> Iterator[Cut]:
    """Power cuts, one after the other, on one file system: each while a process writes."""
    chance = Random(seed)
    with Mounted(system) as mounted, _swept(mounted.folder) as folder_of:
        promises = Promises()
        number = 0
        while True:
            folder = folder_of(number // _CUTS_A_FOLDER)
            if number % _CUTS_A_FOLDER == 0:
                promises = Promises()
            before = promises.count
            _write_and_cut(mounted, folder, kind, f"{seed} {number}", chance, promises, bug)
            store = STORES[kind](folder, "")
            try:
                found = broken(store, promises)
            finally:
                store.close()
            yield Cut(promises.count - before, found)
            number += 1
            if found:  # what comes after a loss tells nothing
                number = (number // _CUTS_A_FOLDER + 1) * _CUTS_A_FOLDER


@contextmanager
def _swept(place: Path) -> Iterator[Callable[[int], Path]]:
    """New folders, of which only the newest is kept."""

    def folder_of(number: int) -> Path:
        folder = place / str(number)
        if not folder.exists():
            for old in place.glob("[0-9]*"):
                shutil.rmtree(old)
            folder.mkdir()
            os.sync()
        return folder

    yield folder_of


def _write_and_cut(
    mounted: Mounted,
    folder: Path,
    kind: str,
    seed: str,
    chance: Random,
    promises: Promises,
    bug: str,
) -> None:
    threads = chance.choice((1, 1, 3))
    streams = [f"tasks/{number}" for number in range(12)]
    work = at_work(lambda: STORES[kind](folder, bug), f"writer {seed}", seed, streams, threads)
    writer = Process(work)
    enough = chance.randint(1, 60)
    writer.hear_until(lambda: len(writer.marks) >= enough)
    time.sleep(chance.random() * 0.005)
    writer.send(signal.SIGSTOP)
    in_time = writer.hear_so_far()
    mounted.cut()
    writer.kill()
    assert in_time >= enough, f"the writer died by itself: {writer.last_words}"
    # A process that is in a sync stops only after it, and when the file system is shut down
    # meanwhile, ext4 may tell it that all is well. After a power cut nobody is told anything.
    for mark in writer.marks[:in_time]:
        promises.hear(mark)
    for mark in writer.marks[in_time:]:
        promises.hear_late(mark)
    mounted.come_back()


def _mkfs(system: str) -> str | None:
    # Where the tools of the superuser are, which is not on every PATH.
    places = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    return shutil.which(f"mkfs.{system}", path=places)
