"""The tasks of Holdfast that are measured on an engine."""

from typing import Any

from bench.engine_steps import (
    WORKERS,
    Message,
    looked_up,
    made,
    replied,
    said,
    said_before,
)
from holdfast import each, step, task


@step
def add(x: int) -> int:
    return made(x)


@step
def pace() -> dict[str, Any]:
    return said()


@task
def count(n: int) -> dict[str, Any]:
    x = 0
    for _ in range(n):
        x = add(x)
    assert x == n
    return pace()


@task
def spread(n: int) -> dict[str, Any]:
    assert sum(each(add, range(n), workers=WORKERS)) == n * (n + 1) // 2
    return pace()


@step
def model(messages: list[Message]) -> Message:
    return replied(messages)


@step
def look_up(what: str) -> Message:
    return looked_up(what)


@task
def converse(calls: int) -> dict[str, Any]:
    messages = said_before()
    for _ in range(calls):
        messages.append(model(messages))
        messages.append(look_up(messages[-1]["content"]))
    return {"calls": calls}


def engine_of(name: str, *where: str) -> Any:
    """The engine at an address: `temporal ADDRESS`, or `restate URL ADMIN LISTEN`."""
    if name == "temporal":
        from holdfast.engines.temporal import Temporal

        return Temporal(where[0])
    from holdfast.engines.restate import Restate

    url, admin, listen = where
    return Restate(url, admin=admin, listen=listen)
