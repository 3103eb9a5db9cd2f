"""What was said branches along with a fork, and the model of a fork may be another."""

from __future__ import annotations

import pytest

from holdfast import Conflict, Holdfast, Keys, step, task
from holdfast.agent import session
from holdfast.agent.model_calls import asked_in, saw
from holdfast.engines.origins import branch_at, branch_session
from holdfast.log.states import load
from tests.agent.talking import AsyncModel, Model, calls, done, make, ring

pytestmark = pytest.mark.holdfast("memory://", "{tmp_path}/w", "sqlite:///{tmp_path}/w.db")


@step
def talk_step(what: str) -> str:
    return what


@task
def talk_twice() -> int:
    session().say("one")
    talk_step("a")
    session().say("two")
    talk_step("b")
    session().say("three")
    return len(list(session().messages()))


def said(hf: Holdfast, id: str) -> list[str]:
    return [message.text for message in hf.session(id).messages()]


def test_a_conversation_branches_without_a_copy(tmp_path):
    with Holdfast(tmp_path, projections=False) as hf:
        talk = hf.session("s", user="ada")
        talk.say("Hello " * 1000)
        assert talk.run(talk_twice, id="t") == 4
        hf.fork("t", at=2, effects="live", new_id="f")
        assert hf.task("f").state.session == "s~f"
        assert [text[:5] for text in said(hf, "s~f")] == ["Hello", "one", "two"]
        assert hf.resume("f") == 4
        assert [text[:5] for text in said(hf, "s~f")] == ["Hello", "one", "two", "three"]
        assert len(said(hf, "s")) == 4, "that of the original stays as it is"
        (own,) = (tmp_path / "sessions").glob("s*f*")
        assert (own / "events.jsonl").stat().st_size < 1500
        assert hf.verify().sound
        assert (
            hf.task("f").at(2).content["conversation"] == hf.task("t").at(2).content["conversation"]
        )


@pytest.mark.parametrize("kind", [Model, AsyncModel])
def test_an_agent_goes_on_from_the_fork_with_another_model(kind):
    done.clear()
    with Holdfast("memory://") as hf:
        first = make(
            kind([calls(("ring", '{"times": 1}')), calls(("ring", '{"times": 2}')), "It rang."]),
            [ring],
        )
        talk = hf.session("s")
        answer = first.run(talk, "Ring!", id="t").answer
        assert answer == "It rang."
        rung = list(done)
        model_calls = [c for c in hf.task("t").state.calls.values() if "model" in c.name]
        place = model_calls[-1]
        other = make(kind(["It did not."]), [ring])
        hf.fork("t", at=place.path, effects="live", task=other.task, new_id="f")
        result = hf.resume("f")
        assert result.answer == "It did not."
        assert done == rung, "what was rung before the fork is not rung again"
        assert [m.text for m in hf.session("s~f").messages()][-1] == "It did not."
        assert [m.text for m in hf.session("s").messages()][-1] == "It rang."
        first_other = hf.compare("t", "f").alignments[0].first
        assert first_other is not None and first_other.path == place.path


def test_what_a_model_saw_in_a_past_that_was_left_can_still_be_shown():
    with Holdfast("memory://") as hf:
        agent = make(Model([calls(("ring", '{"times": 1}')), "It rang.", "Once more."]), [ring])
        agent.run(hf.session("s"), "Ring!", id="t")
        before = [saw(asked, hf.session("s"), hf.store) for asked in asked_in(hf.task("t"))]
        last = [c.path for c in hf.task("t").state.calls.values() if "model" in c.name][-1]
        abandoned = list(asked_in(hf.task("t")))
        hf.rewind("t", to=last)
        assert hf.resume("t").answer == "Once more."
        again = [saw(asked, hf.session("s"), hf.store) for asked in abandoned]
        assert again == before
        assert hf.verify().sound


@pytest.mark.parametrize("how", ["plain", "sealed"])
def test_a_fork_that_died_half_way_can_be_made_again(how, tmp_path):
    keys = {} if how == "plain" else {"key": Keys.new(), "sign_key": Keys.new()}
    with Holdfast(tmp_path, **keys) as hf:
        hf.session("s").run(talk_twice, id="t")
        # The session comes first: this is what somebody leaves who dies before the task is made.
        left = branch_at(hf.store, "s", load(hf.store, "t", hf.task("t").seq))
        branch_session(hf._holding, left, "s~f", "")
        assert hf.verify().sound
        hf.fork("t", at=1, effects="live", new_id="f")
        assert said(hf, "s~f") == ["one"]
        assert hf.resume("f") == 3
        assert hf.verify().sound
        hf.session("s~g").say("mine")
        with pytest.raises(Conflict, match="exists already"):
            hf.fork("t", at=1, effects="live", new_id="g")
        assert said(hf, "s~g") == ["mine"] and len(list(hf.tasks())) == 2


def test_however_long_the_ids_are_a_conversation_branches(tmp_path):
    with Holdfast(tmp_path) as hf:
        hf.session("s" * 255).run(talk_twice, id="t" * 255)
        id = "t" * 255
        for _ in range(3):
            id = hf.fork(id, at=1, effects="live").id
            assert hf.resume(id) == 3
        assert len({each.id for each in hf.sessions().sessions}) == 4
