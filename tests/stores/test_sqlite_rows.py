"""What SQLite makes of spoiled rows, of names that are taken, and of space that is given back."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import BadInput, Conflict, LeaseLost, NewerFormat, StorageFailed, TaskBusy
from holdfast.core.facts import Facts
from holdfast.errors import TooLarge
from holdfast.log.store_calls import acquire_one, facts_of_all, sync_one
from holdfast.stores.port import Query
from holdfast.stores.sqlite import database
from holdfast.stores.sqlite import store as sqlite_store
from holdfast.stores.sqlite.store import SqliteStore

A, B = "tasks/a", "tasks/b"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "w.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(path)) as made:
        yield made


def put(store: SqliteStore, stream: str, lines: list[bytes], facts: Facts | None = None) -> None:
    lease = acquire_one(store, stream, "me", 60)
    store.append(lease, 0, lines, facts)
    sync_one(store, lease)
    store.release([lease])


def ask(path: Path, query: str, *given: Any) -> list[Any]:
    with closing(sqlite3.connect(path)) as conn, conn:
        return conn.execute(query, given).fetchall()


# Renaming


def test_a_stream_takes_a_name_that_is_free_and_no_other(store):
    put(store, A, [b"one"])
    put(store, B, [b"other"])
    lease = acquire_one(store, A, "me", 60)
    with pytest.raises(Conflict, match="tasks/b is there already"):
        store.rename(lease, B)
    assert [*store.read(A), *store.read(B)] == [b"one", b"other"]
    store.rename(lease, "tasks/c")
    assert list(store.read(A)) == [] and list(store.read("tasks/c")) == [b"one"]
    with pytest.raises(LeaseLost):
        store.append(lease, 1, [b"late"])
        sync_one(store, lease)
    assert acquire_one(store, "tasks/c", "me", 60).head == 1, "it is held by nobody"


def test_a_name_that_somebody_just_took_hold_of_is_not_taken_from_them(store, path):
    put(store, A, [b"one"])
    with closing(SqliteStore(path)) as other:
        theirs = acquire_one(other, B, "them", 60)
        lease = acquire_one(store, A, "me", 60)
        with pytest.raises(TaskBusy, match="them"):
            store.rename(lease, B)
        assert list(store.read(A)) == [b"one"]
        other.release([theirs])
        store.rename(lease, B)
        assert list(other.read(B)) == [b"one"]


def test_a_stream_that_was_taken_over_is_not_renamed(store, path):
    put(store, A, [b"one"])
    lease = acquire_one(store, A, "me", 60)
    ask(path, "update streams set epoch = epoch + 1 where name = ?", A)
    with pytest.raises(LeaseLost):
        store.rename(lease, B)
    assert list(store.read(A)) == [b"one"] and list(store.read(B)) == []
    with pytest.raises(LeaseLost):
        store.delete(acquired_before(store, path))
    assert list(store.read(A)) == [b"one"]


def acquired_before(store: SqliteStore, path: Path) -> Any:
    ask(path, "update streams set owner = null where name = ?", A)
    lease = acquire_one(store, A, "me", 60)
    ask(path, "update streams set epoch = epoch + 1 where name = ?", A)
    return lease


# Rows


@pytest.mark.parametrize(
    ("holder", "at_work"),
    [
        (("me", "ME", 60, 10.5), True),
        (("me", "ME", 60, 10), False),
        (("me", "ME", 60, 9), False),
        (("me", "ME", 60.5, 11), True),
        (("me", "GONE", 60, 11), False),
        ((None, "ME", 60, 11), False),
        (("me", None, 60, 11), False),
        (("me", "ME", None, 11), False),
        (("me", "ME", "60", 11), False),
        (("me", "ME", 60, "11"), False),
        (("me", "ME", 60, None), False),
    ],
)
def test_a_holder_is_at_work_while_its_lease_and_its_process_last(store, path, holder, at_work):
    here = acquire_one(store, A, "me", 60)
    ((process,),) = ask(path, "select process from streams")
    owner, told, lease_s, expires_at = holder
    gone = process.replace(str(os.getpid()), str(2**22 + 1))
    assert gone != process, "the number of the process is part of it"
    told = {"ME": process, "GONE": gone}.get(told, told)
    assert sqlite_store._is_at_work((owner, told, lease_s, expires_at), 10.0) is at_work
    assert here.epoch == 1


def test_spoiled_labels_are_written_anew_with_the_next_facts(store, path):
    now = Facts(status="open", task="t", labels={"team": "x"})
    put(store, A, [b"one"], now)
    ask(path, "update streams set labels = ? where name = ?", b"\xff", A)
    assert dict(facts_of_all(store, "tasks/"))[A] is None, "nobody knows them"
    store.remember(A, Facts(status="open", task="t", labels={"team": "y"}), 1)
    assert [name for name, _ in store.find(Query(labels={"team": "y"})).found] == [A]


def test_a_spoiled_time_keeps_nobody_from_writing_the_labels_anew(store, path):
    """The labels stand beside the time of creation, so those of the right time are still there."""
    facts = Facts(status="open", task="t", labels={"team": "x"})
    put(store, A, [b"one"], facts)
    ask(path, "update streams set created_at = ? where name = ?", "../../etc", A)
    store.remember(A, facts, 1)
    assert [name for name, _ in store.find(Query(labels={"team": "x"})).found] == [A]


# Blobs, and the space they took


def test_a_blob_may_be_as_large_as_sqlite_keeps(store, monkeypatch):
    monkeypatch.setattr(sqlite_store, "_LARGEST_BYTES", 10)
    digest = store.put_blob(b"x" * 10)
    assert store.get_blob(digest) == b"x" * 10
    with pytest.raises(TooLarge, match="11 bytes are more than SQLite keeps"):
        store.put_blob(b"x" * 11)
    assert [blob.digest for blob in store.blobs()] == [digest]


def test_the_space_of_what_was_deleted_is_given_back_once(store, path):
    digest = store.put_blob(os.urandom(1_000_000))
    put(store, A, [b"one"])
    assert not store.delete_blob(digest, 60), "it is young"
    assert store.delete_blob(digest, 0) and not store.delete_blob(digest, 0)
    before = database.size_of(path)
    freed = store.compact()
    assert 900_000 < freed == before - database.size_of(path)
    assert store.compact() == 0 and list(store.read(A)) == [b"one"]
    store.close()
    with pytest.raises(BadInput):
        store.compact()


def test_the_size_is_that_of_the_file_and_of_what_is_not_in_it_yet(store, path):
    put(store, A, [b"x" * 100_000])
    beside = path.with_name("w.db-wal")
    assert beside.stat().st_size > 0
    assert database.size_of(path) == path.stat().st_size + beside.stat().st_size
    store.close()
    assert database.size_of(path) == path.stat().st_size
    assert database.size_of(path.with_name("gone.db")) == 0


# Files


def test_the_version_of_a_file_is_told_without_changing_it(store, path, tmp_path):
    assert database.version_in(path) == database.VERSION
    assert database.version_in(tmp_path / "gone.db") == 0
    assert not (tmp_path / "gone.db").exists()
    empty = tmp_path / "empty.db"
    empty.touch()
    assert database.version_in(empty) == 0
    wrong = tmp_path / "wrong.db"
    wrong.write_bytes(b"no database, but a text that is long enough " * 100)
    with pytest.raises(StorageFailed, match=r"can't open .*wrong.db: .*not an SQLite database"):
        database.version_in(wrong)
    with pytest.raises(StorageFailed, match="can't open"):
        database.version_in(tmp_path)
    ask(path, f"pragma user_version = {database.VERSION + 1}")
    with pytest.raises(NewerFormat):
        database.version_in(path)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            OSError(2, "No such file or directory"),
            "No such file or directory. Check that",
        ),
        (sqlite3.OperationalError("odd"), "odd. What was acknowledged before is safe"),
        (sqlite3.OperationalError(), "OperationalError. What was acknowledged before is safe"),
    ],
)
def test_a_failure_is_told_with_advice(error, says):
    assert str(database.failed("can't do it", error)).startswith(f"can't do it: {says}")


def test_what_a_reader_meets_is_told_and_its_connection_closed(store, path):
    put(store, A, [b"one"])
    assert list(store.read(A)) == [b"one"]
    with pytest.raises(StorageFailed, match=r"can't read .*no such table"), store._reader() as conn:
        conn.execute("select * from gone")
    with pytest.raises(sqlite3.ProgrammingError):
        conn.execute("select 1")
    with pytest.raises(KeyError), store._reader() as conn:
        raise KeyError("of the caller")
    with pytest.raises(sqlite3.ProgrammingError):
        conn.execute("select 1")
    assert list(store.read(A)) == [b"one"]
