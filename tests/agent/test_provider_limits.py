"""What providers say beside their replies: how long to wait, and what was thought or cached."""

from __future__ import annotations

import asyncio
import itertools
from datetime import timedelta
from typing import Any

import pytest
from anthropic import Anthropic
from openai import AsyncOpenAI, OpenAI

from holdfast import BadInput, Holdfast, Limit, Worker
from holdfast.agent import Reply, Request, Usage, assistant, user
from holdfast.agent.adapters import AnthropicMessages, ModelBusy, OpenAIChat, OpenAIResponses
from holdfast.testing import Clock, ScriptedModel
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


def limited(server: ScriptedModel, limit: Limit, kind: str) -> Any:
    client = AsyncOpenAI if kind == "async" else OpenAI
    opened = client(api_key="any", base_url=server.url)
    return OpenAIChat(opened, f"limited-{limit.name}", limit=limit, max_tokens=100)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_the_model_calls_of_all_tasks_share_a_limit_of_tokens(kind):
    """Those that were expected are taken before the call, and what was not used is given back."""
    limit, clock = Limit(f"tokens-{kind}", tokens_per_minute=1000), Clock(skips=True)
    said = [Reply(assistant("Hi."), Usage(20, 5)), Reply(assistant("Hi."), Usage(900, 50))]
    with (
        ScriptedModel([*said, "Hello!"]) as server,
        Holdfast("memory://", clock=clock) as hf,
    ):
        agent = make(limited(server, limit, kind))
        began = [clock.now]

        async def talk_all() -> None:  # an async client belongs to one loop
            for number in range(3):
                given = hf.session("s1"), "Go."
                if kind == "async":
                    await agent.arun(*given, id=f"t{number}")
                else:
                    await asyncio.to_thread(agent.run, *given, id=f"t{number}")
                began.append(clock.now)

        asyncio.run(talk_all())
        _first, second, third = (b - a for a, b in itertools.pairwise(began))
        assert second < timedelta(seconds=5), "the first took only 25"
        assert third > timedelta(seconds=40), "the second took 950"
        waits = hf.task("t2").state.calls
        assert [call.name for call in waits.values() if call.kind == "limit"] == [limit.name]
        assert [each.limit for each in hf.limits()] == [limit]


def test_a_429_of_one_process_holds_for_the_tasks_of_all():
    limit, clock = Limit("refuses", per_minute=6000), Clock(skips=True)
    with (
        ScriptedModel([Fault(429, retry_after_s=0.3), "Hello!", "Hello!"]) as server,
        Holdfast("memory://", clock=clock) as hf,
    ):
        one = make(limited(server, limit, "sync"))
        still = Clock(clock.now)
        hf._holding.clock = still
        first = hf.session("s1").start(one.task, "Go.", id="t1")
        Worker(hf, patience_s=0).run_until_idle()
        assert first.status == "in_progress" and len(server.requests) == 1
        (info,) = hf.limits()
        assert info.paused_until is not None and info.paused_until > still.now
        # Another task, and a model of its own as another process has: it does not even ask.
        other = make(limited(server, limit, "sync"))
        second = hf.session("s2").start(other.task, "Go.", id="t2")
        Worker(hf, patience_s=0).run_until_idle()
        assert second.status == "in_progress" and len(server.requests) == 1


def test_a_model_with_a_limit_is_not_called_where_nobody_keeps_to_it():
    limit = Limit("nowhere", per_minute=1)
    with ScriptedModel(["Hello!"]) as server:
        with pytest.raises(BadInput, match=r"has a limit.*use an agent or ModelStep"):
            limited(server, limit, "sync")(REQUEST)
        with pytest.raises(BadInput, match="must be a Limit"):
            OpenAIChat(OpenAI(api_key="any"), "any", limit=5)
