"""Compaction adds a summary and changes nothing else, whatever goes wrong."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast import BadInput, Holdfast, HoldfastError, Retry, step, task
from holdfast.agent import (
    Compaction,
    Reply,
    ToolCall,
    Usage,
    assistant,
    compact,
    open_session,
    session,
    system,
    tool_result,
    user,
)
from holdfast.core.events import Summarized

calls: list[list[str]] = []
answers: list[object] = []


def scripted_summary(messages):
    calls.append([message.text for message in messages])
    answer = answers.pop(0) if answers else f"summary {len(calls)}"
    if isinstance(answer, BaseException):
        raise answer
    return answer


@task
def compacts(keep: int, over: int = 0) -> Compaction:
    return compact(session(), scripted_summary, keep_turns=keep, over_tokens=over)


@pytest.fixture
def chat(tmp_path):
    calls.clear()
    answers.clear()
    with Holdfast(tmp_path) as hf:
        made = hf.session("s")
        made.say(system("Be brief."), *(f"turn {n}: and so on and on" for n in range(1, 9)))
        yield made


def lines(chat) -> list[bytes]:
    return list(chat.book.store.read("sessions/s"))


def test_a_summary_names_what_it_stands_for_and_the_originals_stay(chat):
    before = lines(chat)
    done = chat.run(compacts, 3, id="t")
    assert (done.done, done.upto) == (True, 6) and done.tokens_after < done.tokens_before
    (summary,) = chat.state.summaries
    assert (summary.upto, summary.base, summary.task, summary.step) == (6, 0, "t", "summarized=1")
    assert chat.summary == "summary 1"
    assert calls == [[f"turn {n}: and so on and on" for n in range(1, 6)]], "not the system message"
    assert lines(chat)[: len(before)] == before
    assert len(list(chat.messages())) == 9


def test_a_summary_of_a_summary_stands_for_both(chat):
    chat.run(compacts, 3, id="t1")
    chat.say("turn 9: and so on and on", "turn 10: and so on and on")
    assert chat.run(compacts, 3, id="t2").upto == 8
    assert calls[1] == [
        "Summary of the conversation up to message 6:\nsummary 1",
        "turn 6: and so on and on",
        "turn 7: and so on and on",
    ]
    first, second = chat.state.summaries
    assert second.base == first.seq


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        (None, "empty"),
        (ValueError("the model is ill"), "the model is ill"),
        (7, "a summary is a text"),
        ("long " * 500, "no shorter than what it stands for"),
    ],
)
def test_a_summary_that_is_no_good_changes_nothing(chat, answer, why):
    before = lines(chat)
    answers.append(answer)
    done = chat.run(compacts, 3, id="t")
    assert not done.done and why in done.why
    assert lines(chat) == before and chat.summary == ""
    assert chat.run(compacts, 3, id="t2").done, "and the next one may be better"


def test_little_is_not_summarized(chat):
    assert chat.run(compacts, 8, id="a").why == "there is nothing to summarize yet"
    assert chat.run(compacts, 3, 10_000, id="b").why == "there is nothing to summarize yet"
    assert calls == []
    with pytest.raises(HoldfastError, match="keep_turns"):
        chat.run(compacts, 0, id="c")
    with pytest.raises(HoldfastError, match=r"compact\(\)"):
        compact(chat, scripted_summary)


def test_calls_are_summarized_with_their_results(chat):
    chat.say(assistant("", [ToolCall("c", "look", "{}")]), tool_result("c", "found it"))
    chat.say("turn 9: and so on and on")
    chat.run(compacts, 1, id="t")
    assert calls[0][-2:] == ["", ""] and chat.state.summaries[0].upto == 11


@task
def compacts_between(keep: int) -> bool:
    def while_another_comes_first(messages) -> str:
        other_came.set()
        may_go_on.wait(60)
        return "the later one"

    return compact(session(), while_another_comes_first, keep_turns=keep).done


other_came, may_go_on = threading.Event(), threading.Event()


def test_two_compactions_at_once_do_not_collide(tmp_path, chat):
    outcomes = []
    with Holdfast(tmp_path) as other:
        slow = threading.Thread(
            target=lambda: outcomes.append(other.session("s").run(compacts_between, 3, id="slow"))
        )
        slow.start()
        assert other_came.wait(60)
        assert chat.run(compacts, 3, id="quick").done
        may_go_on.set()
        slow.join(60)
    assert outcomes == [False]
    (summary,) = chat.state.summaries
    assert summary.task == "quick" and chat.summary == "summary 1"


def test_a_crash_after_the_summary_was_kept_keeps_it_once(chat, monkeypatch):
    from holdfast.agent import flow

    record = flow._record

    def dies_at_the_last(scope, path, name, value):
        if name == "summarized":
            raise KeyboardInterrupt
        return record(scope, path, name, value)

    monkeypatch.setattr(flow, "_record", dies_at_the_last)
    with pytest.raises(KeyboardInterrupt):
        chat.run(compacts, 3, id="t")
    monkeypatch.undo()
    assert chat.run(compacts, 3, id="t").done
    assert len(chat.state.summaries) == 1 and len(calls) == 1, "and the model was asked once"


tries = [0]


@step(retry=Retry(attempts=3, delay_s=0.001))
def flaky_summary(messages) -> Reply:
    tries[0] += 1
    if tries[0] < 3:
        raise ConnectionError("busy")
    return Reply(assistant("at last"), Usage(100, 5, cost=0.5))


@task
def compacts_flakily() -> Compaction:
    return compact(session(), flaky_summary, keep_turns=3)


def test_a_step_brings_its_retries_and_a_reply_its_usage(chat):
    tries[0] = 0
    done = chat.run(compacts_flakily, id="t")
    assert done.done and done.usage == Usage(100, 5, cost=0.5)
    assert chat.summary == "at last" and tries == [3]


async def async_summary(messages) -> str:
    await asyncio.sleep(0)
    return "short"


@task
async def compacts_async() -> bool:
    return (await compact(session(), async_summary, keep_turns=2)).done


def test_an_async_task_compacts_with_an_async_function(chat):
    assert chat.run(compacts_async, id="t") is True
    assert chat.run(compacts_async, id="t") is True
    assert chat.summary == "short"


def test_what_is_no_function_is_refused(chat):
    @task(name="compacts_with_a_text")
    def body() -> str:
        try:
            compact(session(), "summary", keep_turns=2)  # type: ignore[arg-type]
        except BadInput as error:
            return str(error)
        return ""

    assert "takes a function" in chat.run(body)


def test_the_events_say_what_happened(chat):
    chat.run(compacts, 3, id="t")
    from holdfast.log.reading import read_events

    events = list(read_events(chat.book.store, "sessions/s"))
    assert isinstance(events[-1], Summarized)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert open_session(chat.book.store, "s").summary == "summary 1"
    assert user("x").role == "user"
