"""Lists, commands and workers say what the logs say, whatever became of the index.

A folder is made in which every kind of event that changes a fact of a task has happened. Then lines
of its index are lost, repeated, and altered, one after the other, and all that goes by the index is
compared with what goes by the logs.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from click.testing import CliRunner

from holdfast import Holdfast, TaskFailed, Unanswered, Worker, ask, note, sleep, step, task
from holdfast.cli.root import root
from holdfast.core.state import State
from holdfast.log.store_calls import acquire_one, facts_of_all, streams_in, sync_one
from holdfast.stores import open_store
from holdfast.stores.files import catalog
from holdfast.stores.files.catalog import Index, IndexEntry
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.store import FileStore
from holdfast.stores.listing import TaskPage
from holdfast.stores.patrol import Patrol
from holdfast.stores.port import Facts, Query
from holdfast.testing.contract.facts import line_of
from tests.stores.every import new_url, postgres_server

__all__ = ["new_url", "postgres_server"]

FAR = datetime.now(UTC) + timedelta(days=400)
_fails = {"now": True}


@step
def told_step(n: int) -> int:
    return n


@task
def told(n: int) -> int:
    return told_step(n) + told_step(n + 1)


@task
def told_question(n: int) -> bool:
    told_step(n)
    return ask("Sure?", bool)


@task
def told_failing(n: int) -> int:
    if _fails["now"]:
        raise ValueError("not now")
    return n


@task
def told_sleeping(n: int) -> int:
    sleep(1e7)
    return n


def fill(hf: Holdfast) -> None:
    """Whatever can happen to a task that is seen in a list."""
    _fails["now"] = True
    ada: dict[str, Any] = {"user": "ada", "session": "trip", "labels": {"team": "travel"}}
    bob: dict[str, Any] = {"user": "bob", "labels": {"team": "food", "size": "xl"}}
    hf.start(told, 1, id="pending", **ada)
    hf.run(told, 1, id="completed", **ada)
    hf.run(told, 1, id="rewound", **ada)
    hf.rewind("rewound", to=2)
    hf.run(told, 1, id="rewound-and-done", **bob)
    hf.rewind("rewound-and-done", to=2)
    hf.resume("rewound-and-done")
    for id in ("asks", "answered", "paused", "continued", "cancelled", "rewound-question"):
        with pytest.raises(Unanswered):
            hf.run(told_question, 1, id=id, **(ada if id < "b" else bob))
    hf.answer("answered", True)
    hf.pause("paused")
    hf.pause("continued")
    with pytest.raises(Unanswered):
        hf.resume("continued")
    hf.cancel("cancelled")
    hf.answer("rewound-question", True)
    hf.resume("rewound-question")
    hf.rewind("rewound-question", to=1)
    for id in ("failed", "retried"):
        with pytest.raises(TaskFailed):
            hf.run(told_failing, 1, id=id, **bob)
    _fails["now"] = False
    hf.retry("retried")
    hf.fork("completed", at=2, new_id="fork", effects="reuse")
    hf.start(told_sleeping, 1, id="sleeping", user="ada")
    Worker(hf, patience_s=0).run_until_idle()
    hf.start(told, 2, id="pending-later", user="cyd")


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("filled") / "w"
    with Holdfast(folder, sync=False) as hf:
        fill(hf)
    return folder


@pytest.fixture
def folder(filled, tmp_path) -> Path:
    # With the times of the logs: else every entry would be out of date.
    return Path(shutil.copytree(filled, tmp_path / "w"))


Matches = Callable[[State], bool]


def has(name: str, value: object) -> Matches:
    return lambda state: getattr(state, name) == value


def questions(hf: Holdfast) -> Iterator[tuple[dict[str, Any], Matches]]:
    """Filters, and the same by what the log of a task says."""
    states = [view.state for view in map(hf.task, sorted(ids_in(hf)))]
    for status in sorted({state.status for state in states} | {"in_progress", "awaiting_user"}):
        yield {"status": status}, has("status", status)
    for kind in sorted({state.task for state in states}):
        yield {"type": kind}, has("task", kind)
    for name in ("user", "session", "parent"):
        for text in sorted({getattr(state, name) for state in states} - {""}):
            yield {name: text}, has(name, text)
    for label in sorted({pair for state in states for pair in state.labels.items()}):
        yield {"labels": dict([label])}, partial(is_labelled, label)
    yield {"origin": "completed"}, lambda s: s.fork is not None and s.fork.of == "completed"
    middle = sorted(state.created_at for state in states)[len(states) // 2]
    yield {"created_after": middle}, lambda state: state.created_at >= middle
    yield {"created_before": middle}, lambda state: state.created_at < middle
    yield {"status": "paused", "user": "ada"}, lambda s: (s.status, s.user) == ("paused", "ada")
    yield {}, lambda state: True


def is_labelled(label: tuple[str, str], state: State) -> bool:
    return label in state.labels.items()


def ids_in(hf: Holdfast) -> set[str]:
    return {stream.removeprefix("tasks/") for stream in streams_in(hf.store, "tasks/")}


def of_page(page: TaskPage) -> dict[str, tuple[Any, ...]]:
    return {
        each.id: (each.type, each.status, each.user, each.session, each.labels, each.parent)
        for each in page.tasks
    }


def of_logs(hf: Holdfast, matches: Matches) -> dict[str, tuple[Any, ...]]:
    states = [hf.task(id).state for id in ids_in(hf)]
    return {
        s.id: (s.task, s.status, s.user, s.session, s.labels, s.parent)
        for s in states
        if matches(s)
    }


def must_agree(folder: Path, index: bytes, why: object) -> None:
    """Ask everything of a fresh process, for what one answer mends the next would not show."""
    path = folder / "index.jsonl"
    with Holdfast(folder, sync=False) as hf:
        asked = list(questions(hf))
    for filters, matches in asked:
        path.write_bytes(index)
        with Holdfast(folder, sync=False) as hf:
            right = of_logs(hf, matches)
            page = hf.page(**filters, limit=1000)
            assert (of_page(page), page.unreadable) == (right, ()), (why, filters)
            path.write_bytes(index)
            assert {view.id for view in hf.tasks(**filters)} == set(right), (why, filters)


def lines_in(folder: Path) -> list[bytes]:
    return [line for line in (folder / "index.jsonl").read_bytes().split(b"\n") if line]


def joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def test_a_sound_index_agrees_with_the_logs(folder):
    must_agree(folder, joined(lines_in(folder)), "sound")


def by_task(folder: Path) -> dict[str, list[int]]:
    """By task, the lines of the index about it. The last one counts."""
    found: dict[str, list[int]] = {}
    for n, line in enumerate(lines_in(folder)):
        found.setdefault(msgspec.json.decode(line)["stream"].removeprefix("tasks/"), []).append(n)
    return found


@pytest.mark.parametrize("lost", [1, 2])
def test_a_lost_line_makes_no_list_lie(folder, lost):
    lines = lines_in(folder)
    for id, places in by_task(folder).items():
        left = [line for n, line in enumerate(lines) if n not in places[-lost:]]
        must_agree(folder, joined(left), f"without the last {lost} of {id}")


def test_lines_lost_at_the_end_make_no_list_lie(folder):
    lines = lines_in(folder)
    for id, places in by_task(folder).items():
        must_agree(folder, joined(lines[: places[-1]]), f"up to the last of {id}")


def test_a_line_that_comes_again_makes_no_list_lie(folder):
    lines = lines_in(folder)
    for id, places in by_task(folder).items():
        for n in {places[0], places[-2] if len(places) > 1 else places[0]}:
            must_agree(folder, joined([*lines, lines[n]]), f"again line {n} of {id}")


def test_a_pack_of_what_was_makes_no_list_lie(folder):
    """The file was rewritten, and every line since was lost."""
    entries = [msgspec.json.decode(line, type=IndexEntry) for line in lines_in(folder)]
    for end in range(0, len(entries) + 1, 7):
        newest = {entry.stream: entry for entry in entries[:end]}
        must_agree(folder, catalog._packed(list(newest.values())), f"a pack of {end} lines")


LIES: dict[str, Any] = {
    "status": "completed",
    "wake_at": None,
    "task": "another",
    "user": "eve",
    "labels": {"team": "none"},
    "session": "none",
    "created_at": "2020-01-01T00:00:00Z",
}


def altered(line: bytes, lie: str) -> bytes:
    entry = msgspec.json.decode(line)
    entry["facts"][lie] = LIES[lie]
    return msgspec.json.encode(entry)


@pytest.mark.parametrize("lie", LIES)
def test_an_altered_line_makes_no_list_lie(folder, lie):
    lines, places = lines_in(folder), by_task(folder)
    for id in ("asks", "rewound", "pending", "completed"):
        changed = list(lines)
        changed[places[id][-1]] = altered(lines[places[id][-1]], lie)
        must_agree(folder, joined(changed), f"{lie} of {id}")


@pytest.mark.parametrize("lie", ["status", "wake_at", "task"])
def test_an_altered_line_keeps_no_task_from_a_worker(folder, lie):
    lines, places = lines_in(folder), by_task(folder)
    lines[places["pending"][-1]] = altered(lines[places["pending"][-1]], lie)
    (folder / "index.jsonl").write_bytes(joined(lines))
    with Holdfast(folder, sync=False) as hf:
        Worker(hf, patience_s=0).run_until_idle()
        assert hf.task("pending").status == "completed"


def test_a_rewound_task_whose_line_was_lost_is_found_by_every_command(folder):
    lines, places = lines_in(folder), by_task(folder)
    index = joined(lines[: places["rewound"][-1]] + lines[places["rewound"][-1] + 1 :])

    def ran(*words: str) -> list[Any]:
        (folder / "index.jsonl").write_bytes(index)
        done = CliRunner().invoke(root, [*words, "--json", "--url", str(folder)])
        assert done.exit_code == 0, done.output
        found = [msgspec.json.decode(line) for line in done.stdout.splitlines()]
        return found[0] if isinstance(found[0], list) else found

    paused = {"paused", "rewound", "rewound-question"}
    assert {each["id"] for each in ran("ls", "--status", "paused")} == paused
    query = "select id from tasks where status = 'paused'"
    assert {each["id"] for each in ran("sql", query)} == paused


# While it is held


def test_what_was_lost_before_a_stream_was_taken_hold_of_is_not_believed(tmp_path):
    store, other = (FileStore(tmp_path / "w", sync=False) for _ in range(2))
    lease = acquire_one(store, "tasks/t", "me", 60)
    done = Facts("job", "completed", created_at=FAR)
    store.append(lease, 0, [line_of("tasks/t", 1)], done)
    sync_one(store, lease)
    index = (tmp_path / "w/index.jsonl").read_bytes()
    store.append(lease, 1, [line_of("tasks/t", 2)], Facts("job", "paused", created_at=FAR))
    sync_one(store, lease)
    store.release([lease])
    (tmp_path / "w/index.jsonl").write_bytes(index)
    lease = acquire_one(store, "tasks/t", "me", 60)
    page = other.find(Query())
    assert (list(page.found), page.unknown) == ([], ["tasks/t"])
    going_on = Facts("job", "in_progress", created_at=FAR)
    store.append(lease, 2, [line_of("tasks/t", 3)], going_on)
    sync_one(store, lease)
    store.append(lease, 3, [line_of("tasks/t", 4)])
    assert list(other.find(Query()).found) == [("tasks/t", going_on)]
    store.close()
    other.close()


class ShyDisk(Disk):
    """A disk on which a folder can't be opened any more, when told so."""

    is_shy = False

    def folder(self, name: str | os.PathLike[str], parent: int | None = None) -> int:
        if self.is_shy and name == "t":
            raise PermissionError(13, "Permission denied")
        return super().folder(name, parent)


def test_facts_of_a_stream_of_which_nobody_can_tell_who_holds_it_are_not_believed(tmp_path):
    disk = ShyDisk()
    store = FileStore(tmp_path / "w", sync=False)
    other = FileStore(tmp_path / "w", sync=False, disk=disk)
    lease = acquire_one(store, "tasks/t", "me", 60)
    goes_on = Facts("job", "in_progress", created_at=FAR)
    store.append(lease, 0, [line_of("tasks/t", 1)], goes_on)
    sync_one(store, lease)
    store.append(lease, 1, [line_of("tasks/t", 2)])
    assert list(other.find(Query()).found) == [("tasks/t", goes_on)]
    disk.is_shy = True
    page = other.find(Query())
    assert (list(page.found), page.unknown) == ([], ["tasks/t"])
    store.close()
    other.close()


class FullDisk(Disk):
    """A disk on which the index has no room, until it has."""

    is_full = False

    def write(self, fd: int, data: bytes) -> None:
        if self.is_full and data.startswith(b"\n"):
            raise OSError(28, "No space left on device")
        super().write(fd, data)


def test_a_holder_that_could_not_say_what_changed_says_it_later(tmp_path):
    disk = FullDisk()
    store, other = FileStore(tmp_path / "w", disk=disk), FileStore(tmp_path / "w")
    lease = acquire_one(store, "tasks/t", "me", 60)
    store.append(lease, 0, [line_of("tasks/t", 1)], Facts("job", "in_progress", created_at=FAR))
    sync_one(store, lease)
    disk.is_full = True
    waits = Facts("job", "awaiting_user", created_at=FAR)
    store.append(lease, 1, [line_of("tasks/t", 2)], waits)
    sync_one(store, lease)
    disk.is_full = False
    store.append(lease, 2, [line_of("tasks/t", 3)])
    sync_one(store, lease)
    assert list(other.find(Query()).found) == [("tasks/t", waits)]
    store.close()
    other.close()


def test_a_stream_that_was_begun_anew_is_told_from_the_one_before(tmp_path):
    """Its log is as long, and the index knows nothing of either the end or the beginning."""
    for user in ("ada", "bob"):
        store = FileStore(tmp_path / "w", sync=False)
        lease = acquire_one(store, "tasks/t", "me", 60)
        store.append(lease, 0, [line_of("tasks/t", 1)], Facts("job", "completed", user))
        sync_one(store, lease)
        index = tmp_path / "w/index.jsonl"
        if user == "ada":
            first = index.read_bytes()
            store.delete(lease)
            time.sleep(0.02)  # longer than the clock of a file system takes to tick
        store.close()
    index.write_bytes(first)
    store = FileStore(tmp_path / "w", sync=False)
    for query in (Query(), Query(user="ada"), Query(user="bob"), Query(status=("completed",))):
        page = store.find(query)
        assert (list(page.found), page.unknown) == ([], ["tasks/t"])
    store.close()


# Lies that are well made


def lie_in_files(url: str, facts: Facts) -> None:
    """With a sum that fits, and of the log as it is: as a bug of our own would write it."""
    opened = os.open(url, os.O_RDONLY)
    log = (Path(url) / "tasks/t/events.jsonl").stat()
    index = Index(Disk(), opened)
    index.note(IndexEntry("tasks/t", log.st_size, facts, written_ns=log.st_mtime_ns))
    index.close()
    os.close(opened)


def lie_in_sqlite(url: str, facts: Facts) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as conn, conn:
        wakes = None if facts.wake_at is None else 0
        lie = "update streams set status = ?, task = ?, wake_at = ? where name = 'tasks/t'"
        conn.execute(lie, [facts.status, facts.task, wakes])


def lie_in_postgres(url: str, facts: Facts) -> None:
    with psycopg.connect(url) as conn:
        lie = "update holdfast.streams set status = %s, task = %s, wake_at = %s where name = %s"
        conn.execute(lie, [facts.status, facts.task, facts.wake_at, "tasks/t"])


WELL_MADE = {"files": lie_in_files, "sqlite": lie_in_sqlite, "postgres": lie_in_postgres}

CLAIMS = {
    "completed": Facts("told", "completed"),
    "nothing to do": Facts("told", "pending"),
    "of another type": Facts("unheard-of", "pending", wake_at=datetime(2026, 1, 1, tzinfo=UTC)),
}


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("kind", WELL_MADE)
def test_a_well_made_lie_is_named_by_doctor_and_found_out_by_a_worker(new_url, kind, claim):
    url = new_url(kind)
    with Holdfast(url) as hf:
        hf.start(told, 1, id="t", user="ada")
        right = dict(facts_of_all(hf.store, "tasks/"))["tasks/t"]
        assert right is not None
    wrong = CLAIMS[claim]
    WELL_MADE[kind](url, msgspec.structs.replace(wrong, created_at=right.created_at, user="ada"))
    done = CliRunner().invoke(root, ["doctor", "--json", "--url", url])
    assert done.exit_code == 0, done.output
    (finding,) = [f for f in json.loads(done.stdout)["findings"] if f["where"] == "tasks/t"]
    assert finding["level"] == "warning"
    assert "something else than its log says" in finding["what"]
    with Holdfast(url) as hf:
        said: list[str] = []
        Worker(hf, say=said.append).run_until_idle()
        assert hf.task("t").status == "completed"
        assert any("the store was wrong about it" in text for text in said), said
    done = CliRunner().invoke(root, ["doctor", "--json", "--url", url])
    assert not [f for f in json.loads(done.stdout)["findings"] if f["where"] == "tasks/t"]


def test_a_patrol_says_nothing_of_what_is_right(folder, monkeypatch):
    monkeypatch.setattr("holdfast.stores.patrol._AT_ONCE_S", 60.0)
    store = open_store(str(folder))
    assert Patrol(store).step() == []
    store.close()


def test_doctor_has_nothing_to_say_of_what_is_right_and_notes_lines_that_are_not(folder):
    def findings() -> list[dict[str, str]]:
        done = CliRunner().invoke(root, ["doctor", "--json", "--url", str(folder)])
        found: list[dict[str, str]] = json.loads(done.stdout)["findings"]
        return [each for each in found if each["where"].startswith(("index", "tasks"))]

    assert findings() == []
    lines = lines_in(folder)
    (folder / "index.jsonl").write_bytes(joined([*lines[:-1], altered(lines[-1], "status")]))
    (finding,) = findings()
    assert (finding["where"], finding["level"]) == ("index.jsonl", "note")
    assert finding["what"].startswith("1 line")


def test_a_patrol_rests_and_goes_on_where_it_was(folder, monkeypatch):
    monkeypatch.setattr("holdfast.stores.patrol._AT_ONCE_S", 0.0)
    monkeypatch.setattr("holdfast.stores.patrol._REST", 0)
    store = open_store(str(folder))
    read: list[str] = []
    reading = store.read

    def noted(stream, after_seq=0, *, backwards=False):
        if backwards:
            read.append(stream)
        return reading(stream, after_seq, backwards=backwards)

    monkeypatch.setattr(store, "read", noted)
    patrol = Patrol(store)
    steps = 0
    while not steps or not patrol._is_over:
        assert patrol.step() == []
        steps += 1
    assert steps > len(ids_in_store(store)), "one at a time, as each took its time"
    seen = len(read)
    assert seen
    patrol._round_at = 0.0
    assert patrol.step() == []
    assert len(read) == seen, "what was right is read once"
    store.close()


def ids_in_store(store: Any) -> set[str]:
    return set(streams_in(store, "tasks/"))


def test_a_note_changes_no_fact_and_no_list(folder):
    @task(name="told_notes")
    def notes() -> None:
        note("one")
        told_step(1)
        note("two")

    with Holdfast(folder, sync=False) as hf:
        hf.run(notes, id="notes")
    must_agree(folder, joined(lines_in(folder)), "notes")
