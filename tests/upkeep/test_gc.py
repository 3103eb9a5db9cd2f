"""Finished tasks are deleted as a policy says, and nothing that anybody needs."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from holdfast import (
    BadInput,
    Holdfast,
    LogDamaged,
    Retention,
    TaskBusy,
    TaskCancelled,
    TaskFailed,
    Unanswered,
)
from holdfast.core.events import FORMAT, TaskCreated, dump_event
from holdfast.log import chain
from holdfast.log.store_calls import (
    acquire_one,
    facts_of_all,
    post_to,
    streams_in,
    sync_one,
    unpost,
)
from holdfast.stores.port import Facts
from holdfast.testing import Clock
from holdfast.upkeep.families import nothing
from holdfast.upkeep.sweep import Census
from tests.stores import agents
from tests.stores.databases import ROOT
from tests.stores.every import KINDS, new_url, postgres_server  # noqa: F401
from tests.thorough import THOROUGH
from tests.upkeep import movers

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
NOW_ONLY = timedelta()


@pytest.fixture
def clock():
    return Clock(tick_s=0.000001)


@pytest.fixture(params=KINDS)
def hf(request, new_url, clock):  # noqa: F811
    with Holdfast(new_url(request.param), clock=clock) as hf:
        yield hf


@pytest.fixture
def memory(clock):
    with Holdfast("memory://", clock=clock) as hf:
        yield hf


def ids(hf):
    return sorted(view.id for view in hf.tasks())


def gone(swept):
    return [task.id for task in swept.tasks]


def every_day(hf, clock, *names, task=agents.adding, given=1):
    for name in names:
        hf.run(task, given, id=name)
        clock.now += DAY


def is_fork(hf, id, origin):
    """Have the store know a task as a fork of another one."""
    facts = dict(facts_of_all(hf.store, f"tasks/{id}"))[f"tasks/{id}"]
    state = hf.task(id).state
    hf.store.remember(f"tasks/{id}", msgspec.structs.replace(facts, origin=origin), state.seq)


def test_a_task_stays_while_a_fork_of_it_does(hf, clock):
    every_day(hf, clock, "first", "alone", "fork")
    is_fork(hf, "fork", "first")
    assert [task.id for task in hf.page(origin="first").tasks] == ["fork"]
    swept = hf.gc(Retention(older_than=2 * DAY))
    assert (gone(swept), ids(hf)) == (["alone"], ["first", "fork"])
    clock.now += 2 * DAY
    assert (sorted(gone(hf.gc(Retention(older_than=2 * DAY)))), ids(hf)) == (["first", "fork"], [])


def test_a_task_that_was_forked_while_the_clean_up_was_at_work_stays(hf, clock):
    every_day(hf, clock, "first", "second")

    def fork_it(progress):
        if progress.what == "deleted":
            hf.run(agents.adding, 1, id="fork")
            is_fork(hf, "fork", "second")

    swept = hf.gc(Retention(older_than=NOW_ONLY), progress=fork_it)
    assert (gone(swept), ids(hf)) == (["first"], ["fork", "second"])
    assert [(kept.id, kept.why) for kept in swept.kept] == [
        ("second", "it was forked meanwhile: fork")
    ]


# What a policy says


def test_old_tasks_go_and_a_dry_run_says_so_before(hf, clock):
    every_day(hf, clock, "a", "b", "c")
    policy = Retention(older_than=2 * DAY)
    planned = hf.gc(policy, dry_run=True)
    assert (gone(planned), planned.dry_run, ids(hf)) == (["a", "b"], True, ["a", "b", "c"])
    swept = hf.gc(policy)
    assert (gone(swept), ids(hf)) == (["a", "b"], ["c"])
    assert (swept.freed_bytes, swept.size_bytes) == (planned.freed_bytes, planned.size_bytes)
    assert swept.freed_bytes > 500
    assert {task.why for task in swept.tasks} == {"older than 2 days"}
    assert gone(hf.gc(policy)) == []
    assert hf.run(agents.adding, 1, id="a") == 1  # it can be made anew


def test_without_a_policy_no_task_goes(hf, clock):
    every_day(hf, clock, "a")
    assert (gone(hf.gc()), gone(hf.gc(Retention(status="completed"))), ids(hf)) == ([], [], ["a"])


def test_the_newest_of_each_type_stay(memory, clock):
    every_day(memory, clock, "a", "b", "c")
    every_day(memory, clock, "x", "y", task=agents.doubling)
    assert gone(memory.gc(Retention(keep_last=2), dry_run=True)) == ["a"]
    assert gone(memory.gc(Retention(keep_last=0), dry_run=True)) == ["a", "b", "c", "x", "y"]
    assert gone(memory.gc(Retention(keep_last=1, older_than=2 * DAY), dry_run=True)) == [
        "a",
        "b",
        "x",
    ]
    assert gone(memory.gc(Retention(keep_last=1, type="stored_doubling"))) == ["x"]


def test_only_what_ended_in_a_status_goes(memory, clock):
    every_day(memory, clock, "good")
    memory.start(agents.adding, 1, id="off")
    memory.cancel("off")
    clock.now += DAY
    assert gone(memory.gc(Retention(keep_last=0, status="cancelled"), dry_run=True)) == ["off"]
    assert gone(memory.gc(Retention(keep_last=0, status=("completed",)))) == ["good"]


def test_the_oldest_go_until_the_store_is_small_enough(hf, clock):
    for size, name in ((1, "old"), (2, "middle"), (1, "new")):
        hf.run(agents.hoarding, size, id=name)  # megabytes; the same bytes are one blob
        clock.now += DAY
    policy = Retention(max_bytes=2_500_000, grace=NOW_ONLY)
    planned = hf.gc(policy, dry_run=True)
    assert gone(planned) == ["old", "middle"]  # without `old` nothing is freed: `new` names it too
    swept = hf.gc(policy)
    assert (gone(swept), swept.blobs, swept.blob_bytes > 2_000_000) == (gone(planned), 1, True)
    assert swept.size_bytes <= 2_500_000
    assert len(hf.task("new").outputs[0].output) == 1 << 20
    assert gone(hf.gc(policy)) == []


def test_no_more_tasks_go_for_blobs_that_are_too_young_to_go(hf, clock):
    for size, name in ((3, "old"), (2, "middle"), (1, "new")):
        hf.run(agents.hoarding, size, id=name)
        clock.now += DAY
    policy = Retention(max_bytes=4_000_000)
    swept = hf.gc(policy)
    assert (gone(swept), swept.blobs) == (["old"], 0)
    assert swept.size_bytes > 6_000_000  # it is there still, until it is an hour old
    assert gone(hf.gc(policy)) == []
    assert (hf.gc(Retention(grace=NOW_ONLY)).blobs, ids(hf)) == (1, ["middle", "new"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"status": "in_progress"}, "only what has ended"),
        ({"status": ()}, "only what has ended"),
        ({"keep_last": -1}, "must be 0 or more"),
        ({"max_bytes": "1"}, "must be 0 or more"),
        ({"keep_last": True}, "must be 0 or more"),
        ({"status": 5}, r"Retention\(status=5\) must be a text"),
        ({"status": [[]]}, "must be a text"),
        ({"type": 5}, r"Retention\(type=5\) must be a text"),
        ({"type": [5]}, "must be a text"),
        ({"type": None}, "must be a text"),
        ({"older_than": 30}, "must be a timedelta"),
        ({"grace": -DAY}, "must be a timedelta of 0 or more"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(given, message):
    with pytest.raises(BadInput, match=message):
        Retention(**given)


# What never goes

EVERYTHING = Retention(older_than=NOW_ONLY, grace=NOW_ONLY)


def test_unfinished_tasks_stay_whatever_the_policy(hf, clock, tmp_path):
    hf.start(agents.adding, 1, id="pending")
    with pytest.raises(Unanswered):
        hf.run(agents.careful, "Sure", id="asks")
    hf.start(agents.adding, 1, id="paused")
    hf.pause("paused")
    with pytest.raises(KeyboardInterrupt):
        hf.run(movers.half, str(tmp_path), "h", id="half")
    clock.now += 1000 * DAY
    assert hf.gc(EVERYTHING).tasks == ()
    assert ids(hf) == ["asks", "half", "half.3", "paused", "pending"]
    assert len(hf.task("half").outputs[1].output) == 100_000


def test_a_finished_child_stays_while_its_parent_is_not(memory, clock, tmp_path):
    with pytest.raises(Unanswered):
        memory.run(movers.asking, str(tmp_path), id="m")
    memory.resume("m.3")
    clock.now += DAY
    assert memory.task("m.3").status == "completed"
    assert memory.gc(EVERYTHING).tasks == ()
    memory.answer("m", True)
    memory.resume("m")
    clock.now += DAY
    assert sorted(gone(memory.gc(EVERYTHING))) == ["m", "m.3"]
    assert list(memory.store.blobs()) == []


def test_a_finished_parent_stays_while_its_child_is_not(memory, clock):
    memory.run(movers.leaving, id="p")
    clock.now += DAY
    assert [memory.task(id).status for id in ("p", "p.1")] == ["completed", "pending"]
    swept = memory.gc(EVERYTHING)
    assert (swept.tasks, swept.kept) == ((), ())  # it is not even thought of


def test_a_family_is_as_old_as_its_youngest(memory, clock):
    memory.run(agents.family, [1, 2], id="f")
    clock.now += DAY
    assert gone(memory.gc(Retention(older_than=2 * DAY))) == []
    assert sorted(gone(memory.gc(Retention(older_than=DAY / 2)))) == ["f", "f.1", "f.2"]


def test_a_task_with_something_left_to_undo_stays(memory, clock):
    with pytest.raises(Unanswered):
        memory.run(movers.booking, "room", id="b")
    memory.cancel("b")
    clock.now += DAY
    assert memory.gc(EVERYTHING).tasks == ()
    with pytest.raises((TaskCancelled, TaskFailed)):
        memory.resume("b")
    assert memory.task("b").status == "cancelled"
    assert [undone.status for undone in memory.task("b").compensation] == ["could not be undone"]
    clock.now += DAY
    swept = memory.gc(EVERYTHING)
    assert (gone(swept), [kept.why for kept in swept.kept]) == (
        [],
        ["something that it did is still to be undone"],
    )


def test_a_task_that_somebody_holds_stays(hf, clock):
    every_day(hf, clock, "a", "b")
    lease = acquire_one(hf.store, "tasks/a", "somebody", 60)
    swept = hf.gc(EVERYTHING)
    assert (gone(swept), [kept.id for kept in swept.kept]) == (["b"], ["a"])
    hf.store.release([lease])
    assert gone(hf.gc(EVERYTHING)) == ["a"]


def test_a_task_that_goes_on_while_its_end_is_prepared_stays(memory, clock):
    every_day(memory, clock, "a", "b")

    def meddle(progress):
        if progress.what == "deleted" and progress.id == "a":
            lease = acquire_one(memory.store, "tasks/b", "somebody", 60)
            memory.store.append(lease, len(list(memory.store.read("tasks/b"))), [b"{}"])
            memory.store.release([lease])

    swept = memory.gc(EVERYTHING, progress=meddle)
    assert gone(swept) == ["a"]
    assert [(kept.id, kept.why) for kept in swept.kept] == [("b", "it has gone on meanwhile")]
    assert list(streams_in(memory.store, "tasks/")) == ["tasks/b"]


def test_what_the_store_tells_wrongly_is_not_believed(memory, clock):
    memory.start(agents.adding, 1, id="a")
    clock.now += DAY
    memory.store.remember("tasks/a", Facts("stored_adding", "completed"), memory.task("a").seq)
    swept = memory.gc(EVERYTHING)
    assert (gone(swept), [kept.why for kept in swept.kept]) == ([], ["it is pending"])


def test_a_damaged_task_stays_and_so_does_every_blob(tmp_path, clock):
    with Holdfast(tmp_path / "ws", clock=clock) as hf:
        hf.run(agents.hoarding, 1, id="h")
        hf.run(agents.hoarding, 2, id="lost")
        clock.now += DAY
        log = tmp_path / "ws/tasks/lost/events.jsonl"
        log.write_bytes(b"")
        swept = hf.gc(EVERYTHING)
        assert (gone(swept), swept.blobs) == (["h"], 0)
        assert [stream.id for stream in swept.unreadable] == ["tasks/lost"]
        assert len(list(hf.store.blobs())) == 2


@pytest.mark.parametrize("kind", ["files", "sqlite"])
def test_a_log_whose_sums_do_not_fit_keeps_every_blob(kind, new_url, tmp_path, clock):  # noqa: F811
    url = new_url(kind)
    with Holdfast(url, clock=clock) as hf:
        hf.run(agents.hoarding, 1, id="h")
        clock.now += DAY
    if kind == "files":
        log = Path(url) / "tasks/h/events.jsonl"
        log.write_bytes(log.read_bytes().replace(b"$blob", b"$blub"))
    else:
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db, db:
            changed = db.execute(
                "UPDATE lines SET line = CAST(replace(line, '$blob', '$blub') AS BLOB)"
            )
            assert changed.rowcount > 0
    with Holdfast(url, clock=clock) as hf:
        for policy in (EVERYTHING, Retention(max_bytes=0, grace=NOW_ONLY)):
            swept = hf.gc(policy)
            assert (gone(swept), swept.blobs) == ([], 0)
            assert [stream.id for stream in swept.unreadable] == ["tasks/h"]
        assert len(list(hf.store.blobs())) == 1


def test_while_no_blob_can_go_no_task_goes_for_its_size(memory, clock):
    every_day(memory, clock, "a", "b", task=agents.hoarding)
    logged(memory.store, "tasks/broken", reference("0" * 64))
    swept = memory.gc(Retention(max_bytes=1000, grace=NOW_ONLY))
    assert (gone(swept), [log.id for log in swept.unreadable]) == ([], ["tasks/broken"])
    assert gone(memory.gc(Retention(older_than=DAY / 2, status="completed"))) == ["a", "b"]


def test_of_two_at_once_the_second_is_told(hf, clock):
    every_day(hf, clock, "a")
    acquire_one(hf.store, "housekeeping/gc", "the first", 60)
    with pytest.raises(TaskBusy, match="the first"):
        hf.gc(EVERYTHING)
    assert gone(hf.gc(EVERYTHING, dry_run=True)) == ["a"]


# Blobs


def test_blobs_go_with_the_last_log_that_names_them(hf, clock):
    every_day(hf, clock, "a", "b", task=agents.hoarding)
    swept = hf.gc(Retention(keep_last=1, grace=NOW_ONLY))
    assert (gone(swept), swept.blobs) == (["a"], 0)
    swept = hf.gc(Retention(keep_last=0, grace=NOW_ONLY))
    assert (gone(swept), swept.blobs, list(hf.store.blobs())) == (["b"], 1, [])


def test_a_blob_that_nobody_names_stays_for_a_while(hf):
    digest = hf.store.put_blob(b"about to be named" * 5000)
    assert hf.gc().blobs == 0
    assert hf.store.get_blob(digest)
    swept = hf.gc(Retention(grace=NOW_ONLY))
    assert (swept.blobs, swept.freed_bytes) == (1, 85_000)


def test_a_blob_that_only_a_message_names_stays(hf):
    hf.start(agents.adding, 1, id="a")
    digest = hf.store.put_blob(b"x" * 70_000)
    post_to(hf.store, "tasks/a", "m", b'{"answer":{"$blob":"%s","size_bytes":1}}' % digest.encode())
    assert hf.gc(Retention(grace=NOW_ONLY)).blobs == 0
    unpost(hf.store, "tasks/a", "m")
    assert hf.gc(Retention(grace=NOW_ONLY)).blobs == 1


def reference(digest, **more):
    return msgspec.json.encode({"$blob": digest, "size_bytes": 1, **more})


def logged(store, stream, args, facts=None):
    """A log of one event, that names what `args` name."""
    event = TaskCreated(
        seq=1, at=START, format=FORMAT, id=stream.partition("/")[2], task="t",
        args=msgspec.Raw(args), args_hash="",
    )  # fmt: skip
    lease = acquire_one(store, stream, "me", 60)
    store.append(lease, 0, [chain.seal(chain.ROOT, dump_event(event))[0]], facts)
    sync_one(store, lease)
    store.release([lease])


def part(digest):
    return msgspec.json.encode({"$part": digest, "size_bytes": 1})


def test_what_a_blob_names_stays_with_whoever_names_the_blob(hf):
    put = hf.store.put_blob
    leaf, other = put(b"leaf" * 100), put(b"other" * 100)
    inner = put(b"[%s]" % part(leaf))  # an artifact, and its parts
    artifact = msgspec.json.encode({"$parts": inner, "size_bytes": 400})
    outer = put(b"[%s,%s]" % (artifact, reference(other, list=True)))
    content = put(part(put(b"not named: a part is content")))
    for name, value in (("a", reference(outer)), ("b", reference(outer)), ("c", part(content))):
        logged(hf.store, f"tasks/{name}", value)
    census = Census(hf.store, 0, nothing)
    assert {blob.size_bytes for blob in census.spare()} == {28}
    census.remove("tasks/a")
    assert len(census.spare()) == 1
    census.remove("tasks/b")
    assert {blob.digest for blob in census.spare()} >= {leaf, other, inner, outer}
    left = census.left_bytes
    census.keep_after_all("tasks/b")
    assert len(census.spare()) == 1
    census.remove("tasks/b")
    assert census.left_bytes == left


def test_a_blob_that_can_not_be_read_keeps_everything(memory):
    logged(memory.store, "tasks/a", reference("0" * 64))
    memory.store.put_blob(b"spare")
    swept = memory.gc(Retention(grace=NOW_ONLY))
    assert (swept.blobs, [stream.id for stream in swept.unreadable]) == (0, ["tasks/a"])


@pytest.mark.parametrize(
    "text",
    [
        b'{"$blob":"%s"}',
        b'{"a":[{"b":{"$blob" : "%s","size_bytes":3}}]}',
        b'"{\\"$blob\\":\\"%s\\"}"',
        b'{"$blob":"%s',
        b'{"$parts":"%s","size_bytes":3}',
        b'{"$part":"%s"}',
    ],
)
def test_names_are_found_however_they_stand(memory, text):
    digest = memory.store.put_blob(b"needed")
    memory.start(agents.adding, 1, id="a")
    post_to(memory.store, "tasks/a", "m", text % digest.encode() + b'"')
    swept = memory.gc(Retention(grace=NOW_ONLY))
    assert (swept.blobs, swept.unreadable) == (0, ())


# What crashes left


def test_leftovers_of_crashed_writers_go_when_they_are_old(tmp_path, clock):
    with Holdfast(tmp_path / "ws", clock=clock) as hf:
        hf.run(agents.hoarding, 1, id="h")
        task = tmp_path / "ws/tasks/h"
        (blobs,) = (tmp_path / "ws/blobs").iterdir()
        (tmp_path / "ws/tasks/.deleted-0123456789ab/inbox").mkdir(parents=True)
        (tmp_path / "ws/tasks/.deleted-0123456789ab/events.jsonl").write_bytes(b"x" * 10)
        (task / "inbox").mkdir()
        (task / "artifacts").mkdir()
        temporary = [
            task / "events.jsonl.0123456789ab",
            task / "lock.0123456789ab",
            task / "inbox/.0123456789ab",
            blobs / f".{'0' * 64}.0123456789ab",
            tmp_path / "ws/index.jsonl.0123456789ab",
        ]
        others = [task / "artifacts/lock.0123456789ab", task / "notes.txt"]
        torn = task / "events.jsonl.torn-7-012345"
        for path in (*temporary, *others, torn):
            path.write_bytes(b"x" * 10)
        assert hf.gc().leftovers.count == 0  # somebody may be at it
        for path in (*temporary, *others, torn):
            os.utime(path, (time.time() - 7200,) * 2)
        assert hf.gc(dry_run=True).leftovers.count == 5
        swept = hf.gc()
        assert (swept.leftovers.count, swept.leftovers.size_bytes) == (5, 50)
        assert [path for path in temporary if path.exists()] == []
        assert torn.exists()
        assert all(path.exists() for path in others)
        assert hf.gc(Retention(older_than=timedelta(hours=3))).leftovers.count == 0
        swept = hf.gc(Retention(older_than=timedelta(hours=1), status="failed"))
        assert swept.leftovers.count == 1
        assert not torn.exists()
        swept = hf.gc(Retention(grace=NOW_ONLY))
        assert (swept.leftovers.count, swept.leftovers.size_bytes) == (1, 10)
        assert not (tmp_path / "ws/tasks/.deleted-0123456789ab").exists()
        assert hf.task("h").status == "completed"


def test_what_an_interrupted_copy_left_goes_after_a_day_and_keeps_its_blobs_until_then(hf, clock):
    digest = hf.store.put_blob(b"x" * 70_000)
    logged(hf.store, "copies/m", reference(digest), Facts(status="pending", updated_at=clock()))
    swept = hf.gc(Retention(grace=NOW_ONLY))
    assert (swept.blobs, swept.leftovers.count, swept.unreadable) == (0, 0, ())
    clock.now += 2 * DAY
    assert hf.gc(Retention(grace=NOW_ONLY)).leftovers.count == 1
    assert list(streams_in(hf.store, "copies/")) == []
    assert hf.gc(Retention(grace=NOW_ONLY)).blobs == 1


def test_sqlite_gives_space_back_when_asked(tmp_path, clock):
    path = tmp_path / "x.db"
    with Holdfast(f"sqlite:///{path}", clock=clock) as hf:
        hf.run(agents.hoarding, 4, id="h")
        clock.now += DAY
        swept = hf.gc(EVERYTHING, compact=True)
        assert swept.compacted_bytes > 4_000_000
        assert path.stat().st_size < 1_000_000
        assert hf.run(agents.adding, 4, id="a") == 10


# Archived first


def test_what_goes_is_archived_first_and_can_be_brought_back(hf, clock, tmp_path):
    hf.run(agents.hoarding, 1, id="h", user="ada")
    hf.run(agents.family, [1, 2], id="f")
    before = {id: list(hf.store.read(f"tasks/{id}")) for id in ids(hf)}
    clock.now += DAY
    swept = hf.gc(EVERYTHING, archive=tmp_path / "old.hfa")
    assert swept.archive is not None
    assert sorted(swept.archive.ids) == sorted(before)
    assert (ids(hf), list(hf.store.blobs())) == ([], [])
    restored = hf.restore_from(tmp_path / "old.hfa")
    assert {task.how for task in restored.tasks} == {"copied"}
    assert {id: list(hf.store.read(f"tasks/{id}")) for id in ids(hf)} == before
    assert [view.id for view in hf.tasks(user="ada")] == ["h"]
    assert len(hf.task("h").outputs[0].output) == 1 << 20


def test_nothing_is_deleted_if_it_can_not_be_archived(memory, clock, tmp_path):
    every_day(memory, clock, "a")
    memory.run(agents.hoarding, 1, id="h")
    clock.now += DAY
    (tmp_path / "there.hfa").touch()
    with pytest.raises(BadInput, match="is there already"):
        memory.gc(EVERYTHING, archive=tmp_path / "there.hfa")
    with pytest.raises(BadInput, match="no folder"):
        memory.gc(EVERYTHING, archive=tmp_path / "nowhere/old.hfa")
    for blob in list(memory.store.blobs()):
        memory.store.delete_blob(blob.digest, 0)
    with pytest.raises(LogDamaged, match="the blob is gone"):
        memory.gc(EVERYTHING, archive=tmp_path / "old.hfa")
    assert ids(memory) == ["a", "h"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there.hfa"]


@pytest.mark.parametrize(("kind", "every"), [("files", 7), ("sqlite", 11), ("postgres", 17)])
def test_a_clean_up_killed_anywhere_loses_nothing_and_can_be_made_again(
    kind, every, new_url, tmp_path  # noqa: F811
):  # fmt: skip
    given = [new_url(kind), str(tmp_path), "1", str(2 if THOROUGH else every)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.upkeep.sweepers", *given],
        cwd=ROOT, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert ", 0 wrong" in done.stdout


def test_a_dry_run_archives_nothing(memory, clock, tmp_path):
    every_day(memory, clock, "a")
    assert memory.gc(EVERYTHING, archive=tmp_path, dry_run=True).archive is None
    assert list(tmp_path.iterdir()) == []
