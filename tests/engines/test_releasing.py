"""When a task is released, what it waits for, and what is not stopped half-way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Literal

import pytest

from holdfast import (
    AlreadyAnswered,
    BadInput,
    Holdfast,
    InDoubt,
    Retry,
    TaskCancelled,
    TaskFailed,
    Unanswered,
    Worker,
    aask,
    ask,
    checkpoint,
    gather,
    restore,
    sleep,
    start,
    step,
    task,
    tool,
)
from holdfast.engines import execution
from tests.flavors import Background, Flavor, eventually

pytestmark = pytest.mark.holdfast("{tmp_path}/w", sync=False)


def work_until_idle(hf: Holdfast, seconds: float = 60.0) -> None:
    """Fails if the worker does not come to rest."""
    worker = Worker(hf, patience_s=0.05, poll_s=0.02)
    running = Background(worker.run_until_idle)
    try:
        running.result(seconds)
    finally:
        worker.stop()


done: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done():
    done.clear()


@tool(approve=True)
def back_after_a_yes(result: str) -> None:
    done.append(f"back {result}")


@tool(undo=back_after_a_yes)
def book_it(what: str) -> str:
    done.append(what)
    return what


@task
def books_and_sleeps() -> None:
    book_it("a")
    sleep(60)


def test_a_time_that_no_longer_matters_does_not_wake_a_task(hf, holdfast_clock):
    holdfast_clock.skips = False
    hf.start(books_and_sleeps, id="t")
    work_until_idle(hf)
    assert hf.cancel("t") == "in_progress"
    holdfast_clock.advance(61)  # the sleep it was in is over, and nobody waits for it
    work_until_idle(hf)
    before = hf.task("t").seq
    work_until_idle(hf)
    assert hf.task("t").seq == before
    hf.answer("t", True)
    work_until_idle(hf)
    assert (hf.task("t").status, done) == ("cancelled", ["a", "back a"])


def nap() -> None:
    sleep(0.2)


@step(retry=Retry(attempts=3, delay_s=0.2, jitter=0))
def works_the_second_time() -> None:
    done.append("tried")
    if done.count("tried") < 2:
        raise ConnectionError("again")


@task
def quick_child() -> int:
    return 1


def waits_for_a_child() -> None:
    assert start(quick_child).result() == 1


@pytest.mark.parametrize("inner", [nap, works_the_second_time, waits_for_a_child])
def test_a_tool_that_waits_inside_is_not_stopped_half_way_by_a_worker(hf, inner):
    name = f"tool_with_{inner.__name__}"

    @tool(name=name)
    def outer() -> str:
        inner()
        done.append("outer")
        return "done"

    @task(name=f"task_with_{name}")
    def tools() -> str:
        return outer()

    handle = hf.start(tools, id="t")
    work_until_idle(hf)
    assert handle.result(timeout_s=60) == "done"
    assert done.count("outer") == 1


@pytest.mark.parametrize("told", ["pause", "stop", "cancel"])
def test_a_tool_with_steps_comes_to_its_end_before_the_task_stops(hf, told):
    began, go_on = threading.Event(), threading.Event()

    @step(name=f"piece_{told}")
    def piece(n: int) -> int:
        began.set()
        assert go_on.wait(60)
        return n

    @tool(name=f"many_pieces_{told}")
    def many() -> int:
        return piece(1) + piece(2)

    @task(name=f"stopped_in_a_tool_{told}")
    def agent() -> int:
        return many() + piece(3)

    hf.start(agent, id="t")
    worker = Worker(hf, poll_s=0.02)
    running = Background(worker.run)
    assert began.wait(60)
    if told == "stop":
        worker.stop()
        eventually(lambda: any(run.stop for run in hf._driving.runs))
    else:
        getattr(hf, told)("t")
    go_on.set()
    eventually(lambda: not worker.active)
    worker.stop()
    running.result()
    calls = {call.path: call.status for call in hf.task("t").calls}
    assert calls == {"1": "completed", "1.1": "completed", "1.2": "completed"}


@task
def slow_child(n: int) -> int:
    return n + 1


def test_a_child_can_be_had_again_after_a_checkpoint_and_a_crash(hf):
    crash = [True]

    @task(name="parent_with_checkpoints")
    def parent() -> int:
        n = restore(0)
        child = start(slow_child, 4, id="kiddo")
        if n == 0:
            n = checkpoint(1)
        if crash.pop():
            raise KeyboardInterrupt
        return child.result() + n

    crash.insert(0, False)
    with pytest.raises(KeyboardInterrupt):
        hf.run(parent, id="p")
    assert hf.run(parent, id="p") == 6
    assert hf.task("kiddo").status == "completed"


def test_a_child_made_just_before_a_crash_is_cancelled_with_its_parent(hf, monkeypatch):
    create = execution.create_child

    def dies(*given: Any) -> None:
        create(*given)
        raise KeyboardInterrupt

    @task(name="parent_that_dies")
    def parent() -> int:
        return start(slow_child, 4, id="orphan").result()

    monkeypatch.setattr("holdfast.engines.sync_driver.create_child", dies)
    with pytest.raises(KeyboardInterrupt):
        hf.run(parent, id="p")
    monkeypatch.undo()
    hf.cancel("p")
    with pytest.raises(TaskCancelled):
        hf.resume("p")
    assert (hf.task("p").status, hf.task("orphan").status) == ("cancelled", "cancelled")


def unbook(result: str) -> None:
    done.append(f"undo {result}")


@tool(undo=unbook)
def book_once(what: str) -> str:
    done.append(what)
    return what


@task
def books_as_a_child() -> None:
    book_once("child")
    ask("Go on?", bool)


@task
def books_first() -> None:
    book_once("parent")
    start(books_as_a_child, id="child").result()


@pytest.mark.parametrize("by", ["hand", "worker"])
def test_what_a_child_did_is_undone_before_what_its_parent_did(hf, by):
    with pytest.raises(Unanswered):
        hf.run(books_first, id="p")
    hf.cancel("p")
    if by == "hand":
        with pytest.raises(TaskCancelled):
            hf.resume("p")
    else:
        work_until_idle(hf)
    assert done == ["parent", "child", "undo child", "undo parent"]
    assert (hf.task("p").status, hf.task("child").status) == ("cancelled", "cancelled")


def test_what_could_not_be_undone_is_not_called_undone(hf):
    def fails(result: int) -> None:
        raise ConnectionError("closed")

    @tool(undo=fails, name="not_to_be_undone")
    def act() -> int:
        return 1

    @task(compensate="always", name="undone_in_vain")
    def agent() -> None:
        act()
        raise ValueError("no")

    with pytest.raises(TaskFailed) as failed:
        hf.run(agent, id="t")
    assert "was undone" not in str(failed.value)


def test_an_answer_that_comes_while_another_branch_works_is_gone_on_with(hf):
    began, answered = threading.Event(), threading.Event()

    @step(name="slow_beside_a_question")
    async def slow() -> int:
        began.set()
        await Flavor("async").wait(answered)
        return 1

    @task(name="asks_beside")
    async def agent() -> list[Any]:
        return list(await asyncio.gather(aask("Well?", id="q"), slow()))

    running = Background(hf.run, agent, id="t")
    assert began.wait(60)
    eventually(lambda: hf.task("t").questions)
    hf.answer("t", "fine")
    answered.set()
    assert running.result() == ["fine", 1]


def test_unpaused_during_the_step_in_hand_it_never_stops(hf):
    began, go_on = threading.Event(), threading.Event()

    @step(name="stops_for_nobody")
    def slow() -> int:
        began.set()
        assert go_on.wait(60)
        return 1

    @task(name="paused_and_unpaused")
    def agent() -> int:
        return slow() + slow()

    running = Background(hf.run, agent, id="t")
    assert began.wait(60)
    hf.pause("t")
    hf.unpause("t")
    go_on.set()
    assert running.result() == 2


@task
def asks_for_a_colour() -> str:
    return ask("Which?", Literal["red", "blue"])


def test_an_answer_that_does_not_fit_is_told_when_it_is_asked_for_again(hf):
    with pytest.raises(Unanswered):
        hf.run(asks_for_a_colour, id="t")
    hf.answer("t", "green")
    with pytest.raises(Unanswered, match="did not fit") as again:
        hf.run(asks_for_a_colour, id="t")
    assert "green" in again.value.refused or "Literal" in again.value.refused
    hf.answer("t", "red")
    assert hf.run(asks_for_a_colour, id="t") == "red"


def test_a_call_in_doubt_is_settled_while_another_branch_works(hf):
    began, go_on, crash = threading.Event(), threading.Event(), [True]

    @tool(name="doubtful_letter")
    def letter() -> str:
        if crash.pop() if crash else False:
            raise KeyboardInterrupt
        return "sent"

    @step(name="beside_a_doubt")
    def slow() -> int:
        began.set()
        assert go_on.wait(60)
        return 1

    @task(name="doubt_beside_work")
    def agent() -> list[Any]:
        return gather(letter, slow)

    go_on.set()
    with pytest.raises(KeyboardInterrupt):
        hf.run(agent, id="t")
    go_on.clear()
    began.clear()
    running = Background(hf.run, agent, id="t")
    eventually(lambda: hf.task("t").status == "awaiting_user")
    hf.resolve("t", "1.1.1", happened=True, result="sent after all")
    go_on.set()
    try:
        result = running.result()
    except InDoubt:
        result = hf.run(agent, id="t")
    assert result == ["sent after all", 1]


@pytest.mark.parametrize("patience_s", [0, 0.05])
def test_a_parent_goes_on_as_soon_as_its_child_has_ended(hf, patience_s):
    @task(name=f"hurried_parent_{int(100 * patience_s)}")
    def parent() -> int:
        return start(slow_child, 1).result()

    handle = hf.start(parent, id="p")
    worker = Worker(hf, poll_s=0.02, patience_s=patience_s)
    running = Background(worker.run)
    assert handle.result(timeout_s=60) == 2
    worker.stop()
    running.result()


def test_two_who_answer_at_once_are_told_of_each_other(hf):
    with pytest.raises(Unanswered):
        hf.run(asks_for_a_colour, id="t")
    said: list[Any] = []

    def answer(colour: str) -> Callable[[], None]:
        def now() -> None:
            try:
                hf.answer("t", colour)
                said.append(colour)
            except (AlreadyAnswered, BadInput) as error:
                said.append(error)

        return now

    threads = [threading.Thread(target=answer(colour)) for colour in ("red", "blue")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (first,) = [one for one in said if isinstance(one, str)]
    (error,) = [one for one in said if isinstance(one, Exception)]
    assert first in str(error)
    assert hf.run(asks_for_a_colour, id="t") == first


@task
def one_of_three(n: int) -> int:
    return n


@task
def three_children() -> list[int]:
    children = [start(one_of_three, n) for n in range(3)]
    return [child.result() for child in children]


def test_a_worker_that_works_until_idle_leaves_no_parent_half_way(hf):
    handles = [hf.start(three_children, id=f"p{n}") for n in range(12)]
    work_until_idle(hf)
    assert [handle.status for handle in handles] == ["completed"] * 12
