"""Many leases in one call: each is treated as it would be alone."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

import pytest

from holdfast.errors import LeaseLost, StorageFailed, TaskBusy
from holdfast.log.store_calls import acquire_one, sync_one
from holdfast.stores import secured
from holdfast.stores.files import syncing as together
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.store import FileStore
from holdfast.stores.memory import MemoryStore
from holdfast.stores.port import Lease
from holdfast.stores.sealed.keys import Keys
from holdfast.stores.sqlite.store import SqliteStore
from tests.stores.postgres_server import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]

KEY = Keys.new()
WAYS = {"encrypted": (KEY, None), "signed": (None, KEY), "both": (KEY, KEY)}
STREAMS = [f"tasks/t-{number}" for number in range(6)]


@pytest.fixture(params=["memory", "files", "sqlite", "postgres", "encrypted", "signed", "both"])
def store(request, tmp_path):
    if request.param in WAYS:
        made = secured(FileStore(tmp_path / "w"), *WAYS[request.param])
    elif request.param == "postgres":
        from holdfast.stores.postgres.store import PostgresStore

        made = PostgresStore(request.getfixturevalue("postgres_url"))
    elif request.param == "sqlite":
        made = SqliteStore(tmp_path / "tasks.db")
    else:
        made = FileStore(tmp_path / "w") if request.param == "files" else MemoryStore()
    yield made
    made.close()


def taken(store, streams=STREAMS, lease_s=60):
    leases = store.acquire(streams, "me", lease_s)
    assert all(isinstance(lease, Lease) for lease in leases), leases
    return leases


def test_leases_come_in_order_and_know_how_long_their_streams_are(store):
    first = acquire_one(store, STREAMS[3], "me", 60)
    store.append(first, 0, [b"one", b"two"])
    sync_one(store, first)
    store.release([first])
    leases = taken(store)
    assert [lease.stream for lease in leases] == STREAMS
    assert [lease.head for lease in leases] == [0, 0, 0, 2, 0, 0]
    assert leases[3].epoch > first.epoch


def test_a_stream_that_another_holds_is_busy_and_the_others_are_taken(store):
    acquire_one(store, STREAMS[1], "another", 60)
    outcomes = store.acquire(STREAMS, "me", 60)
    assert isinstance(outcomes[1], TaskBusy)
    assert "another" in str(outcomes[1])
    assert sum(isinstance(outcome, Lease) for outcome in outcomes) == len(STREAMS) - 1


def test_of_a_stream_that_is_named_twice_the_second_is_busy(store):
    first, second, other = store.acquire(["tasks/t", "tasks/t", "tasks/u"], "me", 60)
    assert isinstance(first, Lease) and isinstance(other, Lease)
    assert isinstance(second, TaskBusy)
    store.append(first, 0, [b"one"])
    assert list(store.sync([first])) == [None]


def test_what_is_synced_together_is_there_for_who_takes_over(store):
    leases = taken(store)
    for round_ in range(3):
        for lease in leases:
            store.append(lease, round_, [b"line %d" % round_])
        assert store.sync(leases) == [None] * len(leases)
    store.release(leases)
    for stream in STREAMS:
        assert list(store.read(stream)) == [b"line 0", b"line 1", b"line 2"]


def test_only_who_was_taken_over_is_told_so_and_the_rest_is_durable(store):
    leases = list(taken(store, STREAMS[:2], lease_s=0)) + list(taken(store, STREAMS[2:]))
    for lease in leases:
        store.append(lease, 0, [b"one"])
    assert store.sync(leases) == [None] * len(leases)
    acquire_one(store, STREAMS[0], "another", 60)
    for lease in leases[1:]:
        store.append(lease, 1, [b"two"])
    with suppress(LeaseLost):  # the database may not have been asked yet
        store.append(leases[0], 1, [b"never"])
    outcomes = store.sync(leases)
    assert isinstance(outcomes[0], LeaseLost)
    assert outcomes[1:] == [None] * (len(leases) - 1)
    assert list(store.read(STREAMS[0])) == [b"one"]
    assert list(store.read(STREAMS[1])) == [b"one", b"two"]


def test_a_lease_that_was_given_back_is_refused_alone(store):
    leases = taken(store)
    for lease in leases:
        store.append(lease, 0, [b"one"])
    store.release([leases[2]])
    outcomes = store.sync(leases)
    assert [type(outcome) for outcome in outcomes] == [
        LeaseLost if number == 2 else type(None) for number in range(len(leases))
    ]


def test_giving_back_many_twice_or_late_is_no_error(store):
    leases = taken(store)
    store.release(leases)
    store.release(leases)
    store.release([])
    assert [store.holder(stream) for stream in STREAMS] == [None] * len(STREAMS)
    taken(store)


class CountingDisk(Disk):
    """Counts syncs, of one kind and of the other, and fails where it is told to."""

    def __init__(self) -> None:
        self.files = self.wholes = 0
        self.whole_fails = False
        self.bad = -1

    def sync(self, fd: int) -> None:
        self.files += 1
        if self.bad >= 0 and os.fstat(fd).st_ino == self.bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(fd)

    def sync_all(self, fd: int) -> None:
        self.wholes += 1
        if self.whole_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync_all(fd)


@pytest.fixture
def disk(monkeypatch):
    monkeypatch.setattr(together, "_can_be_believed", lambda device: hasattr(os, "fdatasync"))
    monkeypatch.setattr(together, "_SLOW_S", 1e9)  # however busy the machine is
    return CountingDisk()


@pytest.fixture
def files(tmp_path, disk):
    store = FileStore(tmp_path / "w", disk=disk)
    yield store
    store.close()


def test_many_files_are_synced_by_one_call_and_a_few_one_by_one(files, disk):
    leases = taken(files)
    for seq in range(3):
        for lease in leases:
            files.append(lease, seq, [b"line"])
        assert files.sync(leases) == [None] * len(leases)
    assert (disk.wholes, disk.files) == (3, 0)
    for lease in leases[:3]:
        files.append(lease, 3, [b"line"])
    assert files.sync(leases[:3]) == [None] * 3
    assert (disk.wholes, disk.files) == (3, 3)


def test_after_a_failed_sync_of_the_disk_each_file_tells_its_own_error(files, disk):
    leases = taken(files)
    for lease in leases:
        files.append(lease, 0, [b"line"])
    disk.whole_fails = True
    disk.bad = os.stat(files.root / f"{STREAMS[4]}/events.jsonl").st_ino
    outcomes = files.sync(leases)
    assert isinstance(outcomes[4], StorageFailed)
    assert [o for o in outcomes if o is not outcomes[4]] == [None] * 5
    # The kernel tells an error once: nobody can say what the next call would have missed.
    disk.whole_fails, disk.bad = False, -1
    with pytest.raises(StorageFailed, match="not known"):
        files.append(leases[4], 1, [b"line"])
    sound = leases[:4]
    for lease in sound:
        files.append(lease, 1, [b"line"])
    before = disk.files
    assert files.sync(sound) == [None] * 4
    assert (disk.wholes, disk.files) == (1, before + 4)


def test_a_disk_that_others_keep_busy_is_not_synced_as_a_whole_for_a_while(
    files, disk, monkeypatch
):
    monkeypatch.setattr(together, "_SLOW_S", 0.05)
    now = [1000.0]
    monkeypatch.setattr(together.time, "monotonic", lambda: now[0])
    leases = taken(files)

    def write_and_sync(seq):
        for lease in leases:
            files.append(lease, seq, [b"line"])
        assert files.sync(leases) == [None] * len(leases)

    real = Disk.sync_all
    monkeypatch.setattr(
        Disk, "sync_all", lambda self, fd: (real(self, fd), now.__setitem__(0, now[0] + 2))
    )
    write_and_sync(0)
    write_and_sync(1)
    assert (disk.wholes, disk.files) == (1, 6)
    now[0] += 2
    write_and_sync(2)
    assert (disk.wholes, disk.files) == (2, 6)
    # Slow again: then it is done without for longer.
    now[0] += 3
    write_and_sync(3)
    assert (disk.wholes, disk.files) == (2, 12)
    now[0] += 2
    write_and_sync(4)
    assert (disk.wholes, disk.files) == (3, 12)


def test_a_log_on_another_disk_is_synced_by_itself(files, disk, monkeypatch):
    files.release([acquire_one(files, STREAMS[0], "me", 60)])
    elsewhere = os.stat(files.root / f"{STREAMS[0]}/events.jsonl").st_ino
    real = Disk.status

    def status(self, fd):
        found = real(self, fd)
        return found._replace(inode=(-1, elsewhere)) if found.inode[1] == elsewhere else found

    monkeypatch.setattr(Disk, "status", status)
    leases = taken(files)
    for lease in leases:
        files.append(lease, 0, [b"line"])
    assert files.sync(leases) == [None] * len(leases)
    assert (disk.wholes, disk.files) == (1, 1)


def test_a_writer_that_was_taken_over_elsewhere_is_refused_out_of_a_group(tmp_path):
    ours, theirs = (SqliteStore(tmp_path / "tasks.db") for _ in range(2))
    leases = list(taken(ours, STREAMS[:1], lease_s=0)) + list(taken(ours, STREAMS[1:]))
    acquire_one(theirs, STREAMS[0], "another", 60)
    for lease in leases[::-1]:
        ours.append(lease, 0, [b"one"])
    outcomes = ours.sync(leases)
    assert isinstance(outcomes[0], LeaseLost)
    assert outcomes[1:] == [None] * 5
    assert [list(theirs.read(stream)) for stream in STREAMS] == [[]] + [[b"one"]] * 5
    ours.close()
    theirs.close()
