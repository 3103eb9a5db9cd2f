"""The tasks of one event loop ask the store together, and each is answered for itself."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from holdfast import Holdfast, StorageFailed, TaskBusy, current, step, task, tool
from holdfast.errors import LeaseLost
from holdfast.log.store_calls import holder_of
from holdfast.stores.files import syncing as together
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.store import FileStore
from holdfast.stores.memory import MemoryStore
from holdfast.stores.port import Store

TASKS, STEPS = 30, 4


begun_together: list[str] = []


@step
async def add_together(x: int) -> int:
    begun_together.append(current().task_id)
    return x + 1


@task
async def count_together(n: int) -> int:
    x = 0
    for _ in range(n):
        x = await add_together(x)
    return x


async def run_all(hf, tasks=TASKS, **options):
    runs = (hf.arun(count_together, STEPS, id=f"t-{n}") for n in range(tasks))
    return await asyncio.gather(*runs, **options)


class Counting(MemoryStore):
    """Counts what it is asked for, and fails for some streams."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, int]] = []
        self.bad: dict[str, Exception] = {}
        self.full: dict[str, Exception] = {}

    def append(self, lease, *args):
        if error := self.full.get(lease.stream):
            raise error
        super().append(lease, *args)

    def acquire(self, streams, owner, lease_s):
        self.asked.append(("acquire", len(streams)))
        return super().acquire(streams, owner, lease_s)

    def sync(self, leases):
        self.asked.append(("sync", len(leases)))
        outcomes = super().sync(leases)
        return [self.bad.get(x.stream, o) for x, o in zip(leases, outcomes, strict=True)]

    def release(self, leases):
        self.asked.append(("release", len(leases)))
        super().release(leases)

    def calls(self, what):
        return [size for kind, size in self.asked if kind == what]


def test_tasks_that_run_at_once_share_their_syncs():
    store = Counting()
    with Holdfast(store) as hf:
        assert asyncio.run(run_all(hf)) == [STEPS] * TASKS
    assert store.calls("acquire") == [TASKS]
    # One for each step, and one for the end: for all tasks, not for each.
    assert len(store.calls("sync")) <= 2 * (STEPS + 1)
    assert sum(store.calls("sync")) == TASKS * (STEPS + 1)
    assert len(store.calls("release")) <= TASKS // 2


def test_branches_of_one_task_share_a_sync_of_one_log():
    @task
    async def many_branches_together() -> list[int]:
        return await asyncio.gather(*(add_together(n) for n in range(20)))

    store = Counting()
    with Holdfast(store) as hf:
        done = asyncio.run(hf.arun(many_branches_together, id="t"))
    assert done == list(range(1, 21))
    assert set(store.calls("sync")) == {1}
    assert len(store.calls("sync")) <= 4


@pytest.mark.parametrize("error", [StorageFailed("no"), LeaseLost("taken over")])
@pytest.mark.parametrize("what", ["append", "sync"])
def test_a_write_or_a_sync_that_fails_for_one_task_stops_that_one_alone(what, error):
    begun_together.clear()
    store = Counting()
    getattr(store, "bad" if what == "sync" else "full")["tasks/t-7"] = error
    with Holdfast(store) as hf:
        outcomes = asyncio.run(run_all(hf, return_exceptions=True))
        assert type(outcomes[7]) is type(error)
        assert outcomes[:7] + outcomes[8:] == [STEPS] * (TASKS - 1)
        assert begun_together.count("t-7") <= 1, "no step follows one that is not durable"
        store.bad.clear(), store.full.clear()
        assert hf.run(count_together, STEPS, id="t-7") == STEPS


def test_a_store_that_fails_as_a_whole_fails_all_who_wait_and_nobody_hangs():
    class Broken(Counting):
        def sync(self, leases):
            raise StorageFailed("the cable was pulled")

    with Holdfast(Broken()) as hf:
        outcomes = asyncio.run(asyncio.wait_for(run_all(hf, return_exceptions=True), 30))
    assert {type(outcome) for outcome in outcomes} == {StorageFailed}


class Plain:
    """A store that has what the port demands and nothing else."""

    def __init__(self) -> None:
        self._inner = MemoryStore()
        for name in (n for n in dir(Store) if not n.startswith("_")):
            setattr(self, name, getattr(self._inner, name))


def test_the_port_is_all_that_is_asked_of_a_store():
    with Holdfast(Plain()) as hf:
        assert asyncio.run(run_all(hf)) == [STEPS] * TASKS


def test_the_same_task_twice_at_once_runs_once():
    async def both(hf):
        runs = (hf.arun(count_together, STEPS, id="same") for _ in range(2))
        return await asyncio.gather(*runs, return_exceptions=True)

    with Holdfast("memory://") as hf:
        first, second = asyncio.run(both(hf))
    assert first == STEPS
    assert isinstance(second, TaskBusy)


def test_who_is_cancelled_while_a_task_is_taken_hold_of_gives_it_back():
    class Slow(Counting):
        def __init__(self) -> None:
            super().__init__()
            self.taking, self.may_go_on = threading.Event(), threading.Event()

        def acquire(self, streams, owner, lease_s):
            self.taking.set()
            assert self.may_go_on.wait(60)
            return super().acquire(streams, owner, lease_s)

    store = Slow()

    async def cancelled(hf):
        run = asyncio.ensure_future(hf.arun(count_together, STEPS, id="t"))
        await asyncio.to_thread(store.taking.wait, 30)
        run.cancel()
        await asyncio.sleep(0)
        store.may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await run
        return holder_of(store, "tasks/t")

    with Holdfast(store) as hf:
        assert asyncio.run(cancelled(hf)) is None
        assert hf.run(count_together, STEPS, id="t") == STEPS


class Recording(Disk):
    """Notes when the disk was synced as a whole."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def sync_all(self, fd: int) -> None:
        super().sync_all(fd)
        self.done.append("synced")


def test_intents_are_durable_before_any_body_and_results_before_any_task_goes_on(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(together, "_can_be_believed", lambda device: hasattr(os, "fdatasync"))
    monkeypatch.setattr(together, "_SLOW_S", 1e9)  # however busy the machine is
    disk = Recording()

    @tool(in_doubt="retry")
    async def effect_together() -> int:
        disk.done.append("body")
        return 1

    @task
    async def careful_together() -> int:
        await effect_together()
        disk.done.append("after")
        return 1

    async def all_of_them(hf):
        await asyncio.gather(*(hf.arun(careful_together, id=f"t-{n}") for n in range(8)))

    with Holdfast(FileStore(tmp_path / "w", disk=disk)) as hf:
        asyncio.run(all_of_them(hf))
    eight = ["body"] * 8, ["after"] * 8
    assert disk.done == ["synced", *eight[0], "synced", *eight[1], "synced"]
