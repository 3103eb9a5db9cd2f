"""Whatever is done to a store, a fork stays with the past it shares, and reads as it did."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast import Conflict, Holdfast, LogDamaged, Retention, TaskBusy, TaskNotFound, Worker
from holdfast.core.kinds import SESSION
from holdfast.log.reading import Tail, fork_of, lineage, read_state, stream_of
from holdfast.log.store_calls import acquire_one, facts_of_all, streams_in
from holdfast.stores.port import Holder
from holdfast.testing import Clock
from tests.flavors import Crash
from tests.stores import forks
from tests.stores.every import KINDS, new_url, postgres_server  # noqa: F401

TASKS = ("first", "fork", "fork-of-fork")
TALKS = ("talk", "talk~fork", "talk~fork~fork-of-fork")
OURS = ("memory", "files", "sqlite")
AT_ONCE = timedelta()
DAY = timedelta(days=1)


@pytest.fixture(params=OURS)
def hf(request, new_url):  # noqa: F811
    with Holdfast(new_url(request.param), clock=Clock(tick_s=0.000001)) as hf:
        forks.family(hf)
        yield hf


@pytest.fixture
def here():
    with Holdfast("memory://", clock=Clock(tick_s=0.000001)) as hf:
        forks.family(hf)
        yield hf


@pytest.fixture
def there():
    with Holdfast("memory://", clock=Clock(tick_s=0.000001)) as hf:
        yield hf


def ids(hf, kind="tasks"):
    return sorted(stream.partition("/")[2] for stream in streams_in(hf.store, f"{kind}/"))


def first_seen(hf, id):
    """What the first step of a task returned, which is kept in a blob."""
    return hf.task(id).at(1, "after").content["calls"]["1"]["output"]


def wait(hf, days):
    hf._holding.clock.now += days * DAY


# Copies


@pytest.mark.parametrize("kind", OURS)
def test_a_fork_is_copied_with_all_that_it_shares(here, new_url, kind):  # noqa: F811
    before = forks.all_of(here)
    with Holdfast(new_url(kind)) as other:
        copied = here.copy_to(other, "fork-of-fork")
        assert [task.id for task in copied.tasks] == list(TASKS)
        assert [talk.id for talk in copied.sessions] == sorted(TALKS)
        assert sorted(copied.along) == ["first", "fork"]
        assert not copied.refused
        assert forks.all_of(other) == before
        assert other.verify().sound
        assert other.task("fork-of-fork").result == "Oslo done"
        assert [task.id for task in other.tasks(origin="first")] == ["fork"]


def test_a_copy_counts_the_lines_of_each_log_once(here, there):
    planned = here.copy_to(there, dry_run=True)
    copied = here.copy_to(there)
    lines = sum(len(list(here.store.read(stream))) for stream in forks.all_of(here))
    assert planned.events == copied.events == lines == here.verify().events
    assert {task.id: task.events for task in planned.tasks} == {
        task.id: task.events for task in copied.tasks
    }
    assert {task.how for task in here.copy_to(there).tasks} == {"there"}


def test_a_fork_that_is_copied_again_goes_on_where_the_copy_ends(here, there):
    here.copy_to(there)
    here.rewind("fork", to=3)
    here.resume("fork")
    here.fork("fork", at=3, effects="reuse", new_id="late")
    copied = here.copy_to(there)
    assert {task.id: task.how for task in copied.tasks} == {
        "first": "there", "fork": "continued", "fork-of-fork": "there", "late": "copied",
    }  # fmt: skip
    assert {talk.id: talk.how for talk in copied.sessions}["talk~fork"] == "continued"
    assert there.verify().sound
    assert there.resume("late") == "Oslo done"


def test_a_fork_that_has_not_ended_goes_on_in_the_copy_and_not_here(here, there):
    here.fork("first", at=3, effects="live", new_id="open")
    copied = here.copy_to(there, "open")
    assert not copied.refused
    assert (here.task("open").status, there.task("open").status) == ("paused", "in_progress")
    assert there.resume("open") == "Oslo done"
    assert there.verify().sound and here.verify().sound


def test_a_fork_may_arrive_paused(here, there):
    here.fork("first", at=3, effects="live", new_id="open")
    copied = here.copy_to(there, "open", paused=True)
    assert not copied.refused
    assert (here.task("open").status, there.task("open").status) == ("pending", "paused")
    assert there.verify().sound
    assert there.resume("open") == here.resume("open") == "Oslo done"


def test_a_family_of_forks_is_moved_with_its_sessions(hf, there):
    before = forks.all_of(hf)
    moved = hf.copy_to(there, "fork", move=True)
    assert not moved.refused
    assert ids(hf) == ids(hf, "sessions") == []
    assert forks.all_of(there) == before


def test_an_original_that_was_forked_while_it_was_moved_stays(here, there):
    def forked_meanwhile(progress):
        if progress.what == "copied" and progress.id == "first":
            here.fork("first", at=2, effects="live", new_id="meanwhile")

    moved = here.copy_to(there, "first", move=True, progress=forked_meanwhile)
    assert ids(here) == ["first", "meanwhile"]
    assert ["'meanwhile', which is left" in each.why for each in moved.refused] == [True]
    assert here.resume("meanwhile") == "Oslo done"
    assert here.verify().sound and there.verify().sound


def test_a_fork_that_can_not_be_deleted_keeps_its_past(here, there):
    late = []

    def gone_on(progress):
        if progress.what == "copied" and progress.id == "fork" and not late:
            late.append(here.rewind("fork", to=4))

    moved = here.copy_to(there, "first", move=True, progress=gone_on)
    assert {each.id for each in moved.refused} == {"fork", "first"}
    assert ids(here) == ["first", "fork"]
    assert here.resume("fork") == "Oslo done"
    assert set(ids(here, "sessions")) >= {"talk", "talk~fork"}


@pytest.mark.parametrize(("move", "first"), [(False, 1), (True, 3)])
def test_a_copy_of_forks_that_was_cut_short_is_finished_by_the_next(move, first):
    for at in count(first, 5):
        with Holdfast("memory://") as here, Holdfast("memory://") as there:
            forks.family(here)
            here.fork("first", at=3, effects="reuse", new_id="open")
            before = {stream: log[:4] for stream, log in forks.all_of(here).items()}
            left = [at]
            crashing(here.store, left)
            crashing(there.store, left)
            with suppress(Crash):
                here.copy_to(there, move=move)
            is_whole = left[0] > 0
            left[0] = 1_000_000
            if not is_whole:
                here.copy_to(there, move=move)
            found = {stream: log[:4] for stream, log in forks.all_of(there).items()}
            assert found == before
            assert there.verify().sound and here.verify().sound
            assert ids(here) == ([] if move else sorted((*TASKS, "open")))
            assert there.resume("open") == "Oslo done"
            if is_whole:
                assert at > 20
                return


def crashing(store, left):
    def wrapped(method):
        def call(*args, **kwargs):
            left[0] -= 1
            if left[0] == 0:
                raise Crash
            return method(*args, **kwargs)

        return call

    for name in ("append", "rename", "delete", "put_blob", "remember"):
        setattr(store, name, wrapped(getattr(store, name)))


# Archives


@pytest.mark.parametrize("kind", OURS)
def test_forks_come_back_from_an_archive(here, new_url, kind, tmp_path):  # noqa: F811
    here.fork("first", at=3, effects="live", new_id="open")
    before = forks.all_of(here)
    archived = here.archive_to(tmp_path / "a.hfa", "fork-of-fork")
    assert set(archived.ids) == {*TASKS, "open"}
    with Holdfast(new_url(kind)) as other:
        planned = other.restore_from(tmp_path / "a.hfa", dry_run=True)
        restored = other.restore_from(tmp_path / "a.hfa")
        assert not restored.refused
        assert planned.events == restored.events
        assert all(facts is not None for _, facts in facts_of_all(other.store, "tasks/"))
        found = forks.all_of(other)
        assert found["tasks/open"][:-1] == before.pop("tasks/open")
        assert {stream: found[stream] for stream in before} == before
        assert other.task("open").status == "paused" and other.verify().sound
        assert other.resume("open") == "Oslo done"


def test_what_a_clean_up_archives_has_the_sessions_that_theirs_came_from(here, tmp_path):
    wait(here, 40)
    gone = here.gc(Retention(older_than=30 * DAY, sessions_after=30 * DAY, grace=AT_ONCE),
                   archive=tmp_path / "a.hfa")  # fmt: skip
    assert {task.id for task in gone.tasks} == set(TASKS)
    assert {talk.id for talk in gone.sessions} == set(TALKS)
    with Holdfast("memory://") as other:
        assert not other.restore_from(tmp_path / "a.hfa").refused
        assert other.verify().sound
        assert other.task("fork-of-fork").result == "Oslo done"


# Clean-ups


def test_an_original_stays_while_a_fork_of_a_fork_does(here):
    here.fork("fork-of-fork", at=4, effects="live", new_id="open")
    wait(here, 40)
    swept = here.gc(Retention(older_than=30 * DAY, sessions_after=30 * DAY, grace=AT_ONCE))
    assert (swept.tasks, swept.sessions) == ((), ())
    assert here.resume("open") == "Oslo done"


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_stays_while_one_that_shares_its_past_does(new_url, kind):  # noqa: F811
    with Holdfast(new_url(kind), clock=Clock(tick_s=0.000001)) as hf:
        forks.family(hf)
        wait(hf, 40)
        hf.session("talk~fork~fork-of-fork").say("I am still here")
        swept = hf.gc(Retention(keep_last=0, sessions_after=30 * DAY, grace=AT_ONCE))
        assert {task.id for task in swept.tasks} == set(TASKS)
        assert (swept.sessions, swept.kept) == ((), ())
        assert next(hf.session(TALKS[2]).messages()).text == "Where to?"
        assert hf.verify().sound
        wait(hf, 40)
        gone = hf.gc(Retention(sessions_after=30 * DAY, grace=AT_ONCE))
        assert [talk.id for talk in gone.sessions] == list(TALKS[::-1])
        assert gone.blobs == 0 and not list(hf.store.blobs())


def test_what_only_the_shared_past_names_is_kept(hf):
    swept = hf.gc(Retention(grace=AT_ONCE))
    assert swept.blobs == 0 and not swept.unreadable
    assert hf.verify().sound
    assert len(first_seen(hf, "fork-of-fork")) > forks.LONG


def test_a_task_of_a_session_that_has_its_id_keeps_it(here):
    chat = here.session("alone")
    chat.say("mine")
    here.run(forks.branching_trip, "Bergen", id="alone", session="elsewhere")
    wait(here, 40)
    kept = Retention(sessions_after=30 * DAY, grace=AT_ONCE)
    assert here.gc(kept).sessions == ()
    with Holdfast("memory://") as other:
        other.session("alone").say("another one's")
        with pytest.raises(Conflict, match="sessions/alone"):
            here.copy_to(other, "alone")
        assert ids(other) == []
    with Holdfast("memory://") as other:
        copied = here.copy_to(other, "alone")
        assert {talk.id for talk in copied.sessions} == {"alone", "elsewhere"}


def test_rewound_tasks_and_their_sessions_are_copied_and_archived(hf, there, tmp_path):
    hf.rewind("fork", to=2)
    before = forks.all_of(hf)
    said = [message.text for message in hf.session("talk~fork").messages()]
    hf.archive_to(tmp_path / "a.hfa")
    hf.copy_to(there)
    with Holdfast("memory://") as restored:
        restored.restore_from(tmp_path / "a.hfa")
        for other in (there, restored):
            assert forks.all_of(other) == before
            assert [m.text for m in other.session("talk~fork").messages()] == said
            assert other.task("fork").status == "paused"
            assert other.resume("fork") == "Oslo done"
            assert other.verify().sound


# What a store knows of forks


def test_a_worker_finds_a_fork_and_the_index_stays_right(hf):
    hf.fork("first", at=3, effects="live", new_id="open")
    Worker(hf).run_until_idle()
    (found,) = hf.page(origin="first", status="completed", limit=1).tasks
    assert found.id == "open"
    assert hf.task("open").result == "Oslo done"
    told = dict(facts_of_all(hf.store, "tasks/"))["tasks/open"]
    assert told is not None
    stale = replace(told, status="pending", wake_at=told.created_at)
    hf.store.remember("tasks/open", stale, len(list(hf.store.read("tasks/open"))))
    assert hf.page(origin="first", status="pending").tasks
    Worker(hf).run_until_idle()
    assert not hf.page(origin="first", status="pending").tasks


def test_facts_that_are_read_again_are_remembered(new_url):  # noqa: F811
    url = new_url("files")
    with Holdfast(url) as hf:
        forks.family(hf)
    Path(url, "index.jsonl").unlink()
    with Holdfast(url) as hf:
        assert dict(facts_of_all(hf.store, "tasks/"))["tasks/fork-of-fork"] is None
        assert [task.id for task in hf.tasks(origin="fork")] == ["fork-of-fork"]
        told = dict(facts_of_all(hf.store, "tasks/"))
        assert told["tasks/fork-of-fork"] is not None


# Verifying


def test_heads_count_the_events_of_the_shared_past_and_a_cut_fork_is_noticed(new_url):  # noqa: F811
    url = new_url("files")
    with Holdfast(url) as hf:
        forks.family(hf)
        heads = hf.heads()
        assert {head.task: head.seq for head in heads}["fork"] == hf.task("fork").seq
        assert hf.verify(against=heads).sound
        log = next(hf.store.root.glob("tasks/fork/events.jsonl"))
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-1]))
    with Holdfast(url) as hf:
        (damage,) = hf.verify(against=heads).damage
        assert damage.task == "fork" and "was cut" in damage.what


def test_verify_counts_the_shared_past_once(hf):
    found = hf.verify()
    assert found.sound
    lines = sum(len(list(hf.store.read(stream))) for stream in forks.all_of(hf))
    assert found.events == lines


def test_damage_in_the_past_is_told_for_every_fork_with_where_it_is(new_url):  # noqa: F811
    url = new_url("files")
    with Holdfast(url) as hf:
        forks.family(hf)
        log = hf.store.root / "tasks/first/events.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"Oslo"', b'"Rome"', 1))
    with Holdfast(url) as hf:
        damage = {each.task: each.what for each in hf.verify().damage}
        assert set(damage) == set(TASKS)
        assert "tasks/first" in damage["fork"] and "tasks/first" in damage["fork-of-fork"]
        assert "shares its past" not in damage["first"]


def test_without_its_original_a_fork_says_what_is_missing_and_nothing_else_breaks(
    new_url,  # noqa: F811
    tmp_path,
):
    url = new_url("files")
    with Holdfast(url) as hf:
        forks.family(hf)
        hf.run(forks.branching_trip, "Bergen", id="other", session="elsewhere")
        folder = hf.store.root / "tasks/first"
    shutil.move(folder, tmp_path / "aside")
    with Holdfast(url) as hf:
        for id in ("fork", "fork-of-fork"):
            with pytest.raises(LogDamaged, match=r"shares its past with tasks/first .* is missing"):
                hf.task(id)
        assert {each.task for each in hf.verify().damage} == {"fork", "fork-of-fork"}
        assert [task.id for task in hf.tasks() if task.id == "other"] == ["other"]
        swept = hf.gc(Retention(keep_last=0, grace=AT_ONCE))
        assert [task.id for task in swept.tasks] == ["other"]
        assert swept.blobs == 0 and {kept.id for kept in swept.unreadable} >= {"tasks/fork"}
        with Holdfast("memory://") as other:
            refused = hf.copy_to(other).refused
            assert [each.id for each in refused] == ["fork"]  # with its family
            assert ids(other) == []
    shutil.move(tmp_path / "aside", folder)
    with Holdfast(url) as hf:
        assert hf.verify().sound
        assert first_seen(hf, "fork-of-fork").startswith("seen 1")


def test_a_log_knows_the_logs_it_can_not_be_read_without(here):
    assert lineage(here.store, "tasks/fork-of-fork") == [stream_of(id) for id in TASKS]
    assert lineage(here.store, SESSION.stream(TALKS[2])) == [SESSION.stream(id) for id in TALKS]
    assert lineage(here.store, "tasks/nobody") == ["tasks/nobody"]
    fork = fork_of(here.store, "tasks/fork")
    assert fork is not None and (fork.of, fork_of(here.store, "tasks/first")) == ("first", None)
    assert read_state(here.store, "tasks/fork").fork == fork


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_fork_of_what_is_being_deleted_waits_for_what_becomes_of_it(here, is_deleted):
    lease = acquire_one(here.store, "tasks/first", "me (gc, 0123abcd)", 30)
    held, forked = here.store.holder, []

    def looked_at(stream):
        if stream == "tasks/first":
            assert "meanwhile" in ids(here)
            here.store.holder = held
            if is_deleted:
                here.store.delete(lease)
            else:
                here.store.release([lease])
            return Holder("me (gc, 0123abcd)")
        return held(stream)

    here.store.holder = looked_at
    try:
        forked.append(here.fork("first", at=2, effects="live", new_id="meanwhile").id)
    except TaskNotFound as error:
        assert "deleted while it was forked" in str(error)
    assert forked == ([] if is_deleted else ["meanwhile"])
    assert ("meanwhile" in ids(here)) == (not is_deleted)


def test_a_task_that_another_process_drives_can_be_forked_and_not_put_back(tmp_path):
    code = """
import sys
from holdfast import Holdfast
from tests.stores import forks

with Holdfast("w") as hf:
    forks.family(hf)
    with hf._holding.hold("first"):
        print("ready", flush=True)
        sys.stdin.readline()
"""
    command = [sys.executable, "-c", code]
    paths = os.pathsep.join(map(str, sys.path))
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": paths},
    ) as driving:  # fmt: skip
        assert driving.stdout is not None and driving.stdin is not None
        assert driving.stdout.readline() == "ready\n"
        with Holdfast(tmp_path / "w") as hf:
            hf.fork("first", at=3, effects="live", new_id="beside")
            assert hf.resume("beside") == "Oslo done"
            with pytest.raises(TaskBusy, match="pause it first"):
                hf.rewind("first", to=3)
            driving.stdin.write("\n")
            driving.stdin.close()
            assert driving.wait(30) == 0
            assert hf.rewind("first", to=3).task.status == "paused"
            assert hf.verify().sound


# Following


def test_a_fork_and_a_rewind_can_be_followed(here):
    here.fork("first", at=3, effects="live", new_id="open")
    tail = Tail(here.store, "open")
    before = [event.seq for _, event in tail.read()]
    assert before == list(range(1, 10))
    view = here.task("open")
    here.resume("open")
    news = [event.seq for event in view.follow(poll_s=0.01)]
    assert news == [event.seq for _, event in tail.read()]
    assert news == list(range(10, here.task("open").seq + 1)) and tail.finished
    here.rewind("open", to=2)
    assert [type(event).__name__ for _, event in tail.read()] == ["Rewound"]
    assert not tail.finished and tail.state.status == "paused"
    assert tail.state.id == "open"
