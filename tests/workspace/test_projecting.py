"""Readable files are made of the log alone, replaced at once, and never at the cost of an edit."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
import pytest

from holdfast import BadInput, Holdfast, StoreError, TaskNotFound, current, task
from holdfast.core.events import load_event
from holdfast.log.store_calls import acquire_one
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.store import FileStore
from holdfast.stores.sealed.keys import Keys
from holdfast.workspace.pages import footer_of, is_untouched, with_footer
from holdfast.workspace.projecting import FILES, Projection, project, task_folder
from holdfast.workspace.projector import Projector
from holdfast.workspace.replacement import place
from tests.thorough import some
from tests.workspace import workers

pytestmark = pytest.mark.holdfast("{tmp_path}/w", "sqlite:///{tmp_path}/t.db", "memory://")

GOLDEN = sorted(
    folder
    for folder in (Path(__file__).parents[1] / "golden").glob("format-*")
    if (folder / "events.jsonl").exists()
    and "-sessions" not in folder.name
    and "-forks" not in folder.name
)


@task
def plans_and_acts(items: list[str]) -> int:
    current().plan(items)
    for number, item in enumerate(items, 1):
        workers.told_outside(item)
        current().mark(str(number), "done")
    return len(items)


def files_in(folder):
    return {name: (folder / name).read_bytes() for name in FILES if (folder / name).exists()}


# From the log alone


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda folder: folder.name)
def test_deleted_and_made_again_the_files_of_every_old_log_have_the_same_bytes(golden, tmp_path):
    first = msgspec.json.decode((golden / "events.jsonl").read_bytes().splitlines()[0])
    where = task_folder(tmp_path, first["id"])
    where.mkdir(parents=True)
    shutil.copy(golden / "events.jsonl", where)
    if (golden / "blobs").exists():
        shutil.copytree(golden / "blobs", tmp_path / "blobs")
    with Holdfast(tmp_path, projections=False) as hf:
        project(hf.store, first["id"], where)
        before = files_in(where)
        for name in before:
            (where / name).unlink()
        project(hf.store, first["id"], where)
        elsewhere = tmp_path / "elsewhere"
        project(hf.store, first["id"], elsewhere)
    assert {"mission.md", "status.md", "state.json", "progress.log"} <= before.keys()
    assert files_in(where) == files_in(elsewhere) == before


@pytest.mark.parametrize("seed", some(range(8), 4))
def test_kept_up_bit_by_bit_or_made_at_once_the_files_are_the_same(seed, hf, tmp_path):
    chance = random.Random(seed)
    hf.run(workers.wanders, seed, 40, id=f"wanders-{seed}")
    bit_by_bit, at_once, disk = tmp_path / "bits", tmp_path / "once", Disk()
    bit_by_bit.mkdir()
    where = partial(place, disk, tmp_path, "bits")
    projection = Projection(hf.store, f"wanders-{seed}", where, disk)
    while not projection.update(most=chance.randrange(1, 9)).is_current:
        if chance.random() < 0.2:  # another process goes on
            projection = Projection(hf.store, f"wanders-{seed}", where, disk)
        if chance.random() < 0.2:
            (bit_by_bit / chance.choice(FILES)).unlink(missing_ok=True)
    projection.update()
    project(hf.store, f"wanders-{seed}", at_once)
    assert files_in(bit_by_bit) == files_in(at_once)
    assert not list(bit_by_bit.glob("*.edited-*"))
    assert not list(bit_by_bit.glob(".*"))


def test_what_is_up_to_date_is_not_written_again(hf, tmp_path):
    hf.run(plans_and_acts, ["a", "b"], id="p-1")
    assert set(project(hf.store, "p-1", tmp_path / "out").files.values()) == {"made"}
    assert set(project(hf.store, "p-1", tmp_path / "out").files.values()) == {"same"}


def test_a_line_that_a_crash_tore_is_completed(hf, tmp_path):
    hf.run(plans_and_acts, ["a", "b"], id="p-2")
    project(hf.store, "p-2", tmp_path / "out")
    before = files_in(tmp_path / "out")
    for name in ("progress.log", "tool_log.jsonl"):
        os.truncate(tmp_path / "out" / name, len(before[name]) - 7)
    made = project(hf.store, "p-2", tmp_path / "out")
    assert made.files["progress.log"] == made.files["tool_log.jsonl"] == "replaced"
    assert files_in(tmp_path / "out") == before


def test_there_are_no_files_of_a_task_that_is_not_there(hf, tmp_path):
    with pytest.raises(TaskNotFound, match="no task 'nobody'"):
        project(hf.store, "nobody", tmp_path / "out")
    assert not (tmp_path / "out").exists()


# What people edit


def test_an_edited_plan_is_left_alone_until_it_was_taken_in(hf, tmp_path):
    hf.run(plans_and_acts, ["a", "b"], id="p-3")
    out = tmp_path / "out"
    project(hf.store, "p-3", out)
    before = files_in(out)
    edited = before["plan.md"].replace(b"1. a", b"1. another")
    (out / "plan.md").write_bytes(edited)
    assert project(hf.store, "p-3", out).files["plan.md"] == "edited"
    assert (out / "plan.md").read_bytes() == edited
    assert project(hf.store, "p-3", out, taken={"plan.md": edited}).files["plan.md"] == "replaced"
    assert files_in(out) == before


@pytest.mark.parametrize("name", ["status.md", "state.json", "progress.log", "tool_log.jsonl"])
def test_what_was_written_into_any_other_file_is_kept_beside_it(name, hf, tmp_path):
    hf.run(plans_and_acts, ["a", "b"], id="p-4")
    out = tmp_path / "out"
    project(hf.store, "p-4", out)
    before = files_in(out)
    for number in (1, 2):
        mine = before[name].replace(b"p", b"q", 1) + b"mine\n"
        (out / name).write_bytes(mine)
        assert project(hf.store, "p-4", out).files[name] == "kept aside"
        assert (out / f"{name}.edited-{number}").read_bytes() == mine
    assert files_in(out) == before


def test_an_edit_in_the_moment_of_replacing_is_not_lost(hf, tmp_path):
    class Meddling(Disk):
        """Somebody saves the plan just before it is exchanged with a newer one."""

        def exchange(self, one, other, parent):
            if other == "plan.md" and not saved:
                saved.append(b"# Plan\n\n- [ ] 1. mine\n")
                (out / "plan.md").write_bytes(saved[0])
            return super().exchange(one, other, parent)

    saved: list[bytes] = []
    out = tmp_path / "out"
    hf.run(plans_and_acts, ["a"], id="p-5")
    project(hf.store, "p-5", out)
    disk = Meddling()
    # An older plan of ours stands there, and has to give way.
    (out / "plan.md").write_bytes(with_footer("# Plan\n", 2, datetime(2026, 1, 1, tzinfo=UTC)))
    projection = Projection(hf.store, "p-5", partial(place, disk, tmp_path, "out"), disk)
    assert projection.update().files["plan.md"] == "edited"
    assert (out / "plan.md").read_bytes() == saved[0]
    assert sorted(path.name for path in out.iterdir() if path.name[0] == ".") == []


def test_where_names_can_not_be_exchanged_nothing_is_lost_either(hf, tmp_path):
    class Plain(Disk):
        def exchange(self, one, other, parent):
            return False

    hf.run(plans_and_acts, ["a"], id="p-6")
    out, disk = tmp_path / "out", Plain()
    project(hf.store, "p-6", out)
    before = files_in(out)
    (out / "status.md").write_bytes(b"mine\n")
    projection = Projection(hf.store, "p-6", partial(place, disk, tmp_path, "out"), disk)
    assert projection.update().files["status.md"] == "kept aside"
    assert files_in(out) == before
    assert (out / "status.md.edited-1").read_bytes() == b"mine\n"


def test_other_files_in_the_folder_are_left_alone(hf, tmp_path):
    hf.run(plans_and_acts, ["a"], id="p-7")
    out = tmp_path / "out"
    (out / "artifacts").mkdir(parents=True)
    (out / "notes.txt").write_text("mine")
    (out / "artifacts/a.txt").write_text("mine")
    project(hf.store, "p-7", out)
    assert (out / "notes.txt").read_text() == (out / "artifacts/a.txt").read_text() == "mine"


# The disk


def test_files_are_for_their_owner_alone(hf, tmp_path):
    before = os.umask(0)
    try:
        hf.run(plans_and_acts, ["a"], id="p-8")
        project(hf.store, "p-8", tmp_path / "new/out")
    finally:
        os.umask(before)
    out = tmp_path / "new/out"
    assert {oct(path.stat().st_mode & 0o777) for path in out.iterdir()} == {"0o600"}
    assert oct(out.stat().st_mode & 0o777) == "0o700"


@pytest.mark.parametrize("name", ["status.md", "progress.log", "tool_log.jsonl"])
def test_no_symlink_is_followed(name, hf, tmp_path):
    hf.run(plans_and_acts, ["a"], id="p-9")
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(target)
    with pytest.raises(StoreError, match="symlink"):
        project(hf.store, "p-9", tmp_path / "out")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="symlink"):
        project(hf.store, "p-9", tmp_path / "link")
    assert target.read_text() == "precious"
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(hf, tmp_path):
    hf.run(plans_and_acts, ["a"], id="p-10")
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out/state.json")
    with pytest.raises(StoreError, match=r"state\.json is a folder, a pipe or a device"):
        project(hf.store, "p-10", tmp_path / "out")


class FullDisk(Disk):
    """Takes so many bytes more."""

    def __init__(self, left: int) -> None:
        self.left = left

    def write_some(self, fd, data):
        if not self.left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = min(self.left, len(data))
        self.left -= taken
        return super().write_some(fd, data[:taken])


@pytest.mark.parametrize("left", [0, 1, 50, 300, 700, 1000, 1500, 2000, 2500])
def test_a_disk_that_is_full_leaves_whole_files_and_is_gone_on_from(left, hf, tmp_path):
    hf.run(plans_and_acts, ["a"], id="p-11")
    out, disk = tmp_path / "out", FullDisk(10**6)
    out.mkdir()
    projection = Projection(hf.store, "p-11", partial(place, disk, tmp_path, "out"), disk)
    projection.update(most=4)
    before = files_in(out)
    disk.left = left
    try:
        projection.update()
    except OSError as error:
        assert error.errno == errno.ENOSPC
    for name, data in files_in(out).items():
        if name not in ("progress.log", "tool_log.jsonl"):
            assert is_untouched(name, data), name
        else:
            assert data.startswith(before.get(name, b""))
    assert not [path for path in out.iterdir() if path.name[0] == "."]
    disk.left = 10**6
    projection.update()
    project(hf.store, "p-11", tmp_path / "once")
    assert files_in(out) == files_in(tmp_path / "once")
    assert not list(out.glob("*.edited-*"))


# Beside tasks that are driven


def test_the_files_of_a_folder_are_there_when_it_is_closed(tmp_path):
    with Holdfast(tmp_path / "w") as hf:
        hf.run(plans_and_acts, ["a", "b"], id="p-12")
        hf.start(plans_and_acts, ["c"], id="P 13")
    with Holdfast(tmp_path / "w", projections=False) as hf:
        for id in ("p-12", "P 13"):
            project(hf.store, id, tmp_path / "once" / id)
            assert files_in(task_folder(tmp_path / "w", id)) == files_in(tmp_path / "once" / id)


def test_they_come_while_the_task_is_under_way(tmp_path):
    seen: list[bytes] = []

    @task
    def watched_closely() -> None:
        workers.told_outside("a")
        page = task_folder(tmp_path, "watched-1") / "progress.log"
        for _ in range(2000):
            if page.exists() and b"told_outside | completed" in page.read_bytes():
                break
            threading.Event().wait(0.005)
        seen.append(page.read_bytes())

    with Holdfast(tmp_path) as hf:
        hf.projections.every_s = 0.001
        hf.run(watched_closely, id="watched-1")
    assert b"told_outside | completed" in seen[0]


def test_a_full_disk_does_not_disturb_the_task_and_is_told(tmp_path):
    with Holdfast(tmp_path) as hf:
        hf.projections._disk = FullDisk(100)
        assert hf.run(plans_and_acts, ["a", "b"], id="p-14") == 2
        hf.projections.write()
        assert "The disk is full" in hf.projections.problem
        hf.projections._disk.left = 10**6
        hf.projections.write()
        assert hf.projections.problem == ""
    assert (task_folder(tmp_path, "p-14") / "status.md").exists()


def test_damage_in_one_log_does_not_keep_the_files_of_others(tmp_path):
    with Holdfast(tmp_path, projections=False) as hf:
        hf.run(plans_and_acts, ["a", "b"], id="bad")
        hf.run(plans_and_acts, ["a", "b"], id="good")
        projector = Projector(hf.store, tmp_path)
        log = task_folder(tmp_path, "bad") / "events.jsonl"
        log.write_bytes(log.read_bytes().replace(b'"a"', b'"b"', 1))
        projector.changed |= {"tasks/bad", "tasks/good"}
        projector.write()
        assert "tasks/bad" in projector.problem
        projector.close()
    assert (task_folder(tmp_path, "good") / "status.md").exists()
    assert not (task_folder(tmp_path, "bad") / "status.md").exists()


def test_where_many_tasks_begin_at_once_the_files_of_most_wait_for_the_next_time(tmp_path):
    with Holdfast(tmp_path, projections=False) as hf:
        for number in range(20):
            hf.run(plans_and_acts, ["a"], id=f"many-{number}")
        projector = Projector(hf.store, tmp_path)
        projector.changed |= {f"tasks/many-{number}" for number in range(20)}
        projector.write(at_once=True)
        assert (len(projector.changed), projector.problem) == (12, "")
        assert len(list(tmp_path.glob("tasks/*/status.md"))) == 8
        projector.close()
    assert len(list(tmp_path.glob("tasks/*/status.md"))) == 20


def test_a_task_can_be_deleted_and_made_anew_while_its_files_are_kept(tmp_path):
    with Holdfast(tmp_path) as hf:
        hf.projections.every_s = 0.0
        for number in range(30):
            hf.run(plans_and_acts, [str(number)], id="again")
            hf.store.delete(acquire_one(hf.store, "tasks/again", "us", 30.0))
        hf.run(plans_and_acts, ["last"], id="again")
        assert hf.projections.problem == ""
    assert b"last" in (task_folder(tmp_path, "again") / "tool_log.jsonl").read_bytes()
    assert not list(task_folder(tmp_path, "again").glob("*.edited-*"))


def test_two_at_once_write_nothing_twice(tmp_path):
    with Holdfast(tmp_path) as one, Holdfast(tmp_path) as other:
        for hf in (one, other):
            hf.projections.every_s = 0.0
        for number in range(20):
            (one, other)[number % 2].start(
                workers.wanders, number, 5, id=f"w-{number % 3}-{number}"
            )
            hf = (other, one)[number % 2]
            hf.resume(f"w-{number % 3}-{number}")
    with Holdfast(tmp_path, projections=False) as hf:
        for view in hf.tasks():
            project(hf.store, view.id, tmp_path / "once" / view.id)
            assert files_in(task_folder(tmp_path, view.id)) == files_in(tmp_path / "once" / view.id)
            assert not list(task_folder(tmp_path, view.id).glob("*.edited-*"))


def test_an_encrypted_folder_has_no_readable_files(tmp_path):
    with Holdfast(tmp_path / "w", key=Keys.new()) as hf:
        assert hf.projections is None
        hf.run(plans_and_acts, ["a secret"], id="p-15")
    assert not list((tmp_path / "w").rglob("*.md"))
    with pytest.raises(BadInput, match="would tell what it hides"):
        Holdfast(tmp_path / "v", key=Keys.new(), projections=True)


def test_they_are_kept_where_they_have_a_place_and_nobody_said_no(tmp_path):
    for url, options in (
        (tmp_path / "a", {"projections": False}),
        (tmp_path / "b", {"sync": False}),
        (f"sqlite:///{tmp_path}/c.db", {}),
        ("memory://", {}),
        (FileStore(tmp_path / "d"), {}),
    ):
        with Holdfast(url, **options) as hf:
            assert hf.projections is None
    for url, options in (
        (tmp_path / "a", {}),
        (f"file://{tmp_path}/b", {}),
        (FileStore(tmp_path / "d"), {"projections": True}),
        (tmp_path / "e", {"sign_key": Keys.new()}),
    ):
        with Holdfast(url, **options) as hf:
            hf.run(plans_and_acts, ["x"], id="p-16")
        assert list(tmp_path.glob("*/tasks/p-16/status.md"))
    with pytest.raises(BadInput, match="is no folder"):
        Holdfast("memory://", projections=True)


# Killed at any moment


@pytest.mark.parametrize("number", some(range(6), 5))
def test_killed_at_any_moment_every_page_is_whole_and_true_of_an_event(number, tmp_path):
    chance = random.Random(number)
    command = [sys.executable, "-m", "tests.workspace.workers", str(tmp_path / "w"), "3"]
    for _ in range(3):  # each goes on from where the one before was killed
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        _wait_for(task_folder(tmp_path / "w", "goes-on-3") / "status.md")
        with suppress(subprocess.TimeoutExpired):  # on a slow machine it may have ended by itself
            child.wait(timeout=chance.uniform(0.05, 0.6))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        _must_be_true(tmp_path / "w", "goes-on-3", tmp_path / "prefix")


def _wait_for(path):
    for _ in range(2000):
        if path.exists():
            return
        threading.Event().wait(0.005)
    pytest.fail(f"{path.name} did not come")


def _must_be_true(root, task_id, elsewhere):
    folder = task_folder(root, task_id)
    log = (folder / "events.jsonl").read_bytes()
    whole = log[: log.rfind(b"\n") + 1].splitlines(keepends=True)
    for name, data in files_in(folder).items():
        if name in ("progress.log", "tool_log.jsonl"):
            made = _rendered_at(len(whole), whole, task_id, elsewhere)
            assert made[name].startswith(data), name
            continue
        assert is_untouched(name, data), name
        seq = msgspec.json.decode(data)["seq"] if name == "state.json" else footer_of(data)[0].seq
        assert 0 < seq <= len(whole)
        assert load_event(whole[seq - 1]).seq == seq
        assert _rendered_at(seq, whole, task_id, elsewhere)[name] == data


def _rendered_at(seq, whole, task_id, elsewhere):
    """The files of a log that ends with the event `seq`."""
    where = task_folder(elsewhere / str(seq), task_id)
    if not where.exists():
        where.mkdir(parents=True)
        (where / "events.jsonl").write_bytes(b"".join(whole[:seq]))
        with Holdfast(elsewhere / str(seq), projections=False) as hf:
            project(hf.store, task_id, where)
    return files_in(where)
