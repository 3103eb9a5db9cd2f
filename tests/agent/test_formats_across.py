"""A conversation with one provider goes on with another: always whole, paired and taken."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from holdfast import BadInput
from holdfast.agent.formats import anthropic, openai_chat, openai_responses
from holdfast.agent.model import ToolInfo
from holdfast.log.messages import (
    Foreign,
    Media,
    Message,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    assistant,
    system,
    tool_result,
    user,
)
from tests.agent import wire
from tests.thorough import THOROUGH

MANY = settings(
    max_examples=200 if THOROUGH else 60, deadline=None, suppress_health_check=list(HealthCheck)
)

CALL = ToolCall("c1", "look", '{"at":1}')
FOREIGN = "field_of_tomorrow"


def texts_in(data: Any) -> str:
    return repr(data)


def must_be_taken_by_chat(messages: list[Message]) -> list[dict[str, Any]]:
    wires = openai_chat.to_wire(messages)
    wire.must_fit(wire.CHAT, wires)
    waiting: list[str] = []
    for message in wires:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting
        waiting = [call["id"] for call in message.get("tool_calls") or []]
        assert all(0 < len(call_id) <= 40 for call_id in waiting)
        assert waiting or message.get("refusal") is not None or message["content"] is not None
    assert not waiting
    return wires


def must_be_taken_as_items(messages: list[Message]) -> list[dict[str, Any]]:
    items = openai_responses.to_wire(messages)
    wire.must_fit(wire.ITEMS, items)
    waiting: set[str] = set()
    for item in items:
        if item.get("type") == "function_call":
            assert 0 < len(item["call_id"]) <= 64
            waiting.add(item["call_id"])
        elif item.get("type") == "function_call_output":
            waiting.remove(item["call_id"])
        elif item.get("role", "assistant") != "assistant":
            assert not waiting
    assert not waiting
    return items


def must_be_taken_by_anthropic(messages: list[Message]) -> list[dict[str, Any]]:
    _, wires = anthropic.to_wire(messages)
    wire.must_fit(wire.MESSAGES, wires)
    waiting: list[str] = []
    for number, message in enumerate(wires):
        assert number or message["role"] == "user"
        content = message["content"]
        assert content
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        assert sorted(results) == sorted(waiting)
        assert [b["type"] for b in blocks[: len(results)]] == ["tool_result"] * len(results)
        waiting = [b["id"] for b in blocks if b["type"] == "tool_use"]
        assert all(re.fullmatch("[a-zA-Z0-9_-]+", call_id) for call_id in waiting)
        assert all(b["text"] for b in blocks if b["type"] == "text")
    assert not waiting
    return wires


@given(wire.conversation())
@MANY
def test_any_conversation_of_ours_is_taken_by_every_provider(messages: list[Message]) -> None:
    must_be_taken_by_chat(messages)
    must_be_taken_as_items(messages)
    must_be_taken_by_anthropic(messages)


@given(wire.conversation())
@MANY
def test_calls_and_results_come_back_the_same_from_every_provider(messages: list[Message]) -> None:
    there = [
        openai_chat.from_wire(openai_chat.to_wire(messages)),
        openai_responses.from_wire(openai_responses.to_wire(messages)),
        anthropic.from_wire(anthropic.to_wire(messages)[1]),
    ]
    asked = [call for message in messages for call in message.calls]
    for number, back in enumerate(there):
        calls = [call for message in back for call in message.calls]
        assert [call.name for call in calls] == [call.name for call in asked]
        if number < 2:
            assert [call.arguments for call in calls] == [call.arguments for call in asked]
        results = [result for message in back for result in message.results]
        assert len(results) == len(asked)


@given(wire.chat())
@MANY
def test_what_came_from_openai_chat_is_taken_by_the_others(data: list[dict[str, Any]]) -> None:
    messages = openai_chat.from_wire(data)
    assert FOREIGN not in texts_in(must_be_taken_as_items(messages))
    assert FOREIGN not in texts_in(must_be_taken_by_anthropic(messages))


@given(wire.items())
@MANY
def test_what_came_as_items_is_taken_by_the_others(data: list[dict[str, Any]]) -> None:
    messages = openai_responses.from_wire(data)
    must_be_taken_by_chat(messages)
    must_be_taken_by_anthropic(messages)


@given(wire.blocks())
@MANY
def test_what_came_from_anthropic_is_taken_by_the_others(
    data: tuple[Any, list[dict[str, Any]]],
) -> None:
    messages = anthropic.from_wire(data[1], data[0])
    assert FOREIGN not in texts_in(must_be_taken_by_chat(messages))
    assert FOREIGN not in texts_in(must_be_taken_as_items(messages))


def test_results_and_text_in_one_message_become_messages_of_the_tool_and_the_user() -> None:
    messages = [
        assistant("", [CALL, ToolCall("c2", "look", "{}")]),
        user([ToolResult("c2", "two"), ToolResult("c1", "one"), Text("And now?")]),
    ]
    assert openai_chat.to_wire(messages)[1:] == [
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
    ]
    (_, results) = anthropic.to_wire([user("Hi"), *messages])[1][1:]
    assert [block["type"] for block in results["content"]] == ["tool_result", "tool_result", "text"]


def test_messages_of_the_tool_become_one_of_the_user_for_anthropic() -> None:
    calls = assistant("", [CALL, ToolCall("c2", "look", "{}")])
    results = [tool_result("c1", "one"), tool_result("c2", "no", is_error=True)]
    _, wires = anthropic.to_wire([user("Hi"), calls, *results, user("Thanks")])
    assert [message["role"] for message in wires] == ["user", "assistant", "user", "user"]
    assert wires[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": "one"},
        {"type": "tool_result", "tool_use_id": "c2", "content": "no", "is_error": True},
    ]


def test_messages_of_the_assistant_with_open_calls_are_joined() -> None:
    messages = [
        assistant("", [CALL]),
        assistant("And", [ToolCall("c2", "look", "{}")]),
        tool_result("c1", "one"),
        tool_result("c2", "two"),
    ]
    first = openai_chat.to_wire(messages)[0]
    assert [call["id"] for call in first["tool_calls"]] == ["c1", "c2"]
    assert first["content"] == "And"


def test_what_the_system_says_first_stands_apart_for_anthropic_and_later_is_of_the_user() -> None:
    said, wires = anthropic.to_wire(
        [system("Be brief."), system("Be kind."), user("Hi"), system("It is late.")]
    )
    assert said == [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]
    assert wires == [
        {"role": "user", "content": "Hi"},
        {"role": "user", "content": "It is late."},
    ]


def test_a_conversation_for_anthropic_begins_with_the_user() -> None:
    _, wires = anthropic.to_wire([assistant("Welcome.")])
    assert [message["role"] for message in wires] == ["user", "assistant"]


@pytest.mark.parametrize("arguments", ["{oops", "", "[1]", "null", '"text"', "NaN", '{"a": NaN}'])
def test_malformed_arguments_are_kept_raw_by_every_provider(arguments: str) -> None:
    messages = [
        user("Hi"),
        assistant("", [ToolCall("c1", "look", arguments)]),
        tool_result("c1", "?"),
    ]
    chat, items = openai_chat.to_wire(messages), openai_responses.to_wire(messages)
    _, blocks = anthropic.to_wire(messages)
    assert chat[1]["tool_calls"][0]["function"]["arguments"] == arguments
    assert items[1]["arguments"] == arguments
    assert isinstance(blocks[1]["content"][0]["input"], dict)
    for back in (
        openai_chat.from_wire(chat),
        openai_responses.from_wire(items),
        anthropic.from_wire(blocks),
    ):
        assert back[1].calls[0].arguments == arguments


def test_what_others_only_know_is_sent_to_nobody_else() -> None:
    messages = [
        user([Text("Hi", {"anthropic": {"cache_control": {"type": "ephemeral"}}})]),
        Message(
            "assistant",
            (
                Thinking("hm", {"anthropic": {"signature": "s"}}),
                Foreign("openai_responses", {"type": "web_search_call", "id": "w"}),
                Refusal("No."),
            ),
            extra={"openai_chat": {"annotations": []}},
        ),
    ]
    chat, items = openai_chat.to_wire(messages), openai_responses.to_wire(messages)
    _, blocks = anthropic.to_wire(messages)
    assert chat == [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": None, "annotations": [], "refusal": "No."},
    ]
    assert items == [
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "web_search_call", "id": "w"},
        {"role": "assistant", "content": "No."},
    ]
    assert blocks[1]["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "No."},
    ]


def test_an_image_that_a_tool_brought_is_shown_to_every_provider() -> None:
    result = ToolResult("c1", (Text("Here:"), wire.IMAGE))
    messages = [user("Hi"), assistant("", [CALL]), Message("tool", (result,))]
    url = "data:image/png;base64,iVBORw=="
    chat = openai_chat.to_wire(messages)
    assert chat[2]["content"] == [{"type": "text", "text": "Here:"}]
    assert chat[3]["content"][1] == {"type": "image_url", "image_url": {"url": url}}
    assert openai_responses.to_wire(messages)[2]["output"][1]["image_url"] == url
    block = anthropic.to_wire(messages)[1][2]["content"][0]["content"][1]
    assert block["source"] == {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}


def test_what_a_provider_can_not_be_shown_is_told_in_words() -> None:
    archive = Media(kind="file", media_type="application/zip", data=b"PK", name="a.zip")
    sound = Media(kind="audio", media_type="audio/wav", data=b"RIFF")
    (message,) = anthropic.to_wire([user([archive, sound])])[1]
    assert [block["text"] for block in message["content"]] == [
        "(a file, a.zip, application/zip)",
        "(a sound, audio/wav)",
    ]


@pytest.mark.parametrize("format", [openai_chat, openai_responses, anthropic])
@pytest.mark.parametrize(
    "messages",
    [
        [user("Hi"), assistant("", [CALL])],
        [user("Hi"), tool_result("c1", "one")],
        [assistant("", [CALL]), user("Hi"), tool_result("c1", "one")],
        [assistant("", [CALL]), tool_result("c1", "one"), tool_result("c1", "again")],
        [Message("user", (CALL,)), tool_result("c1", "one")],
    ],
)
def test_what_does_not_pair_is_never_sent(format: Any, messages: list[Message]) -> None:
    with pytest.raises(BadInput):
        format.to_wire(messages)


def test_tools_are_taken_by_every_provider() -> None:
    from anthropic.types import ToolParam
    from openai.types.chat import ChatCompletionFunctionToolParam
    from openai.types.responses import FunctionToolParam
    from pydantic import TypeAdapter

    tools = [ToolInfo("look", "Look there.", {"type": "object", "properties": {}})]
    wire.must_fit(
        TypeAdapter(list[ChatCompletionFunctionToolParam]), openai_chat.tools_to_wire(tools)
    )
    wire.must_fit(TypeAdapter(list[FunctionToolParam]), openai_responses.tools_to_wire(tools))
    wire.must_fit(TypeAdapter(list[ToolParam]), anthropic.tools_to_wire(tools))
