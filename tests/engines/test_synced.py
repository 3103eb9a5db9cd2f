"""What the code of a task has seen is durable: nothing that it went on from is lost in a crash.

Only what can be found out again goes to the disk with what comes after it: that a task or a plain
step was begun, that a sleep is over, that a child which is there was made.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import Happened, Holdfast, Retry, StepFailed, TaskCancelled, TaskFailed, Unanswered
from holdfast.stores.memory import MemoryStore
from holdfast.stores.port import Facts, Lease
from holdfast.testing import Clock
from tests.flavors import Crash, Flavor

MAY_WAIT = {"task_created", "claimed", "woke", "child_made", "list_grew"}


class Careful(MemoryStore):
    """Notes each event that was not durable when the next one came."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []
        self.late: list[str] = []
        self._open: str | None = None

    def append(
        self, lease: Lease, expected_seq: int, lines: Sequence[bytes], facts: Facts | None = None
    ) -> None:
        super().append(lease, expected_seq, lines, facts)
        for event in map(json.loads, lines):
            if self._open is not None:
                self.late.append(self._open)
            is_plain = event["type"] == "started" and event.get("kind", "step") == "step"
            self._open = None if is_plain or event["type"] in MAY_WAIT else event["type"]
            self.written.append(event["type"])

    def sync(self, leases: Sequence[Lease]) -> Any:
        outcomes = super().sync(leases)
        self._open = None
        return outcomes


@pytest.fixture
def store():
    return Careful()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def hf(store, clock):
    with Holdfast(store, clock=clock) as opened:
        yield opened


@pytest.fixture(params=["sync", "async"])
def flavor(request):
    return Flavor(request.param)


def test_a_failed_attempt_and_a_result(hf, store, flavor):
    tries = []

    @flavor.step(retry=Retry(attempts=2, delay_s=0))
    async def second_time() -> int:
        tries.append(1)
        if len(tries) < 2:
            raise OSError("not yet")
        return 1

    @flavor.step(retry=Retry(attempts=1))
    async def never() -> None:
        raise OSError("no")

    @flavor.task
    async def trying() -> int:
        with pytest.raises(StepFailed):
            await never()
        return int(await second_time())

    assert hf.run(trying, id="t") == 1
    assert {"attempt_failed", "completed", "task_completed"} <= set(store.written)
    assert store.late == []


@pytest.mark.parametrize("policy", ["retry", "check", "ask"])
def test_an_intent_and_what_became_of_it(hf, store, flavor, policy):
    tries = []

    async def look(key: str) -> Happened[int]:
        return Happened(5)

    @flavor.tool(in_doubt=policy, check=flavor.plain(look) if policy == "check" else None)
    async def dying() -> int:
        tries.append(1)
        if len(tries) < 2:
            raise Crash
        return 5

    @flavor.task
    async def buying() -> int:
        return int(await dying())

    with pytest.raises(Crash):
        hf.run(buying, id="t")
    if policy == "ask":
        with pytest.raises(BaseException, match="in doubt"):
            hf.resume("t")
        hf.resolve("t", "1", happened=True, result=5)
    assert hf.resume("t") == 5
    said = {"retry": "completed", "check": "settled", "ask": "doubted"}[policy]
    assert {"started", said, "task_completed"} <= set(store.written)
    assert store.late == []


def test_a_question_its_answer_and_its_end(hf, store, flavor, clock):
    @flavor.task
    async def asking() -> list[Any]:
        by_default = await flavor.ask("How many?", int, id="a", timeout_s=60, default=3)
        with pytest.raises(StepFailed):
            await flavor.ask("Which?", str, id="b", timeout_s=60)
        return [by_default, await flavor.ask("Why?", int, id="c")]

    for _ in range(3):
        with pytest.raises(Unanswered):
            hf.run(asking, id="t")
        clock.advance(61)
    hf.answer("t", 4, question="c")
    assert hf.resume("t") == [3, 4]
    assert {"question_asked", "question_answered", "question_expired"} <= set(store.written)
    assert store.late == []


def test_a_refused_approval(hf, store, flavor):
    @flavor.tool(approve=True)
    async def blow_up() -> None: ...

    @flavor.task
    async def asking_first() -> str:
        try:
            await blow_up()
        except StepFailed as failed:
            return failed.failure.type
        return ""

    with pytest.raises(Unanswered):
        hf.run(asking_first, id="t")
    hf.answer("t", False, question="approve-1")
    assert hf.resume("t") == "NotApproved"
    assert store.late == []


def test_a_sleep(store, flavor):
    @flavor.task
    async def napping() -> None:
        await flavor.sleep(0.001)
        await flavor.sleep(0.001)

    with Holdfast(store) as hf:
        hf.run(napping, id="t")
    assert store.written.count("timer_set") == store.written.count("woke") == 2
    assert store.late == []


def test_a_child_and_its_end(hf, store, flavor):
    @flavor.task
    async def one() -> int:
        return 1

    @flavor.task
    async def none() -> int:
        raise ValueError("none")

    @flavor.task
    async def parent() -> int:
        good, bad = await flavor.start(one, id="good"), await flavor.start(none, id="bad")
        with pytest.raises(StepFailed):
            await flavor.outcome(bad)
        return int(await flavor.outcome(good))

    assert hf.run(parent, id="t") == 1
    assert {"child_started", "child_made", "child_ended", "task_failed"} <= set(store.written)
    assert store.late == []


@pytest.mark.parametrize("ending", ["failed", "cancelled"])
def test_an_end_that_is_undone(hf, store, flavor, ending):
    async def give_back(result: int, *, key: str) -> None: ...

    @flavor.tool(undo=flavor.plain(give_back))
    async def take() -> int:
        return 1

    @flavor.task(compensate="always")
    async def taking() -> None:
        await take()
        if ending == "failed":
            raise ValueError("no more")
        await flavor.ask("More?", bool)

    with pytest.raises(TaskFailed if ending == "failed" else Unanswered):
        hf.run(taking, id="t")
    if ending == "cancelled":
        hf.cancel("t")
        with pytest.raises(TaskCancelled):
            hf.resume("t")
    last = {"failed": "task_failed", "cancelled": "task_cancelled"}[ending]
    assert {"compensating", "started", "completed", last} <= set(store.written)
    assert store.late == []
