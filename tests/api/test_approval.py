"""`@tool(approve=True)`: a person says yes to exactly this call, before it is made."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast import (
    AlreadyAnswered,
    BadInput,
    Holdfast,
    InDoubt,
    Retry,
    StepFailed,
    TaskCancelled,
    TaskFailed,
    Unanswered,
    Unserializable,
    Worker,
)
from holdfast.log.log import Log
from holdfast.stores.memory import MemoryStore
from tests.flavors import Background, Crash, Flavor, eventually


@pytest.fixture(params=["sync", "async"])
def flavor(request):
    return Flavor(request.param)


@pytest.fixture(params=["files", "memory"])
def place(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else tmp_path / "w"
    return lambda **options: Holdfast(store, **options)


@pytest.fixture
def files(tmp_path):
    return lambda **options: Holdfast(tmp_path / "w", **options)


class Payments:
    """A tool that needs a yes, and a task that pays."""

    def __init__(self, flavor: Flavor, **options) -> None:
        self.paid: list[int] = []
        self.amount = 5
        self.error: BaseException | None = None

        async def pay(amount: int) -> str:
            self.paid.append(amount)
            if self.error is not None:
                raise self.error
            return f"paid {amount}"

        self.pay = flavor.tool(pay, approve=True, **options)

        @flavor.task
        async def paying() -> str:
            return await self.pay(self.amount)

        self.task = paying


def waits(hf: Holdfast, task, id: str = "t") -> Unanswered:
    with pytest.raises(Unanswered) as waiting:
        hf.run(task, id=id)
    return waiting.value


def test_it_is_not_called_before_the_yes_and_exactly_once_after(flavor, place):
    payments = Payments(flavor)
    with place() as hf:
        for _ in range(3):
            waiting = waits(hf, payments.task)
        assert payments.paid == []
        assert hf.task("t").status == "awaiting_user"
        (question,) = hf.task("t").questions
        assert '"amount":5' in question.why
        assert waiting.id == question.key
    with place() as hf:
        hf.answer("t", True, by="ada")
        assert payments.paid == []
        assert hf.run(payments.task, id="t") == "paid 5"
        assert hf.run(payments.task, id="t") == "paid 5"
    assert payments.paid == [5]


def test_a_no_is_a_failure_in_the_body(flavor, place):
    payments = Payments(flavor, retry=Retry(attempts=3, delay_s=0))

    @flavor.task
    async def careful_payer() -> str:
        try:
            return await payments.pay(7)
        except StepFailed as failed:
            return f"{failed.path} {failed.failure.summary()}"

    with place() as hf:
        waits(hf, careful_payer)
        hf.answer("t", False, by="ada")
        for _ in range(2):
            assert hf.run(careful_payer, id="t") == "1 NotApproved: ada did not approve it"
    assert payments.paid == []


def test_a_no_that_nobody_catches_fails_the_task(flavor, place):
    payments = Payments(flavor)
    with place() as hf:
        waits(hf, payments.task)
        hf.answer("t", False, by="ada")
        with pytest.raises(TaskFailed, match="NotApproved"):
            hf.run(payments.task, id="t")
    assert payments.paid == []


def test_other_arguments_need_another_yes(flavor, place):
    payments = Payments(flavor)
    with place() as hf:
        waits(hf, payments.task)
        hf.answer("t", True)
        payments.amount = 5000  # what it pays changed after the yes, and before the call
        waits(hf, payments.task)
        assert payments.paid == []
        (question,) = hf.task("t").questions
        assert "5000" in question.why
        hf.answer("t", False)
        with pytest.raises(TaskFailed, match="NotApproved"):
            hf.run(payments.task, id="t")
    assert payments.paid == []


def test_each_call_needs_a_yes_of_its_own(flavor, place):
    payments = Payments(flavor)

    @flavor.task
    async def paying_twice() -> list[str]:
        return [await payments.pay(1), await payments.pay(1)]

    with place() as hf:
        waits(hf, paying_twice)
        hf.answer("t", True)
        waits(hf, paying_twice)
        assert payments.paid == [1]
        hf.answer("t", True)
        assert hf.run(paying_twice, id="t") == ["paid 1", "paid 1"]
    assert payments.paid == [1, 1]


@pytest.mark.parametrize("bad", ["yes", 1, None, [True]])
def test_an_answer_that_is_neither_yes_nor_no_is_refused(flavor, place, bad):
    payments = Payments(flavor)
    with place() as hf:
        waits(hf, payments.task)
        with pytest.raises(Unserializable, match="bool"):
            hf.answer("t", bad)
        waits(hf, payments.task)
    assert payments.paid == []


def test_a_yes_is_given_once_and_to_what_was_asked(flavor, place):
    payments = Payments(flavor)
    with place() as hf:
        waiting = waits(hf, payments.task)
        with pytest.raises(BadInput, match="no question 'approve-9'"):
            hf.answer("t", True, question="approve-9")
        hf.answer("t", False, question=waiting.id, by="ada")
        for question in (None, waiting.id):
            with pytest.raises(AlreadyAnswered, match="false by ada"):
                hf.answer("t", True, question=question)
        with pytest.raises(TaskFailed, match="NotApproved"):
            hf.run(payments.task, id="t")
    assert payments.paid == []


def test_branches_are_approved_one_by_one(flavor, place):
    payments = Payments(flavor)

    @flavor.task
    async def paying_side_by_side() -> list[str]:
        return await flavor.gather(lambda: payments.pay(1), lambda: payments.pay(2))

    with place() as hf:
        waits(hf, paying_side_by_side)
        first, second = hf.task("t").questions
        with pytest.raises(BadInput, match="2 questions"):
            hf.answer("t", True)
        hf.answer("t", True, question=second.key)
        waits(hf, paying_side_by_side)
        assert payments.paid == [2]
        hf.answer("t", True, question=first.key)
        assert hf.run(paying_side_by_side, id="t") == ["paid 1", "paid 2"]
    assert payments.paid == [2, 1]


def test_items_of_a_map_are_approved_one_by_one(flavor, place):
    payments = Payments(flavor)

    @flavor.task
    async def paying_each() -> list[str]:
        return await flavor.each(payments.pay, [1, 2, 3])

    with place() as hf:
        waits(hf, paying_each)
        questions = hf.task("t").questions
        assert len(questions) == 3
        for question in questions:
            hf.answer("t", True, question=question.key)
        assert hf.run(paying_each, id="t") == ["paid 1", "paid 2", "paid 3"]
    assert sorted(payments.paid) == [1, 2, 3]


def test_branches_of_plain_asyncio_are_approved(place):
    flavor = Flavor("async")
    payments = Payments(flavor)

    @flavor.task
    async def paying_plainly() -> list[str]:
        return await asyncio.gather(payments.pay(1), payments.pay(2))

    with place() as hf:
        waits(hf, paying_plainly)
        while questions := hf.task("t").questions:
            for question in questions:
                hf.answer("t", True, question=question.key)
            try:
                assert hf.run(paying_plainly, id="t") == ["paid 1", "paid 2"]
            except Unanswered:
                continue
    assert sorted(payments.paid) == [1, 2]


def test_a_yes_may_come_while_another_branch_is_at_work(flavor, place):
    payments, began, go_on = Payments(flavor), threading.Event(), threading.Event()

    @flavor.step
    async def meanwhile() -> str:
        began.set()
        await flavor.wait(go_on)
        return "done"

    @flavor.task
    async def paying_meanwhile() -> list[str]:
        return await flavor.gather(lambda: payments.pay(1), meanwhile)

    with place() as hf:
        running = Background(hf.run, paying_meanwhile, id="t")
        assert began.wait(60)
        eventually(lambda: any(hf.store.read("tasks/t")) and hf.task("t").questions)
        hf.answer("t", True)
        assert hf.task("t").questions == ()
        go_on.set()
        try:
            assert running.result() == ["paid 1", "done"]
        except Unanswered:
            assert hf.run(paying_meanwhile, id="t") == ["paid 1", "done"]
    assert payments.paid == [1]


@pytest.mark.parametrize("at", range(1, 8))
def test_a_crash_between_any_two_events_asks_once_and_pays_once(flavor, files, monkeypatch, at):
    payments = Payments(flavor, check=lambda key: None)
    append, count = Log.append, [0]

    def dying(log: Log, event, *args) -> None:
        count[0] += 1
        if count[0] == at:
            raise Crash
        append(log, event, *args)
        log.sync()

    monkeypatch.setattr(Log, "append", dying)
    for _ in range(4):
        with files() as hf:
            try:
                assert hf.run(payments.task, id="t") == "paid 5"
                break
            except Crash:
                continue
            except Unanswered:
                try:
                    hf.answer("t", True)
                except Crash:
                    continue
    with files() as hf:
        assert hf.run(payments.task, id="t") == "paid 5"
        kinds = [type(event).__name__ for event in hf.task("t").events()]
    assert (kinds.count("QuestionAsked"), kinds.count("QuestionAnswered")) == (1, 1)
    # Its check says that a call in doubt did not happen, so a crash after it pays once more.
    assert payments.paid in ([5], [5, 5])


def test_a_yes_holds_for_the_retries_of_the_call_and_for_one_in_doubt(flavor, place):
    payments = Payments(flavor, retry=Retry(attempts=2, delay_s=0, jitter=0))
    payments.error = ConnectionError("no route")
    with place() as hf:
        waits(hf, payments.task)
        hf.answer("t", True)
        with pytest.raises(TaskFailed, match="no route"):
            hf.run(payments.task, id="t")
        assert payments.paid == [5, 5]
        payments.error = Crash()
        with pytest.raises(Crash):
            hf.retry("t")
        payments.error = None
        with pytest.raises(InDoubt):
            hf.run(payments.task, id="t")
        hf.resolve("t", "1", happened=False)
        assert hf.run(payments.task, id="t") == "paid 5"
    assert payments.paid == [5, 5, 5, 5]


def test_a_task_that_waits_for_a_yes_is_cancelled_at_once(flavor, place):
    payments = Payments(flavor)
    with place() as hf:
        waits(hf, payments.task)
        assert hf.cancel("t") == "cancelled"
        with pytest.raises(TaskCancelled):
            hf.run(payments.task, id="t")
    assert payments.paid == []


def test_a_worker_goes_on_after_the_yes(flavor, place):
    payments = Payments(flavor)
    with place() as hf:
        handle = hf.start(payments.task, id="t")
        Worker(hf).run_until_idle()
        assert (handle.status, payments.paid) == ("awaiting_user", [])
        hf.answer("t", True)
        Worker(hf).run_until_idle()
        assert handle.result(timeout_s=60) == "paid 5"
    assert payments.paid == [5]


def test_an_undo_that_needs_a_yes_waits_for_it(flavor, place):
    payments = Payments(flavor)
    undo = payments.pay if flavor.is_async else payments.pay.plain

    async def lend(amount: int) -> int:
        return amount

    tool = flavor.tool(lend, undo=undo)

    @flavor.task
    async def lending() -> None:
        await tool(9)
        raise Crash

    with place() as hf:
        with pytest.raises(Crash):
            hf.run(lending, id="t")
        hf.cancel("t")
        with pytest.raises(Unanswered):
            hf.resume("t")
        assert payments.paid == []
        hf.answer("t", True)
        with pytest.raises(TaskCancelled):
            hf.resume("t")
    assert payments.paid == [9]


def test_outside_a_task_the_tool_is_the_plain_function(flavor):
    payments = Payments(flavor)
    called = payments.pay(3)
    result = asyncio.run(_value(called)) if flavor.is_async else called.value
    assert (result, payments.paid) == ("paid 3", [3])


async def _value(made):
    return await made
