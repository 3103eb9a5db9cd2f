"""Contexts: within the budget, valid for any provider, and known forever."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import BadInput, Holdfast, step, task
from holdfast.agent import (
    Context,
    Media,
    Message,
    Session,
    ToolCall,
    assistant,
    compact,
    context,
    open_session,
    session,
    shown,
    system,
    tool_result,
    user,
)
from holdfast.agent.compaction import SHORTEST, cut, cut_text
from holdfast.agent.contexts import MOST_LEFT_OUT, messages_of, note_text
from holdfast.errors import LogDamaged
from holdfast.log.messages import is_valid
from holdfast.log.tokens import Estimate
from tests.thorough import THOROUGH

COUNT = Estimate()


def count(messages) -> int:
    return sum(map(COUNT.count, messages))


@pytest.fixture
def chat():
    with Holdfast("memory://") as hf:
        yield hf.session("s", user="ada")


def seen(chat: Session, **options) -> list[str]:
    return [message.text for message in shown(context(chat, **options), chat)]


def test_the_order_is_system_pinned_goal_plan_summary_and_recent_turns(chat):
    chat.say(system("Be kind."), "I am allergic to nuts.", *(f"turn {n}" for n in range(12)))
    chat.pin(2)
    chat.run(compact_all, id="t")
    found = seen(chat, budget_tokens=10_000, system="You help.", goal="Lunch", plan=["ask", "book"])
    assert found[:4] == ["You help.", "Be kind.", "I am allergic to nuts.", "The goal: Lunch"]
    assert found[4] == "The plan:\n- [ ] ask\n- [ ] book"
    assert found[5].startswith("Summary of the conversation up to message 8:\nin short")
    assert found[6:] == [f"turn {n}" for n in range(6, 12)]


def in_short(messages) -> str:
    return "in short"


@task
def compact_all() -> bool:
    return compact(session(), in_short).done


def test_what_is_left_out_is_told_to_the_caller_and_to_the_model(chat):
    chat.say(*(f"turn {n} " + "x" * 300 for n in range(40)))
    made = context(chat, budget_tokens=2_000)
    left = made.left_out
    assert left.messages == 40 - sum(m.role == "user" for m in shown(made, chat)) > 0
    assert left.ranges == ((1, left.messages),)
    assert left.tokens == count(chat.messages(1, left.messages))
    assert f"{left.messages} earlier messages" in shown(made, chat)[0].text


def test_a_call_is_never_cut_from_its_result(chat):
    for n in range(30):
        asked = assistant("", [ToolCall(f"a{n}", "f", "{}"), ToolCall(f"b{n}", "f", "{}")])
        chat.say(f"q{n}", asked, tool_result(f"a{n}", "x" * 50), tool_result(f"b{n}", "y" * 50))
    for budget in range(300, 3000, 100):
        made = context(chat, budget_tokens=budget)
        assert is_valid(shown(made, chat))
        assert made.tokens <= budget


def test_recent_turns_come_with_the_question_they_answer(chat):
    chat.say(*("x" * 500,) * 3, "What is the weather?")
    for n in range(8):
        chat.say(assistant("", [ToolCall(f"c{n}", "look", "{}")]), tool_result(f"c{n}", "rain"))
    found = shown(context(chat, budget_tokens=600), chat)
    assert "What is the weather?" in [message.text for message in found]
    assert found[-1].results[0].call_id == "c7"


def test_long_texts_are_cut_before_turns_are_given_up(chat):
    chat.say(system("Be brief."), *(f"{n}" * 4000 for n in range(6)))
    made = context(chat, budget_tokens=2_000)
    found = shown(made, chat)
    assert made.tokens <= 2_000 and len([m for m in found if m.role == "user"]) == 6
    assert all("characters are left out here" in m.text for m in found if m.role == "user")
    assert made.left_out.cut_to >= SHORTEST
    assert f"{made.left_out.cut_to:,} characters cut short" in found[1].text
    assert made.tokens > 1_500, "no more is cut than has to be"
    assert [m.text for m in chat.messages(2, 2)] == ["0" * 4000], "the original stays"


def test_a_budget_too_small_for_the_system_message_is_refused(chat):
    chat.say(system("x" * 4000), "hello")
    with pytest.raises(BadInput, match="a budget of 100 tokens has no room"):
        context(chat, budget_tokens=100)
    for budget in (0, -1, 1.5, True, None):
        with pytest.raises(BadInput, match="budget_tokens"):
            context(chat, budget_tokens=budget)


def test_an_empty_conversation_has_a_context(chat):
    assert seen(chat, budget_tokens=100, system="Hi") == ["Hi"]


def test_what_a_provider_reports_corrects_the_count(chat):
    chat.say(*("x" * 300 for _ in range(30)))
    before = context(chat, budget_tokens=2_000)
    used = {
        "input_tokens": 2 * before.tokens,
        "counted_tokens": before.tokens,
        "counter": COUNT.name,
    }
    chat.say(assistant("ok", meta={"usage": used}))
    after = context(chat, budget_tokens=2_000)
    assert after.ratio == pytest.approx(2.0, rel=0.01)
    assert len(shown(after, chat)) < 0.7 * len(shown(before, chat))
    assert after.tokens <= 2_000


# In a task


@step
def model_of_contexts(seen: Context) -> str:
    return f"{len(seen.messages)} messages, the last: {seen.messages[-1].text}"


died = [False]


@step
def dies_after_the_context() -> None:
    if died[0]:
        raise KeyboardInterrupt


@task
def answers() -> str:
    made = context(session(), budget_tokens=1000)
    dies_after_the_context()
    return model_of_contexts(made)


def test_a_resumed_task_goes_on_with_the_context_it_had(chat):
    chat.say("one")
    died[0] = True
    with pytest.raises(KeyboardInterrupt):
        chat.run(answers, id="t")
    died[0] = False
    chat.say("two")
    assert chat.run(answers, id="t") == "1 messages, the last: one"


def test_a_context_is_small_in_the_log_however_long_the_conversation_is(tmp_path):
    with Holdfast(tmp_path) as hf:
        chat = hf.session("s")
        chat.say(*(f"{n} " + "x" * 1000 for n in range(100)))
        made = context(chat, budget_tokens=1_000_000)
        assert len(shown(made, chat)) == 100
        assert len(msgspec.json.encode(made)) < 300


def test_what_the_model_saw_is_known_after_compaction(chat):
    chat.say(*(f"turn {n} and a few words more" for n in range(20)))
    before = context(chat, budget_tokens=10_000)
    texts = [message.text for message in shown(before, chat)]
    chat.run(compact_all, id="t")
    chat.say("more")
    assert [message.text for message in shown(before, chat)] == texts
    assert len(shown(context(chat, budget_tokens=10_000), chat)) < len(texts)


def test_a_context_of_another_conversation_is_refused(chat):
    chat.say("one")
    made = context(chat, budget_tokens=100)
    with pytest.raises(LogDamaged, match="other ones than it was made of"):
        messages_of(msgspec.structs.replace(made, digest="0" * 16), chat.book)
    with pytest.raises(LogDamaged):
        messages_of(msgspec.structs.replace(made, seq=99), chat.book)


# Any conversation

SIZES = st.sampled_from([0, 1, 20, 300, 3000])


@st.composite
def turns_said(draw):
    kind = draw(st.sampled_from(["user", "assistant", "system", "calls"]))
    text = "wörd " * (draw(SIZES) // 5) or "x"
    if kind == "calls":
        number = draw(st.integers(1, 3))
        calls = [ToolCall(f"c{n}", "look", '{"q": 1}') for n in range(number)]
        return [
            assistant(draw(st.sampled_from(["", text])), calls),
            *(tool_result(f"c{n}", "ö" * draw(SIZES)) for n in range(number)),
        ]
    return [Message(kind, text)]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), turns_said()),
        st.tuples(st.just("pin"), st.integers(1, 40)),
        st.tuples(st.just("compact"), st.sampled_from(["short", "", "long " * 5000, "fails"])),
        st.tuples(st.just("look"), st.integers(60, 4000)),
    ),
    max_size=30,
)

summaries = [""]


def any_summary(messages) -> str:
    if not is_valid(messages):
        raise AssertionError("a summary of a call without its result")
    if summaries[0] == "fails":
        raise ValueError("no summary today")
    return summaries[0]


@task
def compacts_as_told(keep: int) -> bool:
    return compact(session(), any_summary, keep_turns=keep).done


@settings(max_examples=150 if THOROUGH else 50, deadline=None)
@given(ACTIONS, st.integers(1, 7))
def test_any_conversation_stays_valid_within_its_budget_and_whole(actions, keep):
    with Holdfast("memory://") as hf:
        chat = hf.session("s")
        said: list[Message] = []
        tasks = 0
        for what, value in [*actions, ("look", 100), ("look", 3000), ("look", 10**6)]:
            if what == "say":
                said += chat.say(*value)
            elif what == "pin" and value <= len(said):
                chat.pin(value)
            elif what == "compact":
                summaries[0], tasks = value, tasks + 1
                before = chat.state.seq
                done = chat.run(compacts_as_told, keep, id=f"t{tasks}")
                assert done == (chat.state.seq > before)
                assert not done or value == "short" or len(value) > 5
            elif what == "look":
                _must_be_right(chat, said, value, keep)
        assert list(open_session(hf.store, "s").messages()) == said


def _must_be_right(chat: Session, said: list[Message], budget: int, keep: int) -> None:
    try:
        made = context(chat, budget_tokens=budget, goal="the goal", keep_turns=keep)
    except BadInput:
        assert _least(chat) > budget, "it could have been met"
        return
    found = shown(made, chat)
    assert is_valid(found)
    assert count(found) <= made.tokens <= budget
    everything = [m.number for m in found if m.number]
    assert len(everything) == len(set(everything)), "no message twice"
    for message in said:
        if message.role == "system":
            assert message in found, "system messages are never left out nor cut"
        if message.number in chat.state.pinned:
            assert message.number in everything
    if chat.state.turns and (chat.state.summary is None or chat.state.summary.upto < len(said)):
        newest = chat.book.turn(len(chat.state.turns) - 1)
        assert {m.number for m in newest} <= set(everything), "the newest turn is always in"
    kept = _free_turns(chat)[-keep:]
    comfortable = count(m for turn in kept for m in chat.book.turn(turn)) + 4000
    if comfortable + _fixed(chat) <= budget:
        assert {m.number for turn in kept for m in chat.book.turn(turn)} <= set(everything)
        assert made.left_out.cut_to == 0, "nothing is cut that need not be"
    if budget == 10**6 and chat.state.summary is None:
        assert len(everything) == len(said)
    covered = chat.state.summary.upto if chat.state.summary is not None else 0
    left = {n for first, final in made.left_out.ranges for n in range(first, final + 1)}
    assert left == {m.number for m in said if m.number > covered} - set(everything)


def _least(chat: Session) -> int:
    """How many tokens what must be in is, with every text cut as short as can be."""
    state, book = chat.state, chat.book
    pinned = {state.turn_of(n) for n in state.pinned}
    turns = sorted(pinned | set(_free_turns(chat)[-1:]))
    must = [message for turn in state.system for message in book.turn(turn)]
    must += [
        cut(m, SHORTEST) for turn in turns if turn not in state.system for m in book.turn(turn)
    ]
    must += [system("The goal: the goal"), system(note_text(MOST_LEFT_OUT))]
    if state.summary is not None:
        must.append(system(cut_text(book.summary_shown(state.summary.seq), SHORTEST)))
    return count(must)


def _free_turns(chat: Session) -> list[int]:
    """The turns that may be left out, and that no summary stands for."""
    state = chat.state
    since = state.turn_of(state.summary.upto) + 1 if state.summary is not None else 0
    fixed = {state.turn_of(n) for n in state.pinned} | set(state.system)
    return [turn for turn in range(since, len(state.turns)) if turn not in fixed]


def _fixed(chat: Session) -> int:
    state, book = chat.state, chat.book
    turns = {state.turn_of(n) for n in state.pinned} | set(state.system)
    summary = book.summary_shown(state.summary.seq) if state.summary is not None else ""
    return count([m for turn in turns for m in book.turn(turn)]) + count([system(summary)])


class Interrupted(Estimate):
    """Counts, and the first time it does, somebody else says and summarizes something."""

    name = "interrupted"

    def __init__(self, meanwhile) -> None:
        self.meanwhile = [meanwhile]

    def count(self, message: Message) -> int:
        while self.meanwhile:
            self.meanwhile.pop()()
        return super().count(message)


def test_a_context_has_nothing_of_what_others_say_while_it_is_built(chat):
    chat.say(*(f"turn {n}" for n in range(12)))
    head = chat.state.seq

    def meanwhile() -> None:
        chat.say(system("Be kind."), "and another thing")
        chat.run(compact_all, id="meanwhile")

    made = context(chat, budget_tokens=10_000, counter=Interrupted(meanwhile))
    assert (made.seq, made.left_out.messages) == (head, 0)
    assert [message.text for message in shown(made, chat)] == [f"turn {n}" for n in range(12)]


@pytest.mark.parametrize(
    "usage",
    [
        {"counter": "estimate"},
        {"counter": "estimate", "counted_tokens": "9", "input_tokens": None},
        {"counter": "estimate", "counted_tokens": True, "input_tokens": [1]},
    ],
)
def test_a_usage_that_is_no_report_of_a_provider_corrects_nothing(chat, usage):
    chat.say(Message("user", "Hello", meta={"usage": usage}))
    assert context(chat, budget_tokens=1000).ratio == 1.0


def test_a_stored_text_file_is_counted_by_its_size(chat):
    notes = Media(kind="file", media_type="text/plain", data=b"some words " * 10_000, name="a.txt")
    (stored,) = chat.say(user([notes]))
    assert COUNT.count(stored) >= len(notes.data) // 3
    with pytest.raises(BadInput, match="a budget of 5,000 tokens has no room"):
        context(chat, budget_tokens=5000)
