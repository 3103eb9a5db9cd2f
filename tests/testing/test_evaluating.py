"""Recorded runs are run anew with other prompts and models, without any effect, and compared."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from holdfast import BadInput, Holdfast, StepFailed, TaskNotFound, ask, gather, step, task, tool
from holdfast.agent import (
    Metered,
    Orchestrator,
    Prices,
    Reply,
    Request,
    ToolCall,
    Usage,
    assistant,
)
from holdfast.testing import EvaluatedRun, Evaluation, evaluate
from tests.flavors import BOUND_S

done: list[Any] = []
says: dict[str, str] = {}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    done.clear()
    says.clear()
    says.update(tool="eval_status", answer="It is packed.")
    yield


@tool
def eval_status(number: int) -> str:
    done.append(("status", number))
    return f"order {number} is packed"


@tool
def eval_refund(number: int) -> str:
    done.append(("refund", number))
    return "refunded"


def talker(request: Request) -> Reply:
    """A model that looks an order up, and answers."""
    if not any(message.role == "tool" for message in request.messages):
        call = ToolCall(f"id-{len(done)}", says["tool"], '{"number": 7}')
        return Reply(assistant("", [call]), Usage(1000, 100), stop="tool_calls")
    return Reply(assistant(says["answer"]), Usage(1000, 100))


agent = Orchestrator(
    "evaluated",
    Metered(talker, "m", prices={"m": Prices(input=1, output=10)}),
    [eval_status, eval_refund],
    plan=False,
)


def is_short(run: EvaluatedRun) -> bool:
    return len(run.result["answer"]) < 20


def likeness(run: EvaluatedRun) -> float:
    return 1.0 if run.result == run.was else 0.25


@pytest.fixture
def recorded(hf: Holdfast) -> Holdfast:
    """A store with a run of the agent in it."""
    agent.run(hf.session("chat-1", user="ada"), "Where is order 7?", id="a-1")
    assert done == [("status", 7)]
    done.clear()
    return hf


def test_a_case_that_goes_as_it_went_has_no_divergence_and_calls_no_tool(recorded):
    before = [event.seq for event in recorded.task("a-1").events()]
    found = evaluate("a-1", hf=recorded, checks=[is_short, likeness])
    (case,) = found.cases
    assert (case.passed, case.outcome, case.divergence, case.problem) == (True, "completed", "", "")
    assert case.scores == {"is_short": True, "likeness": 1.0}
    assert (case.spent.cost, case.spent_then.cost) == (0.004, 0.004)
    assert not done, "tools answer from the log"
    assert [event.seq for event in recorded.task("a-1").events()] == before
    assert [view.id for view in recorded.tasks()] == ["a-1"], "all of it happened elsewhere"


def test_a_model_that_says_something_else_is_shown_with_the_first_divergence(recorded):
    says["answer"] = "It is packed, and will be sent tomorrow."
    found = evaluate("a-1", hf=recorded, checks=[is_short])
    (case,) = found.cases
    assert not case.passed
    assert case.outcome == "completed"
    assert "evaluated_model returned" in case.divergence
    assert "will be sent" in case.divergence
    assert "It is packed." in case.divergence
    assert not done


def test_a_tool_that_is_called_otherwise_is_not_called_and_ends_the_case(recorded):
    says["tool"] = "eval_refund"
    (case,) = evaluate("a-1", hf=recorded).cases
    assert not case.passed
    assert case.outcome != "completed"
    assert "eval_refund" in case.problem
    assert not done, "nobody was refunded"
    (helped,) = evaluate("a-1", hf=recorded, stubs={"eval_refund": "refunded"}).cases
    assert (helped.outcome, helped.problem, helped.result["answer"]) == (
        "completed",
        "",
        "It is packed.",
    )
    assert not done


def test_archives_are_cases_and_the_table_says_all(recorded, tmp_path):
    agent.run(recorded.session("chat-2", user="bob"), "And mine?", id="a-2")
    recorded.archive_to(tmp_path / "cases.hfa", ["a-1", "a-2"])
    says["answer"] = "Packed."
    told: list[str] = []
    found = evaluate(
        tmp_path / "cases.hfa",
        checks={"short": is_short},
        progress=lambda case: told.append(case.case),
    )
    assert isinstance(found, Evaluation)
    assert sorted(told) == [case.case for case in found.cases] == ["a-1", "a-2"]
    assert (found.passed, found.mean("short"), found.spent.model_calls) == (True, 1.0, 4)
    head, first, _, last = str(found).splitlines()
    assert head.split() == ["case", "outcome", "short", "cost", "was", "first", "divergence"]
    assert first.split()[:5] == ["a-1", "completed", "yes", "0.004", "0.004"]
    assert last.split() == ["2", "of", "2", "passed", "1.00", "0.008", "0.008"]


@step
def eval_word(which: str) -> str:
    return says["answer"]


@tool(approve=True)
def eval_send(text: str) -> str:
    done.append(text)
    return "sent"


@task
def eval_letter() -> str:
    name = ask("To whom?", str)
    return f"{eval_word(name)} {name}: {eval_send(name)}"


def test_people_are_not_asked_again(hf):
    hf.start(eval_letter, id="l")
    for answer in ("Ada", True):
        with pytest.raises(Exception, match=r"asks|waits"):
            hf.resume("l")
        hf.answer("l", answer)
    assert hf.resume("l") == "It is packed. Ada: sent"
    done.clear()
    says["answer"] = "Dear"
    (case,) = evaluate("l", hf=hf).cases
    assert (case.outcome, case.result, done) == ("completed", "Dear Ada: sent", [])
    assert case.divergence.startswith('step 2: eval_word returned "Dear"')


@task
def eval_side_by_side() -> tuple[str, str]:
    done_first = threading.Event()

    def look(number: int) -> str:
        if says["first"] != str(number):
            done_first.wait(BOUND_S)
        found = eval_status(number)
        done_first.set()
        return found

    return gather(partial(look, 1), partial(look, 2))


def test_which_of_two_branches_came_first_is_no_divergence(hf):
    says["first"] = "2"
    hf.run(eval_side_by_side, id="s")
    says["first"] = "1"
    (case,) = evaluate("s", hf=hf).cases
    assert (case.outcome, case.divergence) == ("completed", "")


@task
def eval_fails() -> str:
    try:
        return eval_word("x") + eval_status(int(says["answer"]))
    except StepFailed as error:
        return error.failure.type


def test_a_task_that_failed_may_be_a_case_and_a_failing_one_is_told(hf):
    with pytest.raises(Exception, match="invalid literal"):
        hf.run(eval_fails, id="f")
    (case,) = evaluate("f", hf=hf).cases
    assert (case.passed, case.outcome, case.recorded) == (True, "failed", "failed")
    assert "invalid literal" in case.problem


def refuses(run: EvaluatedRun) -> bool:
    raise AssertionError("too short by far")


def test_a_check_that_asserts_says_no_and_why_and_one_that_says_nothing_is_refused(recorded):
    (case,) = evaluate("a-1", hf=recorded, checks=[refuses]).cases
    assert (case.passed, case.scores, case.notes) == (
        False,
        {"refuses": False},
        {"refuses": "too short by far"},
    )
    with pytest.raises(BadInput, match="must return True, False or a number"):
        evaluate("a-1", hf=recorded, checks={"nothing": lambda run: None})
    with pytest.raises(BadInput, match="must be a function"):
        evaluate("a-1", hf=recorded, checks={"no": 7})


def test_what_is_no_case_is_refused(hf, tmp_path):
    with pytest.raises(BadInput, match="takes cases"):
        evaluate([])
    with pytest.raises(BadInput, match="there is no archive"):
        evaluate(tmp_path / "none.hfa")
    with pytest.raises(TaskNotFound):
        evaluate("nobody", hf=hf)
