"""A fault of the store at any point of a task is weather: the task goes on later, and never fails.

Every call of the store fails once, in one run after the other: before it was done, and after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import (
    Artifact,
    Happened,
    Holdfast,
    HoldfastError,
    IdempotencyKey,
    Retry,
    StorageFailed,
    Worker,
    aask,
    areceive,
    ask,
    checkpoint,
    decide,
    each,
    gather,
    keep,
    note,
    now,
    progress,
    receive,
    restore,
    send,
    sleep,
    start,
    step,
    task,
    tool,
)
from holdfast.stores.memory import MemoryStore
from holdfast.stores.port import Lease
from holdfast.stores.wrapped import Wrapped
from tests.crash.agents import NO_KEY
from tests.thorough import some

LARGE = "as much as a page of a book " * 4000
# Not `release`: a store that could not release a lease does so later, and raises nothing.
CALLS = (
    "acquire", "holder", "renew", "append", "sync", "read", "find", "remember", "put_side",
    "get_side", "drop_side", "put_blob", "get_blob",
)  # fmt: skip


class Faulty(Wrapped):
    """A store of which one call fails, by number: before it does anything, or after."""

    def __init__(self, fails_at: int, *, after: bool) -> None:
        super().__init__(MemoryStore())
        self.fails_at, self.after = fails_at, after
        self.calls = 0
        self.failed = ""


def _failing(name: str) -> Callable[..., Any]:
    whole = getattr(Wrapped, name)

    def call(self: Faulty, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        is_now = self.calls == self.fails_at
        error = StorageFailed(f"{name} failed")
        done = None
        if not is_now or self.after:
            done = whole(self, *args, **kwargs)
            done = iter(list(done)) if isinstance(done, Iterator) else done
        if not is_now:
            return done
        self.failed = name
        if name == "acquire" and done is not None:  # it was not heard of: so nobody has it
            self.inner.release([lease for lease in done if isinstance(lease, Lease)])
        if name in ("acquire", "sync"):  # of many at once, each has its own error
            return [error for _ in args[0]]
        raise error

    return call


for _name in CALLS:
    setattr(Faulty, _name, _failing(_name))

effects: Counter[str] = Counter()
tried: Counter[str] = Counter()


def happened(key: str) -> Happened[str] | None:
    return Happened(key) if effects[key] else None


@tool(check=happened)
def pay(amount: int, *, key: IdempotencyKey = NO_KEY) -> str:
    effects[key] += 1
    return key


@tool(check=happened)
async def apay(amount: int, *, key: IdempotencyKey = NO_KEY) -> str:
    effects[key] += 1
    return key


@step(retry=Retry(attempts=9, delay_s=0, jitter=0))
def uncertain(name: str) -> str:
    tried[name] += 1
    if tried[name] < 2:
        raise ConnectionError("not the first time")
    return name


@step(cache=True)
def shared(number: int) -> str:
    return LARGE


@step
def diary(days: int) -> Iterator[str]:
    for day in range(days):
        yield f"day {day}"


@step
def write_letter() -> Artifact:
    return keep([LARGE.encode()], "letter.txt")


@task
def child_of_weather(number: int) -> str:
    sleep(0)
    return pay(number)


@task
def listener_of_weather() -> str:
    return receive("greeting", str)


@task
def looping_in_weather(most: int) -> int:
    done = restore(0)
    while done < most:
        pay(done)
        done = checkpoint(done + 1)
    return done


@task
def journey_in_weather() -> dict[str, Any]:
    began = now()
    progress("sets out", done=0, total=3)
    decide("way", "sea", options=["sea", "land"])
    note("the wind is fair")
    first, second = start(child_of_weather, 1), start(looping_in_weather, 2)
    listener = start(listener_of_weather, id="listener")
    write_letter()
    found = {
        "paid": len(pay(1)) > 0,
        "tried": uncertain("sync"),
        "large": shared(1) == LARGE,
        "each": len(each(pay, [2, 3], workers=1)),
        "gather": gather(lambda: len(pay(4)) > 0, lambda: uncertain("branch")),
        "asked": ask("Go on?", bool, id="go"),
        "diary": list(diary(2)),
        "child": len(first.result()) > 0,
        "looped": second.result(),
    }
    send("listener", "greeting", "hello")
    return {**found, "heard": listener.result(), "later": now() >= began}


@task
async def ajourney_in_weather() -> dict[str, Any]:
    child = await start(child_of_weather, 1)
    asked = await aask("Go on?", bool, id="go")
    return {
        "paid": len(await apay(1)) > 0,
        "child": len(child) > 0,
        "asked": asked,
        "heard": await areceive("greeting", str),
    }


JOURNEYS = {
    journey_in_weather: {
        "paid": True, "tried": "sync", "large": True, "each": 2, "gather": [True, "branch"],
        "asked": True, "diary": ["day 0", "day 1"], "child": True, "looped": 2, "heard": "hello",
        "later": True,
    },
    ajourney_in_weather: {"paid": True, "child": True, "asked": True, "heard": "hello"},
}  # fmt: skip


def drive(journey: Any, fails_at: int, *, after: bool = False) -> Faulty:
    """Have workers drive it to its end; returns the store."""
    effects.clear()
    tried.clear()
    store = Faulty(0, after=after)
    with Holdfast(store) as hf:
        hf.start(journey, id="j")
        if journey is ajourney_in_weather:
            hf.send("j", "greeting", "hello")
        store.calls, store.fails_at = 0, fails_at
        for _ in range(40):
            try:
                Worker(hf, poll_s=0.01).run_until_idle()
                status = hf.task("j").status
                if status == "awaiting_user":
                    hf.answer("j", True, question="go", by="ada")
                elif status not in ("pending", "in_progress"):
                    break
            except StorageFailed:
                continue  # a worker that runs for long goes on by itself
            except HoldfastError as error:
                assert "already" in str(error) or store.failed, error
        calls, store.fails_at = store.calls, 0
        view = hf.task("j")
        assert view.status == "completed", (store.failed, fails_at, after, view.failure)
        assert view.result == JOURNEYS[journey], (store.failed, fails_at, after)
        assert set(effects.values()) == {1}, "an effect was made twice"
        assert {each.status for each in hf.tasks()} == {"completed"}
        store.calls = calls
    return store


@pytest.mark.timeout(600)
@pytest.mark.parametrize("journey", list(JOURNEYS), ids=["sync", "async"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_task_goes_on_whichever_call_of_the_store_failed(journey, after):
    whole = drive(journey, 0)
    assert whole.failed == ""
    for number in some(range(1, whole.calls + 1), 13):
        drive(journey, number, after=after)
