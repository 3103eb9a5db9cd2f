"""Who may write a stream of the file store, and what it takes to hold ten thousand of them."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from holdfast import LeaseLost, StorageFailed, TaskBusy
from holdfast.errors import LogDamaged
from holdfast.log.store_calls import (
    acquire_one,
    facts_of_all,
    holder_of,
    inbox_of,
    post_to,
    streams_in,
    sync_one,
    unpost,
)
from holdfast.stores.files import held as descriptors
from holdfast.stores.files import held as files_mail
from holdfast.stores.files.disk import Disk, Status
from holdfast.stores.files.store import FileStore
from tests.stores import open_tasks

FIRST = b'{"id":"t"}'


def opened(folder: Path, disk: Disk | None = None) -> closing[FileStore]:
    return closing(FileStore(folder, disk=disk))


@contextmanager
def running(what: str, *given: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", open_tasks.__name__, what, *map(str, given)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("write\n")
    process.stdin.flush()


def open_files(line: str) -> int:
    what, _, number = line.partition(": ")
    assert what == "open files"
    return int(number)


@pytest.fixture
def quick_folder():
    """A folder where a sync costs nothing, if there is one: thousands are made here."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        yield Path(folder) / "w"


@pytest.fixture
def store(tmp_path):
    store = FileStore(tmp_path / "w")
    yield store
    store.close()


@pytest.fixture
def few_descriptors(monkeypatch):
    monkeypatch.setattr(descriptors, "share_of_limit", lambda: 8)


def test_ten_thousand_tasks_are_open_at_once_with_1024_files(quick_folder):
    with running("hold_many", quick_folder, 10_000) as process:
        assert open_files(said(process)) < 300
        with opened(quick_folder) as other:
            for n in (0, 5_000, 9_999):
                with pytest.raises(TaskBusy):
                    acquire_one(other, f"tasks/t-{n}", "other", 60)
                assert holder_of(other, f"tasks/t-{n}") == "me"
            process.communicate()
            assert process.returncode == 0
            assert len(list(streams_in(other, "tasks/"))) == 10_000
            for n in range(10_000):
                lines = [b'{"id":"t-%d","n":%d}' % (n, seq) for seq in range(2)]
                assert list(other.read(f"tasks/t-{n}")) == lines
            other.release([acquire_one(other, "tasks/t-0", "other", 60)])


def test_two_thousand_async_tasks_are_under_way_at_once_with_1024_files(quick_folder):
    with running("run_many", quick_folder, 2_000) as process:
        assert open_files(said(process)) < 400
        assert said(process) == "True"


# Few descriptors for many logs


def test_logs_are_closed_and_opened_again_while_threads_write_to_them(store, few_descriptors):
    store._begin()
    leases = [acquire_one(store, f"tasks/t-{n}", "me", 60) for n in range(40)]

    def write(mine: list) -> None:
        for seq in range(12):
            for lease in mine:
                store.append(lease, seq, [b"%d" % seq])
            for lease in mine[::2]:
                sync_one(store, lease)

    threads = [threading.Thread(target=write, args=(leases[n::4],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for lease in leases:
        sync_one(store, lease)
        assert list(store.read(lease.stream)) == [b"%d" % seq for seq in range(12)]
    assert sum(handle.log >= 0 for handle in store._handles.values()) <= 8 + 4


class Watching(Disk):
    """Knows which files were written and not synced when they were closed."""

    def __init__(self) -> None:
        self.dirty: set[int] = set()
        self.closed_dirty = self.syncs = 0
        self.broken: BaseException | None = None

    def write(self, fd: int, data: bytes) -> None:
        super().write(fd, data)
        if data.startswith(b"line"):
            self.dirty.add(fd)

    def sync(self, fd: int) -> None:
        self.syncs += 1
        if self.broken:
            raise self.broken
        super().sync(fd)
        self.dirty.discard(fd)

    def close(self, fd: int) -> None:
        self.closed_dirty += fd in self.dirty
        self.dirty.discard(fd)
        super().close(fd)


def test_no_log_is_closed_with_writes_that_were_not_synced(tmp_path, few_descriptors):
    disk = Watching()
    with opened(tmp_path / "w", disk=disk) as store:
        leases = [acquire_one(store, f"tasks/t-{n}", "me", 60) for n in range(30)]
        for lease in leases:
            store.append(lease, 0, [b"line"])
        assert disk.closed_dirty == 0
        assert disk.syncs > 15
        for lease in leases:
            sync_one(store, lease)
        assert disk.syncs == 30  # one each, whoever made it
        assert disk.closed_dirty == 0


def test_a_sync_that_fails_as_a_log_is_closed_poisons_its_lease(tmp_path, few_descriptors):
    disk = Watching()
    with opened(tmp_path / "w", disk=disk) as store:
        leases = [acquire_one(store, f"tasks/t-{n}", "me", 60) for n in range(9)]
        disk.broken = OSError(errno.EIO, os.strerror(errno.EIO))
        for lease in leases:
            store.append(lease, 0, [b"line"])
        disk.broken = None  # the kernel forgets an error it has reported once; we must not
        (handle,) = [handle for handle in store._handles.values() if handle.poisoned]
        with pytest.raises(StorageFailed, match="not known"):
            store.append(handle.lease, 1, [b"line"])
        with pytest.raises(StorageFailed, match="not known"):
            sync_one(store, handle.lease)
        for lease in leases:
            if lease is not handle.lease:
                sync_one(store, lease)


def test_an_interrupt_while_a_log_is_closed_costs_its_lease_and_no_other(tmp_path, few_descriptors):
    disk = Watching()
    with opened(tmp_path / "w", disk) as store:
        leases = [acquire_one(store, f"tasks/t-{n}", "me", 60) for n in range(8)]
        for lease in leases:
            store.append(lease, 0, [b"line"])
        disk.broken = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            acquire_one(store, "tasks/one-more", "me", 60)
        disk.broken = None
        acquire_one(store, "tasks/one-more", "me", 60)
        (handle,) = [handle for handle in store._handles.values() if handle.poisoned]
        with pytest.raises(StorageFailed, match="not known"):
            sync_one(store, handle.lease)
        for lease in leases:
            if lease is not handle.lease:
                store.append(lease, 1, [b"line"])
                sync_one(store, lease)


# Holders that hang, die, and fork


@pytest.mark.parametrize("others", [0, 20])
@pytest.mark.parametrize("takers", [1, 2, 3])
def test_a_frozen_holder_is_refused_when_it_thaws_and_damages_nothing(store, others, takers):
    """With others it has closed the log meanwhile; after two takeovers the log may have the same
    number again as the one it knew."""
    with running("write_when_told", store.root, others) as process:
        assert said(process) == "ready"
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        for n in range(takers):
            lease = acquire_one(store, "tasks/t", f"taker {n}", 0.01 if n < takers - 1 else 60)
            time.sleep(0.02)
        process.send_signal(signal.SIGCONT)
        tell(process)
        assert said(process) == "LeaseLost"
        store.append(lease, 1, [b"two"])
        tell(process)
        assert said(process) in ("LeaseLost", "Conflict")
        sync_one(store, lease)
    assert list(store.read("tasks/t")) == [FIRST, b"two"]
    assert (store.root / "tasks/t/events.jsonl").read_bytes() == FIRST + b"\ntwo\n"


def test_a_killed_holder_is_taken_over_at_once(store):
    with running("hold_many", store.root, 3) as process:
        said(process)
        with pytest.raises(TaskBusy):
            acquire_one(store, "tasks/t-0", "me", 60)
        process.kill()
        process.wait()
        inode = (store.root / "tasks/t-0/events.jsonl").stat().st_ino
        for n in range(3):
            assert store.holder(f"tasks/t-{n}") is None
            lease = acquire_one(store, f"tasks/t-{n}", "me", 60)
            assert lease.epoch == 2
        assert (store.root / "tasks/t-0/events.jsonl").stat().st_ino == inode  # no copy is needed


def test_the_file_of_a_dead_holder_is_kept_while_it_is_needed(store):
    with running("hold_many", store.root, 2) as process:
        said(process)
        process.kill()
    (left,) = os.listdir(store.root / "holders")
    acquire_one(store, "tasks/t-0", "me", 60)
    assert left in os.listdir(store.root / "holders")
    acquire_one(store, "tasks/t-1", "me", 60)
    with opened(store.root) as third:
        acquire_one(third, "tasks/new", "me", 60)
        assert left not in os.listdir(store.root / "holders")
        assert len(os.listdir(store.root / "holders")) == 2
    store.close()
    assert os.listdir(store.root / "holders") == []


def test_a_child_that_was_forked_is_no_holder(store):
    with running("hold_and_fork", store.root) as process:
        child = int(said(process))
        try:
            for stream in ("tasks/t", "tasks/of-the-child"):
                with pytest.raises(TaskBusy):
                    acquire_one(store, stream, "me", 60)
            process.kill()
            process.wait()
            acquire_one(store, "tasks/t", "me", 60)  # though the child lives
            with pytest.raises(TaskBusy, match="the child"):
                acquire_one(store, "tasks/of-the-child", "me", 60)
        finally:
            os.kill(child, signal.SIGKILL)


class Pausing(Disk):
    """Stops when it has copied the log, and not yet put the copy in its place."""

    def __init__(self) -> None:
        self.at_rename, self.go = threading.Event(), threading.Event()

    def rename(self, old: str, new: str, parent: int) -> None:
        if new == "events.jsonl":
            self.at_rename.set()
            assert self.go.wait(60)
        super().rename(old, new, parent)


@pytest.mark.parametrize("gone", ["nothing", "lock", "holders"])
@pytest.mark.parametrize("log", ["open", "closed"])
def test_a_holder_that_thaws_while_its_log_is_copied_is_acknowledged_nothing(
    tmp_path, few_descriptors, gone, log
):
    """Whatever it wrote since the copy was made would be lost."""
    disk = Pausing()
    with opened(tmp_path / "w") as one, opened(tmp_path / "w", disk) as two:
        old = acquire_one(one, "tasks/t", "frozen", 0.01)
        one.append(old, 0, [FIRST])
        sync_one(one, old)
        others = [acquire_one(one, f"tasks/other-{n}", "me", 60) for n in range(20)]
        if log == "open":
            one.append(old, 1, [b"before"])
        time.sleep(0.05)
        if gone == "lock":
            (tmp_path / "w/tasks/t/lock").unlink()
        elif gone == "holders":
            for name in os.listdir(tmp_path / "w/holders"):
                (tmp_path / "w/holders" / name).unlink()
        new: list = []
        taker = threading.Thread(target=lambda: new.append(acquire_one(two, "tasks/t", "B", 60)))
        taker.start()
        assert disk.at_rename.wait(60)
        with pytest.raises(LeaseLost):
            one.append(old, 2 if log == "open" else 1, [b"zombie"])
            sync_one(one, old)
        disk.go.set()
        taker.join()
        copied = [FIRST, b"before"] if log == "open" else [FIRST]
        assert list(two.read("tasks/t")) == copied
        two.append(new[0], len(copied), [b"next"])
        sync_one(two, new[0])
        assert list(one.read("tasks/t")) == [*copied, b"next"]
        assert len(others) == 20


class Hesitating(Disk):
    """Stops when it has seen that a holder is silent, and not yet closed the log to it."""

    def __init__(self) -> None:
        self.at_closing, self.go = threading.Event(), threading.Event()

    def forbid_writing(self, fd: int) -> None:
        self.at_closing.set()
        assert self.go.wait(60)
        super().forbid_writing(fd)


def test_a_holder_that_thaws_while_it_is_taken_over_is_not_told_that_its_lease_holds(tmp_path):
    """It would run a step that the other is about to run."""
    disk, heard, new = Hesitating(), [], []
    with opened(tmp_path / "w") as one, opened(tmp_path / "w", disk) as two:
        old = acquire_one(one, "tasks/t", "frozen", 0.01)
        one.append(old, 0, [FIRST])
        sync_one(one, old)
        time.sleep(0.05)

        def renew() -> None:
            try:
                heard.append(one.renew(old))
            except LeaseLost as error:
                heard.append(error)

        taker = threading.Thread(target=lambda: new.append(acquire_one(two, "tasks/t", "B", 60)))
        taker.start()
        assert disk.at_closing.wait(60)
        thawed = threading.Thread(target=renew)
        thawed.start()
        thawed.join(0.2)  # it waits for the other, who has not decided yet
        disk.go.set()
        taker.join()
        thawed.join()
        assert [type(each) for each in heard] == [LeaseLost]
        two.append(new[0], 1, [b"two"])
        sync_one(two, new[0])


def test_of_many_takers_at_once_one_wins(tmp_path):
    stores = [FileStore(tmp_path / "w") for _ in range(8)]
    frozen = acquire_one(stores[0], "tasks/t", "frozen", 0.01)
    stores[0].append(frozen, 0, [FIRST])
    sync_one(stores[0], frozen)
    time.sleep(0.05)
    together, won = threading.Barrier(8), []

    def take(store: FileStore) -> None:
        together.wait()
        with suppress(TaskBusy):
            won.append((store, acquire_one(store, "tasks/t", "taker", 60)))

    threads = [threading.Thread(target=take, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ((winner, lease),) = won
    winner.append(lease, 1, [b"two"])
    sync_one(winner, lease)
    assert list(stores[0].read("tasks/t")) == [FIRST, b"two"]
    for store in stores:
        store.close()


def test_one_lease_that_is_not_renewed_runs_out_though_others_are(store, monkeypatch):
    silent, renewed = (acquire_one(store, f"tasks/{name}", "me", 60) for name in ("a", "b"))
    begun = time.time()
    for later_s in (40, 80, 120):
        monkeypatch.setattr(time, "time", lambda at=begun + later_s: at)
        store.renew(renewed)
    with pytest.raises(TaskBusy):
        acquire_one(store, "tasks/b", "taker", 60)
    acquire_one(store, "tasks/a", "taker", 60)
    with pytest.raises(LeaseLost):
        store.renew(silent)


def test_a_late_release_does_not_free_what_another_took_over(tmp_path):
    with opened(tmp_path / "w") as one, opened(tmp_path / "w") as two:
        stale = acquire_one(one, "tasks/t", "frozen", 0.01)
        time.sleep(0.05)
        acquire_one(two, "tasks/t", "taker", 60)
        one.release([stale])
        with pytest.raises(TaskBusy, match="taker"):
            acquire_one(one, "tasks/t", "third", 60)


class Slow(Disk):
    """Does something else just before it writes that nobody holds a stream."""

    def __init__(self) -> None:
        self.meanwhile = lambda: None

    def overwrite(self, fd: int, data: bytes, offset: int = 0) -> None:
        if data.startswith(b'{"turn"'):
            self.meanwhile()
        super().overwrite(fd, data, offset)


def test_a_release_in_the_middle_of_a_takeover_does_not_free_it(tmp_path):
    disk = Slow()
    with opened(tmp_path / "w", disk) as one, opened(tmp_path / "w") as two:
        stale = acquire_one(one, "tasks/t", "slow", 0.01)
        time.sleep(0.05)
        new: list = []
        disk.meanwhile = lambda: new.append(acquire_one(two, "tasks/t", "taker", 60))
        one.release([stale])
        with pytest.raises(TaskBusy, match="taker"):
            acquire_one(one, "tasks/t", "third", 60)
        two.append(new[0], 0, [FIRST])
        sync_one(two, new[0])


class HalfWritten(Disk):
    """Shows half of a lock first, as while somebody writes it."""

    is_half = False

    def peek(self, fd: int, most_bytes: int, offset: int = 0) -> bytes:
        data = super().peek(fd, most_bytes, offset)
        if self.is_half and b'"owner"' in data:
            self.is_half = False
            return data[:20]
        return data


def test_a_lock_that_is_read_while_it_is_written_is_read_again(tmp_path):
    disk = HalfWritten()
    with opened(tmp_path / "w") as one, opened(tmp_path / "w", disk) as two:
        acquire_one(one, "tasks/t", "me", 60)
        disk.is_half = True
        assert holder_of(two, "tasks/t") == "me"
        assert not disk.is_half
        disk.is_half = True
        with pytest.raises(TaskBusy, match="me"):
            acquire_one(two, "tasks/t", "another", 60)


class SameNumber(Disk):
    """Gives the number of a file that is gone to the next one, as a filesystem may."""

    def status(self, fd: int) -> Status:
        return super().status(fd)._replace(inode=(1, 1))

    def status_of(self, name: str, parent: int) -> Status | None:
        found = super().status_of(name, parent)
        return found and found._replace(inode=(1, 1))


def test_a_log_that_has_the_number_of_the_old_one_is_not_taken_for_it(tmp_path, few_descriptors):
    with opened(tmp_path / "w", SameNumber()) as one, opened(tmp_path / "w") as two:
        old = acquire_one(one, "tasks/t", "frozen", 0.01)
        one.append(old, 0, [FIRST])
        for n in range(20):
            acquire_one(one, f"tasks/other-{n}", "me", 60)
        time.sleep(0.05)
        acquire_one(two, "tasks/t", "taker", 60)
        for late in (
            partial(sync_one, one),
            one.renew,
            lambda lease: one.append(lease, 1, [b"zombie"]),
        ):
            with pytest.raises(LeaseLost):
                late(old)
        assert list(two.read("tasks/t")) == [FIRST]


def test_holders_that_were_removed_by_hand_are_refused_and_new_ones_made(tmp_path):
    with opened(tmp_path / "w") as one, opened(tmp_path / "w") as two:
        old = acquire_one(one, "tasks/t", "old", 60)
        one.append(old, 0, [FIRST])
        sync_one(one, old)
        for name in os.listdir(tmp_path / "w/holders"):
            (tmp_path / "w/holders" / name).unlink()
        new = acquire_one(two, "tasks/t", "new", 60)
        one.append(old, 1, [b"zombie"])
        with pytest.raises(LeaseLost):
            sync_one(one, old)
        two.append(new, 1, [b"two"])
        sync_one(two, new)
        assert list(one.read("tasks/t")) == [FIRST, b"two"]
        again = acquire_one(one, "tasks/other", "old", 60)
        with pytest.raises(TaskBusy):
            acquire_one(two, "tasks/other", "new", 60)
        one.renew(again)


# Workspaces of an older version, whose lease was an flock on the lock file itself


def old_workspace(root: Path, lock: bytes) -> Path:
    folder = root / "tasks/t"
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_bytes(FIRST + b"\n")
    (folder / "lock").write_bytes(lock)
    return folder


def test_a_workspace_of_an_older_version_goes_on(tmp_path):
    lock = b'{"epoch":7,"lease_s":30.0,"started":true}'
    folder = old_workspace(tmp_path / "w", lock)
    with opened(tmp_path / "w") as store:
        assert store.holder("tasks/t") is None
        lease = acquire_one(store, "tasks/t", "me", 60)
        assert lease.epoch == 8
        store.append(lease, 1, [b"two"])
        sync_one(store, lease)
        assert holder_of(store, "tasks/t") == "me"
        store.release([lease])
        (folder / "events.jsonl").unlink()
        with pytest.raises(LogDamaged, match="events were recorded here"):
            acquire_one(store, "tasks/t", "me", 60)


@pytest.mark.parametrize("lock", [b"", b"{}", b'{"turn":3}', b"nonsense"])
@pytest.mark.parametrize("log", [b"", None])
def test_a_stream_of_which_no_lock_says_that_it_was_begun_may_begin(tmp_path, lock, log):
    folder = old_workspace(tmp_path / "w", lock)
    (folder / "events.jsonl").unlink()
    if log is not None:
        (folder / "events.jsonl").write_bytes(log)
    with opened(tmp_path / "w") as store:
        assert list(facts_of_all(store, "tasks/")) == []
        lease = acquire_one(store, "tasks/t", "me", 60)
        assert lease.head == 0
        store.append(lease, 0, [FIRST])
        sync_one(store, lease)
        assert list(store.read("tasks/t")) == [FIRST]


def test_a_living_process_of_an_older_version_is_respected_until_its_lease_runs_out(tmp_path):
    lock = b'{"owner":"old","epoch":7,"lease_s":30.0,"host":"h","pid":1,"started":true}'
    folder = old_workspace(tmp_path / "w", lock)
    with open(folder / "lock", "rb") as held, opened(tmp_path / "w") as store:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert holder_of(store, "tasks/t") == "old"
        with pytest.raises(TaskBusy, match="driven by old"):
            acquire_one(store, "tasks/t", "me", 60)
        os.utime(folder / "lock", (time.time() - 60,) * 2)
        inode = (folder / "events.jsonl").stat().st_ino
        assert acquire_one(store, "tasks/t", "me", 60).epoch == 8
        assert os.fstat(held.fileno()).st_nlink == 0  # which is how it knows
        assert (folder / "events.jsonl").stat().st_ino != inode


# Mail


class Counting(Disk):
    """Counts the folders that are opened."""

    folders = 0

    def folder(self, name: str | os.PathLike[str], parent: int | None = None) -> int:
        self.folders += 1
        return super().folder(name, parent)


def test_inboxes_of_held_streams_are_only_looked_into_when_there_may_be_mail(tmp_path):
    disk = Counting()
    with opened(tmp_path / "w", disk=disk) as store, opened(tmp_path / "w") as other:
        streams = [f"tasks/t-{n}" for n in range(100)]
        leases = [acquire_one(store, stream, "me", 60) for stream in streams]
        assert inbox_of(store, streams) == []
        disk.folders = 0
        assert inbox_of(store, streams) == []
        assert disk.folders == 0
        assert post_to(other, streams[42], "hello", b"one")
        assert post_to(store, streams[7], "hello", b"two")
        for _ in range(2):  # it stays there until it is taken
            assert {post.stream for post in inbox_of(store, streams)} == {streams[7], streams[42]}
        for stream in (streams[7], streams[42]):
            unpost(store, stream, "hello")
        assert inbox_of(store, streams) == []
        disk.folders = 0
        assert inbox_of(store, streams) == []
        assert disk.folders == 0
        store.release([leases[42]])
        assert post_to(other, streams[42], "again", b"three")
        assert [post.name for post in inbox_of(store, streams)] == ["again"]
        acquire_one(store, streams[42], "me", 60)
        assert [post.name for post in inbox_of(store, streams)] == ["again"]


def test_a_message_whose_sender_died_before_it_could_say_so_is_found(tmp_path, monkeypatch):
    with opened(tmp_path / "w") as store, opened(tmp_path / "w") as other:
        acquire_one(store, "tasks/t", "me", 60)
        assert inbox_of(store, ["tasks/t"]) == []
        monkeypatch.setattr(files_mail.holders, "ring", lambda *given: None)
        post_to(other, "tasks/t", "hello", b"one")
        assert inbox_of(store, ["tasks/t"]) == []
        monkeypatch.setattr(files_mail, "_LOOK_ANYWAY_S", 0.0)
        assert [post.name for post in inbox_of(store, ["tasks/t"])] == ["hello"]
