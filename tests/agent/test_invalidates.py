"""What a tool may have changed, and what is made of it, is not trusted any more."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from holdfast import (
    Holdfast,
    InDoubt,
    Retry,
    StepFailed,
    TaskCancelled,
    task,
    tool,
)
from holdfast.agent.externals import external
from holdfast.core.events import Started
from holdfast.stores.memory import MemoryStore
from holdfast.testing import Clock
from tests.agent.world import TTL_S, World
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


class Changes:
    """A task that looks, changes something, and looks again."""

    def __init__(self, flavor: Flavor, world: World, **options) -> None:
        self.errors: list[BaseException] = []

        async def change() -> str:
            if self.errors:
                raise self.errors.pop()
            return "changed"

        self.change = flavor.tool(change, invalidates=[world.look], **options)

        @flavor.task
        async def body() -> list[int]:
            seen = [await world.look(), await world.look()]
            with suppress(StepFailed):
                await self.change()
            return [*seen, await world.look(), await world.look()]

        self.task = body


def test_a_tool_that_was_completed_has_it_asked_again(flavor, opened):
    world = World(flavor)
    changes = Changes(flavor, world)
    with opened() as hf:
        assert hf.run(changes.task, id="t") == [1, 1, 2, 2]
        intent = next(e for e in hf.task("t").events() if isinstance(e, Started) and e.key)
        assert intent.invalidates == (world.name,)


def test_a_tool_that_failed_may_have_changed_something_all_the_same(flavor, opened):
    world = World(flavor)
    changes = Changes(flavor, world)
    changes.errors = [ValueError("no reply")]
    with opened() as hf:
        assert hf.run(changes.task, id="t") == [1, 1, 2, 2]


@pytest.mark.parametrize("happened", [True, False])
def test_so_may_one_that_was_in_doubt_whatever_a_person_says(flavor, opened, happened):
    world = World(flavor)
    changes = Changes(flavor, world, in_doubt="ask")
    changes.errors = [Crash()]
    with opened() as hf:
        with pytest.raises(Crash):
            hf.run(changes.task, id="t")
        with pytest.raises(InDoubt):
            hf.run(changes.task, id="t")
        hf.resolve("t", "3", happened=happened, result="changed" if happened else None)
        assert hf.run(changes.task, id="t") == [1, 1, 2, 2]


def test_what_a_tool_invalidates_does_not_depend_on_the_code_that_is_loaded_later(opened):
    looks = World(Flavor("sync"))

    @tool(invalidates=[looks.name], name="changing_tool")
    def change() -> None: ...

    tools = [change]
    crashes = [Crash()]

    @task
    def reads_again() -> list[int]:
        seen = [looks.look.plain()]
        tools[0]()
        if crashes:
            raise crashes.pop()
        return [*seen, looks.look.plain()]

    with opened() as hf:
        with pytest.raises(Crash):
            hf.run(reads_again, id="t")
        tools[0] = tool(name="changing_tool")(change.__wrapped__)
        assert hf.run(reads_again, id="t") == [1, 2]


def test_an_undo_makes_untrue_what_its_tool_made_untrue(opened):
    world = World(Flavor("sync"))
    seen: list[int] = []

    def take_back(result: None) -> None:
        seen.append(world.look.plain())

    @tool(undo=take_back, invalidates=[world.look.plain])
    def change_for_now() -> None: ...

    @task
    def called_off() -> None:
        change_for_now()
        change_for_now()
        seen.append(world.look.plain())
        hf.cancel("t")
        world.look.plain()

    with opened() as hf:
        with pytest.raises(TaskCancelled):
            hf.run(called_off, id="t")
        assert seen == [1, 2, 3]
        undoing = [c for c in hf.task("t").calls if c.name == "undo_change_for_now"]
        assert [c.invalidates for c in undoing] == [(world.name,)] * 2


def test_while_a_tool_is_under_way_in_another_branch_no_read_is_trusted(flavor, opened):
    world = World(flavor)
    changing = []

    @flavor.tool(invalidates=[world.name], in_doubt="retry")
    async def change() -> None:
        # Made while this tool is under way: in its own body, as a branch beside it might.
        changing.extend([await world.look(), await world.look()])

    @flavor.task
    async def body() -> list[int]:
        before = await world.look()
        await change()
        return [before, await world.look()]

    with opened() as hf:
        assert hf.run(body, id="t") == [1, 4]
        assert changing == [2, 3]


def test_a_read_that_was_under_way_when_a_tool_ended_is_not_trusted(opened):
    answers = 0
    has_begun, has_changed = asyncio.Event(), asyncio.Event()

    @external(ttl_s=TTL_S)
    async def slow_look() -> int:
        nonlocal answers
        answers = answer = answers + 1
        has_begun.set()
        await has_changed.wait()
        return answer

    @tool(invalidates=[slow_look])
    async def quick_change() -> None:
        await has_begun.wait()

    async def change() -> None:
        await quick_change()
        has_changed.set()

    @task
    async def at_once() -> list[int]:
        looked, _ = await asyncio.gather(slow_look(), change())
        return [looked, await slow_look(), await slow_look()]

    with opened() as hf:
        assert hf.run(at_once, id="t") == [1, 2, 2]


def test_a_tool_that_has_nothing_to_do_with_it_changes_nothing(flavor, opened):
    world, other = World(flavor), World(flavor)

    @flavor.tool(invalidates=[other.look, "defined_elsewhere"])
    async def change() -> None: ...

    @flavor.task
    async def body() -> list[int]:
        seen = [await world.look(), await other.look()]
        await change()
        return [*seen, await world.look(), await other.look()]

    with opened() as hf:
        assert hf.run(body, id="t") == [1, 1, 1, 2]


# Reads that are made of others


class Nested:
    """A read that is made of another one, which lives longer."""

    def __init__(self, flavor: Flavor, **options) -> None:
        self.prices = World(flavor, ttl_s=10 * TTL_S)
        self.made = 0
        self.errors: list[Exception] = []

        async def worth() -> int:
            self.made += 1
            price = await self.prices.look()
            if self.errors:
                raise self.errors.pop()
            return price

        self.worth = flavor.external(worth, **{"ttl_s": TTL_S, **options})


def test_a_read_is_as_old_as_the_oldest_it_is_made_of(flavor, opened, clock):
    nested = Nested(flavor)

    @flavor.task
    async def body() -> list[int]:
        await nested.prices.look()
        clock.advance(TTL_S + 1)
        reading = await nested.worth.reading()
        assert reading.as_of == clock.now - timedelta(seconds=TTL_S + 1)
        await nested.worth()
        return [nested.made]

    with opened() as hf:
        assert hf.run(body, id="t") == [2]
        assert nested.prices.answers == 1


def test_what_makes_a_part_of_it_untrue_makes_it_untrue(flavor, opened):
    nested = Nested(flavor)

    @flavor.tool(invalidates=[nested.prices.look])
    async def change() -> None: ...

    @flavor.task
    async def body() -> list[int]:
        seen = [await nested.worth(), await nested.worth()]
        await change()
        return [*seen, await nested.worth()]

    with opened() as hf:
        assert hf.run(body, id="t") == [1, 1, 2]


def test_an_attempt_that_finds_something_in_the_log_is_as_old_as_the_first(flavor, opened, clock):
    nested = Nested(flavor, retry=Retry(attempts=2, delay_s=0))
    nested.errors = [ValueError("down")]
    begun = clock.now
    nested.prices.before_answer = lambda: clock.advance(TTL_S + 1)

    @flavor.task
    async def body() -> None:
        reading = await nested.worth.reading()
        assert (reading.as_of, nested.made, nested.prices.answers) == (begun, 2, 1)
        await nested.worth()
        assert nested.made == 3

    with opened() as hf:
        hf.run(body, id="t")
