"""The figures of a task come from its log alone: what it came to, took and cost."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Holdfast, Retry, ask, current, gather, now, step, task
from holdfast.agent import Reply, Usage, assistant
from holdfast.core.usage import Spent, used_in
from holdfast.errors import TaskFailed, TaskWaiting, Unanswered
from holdfast.history.comparison import Figures, figures, joined, seconds, without
from holdfast.testing import Clock
from holdfast.workspace import files
from tests.agent.talking import Model, calls, make, ring, talk

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


clock = Clock(NOON)


@pytest.fixture
def hf() -> Iterator[Holdfast]:
    clock.now = NOON
    with Holdfast("memory://", clock=clock) as opened:
        yield opened


def seen(hf: Holdfast, id: str) -> Figures:
    view = hf.task(id)
    found = figures(view.state, view.value)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Figures) == found
    return found


@step(retry=Retry(attempts=3, delay_s=0, jitter=0))
def sides_flaky(fails: int) -> int:
    clock.advance(2)
    sides_tries.append(fails)
    if len(sides_tries) <= fails:
        raise ValueError("not yet")
    return fails


sides_tries: list[int] = []


@step
def sides_asking() -> str:
    clock.advance(3)
    return ask("Which room?", str)


@task
def sides_trip(fails: int) -> str:
    clock.advance(1)
    current().plan(["look", "book"])
    sides_flaky(fails)
    files.write("report.md", "# Rooms\n")
    now()
    return sides_asking()


def test_a_task_in_figures(hf):
    sides_tries.clear()
    with pytest.raises(Unanswered):
        hf.run(sides_trip, 2, id="trip")
    clock.advance(60)
    question = hf.task("trip").questions[0]
    hf.answer("trip", "the attic", question=question.key)
    assert hf.resume("trip") == "the attic"
    found = seen(hf, "trip")
    assert (found.status, found.result, found.type) == ("completed", "the attic", "sides_trip")
    assert (found.failures, found.retries) == (2, 2)
    assert found.calls["sides_flaky"] == 1
    assert found.calls["now"] == 1
    assert [item.text for item in found.plan] == ["look", "book"]
    assert found.files == {"report.md": hashlib.sha256(b"# Rooms\n").hexdigest()}
    assert found.waiting_s == 60
    assert found.duration_s == (1 + 3 * 2 + 3) + 60 + (1 + 3), "its body ran again"
    assert found.working_s == 3 * 2 + 3, "when the task was released, nobody was at work"


def test_a_fork_is_charged_no_time_of_the_past_that_it_shares(hf):
    sides_tries.clear()
    with pytest.raises(Unanswered):
        hf.run(sides_trip, 2, id="trip")
    clock.advance(60)
    hf.fork("trip", at="2", when="before", effects="reuse", new_id="fork")
    with pytest.raises(Unanswered):
        hf.resume("fork")
    clock.advance(5)
    [question] = hf.task("fork").questions
    hf.answer("fork", "the attic", question=question.key)
    assert hf.resume("fork") == "the attic"
    found = seen(hf, "fork")
    assert (found.waiting_s, found.working_s) == (5, seen(hf, "trip").working_s - 6)
    assert (found.failures, found.retries) == (2, 2), "these are in its past"


@task
def sides_lost() -> None:
    sides_flaky(9)


def test_a_task_that_failed_says_why(hf):
    sides_tries.clear()
    with pytest.raises(Exception, match="not yet"):
        hf.run(sides_lost, id="lost")
    found = seen(hf, "lost")
    assert (found.status, found.failures, found.retries) == ("failed", 3, 2)
    assert "not yet" in found.failure


def test_a_task_that_nobody_began_has_no_figures_but_its_status(hf):
    hf.start(sides_lost, id="new")
    assert seen(hf, "new") == Figures("new", "sides_lost", "pending")


def test_tokens_and_cost_are_those_that_the_models_told_of(hf):
    asked = Reply(calls((ring.__name__, '{"times": 3}')), Usage(100, 20, 10, cost=0.5))
    agent = make(Model([asked, Reply(assistant("Rang."), Usage(150, 5, cost=0.25))]), [ring])
    talk(hf, agent, id="agent")
    assert seen(hf, "agent").spent == Spent(2, 250, 25, 10, 0.75)


@step
def sides_model(n: int) -> dict[str, object]:
    return {"text": "x", "usage": {"prompt_tokens": n, "completion_tokens": 1}}


@step
def sides_wrapped(n: int) -> dict[str, object]:
    return sides_model(n)


@task
def sides_two_models() -> None:
    gather(lambda: sides_wrapped(10), lambda: sides_model(5))


def test_what_a_step_returns_of_a_model_inside_it_is_not_counted_twice(hf):
    hf.run(sides_two_models, id="models")
    assert seen(hf, "models").spent == Spent(2, 15, 2, unpriced=2)


@pytest.mark.parametrize(
    "output",
    [
        None,
        [],
        "usage",
        {"usage": None},
        {"usage": {}},
        {"usage": {"input_tokens": True, "output_tokens": "7"}},
        {"usage": {"input_tokens": -5, "cost": float("nan")}},
    ],
)
def test_what_tells_of_no_tokens_costs_none(output):
    assert used_in(output) is None


minutes = st.integers(0, 30)
spans = st.lists(st.tuples(minutes, minutes), max_size=6)


@given(spans, spans)
def test_spans_are_as_long_as_the_minutes_in_them(some, others):
    def in_(pairs: list[tuple[int, int]]) -> set[int]:
        return {minute for begin, end in pairs for minute in range(begin, end)}

    def times(pairs: list[tuple[int, int]]) -> list[tuple[datetime, datetime]]:
        return [(NOON + timedelta(minutes=a), NOON + timedelta(minutes=b)) for a, b in pairs]

    assert seconds(times(some)) == 60 * len(in_(some))
    left = without(times(some), times(others))
    assert seconds(left) == 60 * len(in_(some) - in_(others))
    assert left == joined(left)


# What stats, figures and queries tell is the same


CALLED: list[str] = []


@step
def sides_own_words(n: int) -> dict[str, object]:
    CALLED.append("own")
    return {"model": "m", "usage": {"input_tokens": 10, "cache_read_input_tokens": 90}}


@step
def sides_reply(n: int) -> Reply:
    return Reply(assistant("x" * n), Usage(100, 20, cost=0.5), model="m")


@step
def sides_silent(n: int) -> Reply:
    return Reply(assistant("x"), model="m")


@step(retry=Retry(attempts=2, delay_s=0))
def sides_thrice(n: int) -> int:
    CALLED.append("tried")
    if CALLED.count("tried") < 4:
        raise ValueError("not yet")
    return n


@step
def sides_asks(n: int) -> str:
    return ask("And now?")  # begun again when it is answered, which is no retry


@task
def sides_all(n: int) -> None:
    sides_own_words(n)
    sides_reply(100_000)
    sides_silent(n)
    sides_asks(n)
    sides_thrice(n)


def test_stats_figures_and_queries_tell_the_same(hf):
    CALLED.clear()
    with suppress(TaskWaiting):
        hf.run(sides_all, 1, id="all")
    hf.answer("all", "on")
    with suppress(TaskFailed):
        hf.resume("all")
    hf.retry("all")
    found, stats = seen(hf, "all"), hf.stats()
    assert found.spent == stats.spent == Spent(3, 200, 20, 90, 0.5, unpriced=2)
    query = "select count(*), sum(input_tokens), sum(output_tokens), sum(cached_tokens), sum(cost)"
    assert hf.sql(f"{query} from model_calls").rows == ((3, 200, 20, 90, 0.5),)
    (retries,) = (kind.retries for kind in stats.types)
    assert retries == found.retries == 3
