"""Images and files reach the model: in the goal, and in what a tool returns."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from anthropic import Anthropic
from openai import OpenAI

from holdfast import BadInput, task, tool
from holdfast.agent import Media, Text, assistant, make_calls, results_of, user
from holdfast.agent.adapters import AnthropicMessages, OpenAIChat, OpenAIResponses
from holdfast.testing import ScriptedModel
from tests.agent.talking import AsyncModel, Model, calls, conversation, make, talk
from tests.flavors import Crash

pytestmark = pytest.mark.holdfast("memory://")

PHOTO, PAGE = b"\x89PNG a photo", b"\x89PNG a page"


def picture(data: bytes) -> Media:
    return Media(kind="image", media_type="image/png", data=data)


GOAL = user([Text("What is this?"), picture(PHOTO)])


@tool(name="scan_page", in_doubt="retry")
def scan_page(number: int) -> list[str | Media]:
    """Scan a page of a book."""
    return [f"page {number}:", picture(PAGE)]


def sent(data: Any) -> str:
    return json.dumps(data)


def in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize("kind", [OpenAIChat, OpenAIResponses, AnthropicMessages])
def test_every_provider_is_sent_the_images_of_the_goal_and_of_the_tools(hf, kind):
    client = Anthropic if kind is AnthropicMessages else OpenAI
    with (
        ScriptedModel([calls(("scan_page", '{"number": 3}')), "A cat."]) as server,
        client(api_key="any", base_url=server.url) as opened,
    ):
        agent = make(kind(opened, "any"), [scan_page])
        assert agent.run(hf.session("s1"), GOAL, id="t1").answer == "A cat."
        assert agent.run(hf.session("s1"), GOAL, id="t1").answer == "A cat.", "it is the same task"
        first, second = (sent(seen.data) for seen in server.requests)
    assert in_base64(PHOTO) in first and in_base64(PAGE) not in first
    assert in_base64(PHOTO) in second and "page 3:" in second
    assert second.count(in_base64(PAGE)) == 1, "as an image, and not as text as well"
    assert hf.task("t1").state.status == "completed"


@pytest.mark.parametrize("model", [Model, AsyncModel])
def test_the_conversation_keeps_their_bytes_apart(hf, model):
    said = model([calls(("scan_page", '{"number": 3}')), "A cat."])
    agent = make(said, [scan_page])
    assert talk(hf, agent, GOAL).answer == "A cat."
    asked, _, scanned, _ = conversation(hf)
    (result,) = scanned.results
    text, page = result.content
    assert (asked.text, text) == ("What is this?", Text("page 3:"))
    for media, size in ((asked.parts[1], len(PHOTO)), (page, len(PAGE))):
        assert media.data is None and media.artifact.size_bytes == size


def test_a_crash_after_the_tool_shows_the_model_the_same(hf):
    said = [calls(("scan_page", '{"number": 3}')), Crash("in the model"), "A cat."]
    model = Model(said)
    agent = make(model, [scan_page])
    with pytest.raises(Crash):
        talk(hf, agent, GOAL)
    assert talk(hf, agent, GOAL).answer == "A cat."
    before, after = model.requests[1:]
    assert before.messages == after.messages
    assert before.load is not None
    media = after.messages[-1].results[0].content[1]
    assert before.load(media.artifact) == PAGE


def test_an_image_alone_is_a_result_and_in_words_it_is_named(hf):
    @tool(name="scan_alone", in_doubt="retry")
    def scan_alone() -> Media:
        return picture(PAGE)

    @task(name="scans_alone")
    def scans_alone() -> list[str]:
        made = make_calls(calls(("scan_alone", "{}")), [scan_alone])
        (message,) = results_of(made)
        assert message.results[0].content == (picture(PAGE),)
        return [each.observation for each in made]

    assert hf.run(scans_alone) == ["(image: image/png, 11 bytes)"]


@pytest.mark.parametrize("goal", [assistant("Hello"), 42, [Text("Hello")], None])
def test_a_goal_that_is_none_is_refused_before_the_task_begins(hf, goal):
    agent = make(Model(["Hello"]))
    with pytest.raises(BadInput, match="takes a goal: a text, or a message"):
        agent.run(hf.session("s1"), goal, id="t1")
    with pytest.raises(BadInput, match="takes a goal"):
        asyncio.run(agent.arun(hf.session("s1"), goal, id="t1"))
    assert not list(hf.tasks())
