"""An agent that could not do its job fails its task, and a retry goes on from where it was."""

from __future__ import annotations

import pytest

from holdfast import Holdfast, TaskFailed
from holdfast.agent import Limits, Message, Orchestrator, Refusal, Reply, Usage, assistant
from holdfast.agent.adapters import ModelRejected
from holdfast.agent.state import AgentState
from tests.agent.talking import AsyncModel, Model, calls, done, fails, lines, make, ring, talk

pytestmark = pytest.mark.holdfast("memory://")

RING = calls(("ring", '{"times": 1}'))
REFUSED = Reply(Message("assistant", (Refusal("I won't."),)), stop="refusal")


@pytest.fixture(params=[Model, AsyncModel], ids=["sync", "async"])
def says(request):
    """Makes a model of what it says."""
    return lambda *said: request.param(said)


@pytest.fixture(autouse=True)
def _nothing_is_done():
    done.clear()


FAILURES = {
    "rejected": ([ModelRejected("401: wrong key", status=401)], "wrong key"),
    "unknown": ([KeyError("of the client")] * 3, "of the client"),
    "refused": ([REFUSED], "refused: I won't."),
    "silent": (["", ""], "said nothing, 2 times"),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_a_retry_goes_on_after_the_failure(hf, says, kind):
    said, why = FAILURES[kind]
    model = says(RING, *said, "Here I am.")
    agent = make(model, [ring])
    assert why in fails(hf, agent)
    assert [view.id for view in hf.tasks(status="failed")] == ["t1"]
    assert hf.stats().types[0].statuses == {"failed": 1}
    before = len(model.requests)
    assert hf.retry("t1").answer == "Here I am."
    assert (len(model.requests), len(done)) == (before + 1, 1)
    assert talk(hf, agent).answer == "Here I am."
    assert lines(hf)[-1] == "assistant: Here I am."


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failure_that_goes_on_fails_again_and_can_be_retried_again(hf, says, kind):
    said, why = FAILURES[kind]
    agent = make(says(*said, *said, "Here I am."))
    assert why in fails(hf, agent)
    with pytest.raises(TaskFailed):
        hf.retry("t1")
    assert hf.task("t1").status == "failed"
    assert hf.retry("t1").answer == "Here I am."


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (Limits(iterations=2), Limits(iterations=4)),
        (Limits(tokens=100), Limits(tokens=1000)),
        (Limits(cost=0.5), Limits(cost=5)),
    ],
)
def test_after_a_limit_a_retry_with_more_goes_on(hf, says, less, more):
    spends = Reply(RING, Usage(50, 10, cost=0.3))
    model = says(spends, spends, Reply(assistant("Done."), Usage(5, 5)))
    agent = make(model, [ring], limits=less)
    assert "the limit of" in fails(hf, agent)
    with pytest.raises(TaskFailed, match="the limit of"):
        hf.retry("t1")
    agent.limits = more
    result = hf.retry("t1")
    assert (result.answer, len(done), len(model.requests)) == ("Done.", 2, 3)
    assert result.usage.tokens == 130, "what was used before counts on"


class SavesErrors(Orchestrator):
    """As an older version did: the state of an error was checkpointed before the task ended."""

    def step(self, state: AgentState):
        from holdfast import checkpoint
        from tests.flavors import Crash

        state = state.to_executing()
        checkpoint(state.to_error("it was too much"))
        raise Crash


def test_an_error_that_an_older_version_has_saved_fails_the_task(tmp_path):
    from tests.flavors import Crash

    with Holdfast(tmp_path) as hf, pytest.raises(Crash):
        SavesErrors("older_and_newer", Model([]), plan=False).run(hf.session("s1"), "Go.", id="t1")
    newer = Orchestrator("older_and_newer", Model(["Fine now."]), plan=False)
    with Holdfast(tmp_path) as hf:
        with pytest.raises(TaskFailed, match="it was too much"):
            newer.run(hf.session("s1"), "Go.", id="t1")
        assert hf.retry("t1").answer == "Fine now."
