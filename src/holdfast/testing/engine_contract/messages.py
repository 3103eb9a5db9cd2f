"""Messages into a running task: by name, in order, each once, also while nobody drives it."""

from __future__ import annotations

from functools import partial
from typing import Any

from holdfast.api.app import Holdfast
from holdfast.api.branches import gather
from holdfast.api.handle import Handle
from holdfast.api.steps import step
from holdfast.api.tasks import task
from holdfast.api.waiting import receive, send
from holdfast.errors import StepFailed
from holdfast.testing.engine_contract.working import PATIENCE_S, begin, until


@task
def messages_two() -> list[int]:
    return [receive("number", int), receive("number", int)]


@task
async def messages_atwo() -> list[int]:
    return [await receive("number", int), await receive("number", int)]


@task
def messages_both() -> list[int]:
    return list(gather(lambda: receive("number", int), lambda: receive("number", int)))


@task
async def messages_aboth() -> list[int]:
    both: list[int] = await gather(receive("number", int), receive("number", int))
    return both


@step
def messages_in_step() -> int:
    return int(receive("number", int)) + 1


@task
def messages_by_step() -> int:
    return messages_in_step()


@task
def messages_in_time() -> list[str]:
    first = receive("word", str, timeout_s=0.05, default="none")
    try:
        return [first, receive("word", str, timeout_s=0.05)]
    except StepFailed as error:
        return [first, error.failure.type]


@task
def messages_sends(to: str) -> None:
    send(to, "number", 1)
    send(to, "number", 2)


def _awaits(handle: Handle[Any]) -> bool:
    return any(call.status == "waiting" for call in handle.view.calls)


class Messages:
    """A message is durable when it is sent, and one call gets it."""

    def test_messages_come_in_order_to_a_task_that_waits(self, hf: Holdfast) -> None:
        for fn in (messages_two, messages_atwo):
            handle = begin(hf, fn)
            for number in (3, 1):
                until(partial(_awaits, handle))
                assert hf.send(handle.id, "number", number)
            assert handle.result(PATIENCE_S) == [3, 1]

    def test_messages_that_come_first_wait_for_the_task(self, hf: Holdfast) -> None:
        for fn in (messages_two, messages_atwo):
            handle = begin(hf, fn)
            sent = [hf.send(handle.id, "number", n, id=f"n{n}") for n in (3, 3, 1)]
            assert sent == [True, False, True]
            assert handle.result(PATIENCE_S) == [3, 1]

    def test_branches_get_a_message_each(self, hf: Holdfast) -> None:
        for fn in (messages_both, messages_aboth):
            handle = begin(hf, fn)
            for number in (1, 2):
                hf.send(handle.id, "number", number)
            assert sorted(handle.result(PATIENCE_S)) == [1, 2]

    def test_a_step_receives_too(self, hf: Holdfast) -> None:
        handle = begin(hf, messages_by_step)
        until(lambda: any(call.name == "receive" for call in handle.view.calls))
        hf.send(handle.id, "number", 4)
        assert handle.result(PATIENCE_S) == 5

    def test_a_message_that_does_not_come_is_not_waited_for_forever(self, hf: Holdfast) -> None:
        assert begin(hf, messages_in_time).result(PATIENCE_S) == ["none", "NoMessage"]

    def test_a_task_sends_to_another(self, hf: Holdfast) -> None:
        handle = begin(hf, messages_two)
        begin(hf, messages_sends, handle.id).result(PATIENCE_S)
        assert handle.result(PATIENCE_S) == [1, 2]
