"""What many tasks of a loop ask of the store is asked together, and each hears its own answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from holdfast.engines.loops import LoopThread, WaitingLine


class Asked:
    """Answers when it is told to, and notes who was in which group."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.at_once = self.most_at_once = 0
        self.go = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, wanted: Sequence[int]) -> Sequence[int | BaseException]:
        with self._lock:
            self.groups.append(list(wanted))
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        assert self.go.wait(60)
        with self._lock:
            self.at_once -= 1
        if -1 in wanted:
            raise OSError("the store is gone")
        return [ValueError(n) if n < 0 else 10 * n for n in wanted]


async def reached(asked: Asked, groups: int) -> None:
    async with asyncio.timeout(60):
        while len(asked.groups) < groups:  # noqa: ASYNC110 (it changes in a thread)
            await asyncio.sleep(0)


@pytest.mark.parametrize("most_groups", [1, 2])
def test_who_comes_meanwhile_is_in_the_next_group(most_groups):
    asked = Asked()

    async def all_of_them() -> list[int]:
        line: WaitingLine[int, int] = WaitingLine(asked, most_groups)
        first = [line.wait(n) for n in (1, 2)]
        await reached(asked, 1)
        second = [line.wait(n) for n in (3, 4)]
        if most_groups == 2:
            await reached(asked, 2)
        third = [line.wait(5)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert asked.most_at_once == most_groups
        asked.go.set()
        async with asyncio.timeout(60):
            return await asyncio.gather(*first, *second, *third)

    assert asyncio.run(all_of_them()) == [10, 20, 30, 40, 50]
    assert asked.groups == ([[1, 2], [3, 4, 5]] if most_groups == 1 else [[1, 2], [3, 4], [5]])
    assert asked.most_at_once == most_groups


def test_each_hears_its_own_failure_and_all_hear_that_of_the_group():
    asked = Asked()
    asked.go.set()

    async def some() -> list[int | BaseException]:
        line: WaitingLine[int, int] = WaitingLine(asked)
        async with asyncio.timeout(60):
            one = await asyncio.gather(*map(line.wait, (1, -2, 3)), return_exceptions=True)
            two = await asyncio.gather(*map(line.wait, (-1, 4)), return_exceptions=True)
            cancelled, other = line.wait(5), line.wait(6)
            cancelled.cancel()
            return [*one, *two, await other, await line.wait(7)]

    found = asyncio.run(some())
    assert [str(each) for each in found] == [
        *("10", "-2", "30", "the store is gone", "the store is gone", "60", "70")
    ]
    assert isinstance(found[1], ValueError) and isinstance(found[3], OSError)


def test_a_loop_in_a_thread_runs_until_it_is_closed():
    loop = LoopThread("a name")

    async def where() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    assert loop.submit(where()).result(60) == "a name"
    called = threading.Event()
    loop.call_soon(called.set)
    assert called.wait(60)
    loop.close()
    assert not loop._thread.is_alive() and loop._loop.is_closed()
