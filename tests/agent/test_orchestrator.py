"""The orchestrator: whatever a model says or a tool does, the agent goes on, or says why not."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast import BadInput, Unanswered, step, tool
from holdfast.agent import (
    Refusal,
    Reply,
    Text,
    ToolCall,
    assistant,
    external,
)
from holdfast.log.messages import Message
from tests.agent.talking import (
    AsyncModel,
    Model,
    break_down,
    calls,
    conversation,
    done,
    fails,
    lines,
    make,
    ring,
    talk,
)

pytestmark = pytest.mark.holdfast("memory://")


@pytest.fixture(params=[Model, AsyncModel], ids=["sync", "async"])
def says(request):
    """Makes a model of what it says."""
    return lambda *said: request.param(said)


@pytest.fixture(autouse=True)
def _nothing_is_done():
    done.clear()


@tool(approve=True, in_doubt="retry")
def pay(amount: int) -> str:
    done.append(amount)
    return f"paid {amount}"


@step
def read_all(size: int) -> str:
    return "x" * size


@external(ttl_s=60)
def weather(city: str) -> dict[str, int]:
    done.append(city)
    return {"celsius": 11}


# What a model may get wrong


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("ring", '{"times": 3'), "not valid JSON"),
        (("ring", ""), "do not fit"),
        (("ring", "[3]"), "must be a JSON object"),
        (("ring", '"three"'), "must be a JSON object"),
        (("ring", "null"), "must be a JSON object"),
        (("ring", '{"times": "three"}'), "do not fit"),
        (("ring", '{"who": "ada"}'), "do not fit"),
        (("ring", '{"times": 3, "loud": true}'), "do not fit"),
        (("ring", '{"times": 3, "who": "\\ud800"}'), "the arguments of ring"),
        (("ring", '{"times": ' + "[" * 5000 + "}"), "the arguments of ring"),
        (("ring", '{"times": 1' + "0" * 5000 + "}"), "the arguments of ring"),
        (("wring", '{"times": 3}'), "there is no tool 'wring'; there are: ring"),
        (("", "{}"), "there is no tool 'nameless'"),
        (("w.ring", "{}"), "there is no tool 'w_ring'"),
        (("make_plan", '{"items": ["a"]}'), "there is no tool 'make_plan'"),
        (("ask_user", '{"q": "?"}'), "do not fit"),
    ],
)
def test_a_call_that_can_not_be_made_is_told_to_the_model_and_not_made(hf, says, asked, told):
    model = says(calls(asked), "I am sorry.")
    result = talk(hf, make(model, [ring]))
    assert (result.phase, result.answer, done) == ("done", "I am sorry.", [])
    (seen,) = model.requests[1].messages[-1].results
    assert told in seen.content and seen.is_error
    assert len(seen.content) < 1000


def test_the_right_calls_of_a_reply_are_made_beside_the_wrong_ones(hf, says):
    model = says(calls(("ring", '{"times": 1}'), ("nope", "{}"), ("ring", '{"times": 2}')), "Done.")
    assert talk(hf, make(model, [ring])).answer == "Done."
    assert sorted(done) == [(1, "nobody"), (2, "nobody")]
    results = [r for message in conversation(hf) for r in message.results]
    assert [r.is_error for r in results] == [False, True, False]


@pytest.mark.parametrize("ids", [("", ""), ("same", "same"), ("", "c1")])
def test_calls_without_an_id_of_their_own_get_one(hf, says, ids):
    both = calls(("ring", '{"times": 1}', ids[0]), ("ring", '{"times": 2}', ids[1]))
    model = says(both, both, "Done.")
    assert talk(hf, make(model, [ring])).answer == "Done."
    assert sorted(times for times, _ in done) == [1, 1, 2, 2]
    messages = conversation(hf)
    asked = [call.id for message in messages for call in message.calls]
    answered = [result.call_id for message in messages for result in message.results]
    assert asked == answered
    assert all(asked) and len(set(asked)) == 4, "some providers want them unique in all of it"


@pytest.mark.parametrize("garbage", [None, "text", {"role": "assistant"}, 7])
def test_a_model_that_returns_no_reply_fails_the_task(hf, garbage):
    asked = []
    why = fails(hf, make(lambda request: asked.append(request) or garbage))
    assert "a model returns a Reply" in why
    assert len(asked) == 1, "it is a mistake in code: it is not retried"


def test_a_model_that_speaks_for_the_user_fails_the_task(hf, says):
    assert "speaks as the assistant" in fails(hf, make(says(Message("user", "I am you."))))


@pytest.mark.parametrize("empty", ["", "  \n", Message("assistant", (Text(""),))])
def test_a_model_that_says_nothing_is_asked_again_and_then_given_up(hf, says, empty):
    model = says(empty, empty)
    assert "said nothing, 2 times" in fails(hf, make(model))
    assert "You said nothing" in model.requests[1].messages[-1].text
    assert lines(hf) == ["user: Go."]


def test_one_empty_reply_does_no_harm(hf, says):
    assert talk(hf, make(says("", "Here I am."))).answer == "Here I am."
    assert lines(hf) == ["user: Go.", "assistant: Here I am."]


def test_an_answer_that_is_cut_off_is_gone_on_with_and_joined(hf, says):
    cut = [Reply(assistant(text), stop="length") for text in ("Once upon ", "a time ")]
    model = says(*cut, "there was an end.")
    assert talk(hf, make(model)).answer == "Once upon a time there was an end."
    assert lines(hf)[1:] == ["assistant: Once upon a time there was an end."]
    assert model.requests[2].messages[-2].text == "Once upon a time "
    assert "cut off" in model.requests[2].messages[-1].text


def test_a_call_that_is_cut_off_is_told_as_that(hf, says):
    model = says(Reply(calls(("ring", '{"times": ')), stop="length"), "I see.")
    assert talk(hf, make(model, [ring])).answer == "I see."
    assert "cut off by its limit of length" in str(
        model.requests[1].messages[-1].results[0].content
    )


@pytest.mark.parametrize(
    "refusal",
    [
        Message("assistant", (Refusal("I won't."),)),
        assistant("I won't."),
        Message("assistant", (Refusal("I won't."), ToolCall("c1", "ring", "{}"))),
    ],
)
def test_a_refusal_fails_the_task_and_is_in_the_conversation(hf, says, refusal):
    assert "refused: I won't." in fails(hf, make(says(Reply(refusal, stop="refusal")), [ring]))
    assert lines(hf) == ["user: Go.", "assistant: I won't."]


def test_a_refusal_without_a_word_leaves_no_empty_message(hf, says):
    why = fails(hf, make(says(Reply(assistant(""), stop="refusal"))))
    assert "(without a word)" in why
    assert lines(hf) == ["user: Go."]


# What a tool may do


def test_a_tool_that_fails_is_told_to_the_model(hf, says):
    model = says(calls(("break_down", '{"reason": "rust"}')), "It is broken.")
    assert talk(hf, make(model, [break_down])).answer == "It is broken."
    (seen,) = model.requests[1].messages[-1].results
    assert seen.is_error and "rust" in seen.content
    assert "Traceback" not in seen.content


def test_a_read_of_the_outside_world_can_be_a_tool(hf, says):
    twice = calls(("weather", '{"city": "Oslo"}'), ("weather", '{"city": "Oslo"}'))
    assert talk(hf, make(says(twice, "11 degrees."), [weather])).answer == "11 degrees."
    assert done == ["Oslo"]
    assert lines(hf)[2] == 'tool: {"celsius":11}'


def test_a_result_of_5_mb_is_kept_whole_and_shown_in_part(hf, says):
    size = 5_000_000
    model = says(calls(("read_all", f'{{"size": {size}}}')), "That was long.")
    agent = make(model, [read_all], budget_tokens=2000)
    assert talk(hf, agent).answer == "That was long."
    kept = next(r for message in conversation(hf) for r in message.results)
    assert kept.content == "x" * size
    (shown,) = model.requests[1].messages[-1].results
    assert len(shown.content) < 10_000 and "are left out here" in shown.content
    state = hf.task("t1").checkpoint
    assert len(str(state)) < 20_000, "what an agent goes round with stays small"


@pytest.mark.parametrize("value", [{(1, 2): 3}, {1, 2}, {"a": float("nan")}, b"\xff", 10**30, None])
def test_whatever_a_tool_returns_can_be_told_to_the_model(hf, value):
    name = f"give_{abs(hash(repr(value)))}"

    @tool(in_doubt="retry", name=name)
    def give() -> object:
        return value

    model = Model([calls((name, "{}")), "Thanks."])
    assert talk(hf, make(model, [give])).answer == "Thanks."
    assert conversation(hf)[2].results[0].content


def test_a_tool_that_needs_a_yes_waits_for_it(hf, says):
    agent = make(says(calls(("pay", '{"amount": 5}')), "Paid."), [pay])
    with pytest.raises(Unanswered) as asked:
        talk(hf, agent)
    assert done == []
    hf.answer("t1", True, question=asked.value.id, by="a person")
    assert talk(hf, agent).answer == "Paid."
    assert done == [5]


def test_a_no_is_told_to_the_model(hf, says):
    agent = make(says(calls(("pay", '{"amount": 5}')), "Then not."), [pay])
    with pytest.raises(Unanswered) as asked:
        talk(hf, agent)
    hf.answer("t1", False, question=asked.value.id, by="a person")
    assert talk(hf, agent).answer == "Then not."
    assert done == []
    assert conversation(hf)[2].results[0].is_error


@step
def thread_of_a_tool() -> int:
    return threading.get_ident()


def test_a_sync_tool_of_an_async_agent_runs_off_the_loop(hf):
    agent = make(AsyncModel([calls(("thread_of_a_tool", "{}")), "Done."]), [thread_of_a_tool])

    async def main() -> int:
        await agent.arun(hf.session("s1", user="ada"), "Which?", id="t1")
        return threading.get_ident()

    loop = asyncio.run(main())
    (made,) = [out for out in hf.task("t1").outputs if out.name == "thread_of_a_tool"]
    assert made.output != loop


def test_tools_that_a_model_could_not_tell_apart_are_refused():
    @tool(name="ask_user", in_doubt="retry")
    def other() -> None: ...

    with pytest.raises(BadInput, match="ask_user"):
        make(Model([]), [other])
    make(Model([]), [other], ask_user=False)
    with pytest.raises(BadInput, match="two tools are named 'ring'"):
        make(Model([]), [ring, ring])
    with pytest.raises(BadInput, match="decorate it"):
        make(Model([]), [len])


# Questions to the user


def test_a_question_waits_for_the_user_and_the_task_goes_on_from_there(hf, says):
    model = says(calls(("ring", '{"times": 1}'), ("ask_user", '{"question": "Again?"}')), "Fine.")
    agent = make(model, [ring])
    with pytest.raises(Unanswered) as asked:
        talk(hf, agent)
    assert asked.value.question == "Again?"
    with pytest.raises(Unanswered):
        talk(hf, agent)
    hf.answer("t1", "No, thanks.", by="ada")
    assert talk(hf, agent).answer == "Fine."
    assert done == [(1, "nobody")], "what came before the question is not done again"
    assert len(model.requests) == 2
    assert lines(hf)[2:] == [
        "tool: rang 1 times for nobody",
        "tool: No, thanks.",
        "assistant: Fine.",
    ]
