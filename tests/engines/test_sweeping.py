"""What an engine was never told of, its workers tell it: tasks and messages, once and cheaply."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, ask, task
from holdfast.engines.port import Driven, Job
from holdfast.engines.remote import host as caring
from holdfast.engines.remote.host import look_after
from holdfast.engines.remote.sweep import SweepMemory, SweepResult, sweep
from holdfast.errors import EngineError
from holdfast.log.reading import stream_of
from holdfast.log.store_calls import inbox_of
from tests.engines.toy import Toy, bring, drive


@task
def swept(name: str) -> str:
    return f"hi {name}"


@task
def swept_asking(name: str) -> str:
    return f"{name}: {ask('Go on?', bool)}"


@pytest.fixture(params=["memory", "files", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    places = {
        "memory": "memory://",
        "files": str(tmp_path / "state"),
        "sqlite": f"sqlite:///{tmp_path}/state.db",
    }
    return places[str(request.param)]


def test_a_task_whose_engine_was_never_told_is_started_once(url: str) -> None:
    toy, memory = Toy(), SweepMemory()
    with Holdfast(url, engine=toy) as hf:
        toy.is_down = True
        hf.start(swept, "Ada", id="t-1")
        assert sweep(hf.store, toy, memory, 0.0).trouble == ("toy can't be reached",)
        toy.is_down = False
        assert sweep(hf.store, toy, memory, 1.0) == SweepResult(started=("t-1",))
        assert sweep(hf.store, toy, memory, 2.0) == SweepResult()
        assert sweep(hf.store, toy, memory, 1000.0) == SweepResult()
        assert toy.started == ["t-1"]


def test_a_message_that_nobody_told_of_is_told_and_told_again_ever_more_rarely() -> None:
    toy, memory = Toy(), SweepMemory()
    with Holdfast("memory://", engine=toy) as hf:
        hf.start(swept, "Ada", id="m-1")
        Holdfast(hf.store).pause("m-1")
        (post,) = inbox_of(hf.store, [stream_of("m-1")])
        times = [now for now in range(30) if sweep(hf.store, toy, memory, float(now)).told]
        assert times == [0, 1, 3, 7, 15]
        assert set(toy.told) == {("m-1", post.name)}
        bring(hf, "m-1")
        assert sweep(hf.store, toy, memory, 100.0) == SweepResult()
        assert memory.tell_at == {}


def test_a_message_to_end_is_told_as_such() -> None:
    toy = Toy()
    with Holdfast("memory://", engine=toy) as hf:
        hf.start(swept, "Ada", id="c-1")
        Holdfast(hf.store).cancel("c-1")
        assert sweep(hf.store, toy, SweepMemory(), 0.0).told == (("c-1", "cancel"),)
        assert toy.told == [("c-1", "to end")]


def test_what_others_drive_is_left_to_them(url: str) -> None:
    toy, other = Toy(), Toy("other")
    with Holdfast(url, engine=other) as hf:
        hf.start(swept, "Ada", id="o-1")
        Holdfast(hf.store).start(swept, "Bob", id="o-2")
        Holdfast(hf.store).pause("o-1")
        assert sweep(hf.store, toy, SweepMemory(), 0.0) == SweepResult()
        assert (toy.started, toy.told) == ([], [])


def test_an_ended_task_is_not_looked_after_until_it_is_opened_again() -> None:
    toy, memory = Toy(), SweepMemory()
    with Holdfast("memory://", engine=toy) as hf:
        hf.start(swept, "Ada", id="e-1")
        drive("toy", hf, "e-1")
        toy.jobs.clear()
        assert sweep(hf.store, toy, memory, 0.0) == SweepResult()
        assert memory.look_at == {}


def test_a_task_that_the_engine_lost_is_started_again_in_time() -> None:
    toy, memory = Toy(), SweepMemory()
    with Holdfast("memory://", engine=toy) as hf:
        hf.start(swept_asking, "Ada", id="l-1")
        drive("toy", hf, "l-1")
        assert sweep(hf.store, toy, memory, 0.0) == SweepResult()
        toy.jobs.clear()
        assert sweep(hf.store, toy, memory, 1.0) == SweepResult()
        assert sweep(hf.store, toy, memory, 61.0).started == ("l-1",)


def test_one_task_in_trouble_does_not_hold_up_the_others() -> None:
    toy = Toy()
    toy.is_down = True
    with Holdfast("memory://", engine=toy) as hf:
        for id in ("x-1", "x-2", "x-3"):
            hf.start(swept, "Ada", id=id)
        toy.is_down = False
        toy.refuses.add("x-2")
        done = sweep(hf.store, toy, SweepMemory(), 0.0)
        assert sorted(done.started) == ["x-1", "x-3"]
        assert [text.partition(":")[0] for text in done.trouble] == ["x-2"]


def test_a_task_is_left_to_who_made_it_for_a_moment_but_not_by_a_worker_that_begins() -> None:
    toy, memory = Toy(), SweepMemory()
    with Holdfast("memory://", engine=toy) as hf:
        start_unheard(hf, toy, "old-1")
        assert sweep(hf.store, toy, memory, 0.0).started == ("old-1",)
        start_unheard(hf, toy, "new-1")
        Holdfast(hf.store).pause("new-1")
        assert sweep(hf.store, toy, memory, 1.02) == SweepResult()
        done = sweep(hf.store, toy, memory, 2.04)
        assert (done.started, [id for id, _ in done.told]) == (("new-1",), ["new-1"])


def test_a_task_that_is_just_being_started_is_not_started_by_a_worker_too() -> None:
    toy, memory = Toy(), SweepMemory()
    with Holdfast("memory://", engine=toy) as hf:
        sweep(hf.store, toy, memory, 0.0)
        start_unheard(hf, toy, "n-1")
        assert sweep(hf.store, toy, memory, 1.02) == SweepResult()
        hf.start(swept, "Ada", id="n-1")
        assert sweep(hf.store, toy, memory, 2.04) == SweepResult()
        assert toy.started == ["n-1"]


class Ended(Toy):
    """Somebody ended some of its tasks by its own means."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: dict[str, str] = {}

    def query(self, job: Job) -> Driven | None:
        found = super().query(job)
        why = self.ended.get(job.id)
        return found if why is None else Driven(job.id, "stopped", self.name, detail=why)


def said_in(
    hf: Holdfast, toy: Toy, passes: Mapping[int, Callable[[], None]], until: int, monkeypatch: Any
) -> list[tuple[int, str]]:
    """What a worker says when, while it makes so many passes; before some of them something
    happens."""
    said: list[tuple[int, str]] = []

    class Clock:
        passed = 0

        def monotonic(self) -> float:
            self.passed += 1
            if self.passed > until:
                raise asyncio.CancelledError
            passes.get(self.passed, lambda: None)()
            return 1.02 * self.passed

    clock = Clock()
    monkeypatch.setattr(caring, "_EVERY_S", 0)
    monkeypatch.setattr(caring, "_SELDOM_S", 0)
    monkeypatch.setattr(caring, "time", clock)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(look_after(hf.store, toy, lambda text: said.append((clock.passed, text))))
    return said


def test_what_stands_in_the_way_of_a_task_is_said_once_until_it_changes(monkeypatch: Any) -> None:
    toy = Ended()

    def end(why: str) -> None:
        toy.ended["k-1"] = why

    with Holdfast("memory://", engine=toy) as hf:
        for id in ("k-1", "k-2"):
            hf.start(swept, "Ada", id=id)
        happens = {1: lambda: end("killed"), 300: lambda: end("gone"), 600: toy.ended.clear}
        again = {800: lambda: end("killed")}
        said = said_in(hf, toy, {**happens, **again}, 1000, monkeypatch)
    assert [text[:4] for _, text in said] == ["k-1:"] * 3
    (first, _), (second, _), (third, _) = said
    assert first == 1 < 300 <= second < 360 < 800 <= third < 860


def test_an_engine_that_can_not_be_reached_is_said_once_and_again_when_it_is_so_again(
    monkeypatch: Any,
) -> None:
    toy = Toy()

    def down(is_down: bool) -> None:
        toy.is_down = is_down

    with Holdfast("memory://", engine=toy) as hf:
        for n in range(10):
            hf.start(swept, "Ada", id=f"r-{n}")
        times = {10: True, 200: False, 400: True}
        happens = {at: partial(down, is_down) for at, is_down in times.items()}
        said = said_in(hf, toy, happens, 500, monkeypatch)
    assert [text for _, text in said] == ["toy can't be reached"] * 2
    assert [at // 100 for at, _ in said] == [0, 4]


class Unserved(Toy):
    """Fails for some of its tasks, as an engine does whose workers lack their code."""

    def __init__(self, *ids: str) -> None:
        super().__init__()
        self.unserved = set(ids)

    def start(self, job: Job) -> None:
        if job.id in self.unserved:
            raise EngineError(f"task {job.id!r}: no worker has registered it")
        super().start(job)


def start_unheard(hf: Holdfast, toy: Toy, *ids: str) -> None:
    """Start tasks of which the engine is not told."""
    toy.is_down = True
    for id in ids:
        hf.start(swept, "Ada", id=id)
    toy.is_down = False


# A worker's passes are a second apart, and the time that each takes.
PASSES_S = [1.02 * n for n in range(12)]


@pytest.mark.parametrize("unserved", [1, 2, 3, 7])
def test_tasks_that_nobody_serves_do_not_hold_up_those_behind_them(url: str, unserved: int) -> None:
    bad, good = [f"a-{n}" for n in range(unserved)], [f"b-{n}" for n in range(5)]
    toy, memory = Unserved(*bad), SweepMemory()
    with Holdfast(url, engine=toy) as hf:
        start_unheard(hf, toy, *bad, *good)
        for now_s in PASSES_S[:4]:
            swept_now = sweep(hf.store, toy, memory, now_s)
            assert swept_now.trouble
        assert sorted(toy.started) == good
        start_unheard(hf, toy, "c-1")
        sweep(hf.store, toy, memory, PASSES_S[4])
        sweep(hf.store, toy, memory, PASSES_S[5])
        assert toy.started[-1] == "c-1"
        toy.unserved.clear()
        for now_s in PASSES_S[6:]:
            sweep(hf.store, toy, memory, now_s)
        assert sorted(toy.started) == [*bad, *good, "c-1"]
        assert sweep(hf.store, toy, memory, 100.0) == SweepResult()


def test_a_pass_over_an_engine_that_can_not_be_reached_asks_it_little() -> None:
    toy, memory = Asked(), SweepMemory()
    ids = [f"d-{n:02}" for n in range(20)]
    with Holdfast("memory://", engine=toy) as hf:
        start_unheard(hf, toy, *ids)
        toy.is_down = True
        for now_s in PASSES_S:
            asked = toy.queries
            assert sweep(hf.store, toy, memory, now_s).trouble == ("toy can't be reached",)
            assert toy.queries - asked <= 3
        toy.is_down = False
        sweep(hf.store, toy, memory, PASSES_S[-1] + 1.02)
        assert sorted(toy.started) == ids


class Asked(Toy):
    """Counts what it is asked."""

    queries = 0

    def query(self, job: Job) -> Driven | None:
        self.queries += 1
        return super().query(job)


class Counting:
    """A store that counts what is read of it."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self.inner, name)


def test_a_pass_with_nothing_to_do_asks_two_questions_whatever_the_number_of_tasks() -> None:
    toy, memory = Asked(), SweepMemory()
    with Holdfast("memory://", engine=toy) as hf:
        for n in range(50):
            hf.start(swept, "Ada", id=f"n-{n}")
        counting: Any = Counting(hf.store)
        sweep(counting, toy, memory, 0.0)
        assert toy.queries == 50
        counting.calls.clear()
        assert sweep(counting, toy, memory, 1.0) == SweepResult()
        assert (counting.calls, toy.queries) == (["find", "get_side"], 50)


class Counted(Toy):
    """It counts how often it is asked."""

    asked = 0

    def query(self, job: Job) -> Driven | None:
        self.asked += 1
        return super().query(job)


def test_many_tasks_at_rest_are_looked_at_no_more_than_twice_a_second() -> None:
    toy = Counted()
    with Holdfast("memory://", engine=toy) as hf:
        for number in range(300):
            hf.start(swept, "Ada", id=f"many-{number}")
        memory = SweepMemory()
        for now_s in range(10):  # those that it has not seen yet are looked at soon
            sweep(hf.store, toy, memory, float(now_s))
        toy.asked = 0
        for now_s in range(10, 310):
            sweep(hf.store, toy, memory, float(now_s))
        assert 0 < toy.asked <= 2 * 300 + 10
