"""`fact`: what the agent made of what the outside world said, and as of when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import (
    CodeChanged,
    Holdfast,
    HoldfastError,
    TaskFailed,
    task,
)
from holdfast.agent.externals import Reading, fact
from holdfast.stores.memory import MemoryStore
from holdfast.testing import Clock
from tests.agent.world import World
from tests.flavors import Crash, Flavor


@pytest.fixture(params=["sync", "async"])
def flavor(request):
    return Flavor(request.param)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def opened(clock):
    store = MemoryStore()
    return lambda **options: Holdfast(store, clock=clock, **options)


def test_a_fact_is_kept_with_the_age_of_its_oldest_source(flavor, opened, clock):
    world = World(flavor)
    begun = clock.now
    crashes = [Crash()]
    scores = [6.8, 1.0]

    @flavor.task
    async def body() -> float:
        rates = await world.look.reading()
        if crashes:
            clock.advance(30)
        shares = await world.look.reading("shares")
        score = fact("risk score", scores.pop(0), of=[shares, rates, await world.look.reading()])
        if crashes:
            raise crashes.pop()
        return score

    with opened() as hf:
        with pytest.raises(Crash):
            hf.run(body, id="t")
        clock.advance(5000)
        assert hf.run(body, id="t") == 6.8
        (kept,) = hf.task("t").facts
        assert (kept.name, kept.value, kept.path) == ("risk score", 6.8, "risk_score+1")
        assert (kept.as_of, kept.sources) == (begun, ("2", "1"))
        assert kept.at == begun + timedelta(seconds=30)
        assert str(hf.task("t").position) == "step 3"


def test_a_fact_of_another_type_than_the_log_holds_is_noticed(opened):
    world = World(Flavor("sync"))
    values: list[object] = ["high"]
    crashes = [Crash()]

    @task
    def retyped() -> None:
        fact("risk", values[0], of=world.look.plain.reading())
        if crashes:
            raise crashes.pop()

    with opened() as hf:
        with pytest.raises(Crash):
            hf.run(retyped, id="t")
        values[0] = 5
        with pytest.raises(CodeChanged, match="the fact 'risk'"):
            hf.run(retyped, id="t")


@pytest.mark.parametrize("of", [[], None, 5, [5], "1", ["1"]])
def test_a_fact_needs_readings(opened, of):
    @task(name="groundless")
    def groundless() -> None:
        fact("risk", 1, of=of)

    with opened() as hf, pytest.raises(TaskFailed, match=r"BadInput: fact\('risk', of="):
        hf.run(groundless)


def test_facts_belong_in_a_task():
    with pytest.raises(HoldfastError, match=r"fact\(\) was called outside a task"):
        fact("risk", 1, of=Reading(1, datetime.now(UTC), "", True))
