"""Branches made with plain asyncio resume right, whichever way they interleave."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter

import msgspec
import pytest

from holdfast import (
    CodeChanged,
    Holdfast,
    InDoubt,
    Retry,
    TaskFailed,
    Unanswered,
    Worker,
    ask,
    current,
    note,
    sleep,
    step,
    task,
    tool,
)
from tests.flavors import Crash

pytestmark = pytest.mark.holdfast("{tmp_path}/w", sync=False)

ran: Counter[tuple[str, int]] = Counter()
order: random.Random = random.Random(0)
die_after = [10**9]


@step
async def work(name: str, n: int) -> str:
    await asyncio.sleep(order.random() / 1000)
    ran[name, n] += 1
    die_after[0] -= 1
    if die_after[0] == 0:
        raise Crash
    return f"{name}{n}"


async def strand(name: str, length: int) -> list[str]:
    done = []
    for n in range(length):
        await asyncio.sleep(order.random() / 1000)  # not journaled: shuffles who comes first
        done.append(await work(name, n))
    return done


async def nested(name: str) -> list[list[str]]:
    return list(await asyncio.gather(strand(name + "x", 2), strand(name + "y", 2)))


@task
async def braid() -> list[object]:
    gathered = await asyncio.gather(strand("a", 3), strand("b", 2), nested("c"))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(strand(f"g{n}", 2)) for n in range(3)]
    direct = await asyncio.gather(work("d", 0), work("d", 1), work("d", 2))
    return [gathered, [t.result() for t in tasks], direct]


EXPECTED = [
    [["a0", "a1", "a2"], ["b0", "b1"], [["cx0", "cx1"], ["cy0", "cy1"]]],
    [["g00", "g01"], ["g10", "g11"], ["g20", "g21"]],
    ["d0", "d1", "d2"],
]


@pytest.mark.parametrize("seed", range(40))
def test_any_interleaving_resumes_to_the_same_result(hf, seed):
    global order
    order = random.Random(seed)
    ran.clear()
    crashes, settled = 0, {}
    for _ in range(40):
        die_after[0] = order.randint(1, 6)
        try:
            result = hf.run(braid, id="t")
            break
        except (Crash, BaseExceptionGroup):
            crashes += 1
        for call in hf.task("t").calls:
            if call.status == "completed":
                settled.setdefault(work_of(call), ran[work_of(call)])
    die_after[0] = 10**9
    assert result == EXPECTED
    assert crashes > 1
    assert len(ran) == 18
    assert {work: ran[work] for work in settled} == settled


def work_of(call) -> tuple[str, int]:
    args = msgspec.json.decode(call.args)
    return args["name"], args["n"]


def test_the_paths_do_not_depend_on_who_runs_first(tmp_path):
    global order
    die_after[0] = 10**9
    paths = []
    for seed in range(5):
        order = random.Random(seed)
        with Holdfast(tmp_path / str(seed), sync=False) as hf:
            hf.run(braid, id="t")
            paths.append({(c.path, bytes(c.args)) for c in hf.task("t").calls})
    assert all(these == paths[0] for these in paths)


def test_asyncio_tasks_of_a_library_shift_nothing(hf):
    made = [0]

    async def background() -> None:
        await asyncio.sleep(0)

    @step
    async def one(n: int) -> int:
        return n

    async def pair(n: int) -> int:
        return await one(n) + await one(n + 1)

    @task
    async def busy() -> int:
        for _ in range(made[0]):
            await asyncio.create_task(background())
        total = sum(await asyncio.gather(pair(1), pair(10)))
        if made[0] == 0:
            raise Crash
        return total

    with pytest.raises(Crash):
        hf.run(busy, id="t")
    made[0] = 3
    assert hf.run(busy, id="t") == 24
    assert len(hf.task("t").calls) == 4


def test_a_branch_that_waits_for_a_person_does_not_hold_up_the_others(hf):
    started = []

    @tool
    async def letter() -> str:
        started.append("letter")
        if len(started) == 1:
            raise Crash
        return "sent"

    @tool(in_doubt="ask")
    async def slow_effect(n: int) -> int:
        await asyncio.sleep(0.05)
        started.append(n)
        return n

    async def slow(n: int) -> int:
        first = await slow_effect(n)
        return first + await slow_effect(n + 10)

    @task
    async def mixed() -> list[object]:
        async with asyncio.TaskGroup() as group:
            mailed = group.create_task(letter())
            others = [group.create_task(slow(n)) for n in (1, 2)]
        return [mailed.result(), *(o.result() for o in others)]

    with pytest.raises((Crash, BaseExceptionGroup)):
        hf.run(mixed, id="t")
    doubts = {d.path for d in hf.task("t").doubts}
    for path in doubts - {"1"}:
        hf.resolve("t", path, happened=False)
    started[:] = ["letter"]
    with pytest.raises(InDoubt, match="letter"):
        hf.run(mixed, id="t")
    # The others went on until nothing was left to do, and no new doubt came of it.
    assert sorted(n for n in started if n != "letter") == [1, 2, 11, 12]
    assert [d.name for d in hf.task("t").doubts] == ["letter"]
    hf.resolve("t", "1", happened=True, result="sent")
    assert hf.run(mixed, id="t") == ["sent", 12, 14]


def test_nothing_of_a_task_outlives_it(hf):
    ended = []

    @step
    async def one() -> int:
        return 1

    async def forever() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("forever")

    @task
    async def leaves_something() -> int:
        asyncio.create_task(forever())  # noqa: RUF006
        await asyncio.sleep(0)
        return await one()

    async def in_a_loop_that_goes_on() -> None:
        assert await hf.arun(leaves_something, id="a") == 1
        assert ended == ["forever"]

    asyncio.run(in_a_loop_that_goes_on())
    assert hf.run(leaves_something, id="t") == 1
    assert ended == ["forever"] * 2


def test_a_failing_branch_fails_the_task_and_retry_runs_only_what_is_missing(hf):
    broken = [True]
    done: list[str] = []

    @step
    async def good(n: int) -> int:
        done.append(f"good {n}")
        return n

    @step(retry=Retry(attempts=2, delay_s=0))
    async def bad() -> int:
        done.append("bad")
        if broken[0]:
            raise ValueError("not yet")
        return 5

    async def left() -> int:
        return await good(1) + await good(2)

    async def right() -> int:
        return await good(3) + await bad()

    @task
    async def both_branches() -> int:
        return sum(await asyncio.gather(left(), right()))

    with pytest.raises(TaskFailed, match="not yet"):
        hf.run(both_branches, id="t")
    broken[0] = False
    assert hf.retry("t") == 11
    assert sorted(done) == ["bad", "bad", "bad", "good 1", "good 2", "good 3"]


def test_changed_code_in_a_branch_is_noticed(hf):
    swap = [False]

    @step
    async def one() -> int:
        return 1

    @step
    async def two() -> int:
        return 2

    async def strand_of_two() -> int:
        first, second = (two, one) if swap[0] else (one, two)
        return await first() * 10 + await second()

    @task
    async def changing() -> int:
        (value,) = await asyncio.gather(strand_of_two())
        if not swap[0]:
            raise Crash
        return value

    with pytest.raises(Crash):
        hf.run(changing, id="t")
    swap[0] = True
    with pytest.raises(CodeChanged, match=r"step strand_of_two~1\.1: the log holds one"):
        hf.run(changing, id="t")


def test_a_sync_step_in_a_thread_of_an_async_task_is_journaled(hf):
    @step
    def blocking(n: int) -> str:
        return f"{n} at {current().path}"

    @task
    async def threaded() -> list[str]:
        note("one by one, then side by side")
        first = await asyncio.to_thread(blocking, 0)
        rest = await asyncio.gather(*(asyncio.to_thread(blocking, n) for n in (1, 2)))
        return [first, *rest]

    assert hf.run(threaded, id="t") == ["0 at 1", "1 at to_thread~1.1", "2 at to_thread~2.1"]


def test_calls_in_branches_are_steps_of_the_task(hf):
    die_after[0] = 10**9
    hf.run(braid, id="t")
    position = hf.task("t").position
    assert position.step == len(position.committed) == 18


def test_a_run_that_is_cancelled_gives_its_task_back_at_once(tmp_path):
    @step
    async def slow_one(n: int) -> int:
        await asyncio.sleep(0.002)
        return n

    @task
    async def cancelled_often() -> int:
        return sum([await slow_one(n) for n in range(5)])

    async def main() -> int:
        with Holdfast(tmp_path / "w") as mine:
            for n in range(25):
                running = asyncio.ensure_future(mine.arun(cancelled_often, id="t"))
                await asyncio.sleep(0.0004 * n)
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            return await mine.arun(cancelled_often, id="t")

    assert asyncio.run(main()) == 10


# A function that waits for plain asyncio, which only a branch of its own would wake


@task
async def asks_by_a_queue() -> str:
    answers: asyncio.Queue[str] = asyncio.Queue()

    async def asks() -> None:
        await answers.put(await ask("Your name?", str))

    asking = asyncio.create_task(asks())
    name = await answers.get()
    await asking
    return name


def test_a_question_of_a_branch_that_nobody_awaits_is_put_and_answered(hf):
    with pytest.raises(Unanswered):
        hf.run(asks_by_a_queue, id="queue")
    hf.answer("queue", "Ada")
    assert hf.resume("queue") == "Ada"


@task
async def naps_by_an_event() -> str:
    is_over = asyncio.Event()

    async def naps() -> None:
        for _ in range(3):
            await sleep(0.5)
        is_over.set()

    napping = asyncio.create_task(naps())
    await is_over.wait()
    await napping
    return "awake"


def until(is_so):
    while not is_so():
        time.sleep(0.001)


def test_a_branch_that_is_paused_and_goes_on_at_once_leaves_nobody_waiting(hf):
    handle = hf.start(naps_by_an_event, id="event")
    worker = Worker(hf, poll_s=0.01)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        until(lambda: handle.view.calls)
        for _ in range(3):
            hf.pause("event")
            until(lambda: handle.status == "paused")
            hf.unpause("event")  # while the function is about to hear that its branch has stopped
        assert handle.result(timeout_s=60) == "awake"
    finally:
        worker.stop()
        thread.join()
