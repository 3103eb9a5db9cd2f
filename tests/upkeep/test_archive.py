"""An archive is whole or refused, whatever it is, and reading it runs nothing."""

from __future__ import annotations

import json
import os
import random
import stat
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from holdfast import (
    ArchiveDamaged,
    BadInput,
    Conflict,
    Holdfast,
    HoldfastError,
    LogDamaged,
    NewerFormat,
    StorageFailed,
    TaskNotFound,
    Unanswered,
    Worker,
    ask,
    start,
    step,
    task,
)
from holdfast.log.store_calls import inbox_of, post_to, streams_in
from holdfast.upkeep.archive import Archive


@step(name="archived_bulk")
def bulk(size: int) -> str:
    return "y" * size


@task(name="archived_work")
def work(size: int) -> int:
    return len(bulk(size))


@task(name="archived_asking")
def asking() -> bool:
    child = start(work, 5)
    return ask("Sure?", bool) and child.result() == 5


pytestmark = pytest.mark.holdfast("memory://")


@pytest.fixture
def there():
    with Holdfast("memory://") as hf:
        yield hf


@pytest.fixture
def archive(hf, tmp_path):
    hf.run(work, 100_000, id="big")
    hf.run(work, 5, id="../../etc/passwd")
    with pytest.raises(Unanswered):
        hf.run(asking, id="open")
    path = tmp_path / "all.hfa"
    archived = hf.archive_to(path)
    assert set(archived.ids) == {"big", "../../etc/passwd", "open", "open.1"}
    return path


def lines(hf, id):
    return list(hf.store.read(f"tasks/{id}"))


def test_everything_comes_back_byte_by_byte_and_what_was_open_is_paused(hf, there, archive):
    restored = there.restore_from(archive)
    assert restored.refused == ()
    assert {task.id: task.status for task in restored.tasks} == {
        "big": "completed",
        "../../etc/passwd": "completed",
        "open": "paused",
        "open.1": "paused",
    }
    for id in ("big", "../../etc/passwd"):
        assert lines(there, id) == lines(hf, id)
    assert lines(there, "open")[:-1] == lines(hf, "open")
    assert there.task("big").outputs[0].output == "y" * 100_000
    Worker(there).run_until_idle()
    assert there.task("open.1").status == "paused"
    there.unpause("open.1")
    there.unpause("open")
    there.answer("open", True)
    Worker(there).run_until_idle()
    assert there.task("open").result is True


def test_a_second_restore_finds_everything_there(there, archive):
    there.restore_from(archive)
    again = there.restore_from(archive)
    assert {task.id: task.how for task in again.tasks} == {
        "big": "there",
        "../../etc/passwd": "there",
        "open": "ahead",
        "open.1": "ahead",
    }


def test_chosen_tasks_come_with_their_family(there, archive):
    assert [task.id for task in there.restore_from(archive, "big").tasks] == ["big"]
    restored = there.restore_from(archive, ["open.1"])
    assert ({task.id for task in restored.tasks}, restored.along) == ({"open", "open.1"}, ("open",))
    with pytest.raises(TaskNotFound, match=r"no task 'nobody' in .*all\.hfa"):
        there.restore_from(archive, "nobody")


def test_another_task_of_the_same_id_is_kept(there, archive):
    there.run(work, 7, id="big")
    before = lines(there, "big")
    with pytest.raises(Conflict, match="it is another"):
        there.restore_from(archive, "big")
    (refused,) = there.restore_from(archive).refused
    assert (refused.id, refused.error) == ("big", "Conflict")
    assert lines(there, "big") == before


def test_a_dry_run_changes_nothing(there, archive):
    planned = there.restore_from(archive, dry_run=True)
    assert ({task.how for task in planned.tasks}, there.tasks()) == ({"copied"}, [])


def test_it_is_a_private_zip_file_that_says_what_is_in_it(archive, tmp_path):
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    with zipfile.ZipFile(archive) as packed:
        manifest = json.loads(packed.read("manifest.json"))
        assert all(name.split("/")[0] in ("manifest.json", "streams", "blobs")
                   for name in packed.namelist())  # fmt: skip
    assert manifest["format"] == 1
    assert archive.stat().st_size < 20_000
    assert [path.name for path in tmp_path.iterdir()] == ["all.hfa"]


def test_messages_that_wait_are_in_it(hf, there, archive, tmp_path):
    post_to(hf.store, "tasks/open", "answer-x", b'{"not":"ours"}')
    hf.archive_to(tmp_path / "more.hfa", "open")
    there.restore_from(tmp_path / "more.hfa")
    assert [post.name for post in inbox_of(there.store, ["tasks/open"])] == ["answer-x"]


def test_a_log_that_can_not_be_read_keeps_no_other_from_being_archived(tmp_path):
    with Holdfast(tmp_path / "ws") as files:
        files.run(work, 5, id="good")
        files.run(work, 5, id="bad")
        log = tmp_path / "ws/tasks/bad/events.jsonl"
        log.write_bytes(log.read_bytes().replace(b"archived_bulk", b"archived_hulk", 1))
        archived = files.archive_to(tmp_path / "x.hfa")
        assert archived.ids == ("good",)
        assert [(one.id, one.error) for one in archived.refused] == [("bad", "LogDamaged")]
        with pytest.raises(LogDamaged):
            files.archive_to(tmp_path / "y.hfa", "bad")
    assert not (tmp_path / "y.hfa").exists()


def test_a_folder_gets_a_new_file(hf, archive, tmp_path):
    folder = tmp_path / "old"
    folder.mkdir()
    path = Path(hf.archive_to(folder, "big").path)
    assert (path.parent, path.suffix) == (folder, ".hfa")


def test_nothing_is_overwritten(hf, archive, tmp_path):
    before = archive.read_bytes()
    with pytest.raises(BadInput, match="is there already"):
        hf.archive_to(archive)
    (tmp_path / "link.hfa").symlink_to(tmp_path / "target")
    with pytest.raises(BadInput, match="is there already"):
        hf.archive_to(tmp_path / "link.hfa")
    assert archive.read_bytes() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_leaves_no_archive(hf, archive, tmp_path):
    script = (
        "import resource, sys; from holdfast import Holdfast, HoldfastError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "with Holdfast(sys.argv[1]) as hf:\n"
        "    try: hf.archive_to(sys.argv[2])\n"
        "    except HoldfastError as error: print(type(error).__name__)\n"
    )
    with Holdfast(tmp_path / "ws") as files:
        hf.copy_to(files)
    given = [sys.executable, "-c", script, tmp_path / "ws", tmp_path / "x.hfa"]
    done = subprocess.run(given, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "StorageFailed\n", done.stderr
    assert not (tmp_path / "x.hfa").exists()
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".x")] == []


# Archives that are not what they should be


def refused(path: Path) -> HoldfastError | None:
    """The error that a restore ends with, or tells of, if it takes anything it takes it right."""
    with Holdfast("memory://") as hf:
        try:
            restored = hf.restore_from(path)
        except HoldfastError as error:
            assert hf.tasks() == []
            return error
        for view in hf.tasks():
            assert view.status in ("completed", "paused")
        assert hf.tasks().unreadable == []
        return HoldfastError(restored.refused[0].why) if restored.refused else None


@pytest.mark.parametrize("data", [b"", b"PK", b"not an archive", b"\0" * 5000, os.urandom(5000)])
def test_garbage_is_refused(tmp_path, data):
    path = tmp_path / "x.hfa"
    path.write_bytes(data)
    assert isinstance(refused(path), ArchiveDamaged)


def test_what_is_not_there_or_no_file_is_said(tmp_path):
    assert isinstance(refused(tmp_path / "nothing.hfa"), StorageFailed)
    assert isinstance(refused(tmp_path), StorageFailed)


def test_one_that_is_cut_short_is_refused_wherever_it_is_cut(archive, tmp_path):
    data = archive.read_bytes()
    path = tmp_path / "cut.hfa"
    for end in range(0, len(data), max(len(data) // 60, 1)):
        path.write_bytes(data[:end])
        assert isinstance(refused(path), ArchiveDamaged), end


def test_one_that_was_changed_anywhere_gives_nothing_wrong(hf, archive, tmp_path):
    data, path, chance = archive.read_bytes(), tmp_path / "changed.hfa", random.Random(7)
    noticed = 0
    for _ in range(150):
        changed = bytearray(data)
        for _ in range(chance.choice((1, 1, 3))):
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        with Holdfast("memory://") as there:
            try:
                restored = there.restore_from(path)
                noticed += bool(restored.refused)
            except HoldfastError:
                noticed += 1
            for stream in streams_in(there.store, "tasks/"):
                ours, theirs = list(hf.store.read(stream)), list(there.store.read(stream))
                assert theirs[: len(ours)] == ours
            assert there.tasks().unreadable == []
    assert noticed > 75


def rewritten(archive: Path, path: Path, **changes) -> Path:
    """An archive with other entries, and sums that fit where the manifest is made anew."""
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            data = old.read(name)
            change = changes.get(name.split("/")[0].partition(".")[0])
            new.writestr(name, change(data) if change else data)
    return path


def manifest_with(**fields):
    return lambda data: json.dumps({**json.loads(data), **fields}).encode()


def test_a_newer_format_is_told_from_damage(archive, tmp_path):
    newer = rewritten(archive, tmp_path / "x.hfa", manifest=manifest_with(format=3, more=[1]))
    assert isinstance(refused(newer), NewerFormat)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"{}",
        lambda data: b"null",
        lambda data: b"\xff" * 100,
        lambda data: b"[" * 100_000,
        manifest_with(streams=7),
        manifest_with(blobs={"../../etc/passwd": -1}),
        manifest_with(blobs={}),
        lambda data: data.replace(b'"events":', b'"events":1'),
        lambda data: data.replace(b'"size_bytes":', b'"size_bytes":1'),
        lambda data: data.replace(b'"sha256":"', b'"sha256":"0'),
        lambda data: data.replace(b"streams/", b"../streams/"),
        lambda data: data.replace(b'"tasks/big"', b'"tasks/other"'),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(archive, tmp_path, change):
    assert refused(rewritten(archive, tmp_path / "x.hfa", manifest=change)) is not None


def test_lines_and_blobs_that_do_not_fit_their_sums_are_refused(archive, tmp_path):
    for kind in ("streams", "blobs"):
        for n, change in enumerate(
            (lambda data: data[:-1], lambda data: data + b"x", lambda data: data.swapcase())
        ):
            path = rewritten(archive, tmp_path / f"{kind}-{n}.hfa", **{kind: change})
            assert refused(path) is not None, (kind, n)


def test_a_blob_that_is_another_is_refused_by_the_archive_itself(archive, tmp_path):
    path = rewritten(archive, tmp_path / "x.hfa", blobs=lambda data: data.swapcase())
    with Archive(path) as opened:
        (digest,) = opened.manifest.blobs
        with pytest.raises(ArchiveDamaged, match="is not what was written"):
            opened.get_blob(digest)


def test_a_bomb_is_refused_before_it_goes_off(archive, tmp_path, there):
    """A gigabyte of zeros where the manifest says there is a log."""
    path = tmp_path / "bomb.hfa"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        with packed.open("streams/0.jsonl", "w") as entry:
            for _ in range(1024):
                entry.write(bytes(1 << 20))
        stream = {"stream": "tasks/b", "entry": "streams/0.jsonl", "events": 1, "sha256": ""}
        for size in (100, 1 << 30, 1 << 40):
            about = {"format": 1, "holdfast": "0", "made_at": "2026-01-01T00:00:00Z", "source": ""}
            about |= {"streams": [{**stream, "size_bytes": size}], "blobs": {}}
            packed.writestr(f"manifest-{size}", json.dumps(about))
    assert path.stat().st_size < 3_000_000
    for size, kind in ((100, ArchiveDamaged), (1 << 30, ArchiveDamaged), (1 << 40, BadInput)):
        made = tmp_path / f"bomb-{size}.hfa"
        with zipfile.ZipFile(path) as old:
            made.write_bytes(path.read_bytes())
            with zipfile.ZipFile(made, "a", zipfile.ZIP_DEFLATED) as packed:
                packed.writestr("manifest.json", old.read(f"manifest-{size}"))
        most = most_memory(made)
        assert most.startswith(kind.__name__ if kind is BadInput else "refused"), most
        assert int(most.split()[-1]) < 200_000, f"it took {most} KiB"


def most_memory(path: Path) -> str:
    script = (
        "import re, sys; from holdfast import Holdfast, HoldfastError\n"
        "with Holdfast('memory://') as hf:\n"
        "    try: print('refused' if hf.restore_from(sys.argv[1]).refused else 'taken', end=' ')\n"
        "    except HoldfastError as error: print(type(error).__name__, end=' ')\n"
        # Not `ru_maxrss`, which begins with what the process that started this one has.
        "print(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, path],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_more_than_was_allowed_is_refused(there, archive):
    with pytest.raises(BadInput, match="--max-bytes"):
        there.restore_from(archive, max_bytes=1000)
    assert there.tasks() == []


def test_hostile_names_in_the_zip_are_never_used(archive, tmp_path, there):
    with zipfile.ZipFile(archive, "a") as packed:
        packed.writestr("../../../escaped", b"x")
        packed.writestr("/tmp/absolute", b"x")
    before = sorted(tmp_path.rglob("*"))
    there.restore_from(archive)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_encrypted_or_odd_entry_is_damage(archive, tmp_path):
    data = bytearray(archive.read_bytes())
    at = data.index(b"PK\x01\x02")
    while at >= 0:
        struct.pack_into("<H", data, at + 8, 1)  # "encrypted"
        at = data.find(b"PK\x01\x02", at + 4)
    path = tmp_path / "x.hfa"
    path.write_bytes(data)
    assert isinstance(refused(path), ArchiveDamaged)


def test_reading_an_archive_needs_no_code_of_its_tasks(archive):
    script = (
        "import sys; from holdfast import Holdfast\n"
        "with Holdfast('memory://') as hf: print(len(hf.restore_from(sys.argv[1]).tasks))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, archive], capture_output=True, text=True, check=False
    )
    assert done.stdout == "4\n", done.stderr


def test_an_archive_is_read_from_anywhere(archive):
    with Archive(archive) as opened:
        whole = list(opened.read("tasks/big"))
        assert list(opened.read("tasks/big", 2)) == whole[2:]
        assert list(opened.read("tasks/nobody")) == []
