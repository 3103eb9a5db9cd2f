"""Tasks are copied and moved between stores, whole, and go on there at their next step."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from datetime import timedelta

import msgspec
import pytest

from holdfast import (
    BadInput,
    Conflict,
    Holdfast,
    LogDamaged,
    Retention,
    TaskBusy,
    TaskFailed,
    TaskNotFound,
    TaskPaused,
    Unanswered,
    Worker,
)
from holdfast.log import chain
from holdfast.log.store_calls import acquire_one, facts_of_all, inbox_of, post_to, streams_in
from holdfast.stores import open_store
from holdfast.stores.memory import MemoryStore
from holdfast.upkeep import transfer
from holdfast.upkeep.archive import Archive
from tests.stores import agents
from tests.stores.databases import AT, ROOT, marks, process, until
from tests.stores.every import KINDS, LASTING, new_url, postgres_server  # noqa: F401
from tests.thorough import THOROUGH
from tests.upkeep import movers

PAIRS = list(itertools.product(KINDS, KINDS))


def lines(hf, id):
    return list(hf.store.read(f"tasks/{id}"))


@pytest.fixture
def here():
    with Holdfast("memory://") as hf:
        yield hf


@pytest.fixture
def there():
    with Holdfast("memory://") as hf:
        yield hf


def asked(hf, folder, id="m"):
    """A task that waits for a person, with a child that nobody has driven yet, and a blob."""
    with pytest.raises(Unanswered):
        hf.run(movers.asking, str(folder), id=id)


# Every pair of stores


@pytest.mark.parametrize(("source", "target"), PAIRS, ids="-".join)
@pytest.mark.parametrize("move", [False, True], ids=["copied", "moved"])
def test_a_half_done_family_goes_on_in_the_other_store(
    source, target, move, new_url, tmp_path  # noqa: F811
):  # fmt: skip
    with Holdfast(new_url(source)) as here, Holdfast(new_url(target)) as there:
        asked(here, tmp_path)
        copied = here.copy_to(there, move=move)
        assert [(task.id, task.how) for task in copied.tasks] == [
            ("m", "copied"),
            ("m.3", "copied"),
        ]
        assert copied.refused == ()
        there.answer("m", True)
        Worker(there).run_until_idle()
        assert there.run(movers.asking, str(tmp_path), id="m") == [100_000, "its kid", True]
        assert there.task("m").outputs[1].output == "x" * 100_000
        Worker(here).run_until_idle()
        assert sorted(movers.did(str(tmp_path))) == ["after", "before", "its kid"]
        assert list(streams_in(there.store, "copies/")) == []
        if move:
            assert here.tasks() == []
        else:
            assert [task.status for task in here.tasks()] == ["paused", "paused"]
            ours = lines(here, "m")
            assert lines(there, "m")[: len(ours)] == ours
            with pytest.raises(TaskPaused, match="it goes on in"):
                here.run(movers.asking, str(tmp_path), id="m")


def test_a_task_killed_on_files_goes_on_in_postgresql_at_its_next_step(
    new_url, tmp_path  # noqa: F811
):  # fmt: skip
    files, postgres = new_url("files"), new_url("postgres")
    with process("run_patient", files, str(tmp_path)) as other:
        until(lambda: "waits for go" in marks(tmp_path), "the task did not get there")
        other.kill()
    with Holdfast(files) as hf:
        hf.copy_to(postgres)
    (tmp_path / "go").touch()
    with Holdfast(postgres) as hf:
        assert hf.resume("patient") == ["first", "go", "last"]
    # The tool that was under way is called again with the same key: its policy is `retry`.
    assert marks(tmp_path) == ["first", "waits for go", "waits for go", "last"]


@pytest.mark.parametrize("target", KINDS)
def test_finished_tasks_are_copied_byte_by_byte_and_found_in_lists(target, new_url):  # noqa: F811
    with Holdfast(new_url("files")) as here, Holdfast(new_url(target)) as there:
        here.run(agents.adding, 400, id="sum", user="ada", labels={"a": "b"})
        here.run(agents.hoarding, 1, id="h")
        copied = here.copy_to(there)
        assert {(task.id, task.status) for task in copied.tasks} == {
            ("sum", "completed"),
            ("h", "completed"),
        }
        for id in ("sum", "h"):
            assert lines(there, id) == lines(here, id)
        facts = dict(facts_of_all(there.store, "tasks/"))
        assert facts["tasks/sum"] == dict(facts_of_all(here.store, "tasks/"))["tasks/sum"]
        assert [view.id for view in there.tasks(user="ada", labels={"a": "b"})] == ["sum"]
        assert there.run(agents.adding, 400, id="sum") == sum(range(401))
        assert copied.size_bytes == sum(
            len(line) + 1 for id in facts for line in here.store.read(id)
        )


# Which


def test_a_parent_takes_its_children_along_and_a_child_its_parent(here, there):
    here.run(agents.family, [1, 2], id="f")
    here.run(agents.adding, 1, id="other")
    copied = here.copy_to(there, "f")
    assert ({task.id for task in copied.tasks}, copied.along) == (
        {"f", "f.1", "f.2"},
        ("f.1", "f.2"),
    )
    with Holdfast("memory://") as third:
        assert here.copy_to(third, ["f.2"]).along == ("f", "f.1")
        assert sorted(view.id for view in third.tasks()) == ["f", "f.1", "f.2"]


def test_filters_choose_families_by_their_head(here, there, tmp_path):
    here.run(agents.adding, 1, id="done", user="ada")
    here.run(agents.adding, 1, id="bobs", user="bob")
    asked(here, tmp_path)
    assert [t.id for t in here.copy_to(there, user="ada").tasks] == ["done"]
    assert [t.id for t in here.copy_to(there, status="awaiting_user").tasks] == ["m", "m.3"]
    assert [t.id for t in here.copy_to(there, type="stored_adding").tasks] == ["done", "bobs"]
    assert here.copy_to(there, labels={"x": "y"}).tasks == ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ids": "nobody"}, "no task 'nobody' in memory://"),
        ({"ids": []}, "no task was named"),
        ({"ids": "a", "user": "ada"}, "not both"),
        ({"status": "lost"}, "is none of"),
        ({"move": True, "paused": True}, "leave out one of the two"),
    ],
)
def test_what_makes_no_sense_is_refused(here, there, given, message):
    with pytest.raises((BadInput, TaskNotFound), match=message):
        here.copy_to(there, **given)


def test_a_store_is_not_copied_to_itself(tmp_path):
    for url in (tmp_path / "ws", f"sqlite:///{tmp_path}/x.db"):
        with Holdfast(url) as hf:
            hf.run(agents.adding, 1, id="a")
            with pytest.raises(BadInput, match="is where the tasks are"):
                hf.copy_to(url, move=True)
            with pytest.raises(BadInput, match="is where the tasks are"):
                hf.copy_to(hf, move=True)


@pytest.mark.parametrize("given", [{}, {"move": True}, {"dry_run": True}])
def test_a_memory_store_that_nobody_holds_is_no_place_to_copy_to(here, given):
    here.run(agents.adding, 1, id="a")
    with pytest.raises(BadInput, match="would be gone with all that is copied"):
        here.copy_to("memory://", **given)
    assert here.task("a").status == "completed"
    with Holdfast("memory://") as there:
        assert [task.id for task in here.copy_to(there.store, move=True).tasks] == ["a"]
        assert there.task("a").status == "completed"


@pytest.mark.parametrize("finished", [True, False])
def test_one_store_under_two_names_loses_nothing(tmp_path, finished):
    """As it may be with a server that has two addresses."""
    store = open_store(tmp_path / "ws")
    alias = open_store(tmp_path / "ws")
    alias.root, alias.url = tmp_path / "elsewhere", "another name"
    with Holdfast(store) as hf, Holdfast(alias) as same:
        if finished:
            hf.run(agents.adding, 1, id="m")
        else:
            asked(hf, tmp_path)
        before = lines(hf, "m")
        copied = hf.copy_to(same, move=True)
        assert any("one and the same store" in refused.why for refused in copied.refused)
        assert lines(hf, "m") == before


# What is refused


def test_a_running_task_is_refused_until_it_is_paused_and_let_go_of(new_url):  # noqa: F811
    url, target = new_url("files"), new_url("sqlite")
    with process("run_endless", url) as other, Holdfast(url) as hf:
        assert other.stdout.readline() == "at work\n"
        until(lambda: bool(list(streams_in(hf.store, "tasks/"))), "the task was not written")
        hf.run(agents.adding, 3, id="done")
        for given in ({"dry_run": True}, {}, {"move": True}):
            with pytest.raises(TaskBusy, match=f"driven by .* process {other.pid}.*pause"):
                hf.copy_to(target, ["endless", "done"], **given)
        assert not (ROOT / target).exists()
        copied = hf.copy_to(target)
        assert [task.id for task in copied.tasks] == ["done"]
        assert [(one.id, one.error) for one in copied.refused] == [("endless", "TaskBusy")]
        hf.pause("endless")
        other.kill()
        other.wait()
        (task,) = hf.copy_to(target, "endless").tasks
        assert (task.how, task.status) == ("copied", "paused")
    with Holdfast(target) as there:
        assert there.task("endless").status == "paused"


def test_what_was_paused_by_hand_stays_paused_at_both_places(here, there, tmp_path):
    asked(here, tmp_path)
    here.pause("m", because="lunch")
    seq = here.task("m").seq
    here.copy_to(there, "m")
    assert (here.task("m").status, here.task("m").seq) == ("paused", seq)
    assert lines(there, "m") == lines(here, "m")
    there.unpause("m")
    there.answer("m", False)
    assert there.resume("m") == [100_000, "its kid", False]


def test_a_copy_may_arrive_paused_and_leave_the_original_alone(here, there, tmp_path):
    asked(here, tmp_path)
    before = lines(here, "m")
    for how in ("copied", "ahead"):
        assert {task.how for task in here.copy_to(there, paused=True).tasks} == {how}
    assert lines(here, "m") == before
    assert lines(there, "m")[:-1] == before
    assert there.task("m").status == "paused"
    assert "may have gone on since" in there.task("m").state.because
    here.answer("m", True)
    assert here.resume("m") == [100_000, "its kid", True]


@pytest.mark.parametrize("move", [False, True], ids=["copied", "moved"])
@pytest.mark.parametrize("when", ["before it is read", "while it is verified"])
def test_a_failed_task_that_is_retried_meanwhile_goes_on_at_one_place(
    here, tmp_path, when, move
):  # fmt: skip
    def retry():
        if not (tmp_path / "mended").exists():
            (tmp_path / "mended").touch()
            with pytest.raises(Unanswered):
                here.retry("f")

    class Slow(MemoryStore):
        def _take(self, stream, owner, lease_s):
            if stream == "copies/f" and when == "before it is read":
                retry()
            return super()._take(stream, owner, lease_s)

        def sync(self, leases):
            outcomes = super().sync(leases)
            if any(lease.stream == "copies/f" for lease in leases):
                retry()
            return outcomes

    with pytest.raises(TaskFailed):
        here.run(movers.mendable, str(tmp_path), id="f")
    with Holdfast(Slow()) as there:
        copied = here.copy_to(there, move=move)
        assert here.task("f").status == "awaiting_user"
        if when == "before it is read":
            assert [(one.id, one.error) for one in copied.refused] == [("f", "TaskBusy")]
            assert "has gone on since: copy it again" in copied.refused[0].why
            assert (copied.tasks, there.tasks()) == ((), [])
        else:  # it is copied as it was
            assert [one.error for one in copied.refused] == (["TaskBusy"] if move else [])
            assert [view.status for view in there.tasks()] == ["failed"]


def test_a_task_that_is_being_ended_is_refused(here, there):
    with pytest.raises(Unanswered):
        here.run(movers.booking, "room", id="b")
    assert here.cancel("b") == "in_progress"  # it has something to undo first
    for given in ({}, {"move": True}, {"paused": True}):
        with pytest.raises(BadInput, match="let it end first"):
            here.copy_to(there, "b", **given)
    assert there.tasks() == []


# What is there already


def test_a_second_copy_finds_everything_there(here, there):
    here.run(agents.adding, 20, id="sum")
    assert [task.how for task in here.copy_to(there).tasks] == ["copied"]
    assert [task.how for task in here.copy_to(there).tasks] == ["there"]


def test_a_copy_of_a_task_that_went_on_is_brought_up_to_date(here, there, tmp_path):
    asked(here, tmp_path)
    for id in ("m", "m.3"):
        here.pause(id)
    here.copy_to(there)
    for id in ("m", "m.3"):
        here.unpause(id)
    here.answer("m", True)
    here.resume("m")
    assert {task.how for task in here.copy_to(there, "m").tasks} == {"continued"}
    assert there.task("m").result == [100_000, "its kid", True]
    assert lines(there, "m") == lines(here, "m")


def test_two_that_went_different_ways_are_both_kept(here, there, tmp_path):
    asked(here, tmp_path)
    here.copy_to(there)
    there.answer("m", True)
    here.unpause("m")
    here.answer("m", False)
    before = lines(here, "m"), lines(there, "m")
    for given in ({}, {"move": True}):
        with pytest.raises(Conflict, match=r"from event \d+ on it is another"):
            here.copy_to(there, "m", **given)
        (refused,) = here.copy_to(there, **given).refused
        assert refused.error == "Conflict"
    assert (lines(here, "m"), lines(there, "m")) == before


def test_there_and_back_again(here, there, tmp_path):
    asked(here, tmp_path)
    here.copy_to(there)
    there.answer("m", True)
    assert {task.how for task in there.copy_to(here).tasks} == {"continued"}
    assert here.run(movers.asking, str(tmp_path), id="m") == [100_000, "its kid", True]
    assert there.task("m").status == "paused"
    assert sorted(movers.did(str(tmp_path))) == ["after", "before", "its kid"]


def test_a_copy_that_fails_lets_the_task_go_on_where_it_is(here, tmp_path):
    class Full(MemoryStore):
        def put_blob(self, data):
            raise LogDamaged("blobs", 0, "the disk is full")

    asked(here, tmp_path)
    with Holdfast(Full()) as there:
        (refused,) = here.copy_to(there, move=True).refused
        assert "the disk is full" in refused.why
        assert there.tasks() == []
    here.answer("m", True)
    assert here.resume("m") == [100_000, "its kid", True]


# Verified


def test_a_damaged_log_is_not_copied(tmp_path):
    with Holdfast(tmp_path / "ws") as here, Holdfast("memory://") as there:
        here.run(agents.adding, 5, id="sum")
        here.run(agents.adding, 5, id="fine")
        log = tmp_path / "ws/tasks/sum/events.jsonl"
        log.write_bytes(log.read_bytes().replace(b"stored_add", b"stored_odd", 1))
        copied = here.copy_to(there)
        assert [task.id for task in copied.tasks] == ["fine"]
        assert [(one.id, one.error) for one in copied.refused] == [("sum", "LogDamaged")]
        assert [view.id for view in there.tasks()] == ["fine"]


@pytest.mark.parametrize("damage", ["lost line", "other line", "more lines", "blob"])
def test_a_copy_that_is_not_what_was_written_does_not_count(here, damage):
    class Lying(MemoryStore):
        def read(self, stream, after_seq=0):
            found = list(super().read(stream, after_seq))
            if stream.startswith("copies/") and found:
                if damage == "lost line":
                    found.pop()
                elif damage == "other line":
                    found[-1] = found[-1].replace(b"a", b"b")
                elif damage == "more lines":
                    found.append(found[-1])
            return iter(found)

        def get_blob(self, digest):
            if damage == "blob":
                raise LogDamaged(digest, 0, "the blob is gone")
            return super().get_blob(digest)

    here.run(agents.hoarding, 1, id="h")
    with Holdfast(Lying()) as there:
        (refused,) = here.copy_to(there, move=True).refused
        assert refused.error == "LogDamaged"
        assert there.tasks() == []
    assert here.task("h").status == "completed"


def test_a_blob_that_is_missing_in_the_source_is_noticed_and_keeps_no_other_task(here, there):
    here.run(agents.hoarding, 1, id="h")
    for blob in list(here.store.blobs()):
        here.store.delete_blob(blob.digest, 0)
    here.run(agents.hoarding, 2, id="other")
    here.run(agents.adding, 2, id="sum")
    (refused,) = here.copy_to(there).refused
    assert (refused.id, "the blob is gone" in refused.why) == ("h", True)
    assert sorted(view.id for view in there.tasks()) == ["other", "sum"]


def test_what_was_carried_for_a_task_that_failed_is_carried_again(here):
    """Until the next task that names it is copied, somebody may have cleaned up there."""

    class Failing(MemoryStore):
        def append(self, lease, expected_seq, lines, facts=None):
            if lease.stream == "copies/a":
                for blob in list(self.blobs()):
                    self.delete_blob(blob.digest, 0)
                raise LogDamaged(lease.stream, 0, "it can't be written")
            super().append(lease, expected_seq, lines, facts)

    here.run(agents.hoarding, 1, id="a")
    here.run(agents.hoarding, 1, id="b")
    with Holdfast(Failing()) as there:
        (refused,) = here.copy_to(there).refused
        assert refused.id == "a"
        assert len(there.task("b").outputs[0].output) == 1 << 20


def test_artifacts_go_along_and_stay_while_they_are_named(here, there, tmp_path):
    made = here.run(agents.keeping, 3, id="k")
    assert here.gc(Retention(grace=timedelta())).blobs == 0
    here.archive_to(tmp_path / "x.hfa")
    here.copy_to(there)
    with Holdfast("memory://") as third:
        third.restore_from(tmp_path / "x.hfa")
        for hf in (here, there, third):
            with hf.open(made[0]) as file:
                assert file.read() == b"0123456789abcdef" * (3 << 16)
    assert len(list(there.store.blobs())) == len(list(here.store.blobs()))
    swept = here.gc(Retention(keep_last=0, grace=timedelta()))
    assert ([task.id for task in swept.tasks], list(here.store.blobs())) == (["k"], [])


def test_a_text_that_looks_like_the_name_of_a_blob_does_no_harm(here, there, tmp_path):
    text = '{"$blob":"%s","size_bytes":7}' % ("ab" * 32)
    here.run(agents.echoing, text, id="e")
    here.copy_to(there)
    assert there.task("e").result == text
    assert here.gc().unreadable == ()
    here.archive_to(tmp_path / "x.hfa")
    with Holdfast("memory://") as third:
        third.restore_from(tmp_path / "x.hfa")
        assert third.task("e").result == text


def test_bytes_that_are_a_part_here_and_a_value_there_are_followed(here, there, tmp_path):
    leaf = here.store.put_blob(b"leaf")
    both = here.store.put_blob(b'[{"$part":"%s"}]' % leaf.encode())
    for id, kind in (("a", "$part"), ("b", "$parts")):
        ref = msgspec.json.encode({kind: both, "size_bytes": 1})
        lease = acquire_one(here.store, f"tasks/{id}", "me", 60)
        created = {"type": "task_created", "seq": 1, "at": AT, "format": 1, "id": id, "task": "x"}
        event = msgspec.json.encode({**created, "args": msgspec.Raw(ref), "args_hash": ""})
        here.store.append(lease, 0, [chain.seal(chain.ROOT, event)[0]])
        here.store.release([lease])
    here.archive_to(tmp_path / "x.hfa")
    with Archive(tmp_path / "x.hfa") as archive:
        assert len(archive.manifest.blobs) == 2
    assert here.copy_to(there).refused == ()
    assert there.store.get_blob(leaf) == b"leaf"
    assert here.gc(Retention(grace=timedelta())).blobs == 0


def test_lists_of_lists_go_along_however_deep(here, there):
    digest = here.store.put_blob(b"the end")
    for _ in range(3000):
        inner = msgspec.json.encode({"$blob": digest, "size_bytes": 1, "list": True})
        digest = here.store.put_blob(b"[%b]" % inner)
    ref = msgspec.json.encode({"$blob": digest, "size_bytes": 1, "list": True})
    here.run(agents.adding, 1, id="deep")
    lease = acquire_one(here.store, "tasks/deep", "me", 60)
    head = lines(here, "deep")
    event = msgspec.json.encode({"type": "noted", "seq": len(head) + 1, "at": AT, "text": "deep",
                                 "scope": "", "mark": "x", "data": msgspec.Raw(ref)})  # fmt: skip
    line, _ = chain.seal(chain.sum_of(head[-1]), event)
    here.store.append(lease, len(head), [line])
    here.store.release([lease])
    (copied,) = here.copy_to(there).tasks
    assert copied.blobs == 3001
    assert len(list(there.store.blobs())) == 3001


# Messages


def test_messages_that_nobody_has_taken_go_along(here, there, tmp_path):
    asked(here, tmp_path)
    lease = acquire_one(here.store, "tasks/m", "somebody", 60)
    teller = threading.Thread(target=here.answer, args=["m", True])
    teller.start()
    until(lambda: bool(inbox_of(here.store, ["tasks/m"])), "nobody left a message")
    here.store.release([lease])
    teller.join()
    here.copy_to(there, move=True)
    assert there.resume("m") == [100_000, "its kid", True]


def test_messages_that_come_while_a_task_is_moved_go_along(here, there, tmp_path):
    asked(here, tmp_path)
    told = []

    def tell(progress):
        if progress.what == "copied" and progress.id == "m":
            post_to(here.store, "tasks/m", "answer-late", b"{}")
            told.append(progress)

    here.copy_to(there, move=True, progress=tell)
    assert told
    assert here.tasks() == []
    assert list(inbox_of(here.store, ["tasks/m"])) == []
    assert [post.name for post in inbox_of(there.store, ["tasks/m"])] == ["answer-late"]


# Interrupted


def test_an_interrupted_copy_is_gone_on_with_where_it_stopped(here, monkeypatch):
    monkeypatch.setattr(transfer, "_BATCH_LINES", 10)
    here.run(agents.adding, 50, id="sum")
    written = []

    class Counting(MemoryStore):
        def append(self, lease, expected_seq, lines, facts=None):
            written.append((lease.stream, expected_seq, len(lines)))
            super().append(lease, expected_seq, lines, facts)

    def stop(progress):
        if progress.what == "copying" and progress.events >= 30:
            raise KeyboardInterrupt

    with Holdfast(Counting()) as there:
        with pytest.raises(KeyboardInterrupt):
            here.copy_to(there, progress=stop)
        assert there.tasks() == []
        assert [seq for _, seq, _ in written] == [0, 10, 20]
        written.clear()
        here.copy_to(there)
        assert {stream for stream, _, _ in written} == {"copies/sum"}
        assert written[0][1] == 30
        assert lines(there, "sum") == lines(here, "sum")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("sqlite:///r.db", "sqlite:///{}/r.db"),
        ("sqlite:///{}/r.db", "sqlite:///./r.db"),
        ("r", "{}/r"),
        ("{}/r", "file://r"),
    ],
)
def test_an_interrupted_copy_is_gone_on_with_whatever_the_target_is_called(
    here, tmp_path, monkeypatch, first, second
):  # fmt: skip
    def stop(progress):
        if progress.what == "paused" and progress.id == "m.3":
            raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    asked(here, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        here.copy_to(first.format(tmp_path), progress=stop)
    assert [view.status for view in here.tasks()] == ["paused", "paused"]
    here.copy_to(second.format(tmp_path))
    with Holdfast(first.format(tmp_path)) as there:
        assert [view.status for view in there.tasks()] == ["awaiting_user", "in_progress"]


def test_what_an_interrupted_copy_left_of_another_log_is_not_used(here, there):
    lease = acquire_one(there.store, "copies/sum", "who died", 0.01)
    there.store.append(lease, 0, [b'{"something":"else"}'] * 3)
    there.store.release([lease])
    here.run(agents.adding, 5, id="sum")
    here.copy_to(there)
    assert lines(there, "sum") == lines(here, "sum")


@pytest.mark.parametrize(
    ("source", "target", "how", "first", "every"),
    [("files", "sqlite", "move", 1, 11), ("sqlite", "files", "copy", 2, 13),
     ("files", "postgres", "move", 3, 17)],
)  # fmt: skip
def test_a_copy_killed_anywhere_leaves_one_place_to_go_on_and_can_be_made_again(
    source, target, how, first, every, new_url, tmp_path  # noqa: F811
):  # fmt: skip
    given = [
        new_url(source),
        new_url(target),
        str(tmp_path),
        how,
        str(first),
        str(3 if THOROUGH else every),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tests.upkeep.movers", *given],
        cwd=ROOT, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert ", 0 wrong" in done.stdout


def test_each_kind_of_store_is_in_the_pairs():
    assert set(LASTING) < set(KINDS)
    assert len(PAIRS) == 16
