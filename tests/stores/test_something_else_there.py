"""Something else stands where the files store has its own: each call says so in words."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import LogDamaged, StorageFailed
from holdfast.log.store_calls import acquire_one, inbox_of, post_to, sync_one
from holdfast.stores.files.store import FileStore
from holdfast.stores.port import Query

LARGE = b"x" * 10
A = "tasks/a"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileStore]:
    made = FileStore(tmp_path / "w")
    lease = acquire_one(made, A, "me", 60)
    made.append(lease, 0, [b'{"one":1}'])
    sync_one(made, lease)
    made.release([lease])
    made.put_blob(LARGE)
    post_to(made, A, "1", b"hello")
    made.put_side(A, "derived", "4.head", b"way")
    yield made
    made.close()


Call = Callable[[FileStore, str], Any]
REFUSED: list[tuple[str, Call, str]] = [
    ("tasks", lambda s, d: list(s.read(A)), "can't read tasks/a"),
    ("tasks", lambda s, d: list(s.read(A, backwards=True)), "can't read tasks/a"),
    ("tasks", lambda s, d: s.find(Query(prefix="tasks/")), "can't "),
    ("tasks", lambda s, d: list(s.nameless("tasks")), "can't list tasks"),
    ("tasks", lambda s, d: acquire_one(s, A, "me", 60), "can't take hold of tasks/a"),
    ("tasks", lambda s, d: list(inbox_of(s, [A])), "can't look into the inbox of tasks/a"),
    ("tasks/a/inbox", lambda s, d: list(inbox_of(s, [A])), "can't look into the inbox of tasks/a"),
    ("tasks/a/inbox", lambda s, d: post_to(s, A, "2", b"x"), "can't leave a message for tasks/a"),
    ("tasks/a/inbox", lambda s, d: s.drop_side(A, "inbox", "1"), "can't take a message to tasks/a"),
    ("blobs", lambda s, d: s.put_blob(b"other"), "can't write a value of 5 bytes"),
    ("blobs", lambda s, d: list(s.blobs()), "can't list the blobs"),
    ("blobs", lambda s, d: s.delete_blob(d, 0), "can't delete the blob"),
]
"""A folder that a file replaces, the request to the store, and how its failure begins."""

DERIVED: list[tuple[str, Call, Any]] = [
    ("tasks", lambda s, d: s.holder(A), None),
    ("tasks/a/waypoints", lambda s, d: s.put_side(A, "derived", "4.head", b"x"), False),
    ("tasks/a/waypoints", lambda s, d: s.get_side([A], "derived"), []),
]
"""What is only derived, or only told, is done without."""


def replace(store: FileStore, what: str) -> str:
    """Put a file in the place of a folder; returns the name of the blob that there was."""
    digest = next(path.name for path in store.root.glob("blobs/*/*"))
    shutil.rmtree(store.root / what)
    (store.root / what).write_bytes(b"something else")
    return digest


@pytest.mark.parametrize(("what", "call", "words"), REFUSED)
def test_a_call_that_needs_what_was_there_fails_in_words(store, what, call, words):
    digest = replace(store, what)
    with pytest.raises(StorageFailed) as failed:
        call(store, digest)
    assert str(failed.value).startswith(words)
    assert "where a folder of the workspace should be: remove it" in str(failed.value)


@pytest.mark.parametrize(("what", "call", "found"), DERIVED)
def test_a_call_that_can_do_without_does(store, what, call, found):
    assert call(store, replace(store, what)) == found


def test_a_value_whose_blob_is_out_of_reach_is_damaged(store):
    digest = replace(store, "blobs")
    with pytest.raises(LogDamaged, match="the blob can't be read"):
        store.get_blob(digest)


def test_what_is_done_without_is_there_where_nothing_else_stands(store):
    assert [post.data for post in store.get_side([A], "derived")] == [b"way"]
    assert [post.data for post in inbox_of(store, [A])] == [b"hello"]
    assert list(store.read(A)) == [b'{"one":1}'] and store.get_blob(next(store.blobs()).digest)
