"""A name is durable once its folder is synced: nothing that is acknowledged rests on one that is
not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from holdfast.log.store_calls import acquire_one, post_to, sync_one
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.store import FileStore
from holdfast.testing.contract import lines_of

DERIVED = ("index", "lock", "waypoints", ".holders", "holders")
"""What is made anew when a power cut takes it, or is of no use after one."""


class WatchingDisk(Disk):
    """Knows which names and which contents a power cut may still take."""

    def __init__(self) -> None:
        super().__init__()
        self.new_names: dict[str, str] = {}
        self.contents: dict[str, str] = {}
        self.removed_early: list[str] = []

    def make_folder(self, name: str, parent: int) -> int:
        self._made(name, parent)
        return super().make_folder(name, parent)

    def open(self, name: str, parent: int, flags: int) -> int:
        if flags & os.O_CREAT:
            self._made(name, parent)
        return super().open(name, parent, flags)

    def rename(self, old: str, new: str, parent: int) -> None:
        super().rename(old, new, parent)
        self._moved(old, parent, new, parent)

    def move(self, old: str, parent: int, new: str, new_parent: int) -> None:
        super().move(old, parent, new, new_parent)
        self._moved(old, parent, new, new_parent)

    def link(self, old: str, new: str, parent: int) -> None:
        super().link(old, new, parent)
        self._changed(new, parent)

    def remove_all(self, name: str, parent: int) -> None:
        self.removed_early += [n for n in self.new_names if n == f"{path_of(parent)}/{name}"]
        super().remove_all(name, parent)

    def unlink(self, name: str, parent: int) -> None:
        super().unlink(name, parent)
        for known in (self.new_names, self.contents):
            known.pop(f"{path_of(parent)}/{name}", None)

    def write(self, fd: int, data: bytes) -> None:
        super().write(fd, data)
        self.contents[path_of(fd)] = "written"

    def write_some(self, fd: int, data: bytes) -> int:
        self.contents[path_of(fd)] = "written"
        return super().write_some(fd, data)

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self.contents.pop(path_of(fd), None)

    def sync_folder(self, fd: int) -> None:
        super().sync_folder(fd)
        folder = path_of(fd)
        self.new_names = {
            p: how for p, how in self.new_names.items() if os.path.dirname(p) != folder
        }

    def sync_all(self, fd: int) -> None:
        super().sync_all(fd)
        self.new_names, self.contents = {}, {}

    def _made(self, name: str, parent: int) -> None:
        if not Path(path_of(parent), name).exists():
            self._changed(name, parent)

    def _changed(self, name: str, parent: int) -> None:
        self.new_names[f"{path_of(parent)}/{name}"] = "made"

    def _moved(self, old: str, parent: int, new: str, new_parent: int) -> None:
        before, after = f"{path_of(parent)}/{old}", f"{path_of(new_parent)}/{new}"
        for known in (self.new_names, self.contents):
            for path in [p for p in known if p == before or p.startswith(f"{before}/")]:
                known[after + path.removeprefix(before)] = known.pop(path)
        self.new_names[after] = "moved"

    def at_risk(self) -> list[str]:
        """What a power cut may take that nothing can make anew."""
        found = [*self.new_names, *self.contents]
        return [path for path in found if not any(name in path for name in DERIVED)]


def path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


@pytest.fixture
def disk() -> WatchingDisk:
    return WatchingDisk()


@pytest.fixture
def store(tmp_path: Path, disk: WatchingDisk) -> Iterator[FileStore]:
    with closing(FileStore(tmp_path / "far/away/w", disk=disk)) as made:
        yield made


@contextmanager
def acknowledged(disk: WatchingDisk) -> Iterator[None]:
    """What is done here is durable afterwards."""
    yield
    assert disk.at_risk() == []
    assert disk.removed_early == []


def test_what_the_disk_is_told_is_seen_by_the_one_who_watches(store, disk):
    lease = acquire_one(store, "tasks/t", "me", 60)
    store.append(lease, 0, lines_of("tasks/t", 1))
    assert any(path.endswith("tasks/t/events.jsonl") for path in disk.contents)
    assert any(path.endswith("tasks/t") for path in disk.new_names)


def test_a_workspace_and_the_folders_above_it(store, disk):
    with acknowledged(disk):
        pass


def test_a_log_its_folder_and_the_folder_above(store, disk):
    with acknowledged(disk):
        lease = acquire_one(store, "tasks/t", "me", 60)
        store.append(lease, 0, lines_of("tasks/t", 2))
        sync_one(store, lease)
    with acknowledged(disk):
        store.append(lease, 2, lines_of("tasks/t", 3)[2:])
        sync_one(store, lease)


def test_many_logs_at_once(store, disk):
    streams = [f"tasks/t-{number}" for number in range(5)]
    with acknowledged(disk):
        leases = store.acquire(streams, "me", 60)
        for lease in leases:
            store.append(lease, 0, lines_of(lease.stream, 1))
        assert store.sync(leases) == [None] * 5


def test_a_blob(store, disk):
    with acknowledged(disk):
        store.put_blob(b"a blob" * 100)


def test_a_message(store, disk):
    lease = acquire_one(store, "tasks/t", "me", 60)
    store.append(lease, 0, lines_of("tasks/t", 1))
    sync_one(store, lease)
    with acknowledged(disk):
        assert post_to(store, "tasks/t", "a message", b"hello")


def test_a_new_name(store, disk):
    lease = acquire_one(store, "tasks/t", "me", 60)
    store.append(lease, 0, lines_of("tasks/t", 1))
    sync_one(store, lease)
    with acknowledged(disk):
        store.rename(lease, "tasks/u")


def test_that_a_log_is_gone_is_durable_before_any_of_it_is_removed(store, disk):
    lease = acquire_one(store, "tasks/t", "me", 60)
    store.append(lease, 0, lines_of("tasks/t", 1))
    sync_one(store, lease)
    with acknowledged(disk):
        store.delete(lease)


def test_a_log_that_was_begun_by_one_who_did_not_sync_it(store, disk):
    lease = acquire_one(store, "tasks/t", "me", 60)
    store.append(lease, 0, lines_of("tasks/t", 1))
    store.release([lease])
    with acknowledged(disk):
        lease = acquire_one(store, "tasks/t", "you", 60)
        store.append(lease, 1, lines_of("tasks/t", 2)[1:])
        sync_one(store, lease)
