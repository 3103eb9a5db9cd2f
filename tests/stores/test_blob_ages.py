"""A blob that was just put is there, whoever cleans up at the same time."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing

import pytest

from holdfast.errors import LogDamaged
from holdfast.stores import migrate, open_store
from holdfast.stores.queries import migration
from holdfast.stores.sqlite.database import _APPLICATION
from tests.stores.every import KINDS, new_url, postgres_server  # noqa: F401

DATA = b"y" * 70_000
OLD_S = 0.25


@pytest.fixture(params=KINDS)
def store(request, new_url, monkeypatch):  # noqa: F811
    # Else a blob that is less than a minute old need not be made younger.
    monkeypatch.setattr("holdfast.stores.sqlite.store.BLOB_AGE_S", 0.0)
    monkeypatch.setattr("holdfast.stores.postgres.store.BLOB_AGE_S", 0.0)
    store = open_store(new_url(request.param))
    yield store
    store.close()


def test_a_blob_that_is_put_again_is_young_again(store):
    digest = store.put_blob(DATA)
    time.sleep(OLD_S)
    assert next(iter(store.blobs())).age_s >= OLD_S * 0.9
    assert store.put_blob(DATA) == digest
    assert not store.delete_blob(digest, OLD_S)
    (blob,) = store.blobs()
    assert blob.age_s < OLD_S


def test_of_a_put_and_a_delete_at_once_the_put_wins(store):
    lost = []
    for _ in range(8):
        digest = store.put_blob(DATA)
        time.sleep(OLD_S)
        at_once = threading.Barrier(4)

        def put(at_once=at_once):
            at_once.wait()
            store.put_blob(DATA)

        def delete(at_once=at_once, digest=digest):
            at_once.wait()
            store.delete_blob(digest, OLD_S * 0.9)

        threads = [threading.Thread(target=act) for act in (put, delete, delete)]
        for thread in threads:
            thread.start()
        at_once.wait()
        for thread in threads:
            thread.join()
        try:
            store.get_blob(digest)
        except LogDamaged as error:
            lost.append(error)
    assert lost == []


def test_blobs_of_an_older_database_count_as_put_when_it_was_migrated(tmp_path):
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as conn:
        conn.executescript(migration("sqlite", 1))
        conn.execute(f"pragma application_id = {_APPLICATION}")
        conn.execute("pragma user_version = 1")
        conn.execute("insert into blobs values ('aa', x'0102')")
        conn.commit()
    migrate(f"sqlite:///{path}")
    store = open_store(f"sqlite:///{path}")
    (blob,) = store.blobs()
    assert (blob.digest, blob.size_bytes, blob.age_s < 60) == ("aa", 2, True)
    assert not store.delete_blob("aa", 60)
    store.close()
