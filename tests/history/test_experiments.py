"""An experiment runs a fork for each variant, and compares them with the task they are made of."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import BadInput, Holdfast, ask, step, task
from holdfast.history.comparison import Variant

pytestmark = pytest.mark.holdfast("memory://", "{tmp_path}/w")


@step
def tried_price(city: str) -> int:
    return {"Oslo": 120, "Bergen": 95}[city]


@step
def tried_pay(price: int) -> str:
    if price < 0:
        raise ValueError("nobody pays that")
    return f"paid {price}"


@task
def tried_trip(city: str) -> str:
    price = tried_price(city)
    if price > 1000 and not ask("So much?", bool):
        return "no"
    return tried_pay(price)


def test_each_variant_goes_its_way_and_says_how_it_ended(hf: Holdfast):
    hf.run(tried_trip, "Oslo", id="t")
    told: list[Variant] = []
    done = hf.experiment(
        "t",
        {
            "same": {},
            "cheap": {"results": {"1": 50}},
            "wrong": {"results": {"1": -1}},
            "dear": {"results": {"1": 5000}},
            "elsewhere": {"input": {"city": "Bergen"}, "at": 1, "when": "before"},
        },
        at=1,
        effects="live",
        because="of the budget",
        progress=told.append,
    )
    assert done.original == "t"
    assert [variant.name for variant in done.variants] == [
        "same", "cheap", "wrong", "dear", "elsewhere",
    ]  # fmt: skip
    by_name = {variant.name: variant for variant in done.variants}
    results = {name: variant.result for name, variant in by_name.items()}
    assert results == {
        "same": "paid 120", "cheap": "paid 50", "wrong": None, "dear": None, "elsewhere": "paid 95",
    }  # fmt: skip
    problems = {name: bool(variant.problem) for name, variant in by_name.items()}
    assert problems == {
        "same": False, "cheap": False, "wrong": True, "dear": True, "elsewhere": False,
    }  # fmt: skip
    assert "nobody pays that" in by_name["wrong"].problem
    assert sorted(told, key=lambda one: one.name) == sorted(done.variants, key=lambda one: one.name)
    whys = [hf.task(variant.id).state.fork.because for variant in done.variants]  # type: ignore[union-attr]
    assert whys[0] == "variant same: of the budget"
    made = done.comparison
    assert made.ids == ("t", *(variant.id for variant in done.variants))
    assert [each.first is None for each in made.alignments] == [True, False, False, False, False]
    assert not made.is_same
    text = repr(made)
    assert text.startswith(f"Comparison('t': {by_name['same'].id!r} is the same, ")
    assert f"{by_name['cheap'].id!r} diverges at step 1: " in repr(
        hf.compare("t", by_name["cheap"].id)
    )
    page = made._repr_html_()
    assert page.count("is the same") == 1 and page.count("diverges at step") >= 1
    assert all(id in page for id in made.ids)


def test_without_a_reason_the_name_of_the_variant_is_one(hf: Holdfast):
    hf.run(tried_trip, "Oslo", id="t")
    (only,) = hf.experiment("t", {"a": {}}, at=1, effects="live").variants
    assert hf.task(only.id).state.fork.because == "variant a"  # type: ignore[union-attr]
    (own,) = hf.experiment("t", {"a": {"because": "mine"}}, at=1, effects="live").variants
    assert hf.task(own.id).state.fork.because == "mine"  # type: ignore[union-attr]


def test_two_to_twenty_tasks_are_compared(hf: Holdfast):
    hf.run(tried_trip, "Oslo", id="t")
    ids = ["t", *(hf.fork("t", at=1, effects="live").id for _ in range(20))]
    assert len(hf.compare(*ids[:20]).figures) == 20
    assert hf.compare(*ids[:2]).ids == ("t", ids[1])
    for wrong, says in (
        (ids, "at most 20 tasks, not 21"),
        (["t"], "two tasks or more"),
        (["t"] * 2, "each once"),
    ):
        with pytest.raises(BadInput, match=says):
            hf.compare(*wrong)


@pytest.mark.parametrize("wrong", [{"city": 7}, {"city": None}])
def test_an_input_that_the_function_does_not_take_makes_no_fork(hf: Holdfast, wrong: Any):
    hf.run(tried_trip, "Oslo", id="t")
    with pytest.raises(BadInput, match=r"fork\('t', input=…\) does not fit|city"):
        hf.fork("t", at=1, when="before", effects="live", input=wrong)
    assert [each.id for each in hf.tasks()] == ["t"]


def test_a_result_comes_after_its_step_and_not_before(hf: Holdfast):
    hf.run(tried_trip, "Oslo", id="t")
    changed: dict[str, Any] = {"at": 1, "effects": "live", "results": {"1": 50}}
    with pytest.raises(BadInput, match="step 1 has no result yet before it"):
        hf.fork("t", when="before", **changed)
    for when in (None, "after"):
        fork = hf.fork("t", when=when, **changed)
        assert hf.resume(fork.id) == "paid 50"


def test_a_snapshot_knows_whose_it_is_and_of_when(hf: Holdfast):
    hf.run(tried_trip, "Oslo", id="t")
    view = hf.task("t")
    now, then = hf.snapshot("t"), hf.snapshot("t", 1, "before")
    assert (now.id, now.status, now.at) == ("t", "completed", view.state.updated_at)
    assert (then.id, then.status) == ("t", "in_progress") and then.at < now.at
