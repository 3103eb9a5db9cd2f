"""People: they are asked, they answer, they say what became of what nobody knows."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from holdfast.api.app import Holdfast
from holdfast.api.branches import gather
from holdfast.api.steps import step, tool
from holdfast.api.tasks import task
from holdfast.api.waiting import ask
from holdfast.core.spec import Happened, IdempotencyKey
from holdfast.errors import (
    AlreadyAnswered,
    InDoubt,
    StepFailed,
    Unanswered,
    Unserializable,
)
from holdfast.testing.engine_contract.working import (
    PATIENCE_S,
    begin,
    effects,
    new_id,
    question,
    until,
)

_NO_KEY = IdempotencyKey()


@task
def people_asks() -> list[Any]:
    return [ask("How many?", int, id="how-many"), ask("Why?")]


@task
async def people_aasks() -> list[Any]:
    return [await ask("How many?", int, id="how-many"), await ask("Why?")]


@task
def people_asks_both() -> list[Any]:
    return gather(lambda: ask("One?", int, id="one"), lambda: ask("Two?", int, id="two"))


@task
async def people_aasks_both() -> list[Any]:
    both: list[int] = await gather(ask("One?", int, id="one"), ask("Two?", int, id="two"))
    return both


@task
def people_in_time() -> list[str]:
    first = ask("Anything to add?", timeout_s=0.05, default="no")
    try:
        ask("Really?", timeout_s=0.05)
    except StepFailed:
        return [first, "nobody said"]
    return [first, "somebody said"]


@task
async def people_ain_time() -> list[str]:
    first = await ask("Anything to add?", timeout_s=0.05, default="no")
    try:
        await ask("Really?", timeout_s=0.05)
    except StepFailed:
        return [first, "nobody said"]
    return [first, "somebody said"]


@step
def people_asks_in_step() -> str:
    return f"{ask('In a step?')} in a step"


@task
def people_by_step() -> str:
    return people_asks_in_step()


@tool(approve=True)
def people_pays(tag: str, amount: int) -> str:
    effects[f"paid {tag}"] += amount
    return f"paid {amount}"


@tool(approve=True)
async def people_apays(tag: str, amount: int) -> str:
    await asyncio.sleep(0)
    effects[f"paid {tag}"] += amount
    return f"paid {amount}"


@task
def people_buys(tag: str) -> str:
    try:
        return people_pays(tag, 70)
    except StepFailed as refused:
        return f"not paid: {refused.failure.message}"


@task
async def people_abuys(tag: str) -> str:
    try:
        return await people_apays(tag, 70)
    except StepFailed as refused:
        return f"not paid: {refused.failure.message}"


@tool(timeout_s=0.05)
def people_letter(tag: str) -> str:
    effects[f"letter {tag}"] += 1
    if effects[f"letter {tag}"] == 1:
        threading.Event().wait(0.5)
    return "sent"


@tool(timeout_s=0.05)
async def people_aletter(tag: str) -> str:
    effects[f"letter {tag}"] += 1
    if effects[f"letter {tag}"] == 1:
        await asyncio.sleep(10)
    return "sent"


@task
def people_writes(tag: str) -> str:
    return f"{people_letter(tag)}!"


@task
async def people_awrites(tag: str) -> str:
    return f"{await people_aletter(tag)}!"


def _sent(key: str) -> Happened[str] | None:
    return Happened("it was sent")


@tool(timeout_s=0.05, check=_sent)
async def people_mail(tag: str, *, key: IdempotencyKey = _NO_KEY) -> str:
    effects[f"mail {tag}"] += 1
    await asyncio.sleep(10)
    return "sent"


@task
async def people_mails(tag: str) -> str:
    return await people_mail(tag)


class People:
    """What only a person can say."""

    @pytest.mark.parametrize("fn", [people_asks, people_aasks])
    def test_an_answer_of_the_right_type_lets_a_task_go_on(self, hf: Holdfast, fn: Any) -> None:
        handle = begin(hf, fn)
        assert question(handle).key == "how-many"
        assert until(lambda: handle.status == "awaiting_user")
        with pytest.raises(Unserializable):
            hf.answer(handle.id, "many")
        hf.answer(handle.id, 3, question="how-many", by="ada")
        until(lambda: [call.key for call in handle.view.questions] == ["2"])
        with pytest.raises(AlreadyAnswered):
            hf.answer(handle.id, 4, question="how-many")
        hf.answer(handle.id, "because")
        assert handle.result(PATIENCE_S) == [3, "because"]

    @pytest.mark.parametrize("fn", [people_asks_both, people_aasks_both])
    def test_questions_of_two_branches_are_answered_in_any_order(
        self, hf: Holdfast, fn: Any
    ) -> None:
        handle = begin(hf, fn)
        until(lambda: len(handle.view.questions) == 2)
        hf.answer(handle.id, 2, question="two")
        hf.answer(handle.id, 1, question="one")
        assert handle.result(PATIENCE_S) == [1, 2]

    def test_run_says_what_it_waits_for(self, hf: Holdfast) -> None:
        id = new_id(people_asks)
        with pytest.raises(Unanswered) as asked:
            hf.run(people_asks, id=id)
        assert (asked.value.task_id, asked.value.id) == (id, "how-many")
        hf.answer(id, 3)
        with pytest.raises(Unanswered):
            hf.resume(id)
        hf.answer(id, "because")
        assert hf.resume(id) == [3, "because"]

    @pytest.mark.parametrize("fn", [people_in_time, people_ain_time])
    def test_a_question_that_nobody_answers_in_time_is_over(self, hf: Holdfast, fn: Any) -> None:
        assert begin(hf, fn).result(PATIENCE_S) == ["no", "nobody said"]

    def test_a_step_may_ask(self, hf: Holdfast) -> None:
        handle = begin(hf, people_by_step)
        question(handle)
        hf.answer(handle.id, "yes")
        assert handle.result(PATIENCE_S) == "yes in a step"

    @pytest.mark.parametrize("fn", [people_buys, people_abuys])
    def test_a_tool_that_needs_a_yes_is_called_after_it(self, hf: Holdfast, fn: Any) -> None:
        tag = new_id(fn)
        handle = begin(hf, fn, tag)
        assert question(handle).key == "approve-1"
        assert effects[f"paid {tag}"] == 0
        hf.answer(handle.id, True, by="bob")
        assert handle.result(PATIENCE_S) == "paid 70"
        assert effects[f"paid {tag}"] == 70

    @pytest.mark.parametrize("fn", [people_buys, people_abuys])
    def test_a_tool_is_not_called_after_a_no(self, hf: Holdfast, fn: Any) -> None:
        tag = new_id(fn)
        handle = begin(hf, fn, tag)
        question(handle)
        hf.answer(handle.id, False, by="bob")
        assert handle.result(PATIENCE_S) == "not paid: bob did not approve it"
        assert effects[f"paid {tag}"] == 0

    @pytest.mark.parametrize("happened", [True, False])
    @pytest.mark.parametrize("fn", [people_writes, people_awrites])
    def test_a_call_in_doubt_waits_until_a_person_says_what_became_of_it(
        self, hf: Holdfast, fn: Any, happened: bool
    ) -> None:
        tag = new_id(fn)
        handle = begin(hf, fn, tag)
        (doubt,) = until(lambda: [c for c in handle.view.calls if c.status == "in_doubt"])
        result = {"result": "seen"} if happened else {}
        hf.resolve(handle.id, doubt.path, happened=happened, by="ada", **result)
        assert handle.result(PATIENCE_S) == ("seen!" if happened else "sent!")
        assert effects[f"letter {tag}"] == (1 if happened else 2)

    def test_run_says_that_a_call_is_in_doubt(self, hf: Holdfast) -> None:
        id = new_id(people_awrites)
        with pytest.raises(InDoubt) as doubt:
            hf.run(people_awrites, id, id=id)
        assert (doubt.value.task_id, doubt.value.path) == (id, "1")
        hf.resolve(id, "1", happened=True, result="seen")
        assert hf.resume(id) == "seen!"

    def test_a_call_in_doubt_is_looked_up_where_that_can_be_done(self, hf: Holdfast) -> None:
        tag = new_id(people_mails)
        assert begin(hf, people_mails, tag).result(PATIENCE_S) == "it was sent"
        assert effects[f"mail {tag}"] == 1
