"""`holdfast context`"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Keys, checkpoint, restore, step, task, tool
from holdfast.agent import (
    Context,
    Media,
    Message,
    Orchestrator,
    Reply,
    Request,
    Text,
    ToolCall,
    Usage,
    assistant,
    compact,
    context,
    session,
    user,
)
from holdfast.agent.contexts import messages_of
from holdfast.agent.model_calls import Nudge, asked_in
from holdfast.log.store_calls import acquire_one

SEEN: list[list[str]] = []
"""What the models of this page really saw, call by call."""


def remember(messages: Sequence[Message]) -> None:
    SEEN.append([message.text for message in messages])


@tool(in_doubt="retry")
def order_status_to_show(number: int) -> str:
    "Look up where an order is."
    return "shipped"


def desk_model(request: Request) -> Reply:
    remember(request.messages)
    if len(SEEN) == 1:
        asked = assistant("", [ToolCall("c1", "order_status_to_show", '{"number": 7}')])
        return Reply(asked, stop="tool_calls", usage=Usage(100, 5))
    if len(SEEN) == 2:
        return Reply(assistant("It is on its"), stop="length")
    return Reply(assistant(" way."))


desk = Orchestrator(
    "desk_to_show", desk_model, [order_status_to_show], plan=False, system="Be kind."
)


@step
def answer_to_show(seen: Context) -> str:
    remember(seen.messages)
    return f"answer {len(SEEN)}"


@step
def wrapped_to_show(asked: dict[str, list[Context]]) -> str:
    remember(asked["of"][0].messages)
    return "answered"


@step
def beside_anything_to_show(both: tuple[Any, Context]) -> str:
    remember(both[1].messages)
    return "answered"


@step
def makes_its_own_to_show() -> str:
    remember(context(session(), budget_tokens=1000, system="Made inside.").messages)
    return "answered"


@step
def looks_like_one(value: dict[str, object]) -> None: ...


def in_short(messages: Sequence[Message]) -> str:
    return f"They spoke {len(messages)} times."


@task
def compacts_to_show() -> None:
    for number in range(9):
        session().say(f"question {number} " + "and so on " * 40)
        answer_to_show(context(session(), budget_tokens=500, keep_turns=2))
        if number in (3, 6):
            compact(session(), in_short, keep_turns=2)


@task
def checkpoints_to_show() -> int:
    count = restore(0)
    while count < 40:
        session().say(f"round {count}")
        answer_to_show(context(session(), budget_tokens=2000))
        count = checkpoint(count + 1)
    return count


@task
def other_ways_to_show() -> None:
    session().say("Hello")
    wrapped_to_show({"of": [context(session(), budget_tokens=5000)]})
    makes_its_own_to_show()
    beside_anything_to_show(({1, 2}, context(session(), budget_tokens=1000, plan=["look"])))
    looks_like_one(dict.fromkeys(("session", "seq", "sections", "tokens", "budget", "digest"), 1))


@pytest.fixture(autouse=True)
def settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SEEN.clear()
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def desked() -> None:
    with Holdfast("workspace") as hf:
        desk.run(hf.session("chat", user="ada"), "Where is order 7?", id="t")


def seen_by(cli, task_id: str, *more: str) -> list[list[str]]:
    """What every model call of a task saw, as the command tells it."""
    paths = [call["path"] for call in json.loads(cli("context", task_id, "--json", *more).out)]
    found = []
    for path in paths:
        ended = cli("context", task_id, "--step", path, "--json", *more)
        assert ended.code == 0, ended.err
        told = json.loads(ended.out, strict=False)
        messages = [*told["messages"], *told["nudges"]]
        found.append([text_of(message["content"]) for message in messages])
    return found


def text_of(content: str | list[dict[str, str]]) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def test_the_calls_of_an_agent_are_listed_and_each_shows_what_its_model_saw(desked, cli):
    lines = cli("context", "t").out.splitlines()
    assert lines[0].split() == [
        "CALL",
        "NAME",
        "TOKENS",
        "BUDGET",
        "MESSAGES",
        "LEFT",
        "OUT",
        "SUMMARY",
    ]
    assert [line.split()[:2] for line in lines[1:4]] == [
        ["@2.1", "desk_to_show_model"],
        ["@4.1", "desk_to_show_model"],
        ["@6.1", "desk_to_show_model"],
    ]
    assert lines[4] == "to see what one saw:  holdfast context t --step @6.1"
    assert seen_by(cli, "t") == SEEN
    assert len(SEEN) == 3


def test_the_page_says_what_was_seen_of_which_session_and_with_which_tools(desked, cli):
    code, out, _ = cli("context", "t", "--step", "@6.1")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "t  call @6.1, desk_to_show_model"
    assert lines[1].startswith("  session   chat, up to message 3 (by now it has 4)")
    assert " of a budget of 32,000 (as counted × " in lines[2]
    assert lines[3] == "  left out  nothing"
    assert "       The goal: Where is order 7?" in lines
    assert '       assistant calls order_status_to_show({"number": 7})' in lines
    assert "       result: shipped" in lines
    nudges = lines[lines.index("On top of that  in no conversation") :]
    assert "       It is on its" in nudges
    assert "Tools  ask_user, order_status_to_show" in nudges
    assert "additionalProperties" not in out
    assert '"number"' in cli("context", "t", "--step", "@6.1", "--full").out.partition("Tools")[2]


def test_what_was_seen_before_and_after_a_compaction_is_told_exactly(cli):
    with Holdfast("workspace") as hf:
        hf.session("chat").run(compacts_to_show, id="t")
        assert len(hf.session("chat").state.summaries) == 2
    assert seen_by(cli, "t") == SEEN
    rows = json.loads(cli("context", "t", "--json").out)
    assert [row["summarized_upto"] for row in rows] == [None] * 4 + [2] * 3 + [5] * 2
    assert rows[3]["left_out"] > 0
    told = cli("context", "t", "--step", rows[3]["path"]).out
    assert f"left out  {rows[3]['left_out']} message" in told
    page = cli("context", "t", "--step", rows[-1]["path"]).out
    assert "  summary   up to message 5\n" in page
    assert "Summary of the conversation up to message 5:\n       They spoke" in page


def test_calls_from_before_a_checkpoint_are_told_too(cli):
    with Holdfast("workspace") as hf:
        hf.session("chat").run(checkpoints_to_show, id="t")
    assert len(SEEN) == 40
    assert seen_by(cli, "t") == SEEN


def test_a_context_is_found_wherever_a_step_has_it_from_and_only_there(cli):
    with Holdfast("workspace") as hf:
        hf.session("chat").run(other_ways_to_show, id="t")
    rows = json.loads(cli("context", "t", "--json").out)
    assert [row["name"] for row in rows] == [
        "wrapped_to_show",
        "makes_its_own_to_show",
        "beside_anything_to_show",
    ]
    assert seen_by(cli, "t") == SEEN
    assert "Made inside." in cli("context", "t", "--step", "2").out


def test_an_encrypted_store_tells_it_with_its_key(tmp_path, cli):
    key = tmp_path / "key"
    key.write_text(Keys.new())
    with Holdfast("workspace", key=key) as hf:
        hf.session("chat").run(compacts_to_show, id="t")
    assert seen_by(cli, "t", "--key-file", str(key)) == SEEN
    assert cli("context", "t").code == 2


@pytest.mark.parametrize("form", ["openai", "responses", "anthropic"])
def test_the_request_is_told_in_the_format_of_a_provider(desked, cli, form):
    request = json.loads(cli("context", "t", "--step", "@6.1", "--format", form).out)
    said = request["input" if form == "responses" else "messages"]
    assert "shipped" in json.dumps(said)
    assert "Be kind." in json.dumps(request["system"] if form == "anthropic" else said)
    assert "It is on its" in json.dumps(said)
    assert len(request["tools"]) == 2


def test_a_format_has_the_bytes_of_stored_images(cli):
    with Holdfast("workspace") as hf:
        chat = hf.session("chat")
        image = Media(kind="image", media_type="image/png", data=b"the image")
        chat.say(user([Text("Look:"), image]))
        chat.run(other_ways_to_show, id="t")
    request = cli("context", "t", "--step", "1", "--format", "openai").out
    assert "data:image/png;base64,dGhlIGltYWdl" in request
    assert "(image: image/png, 9 bytes)" in cli("context", "t", "--step", "1").out


def test_a_call_that_saw_nothing_is_named_with_those_that_did(desked, cli):
    code, _, err = cli("context", "t", "--step", "@2.2")
    assert code == 2
    assert "call '@2.2' was given no context: its model calls are @2.1, @4.1, @6.1" in err
    assert "call '99' is none that it has made" in cli("context", "t", "--step", "99").err
    assert cli("context", "t", "--format", "openai").code == 2
    assert cli("context", "u").code == 5


def test_a_task_without_a_model_call_says_so(cli):
    @task
    def calls_no_model() -> None: ...

    with Holdfast("workspace") as hf:
        hf.run(calls_no_model, id="t")
    assert cli("context", "t").out == "task 't' has made no call that was given a context\n"
    assert json.loads(cli("context", "t", "--json").out) == []


def delete_session() -> None:
    with Holdfast("workspace") as hf:
        hf.store.delete(acquire_one(hf.store, "sessions/chat", "a test", 30))


def test_a_session_that_is_gone_is_named_with_what_it_is_wanted_for(desked, cli):
    delete_session()
    code, _, err = cli("context", "t", "--step", "@2.1")
    assert code == 5
    assert "no session 'chat' in workspace: it has the messages that call '@2.1' saw" in err


def test_a_session_that_was_changed_is_damage(desked, tmp_path, cli):
    log = tmp_path / "workspace/sessions/chat/events.jsonl"
    log.write_bytes(log.read_bytes().replace(b"order 7", b"order 8"))
    assert cli("context", "t", "--step", "@2.1").code == 4


def test_a_session_that_was_begun_anew_under_the_id_is_not_shown_for_the_old_one(desked, cli):
    delete_session()
    with Holdfast("workspace") as hf:
        hf.session("chat").say("Quite", "another", "talk", "than", "before")
    code, out, err = cli("context", "t", "--step", "@4.1")
    assert (code, out) == (4, "")
    assert "other ones than it was made of" in err


def test_what_is_found_in_the_log_is_the_very_context(desked):
    with Holdfast("workspace") as hf:
        calls = list(asked_in(hf.task("t")))
        book = hf.session("chat").book
        assert [len(messages_of(call.context, book)) + len(call.call.nudges) for call in calls] == [
            call.count for call in calls
        ]
        assert calls[2].call.nudges[0] == Nudge("assistant", "It is on its")
