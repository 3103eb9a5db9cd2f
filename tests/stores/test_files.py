"""What a disk can do to the file store, and what the store makes of it."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast import (
    BadInput,
    Holdfast,
    LeaseLost,
    LogDamaged,
    NewerFormat,
    StorageFailed,
    TaskBusy,
    decide,
    note,
    step,
    task,
    tool,
)
from holdfast.log import chain
from holdfast.log.store_calls import acquire_one, holder_of, sync_one
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.store import FileStore
from tests.thorough import THOROUGH, some

ran: list[str] = []


@step
def look(city: str) -> list[str]:
    ran.append("look")
    return [f"{city} Inn"]


@tool(in_doubt="retry")
def send(to: str) -> str:
    ran.append("send")
    return f"sent to {to}"


@task
def small_trip(city: str) -> str:
    room = decide("room", look(city)[0], because="the only one")
    note("Jørgen's 2nd note *J*")
    return f"{room}: {send('ada@example.org')}"


def recorded(folder: Path) -> bytes:
    with Holdfast(folder) as hf:
        hf.run(small_trip, "Oslo", id="t")
    return (folder / "tasks/t/events.jsonl").read_bytes()


@pytest.fixture
def log_bytes(tmp_path):
    return recorded(tmp_path / "recorded")


def workspace_with(folder: Path, data: bytes) -> Path:
    """A workspace whose task `t` has this log."""
    task_folder = folder / "tasks/t"
    task_folder.mkdir(parents=True, exist_ok=True)
    for name in os.listdir(task_folder):
        (task_folder / name).unlink()
    (task_folder / "events.jsonl").write_bytes(data)
    return folder


def test_a_log_cut_at_any_byte_keeps_every_whole_event_and_goes_on(tmp_path, log_bytes):
    expected = "Oslo Inn: sent to ada@example.org"
    ends = {n + off for n, byte in enumerate(log_bytes) if byte == 10 for off in (-1, 0, 1, 2)}
    cuts = ends & set(range(len(log_bytes))) | set(some(range(len(log_bytes)), 5))
    for cut in sorted(cuts):
        folder = workspace_with(tmp_path / "cut", log_bytes[:cut])
        whole = log_bytes[:cut].count(b"\n") + (log_bytes[cut : cut + 1] == b"\n")
        with Holdfast(folder, sync=False) as hf:
            if whole:
                assert hf.task("t").seq == whole, cut
            assert hf.run(small_trip, "Oslo", id="t") == expected
        kept = (folder / "tasks/t/events.jsonl").read_bytes()
        lines = log_bytes[:cut].split(b"\n")[:whole]
        assert kept.split(b"\n")[:whole] == lines, cut
        torn = [p.read_bytes() for p in (folder / "tasks/t").glob("events.jsonl.torn-*")]
        left = log_bytes[:cut][len(b"".join(line + b"\n" for line in lines)) :]
        assert torn == ([left] if left else []), cut


def test_any_flipped_bit_is_refused_and_named_and_nothing_is_changed(tmp_path, log_bytes):
    for place in range(len(log_bytes)):
        for bit in range(8) if THOROUGH else [place % 8]:
            damaged = bytearray(log_bytes)
            damaged[place] ^= 1 << bit
            folder = workspace_with(tmp_path / "flip", bytes(damaged))
            with Holdfast(folder, sync=False) as hf:
                with pytest.raises(LogDamaged, match=r"tasks/t: event \d+ is damaged"):
                    hf.task("t")
                with pytest.raises(LogDamaged):
                    hf.run(small_trip, "Oslo", id="t")
            assert (folder / "tasks/t/events.jsonl").read_bytes() == damaged


def test_a_missing_doubled_or_swapped_line_is_damage(tmp_path, log_bytes):
    lines = log_bytes.splitlines(keepends=True)
    for n in range(len(lines) - 1):
        missing = lines[:n] + lines[n + 1 :]
        doubled = [*lines[: n + 1], *lines[n:]]
        swapped = [*lines[:n], lines[n + 1], lines[n], *lines[n + 2 :]]
        for broken in (missing, doubled, swapped):
            folder = workspace_with(tmp_path / "lines", b"".join(broken))
            with Holdfast(folder, sync=False) as hf, pytest.raises(LogDamaged):
                hf.task("t")


@pytest.mark.parametrize(
    "body",
    [
        b'{"seq":1,"at":"2031-01-01T00:00:00Z","type":"task_created","format":99,"id":"t","task":'
        b'"small_trip","args":{"city":"Oslo"},"args_hash":"x"}',
        b'{"seq":1,"at":"2031-01-01T00:00:00Z","type":"teleported","to":"Mars"}',
    ],
)
def test_lines_from_a_newer_version_are_refused_and_kept(tmp_path, body):
    line, _ = chain.seal(chain.ROOT, body)
    folder = workspace_with(tmp_path / "newer", line + b"\n")
    with Holdfast(folder) as hf:
        with pytest.raises(NewerFormat, match="event 1 was written by a newer Holdfast"):
            hf.task("t")
        with pytest.raises(NewerFormat):
            hf.run(small_trip, "Oslo", id="t")
    assert (folder / "tasks/t/events.jsonl").read_bytes() == line + b"\n"


@pytest.mark.parametrize("garbage", [b"\0" * 4096, b"not json\n", b"\xff\xfe\n", b"{}\n", b"\n\n"])
def test_a_garbage_log_is_no_crash_and_is_never_overwritten(tmp_path, garbage):
    folder = workspace_with(tmp_path / "garbage", garbage)
    with Holdfast(folder) as hf:
        if garbage.endswith(b"\n"):
            with pytest.raises(LogDamaged):
                hf.run(small_trip, "Oslo", id="t")
            assert (folder / "tasks/t/events.jsonl").read_bytes() == garbage
        else:  # zeros to the end are what a power cut leaves of a first append
            hf.run(small_trip, "Oslo", id="t")
            (aside,) = (folder / "tasks/t").glob("events.jsonl.torn-*")
            assert aside.read_bytes() == garbage


class FullDisk(Disk):
    """A disk with room for so many bytes of log."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, fd: int, data: bytes) -> None:
        if b'"sum"' not in data:
            return super().write(fd, data)
        part = data[: max(self.room, 0)]
        self.room -= len(data)
        super().write(fd, part)
        if part != data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_stops_the_task_and_loses_nothing(tmp_path, log_bytes):
    for room in range(0, len(log_bytes), 37):
        ran.clear()
        folder = tmp_path / f"room-{room}"
        with (
            Holdfast(FileStore(folder, disk=FullDisk(room))) as hf,
            pytest.raises(StorageFailed, match="The disk is full: free some space"),
        ):
            hf.run(small_trip, "Oslo", id="t")
        written = folder / "tasks/t/events.jsonl"
        kept = written.read_bytes() if written.exists() else b""
        assert kept.endswith(b"\n") or not kept
        with Holdfast(folder) as hf:
            hf.run(small_trip, "Oslo", id="t")
        assert written.read_bytes().startswith(kept)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_really_full_disk(tmp_path):
    mount = tmp_path / "mount"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(mount)]
    if shutil.which("mount") is None or subprocess.run(command, check=False).returncode:
        pytest.skip("this machine lets nobody mount a tmpfs")
    try:
        (mount / "ballast").write_bytes(b"x" * 40_000)
        with Holdfast(mount / "w") as hf:
            with pytest.raises(StorageFailed, match="The disk is full"):
                for n in range(1000):
                    hf.run(small_trip, "Oslo" * 50, id=f"t-{n}")
            (mount / "ballast").unlink()
            assert hf.run(small_trip, "Oslo" * 50, id=f"t-{n}").startswith("Oslo")
    finally:
        subprocess.run(["umount", "--lazy", mount], check=True)


class SyncFails(Disk):
    def __init__(self) -> None:
        self.broken = False

    def sync(self, fd: int) -> None:
        if self.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(fd)


def test_after_a_failed_sync_the_handle_is_poisoned(tmp_path):
    disk = SyncFails()
    store = FileStore(tmp_path / "w", disk=disk)
    lease = acquire_one(store, "tasks/t", "me", 60)
    store.append(lease, 0, [b"one"])
    sync_one(store, lease)
    disk.broken = True
    store.append(lease, 1, [b"two"])
    with pytest.raises(StorageFailed):
        sync_one(store, lease)
    disk.broken = False  # the kernel forgets an error it has reported once; we must not
    with pytest.raises(StorageFailed, match="not known"):
        store.append(lease, 2, [b"three"])
    with pytest.raises(StorageFailed):
        sync_one(store, lease)
    store.close()


def test_a_second_process_is_told_who_drives_the_task(tmp_path):
    folder = tmp_path / "w"
    store = FileStore(folder)
    lease = acquire_one(store, "tasks/t", "the other process", 60)
    script = f"""
from holdfast import Holdfast, TaskBusy
from tests.stores.test_files import small_trip
with Holdfast({str(folder)!r}) as hf:
    try:
        hf.run(small_trip, "Oslo", id="t")
    except TaskBusy as busy:
        print(busy)
"""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "tasks/t is being driven by the other process" in out.stdout
    store.release([lease])
    store.close()


def test_two_holdfasts_in_one_process_exclude_each_other(tmp_path):
    started, go = threading.Event(), threading.Event()

    @step
    def wait_here() -> int:
        started.set()
        go.wait(60)
        return 1

    @task
    def waiting() -> int:
        return wait_here()

    with Holdfast(tmp_path / "w") as one, Holdfast(tmp_path / "w") as two:
        thread = threading.Thread(target=one.run, args=(waiting,), kwargs={"id": "t"})
        thread.start()
        started.wait(60)
        with pytest.raises(TaskBusy):
            two.run(waiting, id="t")
        go.set()
        thread.join()
        assert two.run(waiting, id="t") == 1


def test_a_stale_worker_is_refused_at_the_append_and_the_new_one_settles_its_call(tmp_path):
    """The first worker hangs in a tool for longer than its lease; a second one takes over."""
    started, go = threading.Event(), threading.Event()
    effects: list[str] = []

    @tool(in_doubt="retry")
    def slow_effect() -> str:
        mine = "second" if started.is_set() else "first"
        started.set()
        if mine == "first":
            go.wait(60)
        effects.append(mine)
        return mine

    @task
    def hanging() -> str:
        return slow_effect()

    failures: list[BaseException] = []
    frozen = Holdfast(tmp_path / "w", lease_s=0.05)
    frozen._holding._heartbeat.add = lambda log: None  # it hangs: no heartbeat

    def first_worker() -> None:
        try:
            frozen.run(hanging, id="t")
        except LeaseLost as lost:
            failures.append(lost)

    thread = threading.Thread(target=first_worker)
    thread.start()
    started.wait(60)
    with Holdfast(tmp_path / "w") as hf:
        threading.Event().wait(0.1)
        assert hf.run(hanging, id="t") == "second"
        log = (tmp_path / "w/tasks/t/events.jsonl").read_bytes()
        go.set()
        thread.join()
        assert (tmp_path / "w/tasks/t/events.jsonl").read_bytes() == log
        assert hf.run(hanging, id="t") == "second"
    assert len(failures) == 1
    assert "taken over" in str(failures[0])
    frozen.close()


def test_folders_are_0700_and_files_0600_under_any_umask(tmp_path):
    for umask in (0o000, 0o022, 0o077, 0o777):
        folder = tmp_path / f"w-{umask:o}"
        old = os.umask(umask)
        try:
            with Holdfast(folder) as hf:
                hf.run(small_trip, "Oslo" * 30_000, id="t")  # large enough for a blob
        finally:
            os.umask(old)
        for path in (folder, *folder.rglob("*")):
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode == (0o700 if path.is_dir() else 0o600), path


def test_no_symlink_is_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = tmp_path / "w"
    with Holdfast(folder) as hf:
        hf.run(small_trip, "Oslo", id="other")
        (folder / "tasks/t").symlink_to(outside)
        with pytest.raises(StorageFailed, match="symlink"):
            hf.run(small_trip, "Oslo", id="t")
        (folder / "tasks/t").unlink()
        (folder / "tasks/t").mkdir()
        (folder / "tasks/t/events.jsonl").symlink_to(outside / "secret")
        with pytest.raises(StorageFailed):
            hf.run(small_trip, "Oslo", id="t")
    assert os.listdir(outside) == []


def test_a_workspace_that_is_a_file_is_a_clear_error(tmp_path):
    (tmp_path / "w").write_text("hello")
    with pytest.raises(StorageFailed, match="can't open the workspace"):
        Holdfast(tmp_path / "w")


def test_a_forked_child_can_not_write_with_its_parents_lease(tmp_path):
    script = f"""
import os, sys
from pathlib import Path
from holdfast.errors import LeaseLost
from holdfast.log.store_calls import acquire_one, sync_one
from holdfast.stores.files.store import FileStore
store = FileStore(Path({str(tmp_path / "w")!r}))
lease = acquire_one(store, "tasks/t", "parent", 60)
if os.fork() == 0:
    try:
        store.append(lease, 0, [b"child"])
    except LeaseLost as lost:
        print(lost, flush=True)
    os._exit(0)
os.wait()
store.append(lease, 0, [b"parent"])
sync_one(store, lease)
print(list(store.read("tasks/t")))
"""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "which forked" in out.stdout
    assert "[b'parent']" in out.stdout


def test_a_large_value_goes_to_a_blob_and_a_damaged_blob_is_named(tmp_path):
    @step
    def big(n: int) -> str:
        return "x" * n

    @task
    def large(n: int) -> int:
        return len(big(n))

    with Holdfast(tmp_path / "w") as hf:
        assert hf.run(large, 200_000, id="t") == 200_000
        log = (tmp_path / "w/tasks/t/events.jsonl").read_bytes()
        assert len(log) < 4000
        (blob,) = (p for p in (tmp_path / "w/blobs").rglob("*") if p.is_file())
        blob.write_bytes(b"y" * 200_002)
        with pytest.raises(LogDamaged, match="do not fit its name"):
            _ = hf.task("t").outputs


def test_a_log_lost_to_zeros_is_not_taken_for_a_torn_first_append(tmp_path):
    folder = workspace_with(tmp_path / "zeros", b"\0" * 2_000_000)
    with Holdfast(folder) as hf, pytest.raises(LogDamaged, match="more than a torn append leaves"):
        hf.run(small_trip, "Oslo", id="t")


def test_events_that_make_no_sense_together_are_damage(tmp_path):
    first = recorded(tmp_path / "recorded").split(b"\n")[0]
    body = b'{"type":"failed","seq":2,"at":"2026-01-01T00:00:00Z","path":"1"}'
    second, _ = chain.seal(chain.sum_of(first), body)
    folder = workspace_with(tmp_path / "senseless", first + b"\n" + second + b"\n")
    with Holdfast(folder) as hf:
        for ask in (lambda: hf.task("t"), lambda: hf.run(small_trip, "Oslo", id="t")):
            with pytest.raises(LogDamaged, match="makes no sense after what came before it"):
                ask()


@pytest.mark.parametrize("digest", ["../../../etc/passwd", "", "A" * 64, "0" * 63, "\0" * 64])
def test_a_forged_blob_reference_opens_nothing(tmp_path, digest):
    with Holdfast(tmp_path / "w") as hf, pytest.raises(LogDamaged, match="no name of a blob"):
        hf.store.get_blob(digest)


def test_a_first_line_that_is_no_text_hides_only_its_own_task(tmp_path):
    with Holdfast(tmp_path / "w") as hf:
        hf.run(small_trip, "Oslo", id="Bad One")
        hf.run(small_trip, "Oslo", id="fine")
        (log,) = (tmp_path / "w/tasks").glob("Bad*/events.jsonl")
        log.write_bytes(b'{"id":"\xff\xfe"}\n')
        assert [view.id for view in hf.tasks()] == ["fine"]


class PausingDisk(Disk):
    """Stops before it renames the log, as a process may be stopped anywhere."""

    def __init__(self) -> None:
        self.at_rename, self.go = threading.Event(), threading.Event()

    def rename(self, old: str, new: str, parent: int) -> None:
        if new == "events.jsonl":
            self.at_rename.set()
            self.go.wait(60)
        super().rename(old, new, parent)


def test_two_that_take_over_at_once_do_so_one_after_the_other(tmp_path):
    first = FileStore(tmp_path / "w")
    frozen = acquire_one(first, "tasks/t", "frozen", 0.01)
    first.append(frozen, 0, [b'{"id":"t"}'])
    sync_one(first, frozen)
    threading.Event().wait(0.05)
    disk = PausingDisk()
    second, third = FileStore(tmp_path / "w", disk=disk), FileStore(tmp_path / "w")
    leases = []
    taker = threading.Thread(target=lambda: leases.append(acquire_one(second, "tasks/t", "B", 60)))
    taker.start()
    assert disk.at_rename.wait(60)
    with pytest.raises(TaskBusy):
        acquire_one(third, "tasks/t", "C", 60)
    disk.go.set()
    taker.join()
    second.append(leases[0], 1, [b"two"])
    sync_one(second, leases[0])
    assert list(third.read("tasks/t")) == [b'{"id":"t"}', b"two"]
    for store in (first, second, third):
        store.close()


def test_a_log_replaced_under_its_writer_is_acknowledged_nothing_more(tmp_path):
    store = FileStore(tmp_path / "w")
    lease = acquire_one(store, "tasks/t", "me", 60)
    store.append(lease, 0, [b"one"])
    sync_one(store, lease)
    log = tmp_path / "w/tasks/t/events.jsonl"
    (tmp_path / "copy").write_bytes(log.read_bytes())
    os.rename(tmp_path / "copy", log)
    store.append(lease, 1, [b"two"])
    with pytest.raises(LeaseLost, match="or its log was replaced"):
        sync_one(store, lease)
    store.close()


def test_a_lease_whose_folder_goes_while_it_is_renewed_is_lost(tmp_path, monkeypatch):
    store = FileStore(tmp_path / "w")
    lease = acquire_one(store, "tasks/t", "me", 60)

    def removed_meanwhile(claim: object) -> float:
        shutil.rmtree(tmp_path / "w/tasks/t")
        return 3600.0

    monkeypatch.setattr(store._holder, "silent_s", removed_meanwhile)
    with pytest.raises(LeaseLost):
        store.renew(lease)
    store.close()


@pytest.mark.parametrize("how", ["emptied", "removed"])
def test_a_log_that_was_lost_is_not_begun_anew(tmp_path, how):
    folder = tmp_path / "w"
    recorded(folder)
    ran.clear()
    log = folder / "tasks/t/events.jsonl"
    log.write_bytes(b"") if how == "emptied" else log.unlink()
    with Holdfast(folder) as hf:
        for ask in (lambda: hf.task("t"), lambda: hf.run(small_trip, "Oslo", id="t")):
            with pytest.raises(LogDamaged, match="events were recorded here"):
                ask()
        for backwards in (False, True):
            with pytest.raises(LogDamaged, match="events were recorded here"):
                list(hf.store.read("tasks/t", backwards=backwards))
    assert ran == []


def test_the_log_of_another_task_is_refused(tmp_path):
    folder = tmp_path / "w"
    recorded(folder)
    shutil.copytree(folder / "tasks/t", folder / "tasks/u")
    with Holdfast(folder) as hf, pytest.raises(LogDamaged, match="the log of task 't'"):
        hf.run(small_trip, "Oslo", id="u")


def test_who_is_at_work_is_known_until_it_ends_or_dies(tmp_path):
    folder = tmp_path / "w"
    script = f"""
import sys, time
from pathlib import Path
from holdfast.log.store_calls import acquire_one, sync_one
from holdfast.stores.files.store import FileStore
store = FileStore(Path({str(folder)!r}))
lease = acquire_one(store, "tasks/t", "the child", 60)
print("ready", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        store = FileStore(folder)
        assert holder_of(store, "tasks/t") == "the child"
        child.kill()
        child.wait()
        assert store.holder("tasks/t") is None
        assert store.holder("tasks/nobody") is None
        store.close()


def test_a_closed_store_says_so(tmp_path):
    hf = Holdfast(tmp_path / "w")
    hf.close()
    for ask in (hf.tasks, lambda: hf.task("t"), lambda: hf.run(small_trip, "Oslo", id="t")):
        with pytest.raises(BadInput, match="was closed"):
            ask()


class RecordingDisk(Disk):
    """Remembers what was done to the disk, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def write(self, fd: int, data: bytes) -> None:
        events = [line for line in data.splitlines() if line.startswith(b'{"type":')]
        self.done += [line.split(b'"')[3].decode() for line in events]
        super().write(fd, data)

    def sync(self, fd: int) -> None:
        self.done.append("SYNC")
        super().sync(fd)

    def sync_folder(self, fd: int) -> None:
        self.done.append("SYNC FOLDER")
        super().sync_folder(fd)


def test_intents_are_synced_before_bodies_and_results_before_the_task_goes_on(tmp_path):
    disk = RecordingDisk()

    @step
    def pure() -> int:
        disk.done.append("pure body")
        return 1

    @tool(in_doubt="retry")
    def effect() -> int:
        disk.done.append("tool body")
        return 2

    @task
    def ordered() -> None:
        pure()
        disk.done.append("after pure")
        effect()
        disk.done.append("after tool")

    store = FileStore(tmp_path / "new" / "w", disk=disk)
    with Holdfast(store) as hf:
        made = disk.done.copy()
        disk.done.clear()
        hf.run(ordered, id="t")
    assert made == ["SYNC FOLDER", "SYNC FOLDER"]  # of the two folders that hold a new name
    assert disk.done == [
        *("task_created", "claimed"),  # written, so that others see that it runs
        "pure body",
        *("stepped", "SYNC"),
        *("SYNC FOLDER", "SYNC FOLDER", "SYNC FOLDER"),
        "after pure",
        *("started", "SYNC"),
        "tool body",
        *("completed", "SYNC"),
        "after tool",
        *("task_completed", "SYNC"),
    ]


def test_a_lock_that_was_deleted_leaves_its_holder_without_a_log(tmp_path):
    first, second = FileStore(tmp_path / "w"), FileStore(tmp_path / "w")
    old = acquire_one(first, "tasks/t", "old", 60)
    first.append(old, 0, [b'{"id":"t"}'])
    sync_one(first, old)
    (tmp_path / "w/tasks/t/lock").unlink()
    new = acquire_one(second, "tasks/t", "new", 60)
    first.append(old, 1, [b"zombie"])
    second.append(new, 1, [b"two"])
    sync_one(second, new)
    with pytest.raises(LeaseLost):
        sync_one(first, old)
    assert list(second.read("tasks/t")) == [b'{"id":"t"}', b"two"]
    first.close()
    second.close()


class DyingDisk(Disk):
    """Dies when it is about to move the log."""

    def rename(self, old: str, new: str, parent: int) -> None:
        if new == "events.jsonl":
            raise KeyboardInterrupt
        super().rename(old, new, parent)


def test_a_taker_that_dies_half_way_is_finished_by_the_next(tmp_path):
    first = FileStore(tmp_path / "w")
    frozen = acquire_one(first, "tasks/t", "A", 0.01)
    first.append(frozen, 0, [b'{"id":"t"}'])
    sync_one(first, frozen)
    threading.Event().wait(0.05)
    with pytest.raises(KeyboardInterrupt):
        acquire_one(FileStore(tmp_path / "w", disk=DyingDisk()), "tasks/t", "B", 60)
    third = FileStore(tmp_path / "w")
    mine = acquire_one(third, "tasks/t", "C", 60)
    first.append(frozen, 1, [b"zombie"])
    third.append(mine, 1, [b"two"])
    sync_one(third, mine)
    assert list(third.read("tasks/t")) == [b'{"id":"t"}', b"two"]
    first.close()
    third.close()


def test_a_child_forked_meanwhile_does_not_keep_the_task(tmp_path):
    script = f"""
import os, time
from pathlib import Path
from holdfast.log.store_calls import acquire_one, sync_one
from holdfast.stores.files.store import FileStore
store = FileStore(Path({str(tmp_path / "w")!r}))
lease = acquire_one(store, "tasks/t", "parent", 60)
child = os.fork()
if child == 0:
    time.sleep(30)
    os._exit(0)
store.release([lease])
print(acquire_one(store, "tasks/t", "again", 60).owner)
os.kill(child, 9)
"""
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout == "again\n"
