"""`hf.stats`: where time, tokens, money and retries went, to the second."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from holdfast import BadInput, Holdfast, Retry, current, step, task
from holdfast.agent import Prices, Reply, Usage, assistant
from holdfast.core import events as e
from holdfast.core.events import AnyEvent, Failure
from holdfast.core.usage import Spent, Used, spent
from holdfast.views.measures import WAYS, Measuring, usage_in

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
FAILURE = Failure("ValueError", "no")
NULL = Raw(b"null")


def created() -> AnyEvent:
    return e.TaskCreated(format=1, id="t", task="t", args=NULL, args_hash="")


def claimed(epoch: int = 1) -> AnyEvent:
    return e.Claimed(format=1, epoch=epoch, owner=f"process {epoch}")


def began(path: str, name: str = "", attempt: int = 1) -> AnyEvent:
    return e.Started(path=path, name=name or f"step_{path}", attempt=attempt)


def done(path: str, result: bytes = b"null") -> AnyEvent:
    return e.Completed(path=path, result=Raw(result))


def failed(path: str, attempt: int = 1, again_s: float | None = 1.0) -> AnyEvent:
    retry_at = NOON + timedelta(seconds=again_s) if again_s is not None else None
    return e.AttemptFailed(path=path, attempt=attempt, failure=FAILURE, retry_at=retry_at)


def measured(*timed: tuple[float, AnyEvent]) -> Measuring:
    """The measures of events at so many seconds after noon."""

    def usage(result: Raw) -> Spent | None:
        used = usage_in(bytes(result))
        return spent(used, {}) if used is not None else None

    task = Measuring(usage)
    for number, (second, event) in enumerate(timed, 1):
        task.take(replace(event, seq=number, at=NOON + timedelta(seconds=second)))
    return task


def spans(task: Measuring) -> dict[str, float]:
    return {way: span for way, span in task.spans.items() if span}


def test_the_time_of_a_call_is_that_of_its_attempts_and_its_backoff_is_apart() -> None:
    task = measured(
        (0, created()),
        (2, claimed()),
        (3, began("1")),
        (7, failed("1")),
        (17, began("1", attempt=2)),
        (20, done("1")),
        (21, e.TaskCompleted(result=NULL)),
    )
    call = task.calls["1"]
    assert (call.worked_s, call.backoff_s, call.attempts, call.failures) == (7, 10, 2, 1)
    assert spans(task) == {"idle": 2, "between": 2, "working": 7, "backoff": 10}


def test_waiting_for_people_counts_as_that_whoever_holds_the_task() -> None:
    task = measured(
        (0, created()),
        (0, claimed()),
        (0, e.QuestionAsked(path="1", id="q", question="?", args_hash="", expects="bool")),
        (1, e.Parked(why="it asks")),
        (61, e.QuestionAnswered(path="1", answer=Raw(b"true"), by="ada")),
        (65, claimed(2)),
        (66, e.QuestionAsked(path="2#", call="2", id="a", question="?", args_hash="", expects="b")),
        (76, e.QuestionAnswered(path="2#", answer=Raw(b"true"), by="ada")),
        (76, began("2", "pay")),
        (77, done("2")),
        (77, e.TaskCompleted(result=NULL)),
    )
    assert spans(task) == {"people": 71, "idle": 4, "between": 1, "working": 1}
    assert task.calls["1"].duration_s == 61
    assert (task.calls["2"].waited_s, task.calls["2"].worked_s) == (10, 1)


def test_after_a_crash_nobody_drove_it_until_it_was_claimed_again() -> None:
    task = measured(
        (0, created()),
        (0, claimed()),
        (0, began("1")),
        (100, claimed(2)),
        (101, began("1", attempt=2)),
        (105, done("1")),
    )
    call = task.calls["1"]
    assert (call.interrupted, call.worked_s, call.attempts) == (1, 4, 2)
    assert spans(task) == {"idle": 100, "between": 1, "working": 4}


def test_sleeping_children_pauses_and_the_time_after_the_end() -> None:
    task = measured(
        (0, created()),
        (0, claimed()),
        (0, e.TimerSet(path="1", name="sleep", args=NULL, args_hash="", until=NOON)),
        (10, e.Woke(path="1")),
        (10, e.ChildStarted(path="2", id="c", name="child", args=NULL, args_hash="")),
        (15, e.ChildEnded(path="2", failure=FAILURE)),
        (15, e.PauseRequested(by="ada")),
        (20, e.TaskContinued(by="ada")),
        (20, claimed(2)),
        (20, e.TaskErrored(failure=FAILURE)),
        (1000, e.TaskRetried(by="ada")),
        (1001, claimed(3)),
        (1002, e.TaskCompleted(result=NULL)),
    )
    assert spans(task) == {"asleep": 10, "children": 5, "people": 5, "between": 1, "idle": 1}
    assert task.calls["2"].ended == "failed"


def test_what_resuming_saved_is_counted_at_each_claim_but_the_first() -> None:
    reply = msgspec.json.encode({"usage": {"input_tokens": 10, "output_tokens": 1}})
    task = measured(
        (0, created()),
        (0, claimed()),
        (0, began("1")),
        (4, done("1", reply)),
        (4, claimed(2)),
        (4, began("2")),
        (5, done("2")),
        (5, claimed(3)),
    )
    assert (task.saved.resumes, task.saved.calls, task.saved.time_s) == (2, 3, 9)
    assert (task.saved.spent.model_calls, task.saved.spent.input_tokens) == (2, 20)


def test_what_is_inside_a_call_counts_once() -> None:
    reply = msgspec.json.encode({"usage": {"input_tokens": 10, "output_tokens": 1}})
    task = measured(
        (0, created()),
        (0, claimed()),
        (0, began("1")),
        (1, began("1.1")),
        (4, done("1.1", reply)),
        (6, done("1", reply)),
        (6, claimed(2)),
    )
    assert (task.saved.time_s, task.saved.calls) == (6, 2)
    assert task.saved.spent.model_calls == 1 and task.calls["1"].spent is None
    assert task.spans["working"] == 6


def test_what_was_done_inside_an_attempt_that_was_cut_off_is_not_forgotten() -> None:
    task = measured(
        (0, claimed()),
        (0, began("1")),
        (0, began("1.1")),
        (5, done("1.1")),
        (9, claimed(2)),
        (9, began("1", attempt=2)),
        (10, done("1")),
        (10, claimed(3)),
    )
    assert task.saved.time_s == 5 + 5


_EVENTS = st.lists(
    st.sampled_from(
        [
            claimed(), began("1"), began("1.1"), done("1.1"), done("1"), failed("1"),
            failed("1.1", again_s=None), e.Failed(path="1"), e.Doubted(path="1", why=""),
            e.Settled(path="1", verdict="happened", by="ada", result=NULL),
            e.Settled(path="1", verdict="did_not_happen", by="ada"),
            e.Parked(why=""), e.PauseRequested(by="ada"), e.TaskContinued(by="ada"),
            e.QuestionAsked(path="2", id="q", question="?", args_hash="", expects="b"),
            e.AnswerRefused(path="2", why=""), e.QuestionExpired(path="2"),
            e.QuestionAnswered(path="2", answer=NULL, by="ada"),
        ]
    ),
    max_size=30,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(_EVENTS)
def test_every_second_of_a_task_is_in_one_place_whatever_its_log_says(events: list[Any]) -> None:
    task = measured(*enumerate([created(), *events]))
    assert sum(task.spans.values()) == len(events)
    assert set(task.spans) == set(WAYS) and min(task.spans.values()) >= 0
    assert all(c.worked_s >= 0 and c.backoff_s >= 0 for c in task.calls.values())


# Tokens and money.


@pytest.mark.parametrize(
    ("result", "found"),
    [
        ({"usage": {"input_tokens": 3, "output_tokens": 1}, "model": "m"}, Used("m", Usage(3, 1))),
        ({"usage": {"prompt_tokens": 3, "completion_tokens": 1}}, Used("", Usage(3, 1))),
        ({"$type": "R", "of": {"usage": {"$type": "U", "of": {"cost": 2.5}}}},
         Used("", Usage(cost=2.5))),
        ({"usage": "how to use it"}, None),
        ({"usage": {"input_tokens": True, "output_tokens": "9"}}, None),
        ({"text": '"usage"'}, None),
        (["usage"], None),
    ],
)  # fmt: skip
def test_usage_is_found_where_it_was_recorded_and_nowhere_else(result: Any, found: Any) -> None:
    assert usage_in(msgspec.json.encode(result)) == found


def test_a_recorded_cost_counts_before_a_price_and_without_either_it_is_unknown() -> None:
    prices = {"m": Prices(input=1, output=1)}
    assert spent(Used("m", Usage(1_000_000, 0, cost=7.0)), prices).cost == 7.0
    assert spent(Used("m", Usage(1_000_000, 0)), prices).cost == 1.0
    assert spent(Used("x", Usage(1_000_000, 0)), prices).unpriced == 1
    assert spent(Used("x", Usage(1_000_000, 0)), {"*": Prices(input=2, output=0)}).cost == 2.0


# Whole stores.


@step(retry=Retry(attempts=2, delay_s=0, jitter=0))
def stats_model(prompt: str) -> Reply:
    if current().attempt == 1:
        raise ConnectionError
    return Reply(assistant("x" * len(prompt)), Usage(1000, 10), model="m")


@task
def stats_agent(size: int) -> int:
    return len(stats_model("p" * size).message.text)


@step
def stats_look() -> dict[str, Any]:
    return {"usage": {"cost": 1}}


@task
def stats_parent() -> None:
    stats_look()


@task
def stats_other() -> None: ...


@pytest.mark.parametrize("store", ["memory", "files", "sqlite"])
def test_every_store_gives_the_same_numbers(store: str, tmp_path: Path) -> None:
    urls = {"memory": "memory://", "files": f"{tmp_path}/w", "sqlite": f"sqlite:///{tmp_path}/t.db"}
    told: list[tuple[int, int, str]] = []
    with Holdfast(urls[store]) as hf:
        hf.run(stats_agent, 10, id="a-1", user="ada")
        hf.run(stats_agent, 100_000, id="a-2", user="bob")  # its reply is in a blob
        hf.run(stats_other, id="o-1")
        found = hf.stats(prices={"m": (1, 0)}, progress=lambda *all: told.append(all))
        of_ada = hf.stats(user="ada")
        nothing = hf.stats(type="nobody")
    assert {(t.type, t.tasks, t.retries) for t in found.types} == {
        ("stats_agent", 2, 2),
        ("stats_other", 1, 0),
    }
    (call,) = found.calls
    assert (call.name, call.calls, call.completed, call.failures) == ("stats_model", 2, 2, 2)
    assert (found.spent.model_calls, found.spent.input_tokens) == (2, 2000)
    assert found.spent.cost == pytest.approx(0.002) and not found.spent.unpriced
    assert (of_ada.tasks, of_ada.spent.unpriced) == (1, 1)
    assert (nothing.tasks, nothing.types, nothing.saved.resumes) == (0, (), 0)
    assert [(done, of) for done, of, _ in told] == [(0, 3), (1, 3), (2, 3)]


def test_a_task_that_cannot_be_read_is_named_and_the_others_count(tmp_path: Path) -> None:
    with Holdfast(tmp_path) as hf:
        for number in range(2):
            hf.run(stats_agent, 10, id=f"a-{number}")
    log = tmp_path / "tasks/a-0/events.jsonl"
    log.write_bytes(log.read_bytes().replace(b"xxxxxxxxxx", b"yyyyyyyyyy", 1))
    with Holdfast(tmp_path) as hf:
        found = hf.stats()
    assert found.tasks == 1 and found.calls[0].calls == 1
    assert len(found.unreadable) == 1 and "a-0" in found.unreadable[0]


@pytest.mark.parametrize("prices", [{"m": 3}, {"m": (1, -1)}, {"m": ("a", "b")}, [("m", 1)]])
def test_prices_that_make_no_sense_are_refused(prices: Any) -> None:
    with Holdfast("memory://") as hf, pytest.raises(BadInput, match="prices"):
        hf.stats(prices=prices)


def test_an_unknown_filter_is_refused() -> None:
    with Holdfast("memory://") as hf, pytest.raises(BadInput, match="colour"):
        hf.stats(colour="red")  # type: ignore[call-arg]


# Forks and rewinds.


def test_what_a_fork_shares_counts_once_and_what_it_adopts_took_no_time() -> None:
    with Holdfast("memory://") as hf:
        hf.run(stats_agent, 10, id="a-1")
        fork = hf.fork("a-1", at=1, when="after", effects="live")
        hf.resume(fork.id)
        hf.run(stats_parent, id="p-1")
        other = hf.fork("p-1", at=1, effects="stub", stubs={"stats_look": {"usage": {"cost": 9}}})
        hf.resume(other.id)
        found = hf.stats()
    calls = {c.name: (c.calls, c.reused, c.attempts, len(c.kind)) for c in found.calls}
    assert calls == {"stats_model": (1, 0, 2, 4), "stats_look": (2, 1, 1, 4)}
    assert found.tasks == 4 and found.saved.resumes == 0
    assert (found.spent.input_tokens, found.spent.cost) == (1000, 1)


def test_what_was_rewound_was_done_and_is_saved_no_more() -> None:
    task = measured(
        (0, created()),
        (0, claimed()),
        (0, began("1")),
        (4, done("1")),
        (4, began("2")),
        (9, done("2")),
        (9, e.TaskCompleted(result=NULL)),
        (50, e.Rewound(to=4, number=1, epoch=2, by="ada")),
        (60, claimed(3)),
        (60, began("2")),
        (61, done("2")),
        (61, e.TaskCompleted(result=NULL)),
    )
    assert (task.saved.resumes, task.saved.calls, task.saved.time_s) == (1, 1, 4)
    assert [(c.name, c.worked_s, c.attempts) for c in task.left] == [("step_2", 5, 1)]
    assert (task.calls["2"].worked_s, task.calls["2"].attempts) == (1, 1)
    assert spans(task) == {"working": 10, "people": 10}
