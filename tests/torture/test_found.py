"""What the torture has found in the file store, each in a test of its own."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime
from unittest.mock import ANY

import pytest

from holdfast.errors import StorageFailed
from holdfast.log import chain
from holdfast.log.store_calls import (
    acquire_one,
    due_in,
    facts_of_all,
    post_to,
    streams_in,
    sync_one,
    unpost,
)
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.store import FileStore
from holdfast.stores.port import Facts
from tests.torture.promises import sealed
from tests.torture.recording import Made, Recorder, Synced, Wrote

LINE = b'{"id":"t","seq":1}'
LATER = Facts("x", "asleep", wake_at=datetime(2099, 1, 1, tzinfo=UTC))
NOW = datetime(2031, 1, 1, tzinfo=UTC)


def test_the_index_says_nothing_of_a_log_that_is_not_durable_yet(tmp_path):
    """A crash may leave the log its new length and zeros for its new bytes."""
    store = FileStore(tmp_path / "w")
    lease = acquire_one(store, "tasks/t", "me", 60)
    store.append(lease, 0, [LINE], LATER)
    log = tmp_path / "w/tasks/t/events.jsonl"
    log.write_bytes(bytes(log.stat().st_size))
    after = FileStore(tmp_path / "w")
    assert list(facts_of_all(after, "tasks/")) == [("tasks/t", None)]
    assert list(due_in(after, "tasks/", NOW)) == [("tasks/t", None)]


def test_nor_does_one_who_read_such_a_log_and_remembers_it(tmp_path):
    (tmp_path / "real").mkdir()
    disk = Recorder(tmp_path / "real")
    store = FileStore(tmp_path / "real/w", disk=disk)
    lease = acquire_one(store, "tasks/t", "me", 60)
    store.append(lease, 0, [LINE])
    reader = FileStore(tmp_path / "real/w", disk=disk)
    reader.remember("tasks/t", LATER, 1)
    log, index = (
        next(op.node for op in disk.operations if isinstance(op, Made) and op.name == name)
        for name in ("events.jsonl", "index.jsonl")
    )
    told = next(n for n, op in enumerate(disk.operations) if op == Wrote(index, 0, ANY))
    assert Synced(log) in disk.operations[:told]


def test_a_missing_log_is_not_as_long_as_one_that_was_still_to_be_written(tmp_path):
    store = FileStore(tmp_path / "w")
    lease = acquire_one(store, "tasks/t", "me", 60)
    at_once = Facts("x", "pending", created_at=NOW, wake_at=NOW)
    store.append(lease, 0, [LINE], at_once)
    sync_one(store, lease)
    os.unlink(tmp_path / "w/tasks/t/events.jsonl")
    assert list(facts_of_all(FileStore(tmp_path / "w"), "tasks/")) == [("tasks/t", None)]


def test_a_newline_that_was_never_written_is_a_torn_tail(tmp_path):
    """It may be the first byte of a sector: then the file has its length, and a zero there."""
    first, total = sealed(chain.ROOT, "tasks/t", 1, "me")
    second, _ = sealed(total, "tasks/t", 2, "me")
    store = FileStore(tmp_path / "w")
    lease = acquire_one(store, "tasks/t", "me", 60)
    store.append(lease, 0, [first])
    sync_one(store, lease)
    store.close()
    with open(tmp_path / "w/tasks/t/events.jsonl", "ab") as log:
        log.write(second + b"\0")
    store = FileStore(tmp_path / "w")
    assert list(store.read("tasks/t")) == [first]
    lease = acquire_one(store, "tasks/t", "me", 60)
    store.append(lease, 1, [second])
    sync_one(store, lease)
    assert list(store.read("tasks/t")) == [first, second]


def test_a_message_makes_the_whole_way_to_it_durable(tmp_path):
    (tmp_path / "real").mkdir()
    disk = Recorder(tmp_path / "real")
    store = FileStore(tmp_path / "real/w", disk=disk)
    acquire_one(store, "tasks/t", "me", 60)  # its folder is there, and nothing of it was synced
    assert post_to(store, "tasks/t", "cancel", b"now")
    made = {op.node: op.folder for op in disk.operations if isinstance(op, Made)}
    names = {op.name: op.node for op in disk.operations if isinstance(op, Made)}
    synced = {op.node for op in disk.operations if isinstance(op, Synced)}
    assert {made[names[name]] for name in ("w", "tasks", "t", "inbox")} <= synced


def test_what_a_crash_left_of_a_deleted_stream_is_in_no_list(tmp_path):
    store = FileStore(tmp_path / "w")
    lease = acquire_one(store, "tasks/t", "me", 60)
    store.append(lease, 0, [LINE])
    sync_one(store, lease)
    store.close()
    os.rename(tmp_path / "w/tasks/t", tmp_path / "w/tasks/.deleted-0123")
    store = FileStore(tmp_path / "w")
    assert list(streams_in(store, "tasks/")) == []


class Late(Disk):
    """A disk on which something happens right after a log was found empty."""

    def __init__(self, then) -> None:
        self._then = then

    def read_piece(self, fd: int, offset: int, most_bytes: int) -> bytes:
        data = super().read_piece(fd, offset, most_bytes)
        if not data and self._then is not None:
            then, self._then = self._then, None
            then()
        return data


def test_a_reader_that_is_overtaken_by_the_first_events_does_not_call_them_lost(tmp_path):
    store = FileStore(tmp_path / "w")
    lease = acquire_one(store, "tasks/t", "me", 60)

    def write() -> None:
        store.append(lease, 0, [LINE])
        sync_one(store, lease)

    reader = FileStore(tmp_path / "w", disk=Late(write))
    assert list(reader.read("tasks/t")) == [LINE]


class Refusing(Disk):
    """A disk that refuses a few things, when told to."""

    refuses = ""

    def _refuse(self, what: str) -> None:
        if self.refuses == what:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def unlink(self, name: str, parent: int) -> None:
        self._refuse("unlink")
        super().unlink(name, parent)

    def rename(self, old: str, new: str, parent: int) -> None:
        self._refuse("rename")
        super().rename(old, new, parent)

    def overwrite(self, fd: int, data: bytes, offset: int = 0) -> None:
        self._refuse("overwrite")
        super().overwrite(fd, data, offset)


@pytest.mark.parametrize(
    ("refused", "act"),
    [
        ("unlink", lambda store, lease: unpost(store, "tasks/t", "cancel")),
        ("rename", lambda store, lease: store.delete(lease)),
        ("unlink", lambda store, lease: store.delete(lease)),
        ("overwrite", lambda store, lease: store.renew(lease)),
    ],
)
def test_what_the_disk_refuses_is_an_error_of_the_store(tmp_path, refused, act):
    disk = Refusing()
    store = FileStore(tmp_path / "w", disk=disk)
    lease = acquire_one(store, "tasks/t", "me", 60)
    store.append(lease, 0, [LINE])
    sync_one(store, lease)
    post_to(store, "tasks/t", "cancel", b"now")
    disk.refuses = refused
    with pytest.raises(StorageFailed, match="tasks/t"):
        act(store, lease)
