"""What a store in a database promises, whichever database it is: real processes on real stores.

A test class inherits from `DatabaseStore` and gives it a fixture `url`, the URL of a new store.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast import (
    Conflict,
    Holdfast,
    LeaseLost,
    LogDamaged,
    StorageFailed,
    TaskBusy,
    TaskNotFound,
    Unanswered,
    Worker,
)
from holdfast.log.store_calls import (
    acquire_one,
    due_in,
    facts_of_all,
    inbox_of,
    streams_in,
    sync_one,
)
from holdfast.stores import open_store
from holdfast.stores.port import Facts
from tests.stores import agents

ROOT = Path(__file__).parents[2]
STREAM = "tasks/t"
LONG_S = 60.0
AT = datetime(2031, 5, 4, 3, 2, 1, 123_457, tzinfo=UTC)

HOSTILE = (
    "'; drop table streams; --",
    '"; drop schema holdfast cascade; --',
    "%s %(stream)s %% :stream ? $1 {0}",
    "back\\slash \\' \\x00 \\u0000",
    "a%",
    "a_",
    "É",
    "E\u0301",
    "日本語 🚀 עברית",
    "\U00020000" * 255,
)


def until(is_so: Callable[[], bool], what: str) -> None:
    """Wait until something is so."""
    give_up_at = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < give_up_at, what
        time.sleep(0.01)


@contextmanager
def process(what: str, *given: str):
    """A process of ours, killed at the end if it still runs."""
    running = subprocess.Popen(
        [sys.executable, "-m", "tests.stores.agents", what, *given],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


@contextmanager
def at_work(worker: Worker):
    """A worker, driving tasks in a thread."""
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join()


def marks(folder: Path) -> list[str]:
    path = folder / "marks"
    return path.read_text().splitlines() if path.exists() else []


class DatabaseStore:
    """The tests. `url` is a fixture of the class that inherits them."""

    # Tasks

    def test_a_task_runs_once_and_its_result_outlives_the_process_that_ran_it(self, url):
        with Holdfast(url) as hf:
            assert hf.run(agents.adding, 10, id="sum") == 55
            seq = hf.task("sum").seq
        with Holdfast(url) as hf:
            assert hf.run(agents.adding, 10, id="sum") == 55
            assert hf.task("sum").seq == seq
            assert [task.id for task in hf.tasks()] == ["sum"]
            with pytest.raises(TaskNotFound, match="nobody"):
                hf.task("nobody")

    def test_an_async_task_with_branches_runs(self, url):
        async def main(hf: Holdfast) -> list[list[int]]:
            return await asyncio.gather(*(hf.arun(agents.doubling, n) for n in range(8)))

        with Holdfast(url) as hf:
            found = asyncio.run(main(hf))
        assert found == [[4 * x for x in range(n)] for n in range(8)]

    def test_a_worker_drives_tasks_and_their_children(self, url):
        with Holdfast(url) as hf:
            handle = hf.start(agents.family, [1, 2, 3], id="family")
            others = [hf.start(agents.doubling, 3) for _ in range(5)]
            with at_work(Worker(hf)):
                assert handle.result(60) == [1, 3, 6]
                assert [other.result(60) for other in others] == [[0, 4, 8]] * 5
            parents = dict(facts_of_all(hf.store, "tasks/family."))
            assert {facts and facts.parent for facts in parents.values()} == {"family"}

    def test_another_process_answers(self, url):
        with Holdfast(url) as hf:
            with pytest.raises(Unanswered):
                hf.run(agents.careful, "Book it", id="careful")
            with process("answer", url, "careful", "yes") as other:
                assert other.wait(60) == 0
            assert hf.resume("careful") == "Book it: yes"

    def test_a_task_that_another_process_holds_hears_what_it_is_told(self, url):
        with process("run_endless", url) as other, Holdfast(url) as hf:
            assert other.stdout.readline() == "at work\n"
            until(lambda: bool(list(streams_in(hf.store, "tasks/"))), "the task was not written")
            with pytest.raises(TaskBusy, match=f"process {other.pid}"):
                hf.resume("endless")
            # It is told, and ends a moment later.
            assert hf.cancel("endless", because="it rains") in ("in_progress", "cancelled")
            assert other.stdout.readline() == "TaskCancelled\n"
            assert hf.task("endless").status == "cancelled"
            assert other.wait(60) == 0
            assert list(inbox_of(hf.store, ["tasks/endless"])) == []

    def test_a_killed_process_leaves_its_task_to_others_at_once(self, url, tmp_path):
        with process("run_patient", url, str(tmp_path)) as other:
            until(lambda: "waits for go" in marks(tmp_path), "the task did not get there")
            other.kill()
        (tmp_path / "go").touch()
        with Holdfast(url) as hf:
            assert hf.store.holder("tasks/patient") is None
            assert hf.run(agents.patient, str(tmp_path), id="patient") == ["first", "go", "last"]
        assert marks(tmp_path) == ["first", "waits for go", "waits for go", "last"]

    def test_two_processes_run_fifty_tasks_each_at_the_same_time(self, url):
        with process("run_many", url, "a") as one, process("run_many", url, "b") as two:
            assert [other.communicate(timeout=60)[0] for other in (one, two)] == ["True\n"] * 2
            assert (one.returncode, two.returncode) == (0, 0)
        with Holdfast(url) as hf:
            assert len(hf.tasks(status="completed")) == 100
            assert hf.tasks().unreadable == []

    def test_ids_and_other_texts_may_be_anything(self, url):
        with Holdfast(url) as hf:
            for name in HOSTILE:
                given = {"user": name * 20, "session": name, "labels": {name: name}}
                assert hf.run(agents.adding, 2, id=name, **given) == 3
        with Holdfast(url) as hf:
            assert sorted(task.id for task in hf.tasks()) == sorted(HOSTILE)
            facts = dict(facts_of_all(hf.store, "tasks/"))
            for name in HOSTILE:
                assert [task.id for task in hf.tasks(user=name * 20)] == [name]
                assert facts[f"tasks/{name}"].labels == {name: name}
                assert hf.run(agents.adding, 2, id=name) == 3

    def test_texts_that_no_database_wants_do_no_harm(self, url):
        with Holdfast(url) as hf:
            hf.start(agents.adding, 2, id="t", user="a\0b", labels={"\0": "x" * 100_000})
            Worker(hf).run_until_idle()
            assert hf.task("t").status == "completed"
            (found,) = hf.tasks(user="a\0b")
            assert found.state.labels == {"\0": "x" * 100_000}

    def test_large_values_go_through_blobs_and_come_back(self, url):
        with Holdfast(url) as hf:
            assert hf.run(agents.hoarding, 5, id="h") == 5 << 20
            longest = max(len(line) for line in hf.store.read("tasks/h"))
            assert longest < 2000
        with Holdfast(url) as hf:
            (call,) = hf.task("h").calls
            assert hf.task("h").value(call.result) == "0123456789abcdef" * (5 << 16)

    # Leases

    @pytest.mark.parametrize("taken", [[], [b"from the one that took over"]])
    def test_a_frozen_writer_is_refused_when_it_wakes_up(self, url, taken):
        store = open_store(url)
        with process("write_when_told", url) as other:
            assert other.stdout.readline() == "ready\n"
            other.send_signal(signal.SIGSTOP)
            lease = self._taken_over(store)
            store.append(lease, 1, taken)  # or nothing: then only its lease tells it from the other
            sync_one(store, lease)
            other.send_signal(signal.SIGCONT)
            for _ in range(2):
                other.stdin.write("\n")
                other.stdin.flush()
                assert other.stdout.readline() == "LeaseLost\n"
        assert list(store.read(STREAM)) == [b'{"id":"t"}', *taken]
        store.append(lease, 1 + len(taken), [b"and on"])
        sync_one(store, lease)
        assert list(store.read(STREAM)) == [b'{"id":"t"}', *taken, b"and on"]
        store.close()

    def _taken_over(self, store):
        give_up_at = time.monotonic() + 60
        while True:
            try:
                return acquire_one(store, STREAM, "the one that takes over", LONG_S)
            except TaskBusy as error:
                assert "the one that freezes" in str(error)
                assert time.monotonic() < give_up_at
                time.sleep(0.02)

    def test_a_writer_that_is_wrong_about_the_head_is_refused_by_the_database_too(self, url):
        store = open_store(url)
        lease = acquire_one(store, STREAM, "me", LONG_S)
        store.append(lease, 0, [b"one"])
        sync_one(store, lease)
        store._leases.of(lease).head = 7
        store.append(lease, 7, [b"eight"])
        with pytest.raises(Conflict, match="is at event 1, the writer thought 7"):
            sync_one(store, lease)
        assert list(store.read(STREAM)) == [b"one"]
        store.close()

    def test_of_many_who_want_a_stream_one_gets_it(self, url):
        stores = [open_store(url) for _ in range(4)]
        for turn in range(5):
            got: list[object] = []

            def want(store, turn=turn, got=got):
                try:
                    got.append((store, acquire_one(store, STREAM, f"writer {turn}", LONG_S)))
                except TaskBusy:
                    got.append(None)

            threads = [threading.Thread(target=want, args=[store]) for store in stores * 2]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            ((store, lease),) = [one for one in got if one is not None]
            assert lease.epoch == turn + 1
            store.release([lease])
        for store in stores:
            store.close()

    def test_a_lease_of_a_deleted_stream_fits_no_new_one(self, url):
        ours, theirs = open_store(url), open_store(url)
        stale = acquire_one(ours, STREAM, "frozen", 0.01)
        ours.append(stale, 0, [b"one"])
        sync_one(ours, stale)
        time.sleep(0.05)
        theirs.delete(acquire_one(theirs, STREAM, "who deletes", LONG_S))
        fresh = acquire_one(theirs, STREAM, "who makes it anew", LONG_S)
        theirs.append(fresh, 0, [b"new"])
        sync_one(theirs, fresh)
        with pytest.raises(LeaseLost):
            ours.append(stale, 1, [b"zombie"])
            sync_one(ours, stale)
        with pytest.raises(LeaseLost):
            ours.delete(stale)
        assert list(ours.read(STREAM)) == [b"new"]
        ours.close()
        theirs.close()

    def test_what_was_only_appended_is_seen_by_others_soon(self, url):
        ours, theirs = open_store(url), open_store(url)
        lease = acquire_one(ours, STREAM, "me", LONG_S)
        ours.append(lease, 0, [b"one"])
        until(lambda: list(theirs.read(STREAM)) == [b"one"], "nobody wrote it")
        ours.close()
        theirs.close()

    def test_closing_gives_everything_back_and_keeps_what_was_appended(self, url):
        store = open_store(url)
        leases = [acquire_one(store, f"tasks/{n}", "me", LONG_S) for n in range(20)]
        for lease in leases:
            store.append(lease, 0, [b"one"])
        store.close()
        store.close()
        store.release([leases[0]])
        with pytest.raises(LeaseLost):
            store.append(leases[0], 1, [b"two"])
        with pytest.raises(Exception, match="was closed: open it again"):
            list(streams_in(store, "tasks/"))
        again = open_store(url)
        for n in range(20):
            assert again.holder(f"tasks/{n}") is None
            assert list(again.read(f"tasks/{n}")) == [b"one"]
        again.close()

    def test_a_forked_process_starts_anew_and_leaves_its_parent_alone(self, url):
        with Holdfast(url) as hf:
            lease = acquire_one(hf.store, STREAM, "the parent", LONG_S)
            hf.store.append(lease, 0, [b"one"])
            child = os.fork()
            if not child:
                right = False
                try:
                    with pytest.raises(LeaseLost):
                        hf.store.append(lease, 1, [b"from the child"])
                    with pytest.raises(TaskBusy, match="the parent"):
                        acquire_one(hf.store, STREAM, "the child", LONG_S)
                    right = hf.run(agents.adding, 3, id="in the child") == 6
                finally:
                    os._exit(0 if right else 1)
            assert os.waitpid(child, 0)[1] == 0
            hf.store.append(lease, 1, [b"two"])
            sync_one(hf.store, lease)
            assert list(hf.store.read(STREAM)) == [b"one", b"two"]
            assert hf.run(agents.adding, 3, id="in the child") == 6

    # Lists

    def test_long_lists_come_whole_and_only_of_what_was_asked_for(self, url):
        store = open_store(url, sync=False)
        names = [f"tasks/{n:04}" for n in range(1203)] + ["sessions/1", "tasks0", "tasks"]
        for n, name in enumerate(names):
            lease = acquire_one(store, name, "me", LONG_S)
            wake_at = AT + timedelta(microseconds=n // 7) if n % 3 else None
            facts = Facts("job", "in_progress", labels={"n": str(n)}, wake_at=wake_at)
            store.append(lease, 0, [b"one"], facts if n % 5 else None)
            store.release([lease])
        acquire_one(store, "tasks/only held", "me", LONG_S)
        ours = names[:1203]
        assert sorted(streams_in(store, "tasks/")) == ours
        assert sorted(streams_in(store, "")) == sorted(names)
        found = list(facts_of_all(store, "tasks/"))
        assert sorted(name for name, _ in found) == ours
        known = {name: facts for name, facts in found if facts is not None}
        assert known.keys() == {name for n, name in enumerate(ours) if n % 5}
        assert all(facts.labels["n"] == str(int(name[6:])) for name, facts in known.items())
        now = AT + timedelta(microseconds=100)
        due = [name for name, _ in due_in(store, "tasks/", now)]
        assert sorted(due) == [
            name for n, name in enumerate(ours) if not n % 5 or (n % 3 and n // 7 <= 100)
        ]
        store.close()

    def test_times_come_back_to_the_microsecond(self, url):
        store = open_store(url)
        for n, at in enumerate(
            (datetime(1, 1, 2, tzinfo=UTC), AT, datetime.max.replace(tzinfo=UTC))
        ):
            lease = acquire_one(store, f"tasks/{n}", "me", LONG_S)
            facts = Facts("job", "", created_at=at, updated_at=at, wake_at=at)
            store.append(lease, 0, [b"one"], facts)
            assert dict(facts_of_all(store, f"tasks/{n}")) == {f"tasks/{n}": facts}
        assert [name for name, _ in due_in(store, "tasks/", AT)] == ["tasks/0", "tasks/1"]
        store.close()

    def test_a_long_log_is_read_in_pieces_while_it_grows(self, url):
        store = open_store(url, sync=False)
        lease = acquire_one(store, STREAM, "me", LONG_S)
        lines = [b"%d " % n + b"x" * (n % 7 * 1000) for n in range(2000)]
        store.append(lease, 0, lines)
        reading, back = store.read(STREAM, 3), store.read(STREAM, backwards=True)
        assert (next(reading), next(back)) == (lines[3], lines[-1])
        store.append(lease, 2000, [b"and one more"])
        sync_one(store, lease)
        rest = list(reading)
        assert rest in (lines[4:], [*lines[4:], b"and one more"])
        assert list(back) == lines[-2::-1]
        assert list(store.read(STREAM, 1999)) == [lines[-1], b"and one more"]
        store.close()

    def test_a_blob_that_was_changed_is_damage(self, url):
        store = open_store(url)
        digest = store.put_blob(b"right")
        self.spoil_blobs(store)
        with pytest.raises(LogDamaged, match="do not fit"):
            store.get_blob(digest)
        for name in ("0" * 64, "", "no digest", "'"):
            with pytest.raises(LogDamaged):
                store.get_blob(name)
        store.close()

    def spoil_blobs(self, store):
        """Change the bytes of every blob to `wrong`."""
        raise NotImplementedError

    # Failures

    def test_after_a_failed_write_the_lease_is_of_no_use(self, url):
        store = open_store(url)
        lease = acquire_one(store, STREAM, "me", LONG_S)
        store.append(lease, 0, [b"one"])
        sync_one(store, lease)
        with self.failing(store):
            store.append(lease, 1, [b"two"])
            with pytest.raises(StorageFailed):
                sync_one(store, lease)
        with pytest.raises(StorageFailed, match="run the task again"):
            store.append(lease, 2, [b"three"])
        with pytest.raises(StorageFailed, match="run the task again"):
            store.renew(lease)
        store.release([lease])
        again = acquire_one(store, STREAM, "me again", LONG_S)
        assert list(store.read(STREAM)) == [b"one"]
        store.append(again, 1, [b"two"])
        sync_one(store, again)
        store.close()

    def failing(self, store):
        """A block in which nothing can be written."""
        raise NotImplementedError
