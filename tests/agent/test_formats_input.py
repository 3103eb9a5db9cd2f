"""What providers send, and what they never should: read whole, or refused in words."""

from __future__ import annotations

from typing import Any

import anthropic.types
import pytest
from openai.types.chat import ChatCompletionMessage

from holdfast import BadInput
from holdfast.agent.formats import anthropic as blocks
from holdfast.agent.formats import openai_chat, openai_responses
from holdfast.log.artifacts import Artifact
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

CALL = ToolCall("c1", "look", '{"at":1}')

PLAIN = [
    system("Be brief."),
    user("Hello"),
    user([Text("Look: "), Media(kind="image", media_type="image/png", data=b"\x89PNG")]),
    user([Media(kind="image", url="https://example.org/a.png")]),
    user([Media(kind="file", media_type="application/pdf", data=b"%PDF", name="a.pdf")]),
    assistant("Let me see.", [CALL, ToolCall("c2", "look", "{oops")]),
    tool_result("c1", "one"),
    tool_result("c2", "two"),
    assistant("Done."),
]


def test_plain_messages_come_back_the_same() -> None:
    assert openai_chat.from_wire(openai_chat.to_wire(PLAIN)) == PLAIN
    assert openai_responses.from_wire(openai_responses.to_wire(PLAIN)) == PLAIN
    said, messages = blocks.to_wire(PLAIN)
    both = user([ToolResult("c1", "one"), ToolResult("c2", "two")])
    assert blocks.from_wire(messages, said) == [*PLAIN[:6], both, PLAIN[8]]


def test_a_message_as_the_openai_client_dumps_it_comes_back_the_same() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{oops"}}
    custom = {"id": "c2", "type": "custom", "custom": {"name": "grep", "input": "a|b"}}
    message = ChatCompletionMessage.model_validate(
        {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call, custom]}
    )
    for data in (message.model_dump(), message.model_dump(exclude_unset=True)):
        (found,) = openai_chat.from_wire([data])
        assert [(call.id, call.arguments) for call in found.calls] == [
            ("c1", "{oops"),
            ("c2", "a|b"),
        ]
        answers = [tool_result("c1", "1"), tool_result("c2", "2")]
        assert openai_chat.to_wire([found, *answers])[0] == data


OUTPUT: list[dict[str, Any]] = [
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "encrypted_content": "gAAA",
    },
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [
            {"type": "output_text", "text": "Here ", "annotations": []},
            {"type": "refusal", "refusal": "but no more."},
        ],
    },
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{}"},
    {"type": "item_of_tomorrow", "id": "it_1"},
]


def test_the_output_of_a_response_is_one_message_and_comes_back_the_same() -> None:
    message = openai_responses.message_of(OUTPUT)
    thinking, searched, here, refusal, call, unknown = message.parts
    assert (thinking.text, here.text, refusal.text) == ("Hm.", "Here ", "but no more.")  # type: ignore[union-attr]
    assert isinstance(thinking, Thinking) and isinstance(refusal, Refusal)
    assert isinstance(searched, Foreign) and isinstance(unknown, Foreign)
    assert call == ToolCall("c1", "look", "{}", {"openai_responses": {"id": "fc_1"}})
    assert openai_responses.from_wire(OUTPUT) == [message]
    assert openai_responses.to_wire([message, tool_result("c1", "!")])[:-1] == OUTPUT


def test_messages_of_the_model_in_a_row_stay_apart() -> None:
    said = [{"role": "assistant", "content": "One."}, {"role": "assistant", "content": "Two."}]
    assert openai_responses.from_wire(said) == [assistant("One."), assistant("Two.")]
    assert openai_responses.to_wire(openai_responses.from_wire(said)) == said


def test_calls_with_a_message_between_them_are_of_one_message() -> None:
    call = {"type": "function_call", "name": "look", "arguments": "{}"}
    items = [
        call | {"call_id": "c1"},
        {"role": "assistant", "content": "And"},
        call | {"call_id": "c2"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "thing_of_tomorrow"},
        {"type": "function_call_output", "call_id": "c2", "output": "two"},
    ]
    messages = openai_responses.from_wire(items)
    assert [message.role for message in messages] == ["assistant", "tool", "tool"]
    assert openai_responses.to_wire(messages) == items


def test_a_message_as_the_anthropic_client_dumps_it_comes_back_the_same() -> None:
    message = anthropic.types.Message.model_validate(
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
                {"type": "redacted_thinking", "data": "xx"},
                {"type": "text", "text": "One", "citations": None},
                {"type": "tool_use", "id": "c1", "name": "look", "input": {"a": [1, None]}},
                {"type": "text", "text": "Two"},
            ],
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
    )
    for content in (message.model_dump()["content"], message.to_dict()["content"]):
        data = {"role": "assistant", "content": content}
        found = blocks.from_wire([{"role": "user", "content": "Hi"}, data])
        kinds = [type(part).__name__ for part in found[1].parts]
        assert kinds == ["Thinking", "Foreign", "Text", "ToolCall", "Text"]
        assert blocks.to_wire([*found, tool_result("c1", "!")])[1][1] == data


@pytest.mark.parametrize("format", [openai_chat, openai_responses, blocks])
def test_five_megabytes_of_text_come_back_the_same(format: Any) -> None:
    text = "Grüße 🎈 " * 400_000
    assert len(text.encode()) > 5_000_000
    messages = [user(text), assistant("", [CALL]), Message("user", (ToolResult("c1", text),))]
    data = format.to_wire(messages)
    back = format.from_wire(data[1]) if format is blocks else format.from_wire(data)
    assert back[0] == messages[0]
    assert back[-1].results[0].content == text


@pytest.mark.parametrize("format", [openai_chat, openai_responses, blocks])
@pytest.mark.parametrize(
    "data",
    [
        None,
        "Hello",
        {"role": "user", "content": "Hello"},
        42,
        [None],
        ["Hello"],
        [{1: 2}],
        [{"role": 7, "content": "Hello"}],
        [{"role": "user", "content": 7}],
        [{"role": "user", "content": ["Hello"]}],
        [{"type": "message", "content": "no role"}],
    ],
)
def test_garbage_is_refused(format: Any, data: Any) -> None:
    with pytest.raises(BadInput):
        format.from_wire(data)


@pytest.mark.parametrize(
    ("format", "message", "complaint"),
    [
        (openai_chat, {"content": "Hi"}, "'role'"),
        (openai_chat, {"role": "tool", "content": "Hi"}, "'tool_call_id'"),
        (openai_chat, {"role": "assistant", "tool_calls": [{"type": "function"}]}, "'id'"),
        (openai_chat, {"role": "assistant", "tool_calls": [{"id": "c"}]}, "function"),
        (openai_chat, {"role": "user", "content": [{"type": "text"}]}, "'text'"),
        (openai_responses, {"type": "function_call", "call_id": "c"}, "'name'"),
        (openai_responses, {"role": "user"}, "content"),
        (
            openai_responses,
            {"role": "assistant", "content": [{"type": "output_text", "text": 1}]},
            "'text'",
        ),
        (blocks, {"content": "Hi"}, "'role'"),
        (blocks, {"role": "user"}, "'content'"),
        (blocks, {"role": "assistant", "content": [{"type": "tool_use", "id": "c"}]}, "'name'"),
        (
            blocks,
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c", "name": "f", "input": "x"}],
            },
            "input",
        ),
        (blocks, {"role": "user", "content": [{"type": "tool_result"}]}, "'tool_use_id'"),
    ],
)
def test_what_is_missing_or_wrong_is_named(format: Any, message: Any, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        format.from_wire([message])


def test_roles_and_parts_that_nobody_knows_come_back_the_same() -> None:
    data = [
        {"role": "developer", "content": "Be brief."},
        {"role": "critic", "content": [{"type": "smell", "of": "roses"}], "mood": "fine"},
    ]
    for format in (openai_chat, openai_responses):
        messages = format.from_wire(data)
        assert [message.role for message in messages] == ["system", "user"]
        assert format.to_wire(messages) == data


STORED = Media(kind="image", artifact=Artifact("d", 4, "s", "cat.png"))


def test_what_was_stored_is_loaded_on_its_way_out() -> None:
    asked = []

    def load(artifact: Artifact) -> bytes:
        asked.append(artifact.name)
        return b"\xff\xd8\xff\xe0"

    messages = [user([STORED])]
    (chat,) = openai_chat.to_wire(messages, load)
    (item,) = openai_responses.to_wire(messages, load)
    (block,) = blocks.to_wire(messages, load)[1]
    url = "data:image/jpeg;base64,/9j/4A=="
    assert chat["content"][0]["image_url"]["url"] == url
    assert item["content"][0]["image_url"] == url
    assert block["content"][0]["source"]["media_type"] == "image/jpeg"
    assert asked == ["cat.png"] * 3


@pytest.mark.parametrize("format", [openai_chat, openai_responses, blocks])
def test_what_was_stored_can_not_be_sent_without_a_way_to_load_it(format: Any) -> None:
    with pytest.raises(BadInput, match=r"cat\.png"):
        format.to_wire([user([STORED])])


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "https://e.org/a.png", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,not base64"}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "file", "file": {"filename": "a", "file_data": "data:text/plain;base64,YQ=="}},
    ],
)
def test_media_of_openai_chat_is_media_of_ours(part: dict[str, Any]) -> None:
    data = [{"role": "user", "content": [part]}]
    (message,) = openai_chat.from_wire(data)
    assert isinstance(message.parts[0], Media)
    assert openai_chat.to_wire([message]) == data


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "detail": "auto", "image_url": "https://e.org/a.png"},
        {"type": "input_image", "detail": "low", "file_id": "file-1"},
        {"type": "input_file", "file_id": "file-1"},
        {"type": "input_file", "file_url": "https://e.org/a.pdf", "filename": "a.pdf"},
        {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERg=="},
    ],
)
def test_media_of_openai_items_is_media_of_ours(part: dict[str, Any]) -> None:
    data = [{"role": "user", "content": [part]}]
    (message,) = openai_responses.from_wire(data)
    assert isinstance(message.parts[0], Media)
    assert openai_responses.to_wire([message]) == data


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "source": {"type": "url", "url": "https://e.org/a.png"}},
        {"type": "image", "source": {"type": "file", "file_id": "f"}},
        {
            "type": "document",
            "title": "A",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
            "citations": {"enabled": True},
        },
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "Grüße"},
        },
    ],
)
def test_media_of_anthropic_is_media_of_ours(block: dict[str, Any]) -> None:
    data = [{"role": "user", "content": [block]}]
    (message,) = blocks.from_wire(data)
    assert isinstance(message.parts[0], Media)
    assert blocks.to_wire([message]) == (None, data)
