"""Messages into a running task: durable, in order for each name, validated, and counted once."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from typing import Any

import pydantic
import pytest

from holdfast import (
    BadInput,
    Holdfast,
    HoldfastError,
    Secret,
    StepFailed,
    TaskCancelled,
    TaskFailed,
    TaskNotFound,
    TaskPaused,
    Unserializable,
    Worker,
    checkpoint,
    gather,
    receive,
    restore,
    send,
    start,
    step,
    task,
    tool,
)
from holdfast.core.events import MessageAwaited, MessageRefused, MessageSent
from tests.stores.every import KINDS, LASTING, new_url, postgres_server  # noqa: F401


@dataclass
class Order:
    item: str
    count: int


@task
def takes_two() -> list[int]:
    return [receive("number", int), receive("number", int)]


@task
async def atakes_two() -> list[int]:
    return [await receive("number", int), await receive("number", int)]


caught: list[Exception] = []


@task
def takes_one_and_looks() -> int:
    try:
        return receive("number", int)
    except Exception as error:
        caught.append(error)
        raise


@task
async def atakes_one_and_looks() -> int:
    try:
        return await receive("number", int)
    except Exception as error:
        caught.append(error)
        raise


@task
def takes_order() -> Order:
    return receive("order", Order)


@task
def takes_by_name() -> list[str]:
    return [receive("second", str), receive("first", str)]


@task
def sends(to: str) -> list[bool]:
    return [send(to, "number", 1), send(to, "number", 2)]


pytestmark = pytest.mark.holdfast("memory://")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fn", [takes_two, atakes_two])
def test_messages_come_in_the_order_in_which_they_were_sent(new_url, kind, fn):  # noqa: F811
    with Holdfast(new_url(kind)) as hf:
        hf.start(fn, id="t")
        assert all(hf.send("t", "number", number) for number in (3, 1))
        assert hf.resume("t") == [3, 1]


@pytest.mark.parametrize("fn", [takes_two, atakes_two])
def test_a_task_that_runs_here_waits_for_its_messages(hf, fn):
    def tell() -> None:
        for number in (3, 1):
            while len([e for e in hf.task("t").events() if isinstance(e, MessageAwaited)]) < 1:
                pass
            hf.send("t", "number", number)

    hf.start(fn, id="t")
    thread = threading.Thread(target=tell)
    thread.start()
    assert hf.resume("t") == [3, 1]
    thread.join()


@pytest.mark.parametrize(("tell", "status"), [("pause", "paused"), ("cancel", "cancelled")])
@pytest.mark.parametrize("fn", [takes_one_and_looks, atakes_one_and_looks])
def test_a_task_that_waits_here_for_a_message_hears_that_it_is_to_stop(hf, fn, tell, status):
    caught.clear()
    hf.start(fn, id="t")
    with ThreadPoolExecutor(1) as threads:
        driving = threads.submit(hf.resume, "t")
        while not any(isinstance(e, MessageAwaited) for e in hf.task("t").events()):
            assert not driving.done()
        getattr(hf, tell)("t")
        with pytest.raises((TaskPaused, TaskCancelled)):
            driving.result()
    assert hf.task("t").status == status
    assert caught == []


def test_each_name_is_a_queue_of_its_own(hf):
    hf.start(takes_by_name, id="t")
    hf.send("t", "first", "a")
    hf.send("t", "second", "b")
    assert hf.resume("t") == ["b", "a"]


def test_branches_that_wait_for_one_name_get_a_message_each(hf):
    @task
    def two_receivers() -> list[int]:
        return list(gather(lambda: receive("n", int), lambda: receive("n", int)))

    hf.start(two_receivers, id="t")
    hf.send("t", "n", 1)
    hf.send("t", "n", 2)
    assert sorted(hf.resume("t")) == [1, 2]


@pytest.mark.parametrize("kind", LASTING)
def test_a_parked_task_is_woken_by_its_message(new_url, kind):  # noqa: F811
    with Holdfast(new_url(kind)) as hf:
        handle = hf.start(takes_two, id="t")
        worker = Worker(hf)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            for number in (1, 2):
                while sum(c.status == "waiting" for c in hf.task("t").calls) < 1:
                    pass
                hf.send("t", "number", number)
            assert handle.result(timeout_s=20) == [1, 2]
        finally:
            worker.stop()
            thread.join()


def test_a_message_that_was_sent_twice_counts_once(hf):
    hf.start(takes_two, id="t")
    assert [hf.send("t", "number", n, id="a") for n in (1, 1)] == [True, False]
    assert hf.send("t", "number", 2, id="b")
    assert hf.resume("t") == [1, 2]
    assert len([e for e in hf.task("t").events() if isinstance(e, MessageSent)]) == 2


def test_the_same_id_under_another_name_is_another_message(hf):
    hf.start(takes_by_name, id="t")
    assert hf.send("t", "first", "a", id="1")
    assert hf.send("t", "second", "b", id="1")
    assert hf.resume("t") == ["b", "a"]


def test_a_message_that_does_not_fit_is_refused_and_the_next_one_taken(hf):
    hf.start(takes_order, id="t")
    hf.send("t", "order", {"item": "tea", "count": "many"})
    hf.send("t", "order", {"item": "tea", "count": 2})
    assert hf.resume("t") == Order("tea", 2)
    (refused,) = [e for e in hf.task("t").events() if isinstance(e, MessageRefused)]
    assert "count" in refused.why


def test_a_message_is_the_same_as_an_object_or_as_its_json(hf):
    for id, value in (("a", Order("tea", 2)), ("b", {"item": "tea", "count": 2})):
        hf.start(takes_order, id=id)
        hf.send(id, "order", value)
        assert hf.resume(id) == Order("tea", 2)


class Ticket(pydantic.BaseModel):
    number: int
    day: date = date(2026, 5, 1)


@task
def takes_ticket() -> Ticket:
    return receive("ticket", Ticket)


@pytest.mark.parametrize(
    ("takes", "value"),
    [(takes_order, Order("tea", 2)), (takes_ticket, Ticket(number=3))],
)
def test_a_task_sends_an_object_of_a_class_to_another(hf, takes, value):
    @task
    def sends_object(to: str, name: str) -> None:
        send(to, name, value)

    hf.start(takes, id="t")
    hf.run(sends_object, "t", takes.__name__.removeprefix("takes_"), id="s")
    assert hf.resume("t") == value


def test_a_sender_is_refused_where_the_type_is_known(hf):
    @task
    def waits_for_a_number() -> int:
        return receive("n", int, timeout_s=3600)

    handle = hf.start(waits_for_a_number, id="t")
    worker = Worker(hf)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        while not hf.task("t").calls:
            pass
        with pytest.raises(Unserializable, match="int"):
            hf.send("t", "n", "many")
        assert hf.send("t", "n", 4)
        assert handle.result(timeout_s=20) == 4
    finally:
        worker.stop()
        thread.join()


def test_when_the_time_is_up_the_default_counts_or_the_call_fails(hf):
    @task
    def in_time() -> list[str]:
        first = receive("a", str, timeout_s=0.02, default="none")
        try:
            return [first, receive("a", str, timeout_s=0.02)]
        except StepFailed as error:
            return [first, error.failure.type]

    assert hf.run(in_time, id="t") == ["none", "NoMessage"]
    assert hf.run(in_time, id="t") == ["none", "NoMessage"]


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("kind", LASTING)
def test_a_task_that_was_killed_goes_on_with_the_messages_it_had(new_url, kind):  # noqa: F811
    url, kills = new_url(kind), [1]

    @step
    def halfway() -> None:
        if kills:
            kills.pop()
            raise Killed

    @task
    def killed_between() -> list[int]:
        first = receive("n", int)
        halfway()
        return [first, receive("n", int)]

    with Holdfast(url) as hf:
        hf.start(killed_between, id="t")
        for number in (1, 2):
            hf.send("t", "n", number)
        with pytest.raises(Killed):
            hf.resume("t")
    with Holdfast(url) as hf:
        assert hf.resume("t") == [1, 2]
        assert hf.replay("t").divergence is None


def test_a_checkpoint_keeps_the_messages_that_nobody_took(hf):
    kills = [1]

    @task
    def counts_up() -> int:
        total = restore(0)
        while total < 10:
            total += receive("n", int)
            checkpoint(total)
            if kills:
                kills.pop()
                raise Killed
        return total

    hf.start(counts_up, id="t")
    for number in (3, 4, 5):
        hf.send("t", "n", number)
    with pytest.raises(Killed):
        hf.resume("t")
    assert hf.resume("t") == 12


def test_a_task_sends_to_another_once_though_it_is_killed_right_after(hf):
    kills = [1]

    @task
    def sends_and_dies(to: str) -> None:
        send(to, "number", 1)
        if kills:
            kills.pop()
            raise Killed
        send(to, "number", 2)

    hf.start(takes_two, id="t")
    with pytest.raises(Killed):
        hf.run(sends_and_dies, "t", id="s")
    hf.run(sends_and_dies, "t", id="s")
    assert hf.resume("t") == [1, 2]
    assert [e.by for e in hf.task("t").events() if isinstance(e, MessageSent)] == ["task 's'"] * 2


def test_a_parent_and_its_child_talk(hf):
    @task
    def echoes() -> int:
        return receive("n", int) + 1

    @task
    def talks_to_its_child() -> int:
        child = start(echoes, id="child")
        send("child", "n", 4)
        return child.result()

    assert hf.run(talks_to_its_child, id="t") == 5


def _tell(url: str) -> None:
    with Holdfast(url) as hf:
        hf.send("t", "number", 1)
        hf.send("t", "number", 2)


@pytest.mark.parametrize("kind", LASTING)
def test_another_process_sends_to_a_task_that_runs_here(new_url, kind):  # noqa: F811
    url = new_url(kind)
    with Holdfast(url) as hf:
        hf.start(takes_two, id="t")
        other = multiprocessing.get_context("spawn").Process(target=_tell, args=(url,))
        other.start()
        assert hf.resume("t") == [1, 2]
        other.join()


def test_a_task_that_waits_for_messages_leaves_its_loop_to_others(hf):
    async def both() -> tuple[Any, int]:
        hf.start(atakes_two, id="t")
        waiting, ticks = asyncio.create_task(hf.aresume("t")), 0
        while not waiting.done():
            await asyncio.sleep(0.001)
            ticks += 1
            if ticks in (5, 10):
                await asyncio.to_thread(hf.send, "t", "number", ticks)
        return await waiting, ticks

    result, ticks = asyncio.run(both())
    assert (result, ticks >= 10) == ([5, 10], True)


def test_a_fork_has_the_messages_of_its_past(hf):
    hf.start(takes_two, id="t")
    hf.send("t", "number", 1)
    hf.send("t", "number", 2)
    assert hf.resume("t") == [1, 2]
    fork = hf.fork("t", at=2, effects="live")
    assert hf.resume(fork.id) == [1, 2]


def test_what_is_wrong_is_said(hf):
    @tool
    def receives() -> int:
        return receive("n", int, timeout_s=1)

    @task
    def by_tool() -> int:
        return receives()

    with pytest.raises(TaskNotFound):
        hf.send("nobody", "n", 1)
    with pytest.raises(HoldfastError, match="outside a task"):
        receive("n")
    with pytest.raises(HoldfastError, match="outside a task"):
        send("t", "n", 1)
    with pytest.raises(TaskFailed, match="receive it before the tool"):
        hf.run(by_tool, id="tool")
    hf.start(takes_two, id="t")
    for name in ("", "x" * 201, 7):
        with pytest.raises(BadInput):
            hf.send("t", name, 1)
    with pytest.raises(Unserializable):
        hf.send("t", "number", object())
    for number in (1, 2):
        hf.send("t", "number", number)
    hf.resume("t")
    with pytest.raises(BadInput, match="completed"):
        hf.send("t", "number", 3)


def test_no_secret_is_received(hf):
    @task
    def asks_for_a_secret() -> str:
        return str(receive("key", Secret))

    with pytest.raises(TaskFailed, match=r"Secret\.named"):
        hf.run(asks_for_a_secret, id="t")
