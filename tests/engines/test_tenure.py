"""A driver runs a body only while it is sure of its lease; to be sure costs a look at the clock."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from holdfast import Holdfast, LeaseLost, StorageFailed, TaskBusy, Unanswered, ask, step, task
from holdfast.core.scope import inside
from holdfast.core.spec import registry
from holdfast.engines.clocks import Moment
from holdfast.engines.remote.attempt import attempt
from holdfast.engines.remote.host import Host
from holdfast.log.store_calls import acquire_one
from holdfast.stores.files.store import FileStore
from holdfast.stores.memory import MemoryStore
from holdfast.stores.port import Lease
from tests.flavors import eventually


class Counting(MemoryStore):
    """A store that counts renewals, and fails the first few of them."""

    def __init__(self, failures: int = 0) -> None:
        super().__init__()
        self.asked, self.failures = 0, failures

    def renew(self, lease: Lease) -> None:
        self.asked += 1
        if self.asked <= self.failures:
            raise StorageFailed("the store can't be reached")
        super().renew(lease)


ran: list[str] = []


@pytest.fixture(autouse=True)
def fresh():
    ran.clear()


@step
def sure(n: int) -> int:
    ran.append("sure")
    return n


@step
async def asure(n: int) -> int:
    ran.append("asure")
    return n


@task
def fifty() -> int:
    return sum(sure(n) for n in range(50))


def test_a_driver_that_is_sure_of_its_lease_asks_nobody():
    store = Counting()
    with Holdfast(store) as hf:
        assert hf.run(fifty) == sum(range(50))
    assert store.asked == 0


@pytest.mark.parametrize("clock", ["time", "clock_gettime"])
def test_a_clock_that_has_moved_on_makes_it_ask_once(monkeypatch, clock):
    """The time of day may be set, and others judge a lease by it; the other counts suspensions."""
    store, real, later_s = Counting(), getattr(time, clock), [0.0]
    monkeypatch.setattr(time, clock, lambda *args: real(*args) + later_s[0])

    @task
    def moves_on() -> int:
        sure(1)
        later_s[0] = 29.0
        sure(2)
        assert store.asked == 0
        later_s[0] = 31.0
        sure(3)
        return sure(4)

    with Holdfast(store) as hf:
        hf._holding._heartbeat.add = lambda log: None  # it would be the first to ask
        assert hf.run(moves_on) == 4
    assert store.asked == 1


def test_a_clock_that_is_set_back_makes_nothing_younger(monkeypatch):
    real, behind_s = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() - behind_s[0])
    then = Moment()
    behind_s[0] = 3600.0
    assert then.is_within(60.0)
    assert not then.is_within(0.0)


def test_a_store_that_cannot_be_reached_for_a_moment_costs_no_lease():
    """Else a task whose step takes long could be taken over from a process that lives."""
    store = Counting(failures=2)

    @task
    def lasting() -> str:
        eventually(lambda: store.asked >= 6)
        with pytest.raises(TaskBusy):
            acquire_one(store, "tasks/t", "taker", 60)
        return "kept"

    with Holdfast(store, lease_s=3.0) as hf:
        hf._holding._heartbeat._every_s = 0.05
        assert hf.run(lasting, id="t") == "kept"


def lose(hf: Holdfast) -> None:
    """Another takes the running task over; its driver hears of that by a renewal alone."""
    folder = Path(hf.store.url)
    (folder / "tasks/t/lock").unlink()
    acquire_one(FileStore(folder), "tasks/t", "taker", 60)
    log = inside("lose()").run.log
    eventually(lambda: log not in hf._holding._heartbeat._logs)


@task
def robbed() -> int:
    sure(1)
    lose(opened[0])
    return sure(2)


@task
async def arobbed() -> int:
    await asure(1)
    lose(opened[0])
    return await asure(2)


opened: list[Holdfast] = []


@pytest.mark.parametrize("fn", [robbed, arobbed])
def test_a_lease_that_is_known_to_be_lost_stops_the_next_body(tmp_path, fn):
    with Holdfast(tmp_path / "w", lease_s=30.0) as hf, pytest.raises(LeaseLost):
        opened[:] = [hf]
        hf._holding._heartbeat._every_s = 0.05
        asyncio.run(hf.arun(fn, id="t")) if fn is arobbed else hf.run(fn, id="t")
    assert len(ran) == 1


@task
def waits() -> None:
    ask("Go on?", bool)


@pytest.mark.parametrize("name", ["sure", "asure"])
def test_a_call_for_a_remote_engine_is_not_made_under_a_lease_that_was_lost(tmp_path, name):
    """Nor is the log that was lost used for the next try, which the engine makes at once."""
    with Holdfast(tmp_path / "w", lease_s=0.05) as hf:
        with pytest.raises(Unanswered):
            hf.run(waits, id="t")
        hf._holding._heartbeat.add = lambda log: None  # it hangs
        host = Host(hf._driving, "", linger_s=3600)
        try:
            host.hub.take("t", 0)
            time.sleep(0.1)
            acquire_one(FileStore(tmp_path / "w"), "tasks/t", "taker", 60)
            with pytest.raises(LeaseLost):
                attempt(host, "t", "2", registry.call(name), b'{"n":1}')
            with pytest.raises(TaskBusy, match="taker"):
                attempt(host, "t", "2", registry.call(name), b'{"n":1}')
        finally:
            host.close()
    assert ran == []
