"""The calls of one reply run side by side, and come back in the order in which they were asked."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections import Counter

import pytest

from holdfast import Holdfast, InDoubt, Unanswered, tool
from tests.agent.talking import AsyncModel, Model, calls, conversation, make, talk
from tests.flavors import BOUND_S, Crash

pytestmark = pytest.mark.holdfast("memory://")

_numbers = itertools.count(1)


class Bells:
    """Tools that wait for each other, count, and crash where they are told to."""

    def __init__(self, together: int = 1, *, is_async: bool = False, **options):
        self.rung: Counter[str] = Counter()
        self.order: list[str] = []
        self.meeting = threading.Barrier(together)
        self.crash_at = ""
        self.busy = self.most = 0
        self.lock = threading.Lock()
        self.name = f"bell_{next(_numbers)}"
        ameeting = asyncio.Barrier(together)

        def ring(who: str) -> str:
            with self.lock:
                self.busy += 1
                self.most = max(self.most, self.busy)
            self.rung[who] += 1
            self.meeting.wait(BOUND_S)
            if who == self.crash_at:
                raise Crash
            with self.lock:
                self.busy -= 1
                self.order.append(who)
            return f"rang for {who}"

        async def aring(who: str) -> str:
            async with asyncio.timeout(BOUND_S):
                await ameeting.wait()
            return ring(who)

        self.tool = tool(name=self.name, **{"in_doubt": "retry", **options})(
            aring if is_async else ring
        )

    def asks(self, *who: str):
        return calls(*((self.name, f'{{"who": "{each}"}}') for each in who))


def told(hf: Holdfast) -> list[str]:
    return [str(result.content) for message in conversation(hf) for result in message.results]


@pytest.mark.parametrize(
    ("model", "is_async"), [(Model, False), (AsyncModel, False), (AsyncModel, True)],
    ids=["sync", "sync tools of an async agent", "async"],
)  # fmt: skip
def test_four_calls_of_a_reply_are_under_way_at_once(hf, model, is_async):
    # Each waits until all four are there: one after the other they would wait for ever.
    bells = Bells(together=4, is_async=is_async)
    if is_async:
        bells.meeting = threading.Barrier(1)
    agent = make(model([bells.asks(*"abcd"), "Done."]), [bells.tool])
    assert talk(hf, agent).answer == "Done."
    assert told(hf) == [f"rang for {each}" for each in "abcd"]


def test_results_stand_in_the_order_of_the_calls_whichever_ends_first(hf):
    second_has_ended = threading.Event()

    @tool(in_doubt="retry", name="slow_one")
    def slow() -> str:
        assert second_has_ended.wait(BOUND_S)
        return "slow"

    @tool(in_doubt="retry", name="quick_one")
    def quick() -> str:
        second_has_ended.set()
        return "quick"

    agent = make(Model([calls(("slow_one", "{}"), ("quick_one", "{}")), "Done."]), [slow, quick])
    talk(hf, agent)
    assert told(hf) == ["slow", "quick"]
    messages = conversation(hf)
    assert [call.id for call in messages[1].calls] == ["c0", "c1"]
    assert [m.results[0].call_id for m in messages[2:4]] == ["c0", "c1"]


@pytest.mark.parametrize("model", [Model, AsyncModel])
def test_an_agent_with_parallel_false_makes_one_call_after_the_other(hf, model):
    bells = Bells()
    agent = make(model([bells.asks(*"abcd"), "Done."]), [bells.tool], parallel=False)
    talk(hf, agent)
    assert (bells.order, bells.most) == ([*"abcd"], 1)


@pytest.mark.parametrize("model", [Model, AsyncModel])
def test_a_tool_with_parallel_false_runs_alone_after_those_before_it(hf, model):
    pair, alone = Bells(together=2), Bells(parallel=False)
    seen = []
    pair_ring, alone_ring = pair.asks("a", "b"), alone.asks("x")
    asked = calls(
        *((c.name, c.arguments) for m in (pair_ring, alone_ring, pair_ring) for c in m.calls)
    )
    before = alone.meeting.wait
    alone.meeting.wait = lambda s: (seen.append((pair.busy, len(pair.order))), before(s))[1]
    talk(hf, make(model([asked, "Done."]), [pair.tool, alone.tool]))
    assert seen == [(0, 2)], "both before it have ended, and neither after it has begun"
    assert sorted(pair.order) == ["a", "a", "b", "b"]


@pytest.mark.parametrize("model", [Model, AsyncModel])
def test_calls_that_wait_for_a_person_do_not_stop_the_others(hf, model):
    bells, paid = Bells(), Bells(approve=True)
    asked = calls(
        (paid.name, '{"who": "first"}'), (bells.name, '{"who": "a"}'),
        ("ask_user", '{"question": "Which?"}'), (paid.name, '{"who": "second"}'),
        (bells.name, '{"who": "b"}'),
    )  # fmt: skip
    agent = make(model([asked, "Done."]), [bells.tool, paid.tool])
    with pytest.raises(Unanswered):
        talk(hf, agent)
    assert bells.rung == {"a": 1, "b": 1} and not paid.rung
    questions = hf.task("t1").questions
    assert len(questions) == 3, "all of them can be answered, in any order"
    for question in reversed(questions):
        hf.answer("t1", True if question.approves else "this", question=question.path)
    assert talk(hf, agent).answer == "Done."
    assert bells.rung == {"a": 1, "b": 1} and paid.rung == {"first": 1, "second": 1}
    assert told(hf) == ["rang for first", "rang for a", "this", "rang for second", "rang for b"]


@pytest.mark.parametrize("model", [Model, AsyncModel])
def test_a_call_in_doubt_does_not_stop_the_others(hf, model):
    bells, doubtful = Bells(), Bells(in_doubt="ask")
    asked = calls((doubtful.name, '{"who": "x"}'), (bells.name, '{"who": "a"}'))
    agent = make(model([asked, "Done."]), [bells.tool, doubtful.tool])
    doubtful.crash_at = "x"
    with pytest.raises(Crash):
        talk(hf, agent)
    doubtful.crash_at = ""
    with pytest.raises(InDoubt) as doubt:
        talk(hf, agent)
    assert bells.rung["a"] == 1 and doubtful.rung["x"] == 1
    hf.resolve("t1", doubt.value.path, happened=True, result="it did ring")
    assert talk(hf, agent).answer == "Done."
    assert told(hf) == ["it did ring", "rang for a"]
    assert bells.rung["a"] == 1 and doubtful.rung["x"] == 1


@pytest.mark.parametrize("model", [Model, AsyncModel])
def test_the_calls_that_ended_before_a_crash_are_not_made_again(hf, model):
    bells = Bells()
    agent = make(model([bells.asks(*"abcd"), "Done."]), [bells.tool])
    bells.crash_at = "c"
    with pytest.raises(Crash):
        talk(hf, agent)
    bells.crash_at = ""
    assert talk(hf, agent).answer == "Done."
    assert bells.rung == {"a": 1, "b": 1, "c": 2, "d": 1}, "c was in doubt, and says retry"


@pytest.mark.parametrize("first", [True, False])
def test_a_turn_goes_on_when_the_agent_is_told_otherwise_meanwhile(hf, first):
    bells = Bells()
    agent = make(Model([bells.asks(*"abcd"), "Done."]), [bells.tool], parallel=first)
    bells.crash_at = "b"
    with pytest.raises(Crash):
        talk(hf, agent)
    bells.crash_at, agent.parallel = "", not first
    assert talk(hf, agent).answer == "Done."
    assert bells.rung["a"] == 1 and set(bells.rung) == set("abcd")


def test_a_turn_that_an_older_version_began_goes_on_one_call_after_the_other(hf, monkeypatch):
    bells = Bells()
    agent = make(Model([bells.asks(*"abc"), "Done."]), [bells.tool])
    bells.crash_at = "b"
    with monkeypatch.context() as older:
        older.setattr(sys.modules["holdfast.agent.turn"], "_were_made_one_by_one", lambda: True)
        with pytest.raises(Crash):
            talk(hf, agent)
    bells.crash_at = ""
    assert talk(hf, agent).answer == "Done."
    assert bells.rung == {"a": 1, "b": 2, "c": 1} and bells.order == ["a", "b", "c"]
