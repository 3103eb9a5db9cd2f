"""The disk fails once, at each call in turn: that is said in our words, and costs nothing else."""

from __future__ import annotations

import errno
import fcntl
import functools
import os
from collections import Counter
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import HoldfastError
from holdfast.log.store_calls import acquire_one, facts_of_all, inbox_of, post_to, sync_one, unpost
from holdfast.stores.files import disk
from holdfast.stores.files.store import FileStore
from holdfast.stores.port import Lease
from holdfast.testing.contract import lines_of

BLOB = b"a blob" * 100
SYNC_ALL = disk._sync_all


class System:
    """The system calls of the disk, one of which fails; as `os` and `fcntl` have them."""

    def __init__(self) -> None:
        self.left = 0
        self.failed = ""

    def fails_at(self, number: int) -> None:
        self.left, self.failed = number, ""

    def __getattr__(self, name: str) -> Any:
        found = getattr(os if hasattr(os, name) else fcntl, name)
        return self.failing(found) if name in CALLS else found

    def failing(self, call: Any) -> Any:
        @functools.wraps(call)
        def called(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                self.failed = call.__name__
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return call(*args, **kwargs)

        return called


CALLS = {
    "open", "mkdir", "rmdir", "unlink", "rename", "link", "stat", "fstat", "listdir", "pread",
    "pwrite", "write", "ftruncate", "fchmod", "fsync", "fdatasync", "utime", "flock",
}  # fmt: skip


@pytest.fixture
def system(monkeypatch):
    made = System()
    monkeypatch.setattr(disk, "os", made)
    monkeypatch.setattr(disk.system, "_fcntl", made)
    monkeypatch.setattr(disk.system, "sync_all", made.fsync)
    monkeypatch.setattr(disk, "_sync_data", made.fdatasync)
    monkeypatch.setattr(disk, "_sync_all", lambda: made.failing(SYNC_ALL()))
    return made


class Story:
    """What one does with a store, and how much of it was acknowledged."""

    def __init__(self) -> None:
        self.lines: dict[str, list[bytes]] = {}
        self.moving: list[bytes] = []
        """May be at either end of its way."""
        self.blob = ""

    def tell(self, store: FileStore) -> None:
        lease = acquire_one(store, "tasks/t", "me", 60)
        self._write(store, lease, 2)
        self.blob = store.put_blob(BLOB)
        assert store.get_blob(self.blob) == BLOB
        store.renew(lease)
        store.put_side("tasks/t", "derived", "2.calls", b"waypoint")
        found = store.get_side(["tasks/t"], "derived", ["2.calls"])
        assert [row.data for row in found] in ([b"waypoint"], [])
        assert post_to(store, "tasks/t", "a message", b"hello")
        # Whoever holds the stream is told, or else looks for it after a while.
        assert [post.data for post in inbox_of(store, ["tasks/t"])] in ([b"hello"], [])
        unpost(store, "tasks/t", "a message")
        self._write(store, lease, 1)
        assert list(store.read("tasks/t", 1)) == self.lines["tasks/t"][1:]
        assert list(store.read("tasks/t", backwards=True)) == self.lines["tasks/t"][::-1]
        assert dict(facts_of_all(store, "tasks/")) == {"tasks/t": None}
        other = acquire_one(store, "tasks/gone", "me", 60)
        self._write(store, other, 1)
        del self.lines["tasks/gone"]
        store.delete(other)
        self.moving = self.lines.pop("tasks/t")
        store.rename(lease, "tasks/u")
        self.lines["tasks/u"], self.moving = self.moving, []

    def _write(self, store: FileStore, lease: Lease, count: int) -> None:
        before = self.lines.get(lease.stream, [])
        lines = lines_of(lease.stream, len(before) + count)
        store.append(lease, len(before), lines[len(before) :])
        sync_one(store, lease)
        self.lines[lease.stream] = lines


def tell(folder: Path, system: System, number: int) -> None:
    """The story, in which a system call fails; and a look at what came of it, when none does."""
    story = Story()
    system.fails_at(number)
    with suppress(HoldfastError), closing(FileStore(folder)) as store:
        story.tell(store)
    failed = system.failed
    system.fails_at(0)
    with closing(FileStore(folder)) as store:
        for stream, lines in story.lines.items():
            assert list(store.read(stream))[: len(lines)] == lines
        if story.moving:
            assert story.moving in (list(store.read("tasks/t")), list(store.read("tasks/u")))
        if story.blob:
            assert store.get_blob(story.blob) == BLOB
        # Nothing was left behind that is in the way of the next one.
        for stream in ("tasks/t", "tasks/u", "tasks/gone"):
            lease = acquire_one(store, stream, "another", 60)
            store.append(lease, lease.head or 0, [b"more"])
            sync_one(store, lease)
            assert list(store.read(stream))[-1] == b"more"
            store.release([lease])
        assert store.get_blob(store.put_blob(BLOB)) == BLOB
    system.failed = failed


def test_every_failure_is_told_as_one_and_loses_nothing_that_was_acknowledged(tmp_path, system):
    tell(tmp_path / "calm", system, 0)
    descriptors = len(os.listdir("/proc/self/fd"))
    failed = Counter[str]()
    for number in count(1):
        tell(tmp_path / str(number), system, number)
        if not system.failed:
            break
        failed[system.failed] += 1
    assert failed.total() > 100 and len(failed) > 10, failed
    assert len(os.listdir("/proc/self/fd")) <= descriptors, "some were left open"
