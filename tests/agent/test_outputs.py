"""Typed answers: what an agent with an `output` returns is a value of that type, or it says why."""

from __future__ import annotations

import dataclasses
from typing import Literal

import msgspec
import pydantic
import pytest
from anthropic import Anthropic
from openai import OpenAI

from holdfast import BadInput, tool
from holdfast.agent import Limits, Orchestrator, Reply, Usage
from holdfast.agent.adapters import AnthropicMessages, OpenAIChat, OpenAIResponses
from holdfast.testing import ScriptedModel
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

pytestmark = pytest.mark.holdfast("memory://")


class Verdict(pydantic.BaseModel):
    """A verdict on an order."""

    order: int = pydantic.Field(gt=0)
    status: Literal["shipped", "lost"]


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: int = 0


class Kept(msgspec.Struct, frozen=True):
    names: list[str]


GOOD = '{"order": 7, "status": "shipped"}'


class Structured(Model):
    structured = True


class AsyncStructured(AsyncModel):
    structured = True


@pytest.fixture(params=[Model, AsyncModel], ids=["sync", "async"])
def says(request):
    return lambda *said: request.param(said)


@pytest.fixture(params=[Structured, AsyncStructured], ids=["sync", "async"])
def says_by_schema(request):
    return lambda *said: request.param(said)


@pytest.mark.parametrize(
    ("kind", "said", "value"),
    [
        (Verdict, GOOD, Verdict(order=7, status="shipped")),
        (Verdict | Point, f'{{"answer": {GOOD}}}', Verdict(order=7, status="shipped")),
        (Verdict | Point, '{"answer": {"x": 1}}', Point(1)),
        (Literal["yes", "no"], '{"answer": "no"}', "no"),
        (Point | None, '{"answer": null}', None),
        (Point, '{"x": 1}', Point(1)),
        (Kept, '{"names": ["a"]}', Kept(["a"])),
        (list[int], '{"answer": [1, 2]}', [1, 2]),
        (list[int], "[1, 2]", [1, 2]),
        (list[Verdict], f'{{"answer": [{GOOD}]}}', [Verdict(order=7, status="shipped")]),
        (int, '{"answer": 7}', 7),
        (bool, "true", True),
        (dict[str, int], '{"answer": {"a": 1}}', {"a": 1}),
        (Point, '```json\n{"x": 1, "y": 2}\n```', Point(1, 2)),
    ],
)
def test_the_output_of_a_result_is_a_value_of_the_type(hf, says_by_schema, kind, said, value):
    agent = make(says_by_schema(said), output=kind)
    result = talk(hf, agent)
    assert (result.output, type(result.output)) == (value, type(value))
    again = talk(hf, agent)
    assert again.output == value, "and again from the log"


def test_a_model_without_structured_output_answers_by_a_tool(hf, says):
    model = says(calls(("final_answer", GOOD)))
    result = talk(hf, make(model, [ring], output=Verdict))
    assert result.output == Verdict(order=7, status="shipped")
    (asked,) = model.requests
    assert asked.output is None
    form = next(each for each in asked.tools if each.name == "final_answer")
    assert form.parameters["required"] == ["order", "status"]
    assert "A verdict on an order." in form.description
    assert lines(hf)[-2:] == ["tool: taken", 'assistant: {"order":7,"status":"shipped"}']


def test_a_model_with_structured_output_is_given_the_schema(hf, says_by_schema):
    model = says_by_schema(GOOD)
    talk(hf, make(model, [ring], output=Verdict))
    (asked,) = model.requests
    assert asked.output is not None and asked.output.parameters["required"] == ["order", "status"]
    assert [each.name for each in asked.tools] == ["ask_user", "ring"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("It was shipped.", "not valid JSON"),
        ('{"order": 0, "status": "shipped"}', "greater than 0"),
        ('{"order": 7, "status": "burnt"}', "'shipped' or 'lost'"),
        ('{"order": 7}', "status"),
        ("[]", "does not fit"),
    ],
)
def test_an_answer_that_does_not_fit_goes_back_with_what_is_wrong(hf, says_by_schema, said, told):
    model = says_by_schema(said, GOOD)
    result = talk(hf, make(model, output=Verdict))
    assert result.output.order == 7
    *_, rejected, why = model.requests[1].messages
    assert (rejected.role, rejected.text) == ("assistant", said)
    assert why.role == "user" and told in why.text
    assert len(conversation(hf)) == 2, "only the answer that fits is in the conversation"


def test_a_tool_call_that_does_not_fit_goes_back_as_its_result(hf, says):
    wrong = '{"order": 0, "status": "shipped"}'
    model = says(calls(("final_answer", wrong)), "It was shipped.", calls(("final_answer", GOOD)))
    assert talk(hf, make(model, output=Verdict)).output.order == 7
    (result,) = model.requests[1].messages[-1].results
    assert result.is_error and "greater than 0" in result.content
    assert "Call final_answer" in model.requests[2].messages[-1].text


def test_it_goes_back_only_within_the_limits(hf, says_by_schema):
    model = says_by_schema(*["no"] * 5)
    why = fails(hf, make(model, output=Verdict, limits=Limits(iterations=3)))
    assert "the limit of 3 iterations" in why
    assert len(model.requests) == 3


def test_the_other_calls_beside_an_answer_are_made(hf, says):
    model = says(calls(("ring", '{"times": 1}'), ("final_answer", GOOD), ("final_answer", GOOD)))
    done.clear()
    assert talk(hf, make(model, [ring], output=Verdict)).output.order == 7
    assert done == [(1, "nobody")]
    results = [r for message in conversation(hf) for r in message.results]
    assert [r.is_error for r in results] == [False, False, True]


def test_an_answer_that_is_cut_off_is_put_together_first(hf, says_by_schema):
    cut = Reply(calls(text=GOOD[:12]), Usage(1, 1), stop="length")
    model = says_by_schema(cut, GOOD[12:])
    assert talk(hf, make(model, output=Verdict)).output.order == 7


def test_an_answer_may_be_judged_first(hf, says):
    model = says(
        calls(("final_answer", '{"order": 8, "status": "lost"}')),
        calls(("revise", '{"reason": "it is order 7"}')),
        calls(("final_answer", GOOD)),
        calls(("accept", "{}")),
    )
    assert talk(hf, make(model, output=Verdict, reflect=True)).output.order == 7


def test_the_log_holds_the_output_as_plain_json(hf):
    talk(hf, make(Structured([GOOD]), output=Verdict))
    result = hf.task("t1").state.result
    assert msgspec.json.decode(result)["output"] == {"order": 7, "status": "shipped"}


def test_an_agent_without_an_output_has_none(hf):
    assert talk(hf, make(Model(["It was shipped."]))).output is None


def test_a_type_that_no_model_can_be_told_is_refused():
    with pytest.raises(BadInput, match="has no JSON schema"):
        make(Model([]), output=object)


def test_a_tool_may_not_have_the_name_of_the_answer():
    @tool(name="final_answer", in_doubt="retry")
    def final_answer() -> str:
        return ""

    with pytest.raises(BadInput, match="final_answer"):
        make(Model([]), [final_answer], output=Verdict)


@pytest.mark.parametrize("structured", [True, False])
@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses, AnthropicMessages])
def test_the_providers_are_told_in_their_own_words(hf, kind, structured):
    client = Anthropic if kind is AnthropicMessages else OpenAI
    bad = '{"order": 0, "status": "shipped"}'
    said = [bad, GOOD] if structured else [calls(("final_answer", s)) for s in (bad, GOOD)]
    with (
        ScriptedModel(said) as server,
        client(api_key="any", base_url=server.url) as opened,
    ):
        model = kind(opened, "any", structured=structured)
        agent: Orchestrator[Verdict] = make(model, [ring], output=Verdict)
        assert talk(hf, agent).output == Verdict(order=7, status="shipped")
    first = server.requests[0].data
    named = [each.name for each in server.requests[0].tools]
    assert ("final_answer" in named) is not structured
    schema = {
        OpenAIChat: lambda: first["response_format"]["json_schema"],
        OpenAIResponses: lambda: first["text"]["format"],
        AnthropicMessages: lambda: first["output_config"]["format"],
    }[kind]
    if not structured:
        with pytest.raises(KeyError):
            schema()
        return
    assert schema()["schema"]["additionalProperties"] is False
    assert schema().get("strict", True) is True
