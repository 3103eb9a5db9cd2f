"""`@external`: the outside world is asked anew, or what it said is young enough and nothing speaks
against it. On a replay everything is as it was seen."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from holdfast import (
    BadInput,
    CodeChanged,
    Holdfast,
    Redact,
    Retry,
    Secret,
    StepFailed,
    checkpoint,
    restore,
    step,
    task,
    tool,
)
from holdfast.agent.externals import Reading, external, fact
from holdfast.core.events import Reused
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


def calls_of(hf: Holdfast, id: str = "t") -> list[tuple[str, str]]:
    return [(call.path, call.of) for call in hf.task(id).calls]


# Lifetimes


def test_within_its_lifetime_a_read_is_answered_by_the_last_one_and_that_is_recorded(
    flavor, opened, clock
):
    world = World(flavor)

    @flavor.step
    async def work(seconds: float) -> None:
        clock.advance(seconds)

    @flavor.task
    async def body() -> list[int]:
        seen = [await world.look(), await world.look("shares")]
        await work(TTL_S)
        return [*seen, await world.look(), await world.look("shares"), await world.look()]

    with opened() as hf:
        assert hf.run(body, id="t") == [1, 2, 1, 2, 1]
        assert world.asked == ["rates", "shares"]
        assert calls_of(hf) == [("1", ""), ("2", ""), ("3", ""), ("4", "1"), ("5", "2"), ("6", "1")]
        assert [each.output for each in hf.task("t").outputs] == [1, 2, None, 1, 2, 1]


def test_once_its_lifetime_is_over_it_is_asked_again(flavor, opened, clock):
    world = World(flavor)

    @flavor.step
    async def work() -> None:
        clock.advance(TTL_S / 2 + 1)

    @flavor.task
    async def body() -> list[int]:
        seen = []
        for _ in range(5):
            seen.append(await world.look())
            await work()
        return seen

    with opened() as hf:
        # A read that was reused is no younger for it.
        assert hf.run(body, id="t") == [1, 1, 2, 2, 3]
        assert [of for _, of in calls_of(hf)][::2] == ["", "1", "", "5", ""]


def test_the_age_counts_from_when_the_read_began(flavor, opened, clock):
    world = World(flavor)
    world.before_answer = lambda: clock.advance(TTL_S + 1)

    @flavor.task
    async def body() -> list[int]:
        return [await world.look(), await world.look()]

    with opened() as hf:
        assert hf.run(body, id="t") == [1, 2]


@pytest.mark.parametrize("options", [{"ttl_s": 0}, {}])
def test_without_a_lifetime_it_is_asked_every_time(opened, options):
    asked = []

    def look() -> int:
        asked.append(1)
        return len(asked)

    read = external(name="always_fresh", **options)(look) if options else external(look)

    @task
    def looks_twice() -> list[int]:
        return [read(), read()]

    with opened() as hf:
        assert hf.run(looks_twice, id="t") == [1, 2]


def test_a_lifetime_may_last_until_a_tool_ends_it(flavor, opened, clock):
    world = World(flavor, ttl_s=float("inf"))

    @flavor.tool(invalidates=[world.name])
    async def change() -> None: ...

    @flavor.task
    async def body() -> list[int]:
        seen = [await world.look()]
        clock.advance(10**8)
        seen.append(await world.look())
        await change()
        return [*seen, await world.look()]

    with opened() as hf:
        assert hf.run(body, id="t") == [1, 1, 2]


def test_other_arguments_are_another_read(flavor, opened):
    world = World(flavor)

    @flavor.task
    async def body() -> list[int]:
        return [await world.look("a"), await world.look("b"), await world.look(what="a")]

    with opened() as hf:
        assert hf.run(body, id="t") == [1, 2, 1]


def test_fresh_asks_in_any_case_and_answers_for_those_that_follow(flavor, opened):
    world = World(flavor)

    @flavor.task
    async def body() -> list[int]:
        return [await world.look(), await world.look.fresh(), await world.look()]

    with opened() as hf:
        assert hf.run(body, id="t") == [1, 2, 2]
        assert calls_of(hf) == [("1", ""), ("2", ""), ("3", "2")]


def test_a_clock_that_is_set_back_makes_nothing_younger(flavor, opened, clock):
    world = World(flavor)

    @flavor.step
    async def turn(seconds: float) -> None:
        clock.advance(seconds)

    @flavor.task
    async def body() -> list[int]:
        seen = [await world.look()]
        await turn(TTL_S - 10)
        await turn(-TTL_S / 2)  # by this clock it would be 20 s old, and is 80 s old below
        await turn(30)
        return [*seen, await world.look()]

    with opened() as hf:
        assert hf.run(body, id="t") == [1, 2]


def test_a_clock_that_stands_before_the_log_tells_no_age(flavor, opened, clock):
    world = World(flavor)

    @flavor.task
    async def body() -> list[int]:
        seen = [await world.look()]
        clock.advance(-1)
        return [*seen, await world.look()]

    with opened() as hf:
        assert hf.run(body, id="t") == [1, 2]


def test_a_read_that_failed_answers_for_none(flavor, opened):
    world = World(flavor)
    world.errors = [ValueError("down")]

    @flavor.task
    async def body() -> list[int]:
        with pytest.raises(StepFailed):
            await world.look()
        return [await world.look(), await world.look()]

    with opened() as hf:
        assert hf.run(body, id="t") == [2, 2]


def test_a_read_that_is_tried_again_is_as_old_as_its_last_attempt(flavor, opened, clock):
    world = World(flavor, retry=Retry(attempts=2, delay_s=0))
    world.errors = [ValueError("down")]
    world.before_answer = lambda: clock.advance(TTL_S)

    @flavor.task
    async def body() -> list[int]:
        return [await world.look(), await world.look()]

    with opened() as hf:
        assert hf.run(body, id="t") == [2, 2]


# Replay


def test_a_replay_sees_what_was_seen_whatever_time_it_is_and_a_new_read_asks_again(
    flavor, opened, clock
):
    world = World(flavor)
    crashes = [Crash()]

    @flavor.task
    async def body() -> list[int]:
        seen = [await world.look(), await world.look()]
        if crashes:
            raise crashes.pop()
        return [*seen, await world.look()]

    with opened() as hf:
        with pytest.raises(Crash):
            hf.run(body, id="t")
        clock.advance(10 * TTL_S)
        assert hf.run(body, id="t") == [1, 1, 2]
        assert world.asked == ["rates"] * 2
        clock.advance(-100 * TTL_S)
        assert hf.run(body, id="t") == [1, 1, 2]


def test_within_the_lifetime_it_is_reused_across_a_crash(flavor, opened, clock):
    world = World(flavor)
    crashes = [Crash()]

    @flavor.task
    async def body() -> list[int]:
        seen = await world.look()
        if crashes:
            raise crashes.pop()
        return [seen, await world.look()]

    with opened() as hf:
        with pytest.raises(Crash):
            hf.run(body, id="t")
        clock.advance(TTL_S - 1)
        assert hf.run(body, id="t") == [1, 1]


def test_a_read_that_a_crash_cut_short_is_made_again_and_is_as_old_as_that(flavor, opened, clock):
    world = World(flavor)
    world.errors = [Crash()]

    @flavor.task
    async def body() -> list[int]:
        return [await world.look(), await world.look()]

    with opened() as hf:
        with pytest.raises(Crash):
            hf.run(body, id="t")
        clock.advance(10 * TTL_S)
        assert hf.run(body, id="t") == [2, 2]


def test_changed_code_is_noticed_where_the_log_holds_a_read_that_was_reused(opened):
    world, other = World(Flavor("sync")), World(Flavor("sync"))
    second = [world.look.plain]

    @task
    def changes_its_mind() -> None:
        world.look.plain()
        second[0]()
        raise Crash

    with opened() as hf:
        with pytest.raises(Crash):
            hf.run(changes_its_mind, id="t")
        assert calls_of(hf) == [("1", ""), ("2", "1")]
        second[0] = lambda: world.look.plain("tides")
        with pytest.raises(CodeChanged, match=f"{world.name}.*The arguments differ"):
            hf.run(changes_its_mind, id="t")
        second[0] = other.look.plain
        with pytest.raises(CodeChanged) as changed:
            hf.run(changes_its_mind, id="t")
        assert (changed.value.path, changed.value.recorded) == ("2", f"{world.name}({{}})")
        found = hf.check("t")
        assert (found.fits, found.path) == (False, "2")
        second[0] = lambda: None
        with pytest.raises(Crash):  # it stopped before its end, where a missing call shows
            hf.run(changes_its_mind, id="t")
    assert (len(world.asked), other.asked) == (1, [])


def test_checking_the_code_asks_nothing_and_writes_nothing(flavor, opened):
    world = World(flavor)
    crashes = [Crash()]

    @flavor.task
    async def body() -> int:
        fact("level", await world.look(), of=await world.look.reading())
        if crashes:
            raise crashes.pop()
        await world.look()
        return fact("level", 1, of=await world.look.reading())

    with opened() as hf:
        with pytest.raises(Crash):
            hf.run(body, id="t")
        seq = hf.task("t").seq
        assert hf.check("t").fits
        assert (hf.task("t").seq, world.answers) == (seq, 1)


# Branches, steps, checkpoints


def test_it_works_in_branches_and_in_steps(flavor, opened):
    world = World(flavor)

    @flavor.step
    async def look_inside() -> int:
        return await world.look()

    @flavor.task
    async def body() -> list[list[int]]:
        first = await look_inside()
        both = await flavor.gather(world.look, look_inside)
        items = await flavor.each(world.look, ["rates", "shares", "shares"], workers=1)
        return [[first], both, list(items), [await world.look("shares")]]

    with opened() as hf:
        first, both, items, last = hf.run(body, id="t")
        # Of two that are made side by side both may ask.
        assert (first, both) == ([1], [1, 1])
        assert world.asked[0] == "rates"
        assert items[1:][0] == items[2] == last[0]
        assert hf.run(body, id="t") == [first, both, items, last]
        for call in hf.task("t").calls:
            if call.of:
                assert hf.task("t").state.calls[call.of].of == ""


def test_readings_can_be_mapped_over_items(flavor, opened):
    world = World(flavor)
    world.look.reading.plain = getattr(world.look.reading, "plain", world.look.reading)

    @flavor.task
    async def body() -> list[tuple[int, str, bool]]:
        found = await flavor.each(world.look.reading, ["a", "b", "a"], workers=1)
        return [(each.value, each.source, each.fresh) for each in found]

    with opened() as hf:
        assert hf.run(body, id="t") == [(1, "1.1", True), (2, "1.2", True), (1, "1.1", False)]


@pytest.mark.parametrize("crash_at", [None, 4])
def test_after_a_checkpoint_the_next_read_asks_again_crash_or_no_crash(flavor, opened, crash_at):
    world = World(flavor)
    crashes = [Crash()]

    @flavor.task
    async def body() -> list[int]:
        seen = restore(list[int]())
        while len(seen) < 8:
            pair = [await world.look(), await world.look()]
            if len(seen) == crash_at and crashes:
                raise crashes.pop()
            seen = checkpoint([*seen, *pair])
        return seen

    with opened() as hf:
        if crash_at is not None:
            with pytest.raises(Crash):
                hf.run(body, id="t")
        assert hf.run(body, id="t") == [1, 1, 2, 2, 3, 3, 4, 4]


# What the caller is told


def test_a_reading_says_as_of_when_it_is_and_who_asked(flavor, opened, clock):
    world = World(flavor)
    begun = clock.now
    crashes = [Crash()]

    @flavor.task
    async def body() -> None:
        first = await world.look.reading()
        assert first == Reading(1, begun, "1", True)
        if crashes:
            clock.advance(5)
        assert await world.look.reading() == Reading(1, begun, "1", False)
        if crashes:
            raise crashes.pop()

    with opened() as hf:
        with pytest.raises(Crash):
            hf.run(body, id="t")
        clock.advance(5000)
        hf.run(body, id="t")


def test_outside_a_task_it_is_the_plain_function():
    @external(ttl_s=TTL_S)
    def plain_look(what: str) -> list[str]:
        """What is there."""
        return [what]

    @external
    async def plain_alook(what: str) -> list[str]:
        return [what]

    assert plain_look("a") == plain_look.fresh("a") == ["a"]
    assert plain_look.__doc__ == "What is there."
    reading = plain_look.reading("a")
    assert (reading.value, reading.source, reading.fresh) == (["a"], "", True)
    assert inspect.iscoroutinefunction(plain_alook) or asyncio.iscoroutinefunction(plain_alook)
    assert asyncio.run(plain_alook("b")) == ["b"]
    assert asyncio.run(plain_alook.reading("b")).value == ["b"]


def test_each_answer_is_a_copy(opened):
    @external(ttl_s=TTL_S)
    def list_rooms() -> list[str]:
        return ["attic"]

    @task
    def changes_the_list() -> list[list[str]]:
        list_rooms().append("cellar")
        return [list_rooms(), list_rooms.reading().value]

    with opened() as hf:
        assert hf.run(changes_the_list, id="t") == [["attic"], ["attic"]]


# What may not be mixed up


@pytest.mark.parametrize("kind", ["named", "declared", "secret"])
def test_a_read_with_a_hidden_argument_never_answers_for_another(opened, kind):
    """In the log the two look the same: one user's account must not answer for another's."""
    if kind == "secret":

        @external(ttl_s=TTL_S, name="account_by_secret")
        def account(token: Secret) -> str:
            return f"account {len(token.reveal())}"

        given = [Secret("a"), Secret("bb")]
    elif kind == "declared":

        @external(ttl_s=TTL_S, name="account_by_pin", redact=["pin"])
        def account(pin: int) -> str:
            return f"account {len(str(pin))}"

        given = [1, 22]
    else:

        @external(ttl_s=TTL_S, name="account_by_card")
        def account(card: str) -> str:
            return f"account {len(card)}"

        given = ["a", "bb"]

    @task(name=f"two_accounts_{kind}")
    def two_accounts() -> list[str]:
        return [account(each) for each in given]

    with opened(redact=Redact(names=["card"])) as hf:
        assert hf.run(two_accounts, id="t") == ["account 1", "account 2"]
        first, second = hf.task("t").calls
        assert first.args_hash == second.args_hash


def test_tasks_do_not_answer_for_each_other(opened):
    world = World(Flavor("sync"))

    @task
    def looks_once() -> int:
        return world.look.plain()

    with opened() as hf:
        assert [hf.run(looks_once, id=id) for id in ("a", "b")] == [1, 2]


# Bad input


@pytest.mark.parametrize("ttl_s", [-1, float("nan"), "60", None, True])
def test_a_lifetime_is_a_number_of_seconds(ttl_s):
    with pytest.raises(BadInput, match="ttl_s"):
        external(ttl_s=ttl_s)(lambda: None)


@pytest.mark.parametrize("invalidates", ["prices", 5, None, [5], [step], [""], ["a b"]])
def test_a_tool_invalidates_reads_by_function_or_name(invalidates):
    with pytest.raises(BadInput):
        tool(invalidates=invalidates)(refresh)


def test_a_function_that_is_no_read_can_not_be_invalidated():
    @step
    def no_read() -> None: ...

    with pytest.raises(BadInput, match="no_read is a step"):
        tool(invalidates=[no_read])(refresh)
    with pytest.raises(BadInput, match="is none"):
        tool(invalidates=[refresh])(refresh)


def refresh() -> None: ...


def test_a_read_can_not_stream():
    def parts():
        yield 1

    with pytest.raises(BadInput, match="@external can't be a generator"):
        external(parts)
    with pytest.raises(BadInput, match="@external decorates a function"):
        external(5)


# The log


def test_what_was_reused_costs_a_short_line_whatever_the_answer(tmp_path):
    @external(ttl_s=TTL_S)
    def big_answer() -> str:
        return "x" * 50_000

    @task
    def reads_it_often() -> int:
        return sum(len(big_answer()) for _ in range(100))

    with Holdfast(tmp_path / "w") as hf:
        assert hf.run(reads_it_often, id="t") == 100 * 50_000
        assert sum(isinstance(event, Reused) for event in hf.task("t").events()) == 99
    assert (tmp_path / "w/tasks/t/events.jsonl").stat().st_size < 80_000
