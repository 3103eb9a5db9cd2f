"""Tasks share the results of a step with a cache, by its arguments, while they live."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import BadInput, Holdfast, step, task
from holdfast.testing import Clock


def test_a_result_is_shared_by_arguments_and_expires():
    calls: list[Any] = []

    @step(cache=60)
    def cached_rate(currency: str, day: int = 1) -> tuple[str, int]:
        calls.append(currency)
        return currency, len(calls)

    @task
    def cached_pricing(currency: str) -> list[Any]:
        return [cached_rate(currency), cached_rate(currency, day=1), cached_rate(currency, 2)]

    clock = Clock()
    with Holdfast("memory://", clock=clock) as hf:
        first = hf.run(cached_pricing, "NOK", id="p-1")
        assert first == [("NOK", 1), ("NOK", 1), ("NOK", 2)]
        assert hf.run(cached_pricing, "NOK", id="p-2") == first and calls == ["NOK", "NOK"]
        assert hf.run(cached_pricing, "EUR", id="p-3")[0] == ("EUR", 3)
        clock.advance(61)
        assert hf.run(cached_pricing, "NOK", id="p-4")[0] == ("NOK", 5)
        assert hf.run(cached_pricing, "NOK", id="p-1") == first, "a replay sees what was seen"
    assert cached_rate("USD") == ("USD", 7) and cached_rate("USD") == ("USD", 8)


def test_async_steps_and_failures(tmp_path):
    calls: list[int] = []

    @step(cache=True)
    async def cached_later(n: int) -> int:
        calls.append(n)
        if len(calls) == 1:
            raise ValueError("not yet")
        return n + 1

    @task
    async def cached_asking(n: int) -> int:
        return await cached_later(n)

    async def main() -> list[int]:
        with Holdfast(tmp_path / "w") as hf:
            with pytest.raises(Exception, match="not yet"):
                await hf.arun(cached_asking, 1, id="a-1")
            return [await hf.arun(cached_asking, 1, id=f"a-{n}") for n in (2, 3)]

    assert asyncio.run(main()) == [2, 2] and calls == [1, 1]


@pytest.mark.parametrize("cache", [0, -1, False, "1h", float("nan")])
def test_a_lifetime_that_is_none_is_refused(cache):
    with pytest.raises(BadInput, match="cache="):
        step(cache=cache)(lambda: 1)
