"""A task that is moved while it waits for a person and for the next attempt of a step."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from holdfast import IdempotencyKey, Retry, ask, gather, sleep, start, step, task, tool

PATIENT = Retry(attempts=100, delay_s=0.4, backoff=1.0, jitter=0)


def _world() -> Path:
    return Path(os.environ["AGENT_WORLD_FOLDER"])


@step(name="moved_dial", retry=PATIENT)
def dial(number: str) -> str:
    """Nobody answers until somebody is at home."""
    if not (_world() / number).exists():
        raise ConnectionError("nobody at home")
    return f"{number} answered"


@tool(name="moved_pay")
def pay(what: str, *, key: IdempotencyKey = IdempotencyKey()) -> str:
    with (_world() / "paid").open("a") as ledger:
        ledger.write(f"{key}\n")
    return f"paid {what}"


@task(name="moved_errand")
def errand(what: str) -> bool:
    pay(what)
    return bool(ask(f"Is {what} all right?", bool))


@task(name="moved_house")
def house() -> dict[str, Any]:
    paid = pay("the van")
    first = gather(lambda: ask("Left?", bool, id="left"), lambda: dial("one"))
    child = start(errand, "the key")
    second = gather(lambda: ask("Right?", bool, id="right"), lambda: dial("two"))
    sleep(0.05)
    return {"paid": paid, "first": first, "second": second, "child": child.result()}
