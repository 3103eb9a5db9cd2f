"""`holdfast sessions`, `session` and `say`"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast import Holdfast, task
from holdfast.agent import Message, ToolCall, assistant, compact, session, tool_result

from .conftest import on_terminal, run


def what_was_said(messages: Sequence[Message]) -> str:
    return f"They spoke {len(messages)} times."


@task
def answers_in_a_session() -> None:
    asked = assistant("Let me look.", [ToolCall("c1", "find_order", '{"id": 7}')])
    session().say(asked, tool_result("c1", "shipped"))
    session().say(assistant("It is on its way."))


@task
def tidies_a_session() -> None:
    compact(session(), what_was_said, keep_turns=2)


@pytest.fixture(autouse=True)
def settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def spoken() -> None:
    times = iter(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=n) for n in range(1000))
    with Holdfast("workspace", clock=lambda: next(times)) as hf:
        chat = hf.session("chat", user="ada", labels={"desk": "1"})
        chat.say("I am allergic to nuts. " * 20, "Where is my order?")
        chat.pin(1)
        chat.run(answers_in_a_session, id="answer-1")
        chat.say("# Thank you")
        chat.run(tidies_a_session, id="tidy-1")
        other = hf.session("other", user="bob")
        other.say("Hello")
        other.end("he left")


def test_show_diff_and_compare_take_sessions_too(spoken, cli):
    code, out, _ = cli("show", "chat")
    assert code == 0 and "Where is my order?" in out and "answer-1" in out
    assert json.loads(cli("show", "chat", "--json")[1])["messages"][1]["name"] == "user"
    code, out, _ = cli("diff", "chat", "--from", "1", "--to", "2")
    assert code == 1 and out.startswith("+ conversation[1]") and "Where is my order?" in out
    code, out, _ = cli("compare", "chat", "other")
    assert code == 1 and "call 1, user, has another result" in out
    assert cli("compare", "chat", "chat")[0] == 0


@pytest.mark.parametrize("command", ["diff", "compare"])
def test_a_session_is_compared_with_no_task(spoken, cli, command):
    code, _, err = cli(command, "chat", "answer-1")
    assert code == 2 and "'chat' is a session, and 'answer-1' is a task" in err
    code, _, err = cli(command, "chat", "nowhere")
    assert code == 5 and "no task 'nowhere'" in err


def test_a_command_for_tasks_says_that_an_id_is_a_sessions(spoken, cli):
    code, _, err = cli("log", "chat")
    assert code == 5 and "There is a session of that id: see `holdfast session chat`" in err


def test_sessions_are_listed_the_newest_first(spoken, cli):
    code, out, _ = cli("sessions")
    assert code == 0
    rows = [line.split()[:5] for line in out.splitlines()]
    assert rows == [
        ["ID", "USER", "STATUS", "MESSAGES", "TASKS"],
        ["other", "bob", "ended", "1", "0"],
        ["chat", "ada", "open", "6", "2"],
    ]


def test_sessions_are_found_by_their_user_and_page_by_page(spoken, cli):
    def ids(*args: str) -> list[str]:
        return [each["id"] for each in json.loads(cli("sessions", "--json", *args).out)]

    assert ids("--user", "ada") == ["chat"]
    first = json.loads(cli("sessions", "--json", "--limit", "1").out)
    assert [each["id"] for each in first] == ["other"]
    assert ids("--limit", "1", "--cursor", first[-1]["cursor"]) == ["chat"]
    assert f"--cursor {first[-1]['cursor']}" in cli("sessions", "--limit", "1").out
    assert cli("sessions", "--user", "eve").out == "no sessions match\n"


def test_sessions_that_the_index_lost_are_listed_all_the_same(spoken, tmp_path, cli):
    before = cli("sessions", "--json").out
    for index in tmp_path.glob("workspace/**/*index*"):
        if index.is_file():
            index.unlink()
    assert cli("sessions", "--json").out == before


def test_a_store_without_sessions_says_so(cli):
    Holdfast("workspace").close()
    assert cli("sessions").out == "no sessions in workspace\n"
    assert json.loads(cli("sessions", "--json").out) == []


def test_a_damaged_session_is_named_and_hides_no_other(spoken, tmp_path, cli):
    log = tmp_path / "workspace/sessions/chat/events.jsonl"
    log.write_bytes(log.read_bytes().replace(b"allergic", b"addicted"))
    code, out, err = cli("sessions")
    assert code == 4
    assert "other" in out
    assert "sessions/chat" in err
    assert cli("session", "chat").code == 4
    assert cli("session", "other").code == 0


def test_a_session_shows_who_said_what_its_tasks_its_pins_and_its_summaries(spoken, cli):
    code, out, _ = cli("session", "chat")
    assert code == 0
    lines = out.splitlines()
    assert lines[:3] == ["chat  open", "  user     ada", "  labels   desk=1"]
    assert "  pinned   messages 1" in lines
    assert "  answer-1  answers_in_a_session  completed" in lines
    assert "Summaries  1, the newest last" in lines
    assert "       They spoke 4 times." in lines
    said = lines[lines.index("Conversation  6 messages") + 1 :]
    heads = [line.split() for line in said if not line.startswith("       ")]
    assert [head[:2] for head in heads] == [
        ["1", "user"],
        ["2", "user"],
        ["3", "assistant"],
        ["4", "tool"],
        ["5", "assistant"],
        ["6", "user"],
    ]
    assert heads[0][2] == "pinned,"
    assert heads[2][-3:] == ["task", "answer-1,", "say=1"]
    assert "       Let me look." in said
    assert '       assistant calls find_order({"id": 7})' in said


def test_of_a_long_session_the_last_messages_or_those_of_a_task_are_shown(spoken, cli):
    def numbers(*args: str) -> list[int]:
        return [
            json.loads(line)["number"]
            for line in cli("session", "chat", "--json", *args).out.splitlines()
        ]

    assert numbers() == [1, 2, 3, 4, 5, 6]
    assert numbers("--last", "2") == [5, 6]
    assert numbers("--last", "100") == [1, 2, 3, 4, 5, 6]
    assert numbers("--task", "answer-1") == [3, 4, 5]
    assert numbers("--task", "answer-1", "--last", "1") == [5]
    assert numbers("--task", "nobody") == []
    assert "Conversation  2 of 6 messages" in cli("session", "chat", "--last", "2").out


def test_a_conversation_is_a_page_of_markdown_in_which_no_message_can_pass_for_a_heading(
    spoken, cli
):
    page = cli("session", "chat", "--markdown").out
    headings = [line for line in page.splitlines() if line.startswith("#")]
    assert headings == [
        "# Session chat",
        "## Summary up to message 4",
        "## 1 user, pinned",
        "## 2 user",
        "## 3 assistant",
        "## 4 tool",
        "## 5 assistant",
        "## 6 user",
    ]
    assert "> # Thank you" in page
    assert cli("session", "chat", "--markdown", "--json").code == 2


def test_a_long_message_is_cut_on_a_terminal_unless_the_whole_is_asked_for(tmp_path):
    with Holdfast("workspace") as hf:
        hf.session("chat").say("word " * 2000 + "end")
    assert "--full shows them" in on_terminal("session", "chat", cwd=tmp_path)
    assert "end" in on_terminal("session", "chat", "--full", cwd=tmp_path)
    assert "end" in run("session", "chat", cwd=tmp_path).out


def test_a_session_that_is_not_there_is_named_with_those_that_may_be_meant(spoken, cli):
    code, _, err = cli("session", "chats")
    assert code == 5
    assert "no session 'chats' in workspace. Did you mean chat?" in err
    assert "see `holdfast sessions`" in cli("session", "zzz").err
    assert cli("say", "chats", "Hello").code == 5


def test_what_is_said_is_in_the_conversation_once_for_each_key(spoken, cli):
    assert cli("say", "chat", "And now?").out == "message 7 of session chat\n"
    assert cli("say", "chat", "And then?", "--key", "r-1").out == "message 8 of session chat\n"
    assert cli("say", "chat", "And then?", "--key", "r-1").out == "message 8 of session chat\n"
    code, _, err = cli("say", "chat", "Something else", "--key", "r-1")
    assert code == 2
    assert "something else was said under the key 'r-1'" in err
    assert json.loads(cli("say", "chat", "-", "--json").out)["number"] == 9
    assert cli("say", "chat", " ").code == 2


def test_a_session_is_begun_only_for_a_user_that_is_named(tmp_path, cli):
    assert cli("say", "chat", "Hello").code == 5
    assert not (tmp_path / "workspace").exists()
    assert cli("say", "chat", "Hello", "--user", "ada").code == 0
    assert cli("say", "chat", "Hello again").code == 0
    assert cli("say", "chat", "It is me", "--user", "bob").code == 2
    assert [each["user"] for each in json.loads(cli("sessions", "--json").out)] == ["ada"]


@pytest.mark.parametrize("url", ["sqlite:///sessions.db"])
def test_they_are_the_same_in_a_database(cli, url):
    assert cli("say", "chat", "Hello", "--user", "ada", "--url", url).code == 0
    assert cli("session", "chat", "--url", url).code == 0
    (row,) = json.loads(cli("sessions", "--user", "ada", "--json", "--url", url).out)
    assert (row["id"], row["messages"]) == ("chat", 1)
