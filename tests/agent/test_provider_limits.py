"""What providers say beside their replies: how long to wait, and what was thought or cached."""

from __future__ import annotations

import pytest
from anthropic import Anthropic
from openai import OpenAI

from holdfast.agent import Reply, Request, Usage, assistant, user
from holdfast.agent.adapters import AnthropicMessages, ModelBusy, OpenAIChat, OpenAIResponses
from holdfast.testing import ScriptedModel
from holdfast.testing.scripted import Fault
from tests.agent.talking import make, talk

REQUEST = Request((user("Hello"),))


def test_a_wait_that_one_task_was_told_holds_for_the_others_of_the_process():
    with (
        ScriptedModel([Fault(429, retry_after_s=600), "Hello!"]) as server,
        OpenAI(api_key="any", base_url=server.url) as client,
    ):
        with pytest.raises(ModelBusy) as told:
            OpenAIChat(client, "limited")(REQUEST)
        assert told.value.retry_after_s == 600
        with pytest.raises(ModelBusy, match="asked to wait") as waits:
            OpenAIChat(client, "limited")(REQUEST)
        assert waits.value.retry_after_s is not None and 500 < waits.value.retry_after_s <= 600
        assert len(server.requests) == 1, "it would only be refused"
        assert OpenAIChat(client, "another")(REQUEST).message.text == "Hello!"


@pytest.mark.holdfast("memory://")
def test_a_task_waits_it_out(hf):
    with (
        ScriptedModel([Fault(429, retry_after_s=0.05), "Hello!"]) as server,
        OpenAI(api_key="any", base_url=server.url) as client,
    ):
        assert talk(hf, make(OpenAIChat(client, "any"))).answer == "Hello!"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses, AnthropicMessages])
def test_tokens_that_were_thought_or_had_at_hand_are_counted(kind, stream):
    took = Usage(100, 50, 40, reasoning_tokens=30)
    client = Anthropic if kind is AnthropicMessages else OpenAI
    with (
        ScriptedModel([Reply(assistant("Hm."), took)]) as server,
        client(api_key="any", base_url=server.url) as opened,
    ):
        usage = kind(opened, "any", stream=stream)(REQUEST).usage
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (100, 50, 40)
    assert usage.reasoning_tokens == 30
    assert (usage + usage).reasoning_tokens == 60


def test_a_scripted_server_can_come_back_at_its_port():
    with ScriptedModel(["One."]) as server:
        port = int(server.url.rpartition(":")[2])
    with (
        ScriptedModel(["Two."], port=port) as again,
        OpenAI(api_key="any", base_url=again.url) as client,
    ):
        assert again.url == server.url
        assert OpenAIChat(client, "any")(REQUEST).message.text == "Two."
