"""A lease that is of no use any more, and a stream that has got another name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Conflict, LeaseLost, StorageFailed, StoreError, TaskBusy
from holdfast.log.store_calls import acquire_one, streams_in, sync_one
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.store import FileStore
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.contract import lines_of

LINES = lines_of("tasks/t", 3)
USES: dict[str, Callable[[Any, Any], Any]] = {
    "append": lambda store, lease: store.append(lease, 1, LINES[1:2]),
    "renew": lambda store, lease: store.renew(lease),
    "delete": lambda store, lease: store.delete(lease),
    "rename": lambda store, lease: store.rename(lease, "tasks/u"),
    "sync": sync_one,
}


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(tmp_path / "t.db")) as made:
        yield made


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("error", [StorageFailed("the disk is full"), LeaseLost("it is gone")])
def test_a_lease_under_which_a_write_failed_is_refused_whatever_it_is_used_for(sqlite, use, error):
    lease = acquire_one(sqlite, "tasks/t", "me", 60)
    sqlite.append(lease, 0, LINES[:1])
    sync_one(sqlite, lease)
    sqlite._leases.of(lease).spoil(error)
    with pytest.raises(type(error), match=str(error)):
        USES[use](sqlite, lease)
    assert list(sqlite.read("tasks/t")) == LINES[:1]
    assert streams_in(sqlite, "tasks/") == ["tasks/t"]


@pytest.fixture(params=["files", "sqlite", "memory"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """Two ways into one store, as two processes have them."""
    if request.param == "memory":
        first = MemoryStore()
        yield first, MemoryStore(first)
        return
    if request.param == "files":
        made: list[Any] = [FileStore(tmp_path / "w") for _ in range(2)]
    else:
        made = [SqliteStore(tmp_path / "t.db") for _ in range(2)]
    with closing(made[0]), closing(made[1]):
        yield made[0], made[1]


def test_a_stream_that_got_another_name_is_free_for_all_under_that_name(stores):
    ours, theirs = stores
    lease = acquire_one(ours, "tasks/t", "me", 60)
    ours.append(lease, 0, LINES[:1])
    ours.rename(lease, "tasks/u")
    assert ours.holder("tasks/u") is None and theirs.holder("tasks/u") is None
    taken = acquire_one(theirs, "tasks/u", "you", 60)
    theirs.append(taken, 1, LINES[1:2])
    sync_one(theirs, taken)
    assert list(ours.read("tasks/u")) == LINES[:2]
    anew = acquire_one(ours, "tasks/t", "me", 60)
    ours.append(anew, 0, LINES[:1])
    sync_one(ours, anew)
    assert sorted(streams_in(theirs, "tasks/")) == ["tasks/t", "tasks/u"]
    with pytest.raises((Conflict, TaskBusy)):
        theirs.rename(taken, "tasks/t")
    assert list(theirs.read("tasks/u")) == LINES[:2]


@pytest.mark.parametrize("use", USES)
def test_a_lease_that_was_given_back_is_of_no_use(stores, use):
    ours, _ = stores
    lease = acquire_one(ours, "tasks/t", "me", 60)
    ours.append(lease, 0, LINES[:1])
    sync_one(ours, lease)
    ours.release([lease])
    ours.release([lease])  # twice is no harm
    with pytest.raises(StoreError):
        USES[use](ours, lease)
    assert list(ours.read("tasks/t")) == LINES[:1]


class Refusing(Disk):
    """A disk that takes no more changes of what is there, when told so."""

    refuses = False

    def overwrite(self, fd: int, data: bytes, offset: int = 0) -> None:
        if self.refuses:
            raise OSError(5, "Input/output error")
        super().overwrite(fd, data, offset)


def test_a_renewal_that_the_disk_refuses_is_told_as_one(tmp_path):
    disk = Refusing()
    with closing(FileStore(tmp_path / "w", disk=disk)) as store:
        lease = acquire_one(store, "tasks/t", "me", 60)
        disk.refuses = True
        with pytest.raises(StorageFailed, match="tasks/t: can't renew its lease: Input/output"):
            store.renew(lease)
        disk.refuses = False
        store.renew(lease)


@pytest.mark.parametrize("kind", [FileStore, SqliteStore])
def test_a_lease_is_not_given_back_by_a_process_that_does_not_hold_it(tmp_path, kind):
    with closing(kind(tmp_path / "store")) as ours, closing(kind(tmp_path / "store")) as theirs:
        lease = acquire_one(ours, "tasks/t", "me", 60)
        theirs.release([lease])
        with pytest.raises(TaskBusy, match="me"):
            acquire_one(theirs, "tasks/t", "another", 60)
        ours.append(lease, 0, LINES[:1])
        sync_one(ours, lease)


def test_the_file_of_a_process_that_holds_streams_says_which_it_is(tmp_path):
    with closing(FileStore(tmp_path / "w")) as store:
        acquire_one(store, "tasks/t", "me", 60)
        said = b"held by process %d" % os.getpid()
        assert any(said in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
