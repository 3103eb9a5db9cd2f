"""Your own loop with our parts: schemas, calls, a turn, and streams as tools; sync and async."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from holdfast import HoldfastError, step, task, tool
from holdfast.agent import (
    ModelStep,
    Reply,
    ToolCall,
    Usage,
    assistant,
    context,
    make_calls,
    results_of,
    session,
    tool_infos,
    turn,
    user,
)
from tests.agent.talking import QUICK, AsyncModel, Model, break_down, calls, done, lines, ring
from tests.flavors import Crash

pytestmark = pytest.mark.holdfast("memory://")


@pytest.fixture(autouse=True)
def _nothing_is_done():
    done.clear()


def test_a_loop_of_turns_is_an_agent(hf):
    model = Model([calls(("ring", '{"times": 2}'), ("break_down", '{"reason": "no"}')), "Rang."])
    asks = ModelStep("own_loop", model, QUICK)

    @task(name="own_loop")
    def own_loop(goal: str) -> str:
        session().say(goal)
        while (now := turn(asks, [ring, break_down], budget_tokens=2000, system="Ring.")).records:
            assert now.records[1].error
        return now.text

    assert hf.session("s1").run(own_loop, "Go.", id="t1") == "Rang."
    assert done == [(2, "nobody")]
    assert lines(hf)[0] == "user: Go." and lines(hf)[2] == "tool: rang 2 times for nobody"
    assert "ValueError: no" in lines(hf)[3]
    assert [m.text for m in model.requests[0].messages] == ["Ring.", "Go."]
    assert [info.name for info in model.requests[0].tools] == ["ring", "break_down"]


def test_it_is_awaited_in_an_async_task(hf):
    asks = ModelStep("own_aloop", AsyncModel([calls(("ring", '{"times": 1}')), "Rang."]), QUICK)

    @task(name="own_aloop")
    async def own_aloop(goal: str) -> str:
        await session().say(goal)
        while (now := await turn(asks, [ring], budget_tokens=2000)).records:
            pass
        return now.text

    assert hf.session("s1").run(own_aloop, "Go.", id="t1") == "Rang."


def test_a_crash_between_the_parts_of_a_turn_repeats_none_of_them(hf):
    model = Model([Reply(calls(("ring", '{"times": 1}')), Usage(5, 1)), "Rang."])
    asks = ModelStep("own_crash", model, QUICK)
    crashes = [True]

    @step(name="own_crash_look")
    def look_around() -> None:
        if crashes:
            crashes.clear()
            raise Crash

    @task(name="own_crash")
    def own_crash(goal: str) -> str:
        session().say(goal)
        first = turn(asks, [ring], budget_tokens=2000)
        assert first.usage == Usage(5, 1)
        look_around()
        return turn(asks, [ring], budget_tokens=2000).text

    chat = hf.session("s1")
    with pytest.raises(Crash):
        chat.run(own_crash, "Go.", id="t1")
    assert chat.run(own_crash, "Go.", id="t1") == "Rang."
    assert len(model.requests) == 2 and done == [(1, "nobody")] and len(lines(hf)) == 4


def test_calls_can_be_made_without_a_turn(hf):
    asked = [ToolCall("a", "ring", '{"times": 3}'), ToolCall("b", "sing", "{}")]

    @task(name="own_calls")
    def own_calls() -> list[bool]:
        chat = session()
        chat.say(user("Ring."))
        made = make_calls(asked, [ring])
        chat.say(assistant("", asked), *results_of(made))
        return [each.error is None for each in made]

    assert hf.session("s1").run(own_calls, id="t1") == [True, False]
    assert lines(hf)[2] == "tool: rang 3 times for nobody"


def test_a_nudge_is_seen_by_the_model_and_is_in_no_conversation(hf):
    model = Model(["Yes."])
    asks = ModelStep("own_nudge", model, QUICK)

    @task(name="own_nudge")
    def own_nudge() -> str:
        seen = context(session(), budget_tokens=500)
        return asks.ask(seen, [ring], [user("Well?")]).message.text

    assert hf.session("s1").run(own_nudge, id="t1") == "Yes."
    assert model.requests[0].messages[-1].text == "Well?"
    assert lines(hf) == []


def test_a_refusal_makes_no_calls(hf):
    said = Reply(calls(("ring", '{"times": 1}'), text="I won't."), stop="refusal")
    asks = ModelStep("own_refusal", Model([said]), QUICK)

    @task(name="own_refusal")
    def own_refusal() -> int:
        session().say("Go.")
        return len(turn(asks, [ring], budget_tokens=500).records)

    assert hf.session("s1").run(own_refusal, id="t1") == 0
    assert done == [] and lines(hf)[-1] == "assistant: I won't."


def test_a_tool_that_streams_is_told_whole(hf):
    @step(name="streams_words")
    def streams_words(n: int) -> Iterator[str]:
        yield from (f"word {i} " for i in range(n))

    @step(name="streams_numbers")
    async def streams_numbers(n: int) -> AsyncIterator[int]:
        for i in range(n):
            yield i

    words = [ToolCall("a", "streams_words", '{"n": 2}')]
    both = [*words, ToolCall("b", "streams_numbers", '{"n": 2}')]

    @task(name="own_streams")
    def own_streams() -> list[str | None]:
        return [each.result for each in make_calls(words, [streams_words])]

    @task(name="own_astreams")
    async def own_astreams() -> list[str | None]:
        made = await make_calls(both, [streams_words, streams_numbers])
        return [each.result for each in made]

    assert hf.run(own_streams) == ["word 0 word 1 "]
    assert hf.run(own_astreams) == ["word 0 word 1 ", "[0,1]"]


def test_the_parts_are_for_tasks():
    asks = ModelStep("own_outside", Model([]), QUICK)
    for part in (lambda: turn(asks, budget_tokens=10), lambda: make_calls([], [])):
        with pytest.raises(HoldfastError, match="outside a task"):
            part()


def test_schemas_of_tools_are_for_anybody():
    @tool(in_doubt="retry", name="own_described")
    def described(city: str, nights: int = 1) -> str:
        """Book a room.

        Args:
            city: where
        """
        return city

    (info,) = tool_infos([described])
    assert (info.name, info.description, info.parameters["required"]) == (
        "own_described", "Book a room.", ["city"],
    )  # fmt: skip
