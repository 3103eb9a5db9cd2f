"""People: they are asked, they answer, they say what became of what nobody knows.

And what a task says and sees besides its calls: times, decisions, notes, plans, files, sessions.
"""

from __future__ import annotations

import asyncio
import threading
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast.agent import assistant, context, external, fact, session
from holdfast.agent import user as said_by_user
from holdfast.api.app import Holdfast
from holdfast.api.branches import gather
from holdfast.api.checkpoints import checkpoint, restore
from holdfast.api.handle import Handle
from holdfast.api.steps import decide, step, tool
from holdfast.api.tasks import current, note, patched, progress, task
from holdfast.api.waiting import aask, ask, now, random, sleep, uuid
from holdfast.core.events import PlanItem
from holdfast.core.spec import Happened, IdempotencyKey
from holdfast.errors import (
    AlreadyAnswered,
    InDoubt,
    StepFailed,
    Unanswered,
    Unserializable,
)
from holdfast.log.artifacts import keep
from holdfast.testing.engine_contract import (
    PATIENCE_S,
    begin,
    effects,
    new_id,
    question,
    until,
)
from holdfast.workspace import files

_NO_KEY = IdempotencyKey()


@task
def people_asks() -> list[Any]:
    return [ask("How many?", int, id="how-many"), ask("Why?")]


@task
async def people_aasks() -> list[Any]:
    return [await aask("How many?", int, id="how-many"), await aask("Why?")]


@task
def people_asks_both() -> list[Any]:
    return list(gather(lambda: ask("One?", int, id="one"), lambda: ask("Two?", int, id="two")))


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
    first = await aask("Anything to add?", timeout_s=0.05, default="no")
    try:
        await aask("Really?", timeout_s=0.05)
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
    """The answers that only a person can give."""

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
        result = "seen" if happened else None
        hf.resolve(handle.id, doubt.path, happened=happened, by="ada", result=result)
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


# The words and the view of a task besides its calls: times, decisions, notes, plans, files,
# sessions.


async_files: Any = files
"""In an async task each call is awaited, which their types don't say."""


@step
def saying_number(tag: str, number: int) -> int:
    effects[f"number {tag} {number}"] += 1
    progress("counted", done=number)
    return number


@step
async def saying_anumber(tag: str, number: int) -> int:
    effects[f"number {tag} {number}"] += 1
    await asyncio.sleep(0)
    return number


@task
def saying_sleeps(seconds: float) -> float:
    before = now()
    sleep(seconds)
    return (now() - before).total_seconds()


@task
async def saying_asleeps(seconds: float) -> float:
    before = now()
    await sleep(seconds)
    return (now() - before).total_seconds()


@task
def saying_chance() -> list[Any]:
    seen: list[Any] = [now(), uuid(), random()]
    saying_number("chance", 1)
    ask("Go on?", bool)
    return [*seen, now(), uuid(), random()]


@task
async def saying_achance() -> list[Any]:
    seen: list[Any] = [now(), uuid(), random()]
    await saying_anumber("chance", 1)
    await aask("Go on?", bool)
    return [*seen, now(), uuid(), random()]


@task
def saying_notes(tag: str) -> str:
    current().plan(["go", PlanItem("come back", id="back", after=("1",))])
    room = decide("room", "attic", options=["attic", "cellar"], because="it has a desk")
    saying_number(tag, 1)
    current().mark("1", "done")
    note("half-way", data={"room": room})
    progress("going", done=1, total=2)
    ask("Go on?", bool)
    current().mark("back", "done")
    note("there")
    return f"{room} {patched('new-way')}"


@task
async def saying_anotes(tag: str) -> str:
    current().plan(["go", PlanItem("come back", id="back", after=("1",))])
    room = decide("room", "attic", options=["attic", "cellar"], because="it has a desk")
    await saying_anumber(tag, 1)
    current().mark("1", "done")
    note("half-way", data={"room": room})
    progress("going", done=1, total=2)
    await aask("Go on?", bool)
    current().mark("back", "done")
    note("there")
    return f"{room} {patched('new-way')}"


@step
def saying_keeps() -> Any:
    return keep([b"one ", b"two"], name="words").size_bytes


@task
def saying_files() -> list[Any]:
    files.write("report.md", "# The sea\n")
    size = saying_keeps()
    ask("Go on?", bool)
    files.append("report.md", "It is large.\n")
    return [size, files.read_text("report.md"), [file.name for file in files.list()]]


@task
async def saying_afiles() -> list[Any]:
    await async_files.write("report.md", "# The sea\n")
    size = saying_keeps()
    await aask("Go on?", bool)
    await async_files.append("report.md", "It is large.\n")
    text = await async_files.read_text("report.md")
    return [size, text, [file.name for file in await async_files.list()]]


@task
def saying_loop(tag: str, rounds: int) -> list[int]:
    seen = restore(list[int]())
    while len(seen) < rounds:
        if len(seen) == 2:
            ask("Go on?", bool)
        seen = checkpoint([*seen, saying_number(tag, len(seen))])
    return seen


@task
async def saying_aloop(tag: str, rounds: int) -> list[int]:
    seen = restore(list[int]())
    while len(seen) < rounds:
        if len(seen) == 2:
            await aask("Go on?", bool)
        seen = checkpoint([*seen, await saying_anumber(tag, len(seen))])
    return seen


@step
def saying_reply(seen: Any) -> str:
    return f"You said: {seen}"


@task
def saying_talks() -> str:
    seen = context(session(), budget_tokens=1000, system="Be brief.")
    answer = saying_reply(seen.messages[-1].text)
    session().say(assistant(answer))
    ask("Go on?", bool)
    session().say(assistant("Bye."))
    return answer


@task
async def saying_atalks() -> str:
    seen = await context(session(), budget_tokens=1000, system="Be brief.")
    answer = saying_reply(seen.messages[-1].text)
    await session().say(assistant(answer))
    await aask("Go on?", bool)
    await session().say(assistant("Bye."))
    return answer


@external(ttl_s=3600)
def saying_shares(owner: str) -> int:
    effects[f"shares of {owner}"] += 1
    return 3 - effects[f"sold by {owner}"]


@tool(invalidates=[saying_shares])
def saying_sells(owner: str) -> None:
    effects[f"sold by {owner}"] += 1


@task
def saying_reads(owner: str) -> list[Any]:
    seen = [saying_shares(owner), saying_shares(owner)]
    ask("Go on?", bool)
    seen.append(saying_shares(owner))
    saying_sells(owner)
    held = saying_shares.reading(owner)
    return [*seen, fact("held", held.value, of=[held])]


class Saying:
    """The words of a task, and its view of the world."""

    handle: Handle[Any]

    @pytest.mark.parametrize("fn", [saying_sleeps, saying_asleeps])
    def test_a_task_sleeps_for_as_long_as_it_said(self, hf: Holdfast, fn: Any) -> None:
        slept_s = begin(hf, fn, 0.1).result(PATIENCE_S)
        assert 0.1 <= slept_s < PATIENCE_S

    @pytest.mark.parametrize("fn", [saying_chance, saying_achance])
    def test_times_and_chance_are_the_same_when_the_task_goes_on(
        self, hf: Holdfast, fn: Any
    ) -> None:
        before, id1, chance1, after, id2, chance2 = self._goes_on(hf, fn)
        assert isinstance(before, datetime)
        assert timedelta(0) <= after - before < timedelta(minutes=1)
        assert isinstance(id1, UUID)
        assert id1 != id2
        assert chance1 != chance2

    @pytest.mark.parametrize("fn", [saying_notes, saying_anotes])
    def test_plans_decisions_and_notes_are_said_once(self, hf: Holdfast, fn: Any) -> None:
        tag = new_id(fn)
        assert self._goes_on(hf, fn, tag) == "attic True"
        view = self.handle.view
        assert [choice.name for choice in view.decisions] == ["room"]
        assert [said.text for said in view.notes] == ["half-way", "there"]
        assert [item.status for item in view.plan] == ["done", "done"]
        assert effects[f"number {tag} 1"] == 1

    @pytest.mark.parametrize("fn", [saying_files, saying_afiles])
    def test_files_are_written_once_and_read_as_they_were(self, hf: Holdfast, fn: Any) -> None:
        assert self._goes_on(hf, fn) == [7, "# The sea\nIt is large.\n", ["report.md"]]
        assert len(hf.files(self.handle.id).versions("report.md")) == 2

    @pytest.mark.parametrize("fn", [saying_loop, saying_aloop])
    def test_a_task_goes_on_from_its_last_checkpoint(self, hf: Holdfast, fn: Any) -> None:
        tag = new_id(fn)
        assert self._goes_on(hf, fn, tag, 5) == [0, 1, 2, 3, 4]
        assert self.handle.view.checkpoint == [0, 1, 2, 3, 4]
        assert [effects[f"number {tag} {n}"] for n in range(5)] == [1] * 5

    @pytest.mark.parametrize("fn", [saying_talks, saying_atalks])
    def test_what_is_said_in_a_session_is_said_once(self, hf: Holdfast, fn: Any) -> None:
        chat = hf.session(new_id(fn), user="ada")
        chat.say(said_by_user("Hello?"))
        assert self._goes_on(hf, fn, session=chat.id) == "You said: Hello?"
        assert [message.text for message in chat.messages()] == [
            "Hello?",
            "You said: Hello?",
            "Bye.",
        ]

    def test_what_was_read_of_the_world_is_read_again_when_a_tool_changed_it(
        self, hf: Holdfast
    ) -> None:
        owner = new_id(saying_reads)
        assert self._goes_on(hf, saying_reads, owner) == [3, 3, 3, 2]
        assert effects[f"shares of {owner}"] == 2

    def _goes_on(self, hf: Holdfast, fn: Any, *args: Any, **options: Any) -> Any:
        """The result of a task that is answered half-way."""
        self.handle = begin(hf, fn, *args, **options)
        until(lambda: self.handle.view.questions)
        hf.answer(self.handle.id, True)
        return self.handle.result(PATIENCE_S)
