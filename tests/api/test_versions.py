"""Code that changes: versions, old state brought up to date, gated steps, and `hf.check`."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import (
    CodeChanged,
    CodeMissing,
    Holdfast,
    Unanswered,
    ask,
    checkpoint,
    decide,
    each,
    gather,
    note,
    now,
    patched,
    progress,
    restore,
    sleep,
    start,
    step,
    task,
    tool,
)
from holdfast.core.spec import registry
from tests.flavors import Crash

pytestmark = pytest.mark.holdfast("memory://", "{tmp_path}/w")

ran: Counter[Any] = Counter()
dead: list[bool] = [True]


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    # What this module defines is all there is, and what a test defines ends with it.
    found = registry._found.items()
    ours = {k: {w: s for w, s in v.items() if w.startswith(f"{__name__}.")} for k, v in found}
    monkeypatch.setattr(registry, "_found", ours)
    ran.clear()
    dead[0] = True


@step
def one(n: int) -> int:
    ran["one", n] += 1
    return n


@step
async def aone(n: int) -> int:
    ran["one", n] += 1
    return n


@tool(in_doubt="retry")
def act(n: int) -> int:
    ran["act", n] += 1
    return n


@tool(in_doubt="retry")
async def aact(n: int) -> int:
    ran["act", n] += 1
    return n


def die() -> None:
    if dead[0]:
        raise Crash


def crashed(hf: Holdfast, agent: Any, *args: Any) -> None:
    dead[0] = True
    with pytest.raises(Crash):
        hf.run(agent, *args, id="t")
    dead[0] = False


# Versions


def versioned(version: int, upcast: Any = None, name: str = "versioned") -> Any:
    @task(name=name, version=version, upcast=upcast)
    def agent() -> int:
        n = one(1)
        die()
        return n

    return agent


def test_older_code_than_started_a_task_does_not_drive_it(hf):
    crashed(hf, versioned(2))
    seq = hf.task("t").seq
    with pytest.raises(CodeChanged, match="version 2"):
        hf.run(versioned(1), id="t")
    assert hf.task("t").seq == seq
    assert hf.run(versioned(3), id="t") == 1
    assert hf.run(versioned(1), id="t") == 1  # it has ended: nothing is driven
    assert ran["one", 1] == 1


def counting(version: int, upcast: Any, default: Any, turn: Any, upto: int = 4) -> Any:
    @task(name="counting", version=version, upcast=upcast)
    def agent() -> Any:
        state = restore(default)
        while size(state) < upto:
            one(size(state))
            state = checkpoint(turn(state))
            if dead[0] and size(state) == version + 1:
                raise Crash
        return msgspec.to_builtins(state)

    return agent


def size(state: Any) -> int:
    return len(state["seen"]) if isinstance(state, dict) else len(state.seen)


@dataclass
class Second:
    seen: list[str]


@dataclass
class Third:
    seen: list[str]
    mood: str


def first_turn(state: dict[str, Any]) -> dict[str, Any]:
    return {"seen": [*state["seen"], len(state["seen"])]}


def second_turn(state: Second) -> Second:
    return Second([*state.seen, f"second {len(state.seen)}"])


def third_turn(state: Third) -> Third:
    return Third([*state.seen, f"third {len(state.seen)}"], state.mood)


def to_second(data: Any, version: int) -> Any:
    return {"seen": [f"was {n}" for n in data["seen"]]} if version < 1 else data


def to_third(data: Any, version: int) -> Any:
    data = to_second(data, version)
    return {**data, "mood": "calm"} if version < 2 else data


def test_a_state_is_brought_up_to_date_from_version_to_version(hf):
    crashed(hf, counting(0, None, {"seen": []}, first_turn))
    crashed(hf, counting(1, to_second, Second([]), second_turn))
    assert hf.task("t").state.checkpoint_version == 1
    assert hf.task("t").checkpoint == {"seen": ["was 0", "second 1"]}
    crashed(hf, counting(2, to_third, Third([], "new"), third_turn))
    found = hf.run(counting(2, to_third, Third([], "new"), third_turn), id="t")
    assert found == {"seen": ["was 0", "second 1", "third 2", "third 3"], "mood": "calm"}
    assert set(ran.values()) == {1}


def test_versions_may_be_skipped(hf):
    crashed(hf, counting(0, None, {"seen": []}, first_turn))
    found = hf.run(counting(2, to_third, Third([], "new"), third_turn, 2), id="t")
    assert found == {"seen": ["was 0", "third 1"], "mood": "calm"}


@pytest.mark.parametrize("upcast", [None, lambda data, version: data, lambda data, version: 5])
def test_a_state_that_does_not_fit_and_is_not_brought_up_to_date_stops_the_task(hf, upcast):
    crashed(hf, counting(0, None, {"seen": []}, first_turn))
    ran.clear()
    with pytest.raises(CodeChanged, match="checkpoint of version 0"):
        hf.run(counting(2, upcast, Third([], "new"), third_turn), id="t")
    assert not ran
    assert hf.task("t").status == "in_progress"
    assert hf.task("t").checkpoint == {"seen": [0]}
    found = hf.run(counting(2, to_third, Third([], "new"), third_turn, 2), id="t")
    assert found["seen"] == ["was 0", "third 1"]


def test_an_upcast_is_not_asked_about_a_state_of_its_own_version(hf):
    asked = []

    def upcast(data: Any, version: int) -> Any:
        asked.append(version)
        return data

    agent = counting(1, upcast, {"seen": []}, first_turn)
    crashed(hf, agent)
    hf.run(agent, id="t")
    assert asked == []


@pytest.mark.parametrize("upcast", [None, to_second])
def test_a_checkpoint_of_newer_code_is_not_taken_up_by_older_code(hf, upcast):
    def turn(state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "seen": [*state["seen"], len(state["seen"])], "mood": "calm"}

    crashed(hf, counting(1, None, {"seen": []}, first_turn))
    crashed(hf, counting(2, to_third, {"seen": []}, turn))
    assert hf.task("t").state.checkpoint_version == 2
    ran.clear()
    with pytest.raises(CodeChanged, match="version 2"):
        hf.run(counting(1, upcast, {"seen": []}, first_turn), id="t")
    assert not ran


# patched


def gated(new: bool, kind: str = "sync", name: str = "gated") -> Any:
    @task(name=name)
    def agent(turns: int) -> list[str]:
        way = []
        for n in range(turns):
            if new and patched("extra"):
                way.append(f"new {act(n)}")
            way.append(f"old {one(n)}")
            if n == 1:
                die()
        return way

    @task(name=f"a{name}")
    async def aagent(turns: int) -> list[str]:
        way = []
        for n in range(turns):
            if new and patched("extra"):
                way.append(f"new {await aact(n)}")
            way.append(f"old {await aone(n)}")
            if n == 1:
                die()
        return way

    return agent if kind == "sync" else aagent


kinds = pytest.mark.parametrize("kind", ["sync", "async"])


@kinds
def test_an_old_task_keeps_to_the_old_way_where_it_has_been(hf, kind):
    crashed(hf, gated(False, kind), 4)
    expected = ["old 0", "old 1", "new 2", "old 2", "new 3", "old 3"]
    assert hf.run(gated(True, kind), 4, id="t") == expected
    assert set(ran.values()) == {1}


@kinds
def test_a_new_task_takes_the_new_way_and_stays_on_it(hf, kind):
    agent = gated(True, kind)
    crashed(hf, agent, 3)
    crashed(hf, agent, 3)
    assert hf.check("t").fits
    expected = ["new 0", "old 0", "new 1", "old 1", "new 2", "old 2"]
    assert hf.run(agent, 3, id="t") == expected
    assert set(ran.values()) == {1}


@kinds
def test_an_old_task_that_took_the_new_way_later_stays_on_it(hf, kind):
    def make(new: bool) -> Any:
        @task(name="gated_later")
        def agent() -> list[int]:
            got = [one(1)]
            die()
            if new and patched("later"):
                got.append(act(2))
                if dead[0] is None:
                    raise Crash
            got.append(one(3))
            return got

        return agent

    crashed(hf, make(False))
    agent = make(True)
    dead[0] = None
    with pytest.raises(Crash):
        hf.run(agent, id="t")
    dead[0] = False
    assert hf.run(agent, id="t") == [1, 2, 3]
    assert set(ran.values()) == {1}


@pytest.mark.parametrize("first", ["each", "gather", "start", "sleep", "ask"])
def test_an_old_task_that_had_begun_what_comes_next_keeps_to_the_old_way(hf, first):
    def make(new: bool) -> Any:
        @task(name=f"next_{first}")
        def agent() -> bool:
            took = new and patched("x")
            if took:
                act(0)
            if first == "each":
                each(one, [1, 2])
            elif first == "gather":
                gather(lambda: one(1), lambda: one(2))
            elif first == "start":
                start(leaf).result()
            elif first == "sleep":
                sleep(0.001)
            else:
                ask("Sure?", bool, timeout_s=0.001, default=True)
            die()
            return took

        return agent

    dead[0] = True
    for _ in range(100):
        try:
            hf.run(make(False), id="t")
        except Unanswered:
            continue
        except Crash:
            break
    else:
        pytest.fail("it never came to its end")
    dead[0] = False
    assert hf.run(make(True), id="t") is False
    assert not ran["act", 0]


@task
def leaf() -> int:
    return one(7)


def test_an_old_task_that_had_begun_plain_branches_keeps_to_the_old_way(hf):
    async def strand(n: int) -> int:
        return await aone(n)

    def make(new: bool) -> Any:
        @task(name="plain_branches")
        async def agent() -> bool:
            took = new and patched("x")
            if took:
                await aact(0)
            await asyncio.gather(strand(1), strand(2))
            die()
            return took

        return agent

    crashed(hf, make(False))
    assert hf.run(make(True), id="t") is False
    assert not ran["act", 0]


def test_branches_are_gated_each_by_itself(hf):
    def make(new: bool) -> Any:
        @task(name="gated_branches")
        def agent() -> list[Any]:
            def branch(n: int) -> list[Any]:
                if n == 2:
                    die()
                took = new and patched("x")
                return [took, act(n) if took else None, one(n)]

            return gather(lambda: branch(1), lambda: branch(2))

        return agent

    crashed(hf, make(False))
    agent = make(True)
    assert hf.run(agent, id="t") == [[False, None, 1], [True, 2, 2]]
    assert set(ran.values()) == {1}


def test_each_turn_after_a_checkpoint_is_gated_by_itself(hf):
    def make(new: bool) -> Any:
        @task(name="gated_turns")
        def agent() -> list[str]:
            way = restore(list[str]())
            while len(way) < 4:
                n = len(way)
                took = new and patched("x")
                if took:
                    act(n)
                one(n)
                if n == 2:
                    die()
                way = checkpoint([*way, f"{n} {took}"])
            return way

        return agent

    crashed(hf, make(False))
    agent = make(True)
    assert hf.run(agent, id="t") == ["0 False", "1 False", "2 False", "3 True"]
    assert set(ran.values()) == {1}


def test_gates_of_different_names_are_apart_and_notes_do_not_count(hf):
    def make(new: bool) -> Any:
        @task(name="two_gates")
        def agent() -> list[Any]:
            got: list[Any] = [one(1)]
            note("between")
            got.append(new and patched("a"))
            got.append(new and patched("b"))
            die()
            got.append(one(2))
            got.append(new and patched("a"))
            return got

        return agent

    crashed(hf, make(False))
    assert hf.run(make(True), id="t") == [1, True, True, 2, True]


# hf.check


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


class Change:
    """One place in a task where the code differs from that which made the log."""

    how = "same"


@task
def child_of(n: int) -> int:
    return one(n)


@task
def whole(upto: int) -> Any:
    got: list[Any] = [one(1)]
    if Change.how == "middle":
        act(99)
    got += gather(lambda: one(2), lambda: act(3))
    if Change.how == "fewer items":
        got += each(act, [4, 5])
    elif Change.how == "other items":
        got += each(act, [4, 5, 60])
    else:
        got += each(act, [4, 5, 6])
    got.append(decide("room", 7))
    note("seen", {"n": 1})
    progress("half", done=1, total=2)
    now()
    sleep(0.001)
    got.append(start(child_of, 8).result())
    if Change.how == "removed":
        return got
    got.append(act(9))
    die()
    if Change.how == "end":
        act(100)
    got.append(act(10))
    return got


@task
async def awhole(upto: int) -> Any:
    got: list[Any] = [await aone(1)]
    if Change.how == "middle":
        await aact(99)
    got += await gather(aone(2), aact(3))
    items = {"fewer items": [4, 5], "other items": [4, 5, 60]}.get(Change.how, [4, 5, 6])
    got += await each(aact, items)
    got.append(decide("room", 7))
    note("seen", {"n": 1})
    progress("half", done=1, total=2)
    now()
    await sleep(0.001)
    got.append(await start(child_of, 8))
    if Change.how == "removed":
        return got
    got.append(await aact(9))
    die()
    if Change.how == "end":
        await aact(100)
    got.append(await aact(10))
    return got


@pytest.mark.parametrize("agent", [whole, awhole])
@pytest.mark.parametrize(
    ("how", "path", "apath"),
    [
        ("same", "", ""),
        ("end", "", ""),
        ("middle", "2", "2"),
        ("fewer items", "3.3", "5.3"),
        ("other items", "3.3", "5.3"),
        ("removed", "6", "8"),
    ],
)
def test_a_check_says_whether_the_code_fits_and_calls_and_writes_nothing(
    tmp_path, monkeypatch, agent, how, path, apath
):
    with Holdfast(tmp_path / "w") as hf:
        crashed(hf, agent, 1)
        ran.clear()
        before = bytes_of(tmp_path / "w")
        monkeypatch.setattr(Change, "how", how)
        found = hf.check("t")
        assert not ran
        assert bytes_of(tmp_path / "w") == before
    assert found.task_id == "t"
    expected = path if agent is whole else apath
    assert found.path.startswith(expected)
    assert found.fits == (not expected)
    assert bool(found.recorded) == bool(found.asked) == bool(expected)


@pytest.mark.parametrize("agent", [whole, awhole])
def test_a_check_agrees_with_what_a_resume_finds(hf, monkeypatch, agent):
    crashed(hf, agent, 1)
    for how in ("middle", "fewer items", "other items", "removed", "end", "same"):
        monkeypatch.setattr(Change, "how", how)
        ran.clear()
        found = hf.check("t")
        assert not ran
        if found.fits:
            continue
        with pytest.raises(CodeChanged) as raised:
            hf.run(agent, 1, id="t")
        assert raised.value.path == found.path
        assert not ran
    assert hf.run(agent, 1, id="t")[-1] == 10


@kinds
def test_a_check_of_a_task_that_waits_fits(hf, kind):
    @task(name="asks_sync")
    def asks() -> bool:
        one(1)
        return ask("Sure?", bool)

    @task(name="asks_async")
    async def aasks() -> bool:
        await aone(1)
        return await ask("Sure?", bool)

    with pytest.raises(Unanswered):
        hf.run(asks if kind == "sync" else aasks, id="t")
    seq = hf.task("t").seq
    assert hf.check("t").fits
    hf.answer("t", True)
    assert hf.check("t").fits
    assert hf.task("t").seq == seq + 1


@kinds
def test_a_check_of_a_new_a_finished_and_a_failed_task_fits(hf, kind):
    @task(name=f"three_ways_{kind}")
    def agent(fail: bool) -> int:
        n = one(1)
        if fail:
            raise ValueError("failed")
        return n

    hf.start(agent, False, id="new")
    hf.run(agent, False, id="done")
    with pytest.raises(Exception, match="failed"):
        hf.run(agent, True, id="failed")
    ran.clear()
    assert [hf.check(id).fits for id in ("new", "done", "failed")] == [True] * 3
    assert not ran


def test_a_check_of_a_running_tool_in_doubt_asks_nobody(hf):
    asked = []

    @tool(check=asked.append)
    def doubtful() -> int:
        raise Crash

    @task
    def doubts() -> int:
        return doubtful()

    with pytest.raises(Crash):
        hf.run(doubts, id="t")
    assert hf.check("t").fits
    assert asked == []


def looped(how: str, kind: str = "sync") -> Any:
    @task(name="looped")
    def agent() -> int:
        n = 0 if how == "no restore" else restore(0)
        while n < 5:
            if how == "middle":
                act(n)
            one(n)
            if how != "fewer":
                act(n)
            if n == 3:
                die()
            n = n + 1 if how == "no checkpoint" else checkpoint(n + 1)
            if how == "new after":
                act(1000)
        return n

    @task(name="alooped")
    async def aagent() -> int:
        n = 0 if how == "no restore" else restore(0)
        while n < 5:
            if how == "middle":
                await aact(n)
            await aone(n)
            if how != "fewer":
                await aact(n)
            if n == 3:
                die()
            n = n + 1 if how == "no checkpoint" else checkpoint(n + 1)
            if how == "new after":
                await aact(1000)
        return n

    return agent if kind == "sync" else aagent


@kinds
@pytest.mark.parametrize(
    ("how", "path"),
    [
        ("same", None),
        ("new after", None),
        ("middle", "@3.1"),
        ("fewer", "@3.2"),
        ("no restore", "1"),
    ],
)
def test_a_check_of_a_task_with_checkpoints_begins_at_the_last(tmp_path, kind, how, path):
    with Holdfast(tmp_path / "w") as hf:
        crashed(hf, looped("same", kind))
        ran.clear()
        looped(how, kind)
        before = bytes_of(tmp_path / "w")
        found = hf.check("t")
        assert not ran
        assert bytes_of(tmp_path / "w") == before
    assert found.path == (path or "")
    assert found.fits == (path is None)


@kinds
def test_code_that_drops_a_call_before_a_checkpoint_is_noticed(hf, kind):
    crashed(hf, looped("same", kind))
    with pytest.raises(CodeChanged, match=r"@3\.2"):
        hf.run(looped("fewer", kind), id="t")


def test_a_check_of_a_state_that_does_not_fit_says_so(hf):
    crashed(hf, counting(0, None, {"seen": []}, first_turn))
    counting(2, None, Third([], "new"), third_turn)
    found = hf.check("t")
    assert not found.fits
    assert found.path == "@1"
    counting(2, to_third, Third([], "new"), third_turn)
    assert hf.check("t").fits


def test_a_check_with_an_upcast_that_raises_does_not_fit(hf):
    def broken(data: Any, version: int) -> Any:
        raise KeyError("nope")

    crashed(hf, counting(0, None, {"seen": []}, first_turn))
    counting(1, broken, {"seen": []}, first_turn)
    assert not hf.check("t").fits


def test_a_check_with_older_code_says_so(hf):
    crashed(hf, versioned(2))
    versioned(1)
    found = hf.check("t")
    assert (found.fits, found.path) == (False, "0")
    assert "version 2" in found.recorded


def test_a_check_of_a_task_whose_code_is_not_there_says_so(hf, monkeypatch):
    hf.start(task(name="soon_gone")(leaf_of_nothing), id="t")
    monkeypatch.delitem(registry._found, ("task", "soon_gone"))
    with pytest.raises(CodeMissing, match="soon_gone"):
        hf.check("t")


def leaf_of_nothing() -> int:
    return 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_check_works_where_an_event_loop_runs(hf):
    async def main() -> bool:
        hf.start(awhole, 1, id="t")
        return hf.check("t").fits

    try:
        assert asyncio.run(main())
    finally:
        gc.collect()  # a coroutine that was never awaited says so here, and not elsewhere


@kinds
def test_a_check_of_a_gated_task_takes_the_way_that_a_resume_takes(hf, kind):
    crashed(hf, gated(False, kind), 4)
    gated(True, kind)
    ran.clear()
    seq = hf.task("t").seq
    assert hf.check("t").fits
    assert not ran
    assert hf.task("t").seq == seq


def test_a_check_of_many_tasks_leaves_the_rest_alone(hf):
    @task(name="many_tasks")
    def agent(n: int) -> int:
        one(n)
        die()
        return n

    dead[0] = True
    for n in range(5):
        with pytest.raises(Crash):
            hf.run(agent, n, id=f"t{n}")
    dead[0] = False
    found = [hf.check(view.id).fits for view in hf.tasks(status="in_progress")]
    assert found == [True] * 5
    assert set(ran.values()) == {1}
