"""The orchestrator with the real clients of providers, over HTTP."""

from __future__ import annotations

import contextlib

import pytest
from anthropic import Anthropic
from openai import AsyncOpenAI, OpenAI

from holdfast import Holdfast, tool
from holdfast.agent import Orchestrator, Prices, Reply, ToolCall, Usage, assistant, tool_result
from holdfast.agent.adapters import AnthropicMessages, OpenAIChat, OpenAIResponses
from holdfast.testing.scripted import Cut, Fault, Malformed, ScriptedModel
from tests.agent.talking import QUICK, calls, conversation, fails, lines, make, talk

pytestmark = pytest.mark.holdfast("memory://")

PRICES = Prices(input=1.0, output=10.0)

ADAPTERS = {
    "chat": (OpenAI, OpenAIChat),
    "responses": (OpenAI, OpenAIResponses),
    "async": (AsyncOpenAI, OpenAIChat),
    "anthropic": (Anthropic, AnthropicMessages),
}


@tool(in_doubt="retry")
def add_up(numbers: list[int]) -> int:
    """Add numbers up."""
    return sum(numbers)


@pytest.fixture(params=[(name, stream) for name in ADAPTERS for stream in (False, True)], ids=str)
def agent_of(request):
    """An agent that asks a server with a script."""
    name, stream = request.param
    client, adapter = ADAPTERS[name]
    with contextlib.ExitStack() as stack:

        def of(*script, **options) -> tuple[Orchestrator, ScriptedModel]:
            server = stack.enter_context(ScriptedModel(list(script)))
            made = client(api_key="any", base_url=server.url)
            if isinstance(made, OpenAI | Anthropic):
                stack.enter_context(made)
            model = adapter(made, "scripted", prices=PRICES, stream=stream)
            return make(model, options.pop("tools", [add_up]), **options), server

        yield of


def test_a_call_its_result_and_the_answer(hf, agent_of):
    asked = assistant("Let me see.", [ToolCall("call_1", "add_up", '{"numbers": [1, 2]}')])
    agent, server = agent_of(Reply(asked, Usage(100, 20), stop="tool_calls"), "It is 3.")
    result = talk(hf, agent, "What is 1 + 2?")
    assert (result.answer, result.usage.input_tokens) == ("It is 3.", 100)
    assert result.usage.cost == pytest.approx(0.0003)
    assert lines(hf) == [
        "user: What is 1 + 2?",
        'assistant: Let me see. add_up({"numbers":[1,2]})'.replace(":[1,2]", _spaced(hf)),
        "tool: 3",
        "assistant: It is 3.",
    ]
    assert "add_up" in [tool.name for tool in server.requests[0].tools]


def _spaced(hf: Holdfast) -> str:
    """Anthropic's arguments are an object, which is written anew; the others' are kept as text."""
    (call,) = conversation(hf)[1].calls
    return ":[1,2]" if ":[" in call.arguments else ": [1, 2]"


def test_malformed_arguments_survive_the_way_there_and_back(hf, agent_of):
    agent, server = agent_of(calls(("add_up", '{"numbers": [1')), "I see.")
    assert talk(hf, agent).answer == "I see."
    (seen,) = server.requests[1].messages[-1].results
    assert "add_up" in str(seen.content)


def test_a_wrong_key_fails_the_task_at_once(hf, agent_of):
    agent, server = agent_of(Fault(401, message="no such key"))
    assert "no such key" in fails(hf, agent)
    assert len(server.requests) == 1


def test_what_is_busy_is_asked_again(hf, agent_of):
    faults = [Fault(429, retry_after_s=0.001), Fault(529, retry_after_s=0)]
    agent, server = agent_of(*faults, "At last.")
    assert talk(hf, agent).answer == "At last."
    assert len(server.requests) == 3
    assert lines(hf) == ["user: Go.", "assistant: At last."]


@pytest.mark.parametrize("broken", [Cut(), Cut("half of it is lost"), Malformed()], ids=str)
def test_an_answer_that_breaks_off_is_asked_for_again(hf, agent_of, broken):
    agent, server = agent_of(broken, "At last.")
    assert talk(hf, agent).answer == "At last."
    assert len(server.requests) == 2


def test_a_provider_that_stays_down_fails_the_task(hf, agent_of):
    agent, server = agent_of(*[Fault(500, message="out of order")] * QUICK.attempts)
    assert "out of order" in fails(hf, agent)
    assert len(server.requests) == QUICK.attempts


def test_an_answer_cut_off_by_length_is_joined(hf, agent_of):
    agent, _ = agent_of(Reply(assistant("One, two, "), stop="length"), "three.")
    assert talk(hf, agent).answer == "One, two, three."


@pytest.mark.parametrize("name", ["functions.add_up", "add.up", "add up", "ä" * 80, ""])
def test_a_call_by_a_name_that_providers_refuse_does_not_end_the_conversation(hf, agent_of, name):
    agent, server = agent_of(calls((name, '{"numbers": [1]}')), "I can't.")
    result = talk(hf, agent)
    assert (result.phase, result.answer, len(server.requests)) == ("done", "I can't.", 2)
    (told,) = server.requests[1].messages[-1].results
    assert "there is no tool" in str(told.content)


def test_a_model_that_gives_the_same_id_twice_is_still_understood(hf, agent_of):
    again = assistant("", [ToolCall("call_1", "add_up", '{"numbers": [1, 2]}')])
    agent, server = agent_of(again, again, "It is 3.")
    assert talk(hf, agent).answer == "It is 3."
    ids = [call.id for message in server.requests[-1].messages for call in message.calls]
    assert len(set(ids)) == len(ids) == 2


def test_a_call_after_nothing_but_blanks_can_be_sent_again(hf, agent_of):
    asked = assistant("\n\n", [ToolCall("call_1", "add_up", '{"numbers": [1, 2]}')])
    agent, _ = agent_of(asked, "It is 3.")
    assert talk(hf, agent).answer == "It is 3."


def test_an_agent_without_tools_goes_on_with_a_conversation_that_has_calls(hf, agent_of):
    asked = assistant("", [ToolCall("c", "add_up", "{}")])
    hf.session("s1", user="ada").say("1 + 2?", asked, tool_result("c", "3"))
    agent, server = agent_of("As I said: 3.", ask_user=False, tools=[])
    result = talk(hf, agent)
    assert (result.phase, result.answer, len(server.requests)) == ("done", "As I said: 3.", 1)
