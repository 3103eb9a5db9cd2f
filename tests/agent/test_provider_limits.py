"""What providers say beside their replies: how long to wait, and what was thought or cached."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from time import monotonic
from typing import Any

import pytest
from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

from holdfast import BadInput, Holdfast, Limit, Retry, Worker
from holdfast.agent import Reply, Request, Usage, assistant, user
from holdfast.agent.adapters import AnthropicMessages, ModelBusy, OpenAIChat, OpenAIResponses
from holdfast.agent.adapters.base import used_up_for
from holdfast.testing import Clock, ScriptedModel
from holdfast.testing.scripted import Fault, Headed
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


KINDS = [OpenAIChat, OpenAIResponses, AnthropicMessages]


def headers_of(kind: Any, left: int, wait_s: float) -> dict[str, str]:
    """What a provider says of its limits; of Anthropic's with the time of its own clock."""
    if kind is not AnthropicMessages:
        openai = {"x-ratelimit-remaining-tokens": str(left), "x-ratelimit-reset-requests": "1s"}
        return openai | {"x-ratelimit-reset-tokens": f"{wait_s:g}s"}
    clock = datetime(2020, 1, 31, 23, 59, 30, tzinfo=UTC)
    until = (clock + timedelta(seconds=wait_s)).isoformat().replace("+00:00", "Z")
    return {
        "anthropic-ratelimit-input-tokens-remaining": str(left),
        "anthropic-ratelimit-input-tokens-reset": until,
        "date": format_datetime(clock, usegmt=True),
    }


def client_of(kind: Any, server: ScriptedModel, *, is_async: bool = False) -> Any:
    clients = (Anthropic, AsyncAnthropic) if kind is AnthropicMessages else (OpenAI, AsyncOpenAI)
    return clients[is_async](api_key="any", base_url=server.url)


def ask(model: Any) -> Reply:
    """Ask it once, and close its client."""

    async def awaited() -> Reply:
        async with model.client:
            reply: Reply = await model(REQUEST)
            return reply

    if model.is_async:
        return asyncio.run(awaited())
    with model.client:
        return model(REQUEST)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_nobody_asks_again_before_what_a_reply_has_used_up_is_back(kind, stream, is_async):
    some = Headed("Some is left.", headers_of(kind, 1, 600))
    none = Headed("Nothing is left.", headers_of(kind, 0, 600))
    with ScriptedModel([some, none, "Hello!"]) as server:
        name = f"used-up-{kind.__name__}-{stream}-{is_async}"

        def model() -> Any:
            return kind(client_of(kind, server, is_async=is_async), name, stream=stream)

        assert ask(model()).message.text == "Some is left."
        assert ask(model()).message.text == "Nothing is left."
        with pytest.raises(ModelBusy, match="asked to wait") as waits:
            ask(model())
        assert waits.value.retry_after_s is not None and 500 < waits.value.retry_after_s <= 600
        assert len(server.requests) == 2, "it would only be refused"


@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_that_says_only_when_its_limit_is_reset_is_waited_for(kind):
    refused = [
        Headed(Fault(429), headers_of(kind, 0, 40)),
        Headed(Fault(429), headers_of(kind, 7, 40)),
        Headed(Fault(429, retry_after_s=2), headers_of(kind, 0, 40)),
        Headed(Fault(500), headers_of(kind, 0, 40)),
    ]
    with ScriptedModel(refused) as server:
        told: list[float | None] = []
        for number in range(len(refused)):
            with pytest.raises(ModelBusy) as failed:
                ask(kind(client_of(kind, server), f"reset-{kind.__name__}-{number}"))
            told.append(failed.value.retry_after_s)
    assert told == [40, None, 2, None], "what it asks for comes first, and a 500 is no limit"


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("said", "wait_s"),
    [
        ("1s", 1),
        ("6m0s", 360),
        ("1h2m3.5s", 3723.5),
        ("20ms", 0.02),
        ("24h0m0s", 86400),
        ("30", 30),
        ("1.5", 1.5),
        ("2026-01-31T12:00:05Z", 5),
        ("2026-01-31T13:00:05+01:00", 5),
        ("2026-01-31T12:00:05", 5),
        ("2026-01-31T11:59:59Z", 0),
        ("1769860805", 0),  # a time, in seconds
        ("9" * 400 + "s", 0),
        ("9999-12-31T23:59:59Z", 0),
        ("soon", 0),
        ("1x", 0),
        ("-5", 0),
        ("", 0),
    ],
)
def test_when_a_limit_is_reset_is_told_in_many_ways(said, wait_s):
    for left, reset in (
        ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
        ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ):
        assert used_up_for({left: "0", reset: said}, NOON) == pytest.approx(wait_s)
        assert used_up_for({left: "3", reset: said}, NOON) == 0
        assert used_up_for({reset: said}, NOON) == used_up_for({left: "0"}, NOON) == 0


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.holdfast("memory://")
def test_a_task_that_waits_for_another_s_refusal_spends_no_attempt(hf, is_async):
    wait_s = 0.4
    with ScriptedModel([Fault(429, retry_after_s=wait_s), "Hello!"]) as server:

        def model() -> Any:
            opened = client_of(OpenAIChat, server, is_async=is_async)
            return OpenAIChat(opened, f"spends-{is_async}")

        with pytest.raises(ModelBusy):
            ask(model())
        asked, began = model(), monotonic()
        agent = make(asked, retry=Retry(attempts=1))

        async def arun() -> Any:
            async with asked.client:
                return await agent.arun(hf.session("s1"), "Go.", id="t1")

        if is_async:
            result = asyncio.run(arun())
        else:
            with asked.client:
                result = agent.run(hf.session("s1"), "Go.", id="t1")
        assert result.answer == "Hello!"
        assert monotonic() - began > wait_s / 2
        assert hf.task("t1").failures == ()
        assert len(server.requests) == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", KINDS)
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
