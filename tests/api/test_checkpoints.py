"""Agents that loop over explicit state go on from their last checkpoint, and from nothing older."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import (
    CodeChanged,
    Holdfast,
    HoldfastError,
    LogDamaged,
    TaskFailed,
    TaskPaused,
    Unanswered,
    Unserializable,
    aask,
    ask,
    checkpoint,
    decide,
    each,
    gather,
    note,
    now,
    progress,
    restore,
    sleep,
    start,
    step,
    task,
    tool,
    uuid,
)
from holdfast.core.events import Checkpointed, Progressed
from holdfast.core.spec import registry
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.store import FileStore
from holdfast.stores.memory import MemoryStore
from tests.flavors import Crash

ran: Counter[Any] = Counter()
die_at: set[Any] = set()


def work_on(what: Any) -> None:
    """Something a step does; the process may end just before it is done."""
    if what in die_at:
        die_at.remove(what)
        raise Crash
    ran[what] += 1


@step
def think(n: int) -> int:
    work_on(("think", n))
    return n * n


@tool(in_doubt="retry")
def send(n: int) -> str:
    work_on(("send", n))
    return f"sent {n}"


@step
async def athink(n: int) -> int:
    work_on(("think", n))
    return n * n


@tool(in_doubt="retry")
async def asend(n: int) -> str:
    work_on(("send", n))
    return f"sent {n}"


@dataclass
class Mind:
    turns: int = 0
    seen: list[tuple[int, str]] = field(default_factory=list)
    at: datetime | None = None


@task
def looping(upto: int) -> Mind:
    mind = restore(Mind())
    while mind.turns < upto:
        n = mind.turns
        square = think(n)
        mind.seen.append((square, send(n)))
        mind.at = now()
        mind.turns = n + 1
        mind = checkpoint(mind)
    send(-1)
    return mind


@task
async def alooping(upto: int) -> Mind:
    mind = restore(Mind())
    while mind.turns < upto:
        n = mind.turns
        square = await athink(n)
        mind.seen.append((square, await asend(n)))
        mind.at = now()
        mind.turns = n + 1
        mind = checkpoint(mind)
    await asend(-1)
    return mind


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


@pytest.mark.parametrize("agent", [looping, alooping])
@pytest.mark.parametrize("at", [(what, n) for n in (-1, 0, 1, 4) for what in ("think", "send")])
def test_a_crash_at_any_point_of_the_loop_repeats_nothing(opened, agent, at):
    if at == ("think", -1):
        at = None
    with opened() as hf:
        expected = hf.run(agent, 5, id="calm")
    ran.clear()
    if at is not None:
        die_at.add(at)
        with pytest.raises(Crash), opened() as hf:
            hf.run(agent, 5, id="t")
    with opened() as hf:
        found = hf.run(agent, 5, id="t")
    assert (found.turns, found.seen) == (expected.turns, expected.seen)
    assert set(ran.values()) == {1}
    assert len(ran) == 11


@pytest.mark.parametrize("agent", [looping, alooping])
def test_a_crash_at_every_point_one_after_the_other(opened, agent):
    die_at.update((what, n) for n in (*range(5), -1) for what in ("think", "send"))
    die_at.discard(("think", -1))
    for _ in range(11):
        with pytest.raises(Crash), opened() as hf:
            hf.run(agent, 5, id="t")
    with opened() as hf:
        found = hf.run(agent, 5, id="t")
        assert hf.task("t").state.checkpoints == 5
    assert found.seen == [(n * n, f"sent {n}") for n in range(5)]
    assert isinstance(found.at, datetime)
    assert set(ran.values()) == {1}


@pytest.mark.parametrize("lost", ["Checkpointed", "Completed"])
def test_a_log_that_lost_its_end_goes_on_from_what_is_left(tmp_path, lost):
    with Holdfast(tmp_path / "w", sync=False) as hf:
        expected = hf.run(looping, 4, id="t").seen
        names = [type(event).__name__ for event in hf.task("t").events()]
    log = tmp_path / "w/tasks/t/events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    for cut in (n for n, name in enumerate(names) if name == lost):
        log.write_bytes(b"".join(lines[:cut]))
        with Holdfast(tmp_path / "w", sync=False) as hf:
            assert hf.run(looping, 4, id="t").seen == expected


# What a resume reads


class Counting(Disk):
    """Counts the bytes that are read of files."""

    def __init__(self) -> None:
        self.read_bytes = 0

    def read_piece(self, fd: int, offset: int, most_bytes: int) -> bytes:
        data = super().read_piece(fd, offset, most_bytes)
        self.read_bytes += len(data)
        return data

    def read_all(self, fd: int, offset: int = 0) -> bytes:
        data = super().read_all(fd, offset)
        self.read_bytes += len(data)
        return data


@task
def long_loop(upto: int) -> int:
    window = restore([""])
    n = int(window[-1][:6] or 0)
    while n < upto:
        think(n)
        n += 1
        window = checkpoint([*window, f"{n:06} {'x' * 400}"][-20:])
    return think(-1)


@pytest.fixture(scope="module")
def long_log(tmp_path_factory):
    """The log of a task of more than 20,000 events that died before its end."""
    folder = tmp_path_factory.mktemp("long") / "w"
    die_at.add(("think", -1))
    with pytest.raises(Crash), Holdfast(folder, sync=False) as hf:
        hf.run(long_loop, 6700, id="t")
    die_at.clear()
    return folder


def test_a_long_task_resumes_reading_only_the_end_of_its_log(long_log):
    log = long_log / "tasks/t/events.jsonl"
    die_at.add(("think", -1))
    disk = Counting()
    with pytest.raises(Crash), Holdfast(FileStore(long_log, sync=False, disk=disk)) as hf:
        hf.run(long_loop, 6700, id="t")
    assert log.read_bytes().count(b"\n") > 13_000
    assert disk.read_bytes < log.stat().st_size / 2
    assert not any(what == ("think", n) for what in ran for n in range(6700))


def test_resuming_by_id_alone_reads_only_the_end_of_the_log(long_log):
    die_at.add(("think", -1))
    disk = Counting()
    with pytest.raises(Crash), Holdfast(FileStore(long_log, sync=False, disk=disk)) as hf:
        hf.resume("t")
    assert disk.read_bytes < (long_log / "tasks/t/events.jsonl").stat().st_size / 2


def stored_bytes(folder: Path) -> int:
    """What the log and its blobs come to; the index is not the task's."""
    files = [*(folder / "tasks").rglob("*.jsonl"), *(folder / "blobs").rglob("*")]
    return sum(file.stat().st_size for file in files if file.is_file())


@pytest.mark.parametrize("kept", [1, 20])
def test_the_log_is_within_half_again_of_the_changes(tmp_path, kept):
    changes = [f"{n:05}{'x' * 393}" for n in range(2000)]

    @task(name=f"window_of_{kept}")
    def moving() -> int:
        messages = restore(list[str]())
        for change in changes:
            messages = checkpoint([*messages, change][-kept:])
        return len(messages)

    with Holdfast(tmp_path / "w", sync=False) as hf:
        assert hf.run(moving, id="t") == kept
    assert stored_bytes(tmp_path / "w") < 1.5 * len(msgspec.json.encode(changes))


@pytest.mark.parametrize("turns", [700, 1000, 2000])
def test_the_log_of_a_growing_state_is_within_half_again_of_the_changes(tmp_path, turns):
    changes = [f"{n:05}{'x' * 393}" for n in range(turns)]

    @task(name=f"growing_to_{turns}")
    def growing() -> int:
        messages = restore(list[str]())
        while len(messages) < turns:
            messages = checkpoint([*messages, changes[len(messages)]])
        return len(messages)

    with Holdfast(tmp_path / "w", sync=False) as hf:
        assert hf.run(growing, id="t") == turns
    assert stored_bytes(tmp_path / "w") < 1.5 * len(msgspec.json.encode(changes))


def test_a_state_that_shrank_is_soon_cheap_to_restore(tmp_path):
    @task
    def relieved() -> int:
        state: dict[str, Any] = restore({"n": 0, "text": ""})
        state = checkpoint({"n": 1, "text": "x" * 1_000_000})
        while state["n"] < 500:
            state = checkpoint({"n": state["n"] + 1, "text": ""})
        return int(state["n"])

    with Holdfast(tmp_path / "w", sync=False) as hf:
        hf.run(relieved, id="t")
        view = hf.task("t")
        assert len(msgspec.json.encode(view.value(view.state.checkpoint))) < 1000


@pytest.fixture
def long_lines(long_log, tmp_path):
    """A copy of the long log: its workspace, its file, its lines, and its last whole checkpoint."""
    folder = tmp_path / "w"
    shutil.copytree(long_log, folder)
    log = folder / "tasks/t/events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    whole = max(n for n, line in enumerate(lines) if b'"carried":{' in line)
    return folder, log, lines, whole


def test_damage_before_the_last_whole_checkpoint_does_not_stop_a_resume_but_shows(long_lines):
    folder, log, lines, whole = long_lines
    assert whole > 1000
    lines[5] = lines[5].replace(b'"type"', b'"tYpe"')
    log.write_bytes(b"".join(lines))
    with Holdfast(folder, sync=False) as hf:
        with pytest.raises(LogDamaged, match="event 6 is damaged"):
            hf.task("t")
        assert hf.run(long_loop, 6700, id="t") == 1
        with pytest.raises(LogDamaged, match="event 6 is damaged"):
            hf.task("t")
    assert set(ran) == {("think", -1)}


def test_damage_after_the_last_whole_checkpoint_stops_a_resume_and_changes_nothing(long_lines):
    folder, log, lines, whole = long_lines
    for at in (0, whole, whole + 1, len(lines) - 2):
        place = len(lines[at]) // 2
        flipped = bytes([lines[at][place] ^ 1])
        damaged = [*lines[:at], lines[at][:place] + flipped + lines[at][place + 1 :]]
        data = b"".join([*damaged, *lines[at + 1 :]])
        log.write_bytes(data)
        with Holdfast(folder, sync=False) as hf, pytest.raises(LogDamaged):
            hf.run(long_loop, 6700, id="t")
        assert log.read_bytes() == data
    assert not ran


# What the state may be


class Point(msgspec.Struct):
    x: int
    tags: set[str] = set()


@pytest.mark.parametrize(
    ("default", "states"),
    [
        (0, [1, 2, -(2**63)]),
        (0.0, [-0.0, 1.0]),
        ("", ["a", "ab"]),
        ({}, [{"a": 1}, {"a": 1, "b": [1.0, None]}, {}]),
        ([], [[1], [1, "two"], []]),
        (Mind(), [Mind(1, [(1, "a")], datetime(2026, 1, 1, tzinfo=UTC)), Mind()]),
        (Point(0), [Point(1, {"a"}), Point(1, set())]),
        ((0, ""), [(1, "a"), (2, "b")]),
        (datetime(2026, 1, 1, tzinfo=UTC), [datetime(2026, 1, 2, tzinfo=UTC)]),
        (b"", [b"\0\xff", b"x" * 200_000]),
    ],
)
def test_a_state_comes_back_as_it_was(opened, default, states):
    seen = []

    @task(name="keeper")
    def keeper() -> None:
        seen.append(restore(default))
        for state in states:
            seen.append(checkpoint(state))
        work_on("the end")

    die_at.add("the end")
    with pytest.raises(Crash), opened() as hf:
        hf.run(keeper, id="t")
    assert [repr(value) for value in seen] == [repr(default), *map(repr, states)]
    with opened() as hf:
        hf.run(keeper, id="t")
    assert repr(seen[len(states) + 1]) == repr(states[-1])
    assert type(seen[len(states) + 1]) is type(states[-1])


@pytest.mark.parametrize("upto", [3, 40, 1000])
def test_a_state_that_shrinks_is_what_it_shrank_to(opened, upto):
    @task(name="shrinking")
    def shrinking() -> list[str]:
        items = restore([f"{n:100}" for n in range(upto)])
        while len(items) > 1:
            items = checkpoint(items[: len(items) // 2])
        work_on("the end")
        return items

    die_at.add("the end")
    with pytest.raises(Crash), opened() as hf:
        hf.run(shrinking, id="t")
    with opened() as hf:
        assert hf.run(shrinking, id="t") == [f"{0:100}"]
        assert hf.task("t").checkpoint == [f"{0:100}"]


def test_who_changes_the_state_after_a_checkpoint_does_not_change_the_checkpoint(opened):
    @task
    def careless() -> list[list[int]]:
        state = restore([[0]])
        given = [[1]]
        if state == [[0]]:
            kept = checkpoint(given)
            given[0].append(99)
            kept[0].append(98)
            work_on("a")
            return []
        return state

    die_at.add("a")
    with pytest.raises(Crash), opened() as hf:
        hf.run(careless, id="t")
    with opened() as hf:
        assert hf.run(careless, id="t") == [[1]]


def test_a_state_that_cant_be_stored_is_refused_and_the_one_before_stands(opened):
    @task
    def odd() -> int:
        state: Any = restore({"n": 0})
        if state["n"] == 0:
            checkpoint({"n": 1})
            checkpoint({"n": threading.Lock()})
        return int(state["n"])

    with opened() as hf:
        with pytest.raises(TaskFailed, match="Unserializable"):
            hf.run(odd, id="t")
        assert hf.task("t").checkpoint == {"n": 1}
        assert hf.retry("t") == 1


def test_a_task_may_catch_that_its_state_cant_be_stored(opened):
    @task
    def catching() -> int:
        n = restore(0)
        try:
            checkpoint(threading.Lock())
        except Unserializable:
            n = checkpoint(5)
        return n

    with opened() as hf:
        assert hf.run(catching, id="t") == 5


# What comes after a checkpoint


@task
def grand(n: int) -> int:
    return think(n)


@task
def all_of_it() -> dict[str, Any]:
    state: dict[str, Any] = restore(dict[str, Any]())
    while len(state.setdefault("turns", [])) < 3:
        n = len(state["turns"])
        room = decide("room", f"room {n}", because="it is there")
        note("one more turn", {"n": n})
        at, name = now(), uuid()
        sleep(0.001)
        both = gather(partial(think, n), partial(send, n))
        many = list(each(think, [1000 + 10 * n + k for k in range(3)]))
        child = start(grand, 100 + n).result()
        sure = ask(f"Sure of {n}?", bool, id=f"sure-{n}")
        turn = [room, str(at), str(name), both, many, child, sure]
        state["turns"].append(turn)
        state = checkpoint(state)
    return state


@task
async def aall_of_it() -> dict[str, Any]:
    state: dict[str, Any] = restore(dict[str, Any]())
    while len(state.setdefault("turns", [])) < 3:
        n = len(state["turns"])
        room = decide("room", f"room {n}", because="it is there")
        note("one more turn", {"n": n})
        at, name = now(), uuid()
        await sleep(0.001)
        both = await gather(athink(n), asend(n))
        many = list(await each(athink, [1000 + 10 * n + k for k in range(3)]))
        child = await start(grand, 100 + n)
        sure = await aask(f"Sure of {n}?", bool, id=f"sure-{n}")
        turn = [room, str(at), str(name), both, many, child, sure]
        state["turns"].append(turn)
        state = checkpoint(state)
    return state


@pytest.mark.parametrize("agent", [all_of_it, aall_of_it])
def test_everything_a_task_can_do_is_done_once_after_a_checkpoint_too(opened, agent):
    points = [("think", 1), ("send", 1), ("think", 1011), ("think", 101), ("send", 2)]
    die_at.update(points)
    result = None
    for _ in range(len(points) + 4):
        with opened() as hf:
            try:
                result = hf.run(agent, id="t")
                break
            except (Crash, ExceptionGroup, BaseExceptionGroup):
                continue
            except Unanswered:
                (question,) = hf.task("t").questions
                hf.answer("t", True, question=question.key)
    assert not die_at
    assert set(ran.values()) == {1}
    assert result is not None
    rooms, times, names, both, many, children, sure = zip(*result["turns"], strict=True)
    assert rooms == ("room 0", "room 1", "room 2")
    assert len(set(names)) == 3
    assert list(times) == sorted(times)
    assert both == tuple([n * n, f"sent {n}"] for n in range(3))
    assert many == tuple([(1000 + 10 * n + k) ** 2 for k in range(3)] for n in range(3))
    assert children == (100**2, 101**2, 102**2)
    assert sure == (True, True, True)
    with opened() as hf:
        assert len(hf.task("t").notes) == 3
        assert len(hf.task("t").decisions) == 3


def test_progress_is_said_once_and_none_is_lost_in_a_loop_without_crashes(opened):
    with opened() as hf:
        hf.run(telling, 3, id="t")
        assert said(hf) == ["a0", "b0", "a1", "b1", "a2", "b2"]


@task
def telling(upto: int) -> int:
    n = restore(0)
    while n < upto:
        progress(f"a{n}")
        think(n)
        progress(f"b{n}")
        n = checkpoint(n + 1)
    return n


def said(hf: Holdfast) -> list[str]:
    return [e.text for e in hf.task("t").events() if isinstance(e, Progressed)]


def test_progress_after_a_crash_is_not_lost(opened):
    die_at.add(("think", 1))
    with pytest.raises(Crash), opened() as hf:
        hf.run(telling, 3, id="t")
    with opened() as hf:
        hf.run(telling, 3, id="t")
        assert said(hf) == ["a0", "b0", "a1", "b1", "a2", "b2"]


# Calls that are still open at a checkpoint


@step
def words(n: int) -> Any:
    for k in range(n):
        work_on(("word", k))
        yield k


def must_survive(opened: Callable[[], Holdfast], agent: Any, expected: Any) -> None:
    die_at.add("the end")
    with pytest.raises(Crash), opened() as hf:
        hf.run(agent, id="t")
    with opened() as hf:
        assert hf.run(agent, id="t") == expected


def test_a_child_may_end_after_a_checkpoint(opened):
    @task(name="parent_of_one")
    def parent() -> int:
        n = restore(0)
        if n == 0:
            child = start(grand, 3)
            n = checkpoint(1)
            n += child.result()
        work_on("the end")
        return n

    must_survive(opened, parent, 1)


def test_a_stream_may_be_read_on_after_a_checkpoint(opened):
    @task(name="reads_on")
    def reader() -> int:
        n = restore(0)
        if n == 0:
            source = words(3)
            next(source)
            n = checkpoint(1)
            list(source)
        work_on("the end")
        return n

    must_survive(opened, reader, 1)


def test_a_sleep_in_a_branch_may_end_after_a_checkpoint(opened):
    @task(name="sleeps_on")
    async def sleeper() -> int:
        n = restore(0)
        if n == 0:
            branch = asyncio.ensure_future(sleep(0.05))
            await asyncio.sleep(0.01)
            n = checkpoint(1)
            await branch
        work_on("the end")
        return n

    must_survive(opened, sleeper, 1)


def test_a_step_in_a_thread_may_end_after_a_checkpoint(opened):
    @step(name="takes_its_time")
    def slow() -> int:
        time.sleep(0.1)
        return 1

    @task(name="threads_on")
    async def threaded() -> int:
        n = restore(0)
        if n == 0:
            branch = asyncio.ensure_future(asyncio.to_thread(slow))
            await asyncio.sleep(0.03)
            n = checkpoint(1)
            await branch
        work_on("the end")
        return n

    must_survive(opened, threaded, 1)


def test_a_checkpoint_beside_a_running_async_step_is_refused_and_the_task_goes_on(opened):
    hasty = [True]

    @step(name="slowly")
    async def slowly() -> int:
        await asyncio.sleep(0.02)
        return 1

    @task(name="hasty")
    async def agent() -> int:
        n = restore(0)
        branch = asyncio.ensure_future(slowly())
        await asyncio.sleep(0.005)
        if not hasty[0]:
            await branch
        return checkpoint(n + 1)

    with opened() as hf:
        with pytest.raises(HoldfastError, match="other branches"):
            hf.run(agent, id="t")
        hasty[0] = False
        assert hf.run(agent, id="t") == 1


class Interrupted(FileStore):
    """Something is said to the task just when its large state is being put away."""

    said: Callable[[], Any] | None = None

    def put_blob(self, data: bytes, name: str = "") -> str:
        if self.said is not None:
            said, self.said = self.said, None
            thread = threading.Thread(target=said)
            thread.start()
            thread.join()
        return super().put_blob(data, name)


@task
def large_state() -> int:
    text = restore("")
    if not text:
        think(1)
        text = checkpoint("x" * 100_000)
    return think(len(text))


def test_a_pause_that_comes_during_a_checkpoint_stands(tmp_path):
    store = Interrupted(tmp_path / "w")
    with Holdfast(store) as hf:
        store.said = lambda: hf.pause("t")
        with pytest.raises(TaskPaused):
            hf.run(large_state, id="t")
        assert hf.task("t").status == "paused"
        hf.unpause("t")
        assert hf.task("t").status == "in_progress"


# Code that does not fit


def test_restore_comes_first(opened):
    @task
    def late() -> int:
        think(1)
        return restore(0)

    with opened() as hf, pytest.raises(HoldfastError, match="comes first in a task"):
        hf.run(late, id="t")


@pytest.mark.parametrize("agent", ["sync", "async"])
def test_a_checkpoint_without_restore_is_refused(opened, agent):
    @task(name="unrestored")
    def sync_one() -> int:
        return checkpoint(1)

    @task(name="aunrestored")
    async def async_one() -> int:
        return checkpoint(1)

    with opened() as hf, pytest.raises(HoldfastError, match="goes with restore"):
        hf.run(sync_one if agent == "sync" else async_one, id="t")


def test_neither_belongs_in_a_step_or_a_branch_or_outside(opened):
    refused = []

    def refuse(what: Callable[[], Any]) -> int:
        with pytest.raises(HoldfastError) as found:
            what()
        refused.append(str(found.value))
        return 1

    @step(name="inside")
    def inside() -> int:
        return refuse(lambda: checkpoint(1)) + refuse(lambda: restore(1))

    @task(name="outside")
    def outside() -> int:
        restore(0)
        gather(lambda: refuse(lambda: checkpoint(1)), lambda: refuse(lambda: restore(1)))
        return checkpoint(inside())

    with opened() as hf:
        assert hf.run(outside, id="t") == 2
    assert len(refused) == 4
    refuse(lambda: checkpoint(1))
    refuse(lambda: restore(1))
    assert all("task" in text for text in refused)


@pytest.mark.parametrize("new", ["calls", "ends", "decides", "raises", "branches", "checkpoints"])
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_code_that_restores_no_more_is_stopped_before_it_calls_anything(opened, new, kind):
    def sync_code() -> int:
        if new == "calls":
            send(0)
        elif new == "decides":
            decide("room", 1)
        elif new == "raises":
            raise ValueError("new code")
        elif new == "branches":
            gather(lambda: send(0), lambda: send(1))
        elif new == "checkpoints":
            checkpoint(1)
        return 0

    async def async_code() -> int:
        if new == "calls":
            await asend(0)
        elif new == "branches":
            branches = [asend(0), asend(1)]
            try:
                await gather(*branches)
            finally:
                for branch in branches:
                    branch.close()
        elif new in ("decides", "raises", "checkpoints"):
            sync_code()
        return 0

    die_at.add(("send", -1))
    with pytest.raises(Crash), opened() as hf:
        hf.run(looping if kind == "sync" else alooping, 2, id="t")
    ran.clear()
    if kind == "sync":
        changed: Any = task(name="looping")(lambda upto: sync_code())
    else:

        async def acode(upto: int) -> int:
            return await async_code()

        changed = task(name="alooping")(acode)
    with opened() as hf:
        before = hf.task("t").seq
        with pytest.raises(HoldfastError) as found:
            hf.run(changed, 2, id="t")
        if new != "checkpoints":
            assert isinstance(found.value, CodeChanged)
            assert "checkpoint 2" in str(found.value)
        assert not ran
        assert hf.task("t").seq <= before + 1  # that it was taken up, and no more
        assert hf.task("t").status == "in_progress"
    with opened() as hf:
        assert hf.run(looping if kind == "sync" else alooping, 2, id="t").turns == 2


def test_a_changed_call_after_a_checkpoint_is_noticed(opened):
    def make(name: str) -> Any:
        @task(name="changeable")
        def agent() -> int:
            n = restore(0)
            while n < 3:
                think(n) if name == "old" else send(n)
                if n == 1:
                    work_on("in the second turn")
                n = checkpoint(n + 1)
            return n

        return agent

    die_at.add("in the second turn")
    with pytest.raises(Crash), opened() as hf:
        hf.run(make("old"), id="t")
    ran.clear()
    with opened() as hf, pytest.raises(CodeChanged, match=r"step @1\.1"):
        hf.run(make("new"), id="t")
    assert not ran


def test_code_that_ends_before_the_calls_after_its_checkpoint_is_noticed(opened):
    def make(upto: int) -> Any:
        @task(name="shorter")
        def agent() -> int:
            n = restore(0)
            while n < upto:
                n = checkpoint(think(n) * 0 + n + 1)
            if n == 2:
                send(1)
                send(-1)
            return n

        return agent

    die_at.add(("send", -1))
    with pytest.raises(Crash), opened() as hf:
        hf.run(make(2), id="t")

    @task(name="shorter")
    def ends() -> int:
        return restore(0)

    with opened() as hf, pytest.raises(CodeChanged, match=r"step @2\.1"):
        hf.run(ends, id="t")


# What others see


def test_a_view_shows_the_newest_checkpoint_and_where_the_task_is(opened):
    die_at.add(("send", 3))
    with pytest.raises(Crash), opened() as hf:
        hf.run(looping, 5, id="t")
    with opened() as hf:
        view = hf.task("t")
        assert view.checkpoint["turns"] == 3
        assert view.state.checkpoints == 3
        assert view.status == "in_progress"
        assert sum(isinstance(event, Checkpointed) for event in view.events()) == 3


def test_a_failed_task_is_retried_from_its_last_checkpoint(opened):
    broken = [True]

    @task
    def fragile(upto: int) -> int:
        n = restore(0)
        while n < upto:
            think(n)
            if n == 2 and broken[0]:
                raise ValueError("broken")
            n = checkpoint(n + 1)
        return n

    with opened() as hf:
        with pytest.raises(TaskFailed, match="broken"):
            hf.run(fragile, 4, id="t")
        broken[0] = False
        assert hf.retry("t") == 4
    assert set(ran.values()) == {1}


def test_a_cancelled_task_with_checkpoints_ends(opened):
    die_at.add(("send", 3))
    with pytest.raises(Crash), opened() as hf:
        hf.run(looping, 5, id="t")
    with opened() as hf:
        hf.cancel("t", because="enough")
        with pytest.raises(HoldfastError, match="cancelled"):
            hf.run(looping, 5, id="t")
        assert hf.task("t").status == "cancelled"
    assert ran["send", 3] == 0
