"""Batches: many small starts become one task, and every item is in exactly one of them."""

from __future__ import annotations

import itertools
import threading
import time
from datetime import timedelta

import pytest

from holdfast import BadInput, Holdfast, Queue, Worker, task
from holdfast.api import batches
from holdfast.api.schedules import Scheduler
from holdfast.testing import Clock


@task(name="batch_pages")
def pages(given: list[str]) -> list[str]:
    return given


@task(name="batch_nothing")
def takes_no_list() -> None: ...


pytestmark = pytest.mark.holdfast(
    "memory://", "{tmp_path}/w", "sqlite:///{tmp_path}/b.db", projections=False
)


def results(hf: Holdfast) -> list[list[str]]:
    Worker(hf).run_until_idle()
    found = [hf.task(record.id) for record in hf.page(limit=1000).tasks]
    return [view.result for view in sorted(found, key=lambda view: view.state.created_at)]


def test_a_full_batch_starts_at_once_as_one_task_with_a_list(hf):
    collected = hf.batch(pages, max=3, wait_s=3600)
    ids = [collected.add(page) for page in "abcd"]
    assert ids == ["batch_pages@batch-1"] * 3 + ["batch_pages@batch-2"]
    assert results(hf) == [["a", "b", "c"]]
    (info,) = hf.batches()
    assert (info.waiting, info.max) == (1, 3)
    assert hf.task(ids[0]).state.labels == {"batch": "batch_pages"}


def test_a_batch_that_does_not_get_full_starts_when_its_first_item_has_waited():
    clock = Clock()
    with Holdfast("memory://", clock=clock) as hf:
        collected = hf.batch(pages, max=100, wait_s=5)
        collected.add("a")
        clock.advance(4)
        collected.add("b")
        assert Scheduler(hf).look() == 0
        starts_at = collected.info().starts_at
        assert starts_at is not None and starts_at - clock.now == timedelta(seconds=1)
        clock.advance(1)
        assert Scheduler(hf).look() == 1
        assert Scheduler(hf).look() == 0
        assert results(hf) == [["a", "b"]]


def test_a_worker_starts_a_batch_whose_time_has_come(hf):
    collected = hf.batch(pages, max=100, wait_s=0.05)
    id = collected.add("a")
    worker = Worker(hf)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        give_up_at = time.monotonic() + 60
        while not hf.page().tasks and time.monotonic() < give_up_at:
            time.sleep(0.05)
        assert hf.handle(id).result(60) == ["a"]
    finally:
        worker.stop()
        thread.join()


def test_flush_starts_what_there_is_and_nothing_twice(hf):
    collected = hf.batch(pages, max=100, wait_s=3600)
    assert collected.flush() == ""
    collected.add("a")
    assert collected.flush() == "batch_pages@batch-1"
    assert collected.flush() == ""
    assert results(hf) == [["a"]]


def test_many_threads_and_processes_lose_and_double_nothing(hf):
    others = [hf] if hf.store.url.startswith("memory") else [hf, Holdfast(hf.store.url)]

    def add(number: int) -> None:
        collected = others[number % len(others)].batch(pages, max=7, wait_s=3600)
        for n in range(20):
            collected.add(f"{number}/{n}")

    threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    hf.batch(pages, max=7, wait_s=3600).flush()
    found = results(hf)
    assert sorted(itertools.chain(*found)) == sorted(
        f"{k}/{n}" for k in range(4) for n in range(20)
    )
    assert all(len(each) <= 7 for each in found)
    for other in others[1:]:
        other.close()


@pytest.mark.parametrize("after", ["closing", "starting", "turning"])
def test_a_process_that_dies_while_it_starts_a_batch_loses_no_item(hf, monkeypatch, after):
    """Whoever comes next goes on where it died."""

    class Died(BaseException): ...

    def die(*args):
        raise Died

    collected = hf.batch(pages, max=2, wait_s=3600)
    collected.add("a")
    with monkeypatch.context() as patch:
        if after == "closing":
            patch.setattr(batches, "_arguments", die)
        elif after == "starting":
            patch.setattr(batches, "_turn", die)
        else:
            patch.setattr(batches.Namespace, "delete", die)
        with pytest.raises(Died):
            collected.add("b")
    assert Scheduler(hf).look() == (0 if after == "turning" else 1)
    collected.add("c")
    collected.flush()
    assert results(hf) == [["a", "b"], ["c"]]


def test_a_process_that_was_frozen_adds_to_no_batch_that_is_done_with(hf, monkeypatch):
    collected = hf.batch(pages, max=1, wait_s=3600)
    late = hf.batch(pages, max=2, wait_s=3600)
    stale = batches._kept(hf, late._batch)
    for n in range(5):
        collected.add(f"{n}")
    assert batches._collected(hf, stale) is None, "it was forgotten"
    real, frozen = batches._kept, iter([stale])
    monkeypatch.setattr(batches, "_kept", lambda *given: next(frozen, None) or real(*given))
    assert late.add("late") == "batch_pages@batch-6"
    late.flush()
    assert results(hf)[-1] == ["late"]


def test_a_batch_can_wait_in_a_queue(hf):
    hf.queue(Queue("q", concurrency=1)).pause()
    collected = hf.batch(pages, max=1, name="other", queue="q", key="ada", user="ada")
    id = collected.add("a")
    Worker(hf).run_until_idle()
    view = hf.task(id)
    assert (view.status, view.state.user, view.state.ticket.queue) == ("pending", "ada", "q")


def test_a_task_of_somebody_else_with_that_id_loses_no_item(hf):
    hf.start(pages, ["mine"], id="batch_pages@batch-1")
    collected = hf.batch(pages, max=1)
    with pytest.raises(BadInput, match="its items wait, because another task has the id"):
        collected.add("a")
    said: list[str] = []
    Scheduler(hf, said.append).look()
    assert "its items wait" in said[0]


def test_what_can_not_be_is_refused(hf):
    with pytest.raises(BadInput, match="max=0"):
        hf.batch(pages, max=0)
    with pytest.raises(BadInput, match="wait_s=-1"):
        hf.batch(pages, wait_s=-1)
    with pytest.raises(BadInput, match="takes one list"):
        hf.batch(takes_no_list).add("a")
    with pytest.raises(Exception, match=r"the annotation says list\[str\]"):
        hf.batch(pages).add(7)
    assert hf.batches() == []
