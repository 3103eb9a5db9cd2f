"""The real clients over real HTTP, against a server that says what a script says."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from msgspec import Struct

from holdfast import BadInput, Holdfast, TaskFailed, step, task
from holdfast.agent.adapters import (
    AnthropicMessages,
    ModelBusy,
    ModelFailed,
    ModelRejected,
    OpenAIChat,
    OpenAIResponses,
    model_retry,
)
from holdfast.agent.adapters.base import retry_after_of
from holdfast.agent.model import Reply, Request, ToolInfo
from holdfast.core.spec import Retry
from holdfast.core.usage import Prices, Usage
from holdfast.log.messages import (
    Message,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    assistant,
    system,
    tool_result,
    user,
)
from holdfast.testing.scripted import Answer, Cut, Fault, Malformed, ScriptedModel, Seen, Slow

HELLO = Request((system("Be brief."), user("Hello")))
LOOK = ToolInfo("look", "Look there.", {"type": "object", "properties": {}})
USED = Usage(100, 20, 40)
CLIENTS: dict[Any, tuple[Any, Any]] = {
    OpenAIChat: (openai.OpenAI, openai.AsyncOpenAI),
    OpenAIResponses: (openai.OpenAI, openai.AsyncOpenAI),
    AnthropicMessages: (anthropic.Anthropic, anthropic.AsyncAnthropic),
}


class Way(Struct, frozen=True):
    """How a model is asked: by which adapter, blocking or awaited, whole or in pieces."""

    adapter: Any
    is_async: bool
    stream: bool

    def ask(
        self, url: str, request: Request = HELLO, timeout_s: float = 20, **options: Any
    ) -> Reply:
        given: dict[str, Any] = {"api_key": "any", "base_url": url, "timeout": timeout_s}
        # To load what a secure connection needs takes long, and there is none.
        module = anthropic if self.adapter is AnthropicMessages else openai
        kind: Any = module.DefaultAsyncHttpxClient if self.is_async else module.DefaultHttpxClient
        given["http_client"] = kind(verify=False)
        options = {"stream": self.stream} | options
        blocking, awaited = CLIENTS[self.adapter]
        if not self.is_async:
            with blocking(**given) as client:
                reply = self.adapter(client, "a-model", **options)(request)
                assert isinstance(reply, Reply)
                return reply

        async def asked() -> Reply:
            async with awaited(**given) as client:
                coming = self.adapter(client, "a-model", **options)(request)
                assert inspect.isawaitable(coming)
                found: Reply = await coming
                return found

        return asyncio.run(asked())


WAYS = [
    Way(adapter, is_async, stream)
    for adapter in CLIENTS
    for is_async in (False, True)
    for stream in (False, True)
]
STREAMING = [way for way in WAYS if way.stream]
SOME = [way for way in WAYS if way.stream == way.is_async]


def named(way: Way) -> str:
    how = "async" if way.is_async else "sync"
    return f"{way.adapter.__name__}-{how}-{'stream' if way.stream else 'whole'}"


every_way = pytest.mark.parametrize("way", WAYS, ids=named)
some_ways = pytest.mark.parametrize("way", SOME, ids=named)
every_stream = pytest.mark.parametrize("way", STREAMING, ids=named)


@pytest.fixture
def script() -> Iterator[Any]:
    """Make a server that says what it is told."""
    opened: list[ScriptedModel] = []

    def serve(*answers: Answer) -> ScriptedModel:
        opened.append(ScriptedModel(answers).__enter__())
        return opened[-1]

    yield serve
    for server in opened:
        server.__exit__(None, None, None)


def kinds(message: Message) -> list[str]:
    return [type(part).__name__ for part in message.parts]


@every_way
def test_a_reply_has_its_text_its_usage_and_its_price(way: Way, script: Any) -> None:
    server = script(Reply(assistant("Good morning, and good luck."), USED))
    prices = Prices(input=1.0, output=10.0, cached=0.5)
    reply = way.ask(server.url, prices=prices)
    assert reply.message.text == "Good morning, and good luck."
    assert reply.message.role == "assistant"
    assert reply.usage == Usage(100, 20, 40, cost=(60 * 1.0 + 40 * 0.5 + 20 * 10.0) / 1_000_000)
    assert (reply.stop, reply.model) == ("end", "a-model")
    assert reply.id.startswith("reply-")
    (seen,) = server.requests
    assert [message.text for message in seen.messages] == ["Be brief.", "Hello"]
    assert seen.messages[0].role == "system"
    assert bool(seen.data.get("stream")) == way.stream


@every_way
def test_a_conversation_with_calls_goes_there_and_back(way: Way, script: Any) -> None:
    calls = [ToolCall("c1", "look", '{"at": "door"}'), ToolCall("c2", "look", "{}")]
    asking = Message("assistant", (Thinking("Hm."), Text("Let me look."), *calls))
    server = script(asking, "Nobody there.")
    request = Request(HELLO.messages, (LOOK,))
    reply = way.ask(server.url, request)
    assert reply.stop == "tool_calls"
    assert [(c.id, c.name) for c in reply.message.calls] == [("c1", "look"), ("c2", "look")]
    assert [c.arguments.replace(" ", "") for c in reply.message.calls] == ['{"at":"door"}', "{}"]
    assert reply.message.text == "Let me look."
    results = [tool_result("c1", "a cat"), tool_result("c2", "no", is_error=True)]
    follow_up = Request((*request.messages, reply.message, *results), (LOOK,))
    assert way.ask(server.url, follow_up).message.text == "Nobody there."
    first, second = server.requests
    assert first.tools == (LOOK,)
    sent = [message for message in second.messages if message.role == "assistant"]
    assert [m.calls for m in sent] == [reply.message.calls]
    brought = [result for message in second.messages for result in message.results]
    assert [(result.call_id, result.content) for result in brought] == [
        ("c1", "a cat"),
        ("c2", "no"),
    ]


@every_way
def test_streamed_or_not_the_reply_is_the_same(way: Way, script: Any) -> None:
    calls = (ToolCall("c1", "look", '{"at":[1,2.5,null]}'), ToolCall("c2", "look", "{}"))
    said = Reply(Message("assistant", (Thinking("Hm."), Text("Grüße 🎈"), *calls)), USED)
    server = script(said, said)
    other = Way(way.adapter, False, not way.stream)
    assert way.ask(server.url) == other.ask(server.url)


@every_stream
def test_text_is_told_as_it_comes(way: Way, script: Any) -> None:
    server = script("One two three four five.")
    pieces: list[str] = []

    async def told(piece: str) -> None:
        pieces.append(piece)

    reply = way.ask(server.url, stream=False, on_text=told if way.is_async else pieces.append)
    assert len(pieces) > 2
    assert "".join(pieces) == reply.message.text == "One two three four five."


@every_stream
def test_what_on_text_raises_is_not_taken_for_a_failure_of_the_model(way: Way, script: Any) -> None:
    def refuse(piece: str) -> None:
        raise LookupError(piece)

    with pytest.raises(LookupError):
        way.ask(script("Hello there").url, on_text=refuse)


@every_way
def test_a_refusal_is_a_reply(way: Way, script: Any) -> None:
    refused = Reply(Message("assistant", (Refusal("I won't."),)), USED, "refusal")
    reply = way.ask(script(refused).url)
    assert (reply.stop, reply.message.text) == ("refusal", "I won't.")


@every_way
def test_an_empty_reply_is_a_reply_and_can_be_sent_again(way: Way, script: Any) -> None:
    server = script(Reply(assistant(""), Usage(10, 0)), "Here.")
    reply = way.ask(server.url)
    assert (reply.stop, reply.message.text, reply.message.calls) == ("end", "", ())
    request = Request((*HELLO.messages, reply.message, user("Still there?")))
    assert way.ask(server.url, request).message.text == "Here."


@every_way
def test_a_reply_that_is_cut_off_says_so(way: Way, script: Any) -> None:
    reply = way.ask(script(Reply(assistant("And then"), USED, "length")).url)
    assert (reply.stop, reply.message.text) == ("length", "And then")


@some_ways
@pytest.mark.parametrize("arguments", ['{"at": ', "not json", "[1]"])
def test_malformed_arguments_are_kept_as_they_were_written(
    way: Way, arguments: str, script: Any
) -> None:
    server = script(assistant("", [ToolCall("c1", "look", arguments)]), "Well.")
    reply = way.ask(server.url)
    assert reply.message.calls[0].arguments == arguments
    request = Request((*HELLO.messages, reply.message, tool_result("c1", "what?", is_error=True)))
    assert way.ask(server.url, request).message.text == "Well."


@some_ways
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_what_is_wrong_with_the_request_is_final(way: Way, status: int, script: Any) -> None:
    server = script(Fault(status, message="no such thing"))
    with pytest.raises(ModelRejected, match="no such thing") as failed:
        way.ask(server.url)
    assert (failed.value.status, failed.value.retryable) == (status, False)
    assert len(server.requests) == 1


@some_ways
@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
def test_what_is_wrong_with_the_server_may_pass(way: Way, status: int, script: Any) -> None:
    server = script(Fault(status, retry_after_s=1.5))
    with pytest.raises(ModelBusy) as failed:
        way.ask(server.url)
    assert (failed.value.status, failed.value.retryable) == (status, True)
    assert failed.value.retry_after_s == 1.5
    assert len(server.requests) == 1  # the client's own retries are off


@every_way
def test_a_broken_connection_may_pass(way: Way, script: Any) -> None:
    with pytest.raises(ModelBusy) as failed:
        way.ask(script(Cut()).url)
    assert failed.value.status is None


@every_way
def test_a_reply_that_breaks_off_may_pass(way: Way, script: Any) -> None:
    with pytest.raises(ModelBusy):
        way.ask(script(Cut("One two three four five six seven.")).url)


@every_way
def test_a_server_that_is_not_there_may_come_back(way: Way, script: Any) -> None:
    with ScriptedModel([]) as gone:
        url = gone.url
    with pytest.raises(ModelBusy):
        way.ask(url)


@every_way
@pytest.mark.parametrize(
    "answer",
    [
        Malformed(),
        Malformed("{not json", "application/json"),
        Malformed("{}", "application/json"),
        Malformed("[]", "application/json"),
        Malformed('{"choices": null, "output": 7, "content": {}}', "application/json"),
        Malformed("data: {not json\n\n", "text/event-stream"),
        Malformed('event: x\ndata: {"choices": [7], "type": "x"}\n\n', "text/event-stream"),
        Malformed(
            'event: content_block_stop\ndata: {"type": "content_block_delta", "index": 3}\n\n',
            "text/event-stream",
        ),
    ],
)
def test_an_answer_that_is_no_reply_may_pass(way: Way, answer: Malformed, script: Any) -> None:
    with pytest.raises(ModelBusy):
        way.ask(script(answer).url)


IN_STREAM = {
    OpenAIChat: 'data: {{"error": {{"type": "{0}", "message": "no"}}}}\n\n',
    OpenAIResponses: 'event: error\ndata: {{"type": "error", "code": "{0}", "message": "no"}}\n\n',
    AnthropicMessages: 'event: error\ndata: {{"type": "error", "error": {{"type": "{0}"}}}}\n\n',
}


@every_stream
def test_an_error_inside_of_a_stream_is_told_apart_by_its_name(way: Way, script: Any) -> None:
    said = IN_STREAM[way.adapter]
    server = script(
        *(
            Malformed(said.format(kind), "text/event-stream")
            for kind in ("overloaded_error", "invalid_request_error")
        )
    )
    with pytest.raises(ModelBusy):
        way.ask(server.url)
    with pytest.raises(ModelRejected):
        way.ask(server.url)


@pytest.mark.parametrize(
    ("code", "kind"), [("rate_limit_exceeded", ModelBusy), ("invalid_prompt", ModelRejected)]
)
def test_a_response_that_failed_is_told_apart_by_its_name(
    code: str, kind: Any, script: Any
) -> None:
    failed = f'{{"status": "failed", "error": {{"code": "{code}"}}, "output": []}}'
    with pytest.raises(kind):
        Way(OpenAIResponses, False, False).ask(script(Malformed(failed, "application/json")).url)


def test_a_call_without_an_id_gets_one(script: Any) -> None:
    call = '{"id": "", "type": "function", "function": {"name": "look", "arguments": "{}"}}'
    choice = f'{{"finish_reason": "stop", "message": {{"tool_calls": [{call}, {call}]}}}}'
    answer = Malformed(f'{{"id": "r", "choices": [{choice}]}}', "application/json")
    reply = WAYS[0].ask(script(answer).url)
    assert [call.id for call in reply.message.calls] == ["call_0_r", "call_1_r"]
    assert reply.stop == "tool_calls"


@every_way
def test_a_reply_that_takes_too_long_may_pass(way: Way, script: Any) -> None:
    with pytest.raises(ModelBusy) as failed:
        way.ask(script(Slow("at last")).url, timeout_s=0.1)
    assert "imeout" in str(failed.value) or "timed out" in str(failed.value)


@every_way
def test_an_option_that_the_client_does_not_know_is_final(way: Way, script: Any) -> None:
    with pytest.raises(ModelRejected, match="TypeError"):
        way.ask(script().url, no_such_option=1)


@pytest.mark.parametrize("adapter", CLIENTS)
def test_something_that_is_no_client_is_refused(adapter: Any) -> None:
    with pytest.raises(BadInput, match="takes a client"):
        adapter("a key", "a-model")


def test_a_bill_to_be_paid_is_final_though_it_is_called_too_many_requests() -> None:
    import httpx2

    from holdfast.agent.adapters.base import failed

    response = httpx2.Response(429, request=httpx2.Request("POST", "http://x"))
    error = openai.RateLimitError("pay", response=response, body={"code": "insufficient_quota"})
    assert isinstance(failed(error, "a model", ModelBusy), ModelRejected)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_how_long_to_wait_is_read_from_the_headers(headers: Any, seconds: float | None) -> None:
    assert retry_after_of(headers) == seconds


def test_a_date_to_come_back_at_is_a_number_of_seconds() -> None:
    from datetime import UTC, datetime

    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert retry_after_of({"retry-after": "Thu, 01 Jan 2026 12:00:30 GMT"}, now) == 30.0


FAST = Retry(attempts=4, delay_s=0, jitter=0, unless=model_retry.unless)


def asking(model: Any, name: str) -> Any:
    """A task with one step that asks the model."""

    @step(name=f"{name}_step", retry=FAST)
    def ask_model(text: str) -> str:
        return str(model(Request((user(text),))).message.text)

    @task(name=f"{name}_task")
    def ask_in_a_task(text: str) -> str:
        return ask_model(text)

    return ask_in_a_task


@pytest.mark.parametrize("adapter", CLIENTS)
@pytest.mark.parametrize("stream", [False, True])
def test_inside_a_task_failures_are_recorded_and_tried_again(
    adapter: Any, stream: bool, script: Any
) -> None:
    server = script(
        Fault(429, retry_after_s=0.02), Fault(529), Cut("Good morning to you all."), "Hello!"
    )
    with CLIENTS[adapter][0](api_key="any", base_url=server.url) as client:
        model = adapter(client, "a-model", stream=stream)
        asks = asking(model, f"adapters_{adapter.__name__}_{stream}")
        with Holdfast("memory://") as hf:
            assert hf.run(asks, "Hi", id="t") == "Hello!"
            failures = hf.task("t").failures
            (retried,) = hf.task("t").retries
    assert [failed.failure.type for failed in failures] == ["ModelBusy"] * 3
    assert "429" in failures[0].failure.message or "RateLimit" in failures[0].failure.message
    assert len(retried.attempts) == 4
    assert len(server.requests) == 4


def test_the_wait_that_a_provider_asks_for_is_recorded(script: Any) -> None:
    server = script(Fault(429, retry_after_s=0.25), "Hello!")
    with openai.OpenAI(api_key="any", base_url=server.url) as client:
        asks = asking(OpenAIChat(client, "a-model"), "adapters_waiting")
        with Holdfast("memory://") as hf:
            assert hf.run(asks, "Hi", id="t") == "Hello!"
            first, second = hf.task("t").retries[0].attempts
    assert (second.at - first.at).total_seconds() >= 0.25


@pytest.mark.parametrize("adapter", CLIENTS)
def test_inside_a_task_a_wrong_key_is_final_at_once(adapter: Any, script: Any) -> None:
    server = script(Fault(401, message="wrong key"), "Hello!")
    with CLIENTS[adapter][0](api_key="any", base_url=server.url) as client:
        asks = asking(adapter(client, "a-model"), f"adapters_final_{adapter.__name__}")
        with Holdfast("memory://") as hf, pytest.raises(TaskFailed, match="wrong key"):
            hf.run(asks, "Hi", id="t")
    assert len(server.requests) == 1


def test_inside_an_async_task_a_model_is_awaited(script: Any) -> None:
    server = script(Fault(503), "Hello!")

    @step(name="adapters_async_step", retry=FAST)
    async def ask_model() -> str:
        async with openai.AsyncOpenAI(api_key="any", base_url=server.url) as client:
            reply: Reply = await OpenAIChat(client, "a-model")(HELLO)
            return reply.message.text

    @task(name="adapters_async_task")
    async def ask_in_a_task() -> str:
        return await ask_model()

    with Holdfast("memory://") as hf:
        assert hf.run(ask_in_a_task, id="t") == "Hello!"
        assert len(hf.task("t").failures) == 1


def test_a_script_can_be_a_function_of_what_was_asked() -> None:
    def echo(seen: Seen) -> str:
        return f"{seen.count}: {seen.messages[-1].text} ({seen.format})"

    with ScriptedModel(echo) as server:
        said = [way.ask(server.url).message.text for way in WAYS if not way.is_async]
    assert said[0] == "1: Hello (openai_chat)"
    assert said[-1] == "6: Hello (anthropic)"


def test_the_same_request_gets_the_same_id() -> None:
    with ScriptedModel(lambda seen: "Hello!") as server:
        ids = {WAYS[0].ask(server.url).id for _ in range(2)}
        other = WAYS[0].ask(server.url, Request((user("Bye"),))).id
    assert len(ids) == 1 and other not in ids


def test_the_server_refuses_what_a_provider_would_and_what_is_not_in_the_script() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    unpaired: Any = [{"role": "assistant", "tool_calls": [call]}]
    with (
        ScriptedModel([]) as server,
        openai.OpenAI(api_key="any", base_url=server.url) as client,
    ):
        with pytest.raises(openai.BadRequestError, match="pair"):
            client.chat.completions.create(model="m", messages=unpaired)
        with pytest.raises(ModelFailed, match="script ends"):
            WAYS[0].ask(server.url)
