"""Agents that call agents, as child tasks, and agents that hand off to others in one session."""

from __future__ import annotations

import pydantic
import pytest

from holdfast import BadInput, Unanswered
from holdfast.agent import Limits, Reply, Usage
from tests.agent.talking import (
    AsyncModel,
    Model,
    calls,
    conversation,
    done,
    fails,
    lines,
    make,
    ring,
    talk,
)
from tests.flavors import Crash

pytestmark = pytest.mark.holdfast("memory://")


@pytest.fixture(autouse=True)
def _nothing_is_done():
    done.clear()


@pytest.fixture(
    params=[(Model, Model), (AsyncModel, AsyncModel), (AsyncModel, Model), (Model, AsyncModel)],
    ids=["sync", "async", "async calls sync", "sync calls async"],
)
def two(request):
    """Makes two models of what they say."""
    return lambda outer, inner: (request.param[0](outer), request.param[1](inner))


def helper_of(model, **options):
    return make(model, [ring], about="Rings bells.", **options)


def test_an_agent_as_a_tool_is_a_child_task_with_a_conversation_of_its_own(hf, two):
    outer, inner = two([], [calls(("ring", '{"times": 2}')), "I rang."])
    helper = helper_of(inner)
    outer.said = [calls((helper.name, '{"request": "Ring twice."}')), "It was rung."]
    agent = make(outer, [helper.as_tool()])
    assert talk(hf, agent).answer == "It was rung."
    (child,) = hf.task("t1").children
    assert hf.task(child.child).status == "completed"
    assert done == [(2, "nobody")]
    assert [line.split(" ")[0] for line in lines(hf)] == [
        "user:",
        "assistant:",
        "tool:",
        "assistant:",
    ]
    assert lines(hf)[2] == "tool: I rang."
    said = [message.text for message in hf.session(child.child).messages()]
    assert said[0] == "Ring twice." and said[-1] == "I rang."
    assert inner.requests[0].messages[-1].text == "Ring twice."
    (info,) = [each for each in outer.requests[0].tools if each.name == helper.name]
    assert info.description == "Rings bells."


def test_what_it_took_counts_for_the_one_that_called_it(hf, two):
    outer, inner = two([], [Reply(calls(text="I rang."), Usage(100, 10, cost=0.5))])
    helper = helper_of(inner)
    outer.said = [
        Reply(calls((helper.name, '{"request": "Ring."}')), Usage(10, 1)),
        Reply(calls(text="Rung."), Usage(10, 1)),
    ]
    assert talk(hf, make(outer, [helper.as_tool()])).usage == Usage(120, 12, cost=0.5)


def test_a_limit_counts_what_the_others_took(hf):
    helper = helper_of(Model([Reply(calls(text="I rang."), Usage(1000, 10))]))
    outer = Model([calls((helper.name, '{"request": "Ring."}')), "Rung."])
    why = fails(hf, make(outer, [helper.as_tool()], limits=Limits(tokens=500)))
    assert "the limit of 500 tokens (1,010 were used)" in why


def test_several_agents_run_side_by_side(hf, two):
    outer, inner = two([], ["a", "b"])
    helper = helper_of(inner)
    outer.said = [
        calls((helper.name, '{"request": "One."}'), (helper.name, '{"request": "Two."}')), "Both.",
    ]  # fmt: skip
    assert talk(hf, make(outer, [helper.as_tool()])).answer == "Both."
    assert len(hf.task("t1").children) == 2
    assert {line for line in lines(hf) if line.startswith("tool")} == {"tool: a", "tool: b"}


def test_an_agent_that_fails_is_told_to_the_one_that_called_it(hf, two):
    outer, inner = two([], [])
    helper = helper_of(inner)
    outer.said = [calls((helper.name, '{"request": "Ring."}')), "It could not."]
    inner.said = [ValueError("no"), ValueError("no"), ValueError("no")]
    assert talk(hf, make(outer, [helper.as_tool()])).answer == "It could not."
    (result,) = [r for m in conversation(hf) for r in m.results]
    assert result.is_error and "the model can't be called" in result.content


@pytest.mark.parametrize("arguments", ["{}", '{"request": ""}', '{"request": 7}', '{"what": "x"}'])
def test_a_request_that_makes_no_sense_starts_nobody(hf, arguments):
    helper = helper_of(Model([]))
    outer = Model([calls((helper.name, arguments)), "Sorry."])
    talk(hf, make(outer, [helper.as_tool()]))
    assert hf.task("t1").children == ()
    assert "do not fit" in lines(hf)[2]


def test_a_question_of_the_called_agent_reaches_the_person(hf):
    helper = helper_of(Model([calls(("ask_user", '{"question": "How often?"}')), "Twice."]))
    outer = Model([calls((helper.name, '{"request": "Ring."}')), "Rung."])
    agent = make(outer, [helper.as_tool()])
    with pytest.raises(Unanswered) as asked:
        talk(hf, agent)
    hf.answer(asked.value.task_id, "2", question=asked.value.id)
    assert talk(hf, agent).answer == "Rung."


# Handing off


def test_an_agent_hands_off_to_another_in_the_same_session_and_task(hf, two):
    outer, inner = two([], [calls(("ring", '{"times": 1}')), "I rang."])
    ringer = helper_of(inner, system="You ring.")
    outer.said = [calls((f"hand_off_to_{ringer.name}", '{"reason": "bells"}'))]
    agent = make(outer, system="You sort.", hands_off_to=[ringer])
    result = talk(hf, agent)
    assert (result.answer, result.agent) == ("I rang.", ringer.name)
    assert done == [(1, "nobody")]
    assert hf.task("t1").children == ()
    assert lines(hf)[2] == f"tool: {ringer.name} goes on"
    seen = inner.requests[0]
    assert "You ring." in seen.messages[0].text and "You sort." not in seen.messages[0].text
    assert any(message.text == "Go." for message in seen.messages), "it sees what was said before"
    (info,) = [t for t in outer.requests[0].tools if t.name.startswith("hand_off")]
    assert "Rings bells." in info.description


def test_it_may_be_handed_back(hf):
    first, second = Model([]), Model([])
    b = helper_of(second)
    a = make(first, hands_off_to=[b])
    b.may_hand_off_to(a)
    first.said = [calls((f"hand_off_to_{b.name}", "{}")), "So it is rung."]
    second.said = [calls((f"hand_off_to_{a.name}", "{}"))]
    result = talk(hf, a)
    assert (result.answer, result.agent) == ("So it is rung.", "")


def test_a_crash_after_it_was_handed_off_goes_on_with_the_other(hf):
    first, second = Model([]), Model([Crash(), "I rang."])
    b = helper_of(second)
    first.said = [calls((f"hand_off_to_{b.name}", "{}"))]
    a = make(first, hands_off_to=[b])
    with pytest.raises(Crash):
        talk(hf, a)
    assert talk(hf, a).answer == "I rang."
    assert len(first.requests) == 1


def test_only_the_first_of_two_counts(hf):
    first = Model([])
    b, c = helper_of(Model(["b"])), helper_of(Model(["c"]))
    first.said = [calls((f"hand_off_to_{b.name}", "{}"), (f"hand_off_to_{c.name}", "{}"))]
    assert talk(hf, make(first, hands_off_to=[b, c])).agent == b.name
    assert [r.is_error for m in conversation(hf) for r in m.results] == [False, True]


def test_agents_that_can_not_go_on_for_each_other_are_refused():
    class Verdict(pydantic.BaseModel):
        good: bool

    with pytest.raises(BadInput, match="their answers have other types"):
        make(Model([]), hands_off_to=[make(Model([]), output=Verdict)])
    with pytest.raises(BadInput, match="lists agents"):
        make(Model([]), hands_off_to=[ring])
    with pytest.raises(BadInput, match="is async"):
        make(Model([])).may_hand_off_to(make(AsyncModel([])))
