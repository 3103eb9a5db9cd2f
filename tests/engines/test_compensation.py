"""What a task did is undone when it ends badly: the last first, each once, whatever happens."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast import (
    BadInput,
    Happened,
    Holdfast,
    IdempotencyKey,
    InDoubt,
    Retry,
    StepFailed,
    TaskCancelled,
    TaskFailed,
    Worker,
    checkpoint,
    restore,
)
from holdfast.log.log import Log
from holdfast.stores.memory import MemoryStore
from tests.flavors import Background, Crash, Flavor, eventually

NOW = Retry(attempts=3, delay_s=0, jitter=0)
LATER = Retry(attempts=3, delay_s=3600, jitter=0)


@pytest.fixture(params=["sync", "async"])
def flavor(request):
    return Flavor(request.param)


@pytest.fixture(params=["files", "memory"])
def place(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else tmp_path / "w"
    return lambda **options: Holdfast(store, **options)


@pytest.fixture
def files(tmp_path):
    return lambda **options: Holdfast(tmp_path / "w", **options)


class World:
    """What tools did outside, and what was undone of it."""

    def __init__(self, flavor: Flavor, **options) -> None:
        self.flavor = flavor
        self.did: list[str] = []
        self.undone: list[str] = []
        self.keys: list[str] = []
        self.trouble: dict[str, BaseException] = {}
        """What undoing something raises."""
        self.after: dict[str, BaseException] = {}
        """What doing something raises, once it is done."""

        async def cancel_booking(what: str, *, key: str) -> str:
            self.keys.append(key)
            if error := self.trouble.get(what):
                raise error
            self.undone.append(what)
            return f"no {what}"

        async def book(what: str) -> str:
            self.did.append(what)
            if error := self.after.pop(what, None):
                raise error
            return what

        given = {"undo": flavor.plain(cancel_booking), **options}
        self.book = flavor.tool(book, **given)

    def trip(self, *ends: BaseException, whats=("flight", "room", "car"), **options):
        """A task that books things and then ends as told: one end for each time it gets there."""
        left = list(ends)

        async def trip() -> list[str]:
            booked = [await self.book(what) for what in whats]
            if left:
                raise left.pop(0)
            return booked

        return self.flavor.task(trip, **options)


def cancelled_while_down(hf: Holdfast, trip, id: str = "t") -> None:
    """The process died; then the task is cancelled, and somebody drives it to its end."""
    with pytest.raises(Crash):
        hf.run(trip, id=id)
    assert hf.cancel(id, because="rain") == "in_progress"


def compensation(hf: Holdfast, id: str = "t") -> list[tuple[str, str, str]]:
    return [(undone.path, undone.status, undone.why) for undone in hf.task(id).compensation]


def test_what_was_done_is_undone_in_reverse_and_each_with_a_key_of_its_own(flavor, place):
    world = World(flavor)
    trip = world.trip(Crash())
    with place() as hf:
        cancelled_while_down(hf, trip)
        assert world.undone == []
        with pytest.raises(TaskCancelled, match="rain"):
            hf.resume("t")
        assert world.undone == ["car", "room", "flight"]
        assert compensation(hf) == [(p, "undone", "") for p in ("3", "2", "1")]
        assert len(set(world.keys)) == 3
        assert all(key.startswith("t:undo.") for key in world.keys)
        calls = {c.path: c for c in hf.task("t").calls}
        assert [calls[f"undo.{n}"].key for n in (3, 2, 1)] == world.keys
        assert hf.task("t").status == "cancelled"
        with pytest.raises(TaskCancelled):
            hf.run(trip, id="t")
    assert world.undone == ["car", "room", "flight"]
    assert world.did == ["flight", "room", "car"]


def test_a_worker_undoes_what_a_cancelled_task_did(flavor, place):
    world = World(flavor)
    with place() as hf:
        cancelled_while_down(hf, world.trip(Crash()))
        Worker(hf).run_until_idle()
        assert hf.task("t").status == "cancelled"
    assert world.undone == ["car", "room", "flight"]


def test_a_task_that_is_cancelled_while_it_runs_is_undone_there(flavor, place):
    world, began, go_on = World(flavor), threading.Event(), threading.Event()

    @flavor.step
    async def lingering() -> None:
        began.set()
        await flavor.wait(go_on)

    @flavor.task
    async def busy_trip() -> None:
        await world.book("flight")
        await lingering()
        await world.book("room")

    with place() as hf:
        running = Background(hf.run, busy_trip, id="t")
        assert began.wait(60)
        eventually(lambda: any(hf.store.read("tasks/t")))
        hf.cancel("t")
        go_on.set()
        with pytest.raises(TaskCancelled):
            running.result()
        assert compensation(hf) == [("1", "undone", "")]
    assert (world.did, world.undone) == (["flight"], ["flight"])


@pytest.mark.parametrize("at", range(1, 13))
def test_a_crash_in_the_middle_of_undoing_undoes_each_once(flavor, files, monkeypatch, at):
    """Dies before the append of the n-th event from the cancelling on."""
    world = World(flavor)
    trip = world.trip(Crash(), whats=("flight", "room"))
    with files() as hf:
        cancelled_while_down(hf, trip)
    append, count = Log.append, [0]

    def dying(log: Log, event, *args) -> None:
        count[0] += 1
        if count[0] == at:
            raise Crash
        append(log, event, *args)
        log.sync()

    with monkeypatch.context() as patch, files() as hf:
        patch.setattr(Log, "append", dying)
        with pytest.raises((Crash, TaskCancelled)):
            hf.resume("t")
    with files() as hf:
        with pytest.raises(TaskCancelled):
            hf.resume("t")
        assert compensation(hf) == [("2", "undone", ""), ("1", "undone", "")]
    # The undo takes its key, so one in doubt is repeated with it: the receiver knows.
    assert len(world.undone) <= 3
    assert list(dict.fromkeys(world.undone)) == ["room", "flight"]
    assert len(set(world.keys)) == 2
    assert world.did == ["flight", "room"]


def test_an_undo_that_fails_for_good_leaves_the_others_undone_and_is_tried_again(flavor, place):
    world = World(flavor, retry=NOW)
    world.trouble["room"] = ConnectionError("no route")
    with place() as hf:
        cancelled_while_down(hf, world.trip(Crash()))
        with pytest.raises(TaskCancelled):
            hf.resume("t")
        assert world.undone == ["car", "flight"]
        assert compensation(hf) == [
            ("3", "undone", ""),
            ("2", "could not be undone", "ConnectionError: no route"),
            ("1", "undone", ""),
        ]
        assert len(world.keys) == 5  # three tries of the one that failed
        assert hf.task("t").status == "cancelled"
    with place() as hf:
        world.trouble.clear()
        view = hf.compensate("t")
        assert [undone.status for undone in view.compensation] == ["undone"] * 3
        assert view.status == "cancelled"
    assert world.undone == ["car", "flight", "room"]
    assert len(set(world.keys)) == 3  # and with the same key


def test_an_undo_in_doubt_stops_for_a_person(flavor, place):
    died = []

    async def undo_without_key(what: str) -> None:
        world.undone.append(what)
        if not died:
            died.append(1)
            raise Crash

    world = World(flavor, undo=flavor.plain(undo_without_key))
    with place() as hf:
        cancelled_while_down(hf, world.trip(Crash(), whats=("room",)))
        with pytest.raises(Crash):
            hf.resume("t")
        for _ in range(2):
            with pytest.raises(InDoubt, match=r"undo\.1"):
                hf.resume("t")
        assert hf.task("t").status == "awaiting_user"
        assert compensation(hf) == [("1", "in doubt", "")]
        hf.resolve("t", "undo.1", happened=True)
        with pytest.raises(TaskCancelled):
            hf.resume("t")
        assert compensation(hf) == [("1", "undone", "")]
    assert world.undone == ["room"]


# Calls in doubt are settled first


@pytest.mark.parametrize("happened", [True, False])
def test_a_tool_in_doubt_is_checked_before_it_is_undone(flavor, place, happened):
    async def look(key: str) -> Happened[str] | None:
        return Happened("room") if happened else None

    world = World(flavor, check=flavor.plain(look))
    world.after["room"] = Crash()
    with place() as hf:
        cancelled_while_down(hf, world.trip(whats=("flight", "room")))
        with pytest.raises(TaskCancelled):
            hf.resume("t")
    assert world.undone == (["room", "flight"] if happened else ["flight"])
    assert world.did == ["flight", "room"]


@pytest.mark.parametrize("happened", [True, False])
def test_a_tool_in_doubt_waits_for_a_person_before_anything_is_undone(flavor, place, happened):
    world = World(flavor, in_doubt="ask")
    world.after["room"] = Crash()
    with place() as hf:
        cancelled_while_down(hf, world.trip(whats=("flight", "room")))
        for _ in range(2):
            with pytest.raises(InDoubt):
                hf.resume("t")
        assert world.undone == []
        assert ("2", "in doubt") in [(u.path, u.status) for u in hf.task("t").compensation]
        hf.resolve("t", "2", happened=happened, result="room" if happened else None)
        with pytest.raises(TaskCancelled):
            hf.resume("t")
    assert world.undone == (["room", "flight"] if happened else ["flight"])
    assert world.did == ["flight", "room"]


def test_a_tool_in_doubt_under_retry_is_repeated_with_its_key_and_then_undone(flavor, place):
    seen = []

    async def undo_it(what: str, *, key: str) -> None:
        seen.append(f"undo {what}")

    async def keyed(what: str, *, key: IdempotencyKey) -> str:
        seen.append(key)
        if len(seen) == 1:
            raise Crash
        return what

    tool = flavor.tool(keyed, undo=flavor.plain(undo_it))

    @flavor.task
    async def keyed_trip() -> str:
        return await tool("room")

    with place() as hf:
        cancelled_while_down(hf, keyed_trip)
        with pytest.raises(TaskCancelled):
            hf.resume("t")
    assert seen == [seen[0], seen[0], "undo room"]


@pytest.mark.parametrize("in_doubt", ["retry", "ask"])
def test_a_tool_that_failed_and_would_be_tried_again_is_neither_asked_for_nor_undone(
    flavor, place, in_doubt
):
    """It raised: nothing happened, so there is nothing to find out, and nothing to undo."""
    world = World(flavor, in_doubt=in_doubt, retry=LATER)
    world.after["room"] = ConnectionError("no route")
    with place() as hf:
        hf.start(world.trip(whats=("flight", "room")), id="t")
        Worker(hf).run_until_idle()
        assert hf.task("t").state.calls["2"].status == "backing_off"
        hf.cancel("t")
        Worker(hf).run_until_idle()
        assert hf.task("t").status == "cancelled"
        assert compensation(hf) == [("1", "undone", "")]
    assert (world.did, world.undone) == (["flight", "room"], ["flight"])


@pytest.mark.parametrize("happened", [True, False])
def test_one_whose_reply_may_have_been_lost_is_checked_first(flavor, place, happened):
    crashes = [Crash()]

    async def look(key: str) -> Happened[str] | None:
        if crashes:
            raise crashes.pop()
        return Happened("room") if happened else None

    world = World(flavor, check=flavor.plain(look), retry=LATER)
    world.after["room"] = ConnectionError("no reply")
    with place() as hf:
        cancelled_while_down(hf, world.trip(whats=("flight", "room")))
        assert hf.task("t").state.calls["2"].status == "backing_off"
        with pytest.raises(TaskCancelled):
            hf.resume("t")
    assert world.did == ["flight", "room"]
    assert world.undone == (["room", "flight"] if happened else ["flight"])


def test_an_async_tool_that_is_cancelled_amid_is_in_doubt_and_settled_first(place):
    flavor = Flavor("async")
    began, settled = threading.Event(), []

    async def look(key: str) -> Happened[str]:
        settled.append(key)
        return Happened("room")

    async def undo_it(what: str) -> None:
        settled.append(f"undo {what}")

    async def slow_booking() -> str:
        began.set()
        await asyncio.sleep(60)
        return "never"

    tool = flavor.tool(slow_booking, check=look, undo=undo_it)

    @flavor.task
    async def slow_trip() -> str:
        return await tool()

    with place() as hf:
        running = Background(hf.run, slow_trip, id="t")
        assert began.wait(60)
        hf.cancel("t")
        with pytest.raises(TaskCancelled):
            running.result()
    assert [what.partition(":")[0] for what in settled] == ["t", "undo room"]


# When a task is undone


@pytest.mark.parametrize("compensate", ["failed", "always"])
def test_a_task_that_fails_is_undone_if_declared_so(flavor, place, compensate):
    world = World(flavor)
    trip = world.trip(ValueError("no money"), compensate=compensate)
    with place() as hf:
        with pytest.raises(TaskFailed, match="ValueError: no money"):
            hf.run(trip, id="t")
        assert (hf.task("t").status, len(world.undone)) == ("failed", 3)
        with pytest.raises(BadInput, match="what it did was undone"):
            hf.retry("t")
        with pytest.raises(TaskFailed, match="no money"):
            hf.run(trip, id="t")
    assert world.undone == ["car", "room", "flight"]


def test_by_default_a_task_that_fails_is_undone_by_hand_only(flavor, place):
    world = World(flavor)
    trip = world.trip(ValueError("once"), ValueError("twice"))
    with place() as hf:
        with pytest.raises(TaskFailed, match="once"):
            hf.run(trip, id="t")
        assert world.undone == []
        assert [status for _, status, _ in compensation(hf)] == ["left"] * 3
        with pytest.raises(TaskFailed, match="twice"):
            hf.retry("t")
        view = hf.compensate("t")
        assert (view.status, view.failure.message) == ("failed", "twice")
        assert [undone.status for undone in view.compensation] == ["undone"] * 3
        with pytest.raises(BadInput, match="was undone"):
            hf.retry("t")
        hf.compensate("t")  # there is nothing left to undo
    assert world.undone == ["car", "room", "flight"]


@pytest.mark.parametrize("compensate", ["never", "failed"])
def test_a_cancelled_task_is_left_as_it_is_if_declared_so(flavor, place, compensate):
    world = World(flavor)
    with place() as hf:
        with pytest.raises(Crash):
            hf.run(world.trip(Crash(), compensate=compensate), id="t")
        hf.cancel("t")
        Worker(hf).run_until_idle()
        assert (hf.task("t").status, world.undone) == ("cancelled", [])
        assert [undone.status for undone in hf.compensate("t").compensation] == ["undone"] * 3
        assert hf.task("t").status == "cancelled"
    assert world.undone == ["car", "room", "flight"]


def test_a_task_whose_time_is_up_is_undone_as_one_that_failed(flavor, place):
    world = World(flavor)

    @flavor.task(timeout_s=1.0, compensate="failed")
    async def slow_trip_in_time() -> None:
        await world.book("flight")
        await flavor.sleep(60)

    with place() as hf, pytest.raises(TaskFailed, match="TaskTimedOut"):
        hf.run(slow_trip_in_time, id="t")
    assert world.undone == ["flight"]


def test_what_did_not_end_badly_is_not_undone(flavor, place):
    world = World(flavor)
    with place() as hf:
        hf.run(world.trip(), id="t")
        with pytest.raises(BadInput, match="is completed: only what failed"):
            hf.compensate("t")
        with pytest.raises(Crash):
            hf.run(world.trip(Crash()), id="u")
        with pytest.raises(BadInput, match=r"is in_progress.*hf\.cancel"):
            hf.compensate("u")
    assert world.undone == []


@pytest.mark.parametrize("bad", ["sometimes", None, 1, ["failed"]])
def test_a_policy_that_makes_no_sense_is_refused(flavor, bad):
    with pytest.raises(BadInput, match="compensate"):
        World(flavor).trip(compensate=bad)


@pytest.mark.parametrize("bad", ["cancel", lambda: None, 7])
def test_an_undo_that_makes_no_sense_is_refused(flavor, bad):
    with pytest.raises(BadInput, match="undo"):
        World(flavor, undo=bad)


# What undoes, and what is undone


def test_an_undo_may_be_a_tool_with_options_of_its_own(flavor, place):
    tries = []

    async def refund(what: str, *, key: IdempotencyKey) -> str:
        tries.append(key)
        if len(tries) < 3:
            raise ConnectionError("no route")
        return "refunded"

    # A decorated function, of the flavor's own kind.
    decorated = flavor.tool(refund, retry=NOW)
    undo = decorated if flavor.is_async else decorated.plain
    world = World(flavor, undo=undo)
    with place() as hf:
        cancelled_while_down(hf, world.trip(Crash(), whats=("room",)))
        with pytest.raises(TaskCancelled):
            hf.resume("t")
        assert compensation(hf)[0][:2] == ("1", "undone")
    assert (len(tries), len(set(tries))) == (3, 1)


def test_a_tool_and_its_undo_may_be_of_either_kind(place):
    for mixed in (("sync", "async"), ("async", "sync")):
        tools, undos = map(Flavor, mixed)
        undone = []

        async def undo_either(what: str, undone: list = undone) -> None:
            undone.append(what)

        world = World(tools, undo=undos.plain(_of_result(undo_either)))
        with place() as hf:
            cancelled_while_down(hf, world.trip(Crash(), whats=("room",)), id=mixed[0])
            with pytest.raises(TaskCancelled):
                hf.resume(mixed[0])
        assert undone == ["room"]


def _of_result(fn):
    async def undo(result: str) -> None:
        await fn(result)

    return undo


def test_what_was_done_before_a_checkpoint_is_undone_too(flavor, files):
    world = World(flavor)

    @flavor.task
    async def looping_trip() -> int:
        n = restore(0)
        while n < 3:
            await world.book(f"night {n}")
            n = checkpoint(n + 1)
            if n == 2:
                raise Crash
        return n

    with files() as hf, pytest.raises(Crash):
        hf.run(looping_trip, id="t")
    with files() as hf:
        hf.cancel("t")
        with pytest.raises(TaskCancelled):
            hf.resume("t")
        assert [u.status for u in hf.task("t").compensation] == ["undone", "undone"]
    assert world.undone == ["night 1", "night 0"]


def test_a_failed_task_that_had_nothing_to_undo_can_be_retried(flavor, files):
    left = [ValueError("once")]

    @flavor.task(compensate="failed")
    async def looping_idly() -> int:
        n = restore(0)
        n = checkpoint(n + 1)
        if left:
            raise left.pop()
        return n

    with files() as hf:
        with pytest.raises(TaskFailed, match="once"):
            hf.run(looping_idly, id="t")
        assert hf.retry("t") == 2


def test_branches_are_undone_in_the_reverse_order_of_their_ends(flavor, place):
    world, first = World(flavor), threading.Event()

    @flavor.task
    async def branching_trip() -> None:
        async def later() -> None:
            await flavor.wait(first)
            await world.book("room")

        async def sooner() -> None:
            await world.book("flight")
            first.set()

        await flavor.gather(later, sooner)
        raise Crash

    with place() as hf:
        cancelled_while_down(hf, branching_trip)
        with pytest.raises(TaskCancelled):
            hf.resume("t")
    assert world.undone == ["room", "flight"]


def test_a_tool_inside_a_step_that_failed_is_undone(flavor, place):
    world = World(flavor)

    @flavor.step
    async def half_way() -> None:
        await world.book("room")
        raise ValueError("half-way")

    @flavor.task(compensate="always")
    async def nested_trip() -> None:
        try:
            await half_way()
        except StepFailed:
            await world.book("car")
            raise

    with place() as hf, pytest.raises(TaskFailed, match="half-way"):
        hf.run(nested_trip, id="t")
    assert world.undone == ["car", "room"]


def test_a_tool_that_failed_is_not_undone(flavor, place):
    world = World(flavor)
    world.after["room"] = ValueError("fully booked")
    with place() as hf:
        with pytest.raises(TaskFailed):
            hf.run(world.trip(compensate="failed", whats=("flight", "room")), id="t")
        assert compensation(hf) == [("1", "undone", "")]
    assert world.undone == ["flight"]


def test_what_is_being_undone_can_not_be_cancelled_or_paused(flavor, place):
    world = World(flavor)
    world.trouble["car"] = Crash()
    with place() as hf:
        with pytest.raises(Crash):
            hf.run(world.trip(ValueError("no"), compensate="failed"), id="t")
        with pytest.raises(BadInput):
            hf.pause("t")
        assert hf.cancel("t") == "in_progress"
        world.trouble.clear()
        with pytest.raises(TaskFailed, match="ValueError: no"):
            hf.resume("t")
        assert hf.task("t").status == "failed"
    assert world.undone == ["car", "room", "flight"]


def test_children_started_before_a_checkpoint_are_cancelled_with_their_parent(flavor, files):
    @flavor.task
    async def idle_child_of_loop() -> None: ...

    @flavor.task(compensate="never")
    async def parent_loop() -> None:
        n = restore(0)
        if n == 0:
            await flavor.start(idle_child_of_loop, id="child")
            checkpoint(1)
        raise Crash

    with files() as hf, pytest.raises(Crash):
        hf.run(parent_loop, id="t")
    with files() as hf:
        hf.cancel("t")
        with pytest.raises(TaskCancelled):
            hf.resume("t")
        assert hf.task("child").status == "cancelled"


def test_an_async_task_can_be_compensated_from_async_code(files):
    world = World(Flavor("async"))

    async def main(hf: Holdfast) -> None:
        with pytest.raises(TaskFailed):
            await hf.arun(world.trip(ValueError("no")), id="t")
        await asyncio.to_thread(hf.compensate, "t")

    with files() as hf:
        asyncio.run(main(hf))
    assert world.undone == ["car", "room", "flight"]
