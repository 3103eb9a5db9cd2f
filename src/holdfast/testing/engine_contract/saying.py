"""What a task says and sees besides its calls: times, decisions, notes, plans, files, sessions."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast.agent import assistant, context, external, fact, session
from holdfast.agent import user as said_by_user
from holdfast.api.app import Holdfast
from holdfast.api.checkpoints import checkpoint, restore
from holdfast.api.decisions import decide
from holdfast.api.steps import step, tool
from holdfast.api.tasks import current, note, patched, progress, task
from holdfast.api.waiting import ask, now, random, sleep, uuid
from holdfast.core.events import PlanItem
from holdfast.log.artifacts import keep
from holdfast.testing.engine_contract.working import (
    PATIENCE_S,
    begin,
    effects,
    new_id,
    until,
)
from holdfast.workspace import files

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
    await ask("Go on?", bool)
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
    await ask("Go on?", bool)
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
    await ask("Go on?", bool)
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
            await ask("Go on?", bool)
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
    await ask("Go on?", bool)
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
    """What a task says, and what it sees of the world."""

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
        """What a task comes to that is answered half-way."""
        self.handle = begin(hf, fn, *args, **options)
        until(lambda: self.handle.view.questions)
        hf.answer(self.handle.id, True)
        return self.handle.result(PATIENCE_S)
