"""What is easily got wrong in the agent package is told in words that help."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import BadInput, Holdfast, task, tool
from holdfast.agent import (
    Message,
    Orchestrator,
    Reply,
    ToolCall,
    ToolResult,
    assistant,
    compact,
    context,
    session,
)


def says_yes(request: object) -> Reply:
    return Reply(assistant("Yes."))


yes_agent = Orchestrator("yes_agent", says_yes, plan=False)


@tool(name="ask_user", in_doubt="retry")
def asks_otherwise(question: str) -> str:
    return question


def test_a_tool_can_not_have_the_name_of_one_that_every_agent_has():
    with pytest.raises(BadInput, match="a tool is named 'ask_user'"):
        Orchestrator("two_of_a_name", says_yes, [asks_otherwise])


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"limits": 3}, r"limits=… takes Limits\(…\), not 3"),
        ({"retry": 3}, r"retry=… takes Retry\(…\), not 3"),
        ({"budget_tokens": 0}, r"budget_tokens=0\) must be a whole number"),
        ({"budget_tokens": "8k"}, r"budget_tokens='8k'\) must be a whole number"),
        ({"tools": asks_otherwise}, r"is a list of tools.*: write \[asks_otherwise\]"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_when_the_agent_is_made(wrong, told):
    with pytest.raises(BadInput, match=told):
        Orchestrator("senseless", says_yes, **wrong)


@task
def compacts_by_id() -> str:
    try:
        compact("chat", lambda messages: "short")  # type: ignore[arg-type]
    except BadInput as error:
        return str(error)
    return ""


def test_an_id_is_no_session():
    with Holdfast("memory://") as hf:
        with pytest.raises(BadInput, match=r"context\(\) takes a session.*not 'chat'"):
            context("chat", budget_tokens=100)
        with pytest.raises(BadInput, match=r"yes_agent.run\(\) takes a session"):
            yes_agent.run("chat", "Well?")
        with pytest.raises(BadInput, match=r"yes_agent.arun\(\) takes a session"):
            asyncio.run(yes_agent.arun("chat", "Well?"))
        assert "compact() takes a session" in hf.run(compacts_by_id)


@task
def shows_its_messages() -> list[str]:
    seen = context(session(), budget_tokens=500)
    return [message.text for message in seen.messages]


def test_outside_of_a_task_a_context_says_how_its_messages_are_had():
    with Holdfast("memory://") as hf:
        chat = hf.session("chat")
        chat.say("Hello")
        seen = context(chat, budget_tokens=500)
        with pytest.raises(BadInput, match=r"use shown\(context, session\)"):
            _ = seen.messages
        assert chat.run(shows_its_messages) == ["Hello"]


@pytest.mark.parametrize(
    "wrong",
    [
        Message("user", None),  # type: ignore[arg-type]
        Message("user", 5),  # type: ignore[arg-type]
        Message("user", ({"type": "text"},)),  # type: ignore[arg-type]
        Message("assistant", (ToolCall(["c"], "look", "{}"),)),  # type: ignore[arg-type]
        Message("assistant", (ToolCall(5, "look", "{}"), ToolCall("c", "look", "{}"))),  # type: ignore[arg-type]
        Message("tool", (ToolResult("c", None),)),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_message_is_refused_in_words(wrong):
    with Holdfast("memory://") as hf:
        chat = hf.session("chat")
        with pytest.raises(BadInput, match=r"a message of role|the result of the call"):
            chat.say(wrong)
        assert chat.state.messages == 0


def test_texts_and_numbers_of_a_context_are_checked():
    with Holdfast("memory://") as hf:
        chat = hf.session("chat")
        chat.say("Hello")
        for wrong in ({"system": 5}, {"goal": 5}, {"goal": "\ud800"}):
            with pytest.raises(BadInput, match="must be a text"):
                context(chat, budget_tokens=500, **wrong)
