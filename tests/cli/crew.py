"""Agents that wait, have children, can be undone: what a worker drives in the tests."""

import asyncio
import os
import time
from pathlib import Path

from holdfast import (
    ask,
    checkpoint,
    note,
    progress,
    restore,
    sleep,
    start,
    step,
    task,
    tool,
)


def wait_for(name: str) -> None:
    """Wait for a file that a test makes."""
    give_up_at = time.monotonic() + 60
    while not Path(name).exists():
        if time.monotonic() > give_up_at:
            raise TimeoutError(name)
        time.sleep(0.01)


def say(line: str) -> None:
    """What happened, in a file that outlives the process."""
    with open("effects", "a") as file:
        file.write(f"{line}\n")


@step
def work(name: str) -> str:
    say(f"work {name}")
    Path(f"{name}.begun").touch()
    wait_for(f"{name}.go")
    return f"{name} worked"


@step
def finish(text: str) -> str:
    say(f"finish {text}")
    return f"{text}, finished"


@task
def job(name: str) -> str:
    print("job prints this")
    return finish(work(name))


@step
async def awork(name: str) -> str:
    say(f"work {name}")
    open(f"{name}.begun", "w").close()  # noqa: ASYNC230 (nothing else runs on this loop)
    while not os.path.exists(f"{name}.go"):  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0.01)
    return f"{name} worked"


@task
async def ajob(name: str) -> str:
    text = await awork(name)
    return finish(text)


@task
def chore(name: str) -> str:
    return finish(name)


@step
def meet(name: str, enough: int) -> int:
    """How many of us are here at a time; waits a little for others to come."""
    place = Path("here")
    place.mkdir(exist_ok=True)
    (place / name).touch()
    most, give_up_at = 0, time.monotonic() + 0.4
    while most < enough and time.monotonic() < give_up_at:
        most = max(most, len(list(place.iterdir())))
        time.sleep(0.01)
    (place / name).unlink()
    return most


@task
def meeting(name: str, enough: int) -> int:
    return meet(name, enough)


@task
def naps(seconds: float) -> str:
    sleep(seconds)
    return finish("nap")


@task
def asks() -> str:
    return finish("booked" if ask("Book it?", bool, id="book") else "left it")


@tool(approve=True)
def spend(amount: int) -> int:
    say(f"spend {amount}")
    return amount


@task
def spends(amount: int) -> int:
    return spend(amount)


def release(what: str, *, key: str) -> None:
    if Path(f"{what}.stuck").exists():
        raise RuntimeError(f"{what} can't be released")
    say(f"release {what}")


@tool(undo=release)
def reserve(what: str) -> str:
    say(f"reserve {what}")
    return what


@step
def depart() -> str:
    if Path("storm").exists():
        raise RuntimeError("there is a storm")
    return "departed"


@task
def trip(wait: str = "") -> str:
    reserve("hotel")
    reserve("train")
    if wait:
        work(wait)
    return depart()


@task(compensate="failed")
def careful_trip() -> str:
    reserve("hotel")
    return depart()


@task(timeout_s=3600)
def family(names: list[str]) -> list[str]:
    children = [start(job, name) for name in names]
    note("the children are on their way")
    return [child.result() for child in children]


@step
def index(upto: int) -> int:
    for number in range(upto + 1):
        progress("indexed", done=number, total=upto)
    wait_for("indexed.go")
    return upto


@task
def indexes(upto: int) -> int:
    progress("looking")
    return index(upto)


@task
def loops(turns: int) -> list[str]:
    done = restore(list[str]())
    while len(done) < turns:
        done = checkpoint([*done, finish(f"turn {len(done) + 1}")])
    work("loops")
    return done


@task
def stops_the_program() -> str:
    text = finish("once")
    if Path("leave").exists():
        raise SystemExit(3)
    return finish(text)
