"""A store aside reads what is in another one, and never writes to it."""

from __future__ import annotations

import pytest

from holdfast import Holdfast, step, task
from holdfast.errors import LogDamaged
from holdfast.log.store_calls import acquire_one, holder_of, inbox_of, post_to, sync_one
from holdfast.stores.memory import Aside, MemoryStore
from holdfast.stores.port import Facts

STREAM = "tasks/a"


@pytest.fixture
def below():
    store = MemoryStore()
    lease = acquire_one(store, STREAM, "ada", 60)
    store.append(lease, 0, [b"one", b"two"], Facts(status="pending"))
    return store  # and the lease is still held


def test_it_reads_through_until_somebody_takes_hold(below):
    aside = Aside(below)
    blob = below.put_blob(b"large")
    assert list(aside.read(STREAM)) == [b"one", b"two"]
    assert list(aside.read(STREAM, 1)) == [b"two"]
    assert list(aside.read(STREAM, backwards=True)) == [b"two", b"one"]
    assert aside.get_blob(blob) == b"large"
    with pytest.raises(LogDamaged):
        aside.get_blob("0" * 64)


def test_what_is_written_stays_there_whoever_holds_the_stream_below(below):
    aside = Aside(below)
    lease = acquire_one(aside, STREAM, "bob", 60)
    assert lease.head == 2
    aside.append(lease, 2, [b"three"])
    sync_one(aside, lease)
    blob = aside.put_blob(b"more")
    assert post_to(aside, STREAM, "a message", b"hello")
    assert list(aside.read(STREAM)) == [b"one", b"two", b"three"]
    assert next(aside.read(STREAM, backwards=True)) == b"three"
    assert aside.get_blob(blob) == b"more"
    assert list(below.read(STREAM)) == [b"one", b"two"]
    assert list(below.blobs()) == []
    assert inbox_of(below, [STREAM]) == []
    assert holder_of(below, STREAM) == "ada"


def test_a_stream_may_have_other_lines_there(below):
    aside = Aside(below)
    aside.take(STREAM, [b"other"])
    assert list(aside.read(STREAM)) == [b"other"]
    assert acquire_one(aside, STREAM, "bob", 60).head == 1


def test_a_task_goes_on_aside_and_is_as_it_was_below():
    @step
    def aside_step() -> str:
        return "done"

    @task
    def aside_task() -> str:
        return aside_step()

    with Holdfast("memory://") as hf:
        hf.start(aside_task, id="t")
        before = list(hf.store.read("tasks/t"))
        with Holdfast(Aside(hf.store)) as other:
            assert other.resume("t") == "done"
        assert hf.task("t").status == "pending"
        assert list(hf.store.read("tasks/t")) == before
