"""Both drivers, sync and async, where something under or around a call goes wrong."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import holdfast
from holdfast import (
    CodeChanged,
    CodeMissing,
    Happened,
    Holdfast,
    InDoubt,
    Retry,
    StepFailed,
    StorageFailed,
    Unanswered,
)
from holdfast.core.spec import registry
from holdfast.log.values import INLINE_BYTES
from holdfast.stores.memory import MemoryStore
from tests.flavors import Crash, Flavor

LARGE = "x" * (INLINE_BYTES + 1)


class Failing(MemoryStore):
    """Keeps no blobs, or does not find them, while it is told so."""

    def __init__(self) -> None:
        super().__init__()
        self.puts = self.gets = True

    def put_blob(self, data: bytes, name: str = "") -> str:
        if not self.puts:
            raise StorageFailed("the disk is full")
        return super().put_blob(data, name)

    def get_blob(self, name: str, *, checked: bool = True) -> bytes:
        if not self.gets:
            raise StorageFailed("the disk failed")
        return super().get_blob(name, checked=checked)


@pytest.fixture
def store():
    return Failing()


@pytest.fixture
def hf(store):
    with Holdfast(store) as opened:
        yield opened


@pytest.fixture(params=["sync", "async"])
def flavor(request):
    return Flavor(request.param)


def events(hf: Holdfast) -> list[str]:
    """What the log says, besides who drove the task."""
    found = [type(event).__name__ for event in hf.task("t").events()]
    return [name for name in found if name != "Claimed"]


# What the store can't do is no failure of a step: code that catches everything can't go on from it


@pytest.fixture
def greedy(flavor):
    """A task that catches what it can, around a call with large arguments and a large result."""

    @flavor.step
    async def doubled(text: str) -> str:
        return text * 2

    @flavor.task
    async def catching(text: str) -> int:
        try:
            return len(await doubled(text))
        except Exception:
            return -1

    return catching


def test_arguments_that_the_store_does_not_take_stop_the_task(hf, store, greedy):
    hf.start(greedy, LARGE, id="t")
    store.puts = False
    with pytest.raises(StorageFailed, match="the disk is full"):
        hf.resume("t")
    assert events(hf) == ["TaskCreated"]
    store.puts = True
    assert hf.resume("t") == 2 * len(LARGE)


def test_a_result_that_the_store_does_not_take_stops_the_task(hf, store, greedy):
    half = LARGE[: len(LARGE) // 2 + 1]
    store.puts = False
    with pytest.raises(StorageFailed, match="the disk is full"):
        hf.run(greedy, half, id="t")
    assert "Completed" not in events(hf) and "AttemptFailed" not in events(hf)
    store.puts = True
    assert hf.resume("t") == 2 * len(half)


def test_a_result_that_the_store_does_not_find_stops_the_task(hf, store, flavor):
    crashes = [True]

    @flavor.step
    async def large() -> str:
        return LARGE

    @flavor.task
    async def catching() -> int:
        try:
            length = len(await large())
        except Exception:
            return -1
        if crashes.pop():
            raise Crash
        return length

    with pytest.raises(Crash):
        hf.run(catching, id="t")
    before, store.gets = events(hf), False
    with pytest.raises(StorageFailed, match="the disk failed"):
        hf.resume("t")
    assert events(hf) == before
    store.gets, crashes[:] = True, [False]
    assert hf.resume("t") == len(LARGE)


# Checks


def in_doubt(hf: Holdfast, flavor: Flavor, check: Any, **options: Any) -> None:
    """A task 't' that died in a tool with this check."""
    crashes = [True]

    @flavor.tool(check=flavor.plain(check), **options)
    async def pay() -> str:
        if crashes:
            crashes.pop()
            raise Crash
        return "paid"

    @flavor.task
    async def paying() -> str:
        return str(await pay())

    with pytest.raises(Crash):
        hf.run(paying, id="t")


@pytest.mark.parametrize(
    ("says", "result"), [(None, "paid"), (Happened("paid before"), "paid before")]
)
def test_a_check_that_fails_is_asked_again(hf, flavor, says, result):
    asked = []

    async def check(key: str) -> Any:
        asked.append(key)
        if len(asked) < 3:
            raise ConnectionError("no answer")
        return says

    in_doubt(hf, flavor, check, retry=Retry(attempts=1, delay_s=0))
    assert hf.resume("t") == result
    assert len(asked) == 3 and len(set(asked)) == 1


def test_a_check_that_never_answers_leaves_it_to_a_person(hf, flavor):
    asked = []

    async def check(key: str) -> Any:
        asked.append(key)
        raise ConnectionError("no answer")

    in_doubt(hf, flavor, check, retry=Retry(attempts=4, delay_s=0))
    with pytest.raises(InDoubt, match="its check failed: ConnectionError: no answer"):
        hf.resume("t")
    assert len(asked) == 4
    with pytest.raises(InDoubt):
        hf.resume("t")
    assert len(asked) == 4, "a person decides now"
    hf.resolve("t", "1", happened=False)
    assert hf.resume("t") == "paid"


def test_a_check_that_says_something_else_leaves_it_to_a_person(hf, flavor):
    async def check(key: str) -> Any:
        return True

    in_doubt(hf, flavor, check)
    with pytest.raises(InDoubt, match=r"a check returns Happened\(result\) or None, not True"):
        hf.resume("t")


def test_a_crash_in_a_check_decides_nothing(hf, flavor):
    asked = []

    async def check(key: str) -> Any:
        asked.append(key)
        if len(asked) < 2:
            raise Crash
        return Happened("paid before")

    in_doubt(hf, flavor, check)
    before = events(hf)
    with pytest.raises(Crash):
        hf.resume("t")
    assert events(hf) == before
    assert hf.resume("t") == "paid before"


# Bodies


def test_a_step_with_a_time_limit_fails_with_its_own_error(hf, flavor):
    @flavor.step(timeout_s=60, retry=Retry(attempts=1))
    async def failing() -> None:
        raise ValueError("its own")

    @flavor.task
    async def limited() -> list[Any]:
        try:
            await failing()
        except StepFailed as failed:
            return [failed.failure.type, failed.failure.timed_out]
        return []

    assert hf.run(limited, id="t") == ["ValueError", False]


def test_a_program_that_ends_itself_leaves_its_task_to_go_on(hf, flavor):
    ends = [True, True]

    @flavor.step
    async def ending() -> int:
        if len(ends) == 2:
            ends.pop()
            raise SystemExit(3)
        return 1

    @flavor.task
    async def ended() -> int:
        found = int(await ending())
        if ends:
            ends.pop()
            raise SystemExit(4)
        return found

    for code in (3, 4):
        with pytest.raises(SystemExit) as exit:
            hf.run(ended, id="t")
        assert exit.value.code == code
        assert hf.task("t").status == "in_progress"
    assert hf.run(ended, id="t") == 1


def test_a_step_that_runs_a_task_which_waits_waits_with_it(hf):
    @holdfast.task(name="driver_inner")
    def inner() -> str:
        return str(holdfast.ask("Go on?", str, id="q"))

    @holdfast.step(name="driver_runs_inner")
    def runs_inner() -> str:
        return str(hf.run(inner, id="inner"))

    @holdfast.task(name="driver_outer")
    def outer() -> str:
        return runs_inner()

    with pytest.raises(Unanswered):
        hf.run(outer, id="t")
    assert "AttemptFailed" not in events(hf)
    hf.answer("inner", "yes", question="q")
    assert hf.resume("t") == "yes"


# Undos whose code is gone


@pytest.mark.parametrize("gone", ["undo", "tool"])
@pytest.mark.parametrize("is_done", [True, False])
def test_a_task_that_can_not_be_undone_any_more_says_so_and_waits_for_the_code(
    hf, flavor, gone, is_done
):
    undone = []

    async def give_back(result: str, *, key: str) -> None:
        undone.append(result)

    async def book() -> str:
        if not is_done:
            raise Crash
        return "booked"

    name = f"book_{gone}_{is_done}_{flavor.is_async}"
    tool = functools.partial(flavor.tool, name=name, in_doubt="ask")

    booking = tool(undo=flavor.plain(give_back))(book)

    @flavor.task(compensate="always")
    async def trip() -> None:
        await booking()
        await flavor.ask("Go?", bool)

    with pytest.raises(Unanswered if is_done else Crash):
        hf.run(trip, id="t")
    hf.cancel("t")
    with_undo = registry.call(name)
    if gone == "undo":
        tool()(book)
    else:
        registry._found.pop(("call", name))
    with pytest.raises(CodeChanged if gone == "undo" else CodeMissing, match=name):
        hf.resume("t")
    assert hf.task("t").status not in ("cancelled", "failed") and not undone
    registry.add(with_undo)
    if not is_done:
        with pytest.raises(InDoubt):
            hf.resume("t")
        hf.resolve("t", "1", happened=True, result="booked")
    with pytest.raises(holdfast.TaskCancelled):
        hf.resume("t")
    assert undone == ["booked"]
