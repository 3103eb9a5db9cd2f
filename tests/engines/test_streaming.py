"""A step that streams reaches its caller as it goes, is recorded whole, and streams again."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from holdfast import (
    Holdfast,
    Retry,
    StepFailed,
    TaskFailed,
    current,
    gather,
    step,
    task,
    tool,
)
from holdfast.core.spec import registry
from holdfast.stores.memory import MemoryStore
from tests.flavors import Crash

ran: Counter[Any] = Counter()
die_at: set[Any] = set()
NOW = Retry(attempts=3, delay_s=0, jitter=0)


def work_on(what: Any) -> None:
    ran[what] += 1
    if what in die_at:
        die_at.remove(what)
        raise Crash


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    # What this module defines is all there is, and what a test defines ends with it.
    found = registry._found.items()
    ours = {k: {w: s for w, s in v.items() if w.startswith(f"{__name__}.")} for k, v in found}
    monkeypatch.setattr(registry, "_found", ours)
    ran.clear()
    die_at.clear()


@pytest.fixture(params=["memory", "files"])
def opened(request, tmp_path) -> Callable[[], Holdfast]:
    """Opens the same store anew, as another process would."""
    if request.param == "files":
        return lambda: Holdfast(tmp_path / "w", sync=False)
    store = MemoryStore()
    return lambda: Holdfast(store)


@step
def words(n: int) -> Iterator[str]:
    for k in range(n):
        work_on(("word", k))
        yield f"word {k}"


@step
async def awords(n: int) -> AsyncIterator[str]:
    for k in range(n):
        await asyncio.sleep(0)
        work_on(("word", k))
        yield f"word {k}"


@step
def after(n: int) -> int:
    work_on(("after", n))
    return n


@step
async def aafter(n: int) -> int:
    work_on(("after", n))
    return n


seen: list[Any] = []


@task
def reading(upto: int) -> list[str]:
    got = []
    for word in words(5):
        seen.append((word, ran["word", 4]))
        got.append(word)
        if len(got) == upto:
            break
    after(1)
    after(2)
    return got


@task
async def areading(upto: int) -> list[str]:
    got = []
    async for word in awords(5):
        seen.append((word, ran["word", 4]))
        got.append(word)
        if len(got) == upto:
            break
    await aafter(1)
    await aafter(2)
    return got


both = pytest.mark.parametrize("agent", [reading, areading])
ALL = [f"word {k}" for k in range(5)]


@both
def test_parts_reach_the_caller_before_the_step_ends(opened, agent):
    seen.clear()
    with opened() as hf:
        assert hf.run(agent, 5, id="t") == ALL
    assert [word for word, _ in seen] == ALL
    assert [ended for _, ended in seen] == [0, 0, 0, 0, 1]


@both
def test_a_replay_streams_the_recorded_parts_and_does_not_run_the_body(opened, agent):
    die_at.add(("after", 2))
    with pytest.raises(Crash), opened() as hf:
        hf.run(agent, 5, id="t")
    ran.clear()
    with opened() as hf:
        assert hf.run(agent, 5, id="t") == ALL
        assert hf.task("t").outputs[0].output == ALL
    assert ran == {("after", 2): 1}


@both
@pytest.mark.parametrize("k", range(5))
def test_a_crash_in_mid_stream_runs_it_again(opened, agent, k):
    die_at.add(("word", k))
    with pytest.raises(Crash), opened() as hf:
        hf.run(agent, 5, id="t")
    with opened() as hf:
        assert hf.task("t").calls[0].status == "running"
        assert hf.run(agent, 5, id="t") == ALL
        assert len(hf.task("t").calls[0].attempts) == 2
    assert [ran["word", n] for n in range(5)] == [2] * (k + 1) + [1] * (4 - k)


@pytest.mark.parametrize("upto", [1, 3])
def test_a_caller_that_breaks_off_leaves_the_step_to_end_and_be_recorded(opened, upto):
    die_at.add(("after", 2))
    with pytest.raises(Crash), opened() as hf:
        hf.run(reading, upto, id="t")
    with opened() as hf:
        assert hf.task("t").outputs[0].output == ALL
        assert hf.run(reading, upto, id="t") == ALL[:upto]
    assert [ran["word", n] for n in range(5)] == [1] * 5
    assert ran["after", 1] == 1


@pytest.mark.parametrize("upto", [1, 3])
def test_an_async_caller_that_breaks_off_and_goes_on_replays_the_same(opened, upto):
    die_at.add(("after", 2))
    with pytest.raises(Crash), opened() as hf:
        hf.run(areading, upto, id="t")
    with opened() as hf:
        assert hf.run(areading, upto, id="t") == ALL[:upto]
    assert ran["after", 1] == 1


def test_an_async_caller_that_breaks_off_leaves_the_step_to_end_and_be_recorded(opened):
    @step(name="slow_words")
    async def slow_words() -> AsyncIterator[int]:
        for k in range(3):
            await asyncio.sleep(0.01)
            yield k

    @task(name="breaks_off_at_its_end")
    async def breaks_off() -> str:
        async for _ in slow_words():
            break
        return "done"

    with opened() as hf:
        hf.run(breaks_off, id="t")
        assert hf.task("t").outputs[0].output == [0, 1, 2]


def test_a_caller_that_raises_in_mid_stream_fails_the_same_on_replay(opened):
    @task
    def choking() -> list[str]:
        got = []
        try:
            for word in words(5):
                got.append(word)
                if len(got) == 2:
                    raise ValueError("too much")
        except ValueError:
            got.append("choked")
        after(1)
        after(2)
        return got

    die_at.add(("after", 2))
    with pytest.raises(Crash), opened() as hf:
        hf.run(choking, id="t")
    gc.collect()
    with opened() as hf:
        assert hf.run(choking, id="t") == ["word 0", "word 1", "choked"]
    assert ran["after", 1] == 1


def test_a_stream_that_is_never_read_is_no_call_and_shifts_nothing(opened):
    @task
    def unread() -> int:
        words(3)
        return after(1) + after(2)

    die_at.add(("after", 2))
    with pytest.raises(Crash), opened() as hf:
        hf.run(unread, id="t")
    with opened() as hf:
        assert hf.run(unread, id="t") == 3
        assert [call.path for call in hf.task("t").calls] == ["2", "3"]
    assert not ran["word", 0]
    assert ran["after", 1] == 1


def test_two_streams_read_in_turns_are_told_apart(opened):
    @task
    def zipped() -> list[tuple[str, str]]:
        pairs = list(zip(words(3), words(4), strict=False))
        after(1)
        return pairs

    expected = [(f"word {k}", f"word {k}") for k in range(3)]
    die_at.add(("after", 1))
    with pytest.raises(Crash), opened() as hf:
        hf.run(zipped, id="t")
    ran.clear()
    with opened() as hf:
        assert hf.run(zipped, id="t") == expected
    assert set(ran) == {("after", 1)}


def test_streams_in_branches_are_told_apart(opened):
    @task
    def branching() -> list[list[str]]:
        lists = gather(lambda: list(words(2)), lambda: list(words(3)))
        after(1)
        return list(lists)

    die_at.add(("after", 1))
    with pytest.raises(Crash), opened() as hf:
        hf.run(branching, id="t")
    ran.clear()
    with opened() as hf:
        assert hf.run(branching, id="t") == [ALL[:2], ALL[:3]]
    assert set(ran) == {("after", 1)}


# Failures


@step(retry=NOW)
def failing(after_parts: int) -> Iterator[int]:
    work_on("attempt")
    yield from range(after_parts)
    raise ValueError("no more")


@step(retry=NOW)
async def afailing(after_parts: int) -> AsyncIterator[int]:
    work_on("attempt")
    for k in range(after_parts):
        yield k
    raise ValueError("no more")


@task
def catching(after_parts: int) -> list[Any]:
    got: list[Any] = []
    try:
        for part in failing(after_parts):
            got.append(part)
    except StepFailed as error:
        got.append(str(error))
    after(1)
    return got


@task
async def acatching(after_parts: int) -> list[Any]:
    got: list[Any] = []
    try:
        async for part in afailing(after_parts):
            got.append(part)
    except StepFailed as error:
        got.append(str(error))
    await aafter(1)
    return got


@pytest.mark.parametrize("agent", [catching, acatching])
@pytest.mark.parametrize(("parts", "attempts"), [(0, 3), (1, 1), (4, 1)])
def test_a_failure_after_parts_is_final_and_the_same_on_replay(opened, agent, parts, attempts):
    die_at.add(("after", 1))
    live: Any = None
    with opened() as hf:
        with pytest.raises(Crash):
            hf.run(agent, parts, id="t")
        live = list(hf.task("t").events())
    assert ran["attempt"] == attempts
    with opened() as hf:
        found = hf.run(agent, parts, id="t")
        assert list(hf.task("t").events())[: len(live)] == live
    assert ran["attempt"] == attempts
    assert found[:-1] == list(range(parts))
    assert "no more" in found[-1]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_failure_before_any_part_is_retried(opened, kind):
    broken = [2]

    @step(retry=NOW, name=f"{kind}_unsteady")
    def unsteady() -> Iterator[int]:
        if broken[0]:
            broken[0] -= 1
            raise ValueError("not yet")
        yield from range(3)

    @step(retry=NOW, name=f"{kind}_aunsteady")
    async def aunsteady() -> AsyncIterator[int]:
        for part in [*unsteady_parts()]:
            yield part

    def unsteady_parts() -> Iterator[int]:
        if broken[0]:
            broken[0] -= 1
            raise ValueError("not yet")
        yield from range(3)

    @task(name=f"{kind}_patient")
    def patient() -> list[int]:
        return list(unsteady())

    @task(name=f"{kind}_apatient")
    async def apatient() -> list[int]:
        return [part async for part in aunsteady()]

    with opened() as hf:
        assert hf.run(patient if kind == "sync" else apatient, id="t") == [0, 1, 2]
        (call,) = hf.task("t").calls
        assert len(call.attempts) == 3


@pytest.mark.parametrize("agent", [catching, acatching])
def test_a_failed_stream_is_run_anew_when_its_task_is_retried(opened, agent):
    broken = [True]

    @step(name=f"mended_{agent.__name__}")
    def mended() -> Iterator[int]:
        yield 1
        if broken[0]:
            raise ValueError("broken")
        yield 2

    @task(name=f"mending_{agent.__name__}")
    def mending() -> list[int]:
        return list(mended())

    with opened() as hf:
        with pytest.raises(TaskFailed, match="broken"):
            hf.run(mending, id="t")
        broken[0] = False
        assert hf.retry("t") == [1, 2]


def test_a_part_that_cant_be_stored_fails_the_step_at_once(opened):
    @step(retry=NOW)
    def odd() -> Iterator[Any]:
        work_on("odd")
        yield 1
        yield object()

    @task
    def taking() -> list[Any]:
        return list(odd())

    with opened() as hf, pytest.raises(TaskFailed, match="object"):
        hf.run(taking, id="t")
    assert ran["odd"] == 1


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_stream_that_takes_too_long_times_out(opened, kind):
    @step(timeout_s=0.05, name="dawdling")
    def dawdling() -> Iterator[int]:
        yield 1
        import time

        time.sleep(0.2)
        yield 2

    @step(timeout_s=0.05, name="adawdling")
    async def adawdling() -> AsyncIterator[int]:
        yield 1
        await asyncio.sleep(0.2)
        yield 2

    @task(name="hurried")
    def hurried() -> list[int]:
        return list(dawdling())

    @task(name="ahurried")
    async def ahurried() -> list[int]:
        return [part async for part in adawdling()]

    with opened() as hf, pytest.raises(TaskFailed, match="did not end within"):
        hf.run(hurried if kind == "sync" else ahurried, id="t")


# What is inside


@tool(in_doubt="retry")
def look_up(k: int) -> str:
    work_on(("looked", k))
    return f"found {k} at {current().path}"


@step
def researching(n: int) -> Iterator[str]:
    for k in range(n):
        yield look_up(k)
        work_on(("between", k))


@step
async def aresearching(n: int) -> AsyncIterator[str]:
    for k in range(n):
        yield look_up(k)
        work_on(("between", k))


@task
def report() -> list[str]:
    found: list[str] = []
    for line in researching(3):
        found.append(f"{line}, {after(len(found))}")
    return found


@task
async def areport() -> list[str]:
    found: list[str] = []
    async for line in aresearching(3):
        found.append(f"{line}, {await aafter(len(found))}")
    return found


@pytest.mark.parametrize("agent", [report, areport])
@pytest.mark.parametrize("at", [("between", 0), ("between", 2), ("after", 1), ("looked", 2)])
def test_calls_inside_and_beside_a_stream_are_made_once_and_told_apart(opened, agent, at):
    expected = [f"found {k} at 1.{k + 1}, {k}" for k in range(3)]
    die_at.add(at)
    with pytest.raises(Crash), opened() as hf:
        hf.run(agent, id="t")
    gc.collect()
    with opened() as hf:
        assert hf.run(agent, id="t") == expected
    effects = {what: n for what, n in ran.items() if what[0] != "between" and what != at}
    assert set(effects.values()) == {1}


# Types


@dataclass
class Part:
    at: datetime
    price: Decimal
    tags: tuple[str, ...]


PARTS = [Part(datetime(2026, 1, k, tzinfo=UTC), Decimal("1.10") * k, ("a", "b")) for k in (1, 2)]


@step
def typed() -> Iterator[Part]:
    yield from PARTS


@step
def untyped():
    yield from [1, 1.0, -0.0, "a", None, True, [1], {"a": (1, 2)}, date(2026, 1, 1), b"\xff"]


@step
def optional() -> Iterator[Part | None]:
    yield from [None, *PARTS]


@pytest.mark.parametrize("source", [typed, untyped, optional])
def test_the_types_of_parts_survive_and_a_replay_sees_what_the_first_run_saw(opened, source):
    got = []

    @task(name=f"collects_{source.__name__}")
    def collects() -> None:
        got.append(list(source()))
        after(1)

    die_at.add(("after", 1))
    with pytest.raises(Crash), opened() as hf:
        hf.run(collects, id="t")
    with opened() as hf:
        hf.run(collects, id="t")
    first, again = got
    assert repr(first) == repr(again)
    if source is not untyped:
        assert first == ([None, *PARTS] if source is optional else PARTS)


def test_a_caller_that_changes_a_part_does_not_change_the_record(opened):
    got = []

    @step
    def lists() -> Iterator[list[int]]:
        shared = [1]
        yield shared
        shared.append(2)
        yield shared

    @task
    def changes_parts() -> None:
        for part in lists():
            part.append(99)
            got.append(list(part))
        after(1)

    die_at.add(("after", 1))
    with pytest.raises(Crash), opened() as hf:
        hf.run(changes_parts, id="t")
    with opened() as hf:
        hf.run(changes_parts, id="t")
    assert got == [[1, 99], [1, 2, 99]] * 2


@pytest.mark.parametrize("n", [0, 1, 3000])
def test_streams_of_no_part_and_of_many(opened, n):
    @task(name=f"counts_{n}")
    def counts() -> int:
        got = len(list(words(n)))
        after(1)
        return got

    die_at.add(("after", 1))
    with pytest.raises(Crash), opened() as hf:
        hf.run(counts, id="t")
    with opened() as hf:
        assert hf.run(counts, id="t") == n


# Outside


def test_outside_a_task_it_is_the_plain_generator():
    source = words(2)
    assert not ran
    assert next(source) == "word 0"
    assert list(source) == ["word 1"]

    async def main() -> list[str]:
        return [word async for word in awords(2)]

    assert asyncio.run(main()) == ALL[:2]


def test_a_task_cant_stream():
    with pytest.raises(Exception, match="task"):

        @task
        def streaming() -> Iterator[int]:
            yield 1


def test_a_stream_that_is_left_behind_by_a_crash_is_closed_without_a_word(tmp_path):
    left: list[Any] = []

    @step(name="left_behind")
    def words_left() -> Iterator[int]:
        yield from range(3)

    @task(name="crashes_with_a_stream")
    def agent() -> None:
        left.append(words_left())
        next(left[0])
        raise Crash

    with Holdfast(tmp_path / "w") as hf, pytest.raises(Crash):
        hf.run(agent, id="t")
    left.pop().close()  # nobody holds the task any more
    with Holdfast(tmp_path / "w") as hf:
        assert [call.status for call in hf.task("t").calls] == ["running"]
