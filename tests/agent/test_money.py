"""What a call costs is known, and a budget stops the call that would exceed it."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import BadInput, Holdfast, StepFailed, TaskFailed, step, task
from holdfast.agent import (
    Budget,
    BudgetExceeded,
    Metered,
    Orchestrator,
    Prices,
    Reply,
    Request,
    Usage,
    assistant,
    load_prices,
    user,
)
from holdfast.agent.adapters import ModelBusy, model_retry
from holdfast.agent.money import price_of
from tests.agent.spending import BUDGET, COST
from tests.agent.talking import AsyncModel, Model
from tests.flavors import BOUND_S, Crash
from tests.stores.postgres_server import postgres_server, postgres_url
from tests.thorough import THOROUGH

__all__ = ["postgres_server", "postgres_url"]

PRICES = {"m": Prices(input=0.0, output=10.0)}
TALK = Reply(assistant("Yes."), Usage(100, 100_000))  # costs 1.00
ASKED = Request((user("Is it?"),))


def test_the_shipped_prices_are_prices_and_versions_are_found_by_the_name():
    prices = load_prices()
    for model, each in prices.items():
        assert 0 < (each.cached or each.input) <= each.input < each.output, model
    assert price_of("claude-sonnet-4-5-20250929", prices) == prices["claude-sonnet-4-5"]
    assert price_of("gpt-4o-mini-2024-07-18", prices) == prices["gpt-4o-mini"]
    assert price_of("gpt-5-turbo-of-tomorrow", prices) is None


def test_a_file_of_prices_can_be_replaced_and_one_that_is_none_is_refused(tmp_path):
    file = tmp_path / "prices.json"
    file.write_text(
        '{"models": {"mine": {"input": 1, "output": 2}, "*": {"input": 5, "output": 6}}}'
    )
    prices = load_prices(file)
    assert Metered(Model([]), "mine", prices=prices).prices == Prices(input=1, output=2)
    assert Metered(Model([]), "other", prices=prices).prices == Prices(input=5, output=6)
    for text in (
        "{",
        '{"models": {"m": {"input": "much"}}}',
        '{"models": {"m": {"input": -1, "output": 1}}}',
    ):
        file.write_text(text)
        with pytest.raises(BadInput, match=r"prices.json"):
            load_prices(file)
    with pytest.raises(BadInput, match="can't be read"):
        load_prices(tmp_path / "nothing.json")


@pytest.mark.parametrize("name", ["nobody-1", ""])
def test_a_model_whose_prices_are_unknown_says_so(name):
    with pytest.raises(BadInput, match="no prices are known of the model"):
        Metered(Model([]), name)


@pytest.mark.parametrize(
    "given",
    [
        {"limit": 0},
        {"limit": True},
        {"limit": float("nan")},
        {"limit": 1, "per": "planet"},
        {"limit": 1, "every": "hour"},
        {"limit": 1, "name": "a/b"},
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(given):
    with pytest.raises(BadInput, match="Budget"):
        Budget(**given)


def metered(said: Any, *budgets: Budget, kind: type[Model] = Model) -> Metered:
    return Metered(kind(said), "m", budgets=budgets, prices=PRICES, expects_tokens=100_000)


def asking(model: Metered, kind: str) -> Any:
    """A task that asks a model, sync or async."""
    if kind == "async":

        @step(name=f"aask_{id(model)}", retry=model_retry)
        async def aask() -> Reply:
            made: Any = model(ASKED)
            reply: Reply = await made
            return reply

        @task(name=f"aasks_{id(model)}")
        async def aasks() -> float:
            return (await aask()).usage.cost

        return aasks

    @step(name=f"ask_{id(model)}", retry=model_retry)
    def ask() -> Reply:
        made: Any = model(ASKED)
        return made

    @task(name=f"asks_{id(model)}")
    def asks() -> float:
        return ask().usage.cost

    return asks


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_call_is_priced_counted_and_refused_before_it_exceeds_the_budget(hf, kind):
    budget = Budget(2.5, per="user")
    model = metered([TALK] * 9, budget, kind=AsyncModel if kind == "async" else Model)
    asks = asking(model, kind)
    for n in range(2):
        assert hf.run(asks, id=f"t-{n}", user="ada") == 1.0
    with pytest.raises(TaskFailed, match=r"BudgetExceeded.*user 'ada' is 2.5.*2 is spent"):
        hf.run(asks, id="t-3", user="ada")
    assert len(model.inner.said) == 7, "the call was not made"
    assert len(hf.task("t-3").calls[0].attempts) == 1, "and not tried again"
    assert hf.run(asks, id="t-4", user="bob") == 1.0
    assert (budget.spent(hf, "ada"), budget.spent(hf, "bob"), budget.spent(hf)) == (2, 1, 0)
    assert hf.stats(user="ada").spent.cost == 2.0
    # With a larger one the task goes on.
    model.budgets = (Budget(4, per="user"),)
    assert hf.retry("t-3") == 1.0
    assert budget.spent(hf, "ada") == 3


@pytest.mark.parametrize("per", ["task", "session", "user", "all"])
def test_a_budget_is_of_a_task_a_session_a_user_or_all(hf, per):
    budget = Budget(1.5, per=per)
    asks = asking(metered([TALK] * 9, budget), "sync")
    who = {"task": {}, "session": {"session": hf.session("s", user="ada").id, "user": "ada"}}
    hf.run(asks, id="t-1", **who.get(per, {"user": "ada"}))
    if per == "task":
        assert hf.run(asks, id="t-2") == 1.0
    else:
        with pytest.raises(TaskFailed, match="BudgetExceeded"):
            hf.run(asks, id="t-2", **who.get(per, {"user": "ada"}))
    of = {"task": "t-1", "session": "s", "user": "ada", "all": ""}[per]
    assert budget.spent(hf, of) == 1


def test_a_budget_of_a_day_begins_anew_the_next_day(tmp_path):
    now = [datetime(2026, 5, 31, 23, 0, tzinfo=UTC)]
    day, month = Budget(1.5, per="all", every="day"), Budget(9, per="all", every="month")
    with Holdfast(tmp_path / "w", sync=False, clock=lambda: now[0]) as hf:
        asks = asking(metered([TALK] * 9, day, month), "sync")
        hf.run(asks, id="t-1")
        with pytest.raises(TaskFailed, match=r"is 1\.5 every day"):
            hf.run(asks, id="t-2")
        assert (day.spent(hf), month.spent(hf)) == (1, 1), "what was taken is given back"
        now[0] += timedelta(hours=2)
        assert (day.spent(hf), month.spent(hf)) == (0, 0)
        assert hf.retry("t-2") == 1.0


def test_a_call_that_cost_more_than_expected_is_counted_and_stops_the_next(hf):
    budget = Budget(2.0, per="all")
    asks = asking(metered([Reply(assistant("Yes."), Usage(1, 300_000))], budget), "sync")
    assert hf.run(asks, id="t-1") == 3.0
    assert budget.spent(hf) == 3.0
    with pytest.raises(TaskFailed, match="3 is spent"):
        hf.run(asks, id="t-2")


def test_a_refused_call_costs_nothing_and_one_that_was_cut_off_counts_as_expected(hf):
    budget = Budget(9, per="all")
    asks = asking(
        metered([ModelBusy("429", status=429, retry_after_s=0.001), TALK], budget), "sync"
    )
    assert hf.run(asks, id="t-1") == 1.0
    assert budget.spent(hf) == 1.0
    dies = asking(metered([Crash(), TALK], budget), "sync")
    with pytest.raises(Crash):
        hf.run(dies, id="t-2")
    assert budget.spent(hf) == 2.0, "the provider may bill it"
    assert hf.run(dies, id="t-2") == 1.0
    assert budget.spent(hf) == 3.0


def test_an_agent_whose_budget_is_spent_fails_and_goes_on_when_it_is_raised(hf):
    model = metered([TALK], Budget(0.5))
    agent = Orchestrator("thrifty", model, plan=False)
    with pytest.raises(TaskFailed, match="the budget of task"):
        hf.run(agent.task, "Is it?", id="a")
    assert hf.task("a").status == "failed"
    model.budgets = (Budget(5),)
    assert hf.retry("a").answer == "Yes."
    assert hf.task("a").result["usage"]["cost"] == 1.0


def test_a_budget_needs_a_task_and_long_ids_have_budgets_of_their_own(hf):
    with pytest.raises(BadInput, match="inside of tasks"):
        metered([TALK], Budget(5))(ASKED)
    assert metered([TALK])(ASKED).usage.cost == 1.0
    asks = asking(metered([TALK] * 3, budget := Budget(1.5, per="user")), "sync")
    for who in ("u" * 254 + "1", "u" * 254 + "2"):
        hf.run(asks, user=who)
        assert budget.spent(hf, who) == 1


STORES = ["files", "sqlite", "postgres"] if THOROUGH else ["files"]


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("expects", [1500, 500] if THOROUGH else [500])
def test_a_budget_shared_by_tasks_in_processes_is_exceeded_by_no_more_than_calls_in_flight(
    request, tmp_path, kind, expects
):
    url = {"files": str(tmp_path / "w"), "sqlite": f"sqlite:///{tmp_path}/a.db"}.get(kind)
    url = url or request.getfixturevalue("postgres_url")
    Holdfast(url).close()
    ledger = tmp_path / "ledger.txt"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "tests.agent.spending", url, str(ledger), str(expects)]
    processes = [subprocess.Popen([*command, f"p{n}"], env=env) for n in range(4)]
    try:
        assert [each.wait(2 * BOUND_S) for each in processes] == [0] * 4
    finally:
        for each in processes:
            each.kill()
    spent = round(sum(map(float, ledger.read_text().split())), 9)
    with Holdfast(url) as hf:
        assert len(hf.tasks(status="completed")) == 20
        assert BUDGET.spent(hf) == spent, "every call is counted, and nothing is left in flight"
    # Each of the 20 may have one call in flight, which costs more than was expected of it.
    beyond = max(COST - expects * 20 / 1_000_000, 0) * 20
    assert 0.5 < spent <= round(BUDGET.limit + beyond, 9)


def test_what_a_step_may_catch(hf):
    asks = metered([TALK], Budget(0.5))

    @step(name="cautious_step")
    def cautious_step() -> Reply:
        made: Any = asks(ASKED)
        return made

    @task(name="cautious")
    def cautious() -> str:
        try:
            cautious_step()
        except StepFailed as error:
            return error.failure.type
        return ""

    assert hf.run(cautious) == BudgetExceeded.__name__
