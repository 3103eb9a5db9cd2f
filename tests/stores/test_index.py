"""The index and the inboxes of a workspace: a copy that may be gone, old or garbage, and mail."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from holdfast import Holdfast, Worker, ask, note, step, task
from holdfast.log.store_calls import (
    acquire_one,
    due_in,
    facts_of_all,
    inbox_of,
    post_to,
    sync_one,
    unpost,
)
from holdfast.stores import finding
from holdfast.stores.files.catalog import Index, IndexEntry
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.store import FileStore
from holdfast.stores.port import Facts, PagePlace, Query
from holdfast.testing.contract.facts import line_of, put

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOW = datetime.now(UTC) + timedelta(days=1)


@step
def indexed_step(n: int) -> int:
    return n


@task
def indexed(n: int) -> int:
    return indexed_step(n)


@task
def indexed_question(n: int) -> bool:
    indexed_step(n)
    return ask("Sure?", bool)


@pytest.fixture
def folder(tmp_path) -> Path:
    """A workspace with finished, waiting and new tasks."""
    with Holdfast(tmp_path / "w", sync=False) as hf:
        for n in range(3):
            hf.run(indexed, n, id=f"done-{n}")
            hf.start(indexed_question, n, id=f"asks-{n}")
        Worker(hf).run_until_idle()
        for n in range(3):
            hf.start(indexed, n, id=f"new-{n}")
    return tmp_path / "w"


def facts_of(folder: Path) -> dict[str, Facts | None]:
    store = FileStore(folder, sync=False)
    found = dict(facts_of_all(store, "tasks/"))
    store.close()
    return found


def due_in_folder(folder: Path) -> set[str]:
    store = FileStore(folder, sync=False)
    found = {stream.removeprefix("tasks/") for stream, _ in due_in(store, "tasks/", NOW)}
    store.close()
    return found


def must_be_no_lie(folder: Path) -> None:
    """What is told of a stream is what its log says, or that the log has to be read."""
    with Holdfast(folder, sync=False) as hf:
        truth = {f"tasks/{view.id}": view.status for view in hf.tasks()}
    found = facts_of(folder)
    assert set(found) == set(truth)
    for stream, facts in found.items():
        assert facts is None or facts.status == truth[stream]


def finish(folder: Path) -> None:
    """Whatever became of the index, the new tasks are driven, and no other."""
    with Holdfast(folder, sync=False) as hf:
        worker = Worker(hf, concurrency=2, poll_s=0.01)
        worker.run_until_idle()
        assert {view.id for view in hf.tasks(status="completed")} == {
            *(f"done-{n}" for n in range(3)),
            *(f"new-{n}" for n in range(3)),
        }
        assert len(hf.tasks(status="awaiting_user")) == 3
        assert not hf.tasks().unreadable
    must_be_no_lie(folder)


def test_a_sound_index_knows_what_need_not_be_read(folder):
    found = facts_of(folder)
    known = {name.removeprefix("tasks/"): facts for name, facts in found.items()}
    for n in range(3):
        done, asks = known[f"done-{n}"], known[f"asks-{n}"]
        assert done is not None
        assert (done.task, done.status, done.wake_at) == ("indexed", "completed", None)
        assert asks is not None
        assert (asks.task, asks.status, asks.wake_at) == ("indexed_question", "awaiting_user", None)
    assert due_in_folder(folder) == {f"new-{n}" for n in range(3)}
    finish(folder)


GARBAGE = [
    b"",
    b"\n",
    b"\n\n\n",
    b"garbage\n",
    b"\x00" * 5000,
    b"\xff\xfe\n",
    b"null\n[]\n{}\n5\n",
    b'{"stream":5}\n',
    b'{"stream":"tasks/done-0","size":"x"}\n',
    b'{"stream":"tasks/done-0","facts":[]}\n',
    b'{"stream":"sessions/x","size":5,"facts":{}}\n',
    b'{"stream":"","size":-1}\n',
    b"x" * 100_000,
]


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("where", ["instead", "before", "after", "between"])
def test_garbage_in_the_index_costs_a_look_at_the_logs_and_no_more(folder, garbage, where):
    index = folder / "index.jsonl"
    lines = index.read_bytes().splitlines(keepends=True)
    between = b"".join(part for line in lines for part in (line, garbage))
    data = {
        "instead": garbage,
        "before": garbage + b"".join(lines),
        "after": b"".join(lines) + garbage,
        "between": between,
    }[where]
    index.write_bytes(data)
    must_be_no_lie(folder)
    assert {f"new-{n}" for n in range(3)} <= due_in_folder(folder)
    finish(folder)


def test_an_entry_whose_time_has_no_zone_is_no_trouble(folder):
    with (folder / "index.jsonl").open("ab") as index:
        index.write(
            b'{"stream":"tasks/done-0","size":3,'
            b'"facts":{"status":"pending","wake_at":"2020-01-01T00:00:00"}}\n'
        )
    assert {f"new-{n}" for n in range(3)} <= due_in_folder(folder)
    finish(folder)


@pytest.mark.parametrize("cut", range(1, 200, 7))
def test_a_torn_index_spoils_what_is_torn_and_no_more(folder, cut):
    index = folder / "index.jsonl"
    index.write_bytes(index.read_bytes()[:-cut])
    must_be_no_lie(folder)
    finish(folder)


def test_the_index_may_be_deleted_at_any_time(folder):
    store = FileStore(folder, sync=False)
    list(due_in(store, "tasks/", NOW))
    (folder / "index.jsonl").unlink()
    with Holdfast(store) as hf:
        hf.start(indexed, 9, id="late")
        assert "tasks/late" in {stream for stream, _ in due_in(hf.store, "tasks/", NOW)}
        assert hf.run(indexed, 9, id="late") == 9
        must_be_no_lie(folder)
    assert (folder / "index.jsonl").exists()


def test_an_index_that_is_older_than_the_logs_is_believed_where_they_did_not_grow(folder):
    old = (folder / "index.jsonl").read_bytes()
    with Holdfast(folder, sync=False) as hf:
        hf.answer("asks-0", True)
        Worker(hf).run_until_idle()
    (folder / "index.jsonl").write_bytes(old)
    found = facts_of(folder)
    must_be_no_lie(folder)
    assert found["tasks/asks-0"] is None
    assert found["tasks/asks-1"] is not None


def test_an_answered_task_of_which_an_old_index_knows_nothing_is_found(folder):
    old = (folder / "index.jsonl").read_bytes()
    with Holdfast(folder, sync=False) as hf:
        hf.answer("asks-0", True)
    (folder / "index.jsonl").write_bytes(old)
    assert "asks-0" in due_in_folder(folder)
    with Holdfast(folder, sync=False) as hf:
        Worker(hf).run_until_idle()
        assert hf.task("asks-0").status == "completed"


@pytest.mark.parametrize("what", ["a folder", "a symlink"])
def test_an_index_that_is_no_file_costs_time_and_no_more(folder, what):
    index = folder / "index.jsonl"
    index.unlink()
    if what == "a folder":
        index.mkdir()
    else:
        index.symlink_to("/dev/null")
    finish(folder)


def test_what_is_due_later_is_not_due_now(tmp_path):
    store = FileStore(tmp_path / "w", sync=False)
    lease = acquire_one(store, "tasks/t", "me", 60)
    store.append(lease, 0, [b'{"id":"t","seq":1}'], Facts("x", "pending", wake_at=AT))
    later = Facts("x", "in_progress", created_at=AT, wake_at=AT + timedelta(hours=1))
    store.append(lease, 1, [b'{"id":"t","seq":2}'], later)
    assert list(due_in(store, "tasks/", AT)) == [("tasks/t", None)]  # until the log is durable
    sync_one(store, lease)
    for _ in range(2):
        assert list(due_in(store, "tasks/", AT)) == []
        assert list(due_in(store, "tasks/", AT + timedelta(hours=1))) == [("tasks/t", later)]
    store.close()


# Growing and being rewritten


def test_an_index_that_has_grown_is_rewritten_and_says_the_same(tmp_path):
    disk, root = Disk(), os.open(tmp_path, os.O_RDONLY)
    index = Index(disk, root)
    for n in range(5000):
        index.note(IndexEntry(f"tasks/{n % 7}", n, Facts("x", f"status {n}")))
    index.note(IndexEntry("tasks/gone", 1, Facts("x")))
    index.note(IndexEntry("tasks/gone"))
    found = index.entries()
    assert {name: entry.size for name, entry in found.items() if entry.facts} == {
        f"tasks/{n % 7}": n for n in range(4993, 5000)
    }
    assert (tmp_path / "index.jsonl").read_bytes().count(b"\n") < 100
    assert sorted(os.listdir(tmp_path)) == ["index.jsonl"]
    again = Index(disk, root)
    assert {k: v for k, v in again.entries().items() if v.facts} == {
        k: v for k, v in found.items() if v.facts
    }
    index.close()
    again.close()
    os.close(root)


def test_what_is_due_is_kept_in_order_while_streams_change_and_the_index_is_rewritten(tmp_path):
    chance, root = random.Random(7), os.open(tmp_path, os.O_RDONLY)
    mine, other = Index(Disk(), root), Index(Disk(), root)
    rewrites = 0
    for n in range(3000):
        wake_at = AT + timedelta(seconds=chance.randrange(20)) if chance.random() < 0.8 else None
        facts = Facts("x", wake_at=wake_at) if chance.random() < 0.9 else None
        stream = f"{chance.choice(['tasks', 'sessions'])}/{chance.randrange(60)}"
        before = os.stat(tmp_path / "index.jsonl").st_ino if n else 0
        chance.choice([mine, other]).note(IndexEntry(stream, n, facts))
        place = PagePlace(AT + timedelta(seconds=chance.randrange(20)), "tasks/3")
        due_by = AT + timedelta(seconds=chance.randrange(25))
        query = Query(due_by=due_by, limit=chance.choice([None, 1, 5]))
        query = replace(query, beyond=chance.choice([None, place]))
        asked = chance.choice([mine, other])
        told = [(name, e.facts) for name, e in asked.entries().items() if e.facts is not None]
        page, expected = asked.due(query), finding.find(query, told)
        assert page[: query.limit] == expected.found
        assert (len(page) > len(expected.found)) == expected.more
        rewrites += n > 0 and os.stat(tmp_path / "index.jsonl").st_ino != before
    assert rewrites
    mine.close()
    other.close()
    os.close(root)


class InterruptedDisk(Disk):
    """A disk that lets somebody else go first, at some of the calls that are made of it."""

    def __init__(self, at: set[int], act: Callable[[], None]) -> None:
        self.calls, self._at, self._act = 0, at, act

    def _called(self) -> None:
        self.calls += 1
        if self.calls in self._at:
            self._act()


def _interrupt(name: str) -> None:
    def call(self: InterruptedDisk, *given: Any) -> Any:
        self._called()
        return getattr(Disk, name)(self, *given)

    setattr(InterruptedDisk, name, call)


for _name in ("open", "write", "has_name", "try_lock", "rename", "read_all", "close"):
    _interrupt(_name)


class Beside:
    """Another process, which says something new of a stream whenever it comes to act."""

    def __init__(self, root: int, how: str) -> None:
        self.index, self.how, self.said = Index(Disk(), root), how, 0
        self.index.entries()

    def act(self) -> None:
        if self.how == "rewrites":
            for n in range(50):
                self.index.note(IndexEntry("tasks/much", n, Facts("x")))
            self.index.entries()
        self.said += 1
        facts = None if self.how == "deletes" and self.said == 2 else Facts("x")
        self.index.note(IndexEntry("tasks/both", 100 + self.said, facts))


def sizes(index: Index) -> dict[str, int]:
    return {name: entry.size for name, entry in index.entries().items() if entry.facts}


def interrupt(folder: Path, how: str, at: set[int]) -> int:
    """Rewrite an index, and be interrupted; returns how many calls that took."""
    folder.mkdir()
    root = os.open(folder, os.O_RDONLY)
    beside = Beside(root, how)
    disk = InterruptedDisk(at, beside.act)
    index = Index(Disk(), root)
    for n in range(40):
        index.note(IndexEntry("tasks/both", n, Facts("x")))
    index._disk = disk
    index.entries()
    index.note(IndexEntry("tasks/mine", 7, Facts("x")))
    calls, index._disk = disk.calls, Disk()
    is_gone = how == "deletes" and beside.said == 2
    expected = {"tasks/mine": 7} | (
        {} if is_gone else {"tasks/both": 100 + beside.said if beside.said else 39}
    )
    fresh = Index(Disk(), root)
    for one in (index, fresh, beside.index):
        found = sizes(one)
        found.pop("tasks/much", None)
        assert found == expected, sorted(at)
        one.close()
    assert os.listdir(folder) == ["index.jsonl"]
    os.close(root)
    return calls


@pytest.mark.parametrize("how", ["speaks", "deletes", "rewrites"])
def test_whoever_comes_between_while_the_index_is_rewritten_loses_nothing(
    tmp_path, monkeypatch, how
):
    monkeypatch.setattr("holdfast.stores.files.catalog._SPARE_LINES", 20)
    calls = interrupt(tmp_path / "calm", how, set())
    assert calls > 10
    for first in range(1, calls + 3):
        for second in range(first, calls + 3):
            interrupt(tmp_path / f"{first}-{second}", how, {first, second})


APPENDER = """
import os, sys
from holdfast.stores.port import Facts
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.catalog import IndexEntry, Index
folder, who, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
index = Index(Disk(), os.open(folder, os.O_RDONLY))
for n in range(count):
    index.note(IndexEntry(f"tasks/{who}-{n % 5}", n, Facts("x", f"{who} {n}")))
    if n % 50 == 0:
        index.entries()
"""


def test_processes_that_append_while_the_index_is_rewritten_lose_nothing(tmp_path):
    count = 6000
    processes = [
        subprocess.Popen([sys.executable, "-c", APPENDER, str(tmp_path), who, str(count)])
        for who in ("a", "b")
    ]
    root = os.open(tmp_path, os.O_RDONLY)
    mine = Index(Disk(), root)
    inodes = set()
    while any(process.poll() is None for process in processes):
        mine.entries()
        if (tmp_path / "index.jsonl").exists():
            inodes.add((tmp_path / "index.jsonl").stat().st_ino)
    assert [process.wait() for process in processes] == [0, 0]
    fresh = Index(Disk(), root)
    for index in (mine, fresh):
        found = {name: entry.size for name, entry in index.entries().items()}
        assert found == {
            f"tasks/{who}-{n % 5}": n for who in ("a", "b") for n in range(count - 5, count)
        }
        index.close()
    os.close(root)
    assert len(inodes) > 1, "it was never rewritten, so this shows nothing"


def test_threads_that_append_and_read_agree(tmp_path):
    root = os.open(tmp_path, os.O_RDONLY)
    index = Index(Disk(), root)

    def work(who: int) -> None:
        for n in range(2000):
            index.note(IndexEntry(f"tasks/{who}", n, Facts("x")))
            if n % 20 == 0:
                assert index.entries()[f"tasks/{who}"].size == n

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: entry.size for name, entry in index.entries().items()} == {
        f"tasks/{who}": 1999 for who in range(4)
    }
    index.close()
    os.close(root)


def test_an_entry_is_one_line_that_can_be_read_by_anybody(folder):
    for line in (folder / "index.jsonl").read_bytes().split():
        entry = msgspec.json.decode(line)
        assert entry["stream"].startswith("tasks/")
        msgspec.json.decode(line, type=IndexEntry)


# Inboxes


STRAYS: dict[str, Callable[[Path], Any]] = {
    "a hidden file": lambda box: (box / ".draft").write_bytes(b"{}"),
    "no name of ours": lambda box: (box / "notes.txt").write_bytes(b"{}"),
    "an odd number of digits": lambda box: (box / "abc").write_bytes(b"{}"),
    "digits of no text": lambda box: (box / "ff").write_bytes(b"{}"),
    "a folder": lambda box: (box / "6162").mkdir(),
    "a symlink": lambda box: (box / "6162").symlink_to("/etc/passwd"),
    "a link to nothing": lambda box: (box / "6162").symlink_to("nowhere"),
    "a pipe": lambda box: os.mkfifo(box / "6162"),
    "garbage": lambda box: (box / "6162").write_bytes(b"\xff garbage"),
    "nothing": lambda box: (box / "6162").write_bytes(b""),
    "an event that is no message": lambda box: (box / "6162").write_bytes(
        b'{"type":"task_completed","seq":1,"at":"2026-01-01T00:00:00Z"}'
    ),
}


@pytest.fixture(params=list(STRAYS))
def stray(request) -> Callable[[Path], Any]:
    return STRAYS[request.param]


def with_inbox(folder: Path, id: str) -> Path:
    box = folder / f"tasks/{id}/inbox"
    box.mkdir(exist_ok=True)
    return box


def test_a_stray_file_in_an_inbox_keeps_nobody_from_the_task(folder, stray):
    stray(with_inbox(folder, "asks-0"))
    with Holdfast(folder, sync=False) as hf:
        hf.answer("asks-0", True)
        Worker(hf).run_until_idle()
        assert hf.task("asks-0").result is True


def eventually(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    give_up_at = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < give_up_at, "it did not come to that"
        time.sleep(0.01)
    return found


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_stray_file_beside_a_message_does_not_keep_it_from_being_heard(tmp_path, stray):
    gate = threading.Event()

    @task(name="indexed_long")
    def long() -> str:
        note("begun")
        gate.wait(60)
        indexed_step(1)
        return "went on"

    with Holdfast(tmp_path / "w", sync=False, lease_s=0.3) as hf:
        hf.start(long, id="t")
        stray(with_inbox(tmp_path / "w", "t"))
        driver = threading.Thread(target=Worker(hf).run_until_idle, daemon=True)
        driver.start()
        eventually(lambda: hf.task("t").notes)
        with Holdfast(tmp_path / "w", sync=False) as other:
            other.cancel("t")
        gate.set()
        driver.join(60)
        assert hf.task("t").status == "cancelled"


def test_an_inbox_that_is_no_folder_is_reported_as_what_it_is(folder):
    from holdfast import StorageFailed

    (folder / "tasks/new-0/inbox").write_text("x")
    with Holdfast(folder, sync=False) as hf, pytest.raises(StorageFailed, match="inbox"):
        hf.resume("new-0")


def test_an_inbox_is_private_and_leaves_no_drafts(folder):
    store = FileStore(folder)
    assert post_to(store, "tasks/new-0", "answer-1", b"secret")
    assert not post_to(store, "tasks/new-0", "answer-1", b"other")
    box = folder / "tasks/new-0/inbox"
    assert oct(box.stat().st_mode)[-3:] == "700"
    (file,) = box.iterdir()
    assert oct(file.stat().st_mode)[-3:] == "600"
    assert file.read_bytes().endswith(b"\nsecret")
    store.close()


def test_messages_that_are_left_in_the_same_moment_come_in_order(folder):
    store = FileStore(folder, sync=False)
    names = [f"message-{n * 7919 % 100:02}" for n in range(100)]
    for name in names:
        post_to(store, "tasks/new-0", name, b"{}")
    assert [post.name for post in inbox_of(store, ["tasks/new-0"])] == names
    store.close()


def test_a_message_for_a_call_deep_in_the_tree_finds_its_place(folder):
    store = FileStore(folder, sync=False)
    name = "answer-" + "collect_sources~12.3." * 10 + "1"
    try:
        assert post_to(store, "tasks/new-0", name, b"{}")
        assert not post_to(store, "tasks/new-0", name, b"{}")
        assert [post.name for post in inbox_of(store, ["tasks/new-0"])] == [name]
        unpost(store, "tasks/new-0", name)
        assert list(inbox_of(store, ["tasks/new-0"])) == []
    finally:
        store.close()


# Lists


class CountingDisk(Disk):
    """A disk that counts how often somebody asks how long a log is."""

    looks = 0

    def mark_of(self, name: str, parent: int) -> tuple[int, int]:
        self.looks += 1
        return super().mark_of(name, parent)


def test_a_page_looks_at_no_more_logs_than_it_needs(tmp_path):
    disk = CountingDisk()
    store = FileStore(tmp_path / "w", sync=False, disk=disk)
    for n in range(100):
        status = "completed" if n % 10 else "failed"
        put(store, f"tasks/T.{n}", Facts("job", status, f"u{n % 5}", created_at=AT))
    for query, most in (
        (Query(limit=5), 6),
        (Query(user="u3", limit=5), 30),
        (Query(user="nobody"), 100),
        (Query(user="nobody"), 0),  # what lasts is known by now
        (Query(user="u3"), 20),
        (Query(status=("failed",)), 100),  # and may have changed
        (Query(status=("failed",), user="u1"), 20),
    ):
        disk.looks = 0
        page = store.find(query)
        assert (page.unknown, disk.looks <= most) == ([], True), (query, disk.looks)
    assert len(store.find(Query(status=("failed",))).found) == 10
    store.close()


@pytest.mark.parametrize("query", [Query(), Query(status=("in_progress",))])
def test_the_last_word_of_who_holds_a_stream_is_believed_until_they_let_go(tmp_path, query):
    store, other = (FileStore(tmp_path / "w", sync=False) for _ in range(2))
    lease = acquire_one(store, "tasks/t", "me", 60)
    running = Facts("job", "in_progress", created_at=AT, wake_at=AT)
    store.append(lease, 0, [line_of("tasks/t", 1)], running)
    store.append(lease, 1, [line_of("tasks/t", 2), line_of("tasks/t", 3)])
    assert list(other.find(query).found) == [("tasks/t", running)]
    store.release([lease])
    page = other.find(query)
    assert (list(page.found), page.unknown) == ([], ["tasks/t"])
    other.remember("tasks/t", running, 3)
    assert list(other.find(query).found) == [("tasks/t", running)]
    store.close()
    other.close()


def test_tasks_that_were_started_are_listed_without_their_logs(tmp_path, monkeypatch):
    with Holdfast(tmp_path / "w") as hf:
        for n in range(5):
            hf.start(listed_later, id=f"t-{n}")
    with Holdfast(tmp_path / "w") as hf:
        monkeypatch.setattr(FileStore, "read", None)
        assert len(hf.page().tasks) == 5


@task
def listed_later() -> None: ...
