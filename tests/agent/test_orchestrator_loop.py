"""The orchestrator goes round: plans, reflection, limits, usage, compaction, one's own phases."""

from __future__ import annotations

import json

import pytest

from holdfast import BadInput, Holdfast, TaskFailed, Unanswered, tool
from holdfast.agent import (
    Limits,
    Orchestrator,
    Reply,
    Usage,
    assistant,
)
from holdfast.agent.state import AgentState
from tests.agent.talking import (
    AsyncModel,
    Model,
    break_down,
    calls,
    conversation,
    done,
    fails,
    lines,
    make,
    ring,
    talk,
)
from tests.flavors import Crash

pytestmark = pytest.mark.holdfast("memory://")


@pytest.fixture(params=[Model, AsyncModel], ids=["sync", "async"])
def says(request):
    """Makes a model of what it says."""
    return lambda *said: request.param(said)


@pytest.fixture(autouse=True)
def _nothing_is_done():
    done.clear()


# Plans and reflection


def plan(*items):
    return calls(("make_plan", json.dumps({"items": items})))


def test_the_plan_and_what_became_of_it_are_in_the_record_of_the_task(hf, says):
    model = says(
        plan("ring", "rest"),
        calls(("ring", '{"times": 1}'), ("update_plan", '{"item": "1", "status": "done"}')),
        calls(("update_plan", '{"item": "2", "status": "skipped", "because": "not tired"}')),
        "Done.",
    )
    assert talk(hf, make(model, [ring], plan=True)).answer == "Done."
    view = hf.task("t1")
    assert [(item.text, item.status) for item in view.plan] == [
        ("ring", "done"),
        ("rest", "skipped"),
    ]
    assert str(view.position) == "step 2 of 2"
    assert lines(hf)[0] == "user: Go."
    assert "make_plan" not in "".join(lines(hf)), "how it plans is no part of the conversation"
    told = [m.text for m in model.requests[2].messages if m.role == "system"]
    assert any("- [x] ring\n- [ ] rest" in text for text in told)


@pytest.mark.parametrize(
    "bad", ["I'd rather not.", calls(("make_plan", "{")), plan(), plan("", "  ")]
)
def test_a_model_that_writes_no_plan_gets_the_simplest_one(hf, says, bad):
    assert talk(hf, make(says(bad, "Done."), plan=True)).answer == "Done."
    assert [item.text for item in hf.task("t1").plan] == ["Go."]


def test_an_item_that_is_not_there_is_told_to_the_model(hf, says):
    model = says(plan("one"), calls(("update_plan", '{"item": "7", "status": "done"}')), "Done.")
    assert talk(hf, make(model, plan=True)).answer == "Done."
    assert "no item '7'" in str(model.requests[2].messages[-1].results[0].content)


def test_a_plan_can_be_changed_on_the_way(hf, says):
    change = calls(
        ("update_plan", '{"item": "1", "status": "done"}'),
        ("make_plan", '{"items": ["one", "another"]}'),
    )
    assert talk(hf, make(says(plan("one", "two"), change, "Done."), plan=True)).answer == "Done."
    view = hf.task("t1")
    assert [(item.text, item.status) for item in view.plan] == [
        ("one", "done"),
        ("another", "pending"),
    ]
    assert [item.text for item in view.plans[0].items] == ["one", "two"], "the old one is kept"


def test_an_answer_that_is_not_good_enough_leads_back_to_planning(hf, says):
    revise = calls(("revise", '{"reason": "no number in it"}'))
    model = says(plan("guess"), "Many.", revise, plan("count"), "It is 7.", calls(("accept", "{}")))
    result = talk(hf, make(model, plan=True, reflect=True))
    assert (result.answer, result.iterations) == ("It is 7.", 2)
    assert lines(hf) == ["user: Go.", "assistant: It is 7."], "what was not good is not said"
    assert any("no number in it" in m.text for m in model.requests[3].messages)
    assert model.requests[2].messages[-2].text == "Many."
    assert [[item.text for item in each.items] for each in hf.task("t1").plans] == [
        ["guess"],
        ["count"],
    ]


@pytest.mark.parametrize(
    "verdict", ["Looks good.", "", calls(("revise", "{")), calls(("nope", "{}"))]
)
def test_a_judgement_that_says_nothing_against_it_lets_the_answer_pass(hf, says, verdict):
    assert talk(hf, make(says("It is 7.", verdict), reflect=True)).answer == "It is 7."


# Limits


def reply(text_or_message, *usage, cost=0.0):
    message = assistant(text_or_message) if isinstance(text_or_message, str) else text_or_message
    return Reply(message, Usage(*usage, cost=cost))


RING = calls(("ring", '{"times": 1}'))


def test_the_limit_of_iterations_fails_the_task(hf, says):
    why = fails(hf, make(says(RING, RING, RING), [ring], limits=Limits(iterations=3)))
    assert "limit of 3 iterations" in why
    assert len(done) == 3


def test_the_last_iteration_may_still_answer(hf, says):
    agent = make(says(RING, RING, "Done."), [ring], limits=Limits(iterations=3))
    assert talk(hf, agent).answer == "Done."


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (Limits(tokens=100), "100 tokens (120 were used)"),
        (Limits(cost=0.5), "0.5 in cost (0.6 was"),
    ],
)
def test_the_limits_of_tokens_and_cost_fail_the_task(hf, says, limits, told):
    said = [reply(RING, 50, 10, cost=0.3)] * 3
    assert told in fails(hf, make(says(*said), [ring], limits=limits))
    assert len(done) == 2


def test_an_answer_that_was_paid_for_is_given(hf, says):
    agent = make(says(reply("Done.", 5000, 5000)), limits=Limits(tokens=100))
    assert talk(hf, agent).answer == "Done."


@pytest.mark.parametrize("limits", [Limits(iterations=3), Limits(tokens=180), Limits(cost=0.75)])
def test_limits_are_counted_across_resumes(tmp_path, says, limits):
    """Killed in each iteration: the process that goes on does not begin to count anew."""
    said = reply(RING, 50, 10, cost=0.25)
    agent = make(says(said, Crash(), said, Crash(), said), [ring], limits=limits)
    for _ in range(2):
        with pytest.raises(Crash), Holdfast(tmp_path / "w") as hf:
            talk(hf, agent)
    with Holdfast(tmp_path / "w") as hf:
        assert "the limit of" in fails(hf, agent)
    assert len(done) == 3


def test_the_limit_of_time_counts_what_the_task_waited(tmp_path, says):
    from holdfast.testing import Clock

    clock = Clock()
    question = calls(("ask_user", '{"question": "Well?"}'))
    agent = make(says(question, RING), [ring], limits=Limits(wall_s=60))
    with Holdfast(tmp_path / "w", clock=clock) as hf, pytest.raises(Unanswered):
        talk(hf, agent)
    clock.advance(61)
    with Holdfast(tmp_path / "w", clock=clock) as hf:
        hf.answer("t1", "Yes.")
        assert "limit of 60 s (61 s have passed)" in fails(hf, agent)
    assert done == []


@pytest.mark.parametrize("bad", [{"iterations": 0}, {"tokens": -1}, {"cost": float("nan")}])
def test_limits_that_limit_nothing_are_refused(bad):
    with pytest.raises(BadInput, match="above 0"):
        Limits(**bad)


# The model's usage, its failures, and what it sees


def test_usage_and_cost_are_in_the_result_and_with_each_reply(hf, says):
    agent = make(says(reply(RING, 50, 10, cost=0.3), reply("Done.", 60, 5, cost=0.4)), [ring])
    result = talk(hf, agent)
    assert result.usage == Usage(110, 15, cost=0.7)
    said = [message.meta["usage"]["input_tokens"] for message in conversation(hf) if message.meta]
    assert said == [50, 60]
    made = [call for call in hf.task("t1").calls if call.name.endswith("_model")]
    recorded = [json.loads(bytes(call.result))["usage"] for call in made]
    assert [usage["cost"] for usage in recorded] == [0.3, 0.4]


def test_what_a_model_notes_on_its_reply_is_kept(hf, says):
    talk(hf, make(says(assistant("Done.", meta={"mood": "fine"}))))
    assert conversation(hf)[-1].meta["mood"] == "fine"


def test_a_model_that_fails_for_good_fails_the_task(hf, says):
    model = says(*[ConnectionError("down")] * 3)
    why = fails(hf, make(model))
    assert "the model can't be called" in why and "down" in why
    assert len(model.requests) == 3, "as often as its retry says"


def test_the_tools_do_not_make_the_conversation_look_longer_than_it_is(hf, says):
    """A provider reports them with the input, but they are no part of what is said."""
    wide = [make_wide(number) for number in range(10)]
    model = says(*[reply(RING, 4000, 10)] * 3, "Done.")
    agent = make(model, [*wide, ring], budget_tokens=1000)
    assert talk(hf, agent).answer == "Done."


def make_wide(number):
    @tool(in_doubt="retry", name=f"wide_{number}")
    def wide(text: str) -> str:
        return text

    wide.holdfast_spec.fn.__doc__ = "A tool of many words. " * 60
    return wide


def test_older_turns_are_summarized_on_the_way(hf, says):
    talk_a_lot = [f"Answer {n}: " + "and so on, " * 30 for n in range(5)]
    model = says(*talk_a_lot)
    agent = make(model, budget_tokens=2000, compact_at=0.1)
    for number in range(5):
        talk(hf, agent, f"Question {number}?", f"q{number}")
    assert hf.session("s1").summary == ""
    model.said += ["They spoke of this and that.", "Done."]
    result = talk(hf, agent, "And now?", "q5")
    assert result.answer == "Done."
    assert hf.session("s1").summary == "They spoke of this and that."
    assert any("They spoke of this" in m.text for m in model.requests[-1].messages)
    assert len(conversation(hf)) == 12, "the originals stay"


# One's own


class Polite(Orchestrator):
    """As small as it gets: one phase is another."""

    def to_reflect(self, state: AgentState) -> AgentState:
        return state.to_done(f"{state.memory.notes['draft']} You are welcome.")


class Forgetful(Orchestrator):
    def context(self, state, told):
        from holdfast.agent import context

        return context(self.session, budget_tokens=500, goal="Only this.", plan=[])


class OneShot(Orchestrator):
    def step(self, state):
        if state.phase == "planning":
            return state.to_executing()
        got, state = yield from self.think(state, "Be brief.")
        return state.to_reflecting().to_done(got.message.text)


class Awaiting(Orchestrator):
    async def step(self, state: AgentState) -> AgentState:
        return (
            state.to_executing() if state.phase == "planning" else state.to_error("it was enough")
        )


def test_a_phase_can_be_written_anew(hf, says):
    assert talk(hf, make(says("Here."), kind=Polite)).answer == "Here. You are welcome."


def test_what_the_model_sees_can_be_chosen(hf, says):
    model = says("Here.")
    assert talk(hf, make(model, kind=Forgetful)).answer == "Here."
    assert model.requests[0].messages[0].text == "The goal: Only this."


def test_a_step_of_ones_own_may_think_as_it_likes(hf, says):
    model = says("Yes.")
    assert talk(hf, make(model, kind=OneShot)).answer == "Yes."
    assert model.requests[0].messages[0].text == "Be brief."


def test_a_step_of_ones_own_may_be_awaited(hf, says):
    assert "it was enough" in fails(hf, make(says(), kind=Awaiting))


# Sync and async


def test_sync_and_async_agents_have_the_same_conversation():
    said = [
        plan("ring", "ask"),
        calls(
            ("ring", '{"times": 1}'),
            ("nope", "{}"),
            ("update_plan", '{"item":"1","status":"done"}'),
        ),
        calls(("ask_user", '{"question": "More?"}')),
        Reply(assistant("So it "), stop="length"),
        reply("is.", 10, 5),
    ]
    seen = []
    for kind in (Model, AsyncModel):
        with Holdfast("memory://") as hf:
            agent = Orchestrator("one_name", kind(said), [ring], system="Be brief.")
            with pytest.raises(Unanswered):
                talk(hf, agent)
            hf.answer("t1", "No.")
            seen.append((talk(hf, agent), conversation(hf), [c.path for c in hf.task("t1").calls]))
    assert seen[0] == seen[1]
    assert seen[0][0].answer == "So it is."


class Careless(Orchestrator):
    def to_execute(self, state):
        yield lambda: break_down("on the way")


def test_what_ones_own_code_lets_fail_fails_the_task(hf, says):
    """Only what the model can do something about is told to the model."""
    with pytest.raises(TaskFailed, match="on the way"):
        talk(hf, make(says(), [break_down], kind=Careless))
