"""No operation of the files store leaves a file open that it opened, be it refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import StoreError
from holdfast.log import chain
from holdfast.log.store_calls import acquire_one
from holdfast.stores.files.store import FileStore
from holdfast.stores.port import Facts, Query

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
NOW = datetime(2031, 1, 1, tzinfo=UTC)
FACTS = Facts("x", "asleep", wake_at=datetime(2030, 1, 1, tzinfo=UTC))


def open_files(root: Path) -> list[str]:
    """The files of a store that this process has open, by their names."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            name = os.readlink(f"/proc/self/fd/{fd}")
            if name.startswith(str(root)):
                found.append(name)
    return sorted(found)


def lines_of(count: int, id: str = "t") -> list[bytes]:
    total, found = chain.ROOT, []
    for seq in range(1, count + 1):
        line, total = chain.seal(total, b'{"id":"%b","seq":%d}' % (id.encode(), seq))
        found.append(line)
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with a task, a message for it, something derived, a blob and a task nobody knows."""
    path = tmp_path / "w"
    store = FileStore(path)
    for id in ("t", "with spaces", "stray"):
        lease = acquire_one(store, f"tasks/{id}", "me", 60)
        store.append(lease, 0, lines_of(3, id), FACTS if id != "stray" else None)
        store.sync([lease])
        store.release([lease])
    store.put_side("tasks/t", "inbox", "m", b"hello")
    store.put_side("tasks/t", "derived", "1.head", b"derived")
    store.put_blob(b"content")
    store.close()
    return path


def reading(store: Any) -> dict[str, Callable[[], object]]:
    query = Query(prefix="tasks/")
    return {
        "read": lambda: list(store.read("tasks/t")),
        "read a part": lambda: next(store.read("tasks/t")),
        "read after": lambda: list(store.read("tasks/t", 2)),
        "read back": lambda: list(store.read("tasks/t", backwards=True)),
        "read back after": lambda: list(store.read("tasks/t", 1, backwards=True)),
        "read what is not there": lambda: list(store.read("tasks/gone")),
        "read of no kind": lambda: list(store.read("sessions/gone")),
        "find": lambda: store.find(query),
        "find all": lambda: store.find(Query(prefix="tasks/", limit=None)),
        "find nothing": lambda: store.find(Query(prefix="sessions/")),
        "due": lambda: store.find(Query(prefix="tasks/", due_by=NOW)),
        "nameless": lambda: list(store.nameless("tasks")),
        "nameless of none": lambda: list(store.nameless("sessions")),
        "holder": lambda: store.holder("tasks/t"),
        "holder of none": lambda: store.holder("tasks/gone"),
        "inbox": lambda: store.get_side(["tasks/t", "tasks/gone"], "inbox"),
        "derived": lambda: store.get_side(["tasks/t", "tasks/gone"], "derived"),
        "blob": lambda: [store.get_blob(each.digest) for each in store.blobs()],
        "no blob": lambda: store.get_blob("0" * 64),
    }


def writing(store: Any) -> dict[str, Callable[[], object]]:
    return {
        "remember": lambda: store.remember("tasks/stray", FACTS, 3),
        "remember wrongly": lambda: store.remember("tasks/stray", FACTS, 2),
        "remember what is not there": lambda: store.remember("tasks/gone", FACTS, 1),
        "post": lambda: store.put_side("tasks/t", "inbox", "n", b"1"),
        "post again": lambda: store.put_side("tasks/t", "inbox", "n", b"2"),
        "post to nobody": lambda: store.put_side("tasks/gone", "inbox", "n", b"2"),
        "derive": lambda: store.put_side("tasks/t", "derived", "2.head", b"1"),
        "derive badly": lambda: store.put_side("tasks/t", "derived", "../x", b"1"),
        "derive of nobody": lambda: store.put_side("tasks/gone", "derived", "2.head", b"1"),
        "unpost": lambda: store.drop_side("tasks/t", "inbox", "n"),
        "unpost again": lambda: store.drop_side("tasks/t", "inbox", "n"),
        "drop": lambda: store.drop_side("tasks/t", "derived", "2.head"),
        "drop all": lambda: store.drop_side("tasks/t", "derived"),
        "empty": lambda: store.drop_side("tasks/t", "inbox"),
        "put": lambda: store.put_blob(b"more"),
        "put again": lambda: store.put_blob(b"more"),
        "delete a blob": lambda: [store.delete_blob(b.digest, 0) for b in list(store.blobs())],
        "delete a blob again": lambda: store.delete_blob("0" * 64, 0),
        "sweep": lambda: store.sweep(0, 0),
    }


@pytest.fixture
def store(root: Path) -> Iterator[FileStore]:
    made = FileStore(root)
    yield made
    made.close()


def test_reading_and_writing_beside_logs_closes_what_it_opens(root, store):
    todo = {**reading(store), **writing(store)}
    store.find(Query(prefix="tasks/"))  # which opens the index, for good
    before = open_files(root)
    assert len(before) == 2
    for round_ in range(2):
        for name, call in todo.items():
            with suppress(StoreError):
                call()
            assert open_files(root) == before, f"{name}, the time number {round_ + 1}"


def test_whoever_is_refused_a_task_keeps_nothing_open(root, store):
    other = FileStore(root)
    (held,) = other.acquire(["tasks/t"], "other", 60)
    before = open_files(root)
    for _ in range(2):
        (refused,) = store.acquire(["tasks/t"], "me", 60)
        assert isinstance(refused, StoreError)
    # The file that says that it is alive is the store's for as long as it is open.
    new = [name for name in open_files(root) if name not in before]
    assert all("/holders/" in name for name in new) and len(new) <= 1
    other.release([held])
    assert [name for name in open_files(root) if "/tasks/" in name] == []
    other.close()


def test_a_task_that_is_held_is_one_open_log_and_none_when_it_is_released(root, store):
    (lease,) = store.acquire(["tasks/t"], "me", 60)
    store.append(lease, 3, [b'{"seq":4}'], FACTS)
    store.sync([lease])
    store.renew(lease)
    assert [name for name in open_files(root) if "/tasks/" in name] == [
        str(root / "tasks/t/events.jsonl")
    ]
    store.rename(lease, "tasks/renamed")
    (again,) = store.acquire(["tasks/renamed"], "me", 60)
    store.release([again])
    assert [name for name in open_files(root) if "/tasks/" in name] == []
    (gone,) = store.acquire(["tasks/stray"], "me", 60)
    store.delete(gone)
    assert [name for name in open_files(root) if "/tasks/" in name] == []
    store.close()
    assert open_files(root) == []
