"""Tasks that spend from one budget, in a process of their own: `python -m … STORE LEDGER …`."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from holdfast import Holdfast, StepFailed, step, task
from holdfast.agent import Budget, Metered, Prices, Reply, Request, Usage, assistant, user

BUDGET = Budget(1.00, per="all")
PRICES = {"m": Prices(input=0.0, output=20.0)}
COST = 0.02
"""Of 1,000 tokens: what every call takes."""


class Talker:
    """A model that writes every call down."""

    model = "m"

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger

    def __call__(self, request: Request) -> Reply:
        with self._ledger.open("a") as ledger:
            ledger.write(f"{COST}\n")
        time.sleep(0.005)
        return Reply(assistant("Yes."), Usage(10, 1000))


metered: Metered | None = None


@step
def ask_for_money(n: int) -> float:
    assert metered is not None
    reply = metered(Request((user("More?"),)))
    assert isinstance(reply, Reply)
    return reply.usage.cost


@task
def spends() -> int:
    for n in range(1000):
        try:
            ask_for_money(n)
        except StepFailed as error:
            assert error.failure.type == "BudgetExceeded", error
            return n
    return 1000


def main(url: str, ledger: str, expects: str, name: str) -> None:
    global metered
    metered = Metered(
        Talker(Path(ledger)), budgets=[BUDGET], prices=PRICES, expects_tokens=int(expects)
    )
    with Holdfast(url) as hf:
        tasks = [
            threading.Thread(target=hf.run, args=(spends,), kwargs={"id": f"{name}-{n}"})
            for n in range(5)
        ]
        for each in tasks:
            each.start()
        for each in tasks:
            each.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
