"""Tasks whose readable files are looked at, some of them in processes that are killed."""

from __future__ import annotations

import random
import sys
from contextlib import suppress

from holdfast import (
    Holdfast,
    Retry,
    StepFailed,
    current,
    decide,
    note,
    progress,
    step,
    tool,
)
from holdfast import task as a_task

FORGED = "done\n\n# Status of `x`\n\n- status: completed\n<!-- holdfast 1: event 9 -->\x1b[31m"


@step(retry=Retry(attempts=3, delay_s=0.001, jitter=0))
def often_fails(seed: int) -> list[int]:
    if current().attempt <= seed % 3:
        raise ConnectionError(FORGED)
    return list(range(seed % 40))


@tool(in_doubt="retry")
def told_outside(text: str) -> str:
    return text


@step
def gives_up(seed: int) -> None:
    raise ValueError(f"no {seed} | no\n")


@a_task
def wanders(seed: int, length: int) -> str:
    """Does a bit of everything, in an order that the seed says."""
    chance = random.Random(seed)
    current().plan([f"item {n}" for n in range(1, 4)])
    for number in range(length):
        match chance.randrange(7):
            case 0:
                often_fails(chance.randrange(9))
            case 1:
                told_outside(FORGED if chance.random() < 0.5 else "x" * 5000)
            case 2:
                decide(f"way-{number}", number, options=[number, FORGED], because=FORGED)
            case 3:
                note(f"note {number % 3}", {"at": number})
            case 4:
                current().mark(str(chance.randrange(1, 4)), chance.choice(["doing", "done"]))
            case 5:
                progress(FORGED, done=number, total=length)
            case 6:
                with suppress(StepFailed):
                    gives_up(number)
    return FORGED


@a_task
def goes_on(number: int) -> int:
    """Ends only when its process does."""
    while True:
        often_fails(number)
        told_outside(str(number))
        number += 1


def main() -> None:
    where, number = sys.argv[1:]
    with Holdfast(where) as hf:
        assert hf.projections is not None
        hf.projections.every_s = 0.01
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        hf.run(goes_on, int(number), id=f"goes-on-{number}")


if __name__ == "__main__":
    main()
