"""`gather` and `each`: branches and maps that resume where they were, sync and async."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter

import pytest

from holdfast import (
    CodeChanged,
    InDoubt,
    Retry,
    StepFailed,
    TaskFailed,
    Unanswered,
    ask,
    current,
    each,
    gather,
    step,
    task,
    tool,
)
from tests.flavors import Crash

pytestmark = pytest.mark.holdfast("{tmp_path}/w", sync=False)


def test_branches_run_side_by_side_and_have_paths_of_their_own(hf):
    meet = threading.Barrier(3, timeout=60)

    @step
    def wait_for_the_others(n: int) -> str:
        meet.wait()
        return f"{n} at {current().path}"

    @step
    def after(text: str) -> str:
        return f"{text}, then {current().path}"

    @task
    def three_ways() -> list[str]:
        first = gather(*(lambda n=n: after(wait_for_the_others(n)) for n in range(3)))
        return [*first, after("end")]

    assert hf.run(three_ways, id="t") == [
        "0 at 1.1.1, then 1.1.2",
        "1 at 1.2.1, then 1.2.2",
        "2 at 1.3.1, then 1.3.2",
        "end, then 2",
    ]


def test_async_branches_have_the_same_paths(hf):
    @step
    async def where(n: int) -> str:
        await asyncio.sleep(0.001 * (3 - n))
        return f"{n} at {current().path}"

    async def strand(n: int) -> list[str]:
        return [await where(n), await where(n)]

    @task
    async def three_ways_async() -> list[list[str]]:
        return await gather(*(strand(n) for n in range(3)))

    assert hf.run(three_ways_async, id="t") == [
        [f"{n} at 1.{n + 1}.1", f"{n} at 1.{n + 1}.2"] for n in range(3)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_only_what_is_missing_runs_again(hf, seed):
    ran: Counter[int] = Counter()
    left = [3 + seed]

    @step
    def work(n: int) -> int:
        time.sleep(0.001 * ((n * 7 + seed) % 3))
        left[0] -= 1
        if left[0] == 0:
            raise Crash
        ran[n] += 1
        return n * n

    @task(name=f"braid_{seed}")
    def braid() -> list[list[int]]:
        return gather(*(lambda k=k: [work(10 * k + n) for n in range(4)] for k in range(3)))

    with pytest.raises(Crash):
        hf.run(braid, id="t")
    assert hf.run(braid, id="t") == [[(10 * k + n) ** 2 for n in range(4)] for k in range(3)]
    assert set(ran.values()) == {1}


def test_a_branch_that_fails_lets_the_others_end_and_then_raises(hf):
    ended = []

    @step
    def good(n: int) -> int:
        time.sleep(0.02)
        ended.append(n)
        return n

    @step
    def bad() -> int:
        raise ValueError("no")

    @task
    def mixed() -> str:
        try:
            gather(lambda: good(1), bad, lambda: good(2))
        except StepFailed as failed:
            return f"{failed.path} {sorted(ended)}"
        return ""

    assert hf.run(mixed, id="t") == "1.2.1 [1, 2]"


@pytest.mark.parametrize("use_async", [False, True])
def test_a_branch_that_asks_does_not_hold_up_the_others(hf, use_async):
    done: list[int] = []
    name = f"asking_branch_{use_async}"
    if use_async:

        @step
        async def awork(n: int) -> int:
            done.append(n)
            return n

        async def many() -> int:
            return sum([await awork(n) for n in range(5)])

        @task(name=name)
        async def mixed() -> list[object]:
            return await gather(ask("Sure?", bool), many())
    else:

        @step
        def work(n: int) -> int:
            done.append(n)
            return n

        @task(name=name)
        def mixed() -> list[object]:
            return gather(lambda: ask("Sure?", bool), lambda: sum(work(n) for n in range(5)))

    with pytest.raises(Unanswered):
        hf.run(mixed, id="t")
    assert done == [0, 1, 2, 3, 4]
    hf.answer("t", True)
    assert hf.run(mixed, id="t") == [True, 10]
    assert done == [0, 1, 2, 3, 4]


def test_gather_of_something_else_is_refused(hf):
    @task
    def odd() -> None:
        gather(3)  # type: ignore[call-overload]

    with pytest.raises(TaskFailed, match=r"BadInput.*takes functions, not 3"):
        hf.run(odd, id="t")


# each


@pytest.mark.parametrize("use_async", [False, True])
def test_results_come_in_order_and_finished_items_never_run_again(hf, use_async):
    ran: Counter[int] = Counter()
    left = [25]

    def body(n: int) -> int:
        left[0] -= 1
        if left[0] == 0:
            raise Crash
        ran[n] += 1
        return -n

    name = f"mapping_{use_async}"
    if use_async:

        @step
        async def aitem(n: int) -> int:
            await asyncio.sleep(0.001 * (n % 3))
            return body(n)

        @task(name=name)
        async def mapping() -> list[int]:
            return await each(aitem, range(60), workers=5)
    else:

        @step
        def item(n: int) -> int:
            time.sleep(0.001 * (n % 3))
            return body(n)

        @task(name=name)
        def mapping() -> list[int]:
            return each(item, range(60), workers=5)

    with pytest.raises(Crash):
        hf.run(mapping, id="t")
    before = dict(ran)
    completed = {c.path for c in hf.task("t").calls if c.status == "completed"}
    assert len(completed) > 10
    assert hf.run(mapping, id="t") == [-n for n in range(60)]
    assert all(ran[int(path.split(".")[1]) - 1] == 1 for path in completed)
    assert len(before) < 60 == len(ran)


def test_failures_are_collected_with_their_items_and_tolerated_as_told(hf):
    @step(retry=Retry(attempts=2, delay_s=0))
    def picky(n: int) -> int:
        if n % 4 == 3:
            raise ValueError(f"not {n}")
        return n

    @task
    def tolerant(tolerate: float) -> list[object]:
        results = each(picky, range(8), tolerate=tolerate)
        return [list(results), [[f.index, f.item, f.failure.message] for f in results.failures]]

    expected = [[0, 1, 2, None, 4, 5, 6, None], [[3, 3, "not 3"], [7, 7, "not 7"]]]
    assert hf.run(tolerant, 2, id="two") == expected
    assert hf.run(tolerant, 0.25, id="share") == expected
    for tolerate in (0, 1, 0.2):
        with pytest.raises(TaskFailed, match="2 of 8 items failed"):
            hf.run(tolerant, tolerate, id=f"t-{tolerate}")


def test_each_takes_a_plain_function_and_nests(hf):
    @step
    def tag(text: str) -> str:
        return f"{text} at {current().path}"

    def plain(n: int) -> str:
        return tag(str(n))

    @task
    def nested_map() -> list[str]:
        return each(plain, [5, 6])

    assert hf.run(nested_map, id="t") == ["5 at 1.1.1", "6 at 1.2.1"]


def test_a_long_input_is_read_again_only_from_where_it_was(hf):
    offsets = []
    left = [7]

    @step
    def item(n: int) -> int:
        left[0] -= 1
        if left[0] == 0:
            raise Crash
        return n

    def rows(offset: int):
        offsets.append(offset)
        return iter(range(offset, 10))

    @task
    def long_input() -> list[int]:
        return each(item, rows, workers=1)

    with pytest.raises(Crash):
        hf.run(long_input, id="t")
    assert hf.run(long_input, id="t") == list(range(10))
    assert offsets[0] == 0
    assert 0 < offsets[1] <= 6


@pytest.mark.parametrize("changed", [[1, 2, 9], [1, 2], []])
def test_an_input_that_changed_is_noticed(hf, changed):
    items = [1, 2, 3]

    @step
    def item(n: int) -> int:
        return n

    @task
    def fickle() -> list[int]:
        results = each(item, items)
        if len(items) == 3 and items[-1] == 3:
            raise Crash
        return results

    with pytest.raises(Crash):
        hf.run(fickle, id="t")
    items[:] = changed
    with pytest.raises(CodeChanged, match=r"item\(\{.n.:"):
        hf.run(fickle, id="t")


def test_an_item_in_doubt_stops_the_task_when_the_others_are_done(hf):
    sent = []

    @tool
    def letter(n: int) -> int:
        sent.append(n)
        if sent == [0]:
            raise Crash
        return n

    @task
    def letters() -> list[int]:
        return each(letter, range(4), workers=1)

    with pytest.raises(Crash):
        hf.run(letters, id="t")
    with pytest.raises(InDoubt, match=r"call 1\.1, letter"):
        hf.run(letters, id="t")
    hf.resolve("t", "1.1", happened=True, result=0)
    assert hf.run(letters, id="t") == [0, 1, 2, 3]
    assert sorted(sent) == [0, 1, 2, 3]


@pytest.mark.parametrize("options", [{"workers": 0}, {"tolerate": -1}, {"tolerate": float("nan")}])
def test_options_that_make_no_sense_are_refused(hf, options):
    @task(name="odd_each")
    def odd() -> None:
        each(len, [[1]], **options)

    with pytest.raises(TaskFailed, match="BadInput"):
        hf.run(odd, id="t")


def test_a_task_can_not_be_mapped(hf):
    @task
    def inner_task(n: int) -> int:
        return n

    @task
    def outer_task() -> None:
        each(inner_task, [1])

    with pytest.raises(TaskFailed, match="a task can't be mapped"):
        hf.run(outer_task, id="t")


def test_ten_thousand_items_in_one_task(hf):
    @step
    def item(n: int) -> int:
        return n

    @task
    def many_items() -> int:
        return sum(each(item, range(10_000), workers=2))

    assert hf.run(many_items, id="t") == sum(range(10_000))


def test_what_each_returns_can_be_part_of_a_result(hf):
    @step(name="square_in_part")
    def square(x: int) -> int:
        return x * x

    @step(name="takes_anything")
    def total(values):
        return sum(values)

    @task(name="results_in_a_dict")
    def agent():
        squares = each(square, range(3))
        return {"squares": squares, "total": total(squares)}

    assert hf.run(agent, id="t") == {"squares": [0, 1, 4], "total": 5}
    assert hf.run(agent, id="t") == {"squares": [0, 1, 4], "total": 5}
