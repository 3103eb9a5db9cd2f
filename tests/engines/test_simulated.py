"""Tasks on an engine where everything goes wrong that can: they end as they would at home, with
each effect made once, and ask for the same things however often their functions run again."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from holdfast import (
    Happened,
    Holdfast,
    Retry,
    aask,
    ask,
    checkpoint,
    each,
    gather,
    note,
    now,
    restore,
    sleep,
    start,
    step,
    task,
    tool,
)
from holdfast.core.state import FINISHED
from holdfast.engines import control
from holdfast.errors import AlreadyAnswered, HoldfastError
from holdfast.log.reading import stream_of
from holdfast.log.store_calls import inbox_of
from tests.engines.simulated import Simulated

SEEDS = 8

effects: Counter[str] = Counter()


@tool(in_doubt="check", check=lambda key: None)
def sim_act(what: str) -> str:
    effects[what] += 1
    return what


@step
def sim_double(number: int) -> int:
    return 2 * number


@step
async def sim_adouble(number: int) -> int:
    return 2 * number


@step(retry=Retry(attempts=3, delay_s=5))
def sim_flaky(number: int) -> int:
    effects[f"flaky {number}"] += 1
    if effects[f"flaky {number}"] < 2:
        raise ValueError("not yet")
    return number


@step(retry=Retry(attempts=1))
def sim_bad(number: int) -> int:
    if number % 2:
        raise ValueError("odd")
    return number


@step
def sim_outer(number: int) -> int:
    return sum(sim_double(n) for n in range(number))


@task
def sim_plain() -> list[Any]:
    one = sim_double(1)
    sleep(10)
    sim_act("a")
    answer = ask("Go on?", bool, id="q")
    flaky = sim_flaky(7)
    note("so far")
    return [one, answer, flaky, sim_outer(3)]


@task
def sim_strands() -> list[Any]:
    def one() -> Any:
        sleep(5)
        return sim_double(1)

    def two() -> Any:
        return [ask("Two?", bool, id="q2"), sim_act("two")]

    def three() -> Any:
        return sim_outer(4)

    return [gather(one, two, three), sim_double(9)]


@task
def sim_each() -> list[Any]:
    numbers = each(sim_double, range(6), workers=3)
    source = each(sim_double, lambda offset: range(offset, 5), workers=2)
    some = each(sim_bad, range(5), workers=2, tolerate=0.5)
    return [numbers, source, some, len(some.failures)]


@task
async def sim_async() -> list[Any]:
    async def one() -> Any:
        await asyncio.sleep(3)
        return await sim_adouble(1)

    async def two() -> Any:
        with suppress(TimeoutError):
            async with asyncio.timeout(4):
                await aask("Late?", bool, id="late", default=False, timeout_s=100)
        return await sim_adouble(2)

    async def three() -> Any:
        return [await sim_adouble(n) for n in range(3)], now().year

    ones = await gather(one(), two(), three())
    many = await each(sim_adouble, range(5), workers=3)
    async with asyncio.TaskGroup() as group:
        left = group.create_task(one())
        right = group.create_task(three())
    return [ones, many, left.result(), right.result()]


@task
async def sim_failing() -> str:
    cleaned = []

    async def bad() -> None:
        await sim_adouble(1)
        raise ValueError("bad")

    async def careful(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(await sim_adouble(number))

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(careful(number))
            group.create_task(bad())
    except* ValueError:
        pass
    return str(sorted(cleaned))


@task
async def sim_waits() -> list[int]:
    tasks = {asyncio.ensure_future(sim_adouble(n)) for n in range(6)}
    found = []
    while tasks:
        done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for each_done in done:
            found.append(each_done.result())
            await sim_adouble(7)
    return sorted(found)


@task
def sim_loop() -> int:
    total = restore(0)
    while total < 20:
        if total == 8:
            sleep(5)
        total = checkpoint(total + sim_double(2))
    return total


@task
def sim_child(number: int) -> int:
    sleep(1)
    return sim_double(number) + sim_double(1)


@task
def sim_parent() -> list[int]:
    children = [start(sim_child, number) for number in range(3)]
    sim_double(3)
    return [child.result() for child in children]


@task
def sim_long_outer() -> list[Any]:
    def one() -> Any:
        return sim_outer(6)

    def two() -> Any:
        sleep(50)
        return 2

    return [gather(one, two), sim_outer(5)]


@task
def sim_sleeper() -> int:
    for _ in range(12):
        sleep(1)
    return 12


@tool(approve=True)
def sim_approved(what: str) -> str:
    effects[what] += 1
    return what


@tool(undo=lambda result, *, key: None)
def sim_undoable(what: str) -> str:
    effects[what] += 1
    return what


@task(compensate="always")
def sim_undone() -> list[Any]:
    found = [sim_undoable("u1"), sim_approved("ok")]
    gather(lambda: sim_undoable("u2"), lambda: sim_flaky(3), lambda: ask("Really?", bool, id="r"))
    sleep(4)
    return found


@task
async def sim_amixed() -> list[Any]:
    async def child(number: int) -> int:
        return await start(sim_achild, number)

    one, two = await asyncio.gather(child(1), child(2))
    got = await aask("And?", str, id="and", timeout_s=30, default="none")
    late = 10
    with suppress(TimeoutError):
        late = await asyncio.wait_for(sim_adouble(5), 1000)
    return [one, two, late, got in ("none", "yes")]


@task
async def sim_achild(number: int) -> int:
    await sleep(2)
    return await sim_adouble(number)


TASKS = [
    sim_plain, sim_strands, sim_each, sim_async, sim_failing, sim_waits, sim_loop, sim_parent,
    sim_long_outer, sim_sleeper, sim_undone, sim_amixed,
]  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_done() -> Iterator[None]:
    effects.clear()
    yield


class Person:
    """Answers, and now and then pauses a task, lets it go on, or ends it."""

    def __init__(self, engine: Simulated, hf: Holdfast, id: str, *, ends: bool) -> None:
        self.engine, self.hf, self.id, self.ends = engine, hf, id, ends
        self.calm = engine.random.choice((10, 40))

    def act(self) -> None:
        chance = self.engine.random.randrange(self.calm)
        self.engine.is_deaf = not self.engine.random.randrange(4)
        with suppress(HoldfastError):
            if chance == 0:
                self.hf.pause(self.id)
            elif chance < 3:
                self.hf.unpause(self.id)
            elif chance < 5:
                self.answer()
            elif chance == 5 and self.ends:
                self.engine.is_deaf = False
                self.cancel()
        self.engine.is_deaf = False

    def cancel(self) -> None:
        control.cancel(self.hf._holding, self.id, "enough", "", wait=False)

    def answer(self) -> bool:
        for question in self.hf.task(self.id).questions:
            given = "yes" if question.key == "and" else True
            with suppress(AlreadyAnswered):  # its time is up
                self.hf.answer(self.id, given, question=question.key)
                return True
        return False


def lived(body: Any, seed: int, *, most: int = 0, ends: bool = False) -> Any:
    engine = Simulated(seed, most)
    with engine.open() as hf:
        try:
            id = f"sim-{seed}"
            hf.start(body, id=id)
            person = Person(engine, hf, id, ends=ends)
            for _ in range(3000):
                if engine.state(id).status in FINISHED and id not in engine.flows:
                    return hf.task(id)
                person.act()
                if engine.turn():
                    continue
                if engine.sweep() or person.answer():
                    continue
                if engine.state(id).status == "paused":
                    hf.unpause(id)
                    continue
                inbox = inbox_of(hf.store, [stream_of(id)])
                pytest.fail(f"{body.__name__}, seed {seed}: nothing can happen any more {inbox}")
            pytest.fail("too long")
        finally:
            engine.shut()


go_on, has_begun, deeds = threading.Event(), threading.Event(), list[str]()


def sim_was_booked(key: str) -> Happened[str] | None:
    return Happened("booked") if deeds else None


def sim_unbook(result: str, *, key: str) -> None:
    deeds.append("undone")


@tool(check=sim_was_booked, undo=sim_unbook)
async def sim_book() -> str:
    has_begun.set()
    await asyncio.to_thread(go_on.wait)
    deeds.append("booked")
    return "booked"


@task(compensate="always")
async def sim_impatient(fails: bool) -> str:
    with suppress(TimeoutError):
        async with asyncio.timeout(5):
            await sim_book()
    if fails:
        raise ValueError("too late")
    return "left it"


@pytest.mark.parametrize("fails", [False, True])
def test_a_call_that_was_left_ends_before_its_task_does_and_is_undone(fails: bool) -> None:
    engine = Simulated(1)
    for event in (go_on, has_begun):
        event.clear()
    deeds.clear()
    with engine.open() as hf:
        hf.start(sim_impatient, fails, id="impatient")
        flow = engine.flows["impatient"]
        flow.think()
        assert [what for what, *_ in flow.asked] == ["sleep", "call"]
        making = threading.Thread(target=flow.make, args=(1,))
        making.start()
        has_begun.wait()
        flow.make(0)
        flow.think()  # the time is up, and the call is still being made
        assert engine.state("impatient").status == "in_progress"
        go_on.set()
        making.join()
        while engine.turn():
            pass
        assert hf.task("impatient").status == ("failed" if fails else "completed")
        assert deeds == (["booked", "undone"] if fails else ["booked"])
        assert list(hf.task("impatient").events())[-1].seq == engine.state("impatient").seq
        kinds = [type(event).__name__ for event in hf.task("impatient").events()]
        assert kinds[-1] in ("TaskCompleted", "TaskErrored")
        engine.shut()


@task
async def sim_waits_for_nothing() -> None:
    await asyncio.Event().wait()


@task
async def sim_naps() -> None:
    await asyncio.sleep(10**6)


@pytest.mark.parametrize("body", [sim_waits_for_nothing, sim_naps], ids=lambda b: b.__name__)
def test_an_async_task_can_be_ended_wherever_it_waits(body: Any) -> None:
    engine = Simulated(1)
    with engine.open() as hf:
        hf.start(body, id="waits")
        flow = engine.flows["waits"]
        flow.think()
        Person(engine, hf, "waits", ends=True).cancel()
        engine._think(flow, False)
        assert hf.task("waits").status == "cancelled"
        engine.shut()


def test_a_task_of_many_waits_goes_on_in_new_runs() -> None:
    engine = Simulated(1, most=5)
    with engine.open() as hf:
        hf.start(sim_sleeper, id="long")
        while engine.turn():
            pass
        assert hf.task("long").status == "completed"
        assert engine.runs
        engine.shut()


@task
def sim_many_naps() -> None:
    def calls() -> None:
        for number in range(3):
            sim_double(number)

    gather(*[lambda: sleep(10**6)] * 9, calls)


def test_each_new_run_brings_a_task_further_however_much_it_waits_for() -> None:
    engine = Simulated(1, most=5)
    with engine.open() as hf:
        hf.start(sim_many_naps, id="naps")
        flow = engine.flows["naps"]
        for _ in range(20):
            engine._think(flow, False)
            for number in sorted(flow.open):
                if flow.asked[number][0] == "call":
                    flow.make(number)
        made = hf.task("naps").state.calls.values()
        assert sum(call.name == "sim_double" and call.status == "completed" for call in made) == 3
        engine.shut()


meanwhile: list[Callable[[], None]] = []


@step
def sim_asks() -> bool:
    try:
        return ask("Sure?", bool, id="sure")
    finally:
        if meanwhile:
            meanwhile.pop()()


@task
def sim_has_to_ask() -> bool:
    return sim_asks()


def test_an_answer_that_comes_before_the_engine_knows_of_the_question_is_heard() -> None:
    engine = Simulated(1)
    with engine.open() as hf:
        hf.start(sim_has_to_ask, id="asks")
        flow = engine.flows["asks"]

        def answer() -> None:
            Person(engine, hf, "asks", ends=False).answer()
            flow.think()

        flow.think()
        meanwhile.append(answer)
        flow.make(0)
        while engine.turn():
            pass
        assert hf.task("asks").result is True
        engine.shut()


EXPECTED: dict[Any, Any] = {
    sim_plain: [2, True, 7, 6],
    sim_strands: [[2, [True, "two"], 12], 18],
    sim_each: [[0, 2, 4, 6, 8, 10], [0, 2, 4, 6, 8], [0, None, 2, None, 4], 2],
    sim_failing: str([2 * n for n in range(8)]),
    sim_waits: [2 * n for n in range(6)],
    sim_loop: 20,
    sim_parent: [2, 4, 6],
    sim_long_outer: [[30, 2], 20],
    sim_sleeper: 12,
    sim_undone: ["u1", "ok"],
    sim_amixed: [2, 4, 10, True],
}


@pytest.mark.parametrize("most", [0, 7])
@pytest.mark.parametrize("body", TASKS, ids=lambda body: body.__name__)
def test_a_task_ends_the_same_whatever_happens_to_its_worker(body: Any, most: int) -> None:
    for seed in range(SEEDS):
        effects.clear()
        found = lived(body, seed, most=most)
        assert found.status == "completed", (seed, found.state.failure)
        if body in EXPECTED:
            assert found.result == EXPECTED[body], seed
        assert all(count == 1 for what, count in effects.items() if "flaky" not in what), seed


@pytest.mark.parametrize("body", TASKS, ids=lambda body: body.__name__)
def test_a_task_that_is_ended_at_any_moment_ends(body: Any) -> None:
    for seed in range(SEEDS):
        effects.clear()
        found = lived(body, seed, ends=True)
        assert found.status in ("completed", "cancelled"), (seed, found.state.failure)
